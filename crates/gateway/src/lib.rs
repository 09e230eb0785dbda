//! The Cosmos DB REST protocol over any Millstream backend: the official SDKs work unmodified.
//!
//! Not here: where items are kept (a backend of `millstream-core`'s ports) and the query language
//! (`millstream-query`).
//!
//! Read `dispatch` first: it leads from a request to its handler. `target` and `request` are what a
//! handler sees of HTTP, `intent` tells whether it reads or writes; `reply` and `refusal` are what
//! it returns. `state`, `open_container` and `known_ranges` are what it works on, `catalog` where
//! the protocol keeps what a backend does not know. `server` accepts connections.

mod account;
mod auth;
mod batch;
mod batch_wire;
mod binary_json;
mod catalog;
mod change_wire;
mod changes;
mod charge;
mod conflicts;
mod containers;
mod databases;
mod definition;
mod delete_by_key;
mod digits;
mod dispatch;
mod feed;
mod fields;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
mod gateway;
mod headers;
mod hybrid_row;
mod intent;
mod item_body;
mod item_pages;
mod items;
mod known_ranges;
mod lines;
mod listing;
mod listing_place;
mod listing_query;
mod management;
mod offers;
mod open_container;
mod options;
mod patching;
mod query;
mod query_place;
mod ranges;
mod refusal;
mod reply;
mod request;
mod request_body;
mod rid;
mod scope;
mod server;
mod session;
mod state;
mod target;
mod throttle;
mod tls;
mod web_pages;

pub use crate::gateway::Gateway;
pub use crate::options::{AccountKey, GatewayOptions, PUBLIC_EMULATOR_KEY};
pub use crate::server::{Server, ServerLimits};
pub use crate::tls::Tls;
