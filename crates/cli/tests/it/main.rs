//! The program as people run it: real processes on directories of their own.

#![expect(clippy::unwrap_used, reason = "a test may")]

mod clearing;
mod cluster;
mod demonstration;
mod nats_topics;
mod process;
mod relays;
#[path = "../../../backend-nats/tests/messages/server.rs"]
#[allow(dead_code, reason = "other tests use the rest of it")]
mod server;
mod settings;
mod tools;
mod traces;
mod verify;
