use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use event_listener::Event;
use futures_util::future::select;
use millstream_core::{
    BoxFuture, Delivery, Error, ErrorKind, Result, SessionReceiver, Settlement, Subscriber,
};

use crate::messages::lane::{Accepted, Lane, LockLost};
use crate::messages::names::SubscriptionNames;
use crate::messages::options::SubscriptionOptions;
use crate::messages::owner::Stored;
use crate::messages::topic::TopicShared;

/// When to look again at something that is due and was not done.
const OVERDUE_PAUSE: Duration = Duration::from_millis(10);

/// A subscription of a topic as a [`Subscriber`]. A cheap clone.
///
/// It gives out the sessions of the lanes that this process has; its
/// [`NatsSubscriberService`](crate::NatsSubscriberService) must run. A settlement that returned
/// without error is stored in the cluster. One that comes after the process has lost the lane is
/// refused with `PreconditionFailed`, whatever its clock says.
#[derive(Clone, Debug)]
pub struct NatsSubscriber {
    shared: Arc<Shared>,
}

/// A session, and the right to receive from it.
#[derive(Debug)]
pub struct NatsSession {
    shared: Arc<Shared>,
    cell: Arc<LaneCell>,
    session: Arc<str>,
    lock: u64,
}

/// What receivers and the service of a subscription share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) topic: Arc<TopicShared>,
    pub(crate) name: String,
    pub(crate) names: SubscriptionNames,
    pub(crate) options: SubscriptionOptions,
    /// This process.
    pub(crate) member: String,
    lanes: Mutex<BTreeMap<u32, Arc<LaneCell>>>,
    /// Something has changed for a receiver.
    wake: Event,
}

/// A lane of this process.
#[derive(Debug)]
pub(crate) struct LaneCell {
    pub(crate) number: u32,
    state: Mutex<Lane>,
    /// Something has changed for those who work on the lane.
    pub(crate) work: Event,
    is_lost: AtomicBool,
    /// When the last write that succeeded was sent, in milliseconds.
    heard: AtomicU64,
    /// Until when nobody else can have the lane, in milliseconds.
    fence: AtomicU64,
}

impl NatsSubscriber {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self { shared }
    }

    /// The name of the subscription.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.shared.name
    }

    /// The lanes that this process has now.
    #[must_use]
    pub fn lanes(&self) -> Vec<u32> {
        self.shared.lanes().keys().copied().collect()
    }
}

#[async_trait]
impl Subscriber for NatsSubscriber {
    async fn accept_session(&self, wait: Duration) -> Result<Option<Box<dyn SessionReceiver>>> {
        let shared = &self.shared;
        let accepted = shared.until(wait, || Ok(shared.accept())).await?;
        let Some((cell, Accepted { session, lock })) = accepted else { return Ok(None) };
        Ok(Some(Box::new(NatsSession { shared: Arc::clone(shared), cell, session, lock })))
    }
}

impl SessionReceiver for NatsSession {
    fn session_id(&self) -> &str {
        &self.session
    }

    fn receive(&self, messages_max: usize, wait: Duration) -> BoxFuture<'_, Result<Vec<Delivery>>> {
        Box::pin(async move {
            let attempt = || {
                let taken = self.locked(|lane, now| lane.take(self.lock, messages_max, now))?;
                if taken.is_empty() {
                    return Ok(None);
                }
                // Somebody has to write down how often they were given out.
                self.cell.work.notify(usize::MAX);
                Ok(Some(taken))
            };
            Ok(self.shared.until(wait, attempt).await?.unwrap_or_default())
        })
    }

    fn settle<'a>(
        &'a self,
        deliveries: &'a [Delivery],
        settlement: Settlement,
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            if deliveries.is_empty() {
                return Ok(());
            }
            let outcome =
                self.locked(|lane, now| lane.settle(self.lock, deliveries, &settlement, now));
            self.shared.tell(&self.cell);
            match settlement {
                // Nothing that must survive has happened.
                Settlement::Abandon => (),
                Settlement::Complete => self.until_stored().await?,
                Settlement::Defer | Settlement::DeadLetter { .. } => {
                    self.until_left(deliveries).await?;
                    self.until_stored().await?;
                }
            }
            outcome
        })
    }

    fn renew(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move { self.locked(|lane, now| lane.renew(self.lock, now)) })
    }

    fn close(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            let outcome = self.locked(|lane, now| lane.close(self.lock, now));
            self.shared.tell(&self.cell);
            outcome
        })
    }
}

impl NatsSession {
    /// Does something with the lane while this process has it. Whoever changes something tells
    /// the others; who only looks must not, or everybody who waits would wake everybody.
    fn locked<T>(
        &self,
        work: impl FnOnce(&mut Lane, Duration) -> Result<T, LockLost>,
    ) -> Result<T> {
        let now = self.shared.now();
        if !self.cell.is_ours(now) {
            return Err(self.lost());
        }
        work(&mut self.cell.state(), now).map_err(|LockLost| self.lost())
    }

    /// Returns when everything up to now is stored.
    async fn until_stored(&self) -> Result<()> {
        let version = self.cell.look(|lane| lane.version());
        self.until(|lane| version <= lane.stored()).await
    }

    /// Returns when none of the messages is on its way aside.
    async fn until_left(&self, deliveries: &[Delivery]) -> Result<()> {
        let numbers: Vec<u64> = deliveries.iter().map(|it| it.sequence_number).collect();
        self.until(|lane| !numbers.iter().any(|it| lane.is_leaving(*it))).await
    }

    async fn until(&self, holds: impl Fn(&Lane) -> bool) -> Result<()> {
        loop {
            let changed = self.shared.wake.listen();
            if self.cell.look(|lane| holds(lane)) {
                return Ok(());
            }
            if self.cell.is_lost.load(Ordering::SeqCst) {
                return Err(self.lost().with_unknown_effect());
            }
            changed.await;
        }
    }

    fn lost(&self) -> Error {
        let attempted = format!("go on with session {:?}", self.session);
        let error = Error::new(ErrorKind::PreconditionFailed, attempted);
        error.because("its lock is gone; what was not settled comes again")
    }
}

impl Shared {
    pub(crate) fn new(
        topic: Arc<TopicShared>,
        name: &str,
        names: SubscriptionNames,
        options: SubscriptionOptions,
    ) -> Self {
        let member = topic.ids.next_id().to_string();
        let (lanes, wake) = (Mutex::default(), Event::new());
        Self { topic, name: name.to_owned(), names, options, member, lanes, wake }
    }

    pub(crate) fn now(&self) -> Duration {
        self.topic.clock.monotonic()
    }

    /// The lanes of this process.
    pub(crate) fn lanes(&self) -> MutexGuard<'_, BTreeMap<u32, Arc<LaneCell>>> {
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a lane that was taken by a write sent at `sent`.
    pub(crate) fn add(&self, number: u32, stored: &Stored, sent: Duration) -> Arc<LaneCell> {
        let cell = Arc::new(LaneCell {
            number,
            state: Mutex::new(Lane::new(&stored.record, self.options.clone())),
            work: Event::new(),
            is_lost: AtomicBool::new(false),
            heard: AtomicU64::new(0),
            fence: AtomicU64::new(0),
        });
        cell.hear(sent, self.fence_after(sent));
        self.lanes().insert(number, Arc::clone(&cell));
        cell
    }

    /// The lane is no longer one of this process.
    pub(crate) fn forget(&self, cell: &LaneCell) {
        self.lanes().remove(&cell.number);
        self.wake.notify(usize::MAX);
    }

    /// Until when a lane is ours for certain after a write that was sent at `sent`: others wait
    /// for a whole lease after they have seen it.
    pub(crate) fn fence_after(&self, sent: Duration) -> Duration {
        sent + self.options.lease_duration * 2 / 3
    }

    /// Changes a lane and tells everybody.
    pub(crate) fn change<T>(
        &self,
        cell: &LaneCell,
        work: impl FnOnce(&mut Lane, Duration) -> T,
    ) -> T {
        let now = self.now();
        let outcome = work(&mut cell.state(), now);
        self.tell(cell);
        outcome
    }

    /// Tells everybody that a lane has changed.
    fn tell(&self, cell: &LaneCell) {
        cell.work.notify(usize::MAX);
        self.wake.notify(usize::MAX);
    }

    /// The session that has waited longest in all lanes.
    fn accept(&self) -> Option<(Arc<LaneCell>, Accepted)> {
        let now = self.now();
        let cells: Vec<Arc<LaneCell>> = self.lanes().values().cloned().collect();
        let ready = cells.into_iter().filter(|it| it.is_ours(now)).filter_map(|cell| {
            let mut lane = cell.state();
            lane.advance(now);
            let first = lane.first_ready()?;
            drop(lane);
            Some((first, cell))
        });
        let (_, cell) = ready.min_by_key(|(first, _)| *first)?;
        let accepted = cell.state().accept(now)?;
        Some((cell, accepted))
    }

    /// Tries until there is something, for so long.
    async fn until<T>(
        &self,
        wait: Duration,
        mut attempt: impl FnMut() -> Result<Option<T>>,
    ) -> Result<Option<T>> {
        let deadline = self.now().saturating_add(wait);
        loop {
            let changed = self.wake.listen();
            if let Some(found) = attempt()? {
                return Ok(Some(found));
            }
            let now = self.now();
            if deadline <= now {
                return Ok(None);
            }
            let timers = self.lanes().values().filter_map(|it| it.state().next_timer()).min();
            // What is due in a lane that others may have by now is not for us to do.
            let until = timers.unwrap_or(deadline).max(now + OVERDUE_PAUSE).min(deadline);
            select(changed, self.topic.clock.sleep(until.saturating_sub(now))).await;
        }
    }
}

impl LaneCell {
    /// Looks at the lane.
    pub(crate) fn look<T>(&self, work: impl FnOnce(&Lane) -> T) -> T {
        work(&self.state())
    }

    /// Returns when there is room for more messages, and for how many.
    pub(crate) async fn until_room(&self) -> usize {
        loop {
            let changed = self.work.listen();
            let room = self.look(Lane::room);
            if 0 < room {
                return room;
            }
            changed.await;
        }
    }

    /// Gives no more sessions out; the lane is given up when those that are open have ended.
    pub(crate) fn stop(&self) {
        self.state().stop();
        self.work.notify(usize::MAX);
    }

    /// Nothing that is done with the lane from now on counts.
    pub(crate) fn lose(&self) {
        self.is_lost.store(true, Ordering::SeqCst);
    }

    /// Takes note of a write that succeeded.
    pub(crate) fn hear(&self, sent: Duration, fence: Duration) {
        self.heard.store(millis(sent), Ordering::SeqCst);
        self.fence.store(millis(fence), Ordering::SeqCst);
    }

    pub(crate) fn heard(&self) -> Duration {
        Duration::from_millis(self.heard.load(Ordering::SeqCst))
    }

    pub(crate) fn fence(&self) -> Duration {
        Duration::from_millis(self.fence.load(Ordering::SeqCst))
    }

    fn is_ours(&self, now: Duration) -> bool {
        !self.is_lost.load(Ordering::SeqCst) && now < self.fence()
    }

    fn state(&self) -> MutexGuard<'_, Lane> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
