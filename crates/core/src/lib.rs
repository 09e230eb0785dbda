//! The contract of Millstream: its words, its ports, and the suites that prove a backend.
//!
//! A container holds JSON items in logical partitions. A batch changes one logical partition whole
//! or not at all, and every commit becomes a numbered entry of the change feed of its range. What a
//! backend promises about that is a list of numbered obligations; [`conformance`] has a test for
//! each.
//!
//! Not here: any I/O, any runtime. The embedded engine is `millstream-store`.
//!
//! Read [`Documents`] and [`ChangeFeed`] first, then [`Batch`], then [`memory`], which keeps every
//! obligation in the plainest way.
//!
//! ```
//! use std::sync::Arc;
//! use millstream_core::*;
//! use millstream_core::conformance::block_on;
//!
//! # fn main() -> Result<()> {
//! let store = memory::Memory::new(Arc::new(SystemClock::default()));
//! block_on(async {
//!     store.create_database("app").await?;
//!     let name = ContainerName::new("app", "data")?;
//!     let settings = ContainerSettings::new(PartitionKeyDefinition::hash("/partitionKey")?);
//!     store.create(&name, settings).await?;
//!     let data = store.open(&name).await?;
//!     let batch = Batch::new("ada")
//!         .with(Operation::create(r#"{"id":"ada","partitionKey":"ada"}"#))
//!         .with(Operation::create(r#"{"id":"event-1","partitionKey":"ada","type":"domainEvent"}"#));
//!     data.documents.commit(batch).await?;
//!
//!     let (keys, mode) = (KeyRange::all(), FeedMode::LatestVersion);
//!     let start = data.feed.start(&keys, StartFrom::Beginning, mode).await?;
//!     let page = data.feed.read(&keys, &start, PageSize::default()).await?;
//!     assert_eq!(page.changes.len(), 2);
//!     Ok(())
//! })
//! # }
//! ```

mod batch;
mod capabilities;
mod change;
mod clock;
pub mod conformance;
mod container;
mod date;
mod error;
mod hashing;
mod id_source;
mod item;
mod item_id;
mod json;
pub mod memory;
mod message;
mod partition_key;
mod patch;
mod ports;
mod range;
pub mod refusals;
mod rfc3339;
mod unique_key;

pub use crate::batch::{
    Action, BATCH_BYTES_MAX, BATCH_OPERATIONS_MAX, BATCH_PATCHED_BYTES_MAX, BATCH_RESULT_BYTES_MAX,
    Batch, BatchOutcome, CONDITION_STEPS_MAX, CheckedBatch, CheckedOperation, CurrentItems,
    ITEM_BYTES_MAX, IfNoneMatch, NewBody, NotUnique, Operation, OperationKind, OperationResult,
    Step,
};
pub use crate::capabilities::Capabilities;
pub use crate::change::{
    Change, ChangeKind, Continuation, Cursor, FeedMode, FeedPage, PageSize, StartFrom,
};
pub use crate::clock::{BoxFuture, Clock, ManualClock, SystemClock, Timestamp};
pub use crate::container::{
    ContainerInfo, ContainerName, ContainerSettings, DatabaseInfo, RangeInfo, ResourceId,
    check_name,
};
pub use crate::date::Date;
pub use crate::error::{Effect, Error, ErrorKind, Result};
pub use crate::hashing::EffectiveKey;
pub use crate::id_source::{CountingIds, IdSource, RandomIds};
pub use crate::item::{Etag, Item, Lsn};
pub use crate::item_id::ItemId;
pub use crate::json::edit::{set_properties, set_property};
pub use crate::json::same::{Numbers, says_the_same};
pub use crate::json::{Envelope, JSON_DEPTH_MAX, RawJson, TimeToLive};
pub use crate::message::{
    Delivery, Message, PropertyValue, PublishLimits, Publisher, SessionReceiver, Settlement,
    Subscriber,
};
pub use crate::partition_key::definition::{HashKind, PartitionKeyDefinition};
pub use crate::partition_key::{PartitionKey, PartitionKeyComponent};
pub use crate::patch::path::PatchPath;
pub use crate::patch::{Patch, PatchCondition, PatchOperation};
pub use crate::ports::{
    ChangeFeed, Container, Containers, Documents, RetentionGuards, ScanContinuation, ScanPage,
    ScanScope,
};
pub use crate::range::{KeyRange, RangeId};
pub use crate::unique_key::{Claim, UniqueKey};
