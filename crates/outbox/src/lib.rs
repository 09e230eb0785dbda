//! Commits business objects together with the events they raise, and handles each message once.
//!
//! # What to read
//!
//! - [`Entity`] is a business object; it owns its [`Events`] and raises a [`DomainEvent`] when it
//!   changes.
//! - [`Outbox`] is a container that entities are committed to; a [`UnitOfWork`] is one commit. An
//!   [`EventHandler`] hears of events before they are committed, and may object.
//! - [`StoredEvent`] is what a relay finds in the change feed.
//! - [`Inbox`] is for consumers: it commits the effect of a message together with its id.
//!
//! # What is promised
//!
//! An entity and its events are committed together or not at all, in one batch of one logical
//! partition. What does not fit is refused before anything is sent. Whoever loses the reply to a
//! commit may repeat it: events keep their ids, and nothing happens twice. Events are numbered per
//! partition key by the store, without gaps.
//!
//! # Not here
//!
//! Reading the feed (`millstream-processor`), sending messages (a relay), any backend, any global
//! state: clock, ids and traces are handed in.
//!
//! ```
//! use std::sync::Arc;
//! use millstream_core::conformance::block_on;
//! use millstream_core::*;
//! use millstream_outbox::{DomainEvent, Entity, Events, NewEvent, Outbox};
//! use serde::{Deserialize, Serialize};
//!
//! #[derive(Serialize, Deserialize)]
//! struct Contact { id: String, name: String, #[serde(skip)] events: Events }
//!
//! #[derive(Serialize)]
//! struct Created { name: String }
//! impl DomainEvent for Created { fn action(&self) -> &str { "ContactCreated" } }
//!
//! #[derive(Serialize)]
//! struct NameUpdated { name: String }
//! impl DomainEvent for NameUpdated { fn action(&self) -> &str { "ContactNameUpdated" } }
//!
//! impl Contact {
//!     fn set_name(&mut self, name: &str) {
//!         self.name = name.to_owned();
//!         self.events.raise(NameUpdated { name: name.to_owned() });
//!     }
//! }
//!
//! impl Entity for Contact {
//!     const TYPE: &'static str = "contact";
//!     fn id(&self) -> &str { &self.id }
//!     fn events(&self) -> &Events { &self.events }
//!     fn created_event(&self) -> Option<NewEvent> {
//!         Some(Created { name: self.name.clone() }.into())
//!     }
//! }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let clock = Arc::new(SystemClock::default());
//! # let store = memory::Memory::new(clock.clone());
//! # let name = ContainerName::new("app", "data")?;
//! # let settings = ContainerSettings::new(PartitionKeyDefinition::hash("/partitionKey")?)
//! #     .default_ttl(TimeToLive::Never);
//! # let container = block_on(async {
//! #     store.create_database("app").await?;
//! #     store.create(&name, settings).await?;
//! #     store.open(&name).await
//! # })?;
//! let outbox = Outbox::new(&container, clock.clone(), Arc::new(RandomIds::new(clock)))?;
//! block_on(async {
//!     let mut unit = outbox.unit();
//!     let events = Events::for_new();
//!     unit.create(Contact { id: "17".to_owned(), name: "Ada".to_owned(), events })?;
//!     let mut committed = unit.commit().await?;
//!
//!     let mut contact = committed.take::<Contact>("17").expect("it was just committed");
//!     contact.entity.set_name("Ada King");
//!     unit.update(contact.entity, contact.etag)?;
//!     let committed = unit.commit().await?;
//!     assert_eq!(committed.events[0].event.action, "ContactNameUpdated");
//!     assert_eq!(committed.events[0].sequence, Some(2));
//!     Ok(())
//! })
//! # }
//! ```

mod changes;
mod committed;
mod document;
mod entity;
mod error;
mod event;
mod events;
mod flaw;
mod handler;
mod inbox;
mod outbox;
mod plan;
#[cfg(test)]
mod test_world;
mod trace;
mod tracked;
mod unit;

pub use crate::changes::Changes;
pub use crate::committed::{Committed, CommittedEvent};
pub use crate::document::StoredEvent;
pub use crate::entity::{Entity, SoftDelete, Versioned};
pub use crate::error::{Conflict, ConflictReason, Error, ErrorKind, Result};
pub use crate::event::{DomainEvent, NewEvent, RaisedEvent};
pub use crate::events::{Coalescing, Events};
#[cfg(feature = "planted-flaws")]
pub use crate::flaw::Flaw;
pub use crate::handler::{EventHandler, HandlerError};
pub use crate::inbox::Inbox;
pub use crate::inbox::incoming::Incoming;
pub use crate::inbox::options::{DuplicateBy, GapPolicy, InboxOptions, Outcome};
pub use crate::inbox::sequence::Order;
pub use crate::outbox::{Limits, Outbox, OutboxOptions};
pub use crate::trace::{TraceContext, TraceSource};
pub use crate::unit::{EntityPage, ReadIfChanged, UnitOfWork};
