//! Topics on JetStream: `Publisher` and `Subscriber`.
//!
//! A topic is a stream with one subject per *lane*; the hash of a session decides its lane, so the
//! messages of a session are in one subject and in the order of the stream. What a subscription has
//! done with a lane is one small *record* in a second stream, kept under its sequence number: the
//! process that wrote it last owns the lane, gives out its sessions, and settles by writing the
//! record again. A process that lost the lane cannot write it, so a settlement that comes too
//! late has no effect.
//!
//! Why not the acknowledgements of JetStream's own consumers: an acknowledgement names a message,
//! not a delivery, so one that comes after the message was given to somebody else still counts;
//! and what was in flight at a receiver that died comes again after messages that were not. Both
//! break the order of a session exactly when something fails.
//!
//! Read `topic` first, then `publisher`, `lane` (what an owner knows, pure), `owner` (one lane) and
//! `service` (who owns what).

pub(crate) mod aside;
pub(crate) mod headers;
pub(crate) mod lane;
pub(crate) mod names;
pub(crate) mod options;
pub(crate) mod owner;
pub(crate) mod publisher;
pub(crate) mod reader;
pub(crate) mod record;
pub(crate) mod service;
pub(crate) mod settled;
pub(crate) mod subscriber;
pub(crate) mod topic;
pub(crate) mod wire;
