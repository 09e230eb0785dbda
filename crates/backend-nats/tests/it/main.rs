#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
//! The store on real servers, which the tests start and stop.

mod harness;

mod cluster;
mod connecting;
mod faults;
mod ledger;
mod leftovers;
mod limits;
mod reading;
mod settings;
mod single;
mod starting;
mod unique_keys;
