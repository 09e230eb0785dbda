//! Items and feed through the SDK and a gateway on loopback.
#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod azure;
mod conformance;
mod emulator;
mod failures;
mod gateway;
mod outbox;
mod processes;
