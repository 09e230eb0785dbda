//! Kills, stalls and cuts off whatever runs.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::delivery::crew::{Crew, Process};
use crate::delivery::host::Host;
use crate::log::log;
use crate::rng::Rng;

/// Everything that can be disturbed.
pub(crate) struct Targets {
    pub(crate) host: Arc<Host>,
    pub(crate) writers: Arc<Crew>,
    pub(crate) relays: Arc<Crew>,
    pub(crate) consumers: Arc<Crew>,
}

/// What was done.
#[derive(Debug, Default)]
pub(crate) struct Disturbances {
    pub(crate) kills: AtomicU64,
    pub(crate) stops: AtomicU64,
    pub(crate) stalls: AtomicU64,
    pub(crate) cuts: AtomicU64,
    pub(crate) twins: AtomicU64,
}

/// Disturbs at random times until the faults end.
pub(crate) async fn chaos(targets: Arc<Targets>, counts: Arc<Disturbances>, mut rng: Rng) {
    let site = Arc::clone(&targets.host.site);
    let Some(pause_max) = site.shape.chaos_pause_max else { return };
    loop {
        let pause = rng.duration(Duration::ZERO, pause_max);
        site.handle.sleep(pause.min(site.faulty_time())).await;
        if !site.is_faulty() {
            return;
        }
        if let Some(count) = disturb(&targets, &counts, &mut rng) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }
}

fn disturb<'a>(
    targets: &Targets,
    counts: &'a Disturbances,
    rng: &mut Rng,
) -> Option<&'a AtomicU64> {
    let site = &targets.host.site;
    // Nothing that was begun lasts beyond the end of the faults.
    let longest = site.shape.lease.max(site.shape.lock) * 2;
    let long = rng.duration(Duration::ZERO, longest).min(site.faulty_time());
    let drawn = rng.below(20);
    log(|| format!("chaos {drawn}, {long:?}"));
    match drawn {
        0..3 => {
            targets.host.kill();
            Some(&counts.kills)
        }
        3..5 => {
            // The old one stands still for a while and comes back to find that it is replaced.
            let process = targets.host.process()?;
            site.handle.stall(process.id, long);
            targets.host.replace();
            Some(&counts.twins)
        }
        5 => {
            site.handle.stall(targets.host.process()?.id, long);
            Some(&counts.stalls)
        }
        6..8 => {
            targets.host.process()?.store_link.cut_off(long);
            Some(&counts.cuts)
        }
        8..12 => {
            let process = targets.relays.any()?;
            let count = match rng.below(4) {
                0 => {
                    targets.relays.kill(process.parts.id);
                    &counts.kills
                }
                1 => {
                    process.shutdown.cancel();
                    &counts.stops
                }
                _ => return Some(hinder(&process, long, counts, targets, rng)),
            };
            Some(count)
        }
        12..18 => {
            let process = targets.consumers.any()?;
            if rng.chance(400) {
                targets.consumers.kill(process.parts.id);
                return Some(&counts.kills);
            }
            Some(hinder(&process, long, counts, targets, rng))
        }
        _ => {
            let process = targets.writers.any()?;
            if rng.chance(500) {
                targets.writers.kill(process.parts.id);
                return Some(&counts.kills);
            }
            Some(hinder(&process, long, counts, targets, rng))
        }
    }
}

/// Lets a process stand still, or cuts it off from the stores or the broker.
fn hinder<'a>(
    process: &Process,
    long: Duration,
    counts: &'a Disturbances,
    targets: &Targets,
    rng: &mut Rng,
) -> &'a AtomicU64 {
    match rng.below(4) {
        0 | 1 => {
            targets.host.site.handle.stall(process.parts.id, long);
            &counts.stalls
        }
        2 => {
            process.parts.store_link.cut_off(long);
            &counts.cuts
        }
        _ => {
            process.parts.broker_link.cut_off(long);
            &counts.cuts
        }
    }
}
