//! What a processor does in the situations that other processors get wrong, on the reference in
//! memory and on the embedded store, in virtual time.

#[macro_use]
#[allow(dead_code, reason = "some helpers wait for the scenarios that need them")]
mod harness;
mod harness_more;

mod balancing;
mod bootstrap;
mod failure;
mod operating;
mod ownership;
mod parking;
mod start;
mod stress;
mod topology;
