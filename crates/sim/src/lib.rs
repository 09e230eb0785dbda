//! Runs code under simulated time, schedules and faults, each drawn from a seed.
//!
//! There are two worlds. In the processor world, instances of the change feed processor see one
//! true store in memory through faulty ways, among writers, range moves, kills and stalls; safety
//! is checked at every write of the leases and every delivery, liveness and the cost of idling
//! after the faults end. In the delivery world events go from units of work through relays and a
//! broker to consumers with an inbox; every message and every effect is checked. A seed that fails
//! is repeated with one command.
//!
//! Not here: real disks and processes (`millstream-crash`), real servers (the conformance suites of
//! the backends).
//!
//! Read `executor` first, then `faults` and `watch`, then `shape` and `world`, then what is
//! checked: `properties` and `ledger`. After that, `delivery`.

mod chaos;
mod clock;
mod delivery;
mod deployment;
mod executor;
mod faults;
mod fleet;
mod handler;
mod ids;
mod ledger;
mod log;
mod operator;
mod properties;
mod rng;
mod runner;
mod shape;
#[cfg(test)]
mod testing;
mod truth;
mod watch;
mod workload;
mod world;

pub use crate::clock::SimClock;
pub use crate::delivery::DeliveryCounts;
pub use crate::deployment::{Deployment, NodeParts};
pub use crate::executor::handle::{Handle, NodeSpawner, OutsideCall, Sleep, YieldNow};
pub use crate::executor::{Budget, Executor, NodeId, Stopped};
pub use crate::faults::{FaultRates, Link, Listings};
pub use crate::ids::SimIds;
pub use crate::ledger::{Call, Ledger, LedgerCounts};
pub use crate::log::logged;
pub use crate::properties::Deliveries;
pub use crate::rng::Rng;
pub use crate::runner::{Failure, Summary, regressions, run_caught, run_many, silence_panics};
pub use crate::shape::{HandlerShape, OptionShape, Shape};
pub use crate::truth::{Place, TrueChange, TrueCommit, Truth, TruthState, key_text, version_in};
pub use crate::watch::{Check, Commit, Watch, Write};
pub use crate::workload::{Topology, TopologyOptions, Workload, WorkloadOptions};
pub use crate::world::{Mutant, Outcome, Statistics, World, run_seed};
