//! A document store whose every commit becomes an ordered, replayable change feed.
//!
//! Commit an entity and the events it raised in one [`Batch`]; read them back in commit order from
//! the [`ChangeFeed`] of the container, from any position, as often as needed; or have them
//! published to whoever subscribes.
//!
//! # What to read
//!
//! - [`Documents`] and [`ChangeFeed`] are what a program calls; [`Containers`] makes the containers
//!   they belong to. Each says which numbered obligations every backend keeps.
//! - [`Batch`], [`Operation`] and [`Patch`] say what to change; [`Change`] says what changed.
//! - [`Error`] says what to do about a failure, and whether the call may have happened.
//! - `Store` is the embedded backend: one data directory, one process.
//! - `processor` shares the feed among any number of instances and remembers how far they are.
//! - `outbox` commits entities with the events they raise, `relay` publishes those events, and
//!   `broker` keeps and delivers them; [`Message`], [`Publisher`] and [`Subscriber`] are the words
//!   between them.
//! - [`memory::Memory`] keeps the same contract without a disk, for tests.
//!
//! # Features
//!
//! - `embedded` (default): `Store`, its options and its figures.
//! - `processor`, `outbox`, `relay`, `broker` (default): the modules of these names.
//! - `webhook`: the module `webhook`, with an HTTP client and TLS.
//! - `nats`: the module `nats`, store and topics on NATS JetStream, with its client.
//! - `cosmos`: the module `cosmos`, a connection to Azure Cosmos DB or to a remote Millstream, with
//!   the SDK of Azure.
//!
//! # What is promised
//!
//! The names in this crate follow semantic versioning. The crates they come from do not: depend on
//! this one. A backend of one's own needs [`backend`] and [`conformance`] besides.
//!
//! # Not here
//!
//! A runtime: every future runs on any executor (but those of `webhook`, `nats` and
//! `cosmos`, which need Tokio). The server side of a network protocol: that is the program
//! `millstream`.
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
    BATCH_BYTES_MAX, BATCH_OPERATIONS_MAX, BATCH_RESULT_BYTES_MAX, Batch, BatchOutcome, Etag,
    ITEM_BYTES_MAX, IfNoneMatch, Item, ItemId, JSON_DEPTH_MAX, Lsn, Operation, OperationKind,
    OperationResult, Patch, PatchCondition, PatchOperation, PatchPath, RawJson,
};

// Reading changes.
pub use millstream_core::{
    Change, ChangeKind, Continuation, FeedMode, FeedPage, PageSize, StartFrom,
};

// Messages.
pub use millstream_core::{
    Delivery, Message, PropertyValue, PublishLimits, Publisher, SessionReceiver, Settlement,
    Subscriber,
};

// Failures, time and ids.
pub use millstream_core::{
    BoxFuture, Clock, CountingIds, Effect, Error, ErrorKind, IdSource, ManualClock, RandomIds,
    Result, SystemClock, Timestamp,
};

pub use millstream_core::{conformance, conformance_tests, memory};

#[cfg(feature = "embedded")]
pub use millstream_store::{Durability, GuardLag, Store, StoreOptions, StoreStatistics};

/// Items and change feed on Azure Cosmos DB, or on a remote Millstream.
///
/// `Cosmos` is a connection, and a backend like any other; `Address` says where to.
#[cfg(feature = "cosmos")]
pub mod cosmos {
    pub use millstream_backend_cosmos::{Address, Cosmos, CosmosOptions};
}

/// Processes the change feed of a container with any number of instances.
///
/// `Processor` is one instance and `Handler` what it gives the changes to. The errors are those of
/// the processor; they have the names of those of a store, and so live here.
#[cfg(feature = "processor")]
pub mod processor {
    pub use millstream_processor::{
        ChangeBatch, Checkpoint, Concurrency, Context, DeadLetters, Error, ErrorKind, Estimate,
        Estimator, ExpiredPolicy, Failing, FailurePolicy, Handled, Handler, HandlerError,
        HandlerErrorKind, HandlerResult, LeaseLag, LeaseState, LeaseStatus, MemberStatus, Metrics,
        Mode, Monitor, NoMetrics, Notification, Notifications, Operations, ParkedChange,
        ParkedPage, ParkedSequence, ParkedState, Processor, ProcessorOptions, RecreatedPolicy,
        Result, Schema, SkippedPage, Snapshot, SnapshotLease, StartPosition, Started, Status,
        Strategy, foreign, metrics,
    };
    pub use tokio_util::sync::CancellationToken;
}

/// Entities that raise events, committed together; and messages handled once.
#[cfg(feature = "outbox")]
pub mod outbox {
    pub use millstream_outbox::{
        Changes, Coalescing, Committed, CommittedEvent, Conflict, ConflictReason, DomainEvent,
        DuplicateBy, Entity, EntityPage, Error, ErrorKind, EventHandler, Events, GapPolicy,
        HandlerError, Inbox, InboxOptions, Incoming, Limits, NewEvent, Order, Outbox,
        OutboxOptions, Outcome, RaisedEvent, ReadIfChanged, Result, SoftDelete, StoredEvent,
        TraceContext, TraceSource, UnitOfWork, Versioned,
    };
}

/// Events of a change feed as messages, in order per key.
#[cfg(feature = "relay")]
pub mod relay {
    pub use millstream_relay::{
        MessageForm, Published, Relay, RelayMonitor, RelayObserver, RelayOptions, Replay,
        ReplayReport, StartedRelay,
    };
}

/// Queues and topics with sessions, locks, duplicate detection and dead letters, durable in any
/// container.
#[cfg(feature = "broker")]
pub mod broker {
    pub use millstream_broker::{
        Broker, BrokerOptions, BrokerPublisher, BrokerService, BrokerSession, BrokerSubscriber,
        CorrelationFilter, Counts, DeadLetters, EntityPath, Filter, MessageState, PeekedMessage,
        QueueSettings, ReceiveMode, ReceiveSettings, Received, Rule, SendOutcome, SqlFilter,
        SubscriptionSettings, TopicSettings,
    };
}

/// Messages posted to an HTTP address.
#[cfg(feature = "webhook")]
pub mod webhook {
    pub use millstream_webhook::{Signer, Webhook, WebhookOptions};
}

/// Everything on NATS JetStream: `NatsStore` for containers, `NatsTopic` for messages.
#[cfg(feature = "nats")]
pub mod nats {
    pub use millstream_backend_nats::{
        AsideMessage, Connection, ConnectionOptions, Credentials, DeadLetters, LANES_MAX,
        LEASE_MIN, LOCK_DURATION_MAX, Maintained, NatsPublisher, NatsSession, NatsStore,
        NatsSubscriber, NatsSubscriberService, NatsTopic, PUBLISH_BYTES_MAX, PUBLISH_MESSAGES_MAX,
        SubscriptionOptions, TopicOptions,
    };
}

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
#[cfg(all(doctest, feature = "embedded", feature = "processor", feature = "outbox"))]
#[doc = include_str!("../../../README.md")]
struct Readme;

/// Those about messages, too.
#[cfg(all(
    doctest,
    feature = "embedded",
    feature = "relay",
    feature = "outbox",
    feature = "broker"
))]
#[doc = include_str!("../../../docs/messaging.md")]
struct Messaging;
