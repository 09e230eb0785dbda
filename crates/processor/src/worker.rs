//! What one instance does with one lease: read, deliver, checkpoint, and give it up in order.
//!
//! One loop owns everything; reading, handling and writing go on beside each other as futures whose
//! outcomes are events. The lease document has no other writer while this instance owns it.

mod deliver;
mod events;
mod finish;
mod guard;
mod probe;
mod redelivery;
mod redrive;
mod write;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use millstream_core::{BoxFuture, Continuation, KeyRange, PartitionKey, Timestamp};
use rustc_hash::FxHashSet;
use tokio::sync::{Notify, mpsc, watch};
use tokio_util::sync::CancellationToken;

use crate::error::Error;
use crate::fence::Tenure;
use crate::flaw::Flaw;
use crate::lag::{LagTracker, LeaseLag};
use crate::lanes::{Lanes, Progress};
use crate::lease_store::Stored;
use crate::options::{Checkpoint, Concurrency};
use crate::shared::Setup;
use crate::stored::{Failing, Handled, Lease, Owner};
use crate::tasks::yield_now;
use crate::worker::events::Event;
pub(crate) use crate::worker::redrive::{is_hopeless, put_off};

/// How long the position of a lease without changes may stay behind the end of the feed.
const IDLE_CHECKPOINT_INTERVAL: Duration = Duration::from_secs(60);

/// Time between two writes of the lease while batches end one right after the other. Each is a
/// durable write that the changes being read wait behind.
const BUSY_CHECKPOINT_INTERVAL: Duration = Duration::from_millis(10);

/// What a worker is told to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Directive {
    /// Go on.
    Work,
    /// Finish the batches at hand by `deadline`, then give the lease to `to`, or to nobody.
    GiveUp { to: Option<Owner>, deadline: Duration },
    /// The lease is somebody else's; stop at once.
    Abandon { reason: String },
}

/// What an operator wants of all workers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wishes {
    pub(crate) paused: bool,
    pub(crate) redrives: u64,
}

/// How the work on a lease ended.
#[derive(Debug)]
pub(crate) enum Ended {
    /// It was given up in order.
    Released { to: Option<String> },
    /// It is somebody else's, or may be.
    Lost { reason: String },
    /// Narrower leases replaced it.
    Split { children: Vec<KeyRange> },
    /// The whole instance has to stop.
    Failed(Error),
}

/// What others may know about a worker.
#[derive(Debug)]
pub(crate) struct WorkerStatus {
    lag: Mutex<LagTracker>,
    /// Thousandths of changes per second, smoothed.
    load: AtomicU64,
    /// Whether a handler is at work.
    busy: AtomicBool,
}

impl WorkerStatus {
    pub(crate) fn new(keys: Arc<KeyRange>, instance: &str, epoch: u64) -> Self {
        let lag = Mutex::new(LagTracker::new(keys, instance, epoch));
        Self { lag, load: AtomicU64::new(0), busy: AtomicBool::new(false) }
    }

    pub(crate) fn load_per_mille(&self) -> u64 {
        self.load.load(Ordering::Relaxed)
    }

    /// Whether a handler is at work.
    pub(crate) fn is_busy(&self) -> bool {
        self.busy.load(Ordering::Relaxed)
    }

    fn set_load(&self, load: f64) {
        let per_mille = Duration::try_from_secs_f64(load.max(0.0)).unwrap_or(Duration::MAX);
        let per_mille = u64::try_from(per_mille.as_millis()).unwrap_or(u64::MAX);
        self.load.store(per_mille, Ordering::Relaxed);
    }

    /// The lag at this time; none before the first page was read.
    pub(crate) fn lag(&self, now: Timestamp) -> Option<LeaseLag> {
        self.tracker().lag(now)
    }

    fn tracker(&self) -> MutexGuard<'_, LagTracker> {
        self.lag.lock().expect("nothing panics while it holds the lock")
    }
}

/// A worker that has not begun.
pub(crate) struct Worker {
    pub(crate) setup: Arc<Setup>,
    pub(crate) lease: Stored<Lease>,
    pub(crate) tenure: Tenure,
    pub(crate) directive: watch::Receiver<Directive>,
    pub(crate) wishes: watch::Receiver<Wishes>,
    pub(crate) status: Arc<WorkerStatus>,
    pub(crate) ended: mpsc::UnboundedSender<(KeyRange, Ended)>,
}

impl Worker {
    /// Works until the lease is given up or lost, and says so.
    pub(crate) async fn run(self) {
        let Self { setup, lease, tenure, mut directive, wishes, status, ended } = self;
        let keys = lease.document.keys.clone();
        let mut report = Report { keys, outcome: None, ended };
        let cancellation = CancellationToken::new();
        let guard = cancellation.clone().drop_guard();
        let abandoned = directive.clone();
        let mut work = Box::pin(async {
            let mut work = match Work::new(&setup, lease, tenure, wishes, status, cancellation) {
                Ok(work) => work,
                Err(error) => return Ended::Failed(error),
            };
            work.run(&mut directive).await
        });
        let outcome = tokio::select! {
            biased;
            reason = abandonment(abandoned) => Ended::Lost { reason },
            () = lapsed(&setup, tenure) => {
                Ended::Lost { reason: "could not say in time that it is alive".to_owned() }
            }
            outcome = &mut work => outcome,
        };
        // The handlers hear of it before they are dropped.
        drop(guard);
        drop(work);
        report.outcome = Some(outcome);
    }
}

/// Tells the instance how the work ended, also if it panicked.
struct Report {
    keys: KeyRange,
    outcome: Option<Ended>,
    ended: mpsc::UnboundedSender<(KeyRange, Ended)>,
}

impl Drop for Report {
    fn drop(&mut self) {
        let lost = || Ended::Lost { reason: "the worker panicked".to_owned() };
        let outcome = self.outcome.take().unwrap_or_else(lost);
        // An error means that the instance is gone.
        let _ = self.ended.send((self.keys.clone(), outcome));
    }
}

async fn lapsed(setup: &Setup, tenure: Tenure) {
    if setup.has(Flaw::RenewalFailureIgnored) {
        return std::future::pending().await;
    }
    setup.fence.lapsed(tenure, &*setup.clock).await;
}

async fn abandonment(mut directive: watch::Receiver<Directive>) -> String {
    loop {
        if let Directive::Abandon { reason } = &*directive.borrow_and_update() {
            return reason.clone();
        }
        if directive.changed().await.is_err() {
            return "the instance ended".to_owned();
        }
    }
}

/// The state of the loop.
struct Work {
    setup: Arc<Setup>,
    keys: Arc<KeyRange>,
    epoch: u64,
    tenure: Tenure,
    cancellation: CancellationToken,
    status: Arc<WorkerStatus>,
    wishes: watch::Receiver<Wishes>,

    events: FuturesUnordered<BoxFuture<'static, Event>>,
    /// Batches with the handler, and changes on their way to the dead letters.
    busy: usize,
    fetching: bool,
    /// A page has come, and nobody else was given a turn since.
    has_fetched: bool,
    /// Until when no page is read, because one waits for a handler that is busy.
    fetch_held_until: Option<Duration>,
    /// Failed reads in a row.
    fetch_failures: u32,
    /// The last page reached the end of the feed.
    at_end: bool,
    told_caught_up: bool,

    /// The lease as stored; none while it is being written.
    lease: Option<Stored<Lease>>,
    /// Where the next page is read from.
    read_from: Continuation,
    /// Everything up to here is done.
    watermark: Continuation,
    handled: Option<Handled>,
    /// The position was set anew and has to be stored before anything is read from it.
    pinning: bool,
    /// What the stored lease says.
    stored_position: Continuation,
    stored_at: Duration,
    items_since_stored: u64,
    /// When the load was measured last, and what was handled since.
    load_measured_at: Duration,
    items_since_measured: u64,
    failing: Vec<(crate::lanes::LaneKey, Failing)>,
    /// What earlier owners failed at and this one has not passed yet.
    inherited: Vec<Failing>,
    failing_changed: bool,

    lanes: Lanes,
    progress: Progress,
    pages_read: u64,
    /// The newest page of which something was given to the handler.
    page_started: u64,
    acknowledged: Arc<Notify>,

    /// Partition keys with a parked sequence; none until they are known.
    parked: Option<FxHashSet<PartitionKey>>,
    redrives_seen: u64,
    /// Keys whose failed change is being put aside.
    keeping: FxHashSet<PartitionKey>,
    /// Keys that were not parked when they were found to be redriven: changes of them may be with
    /// the handler.
    unparked_before: FxHashSet<PartitionKey>,
    /// Keys of which something was put behind the others while they are redriven.
    kept_behind: FxHashSet<PartitionKey>,
    /// Parked sequences to be delivered again, and those that are now.
    redriving: VecDeque<PartitionKey>,
    redrives_running: FxHashSet<PartitionKey>,
    /// The keys of both together.
    redrives_wanted: FxHashSet<PartitionKey>,
    /// The last that was begun was a sequence, so changes of the feed are next.
    redrove_last: bool,
    /// Cancelled when the lease is to be given up, so that long work ends early.
    leaving: CancellationToken,

    told: guard::Told,
    /// When the circuit breaker lets deliveries go on.
    held_back_until: Option<Duration>,
    stopping: Option<Stopping>,
    /// The timer that is set, so that it is not set again.
    timer: Option<(Duration, BoxFuture<'static, ()>)>,
}

/// The work is being brought to an end.
struct Stopping {
    because: StopReason,
    deadline: Option<Duration>,
}

enum StopReason {
    GiveUp(Option<Owner>),
    Split,
}

impl Work {
    fn new(
        setup: &Arc<Setup>,
        lease: Stored<Lease>,
        tenure: Tenure,
        wishes: watch::Receiver<Wishes>,
        status: Arc<WorkerStatus>,
        cancellation: CancellationToken,
    ) -> Result<Self, Error> {
        let position = lease.document.continuation()?;
        let keyed = matches!(setup.options.concurrency, Concurrency::Keyed(_));
        Ok(Self {
            setup: Arc::clone(setup),
            keys: Arc::new(lease.document.keys.clone()),
            epoch: lease.document.epoch,
            tenure,
            cancellation,
            status,
            wishes,
            events: FuturesUnordered::new(),
            busy: 0,
            fetching: false,
            has_fetched: false,
            fetch_held_until: None,
            fetch_failures: 0,
            at_end: false,
            told_caught_up: false,
            handled: lease.document.handled,
            inherited: lease.document.failing.clone(),
            lease: Some(lease),
            read_from: position.clone(),
            watermark: position.clone(),
            pinning: false,
            stored_position: position,
            stored_at: setup.clock.monotonic(),
            items_since_stored: 0,
            load_measured_at: setup.clock.monotonic(),
            items_since_measured: 0,
            failing: Vec::new(),
            failing_changed: false,
            lanes: Lanes::new(keyed, setup.options.batch_items_max),
            progress: Progress::default(),
            pages_read: 0,
            page_started: 0,
            acknowledged: Arc::new(Notify::new()),
            parked: None,
            redrives_seen: 0,
            keeping: FxHashSet::default(),
            unparked_before: FxHashSet::default(),
            kept_behind: FxHashSet::default(),
            redriving: VecDeque::new(),
            redrives_wanted: FxHashSet::default(),
            redrove_last: false,
            redrives_running: FxHashSet::default(),
            leaving: CancellationToken::new(),
            told: guard::Told::default(),
            held_back_until: None,
            stopping: None,
            timer: None,
        })
    }

    async fn run(&mut self, directive: &mut watch::Receiver<Directive>) -> Ended {
        self.load_parked();
        loop {
            let now = self.setup.clock.monotonic();
            self.heed(&directive.borrow_and_update().clone());
            self.advance();
            self.deliver(now);
            self.fetch(now);
            self.store_if_due(now);
            self.tell_guard(now);
            if self.is_finished(now) {
                return self.finish(directive).await;
            }
            self.status.busy.store(0 < self.busy, Ordering::Relaxed);
            self.set_timer(now);
            let event = if std::mem::take(&mut self.has_fetched) {
                self.turn(directive).await
            } else {
                self.next_event(directive).await
            };
            if let Some(event) = event
                && let Err(ended) = self.on_event(event).await
            {
                return *ended;
            }
        }
    }

    /// Lets the handler begin with what has just come, then everybody else have a turn: a backend
    /// that never waits would keep the thread for ever.
    async fn turn(&mut self, directive: &mut watch::Receiver<Directive>) -> Option<Event> {
        let event = self.next_event(directive).now_or_never().flatten();
        yield_now().await;
        event
    }

    /// Waits for something to happen; none means that the loop shall look again.
    async fn next_event(&mut self, directive: &mut watch::Receiver<Directive>) -> Option<Event> {
        let timer = async {
            match &mut self.timer {
                Some((_, timer)) => timer.await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            changed = directive.changed() => {
                // The instance is gone; whoever drops it drops this too.
                if changed.is_err() {
                    std::future::pending::<()>().await;
                }
                None
            }
            Some(event) = self.events.next() => Some(event),
            () = timer => {
                self.timer = None;
                None
            }
            () = self.acknowledged.notified() => None,
            Ok(()) = self.wishes.changed() => None,
        }
    }

    fn heed(&mut self, directive: &Directive) {
        if let Directive::GiveUp { to, deadline } = directive {
            let because = StopReason::GiveUp(to.clone());
            self.stopping = Some(Stopping { because, deadline: Some(*deadline) });
            self.leaving.cancel();
        }
    }

    /// Moves the watermark past what is done.
    fn advance(&mut self) {
        if let Some((page, items)) = self.progress.advance()
            && let Some(last) = page.changes.last()
        {
            self.watermark = page.end.clone();
            self.handled = Some(Handled::of(last));
            self.items_since_stored += u64::try_from(items).unwrap_or(u64::MAX);
            self.status.tracker().handled(last, items);
        }
        if self.setup.has(Flaw::CheckpointPastGaps) && self.busy == 0 && self.pages_read != 0 {
            self.watermark = self.read_from.clone();
        }
        if self.progress.is_empty() {
            // The position may move over commits of other keys too.
            self.watermark = self.read_from.clone();
            if self.at_end && !self.told_caught_up && self.stopping.is_none() {
                self.told_caught_up = true;
                self.tell_caught_up();
            }
        }
        let wishes = *self.wishes.borrow_and_update();
        if self.parked.is_some() && wishes.redrives != self.redrives_seen {
            self.redrives_seen = wishes.redrives;
            self.load_parked();
        }
    }

    fn is_paused(&self) -> bool {
        self.wishes.borrow().paused
    }

    /// Whether nothing more will be done before the lease is given up.
    fn is_finished(&self, now: Duration) -> bool {
        let Some(stopping) = &self.stopping else { return false };
        if stopping.deadline.is_some_and(|it| it <= now) {
            return true;
        }
        if self.setup.has(Flaw::HandoverBeforeDrained) {
            return self.lease.is_some();
        }
        let may_deliver = self.parked.is_some() && !self.is_paused();
        let more = may_deliver && self.lanes.has_ready(self.page_started);
        self.busy == 0 && !more && self.lease.is_some()
    }

    fn set_timer(&mut self, now: Duration) {
        let lanes = self.lanes.release_due(now);
        let deadline = self.stopping.as_ref().and_then(|it| it.deadline);
        let (store, guard) = (self.store_due_at(), self.guard_due_at());
        let due = [lanes, self.held_back_until, self.fetch_held_until, deadline, store, guard];
        let Some(time) = due.into_iter().flatten().min() else {
            self.timer = None;
            return;
        };
        if self.timer.as_ref().is_none_or(|(set, _)| *set != time) {
            self.timer = Some((time, self.setup.clock.sleep(time.saturating_sub(now))));
        }
    }

    /// When the position has to be written even if nothing else happens.
    fn store_due_at(&self) -> Option<Duration> {
        // A worker that stops writes once, at its end.
        let is_idle = self.lease.is_none() || self.stopping.is_some();
        if is_idle || self.watermark == self.stored_position {
            return None;
        }
        match self.setup.options.checkpoint {
            Checkpoint::Every { interval, .. } if 0 < self.items_since_stored => {
                Some(self.stored_at + interval)
            }
            Checkpoint::EachBatch if 0 < self.items_since_stored => {
                Some(self.stored_at + BUSY_CHECKPOINT_INTERVAL)
            }
            Checkpoint::EachBatch | Checkpoint::Every { .. } | Checkpoint::ByHand => {
                Some(self.stored_at + IDLE_CHECKPOINT_INTERVAL)
            }
        }
    }
}
