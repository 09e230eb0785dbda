//! The search list: a line per contact, kept by the events about it.
//!
//! Read `entry` first (what an event does to a line; no I/O), then `index` (each event once), then
//! `projection` (from a subscription to the index) and `http` (for readers).

pub(crate) mod entry;
pub(crate) mod http;
pub(crate) mod index;
pub(crate) mod projection;
