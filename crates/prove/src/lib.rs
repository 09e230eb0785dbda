//! The proof from end to end: real processes are killed with everything in them, and at the end
//! every acknowledged commit must have had its effect once and in order.
//!
//! A *node* is a process with a service that commits entities and their events (one store), a
//! relay, a broker (another store), and a consumer with its inbox (a third). [`prove`] kills it
//! with SIGKILL at random moments and starts it again in the same directory. While it lives, the
//! relay, the consumer and the broker are also killed one by one (their futures are dropped), the
//! broker fails for a while or loses its answers, and one key in a thousand is refused. Then all
//! is well again: parked keys are driven again, everything drains, and [`Truth`] compares what
//! the node acknowledged with what the consumer has.
//!
//! What the processes are: a data directory belongs to one process, so SIGKILL takes the four parts
//! of a node together; each alone is killed inside its process.
//!
//! Not here: loss of power (`millstream-crash`), simulated time (`millstream-sim`).
//!
//! Read `truth` first (what must hold), then `run` (the killer), `node` (the killed).

mod calm;
mod consumer;
mod current;
mod mutant;
mod node;
mod publisher;
mod run;
mod say;
mod service;
mod storm;
mod truth;
mod world;

pub use crate::mutant::Mutant;
pub use crate::node::{NodeOptions, Phase, run_node};
pub use crate::run::{ProveOptions, prove};
pub use crate::truth::{Report, Truth};
