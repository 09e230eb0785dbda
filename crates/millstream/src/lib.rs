//! A document store whose every commit becomes an ordered, replayable change feed.
//!
//! Commit an entity and the events it raised in one [`Batch`]; read them back in commit order from
//! the [`ChangeFeed`] of the container, from any position, as often as needed.
//!
//! # What to read
//!
//! - [`Documents`] and [`ChangeFeed`] are what a program calls; [`Containers`] makes the containers
//!   they belong to. Each says which numbered obligations every backend keeps.
//! - [`Batch`], [`Operation`] and [`Patch`] say what to change; [`Change`] says what changed.
//! - [`Error`] says what to do about a failure, and whether the call may have happened.
//! - `Store` is the embedded backend: one data directory, one process.
//! - [`memory::Memory`] keeps the same contract without a disk, for tests.
//!
//! # Features
//!
//! - `embedded` (default): `Store`, its options and its figures.
//!
//! # What is promised
//!
//! The names in this crate follow semantic versioning. The crates they come from do not: depend on
//! this one. A backend of one's own needs [`backend`] and [`conformance`] besides.
//!
//! # Not here
//!
//! A runtime: every future runs on any executor. A network: there is none yet.
//!
//! ```
//! use std::sync::Arc;
//!
//! use futures_lite::future::block_on;
//! use millstream::memory::Memory;
//! use millstream::{
//!     Batch, ContainerName, ContainerSettings, Containers, ItemId, Operation, PartitionKey,
//!     PartitionKeyDefinition, Result, SystemClock,
//! };
//!
//! # fn main() -> Result<()> {
//! let store = Memory::new(Arc::new(SystemClock::default()));
//! let name = ContainerName::new("app", "contacts")?;
//! let settings = ContainerSettings::new(PartitionKeyDefinition::hash("/city")?);
//! let body = r#"{"id": "ada", "city": "London"}"#;
//!
//! block_on(async {
//!     store.create_database("app").await?;
//!     store.create(&name, settings).await?;
//!     let contacts = store.open(&name).await?;
//!     contacts.documents.commit(Batch::new("London").with(Operation::create(body))).await?;
//!
//!     let (city, id) = (PartitionKey::from("London"), ItemId::new("ada")?);
//!     let ada = contacts.documents.read(&city, &id).await?.expect("it was committed");
//!     assert_eq!(ada.body, body);
//!     Ok(())
//! })
//! # }
//! ```

// Ports.
pub use millstream_core::{
    ChangeFeed, Container, Containers, Documents, RetentionGuards, ScanContinuation, ScanPage,
    ScanScope,
};

// Containers.
pub use millstream_core::{
    Capabilities, ContainerInfo, ContainerName, ContainerSettings, DatabaseInfo, EffectiveKey,
    HashKind, KeyRange, PartitionKey, PartitionKeyComponent, PartitionKeyDefinition, RangeId,
    RangeInfo, ResourceId, TimeToLive,
};

// Changing items.
pub use millstream_core::{
    BATCH_BYTES_MAX, BATCH_OPERATIONS_MAX, Batch, BatchOutcome, Etag, ITEM_BYTES_MAX, IfNoneMatch,
    Item, ItemId, JSON_DEPTH_MAX, Lsn, Operation, OperationKind, OperationResult, Patch,
    PatchCondition, PatchOperation, PatchPath, RawJson,
};

// Reading changes.
pub use millstream_core::{
    Change, ChangeKind, Continuation, FeedMode, FeedPage, PageSize, StartFrom,
};

// Failures, time and ids.
pub use millstream_core::{
    BoxFuture, Clock, CountingIds, Effect, Error, ErrorKind, IdSource, ManualClock, RandomIds,
    Result, SystemClock, Timestamp,
};

pub use millstream_core::{conformance, conformance_tests, memory};

#[cfg(feature = "embedded")]
pub use millstream_store::{Durability, GuardLag, Store, StoreOptions, StoreStatistics};

/// What a backend of one's own needs besides the ports: checked batches, positions as text, bodies.
///
/// A user of a backend needs nothing of this.
pub mod backend {
    pub use millstream_core::{
        Action, CheckedBatch, CheckedOperation, CurrentItems, Cursor, Envelope, NewBody, Step,
        check_name, set_properties, set_property,
    };
}

/// The examples of the README are tests.
#[cfg(all(doctest, feature = "embedded"))]
#[doc = include_str!("../../../README.md")]
struct Readme;
