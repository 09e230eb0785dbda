//! Queries and what they return, on the reference in memory.
#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod access;
mod cases;
mod chance;
mod continuations;
mod depth;
mod errors;
mod harness;
mod limits;
mod memory;
mod plans;
mod random;
mod resume;
