//! Topics on real servers.
#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod cluster;
mod conformance;
mod limits;
mod server;
