//! The embedded store of Millstream: documents, batches, change feed, TTL, split and merge in one
//! data directory.
//!
//! Not here: the contract and its words (`millstream-core`), any network.
//!
//! Read `commit` first (from a batch to table entries), then `engine` (how entries become durable
//! and visible), then `log`, `buffer` and `tables` (where they are kept), then `feed`.

mod buffer;
mod catalog;
mod commit;
mod containers;
mod disk;
mod documents;
mod engine;
mod feed;
mod flaw;
mod format;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
mod guard_port;
mod guards;
mod keys;
mod log;
mod maintenance;
mod options;
mod reach;
mod records;
mod state;
mod store;
mod tables;
mod view;

pub use crate::disk::{Disk, DiskFile, SystemDisk};
pub use crate::engine::StoreStatistics;
#[doc(hidden)]
pub use crate::flaw::Flaw;
pub use crate::options::{Durability, StoreOptions};
pub use crate::store::{GuardLag, Store};
