//! A service that manages contacts, as an example of the whole of Millstream.
//!
//! Each change of a contact is committed together with the event that tells of it. A relay sends
//! the events on, and two consumers show what becomes of them: a search list that takes each event
//! once, and a receiver of webhooks.
//!
//! Read `domain` first (what a contact is, which changes it allows, which events it raises), then
//! [`ContactService`] (one commit per request), then `http` (the REST interface), then
//! [`SearchProjection`] and [`WebhookReceiver`] (the consumers). [`Generator`] makes changes for a
//! demonstration.
//!
//! Not here: the relay and the broker; whoever embeds this brings a `Subscriber`.
//!
//! ```
//! use std::sync::Arc;
//! use contacts::{ContactContainers, ContactService, Draft, SearchIndex};
//! use millstream_core::conformance::block_on;
//! use millstream_core::{RandomIds, SystemClock, memory::Memory};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let clock = Arc::new(SystemClock::default());
//! let store = Memory::new(clock.clone());
//! let containers = block_on(ContactContainers::prepare(&store))?;
//! let ids = Arc::new(RandomIds::new(clock.clone()));
//! let service = ContactService::new(&containers.data, clock, ids)?;
//!
//! let company_name = "Analytical Engines".to_owned();
//! let draft = Draft { company_name, ..Draft::named("Ada", "King") };
//! let created = block_on(service.create(&draft))?;
//! assert_eq!(created.contact.name.first_name, "Ada");
//! let router = contacts::router(service); // Serve it with `contacts::serve`.
//! # drop(router);
//! # let _ = SearchIndex::new(&containers.search)?;
//! # Ok(())
//! # }
//! ```

mod containers;
mod domain;
mod error;
mod generator;
mod http;
mod openapi;
mod random;
mod receiver;
mod search;
mod service;
mod tally;

pub use crate::containers::ContactContainers;
pub use crate::domain::contact::{ChangeError, Contact};
pub use crate::domain::events::{
    ContactCompanyUpdated, ContactCreated, ContactDeleted, ContactDescriptionUpdated,
    ContactEmailUpdated, ContactNameUpdated,
};
pub use crate::domain::time::Time;
pub use crate::domain::validation::Invalid;
pub use crate::domain::values::{Company, CompanyDraft, Draft, Name};
pub use crate::domain::view::{ContactSummary, ContactView};
pub use crate::error::{Error, ErrorKind, Result};
pub use crate::generator::{GeneratedChange, Generator, GeneratorOptions, GeneratorStatistics};
pub use crate::http::server::serve;
pub use crate::http::{BODY_BYTES_MAX, router};
pub use crate::openapi::OPENAPI;
pub use crate::receiver::{ReceiverStatistics, WebhookReceiver};
pub use crate::search::entry::SearchEntry;
pub use crate::search::http::search_router;
pub use crate::search::index::{IndexError, SearchIndex};
pub use crate::search::projection::{ProjectionOptions, ProjectionStatistics, SearchProjection};
pub use crate::service::{ContactPage, ContactService, Created, IfMatch};
pub use crate::tally::Tally;
