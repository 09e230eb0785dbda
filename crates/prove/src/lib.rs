//! The proof from end to end: real processes are killed with everything in them, and at the end
//! every acknowledged commit must have had its effect once and in order.
//!
//! Three processes, each with a store of its own: the **service** commits entities with their
//! events, and relays them; the **broker** keeps the messages; the **consumer** gives each its
//! effect, behind an inbox. [`prove`] kills one after the other with SIGKILL at random moments and
//! starts it again in the same directory, and stops the broker for a while, which to the others is
//! an outage. Meanwhile the relay is killed alone (its future is dropped), the way to the broker
//! fails for a while or loses answers, and one key in a thousand is refused. Then all is well
//! again, but for one more kill: parked keys are driven again, everything drains, and [`Truth`]
//! compares what the service acknowledged with what the consumer has.
//!
//! Why the relay is no process of its own: a data directory belongs to one process, and the relay
//! reads the feed of what the service commits. Every kill of the service is one of the relay, in
//! the middle of whatever both did. The processes talk over a connection that is made for this
//! proof (`wire`); network protocols are proved elsewhere.
//!
//! With [`StoreKind::Nats`] the stores of all three are on NATS servers, which are not killed here.
//!
//! [`prove_fleet`] is another proof on NATS servers: two gateways and four processors, which keep
//! nothing themselves and work beside each other, and of which any two die at a time. Of three
//! servers one at a time dies as well.
//!
//! Not here: loss of power (`millstream-crash`), simulated time (`millstream-sim`).
//!
//! Read `truth` first (what must hold), then `run` (the killer), `part` (the killed).

mod account;
mod broker_part;
mod calm;
mod consumer;
mod evidence;
mod fleet;
mod mutant;
mod nats;
mod part;
mod patience;
mod process;
mod publisher;
mod remote;
mod run;
mod say;
mod service;
mod service_part;
mod truth;
mod wire;
mod world;

pub use crate::account::{Account, Counted};
pub use crate::fleet::{FleetOptions, FleetPart, FleetReport, prove_fleet, run_fleet_part};
pub use crate::mutant::Mutant;
pub use crate::part::{Part, PartOptions, Phase, run_part};
pub use crate::run::{ProveOptions, StoreKind, prove};
pub use crate::truth::{Report, Truth};
