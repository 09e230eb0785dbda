use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use async_nats::HeaderMap;
use bytes::Bytes;
use futures_util::future::join_all;
use millstream_core::Result;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::messages::headers::set;
use crate::messages::names::lane_of;
use crate::messages::owner::{Owner, Stored};
use crate::messages::record::{self, LaneRecord};
use crate::messages::subscriber::Shared;
use crate::messages::wire::{call_error, newest, put};

/// How often messages that every subscription is done with are removed.
const SWEEP_INTERVAL: Duration = Duration::from_secs(10);
/// Moments that are remembered for that within a duplicate window.
const MOMENTS_MAX: u32 = 16;
/// The shortest time to live the server knows.
const TIME_TO_LIVE_MIN: Duration = Duration::from_secs(1);

/// Takes lanes of a subscription for this process and works on them.
///
/// Every process that runs one says so in the stream of subscriptions, under a subject that
/// expires; each takes its share of the lanes. A lane whose owner is silent for a lease, by the
/// clock of whoever looks, is taken by another process.
#[derive(Debug)]
pub struct NatsSubscriberService {
    shared: Arc<Shared>,
    observed: BTreeMap<u32, Observation>,
    owners: JoinSet<()>,
    sweeps: Sweeps,
}

/// Since when a record has not changed.
#[derive(Clone, Copy, Debug)]
struct Observation {
    sequence: u64,
    since: Duration,
}

/// What was removed, and what may be.
#[derive(Debug, Default)]
struct Sweeps {
    next: Duration,
    /// For each lane when which floor was seen, older ones first.
    moments: BTreeMap<u32, VecDeque<(Duration, u64)>>,
    /// Up to where each lane was removed.
    removed: BTreeMap<u32, u64>,
}

impl NatsSubscriberService {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        let (observed, owners, sweeps) = Default::default();
        Self { shared, observed, owners, sweeps }
    }

    /// Works until `shutdown`; then gives up its lanes when their open sessions have ended, or
    /// after a lease.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future is like the death of the process: other processes take its lanes after
    /// a lease, and what was not settled comes again.
    pub async fn run(mut self, shutdown: CancellationToken) {
        let clock = Arc::clone(&self.shared.topic.clock);
        let interval = self.shared.options.lease_duration / 3;
        loop {
            if let Err(error) = self.round().await {
                let subscription = self.shared.name.as_str();
                tracing::warn!(subscription, error = error.report(), "could not share the lanes");
            }
            while self.owners.try_join_next().is_some() {}
            tokio::select! {
                biased;
                () = shutdown.cancelled() => break,
                () = clock.sleep(interval) => (),
            }
        }
        self.stop().await;
    }

    async fn stop(mut self) {
        let shared = Arc::clone(&self.shared);
        for cell in shared.lanes().values() {
            cell.stop();
        }
        let ended = async { while self.owners.join_next().await.is_some() {} };
        let patience = shared.topic.clock.sleep(shared.options.lease_duration);
        tokio::select! {
            biased;
            () = ended => (),
            () = patience => (),
        }
        let subject = shared.names.member(&shared.member);
        if let Err(error) = shared.topic.subscriptions.purge().filter(subject).await {
            tracing::debug!(%error, "could not say goodbye; the others notice in time");
        }
    }

    async fn round(&mut self) -> Result<()> {
        let shared = Arc::clone(&self.shared);
        shared.beat().await?;
        let members = shared.members().await?.max(1);
        let lanes = usize::try_from(shared.topic.lanes).unwrap_or(usize::MAX);
        let share = lanes.div_ceil(members);
        let (mine, staying): (BTreeSet<u32>, usize) = {
            let cells = shared.lanes();
            let staying = cells.values().filter(|it| !it.look(|lane| lane.is_stopping())).count();
            (cells.keys().copied().collect(), staying)
        };
        if share < staying {
            shared.give_up(staying - share);
        }
        let others: Vec<u32> = (0..shared.topic.lanes).filter(|it| !mine.contains(it)).collect();
        let free = self.free(&others).await?;
        for (lane, found) in free.into_iter().take(share.saturating_sub(staying)) {
            let sent = shared.now();
            let Some(stored) = shared.claim(lane, &found).await? else { continue };
            let cell = shared.add(lane, &stored, sent);
            tracing::debug!(lane, subscription = shared.name.as_str(), "took a lane");
            self.owners.spawn(Owner { shared: Arc::clone(&shared), cell, stored }.run());
        }
        self.sweep().await
    }

    /// The lanes that somebody may take, beginning elsewhere in each process.
    async fn free(&mut self, lanes: &[u32]) -> Result<Vec<(u32, Stored)>> {
        let shared = Arc::clone(&self.shared);
        let found = join_all(lanes.iter().map(|lane| shared.load(*lane))).await;
        let now = shared.now();
        let mut free = Vec::new();
        let mut after = None;
        for (lane, found) in lanes.iter().zip(found) {
            let Some(stored) = found? else {
                let after = match after {
                    Some(after) => after,
                    None => *after.insert(shared.after().await?),
                };
                let Some(after) = after else { continue };
                free.push((*lane, Stored { record: LaneRecord::new(after), sequence: 0 }));
                continue;
            };
            let sequence = stored.sequence;
            let seen = self.observed.entry(*lane).or_insert(Observation { sequence, since: now });
            if seen.sequence != sequence {
                *seen = Observation { sequence, since: now };
            }
            let is_silent = seen.since + stored.record.lease() <= now;
            if stored.record.owner.is_none() || is_silent {
                free.push((*lane, stored));
            }
        }
        if !free.is_empty() {
            let first = lane_of(&shared.member, u32::try_from(free.len()).unwrap_or(1));
            free.rotate_left(usize::try_from(first).unwrap_or_default());
        }
        Ok(free)
    }

    /// Removes messages that every subscription is done with. A message stays at least as long as
    /// its id must be known: a server that starts again learns ids from the messages it has.
    async fn sweep(&mut self) -> Result<()> {
        let shared = Arc::clone(&self.shared);
        let now = shared.now();
        if now < self.sweeps.next {
            return Ok(());
        }
        self.sweeps.next = now + SWEEP_INTERVAL;
        let floors: Vec<(u32, u64)> = {
            let cells = shared.lanes();
            cells.iter().map(|(lane, cell)| (*lane, cell.look(|it| it.floor()))).collect()
        };
        let window = shared.topic.duplicate_window;
        let mut due = Vec::new();
        for (lane, floor) in floors {
            let old = self.sweeps.old_floor(lane, floor, window, now);
            if self.sweeps.removed.get(&lane).copied().unwrap_or_default() < old {
                due.push((lane, old));
            }
        }
        if due.is_empty() {
            return Ok(());
        }
        let subscriptions = shared.topic.all_subscriptions().await?;
        for (lane, old) in due {
            let mut floor = old;
            for (names, about) in &subscriptions {
                let found = newest(&shared.topic.subscriptions, &names.lane(lane)).await?;
                let other = match found {
                    Some(message) => record::read::<LaneRecord>("record", &message.payload)?.floor,
                    None => about.after,
                };
                floor = floor.min(other);
            }
            let subject = shared.topic.names.lane(lane);
            let purged = shared.topic.messages.purge().sequence(floor + 1).filter(subject).await;
            purged
                .map_err(|error| call_error(format!("remove what lane {lane} has done"), error))?;
            self.sweeps.removed.insert(lane, floor);
        }
        Ok(())
    }
}

impl Sweeps {
    /// The floor of a lane as it was a duplicate window ago.
    fn old_floor(&mut self, lane: u32, floor: u64, window: Duration, now: Duration) -> u64 {
        let moments = self.moments.entry(lane).or_default();
        if moments.back().is_none_or(|(at, _)| *at + window / MOMENTS_MAX <= now) {
            moments.push_back((now, floor));
        }
        while let Some((at, _)) = moments.get(1)
            && *at + window <= now
        {
            moments.pop_front();
        }
        moments.front().filter(|(at, _)| *at + window <= now).map_or(0, |(_, floor)| *floor)
    }
}

impl Shared {
    /// Says that this process is alive.
    async fn beat(&self) -> Result<()> {
        let mut headers = HeaderMap::new();
        let seconds = self.options.lease_duration.max(TIME_TO_LIVE_MIN).as_secs_f64().ceil();
        set(&mut headers, "Nats-TTL", &format!("{seconds}s"))?;
        let subject = self.names.member(&self.member);
        put(&self.topic.context, subject, headers, Bytes::new(), None).await.map(|_| ())
    }

    /// How many processes are alive.
    async fn members(&self) -> Result<usize> {
        Ok(self.topic.subjects(self.names.member("*")).await?.len())
    }

    /// After which message the subscription begins; none if it was deleted.
    async fn after(&self) -> Result<Option<u64>> {
        Ok(self.topic.about(&self.names).await?.map(|it| it.after))
    }

    /// Gives up lanes, those without open sessions first.
    fn give_up(&self, count: usize) {
        let cells = self.lanes();
        let mut staying: Vec<_> =
            cells.values().filter(|it| !it.look(|lane| lane.is_stopping())).collect();
        staying.sort_by_key(|it| it.look(|lane| lane.has_open_sessions()));
        for cell in staying.into_iter().take(count) {
            cell.stop();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_stay_as_long_as_their_ids_must_be_known() {
        let (window, second) = (Duration::from_secs(160), Duration::from_secs);
        let mut sweeps = Sweeps::default();
        let found: Vec<u64> = (0_u32..40)
            .map(|it| sweeps.old_floor(3, u64::from(it), window, second(u64::from(it) * 10)))
            .collect();
        assert!(found[..16].iter().all(|it| *it == 0));
        // Floor 5 was seen at 50 s, so it counts from 210 s on.
        assert_eq!((found[20], found[21], found[39]), (4, 5, 23));
        assert!(sweeps.moments[&3].len() < 20);
    }
}
