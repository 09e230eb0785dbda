//! The embedded store as a whole: the contract, random work against the reference, failing disks.

mod conformance;
mod faulty;
mod interleavings;
mod model;
