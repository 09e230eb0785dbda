//! Writing the lease. Every write is conditional on the version this worker wrote or read last.

use std::sync::Arc;
use std::time::Duration;

use crate::error::{ErrorKind, Result};
use crate::lease_store::Stored;
use crate::metrics;
use crate::notification::Notification;
use crate::options::Checkpoint;
use crate::shared::Setup;
use crate::stored::{Failing, Lease};
use crate::worker::deliver::FAILING_MAX;
use crate::worker::events::Event;
use crate::worker::{Ended, Work};

/// Time after which half of the load is what was measured since.
const LOAD_MEMORY_SECONDS: f64 = 30.0;

/// The lease has another owner or another epoch, or is gone.
#[derive(Debug)]
pub(super) struct NotOurs {
    pub(super) reason: String,
}

impl Work {
    /// Writes the lease if there is something to write and it is time.
    pub(super) fn store_if_due(&mut self, now: Duration) {
        let moved = self.watermark != self.stored_position;
        if self.stopping.is_some() || !(moved || self.failing_changed) {
            return;
        }
        let items = self.items_since_stored;
        let due = self.failing_changed
            || self.pinning
            || self.store_due_at().is_some_and(|it| it <= now)
            || match self.setup.options.checkpoint {
                Checkpoint::ByHand => 0 < items,
                Checkpoint::EachBatch => false,
                Checkpoint::Every { items: every, .. } => {
                    u64::try_from(every).unwrap_or(u64::MAX) <= items
                }
            };
        if !due {
            return;
        }
        let Some(lease) = self.lease.take() else { return };
        let wanted = self.checkpointed(&lease.document, now);
        self.stored_position = self.watermark.clone();
        self.stored_at = now;
        self.items_since_stored = 0;
        self.failing_changed = false;
        let setup = Arc::clone(&self.setup);
        self.events.push(Box::pin(async move {
            Event::Stored(Box::new(write_lease(&setup, lease, wanted).await))
        }));
    }

    pub(super) fn on_stored(
        &mut self,
        outcome: Result<Stored<Lease>, NotOurs>,
    ) -> Result<(), Box<Ended>> {
        match outcome {
            Ok(lease) => {
                self.setup.metrics.count(metrics::CHECKPOINTS, 1);
                self.pinning &= lease.document.position != self.read_from.as_str();
                self.lease = Some(lease);
                Ok(())
            }
            Err(NotOurs { reason }) => Err(Box::new(Ended::Lost { reason })),
        }
    }

    /// The lease with everything this worker knows.
    pub(super) fn checkpointed(&mut self, lease: &Lease, now: Duration) -> Lease {
        let mut lease = lease.clone();
        let position = self.watermark.as_str();
        if lease.position != position {
            lease.position = position.to_owned();
            lease.owners_since_checkpoint = 0;
        }
        lease.handled = self.handled;
        let passed = self.handled.map_or(0, |it| it.lsn);
        let own: Vec<Failing> = self.failing.iter().map(|(_, it)| it.clone()).collect();
        self.inherited.retain(|it| passed < it.lsn && !own.iter().any(|own| is_same(own, it)));
        lease.failing = [own, self.inherited.clone()].concat();
        lease.failing.truncate(FAILING_MAX);
        lease.load = self.measured_load(lease.load, now);
        lease
    }

    /// Changes per second, half of it from about the last half minute: a busy lease is written
    /// many times a second, and leases must not move because of a burst.
    fn measured_load(&mut self, before: f64, now: Duration) -> f64 {
        let seconds = now.saturating_sub(self.load_measured_at).as_secs_f64();
        if seconds < 1.0 {
            return before;
        }
        let items = u32::try_from(self.items_since_measured).unwrap_or(u32::MAX);
        let weight = seconds / (seconds + LOAD_MEMORY_SECONDS);
        let load = before + (f64::from(items) / seconds - before) * weight;
        self.load_measured_at = now;
        self.items_since_measured = 0;
        self.status.set_load(load);
        load
    }
}

/// Whether both are about the same change.
fn is_same(one: &Failing, other: &Failing) -> bool {
    (one.lsn, &one.id, &one.partition_key) == (other.lsn, &other.id, &other.partition_key)
}

/// Writes `wanted` over `held`, however often it takes, as long as the lease is ours.
pub(super) async fn write_lease(
    setup: &Setup,
    held: Stored<Lease>,
    wanted: Lease,
) -> Result<Stored<Lease>, NotOurs> {
    let (owner, epoch) = (held.document.owner.clone(), held.document.epoch);
    let mut etag = held.etag;
    let mut attempts = 0;
    loop {
        setup.metrics.count(metrics::LEASE_WRITES, 1);
        let error = match setup.store.replace(wanted.clone(), &etag).await {
            Ok(stored) => return Ok(stored),
            Err(error) => error,
        };
        let is_conflict = *error.kind() == ErrorKind::Conflict;
        if *error.kind() == ErrorKind::NotFound {
            return Err(NotOurs { reason: "the lease was deleted".to_owned() });
        }
        // The write may have happened although it failed: look.
        match setup.store.read_lease(wanted.container, &wanted.keys).await {
            Ok(None) => return Err(NotOurs { reason: "the lease was deleted".to_owned() }),
            Ok(Some(found)) if found.document == wanted => return Ok(found),
            Ok(Some(found)) if found.document.owner == owner && found.document.epoch == epoch => {
                etag = found.etag;
                if is_conflict {
                    continue;
                }
            }
            Ok(Some(found)) => {
                let by = found.document.owner.map_or("nobody".to_owned(), |it| it.instance);
                let reason = format!("it belongs to {by} since epoch {}", found.document.epoch);
                return Err(NotOurs { reason });
            }
            Err(_) => (),
        }
        attempts += 1;
        let text = error.report();
        tracing::warn!(keys = %wanted.keys, error = text, "could not write the lease yet");
        setup.metrics.count(metrics::STORE_ERRORS, 1);
        let keys = Some(Arc::new(wanted.keys.clone()));
        setup.notifier.tell(Notification::StoreFailed { keys, error: text });
        setup.clock.sleep(setup.pause(attempts)).await;
    }
}
