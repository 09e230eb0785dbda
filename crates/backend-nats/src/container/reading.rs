//! The messages of a range in order, for readers that come back page by page.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use millstream_core::Result;

use crate::container::{Range, Shared};
use crate::wire::{Failure, Pull, Run, StoredMessage};

/// Bytes that are asked for at once.
const RUN_BYTES_MAX: usize = 4 * 1024 * 1024;
/// So few messages are read one by one; a consumer would cost more to make.
const FEW: u64 = 16;
/// How far a consumer may be ahead of a reader that left out the last part of a run, which is then
/// read once more, one by one; and how far behind one that got messages from the leader, which it
/// gives out once more.
const DISTANCE_MAX: u64 = 64;
/// Consumers that are kept for readers that come back.
const PULLS_MAX: usize = 16;
/// How long a reader waits for a consumer to be made before it reads without one.
const MAKING_TIME_MAX: Duration = Duration::from_secs(2);
/// For how long no consumer is made after one did not answer; twice as long every time.
const REST_MIN: Duration = Duration::from_secs(5);
const REST_MAX: Duration = Duration::from_secs(3600);

/// Consumers that stand where a reader has left them. A clone has the same ones.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pulls(Arc<Mutex<Kept>>);

#[derive(Debug, Default)]
struct Kept {
    /// The one that was used last comes last.
    pulls: Vec<Pull>,
    /// By the monotonic clock.
    not_before: Duration,
    /// How often in a row none could be made, or did not answer.
    failures: u32,
}

/// How a consumer may be made.
#[derive(Debug, PartialEq, Eq)]
enum Making {
    /// It is left alone for a while.
    NotNow,
    /// By a reader, who waits for it.
    Waiting,
    /// Only to find out whether it goes again, and without a reader who waits for it.
    Probing,
}

impl Pulls {
    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().expect("nothing panics while it holds the lock")
    }

    fn making(&self, now: Duration) -> Making {
        let mut kept = self.kept();
        if now < kept.not_before {
            return Making::NotNow;
        }
        if kept.failures == 0 {
            return Making::Waiting;
        }
        // Until it is known how this one ends there is no other.
        kept.not_before = now + REST_MAX;
        Making::Probing
    }

    /// Notes that a consumer could not be made or did not answer. Returns whether that is new.
    fn failed(&self, now: Duration) -> bool {
        let mut kept = self.kept();
        let rest = REST_MIN.saturating_mul(1 << kept.failures.min(16));
        kept.not_before = now + rest.min(REST_MAX);
        kept.failures += 1;
        kept.failures == 1
    }

    /// Notes that it goes.
    fn worked(&self) {
        let mut kept = self.kept();
        (kept.failures, kept.not_before) = (0, Duration::ZERO);
    }

    fn take(&self, from: u64, filter: Option<&str>) -> Option<Pull> {
        let mut kept = self.kept();
        let near = kept.pulls.iter().position(|it| it.is_near(from, filter, DISTANCE_MAX))?;
        Some(kept.pulls.remove(near))
    }

    /// Keeps one, and gives back the one that was not used for longest if there are too many.
    fn put(&self, pull: Pull) -> Option<Pull> {
        let mut kept = self.kept();
        kept.pulls.push(pull);
        (PULLS_MAX < kept.pulls.len()).then(|| kept.pulls.remove(0))
    }
}

/// Which subjects are read: one by one, and many at a time. What the first leaves out is of no use
/// to the reader.
#[derive(Clone, Copy)]
pub(super) struct Filters<'a> {
    pub(super) few: Option<&'a str>,
    pub(super) many: Option<&'a str>,
}

/// A reader within one page.
pub(super) struct Reading<'a> {
    shared: &'a Shared,
    range: &'a Range,
    filters: Filters<'a>,
    /// The newest message when the page began.
    newest: Option<StoredMessage>,
    pull: Option<Pull>,
}

impl<'a> Reading<'a> {
    pub(super) fn new(
        shared: &'a Shared,
        range: &'a Range,
        from: u64,
        filters: Filters<'a>,
        newest: Option<StoredMessage>,
    ) -> Self {
        let pull = range.pulls.take(from, filters.many);
        Self { shared, range, filters, newest, pull }
    }

    /// Keeps the consumer for the next page.
    pub(super) async fn end(self) {
        let Some(pull) = self.pull else { return };
        if let Some(pull) = self.range.pulls.put(pull) {
            self.range.wire.end_pull(pull).await;
        }
    }

    /// Some messages from `next` on, at most `count`, from any replica; it may not have the newest
    /// yet.
    pub(super) async fn run(&mut self, next: u64, count: usize) -> Result<Run> {
        if self.pull.is_none()
            && let Some(message) = self.newest.take_if(|it| it.sequence == next)
        {
            return Ok(Run { messages: vec![message], has_more: false });
        }
        let newest = self.newest.as_ref().map_or(0, |it| it.sequence);
        let few = newest.saturating_sub(next).min(u64::try_from(count).unwrap_or(u64::MAX));
        let is_behind = self.pull.as_ref().is_some_and(|it| next < it.next());
        if is_behind || (self.pull.is_none() && few < FEW) {
            let single = self.range.wire.single(next, self.filters.few).await?;
            let reached = self.pull.as_ref().map_or(u64::MAX, Pull::next);
            // What the consumer is about to give out comes from there.
            if single.as_ref().is_none_or(|it| it.sequence < reached) {
                let has_more = single.is_some();
                return Ok(Run { messages: single.into_iter().collect(), has_more });
            }
        }
        if self.pull.is_none() {
            self.make(next).await;
        }
        let wire = &self.range.wire;
        while let Some(pull) = &mut self.pull {
            match wire.run_on(pull, count, RUN_BYTES_MAX).await {
                Ok(mut run) => {
                    // The leader may have told us of these before.
                    run.messages.retain(|it| next <= it.sequence);
                    if !run.messages.is_empty() || !run.has_more {
                        return Ok(run);
                    }
                }
                Err(failure) => self.failed(&failure),
            }
        }
        wire.run(next, self.filters.many, count, RUN_BYTES_MAX).await
    }

    async fn make(&mut self, next: u64) {
        match self.range.pulls.making(self.shared.clock().monotonic()) {
            Making::NotNow => {}
            Making::Waiting => {
                let making = self.range.wire.pull_from(next, self.filters.many);
                let made = tokio::time::timeout(MAKING_TIME_MAX, making).await;
                let late = || Failure::Unreachable("no consumer was made in time".to_owned());
                match made.unwrap_or_else(|_| Err(late())) {
                    Ok(pull) => self.pull = Some(pull),
                    Err(failure) => self.failed(&failure),
                }
            }
            Making::Probing => self.probe(next),
        }
    }

    /// Finds out whether consumers can be made again. It ends by itself, at the latest with the
    /// timeouts of its requests.
    fn probe(&self, next: u64) {
        let (wire, pulls) = (self.range.wire.clone(), self.range.pulls.clone());
        let clock = Arc::clone(&self.shared.connection.options().clock);
        let filter = self.filters.many.map(str::to_owned);
        tokio::spawn(async move {
            match wire.try_pull(next, filter.as_deref(), RUN_BYTES_MAX).await {
                Ok(()) => pulls.worked(),
                Err(_) => {
                    pulls.failed(clock.monotonic());
                }
            }
        });
    }

    /// A consumer is only the quicker way; there is another.
    fn failed(&mut self, failure: &Failure) {
        self.pull = None;
        match failure {
            // The server has forgotten it, or the stream is gone, which the other way will tell.
            Failure::NoResponders | Failure::Missing => {}
            Failure::Unreachable(reason)
            | Failure::Unavailable(reason)
            | Failure::Refused(reason) => {
                // Said once: readers go on, and only the servers have more to do.
                if self.range.pulls.failed(self.shared.clock().monotonic()) {
                    let stream = self.range.wire.stream.as_str();
                    tracing::warn!(
                        stream,
                        reason,
                        "reads the feed without a consumer, which costs the servers more; may \
                         this user publish to $JS.API.CONSUMER.>?"
                    );
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use crate::container::reading::{Making, Pulls, REST_MAX};

    #[track_caller]
    fn check(pulls: &Pulls, second: u64, expected: &Making) {
        assert_eq!(pulls.making(Duration::from_secs(second)), *expected, "at second {second}");
    }

    #[test]
    fn who_may_not_make_consumers_tries_less_and_less() {
        let pulls = Pulls::default();
        check(&pulls, 0, &Making::Waiting);
        assert!(pulls.failed(Duration::from_secs(1)));
        check(&pulls, 5, &Making::NotNow);
        check(&pulls, 6, &Making::Probing);
        // One at a time.
        check(&pulls, 7, &Making::NotNow);
        assert!(!pulls.failed(Duration::from_secs(10)));
        check(&pulls, 19, &Making::NotNow);
        check(&pulls, 20, &Making::Probing);
        for _ in 0..40 {
            pulls.failed(Duration::from_secs(20));
        }
        check(&pulls, 19 + REST_MAX.as_secs(), &Making::NotNow);
        check(&pulls, 20 + REST_MAX.as_secs(), &Making::Probing);
    }

    #[test]
    fn who_may_make_them_again_does_so_at_once() {
        let pulls = Pulls::default();
        pulls.failed(Duration::ZERO);
        check(&pulls, 5, &Making::Probing);
        pulls.worked();
        check(&pulls, 5, &Making::Waiting);
        assert!(pulls.failed(Duration::from_secs(5)), "it is told again");
    }
}
