//! Processes the change feed of a container with any number of instances: leases, balancing,
//! checkpoints, retries, parked sequences, lag.
//!
//! # What to read
//!
//! - [`Processor`] is one instance; [`Handler`] is what it gives the changes to, as a
//!   [`ChangeBatch`] with a [`Context`]. [`ProcessorOptions`] says where to begin, how much at
//!   once, and what to do when the handler fails.
//! - [`Notification`] tells what happens to an instance; [`Monitor`] and [`Estimator`] how far it
//!   is behind; [`metrics`] are numbers for a dashboard.
//! - [`Operations`] pauses, resumes, resets and takes snapshots; [`DeadLetters`] lists, delivers
//!   again and discards what the handler could not handle.
//! - [`foreign`] reads and writes the leases of the processors for .NET and Java.
//!
//! # What is promised
//!
//! Every change is handled at least once, and those of one partition key in the order they were
//! committed, over crashes, restarts, rebalancing, splits and merges. Leases are documents in any
//! container; nothing here knows which backend it is. Clocks of two machines are never compared.
//!
//! # How it works
//!
//! `bootstrap` makes leases out of ranges. Each instance says that it is alive in one document
//! (`membership`), and believes that it has its leases as long as it succeeds in that (`fence`).
//! Each `instance` looks at all documents once per round (`instance::round`), judges who is alive
//! by what changes (`observe`), and decides with a pure planner (`plan`). One `worker` per lease
//! reads, delivers in `lanes`, and moves the position; only its owner writes a lease, and only if
//! nobody else has.

mod agenda;
mod audit;
mod batch;
mod bootstrap;
mod breaker;
mod dead_letters;
mod error;
mod estimator;
mod feed_calls;
mod fence;
mod flaw;
pub mod foreign;
mod handler;
mod instance;
mod lag;
mod lanes;
mod lease_store;
mod leaves;
mod membership;
pub mod metrics;
mod notification;
mod observe;
mod operations;
mod options;
mod placement;
mod plan;
mod processor;
mod removal;
mod reset;
mod retry;
mod shared;
mod split;
mod stored;
mod tasks;
#[cfg(test)]
mod test_world;
mod worker;

pub use crate::audit::{AuditedLease, AuditedState, Coverage, HoleWatch, audit};
pub use crate::batch::ChangeBatch;
pub use crate::dead_letters::{
    DeadLetters, ParkedChange, ParkedPage, ParkedSequence, ParkedState, PostponedChange,
    PostponedPage, SkippedPage,
};
pub use crate::error::{Error, ErrorKind, Result};
pub use crate::estimator::Estimator;
#[cfg(feature = "planted-flaws")]
pub use crate::flaw::Flaw;
pub use crate::handler::{Context, Handler, HandlerError, HandlerErrorKind, HandlerResult};
pub use crate::lag::{Estimate, LeaseLag};
pub use crate::metrics::{Metrics, NoMetrics};
pub use crate::notification::{Notification, Notifications};
pub use crate::observe::{Listing, Observer};
pub use crate::operations::{
    LeaseStatus, MemberStatus, Operations, Snapshot, SnapshotLease, Status,
};
pub use crate::options::{
    Checkpoint, Concurrency, ExpiredPolicy, FailurePolicy, ProcessorOptions, RecreatedPolicy,
    StartPosition,
};
pub use crate::plan::{Action, Holder, Member, Plan, PlannedLease, Strategy, plan};
pub use crate::processor::{Monitor, Processor, Started};
pub use crate::removal::remove_processor;
pub use crate::stored::schema::Schema;
pub use crate::stored::{Failing, Handled, LeaseState, Mode, Owner};
