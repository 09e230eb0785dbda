//! A backlog through the relay into the broker, and whether the rate stays the same.

use std::{path::Path, sync::Arc, time::Duration};

use millstream_core::Documents;
use millstream_relay::RelayMonitor;
use tokio::task::JoinSet;

use crate::{
    Options, Result,
    measure::{Stopwatch, float},
    relay::stage::{KEYS, Stage, commit},
    report::{Figures, optional},
    rounds::median,
    workload::Random,
};

/// Events of the backlog.
const BACKLOG: u64 = 1_000_000;
/// Events of one commit of the backlog; an item is committed with them.
const EVENTS_PER_COMMIT: u64 = 10;
/// Tasks that load side by side, enough for large groups at the disk.
const LOADERS: u64 = 32;
/// The rate is taken of each of so many parts.
const PARTS: u64 = 10;
/// A drain that has not moved for so long is stuck.
const SILENCE_MAX: Duration = Duration::from_secs(60);
const LOOK_INTERVAL: Duration = Duration::from_millis(2);

/// Drains the backlog, and returns the events per second over all of it.
pub(super) async fn measure(
    directory: &Path,
    options: &Options,
    figures: &mut Figures,
) -> Result<f64> {
    let events = options.items_or(BACKLOG).div_ceil(EVENTS_PER_COMMIT) * EVENTS_PER_COMMIT;
    let mut stage = Stage::open(directory).await?;
    let stopwatch = Stopwatch::start();
    fill(&stage.data.documents, events).await?;
    eprintln!("{events} events loaded in {:.1} s", stopwatch.elapsed().as_secs_f64());
    stage.publisher.begin(false);
    let monitor = stage.start_relay().await?;
    let parts = watch(&monitor, events).await?;
    stage.check_order()?;
    let (opening, kept) = stage.reopen_broker().await?;

    let total: f64 = parts.iter().sum();
    let rate = float(events) / total;
    let rates: Vec<f64> = parts.iter().map(|it| float(events / PARTS) / it).collect();
    let shown: Vec<String> = rates.iter().map(|it| format!("{it:.0}")).collect();
    println!("backlog of {events} events, acknowledged by the broker in the order of each key:");
    println!("  {rate:.0} events/s; each tenth: {}", shown.join(" "));
    let flat = rates.iter().copied().fold(f64::INFINITY, f64::min)
        / median(rates.iter().copied()).unwrap_or(f64::NAN);
    println!("  slowest tenth to the middle one: {}", optional(Some(flat), 2));
    let seconds = opening.as_secs_f64();
    println!("  the broker opens with {kept} messages in {seconds:.2} s");
    figures.add("relay.broker_open_s", Some(seconds));
    figures.add("relay.drain_events_per_s", Some(rate));
    figures.add("relay.backlog_slowest_tenth", Some(flat));
    Ok(rate)
}

/// Commits the backlog while nothing is relayed.
async fn fill(documents: &Arc<dyn Documents>, events: u64) -> Result<()> {
    let commits = events / EVENTS_PER_COMMIT;
    let mut tasks: JoinSet<millstream_core::Result<()>> = JoinSet::new();
    for loader in 0..LOADERS {
        let documents = Arc::clone(documents);
        tasks.spawn(async move {
            let mut random = Random::new(loader);
            let mut number = loader;
            while number < commits {
                let first = number * EVENTS_PER_COMMIT;
                let events = first..first + EVENTS_PER_COMMIT;
                documents.commit(commit(1, number % KEYS, events, &mut random)).await?;
                number += LOADERS;
            }
            Ok(())
        });
    }
    while let Some(outcome) = tasks.join_next().await {
        outcome??;
    }
    Ok(())
}

/// The seconds that each part took, from the start of the relay on.
async fn watch(monitor: &RelayMonitor, events: u64) -> Result<Vec<f64>> {
    let mut parts = Vec::new();
    let stopwatch = Stopwatch::start();
    let (mut begun, mut last, mut moved) = (Duration::ZERO, 0, Duration::ZERO);
    while u64::try_from(parts.len())? < PARTS {
        tokio::time::sleep(LOOK_INTERVAL).await;
        let (published, now) = (monitor.messages_published(), stopwatch.elapsed());
        if last < published {
            (last, moved) = (published, now);
        }
        if moved + SILENCE_MAX < now {
            return Err(format!("{published} of {events} events were relayed, then none").into());
        }
        let goal =
            |parts: &[f64]| events * (u64::try_from(parts.len()).unwrap_or(u64::MAX) + 1) / PARTS;
        let mut passed: u32 = 0;
        while u64::try_from(parts.len())? < PARTS && goal(&parts) <= published {
            parts.push(0.0);
            passed += 1;
        }
        if 0 < passed {
            // Several parts between two looks share the time.
            let seconds = (now - begun).as_secs_f64() / f64::from(passed);
            parts.iter_mut().rev().take(usize::try_from(passed)?).for_each(|it| *it = seconds);
            begun = now;
        }
    }
    Ok(parts)
}
