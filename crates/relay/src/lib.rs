//! Turns the events in a change feed into messages, and gives them to a publisher.
//!
//! - [`Relay`] is a processor whose handler publishes. Events of one partition key arrive in order;
//!   each has the same message id on every attempt; the position moves only past what the publisher
//!   has taken.
//! - [`MessageForm`] says how an event looks as a message.
//! - [`Replay`] publishes events again that were sent already, without touching the relay.
//!
//! Not here: reading the feed, leases, retries and parking (`millstream-processor`); talking to a
//! broker (whatever implements [`millstream_core::Publisher`]).
//!
//! Read `mapping` first, then `handler`.

mod flaw;
mod handler;
mod mapping;
mod observer;
mod options;
mod relay;
mod replay;

#[cfg(feature = "planted-flaws")]
pub use crate::flaw::Flaw;
pub use crate::mapping::MessageForm;
pub use crate::observer::{Published, RelayObserver};
pub use crate::options::RelayOptions;
pub use crate::relay::{Relay, RelayMonitor, StartedRelay};
pub use crate::replay::{Replay, ReplayPart, ReplayReport, ReplayStep};
