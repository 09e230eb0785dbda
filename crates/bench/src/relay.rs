//! `bench relay`: from a commit to a subscriber of the broker, what a poisoned key does to others,
//! commits and their events at the same time, a backlog through the relay, and outboxes in
//! PostgreSQL beside it.
//!
//! Store and broker share a directory and run in this process, as `millstream up` has them. Read
//! `stage` first, then `latency`, `receiver`, `sustained`, `drain`, `peer`.

mod drain;
mod graphile;
mod latency;
mod nats;
mod peer;
mod receiver;
mod stage;
mod sustained;

use crate::{Options, Result, relay::stage::Stage, report::Figures};

/// Runs the benchmark.
pub(crate) async fn run(options: &Options) -> Result<Figures> {
    let mut figures = Figures::default();
    let directory = options.fresh_directory()?;
    let mut stage = Stage::open(directory.path()).await?;
    latency::measure(&mut stage, options, &mut figures).await?;
    stage.close().await?;
    let directory = options.fresh_directory()?;
    let mut stage = Stage::open_with_sessions(directory.path()).await?;
    latency::measure_sessions(&mut stage, options, &mut figures).await?;
    stage.close().await?;
    // A store of its own, so that what was measured before is not in the way.
    let directory = options.fresh_directory()?;
    let rate = drain::measure(directory.path(), options, &mut figures).await?;
    let directory = options.fresh_directory()?;
    sustained::measure(directory.path(), options, &mut figures).await?;
    let directory = options.fresh_directory()?;
    peer::measure(directory.path(), options, rate, &mut figures).await?;
    Ok(figures)
}
