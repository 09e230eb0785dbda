//! One lane in the hands of one process: it is read, given out, and written down.

use std::sync::Arc;
use std::time::Duration;

use async_nats::HeaderMap;
use bytes::Bytes;
use event_listener::EventListener;
use futures_util::future::{Either, select};
use millstream_core::{ErrorKind, Result};

use crate::messages::aside::DeadLetters;
use crate::messages::lane::Lane;
use crate::messages::reader::read;
use crate::messages::record::{self, LaneRecord};
use crate::messages::subscriber::{LaneCell, Shared};
use crate::messages::wire::{newest, put};

/// The pause after a failed write.
const PAUSE: Duration = Duration::from_millis(50);
/// Counts of deliveries that nobody waits for are stored after this time.
const LAZY: Duration = Duration::from_millis(250);

/// The record of a lane and its number in the stream; 0 if there is none.
#[derive(Clone, Debug)]
pub(crate) struct Stored {
    pub(crate) record: LaneRecord,
    pub(crate) sequence: u64,
}

/// A lane of this process.
pub(crate) struct Owner {
    pub(crate) shared: Arc<Shared>,
    pub(crate) cell: Arc<LaneCell>,
    pub(crate) stored: Stored,
}

/// Whether to go on.
enum Next {
    Write,
    WriteLast,
}

impl Owner {
    /// Works until the lane is given up or lost.
    pub(crate) async fn run(mut self) {
        let (shared, cell) = (Arc::clone(&self.shared), Arc::clone(&self.cell));
        tokio::select! {
            biased;
            () = self.write() => (),
            () = read(&shared, &cell) => (),
            () = put_aside(&shared, &cell) => (),
        }
    }

    /// Writes the record whenever it has changed, and often enough to keep the lane.
    async fn write(&mut self) {
        loop {
            let next = self.until_due().await;
            let is_last = matches!(next, Next::WriteLast);
            let (mut record, version) = self.cell.look(|lane| lane.snapshot(&self.stored.record));
            if is_last {
                record.owner = None;
            }
            if !self.store(record, version).await {
                tracing::info!(lane = self.cell.number, "lost a lane");
                return;
            }
            if is_last {
                return;
            }
        }
    }

    async fn until_due(&self) -> Next {
        let clock = &self.shared.topic.clock;
        let heartbeat = self.cell.heard() + self.shared.options.lease_duration / 3;
        let mut lazy = None;
        loop {
            let changed = self.cell.work.listen();
            let now = clock.monotonic();
            let (is_done, is_urgent, is_dirty) = self.cell.look(|lane| {
                let is_done = lane.is_stopping() && !lane.has_open_sessions();
                (is_done, lane.is_urgent(), lane.is_dirty())
            });
            if is_done {
                return Next::WriteLast;
            }
            if is_dirty {
                lazy.get_or_insert(now + LAZY);
            }
            let due = lazy.map_or(heartbeat, |it: Duration| it.min(heartbeat));
            if is_urgent || due <= now {
                return Next::Write;
            }
            select(changed, clock.sleep(due - now)).await;
        }
    }

    /// Stores the record; false if the lane is lost, or may be.
    async fn store(&mut self, record: LaneRecord, version: u64) -> bool {
        let clock = Arc::clone(&self.shared.topic.clock);
        loop {
            let sent = clock.monotonic();
            let fence = self.cell.fence();
            if fence <= sent {
                return false;
            }
            let storing = self.shared.store(self.cell.number, &record, self.stored.sequence);
            let stored = match select(Box::pin(storing), clock.sleep(fence - sent)).await {
                Either::Left((stored, _)) => stored,
                Either::Right(_) => return false,
            };
            let sequence = match stored {
                Ok(sequence) => Some(sequence),
                Err(error) => {
                    tracing::debug!(
                        lane = self.cell.number,
                        error = error.report(),
                        "could not store the record of a lane"
                    );
                    match self.look(&record).await {
                        Ok(found) => found,
                        Err(LaneLost) => return false,
                    }
                }
            };
            let Some(sequence) = sequence else {
                clock.sleep(PAUSE).await;
                continue;
            };
            self.stored = Stored { record, sequence };
            self.cell.hear(sent, self.shared.fence_after(sent));
            self.shared.change(&self.cell, |lane, _| lane.store(version));
            return true;
        }
    }

    /// Finds out what became of a write without an answer: its number if it is there, none if it
    /// may be repeated.
    async fn look(&self, record: &LaneRecord) -> Result<Option<u64>, LaneLost> {
        match self.shared.load(self.cell.number).await {
            Ok(Some(found)) if found.record.is_same_write(record) => Ok(Some(found.sequence)),
            Ok(Some(found)) if self.stored.sequence < found.sequence => Err(LaneLost),
            // Nothing newer, or nobody answers: the fence ends this.
            Ok(_) | Err(_) => Ok(None),
        }
    }
}

impl Drop for Owner {
    /// Also when the service is dropped in the middle of its work: nobody must wait for it.
    fn drop(&mut self) {
        self.cell.lose();
        self.shared.forget(&self.cell);
    }
}

/// Somebody else has the lane.
struct LaneLost;

impl Shared {
    /// The stored record of a lane.
    pub(crate) async fn load(&self, lane: u32) -> Result<Option<Stored>> {
        let subject = self.names.lane(lane);
        let Some(message) = newest(&self.topic.subscriptions, &subject).await? else {
            return Ok(None);
        };
        let record = record::read("record", &message.payload)?;
        Ok(Some(Stored { record, sequence: message.sequence }))
    }

    /// Stores the record of a lane if nobody else did since `expected`.
    pub(crate) async fn store(&self, lane: u32, record: &LaneRecord, expected: u64) -> Result<u64> {
        let body = Bytes::from(record::write("record", record)?);
        let subject = self.names.lane(lane);
        put(&self.topic.context, subject, HeaderMap::new(), body, Some(expected)).await
    }

    /// Takes a lane; none if somebody else was faster.
    pub(crate) async fn claim(&self, lane: u32, found: &Stored) -> Result<Option<Stored>> {
        let record = found.record.clone().taken(&self.member, self.options.lease_duration);
        match self.store(lane, &record, found.sequence).await {
            Ok(sequence) => Ok(Some(Stored { record, sequence })),
            Err(error) if error.kind() == ErrorKind::PreconditionFailed => Ok(None),
            // It may be ours; then nobody beats for it, and it is taken again in time.
            Err(error) => Err(error),
        }
    }
}

/// Puts messages aside until it is dropped.
async fn put_aside(shared: &Shared, cell: &LaneCell) {
    let letters = DeadLetters::new(Arc::clone(&shared.topic), shared.names.clone());
    loop {
        let changed = cell.work.listen();
        let leaving = cell.look(|lane| lane.leaving());
        let is_idle = leaving.is_empty();
        for message in leaving {
            let number = message.number;
            match letters.put(&message).await {
                Ok(()) => shared.change(cell, |lane, _| lane.left(number)),
                Err(error) => {
                    tracing::warn!(
                        lane = cell.number,
                        number,
                        error = error.report(),
                        "could not put a message aside"
                    );
                    shared.topic.clock.sleep(PAUSE).await;
                }
            }
        }
        if is_idle {
            pass_time(shared, cell, changed).await;
        }
    }
}

/// Waits for a change, and sees to it that locks and rests end when nobody asks for a session.
async fn pass_time(shared: &Shared, cell: &LaneCell, changed: EventListener) {
    let now = shared.now();
    let Some(timer) = cell.look(Lane::next_timer) else { return changed.await };
    if timer <= now {
        shared.change(cell, Lane::advance);
        return;
    }
    select(changed, shared.topic.clock.sleep(timer - now)).await;
}
