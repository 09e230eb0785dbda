//! What a worker waits for, and reading the feed.

use std::sync::Arc;
use std::time::Duration;

use millstream_core::{Continuation, Error as CoreError, ErrorKind as CoreErrorKind, FeedPage};
use millstream_core::{PartitionKey, StartFrom};

use crate::batch::{ChangeBatch, Page};
use crate::bootstrap::{container_recreated, pin};
use crate::dead_letters::ParkedSequence;
use crate::error::{Error, ErrorKind};
use crate::flaw::Flaw;
use crate::handler::HandlerResult;
use crate::lanes::LaneKey;
use crate::lease_store::{Stored, timed_out, within};
use crate::metrics;
use crate::notification::Notification;
use crate::options::{Concurrency, ExpiredPolicy, StartPosition};
use crate::stored::Lease;
use crate::worker::probe::Probe;
use crate::worker::redelivery::Redrive;
use crate::worker::redrive::Kept;
use crate::worker::write::NotOurs;
use crate::worker::{Ended, StopReason, Stopping, Work};

/// A handler that takes longer does not keep the lag from being known.
const FETCH_HELD_MAX: Duration = Duration::from_millis(100);

/// The outcome of something a worker started.
pub(super) enum Event {
    /// A page was read.
    Fetched(Box<millstream_core::Result<FeedPage>>),
    /// The handler returned.
    Handled { lane: LaneKey, batch: ChangeBatch, outcome: Delivered, probe: Option<Probe> },
    /// Changes were put into the dead letters, or turned out not to belong there.
    Kept(Kept),
    /// The lease was written, or is not ours any more.
    Stored(Box<Result<Stored<Lease>, NotOurs>>),
    /// The store was told the position, or not.
    Told(Continuation, millstream_core::Result<()>),
    /// The dead letters cannot be used before a person acts.
    Failed(Error),
    /// The parked sequences of these keys.
    ParkedLoaded(Vec<ParkedSequence>),
    /// A parked sequence was delivered to its end, or not.
    Redriven { key: PartitionKey, outcome: Redrive },
}

/// What became of a batch.
pub(super) enum Delivered {
    /// The handler returned this.
    Returned(HandlerResult),
    /// The handler panicked.
    Panicked(String),
    /// The lease had gone before the handler was called.
    TooLate,
}

impl Work {
    pub(super) async fn on_event(&mut self, event: Event) -> Result<(), Box<Ended>> {
        match event {
            Event::Fetched(page) => {
                self.fetching = false;
                match *page {
                    Ok(page) => self.on_page(page),
                    Err(error) => self.on_fetch_error(error).await?,
                }
                self.has_fetched = true;
            }
            Event::Handled { lane, batch, outcome, probe } => {
                self.on_handled(&lane, &batch, outcome, probe)?;
            }
            Event::Kept(kept) => self.on_kept(kept),
            Event::Stored(outcome) => self.on_stored(*outcome)?,
            Event::Told(position, outcome) => self.on_told(&position, outcome),
            Event::Failed(error) => return Err(Box::new(Ended::Failed(error))),
            Event::ParkedLoaded(parked) => self.on_parked_loaded(parked),
            Event::Redriven { key, outcome } => self.on_redriven(&key, outcome),
        }
        Ok(())
    }

    /// Starts to read the next page if there is room for it.
    pub(super) fn fetch(&mut self, now: Duration) {
        // Taken, because a time that nobody waits for any more must not wake the worker for ever.
        let held_until = self.fetch_held_until.take();
        let options = &self.setup.options;
        let full = options.in_flight_items_max < self.progress.items() + options.batch_items_max;
        if self.fetching || full && !self.progress.is_empty() {
            return;
        }
        if self.stopping.is_some() || self.is_paused() || self.pinning {
            return;
        }
        if self.is_one_page_ahead() {
            let until = held_until.unwrap_or(now + FETCH_HELD_MAX);
            if now < until {
                self.fetch_held_until = Some(until);
                return;
            }
        }
        self.fetching = true;
        let setup = Arc::clone(&self.setup);
        let (keys, after) = (Arc::clone(&self.keys), self.read_from.clone());
        let (at_end, failures) = (self.at_end, self.fetch_failures);
        self.events.push(Box::pin(async move {
            if 0 < failures {
                setup.clock.sleep(setup.pause(failures)).await;
            }
            let (feed, clock) = (&setup.feed.feed, &*setup.clock);
            let mut after = after;
            if setup.has(Flaw::StartNotPinned) && after.as_str().is_empty() {
                let start = setup.options.start.clone().unwrap_or(StartPosition::Now);
                let Ok(pinned) = pin(&setup, &keys, &start).await else {
                    let error = timed_out("pin the start");
                    return Event::Fetched(Box::new(Err(error)));
                };
                after = pinned;
            }
            if at_end {
                let wait = within(clock, setup.options.poll_interval, feed.wait(&keys, &after));
                if let Some(Err(error)) = wait.await {
                    return Event::Fetched(Box::new(Err(error)));
                }
            }
            let read = feed.read(&keys, &after, setup.options.page_size());
            let page = within(clock, setup.options.read_timeout, read).await;
            let page = page.unwrap_or_else(|| Err(timed_out("read the feed")));
            Event::Fetched(Box::new(page))
        }));
    }

    /// Whether a page waits while the handler is busy and nothing but what comes in now is left to
    /// read. Reading every commit as it comes would cost more than what it is worth: the next page
    /// has all of them.
    fn is_one_page_ahead(&self) -> bool {
        self.setup.options.concurrency == Concurrency::Serial
            && self.at_end
            && 0 < self.busy
            && self.lanes.has_ready(u64::MAX)
    }

    fn on_page(&mut self, page: FeedPage) {
        self.fetch_failures = 0;
        let start = std::mem::replace(&mut self.read_from, page.continuation.clone());
        // An empty page is the end only if it leads nowhere: a backend looks at so much at a time.
        self.at_end = match page.changes.last() {
            Some(last) => page.newest <= last.lsn,
            None => page.continuation == start,
        };
        self.status.tracker().page_read(&page, self.at_end);
        if page.changes.is_empty() {
            return;
        }
        self.told_caught_up = false;
        self.pages_read += 1;
        let acknowledged = Arc::clone(&self.acknowledged);
        let page = Page::new(self.pages_read, page.changes, start, page.continuation, acknowledged);
        self.lanes.add(&page);
        self.progress.add(page);
    }

    async fn on_fetch_error(&mut self, error: CoreError) -> Result<(), Box<Ended>> {
        if error.kind() == CoreErrorKind::RangeMoved {
            // A handover that was asked for goes first; the new owner finds the same.
            if self.stopping.is_none() {
                self.stopping = Some(Stopping { because: StopReason::Split, deadline: None });
                self.leaving.cancel();
            }
            return Ok(());
        }
        if error.kind() == CoreErrorKind::PositionExpired {
            return self.on_expired(error).await;
        }
        if [CoreErrorKind::ContainerRecreated, CoreErrorKind::NotFound].contains(&error.kind()) {
            self.setup.notifier.tell(Notification::ContainerRecreated);
            let failed = container_recreated(self.setup.store.name());
            return Err(Box::new(Ended::Failed(failed)));
        }
        self.fetch_failures += 1;
        self.tell_store_failed(error.report());
        Ok(())
    }

    /// Applies the policy for a position that the feed does not reach back to.
    async fn on_expired(&mut self, error: CoreError) -> Result<(), Box<Ended>> {
        if !self.progress.is_empty() {
            // What was read before is delivered first.
            self.fetch_failures += 1;
            return Ok(());
        }
        let keys = Arc::clone(&self.keys);
        self.setup.notifier.tell(Notification::PositionExpired { keys });
        let from = match self.setup.options.expired {
            ExpiredPolicy::FromOldest => StartFrom::Beginning,
            ExpiredPolicy::FromNow => StartFrom::Now,
            ExpiredPolicy::Stop => {
                let kind = ErrorKind::PositionExpired { keys: Box::new((*self.keys).clone()) };
                let failed = Error::new(kind, format!("read the changes of {}", self.keys));
                return Err(Box::new(Ended::Failed(failed.because(error))));
            }
        };
        tracing::warn!(keys = %self.keys, ?from, "the position has expired");
        let (setup, mode) = (&self.setup, self.setup.options.mode);
        let start = setup.feed.feed.start(&self.keys, from, mode);
        let started = within(&*setup.clock, setup.options.read_timeout, start).await;
        match started.unwrap_or_else(|| Err(timed_out("choose a start in the feed"))) {
            Ok(position) => {
                self.read_from = position;
                self.pinning = true;
            }
            Err(error) => {
                self.fetch_failures += 1;
                self.tell_store_failed(error.report());
            }
        }
        Ok(())
    }

    pub(super) fn tell_store_failed(&self, error: String) {
        tracing::warn!(keys = %self.keys, error, "a container could not be used; trying again");
        self.setup.metrics.count(metrics::STORE_ERRORS, 1);
        let keys = Some(Arc::clone(&self.keys));
        self.setup.notifier.tell(Notification::StoreFailed { keys, error });
    }

    pub(super) fn tell_caught_up(&self) {
        self.setup.notifier.tell(Notification::CaughtUp { keys: Arc::clone(&self.keys) });
    }

    /// The position after which nothing is known to be done.
    pub(super) fn position_read(&self) -> &Continuation {
        &self.read_from
    }
}
