//! Millstream on NATS JetStream: a replicated store, its change feed, and messages.
//!
//! Every range of a container is a stream, every item a subject of it, and a batch one atomic
//! publish. The processes that use it keep nothing: any number of them may work on one cluster, and
//! any of them may be killed.
//!
//! Not here: the cluster itself. Servers from 2.12 on are needed, with JetStream switched on.
//!
//! Read `connection` first, then `subject` and `record` (what is stored where), `wire` (how it gets
//! there), `plan` (what a batch comes down to), and `container` with its parts. Messages are
//! for themselves: read `messages`.

mod cache;
mod catalog;
mod connection;
mod container;
mod leftovers;
mod maintenance;
mod messages;
mod plan;
mod record;
mod removal;
mod store;
mod streams;
mod subject;
mod wire;

pub use crate::connection::{Connection, ConnectionOptions, Credentials};
pub use crate::maintenance::Maintained;
pub use crate::messages::aside::{AsideMessage, DeadLetters};
pub use crate::messages::options::{
    LANES_MAX, LEASE_MIN, LOCK_DURATION_MAX, SubscriptionOptions, TopicOptions,
};
pub use crate::messages::publisher::{NatsPublisher, PUBLISH_BYTES_MAX, PUBLISH_MESSAGES_MAX};
pub use crate::messages::service::NatsSubscriberService;
pub use crate::messages::subscriber::{NatsSession, NatsSubscriber};
pub use crate::messages::topic::NatsTopic;
pub use crate::store::NatsStore;
