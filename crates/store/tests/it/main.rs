//! The embedded store as a whole: the contract, random work against the reference, failing disks.

mod conformance;
mod failures;
mod faulty;
mod fixtures;
mod following;
mod interleavings;
mod model;
mod moments;
mod opening;
mod starting;
