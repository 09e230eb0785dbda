//! The gateway over real HTTP, on both backends that need no server.
#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod batches;
mod bulk;
mod cancelled;
mod client;
mod connections;
mod delete_by_key;
mod elsewhere;
mod feeds;
mod header_count;
mod hostile;
mod items;
mod listings;
mod load;
mod metadata;
mod queries;
mod raw_http2;
mod refused_items;
mod several;
mod splits;
mod throughput;
mod unique_keys;
