//! The relay on the memory reference, with a publisher that does what a test says.
#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod harness;
mod mapping;
mod relaying;
mod scheduled;
