//! `bench relay`: from a commit to a subscriber of the broker, a backlog through the relay, what a
//! poisoned key does to others, and a polled outbox in PostgreSQL beside it.
//!
//! The store and the broker have a directory each on the same disk and run in this process. Read
//! `stage` first, then `latency`, `drain`, `peer`.

mod drain;
mod graphile;
mod latency;
mod nats;
mod peer;
mod stage;

use crate::{Options, Result, relay::stage::Stage, report::Figures};

/// Runs the benchmark.
pub(crate) async fn run(options: &Options) -> Result<Figures> {
    let mut figures = Figures::default();
    let directory = options.fresh_directory()?;
    let mut stage = Stage::open(directory.path()).await?;
    latency::measure(&mut stage, options, &mut figures).await?;
    stage.close().await?;
    // A store of its own, so that what was measured before is not in the way.
    let directory = options.fresh_directory()?;
    let rate = drain::measure(directory.path(), options, &mut figures).await?;
    let directory = options.fresh_directory()?;
    peer::measure(directory.path(), options, rate, &mut figures).await?;
    Ok(figures)
}
