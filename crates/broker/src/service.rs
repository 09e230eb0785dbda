use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use millstream_core::BoxFuture;
use tokio_util::sync::CancellationToken;

use crate::entity::Round;
use crate::flaw::Flaw;
use crate::shared::{EntityCell, Shared};

/// Commits what the handles of a broker ask for, and does what time brings.
///
/// Without it nothing that a handle waits for happens. When it ends or is dropped, everything is
/// refused.
#[derive(Debug)]
pub struct BrokerService {
    pub(crate) shared: Arc<Shared>,
}

impl BrokerService {
    /// Works until `shutdown`, then finishes what was begun.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future ends the broker as a crash would: what was acknowledged is kept, all
    /// else may be kept or not.
    pub async fn run(self, shutdown: CancellationToken) {
        let shared = &self.shared;
        let mut flights: FuturesUnordered<BoxFuture<'_, u64>> = FuturesUnordered::new();
        let mut flying = BTreeSet::new();
        // A timer that is set stays until it is over or an earlier one is needed: setting one for
        // every round would wake the thread of the timers each time.
        let mut alarm = None;
        loop {
            self.fire_timers();
            self.set_alarm(&mut alarm);
            for cell in self.idle_with_work(&flying) {
                flying.insert(cell.generation);
                flights.push(Box::pin(commit(shared, cell)));
            }
            let is_stopping = shared.stopping.is_cancelled();
            if is_stopping && flights.is_empty() {
                return;
            }
            tokio::select! {
                biased;
                () = shutdown.cancelled(), if !is_stopping => shared.stopping.cancel(),
                Some(generation) = flights.next(), if !flights.is_empty() => {
                    flying.remove(&generation);
                }
                () = shared.work.notified() => (),
                () = over(&mut alarm) => alarm = None,
            }
        }
    }

    /// Entities that have something to commit and are not about it already.
    fn idle_with_work(&self, flying: &BTreeSet<u64>) -> Vec<Arc<EntityCell>> {
        let mut agenda = self.shared.agenda();
        let mut idle = Vec::new();
        agenda.busy.retain(|generation, cell| {
            let stays = flying.contains(generation);
            if !stays {
                idle.push(Arc::clone(cell));
            }
            stays
        });
        idle
    }

    fn fire_timers(&self) {
        let now = self.shared.clock().monotonic();
        let mut due = Vec::new();
        let mut agenda = self.shared.agenda();
        while let Some((at, generation)) = agenda.timers.first().copied() {
            if now < at {
                break;
            }
            agenda.timers.pop_first();
            due.extend(agenda.cells.get(&generation).cloned());
        }
        drop(agenda);
        for cell in due {
            self.shared.with_any(&cell, |state, now| {
                state.timer = None;
                state.entity.advance(now);
            });
        }
    }

    /// Sets the timer for the next thing that time brings, unless one is set for earlier.
    fn set_alarm(&self, alarm: &mut Option<Alarm>) {
        let next = self.shared.agenda().timers.first().copied();
        let Some((at, _)) = next else { return };
        if alarm.as_ref().is_none_or(|(set, _)| at < *set) {
            let clock = self.shared.clock();
            *alarm = Some((at, clock.sleep(at.saturating_sub(clock.monotonic()))));
        }
    }
}

/// A timer, and when it is over.
type Alarm = (Duration, BoxFuture<'static, ()>);

async fn over(alarm: &mut Option<Alarm>) {
    match alarm {
        Some((_, timer)) => timer.await,
        None => std::future::pending().await,
    }
}

impl Drop for BrokerService {
    fn drop(&mut self) {
        self.shared.stopping.cancel();
        self.shared.closed.cancel();
    }
}

/// Commits everything that waits in one entity, and answers.
async fn commit(shared: &Shared, cell: Arc<EntityCell>) -> u64 {
    let mut ledger = cell.ledger.lock().await;
    let chosen = chosen(shared, &cell).await;
    let now = shared.now();
    let round = {
        let mut state = cell.state();
        if state.check().is_err() {
            return cell.generation;
        }
        state.entity.plan(&chosen, now)
    };
    let Round { batches, next_sequence, fresh, compacted, mut sent, mut waiting } = round;
    if shared.setup.flaw == Some(Flaw::SentBeforeDurable) {
        cell.state().answer(&mut sent, &mut Vec::new());
    }
    if shared.setup.flaw == Some(Flaw::SettledBeforeDurable) {
        cell.state().answer(&mut Vec::new(), &mut waiting);
    }
    for operations in batches {
        if let Err(error) = ledger.commit(operations, next_sequence).await {
            let mut state = cell.state();
            let name = state.document.name.clone();
            tracing::error!(entity = name, error = error.report(), "entity refuses everything");
            state.fail(&error);
            return cell.generation;
        }
    }
    drop(ledger);
    for (segment, bytes) in &fresh {
        shared.remember(&cell, segment.first, bytes.clone());
    }
    for (first, bytes) in &compacted {
        shared.remember(&cell, *first, bytes.clone());
    }
    shared.with_any(&cell, |state, now| {
        compacted.iter().for_each(|(first, bytes)| state.entity.compacted(*first, bytes));
        state.entity.committed(fresh, now);
        state.answer(&mut sent, &mut waiting);
        state.look_at_room(shared.options.messages_max);
    });
    cell.generation
}

/// The bytes of segments that are worth writing again.
async fn chosen(shared: &Shared, cell: &EntityCell) -> Vec<(u64, Bytes)> {
    let firsts = cell.state().entity.take_chosen();
    let mut chosen = Vec::new();
    for first in firsts {
        match shared.segment(cell, first).await {
            Ok(Some(bytes)) => chosen.push((first, bytes)),
            Ok(None) => (),
            // It is only postponed: it will be chosen again.
            Err(error) => {
                tracing::warn!(first, error = error.report(), "could not read a segment");
            }
        }
    }
    chosen
}
