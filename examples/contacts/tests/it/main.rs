//! The service through its REST interface, and its consumers with what a broker does to them.
#![expect(clippy::unwrap_used, reason = "a test may fail by panicking")]

mod atomic;
mod demo;
mod errors;
mod etags;
mod generator;
mod projection;
mod receiver;
mod routes;
mod search;
mod subscription;
mod traces;
mod world;
