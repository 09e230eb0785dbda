//! Queues and topics with the semantics of Azure Service Bus, durable in any container: sessions,
//! locks, deferral, schedules, duplicate detection, dead letters.
//!
//! Not here: the network protocol; a front door builds on [`Broker`].
//!
//! # What to read
//!
//! - [`Broker`] is the handle and [`BrokerService`] what must run; `sending`, `receiving`,
//!   `sessions` and `entities` are its methods.
//! - `outlet` is the state machine of a queue or subscription, `entity` the one around it, `log`
//!   the messages, `marks` what became of them, `entity::round` what is committed together.
//! - `stored` has the documents, `ledger` the commits, `load` the way back after a restart.
//!
//! # What is promised
//!
//! 1. A send that returned is durable, and is offered once to every subscription that wants it.
//! 2. Messages of a session are delivered in the order they were sent, to one receiver at a time;
//!    one that was abandoned or whose lock ended comes again before any later one.
//! 3. A settlement that returned is durable; a completed message does not come again.
//! 4. Locks are in memory: after a restart messages that somebody had come again.
//!
//! # How it works
//!
//! All documents of an entity are in one logical partition. Concurrent sends become one *segment*,
//! a document that holds the messages of one commit; a topic keeps a message once. What each
//! subscription did with the messages of a segment is in one small document, written again when
//! that changes. A segment most of whose messages everybody is done with is written again without
//! them, so that what is stored is bounded by what somebody wants. Every commit also replaces the
//! *head* document under its etag, so that a lost reply can be told from a lost request, and of two
//! brokers on one container only the later one can write. In memory there is an index of about 100
//! bytes per message; bodies are read when they are delivered, recent ones from a cache.
//!
//! ```
//! use std::sync::Arc;
//! use std::time::Duration;
//! use millstream_broker::{Broker, BrokerOptions, QueueSettings, ReceiveMode};
//! use millstream_core::conformance::block_on;
//! use millstream_core::*;
//! use tokio_util::sync::CancellationToken;
//!
//! # fn main() -> Result<()> {
//! # let clock: Arc<dyn Clock> = Arc::new(SystemClock::default());
//! # let store = memory::Memory::new(Arc::clone(&clock));
//! # let name = ContainerName::new("app", "broker")?;
//! # let container = block_on(async {
//! #     store.create_database("app").await?;
//! #     let key = PartitionKeyDefinition::hash("/partitionKey")?;
//! #     store.create(&name, ContainerSettings::new(key)).await?;
//! #     store.open(&name).await
//! # })?;
//! block_on(async {
//!     let ids = Arc::new(RandomIds::new(Arc::clone(&clock)));
//!     let (broker, service) =
//!         Broker::open(&container, BrokerOptions::default(), clock, ids).await?;
//!     let shutdown = CancellationToken::new();
//!     let work = async {
//!         broker.create_queue("orders", QueueSettings::default()).await?;
//!         broker.send("orders", vec![Message::new("1", "hello")]).await?;
//!         let mode = ReceiveMode::PeekLock;
//!         let received = broker.receive("orders", mode, 10, Duration::ZERO).await?;
//!         let token = received[0].delivery.lock_token.as_str();
//!         broker.settle("orders", &[token], &Settlement::Complete).await?;
//!         shutdown.cancel();
//!         Ok(())
//!     };
//!     futures_util::future::join(service.run(shutdown.clone()), work).await.1
//! })
//! # }
//! ```

mod broker;
mod cache;
mod codec;
mod duplicates;
mod entities;
mod entity;
mod fill;
mod filter;
mod flaw;
mod inspection;
mod ledger;
mod load;
mod log;
mod marks;
mod options;
mod outlet;
mod path;
mod purging;
mod receiving;
mod routes;
mod sending;
mod service;
mod sessions;
mod settings;
mod shared;
mod stored;
#[cfg(test)]
mod tests;

pub use crate::broker::Broker;
pub use crate::entity::{MessageState, SendOutcome};
pub use crate::fill::Fill;
pub use crate::filter::Filter;
pub use crate::filter::correlation::CorrelationFilter;
pub use crate::filter::sql::SqlFilter;
#[cfg(feature = "planted-flaws")]
pub use crate::flaw::Flaw;
pub use crate::inspection::{Inspection, inspect};
pub use crate::marks::{DEAD_LETTER_DESCRIPTION_BYTES_MAX, DEAD_LETTER_REASON_BYTES_MAX};
pub use crate::options::{
    BrokerOptions, MESSAGE_BYTES_LIMIT, SEGMENT_BYTES_MAX, SEGMENT_MESSAGES_MAX,
};
pub use crate::outlet::Counts;
pub use crate::path::{
    ENTITY_NAME_BYTES_MAX, EntityPath, SUBSCRIPTION_NAME_BYTES_MAX, check_entity_name,
    check_subscription_name,
};
pub use crate::purging::Waiting;
pub use crate::receiving::{DeadLetters, PeekedMessage, ReceiveMode, Received};
pub use crate::service::BrokerService;
pub use crate::sessions::{
    BrokerPublisher, BrokerSession, BrokerSubscriber, SESSION_STATE_BYTES_MAX,
};
pub use crate::settings::{
    DELIVERY_COUNT_LIMIT, DUPLICATE_WINDOW_MAX, LOCK_DURATION_MAX, QueueSettings, RULES_MAX,
    ReceiveSettings, Rule, SUBSCRIPTIONS_MAX, SubscriptionSettings, TopicSettings,
};
