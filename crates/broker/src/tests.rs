//! The broker on the store in memory, with reopening and faults.

mod basics;
mod compaction;
mod conformance;
mod crashes;
mod entities;
mod inspection;
mod ports;
mod purging;
mod random;
mod world;
