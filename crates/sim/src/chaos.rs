use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::fleet::Fleet;
use crate::log::log;
use crate::rng::Rng;

/// What was done to the instances.
#[derive(Debug, Default)]
pub(crate) struct ChaosCounts {
    pub(crate) kills: AtomicU64,
    pub(crate) stops: AtomicU64,
    pub(crate) stalls: AtomicU64,
    pub(crate) cuts: AtomicU64,
    pub(crate) twins: AtomicU64,
}

/// Kills, stops, stalls and cuts off instances at random times until the faults end.
pub(crate) async fn chaos(fleet: Arc<Fleet>, counts: Arc<ChaosCounts>, mut rng: Rng) {
    let deployment = Arc::clone(&fleet.deployment);
    let (shape, handle) = (&deployment.shape, &deployment.handle);
    let Some(pause_max) = shape.chaos_pause_max else {
        handle.sleep(shape.faults_end).await;
        return fleet.ensure_one();
    };
    loop {
        let pause = rng.duration(Duration::ZERO, pause_max);
        let left = shape.faults_end.saturating_sub(handle.now());
        handle.sleep(pause.min(left)).await;
        let left = shape.faults_end.saturating_sub(handle.now());
        if left.is_zero() {
            return fleet.ensure_one();
        }
        let running = fleet.running().clone();
        if running.is_empty() {
            continue;
        }
        let target = rng.pick(&running);
        let node = &target.node;
        // Nothing that was begun lasts beyond the end of the faults.
        let mut while_ = |longest: Duration| rng.duration(Duration::ZERO, longest).min(left);
        let long = while_(shape.lease * 3);
        let drawn = rng.below(20);
        log(|| format!("chaos {drawn} at {} (node {}), {long:?}", target.name, node.id.number()));
        let counter = match drawn {
            0..5 => {
                fleet.kill(node.id);
                &counts.kills
            }
            5..8 => {
                fleet.stop(node.id);
                &counts.stops
            }
            8..14 => {
                handle.stall(node.id, long);
                deployment.ledger.stalled(node.id, handle.now() + long);
                &counts.stalls
            }
            14..18 => {
                let link = if rng.chance(600) { &node.lease_link } else { &node.data_link };
                link.cut_off(long);
                &counts.cuts
            }
            18 => {
                fleet.start(&target.name);
                &counts.twins
            }
            _ => {
                node.clock.jump(&mut rng);
                continue;
            }
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }
}
