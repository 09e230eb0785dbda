use std::time::Duration;

use millstream_core::{Continuation, FeedMode, PageSize, Timestamp};

use crate::error::{Error, Result};
use crate::plan::Strategy;
use crate::retry::Backoff;

/// Where a processor without leases begins. Once there are leases, their positions count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StartPosition {
    /// After the newest commit at the moment of the first start.
    Now,
    /// The oldest change the feed still has.
    Beginning,
    /// The first change committed at this time or later.
    Time(Timestamp),
    /// Where another reader of the same ranges stopped.
    Continuation(Continuation),
}

/// When the position is written to the lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checkpoint {
    /// After each batch. While one write is on its way the next batches are handled, and the
    /// write that follows covers all of them; batches that end within 10 milliseconds of a write
    /// share the next one.
    EachBatch,
    /// Once so many changes were handled or so much time has passed since the last one.
    Every {
        /// Changes.
        items: usize,
        /// Time.
        interval: Duration,
    },
    /// Only past what the handler acknowledged with [`crate::ChangeBatch::acknowledge`].
    ByHand,
}

/// How many batches of one lease are handled at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Concurrency {
    /// One, in commit order.
    Serial,
    /// Up to so many, each of one partition key and in order per key.
    Keyed(usize),
}

/// What happens to a change that failed as often as it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailurePolicy {
    /// It is kept in the dead letters, and later changes of its partition key behind it.
    Park,
    /// It is kept in the dead letters, and later changes of its key go on.
    Skip,
    /// The instance ends with an error; the lease stays where it is.
    Stop,
}

/// What happens when the feed no longer reaches back to the position of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpiredPolicy {
    /// The instance ends with an error.
    Stop,
    /// The lease goes on with the oldest change there is.
    FromOldest,
    /// The lease goes on with what is committed from now on.
    FromNow,
}

/// What happens when the container is another one than the leases were made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecreatedPolicy {
    /// The instance does not start.
    Stop,
    /// New leases are made for the new container, from the start position in the options.
    Restart,
}

/// Settings of a processor.
#[derive(Clone, Debug)]
pub struct ProcessorOptions {
    pub(crate) start: Option<StartPosition>,
    pub(crate) mode: FeedMode,
    pub(crate) checkpoint: Checkpoint,
    pub(crate) concurrency: Concurrency,
    pub(crate) batch_items_max: usize,
    pub(crate) in_flight_items_max: usize,
    pub(crate) lease_duration: Duration,
    pub(crate) round_interval: Duration,
    pub(crate) poll_interval: Duration,
    pub(crate) read_timeout: Duration,
    pub(crate) handover_deadline: Duration,
    pub(crate) stop_grace: Duration,
    pub(crate) leases_per_range: u32,
    pub(crate) leases_min: usize,
    pub(crate) leases_max: Option<usize>,
    pub(crate) strategy: Strategy,
    pub(crate) attempts_max: u32,
    pub(crate) backoff_min: Duration,
    pub(crate) backoff_max: Duration,
    pub(crate) failure: FailurePolicy,
    pub(crate) expired: ExpiredPolicy,
    pub(crate) recreated: RecreatedPolicy,
}

impl Default for ProcessorOptions {
    fn default() -> Self {
        Self {
            start: None,
            mode: FeedMode::LatestVersion,
            checkpoint: Checkpoint::EachBatch,
            concurrency: Concurrency::Serial,
            batch_items_max: 100,
            in_flight_items_max: 1_000,
            lease_duration: Duration::from_secs(20),
            round_interval: Duration::from_secs(5),
            poll_interval: Duration::from_secs(5),
            read_timeout: Duration::from_secs(30),
            handover_deadline: Duration::from_secs(30),
            stop_grace: Duration::from_secs(30),
            leases_per_range: 1,
            leases_min: 0,
            leases_max: None,
            strategy: Strategy::EqualShares,
            attempts_max: 5,
            backoff_min: Duration::from_millis(100),
            backoff_max: Duration::from_secs(30),
            failure: FailurePolicy::Park,
            expired: ExpiredPolicy::Stop,
            recreated: RecreatedPolicy::Stop,
        }
    }
}

impl ProcessorOptions {
    /// Longest time any of these may last; beyond that something is wrong.
    pub const DURATION_MAX: Duration = Duration::from_secs(24 * 3600);
    /// Most leases per range.
    pub const LEASES_PER_RANGE_MAX: u32 = 64;
    /// Most changes of a lease in memory.
    pub const IN_FLIGHT_MAX: usize = 1_000_000;
    /// Most batches of one lease at the same time.
    pub const CONCURRENCY_MAX: usize = 1_024;

    /// Where to begin when there are no leases yet. Default: now.
    #[must_use]
    pub fn start(mut self, value: StartPosition) -> Self {
        self.start = Some(value);
        self
    }

    /// Which feed to process. Default: the newest version of each item. It is fixed for the life of
    /// the leases.
    #[must_use]
    pub fn mode(mut self, value: FeedMode) -> Self {
        self.mode = value;
        self
    }

    /// When positions are written. Default: after each batch. Less often means fewer writes and
    /// more repeated work after a crash.
    #[must_use]
    pub fn checkpoint(mut self, value: Checkpoint) -> Self {
        self.checkpoint = value;
        self
    }

    /// How many batches of a lease are handled at the same time. Default: serial. Keyed helps when
    /// the handler waits for something else.
    #[must_use]
    pub fn concurrency(mut self, value: Concurrency) -> Self {
        self.concurrency = value;
        self
    }

    /// After how many changes a batch ends; a commit is never cut by a page of the feed, so serial
    /// batches may hold a few more. Default: 100.
    #[must_use]
    pub fn batch_items_max(mut self, value: usize) -> Self {
        self.batch_items_max = value;
        self
    }

    /// How many changes of a lease may be in memory, read and not yet done. Default: 1,000.
    #[must_use]
    pub fn in_flight_items_max(mut self, value: usize) -> Self {
        self.in_flight_items_max = value;
        self
    }

    /// How long an instance may be silent before others take its leases. An instance that cannot
    /// say that it is alive stops a fifth of this earlier. Shorter means faster takeover after a
    /// crash and more repeated work after a stall. Default: 20 s.
    #[must_use]
    pub fn lease_duration(mut self, value: Duration) -> Self {
        self.lease_duration = value;
        self
    }

    /// How often an instance says that it is alive and looks at the others: one write and one query
    /// each time. Default: 5 s; at most a third of the lease duration.
    #[must_use]
    pub fn round_interval(mut self, value: Duration) -> Self {
        self.round_interval = value;
        self
    }

    /// How long to wait before looking for changes when no wake-up came. Default: 5 s.
    #[must_use]
    pub fn poll_interval(mut self, value: Duration) -> Self {
        self.poll_interval = value;
        self
    }

    /// How long a read of the feed may take before it is given up and repeated. Default: 30 s.
    #[must_use]
    pub fn read_timeout(mut self, value: Duration) -> Self {
        self.read_timeout = value;
        self
    }

    /// How long the old owner of a moving lease may take to finish its batch; then the handler is
    /// cancelled and the batch is repeated by the new owner. Default: 30 s.
    #[must_use]
    pub fn handover_deadline(mut self, value: Duration) -> Self {
        self.handover_deadline = value;
        self
    }

    /// How long batches may go on after the shutdown was asked for; then the handlers are
    /// cancelled. Default: 30 s.
    #[must_use]
    pub fn stop_grace(mut self, value: Duration) -> Self {
        self.stop_grace = value;
        self
    }

    /// How many leases each range gets at the first start, so that more instances than ranges find
    /// work. Default: 1.
    #[must_use]
    pub fn leases_per_range(mut self, value: u32) -> Self {
        self.leases_per_range = value;
        self
    }

    /// Fewest leases this instance wants, even if others get less. Default: 0.
    #[must_use]
    pub fn leases_min(mut self, value: usize) -> Self {
        self.leases_min = value;
        self
    }

    /// Most leases this instance takes. Default: no limit.
    #[must_use]
    pub fn leases_max(mut self, value: usize) -> Self {
        self.leases_max = Some(value);
        self
    }

    /// How leases are shared out. Default: equal numbers.
    #[must_use]
    pub fn strategy(mut self, value: Strategy) -> Self {
        self.strategy = value;
        self
    }

    /// How often a batch is tried before its failing change is looked for and the policy applied.
    /// Default: 5.
    #[must_use]
    pub fn attempts_max(mut self, value: u32) -> Self {
        self.attempts_max = value;
        self
    }

    /// The pauses between attempts: the first about `min`, each about twice the one before, none
    /// above `max`. Default: 100 ms to 30 s.
    #[must_use]
    pub fn backoff(mut self, min: Duration, max: Duration) -> Self {
        self.backoff_min = min;
        self.backoff_max = max;
        self
    }

    /// What happens to a change that failed as often as it may. Default: its key is parked.
    #[must_use]
    pub fn failure(mut self, value: FailurePolicy) -> Self {
        self.failure = value;
        self
    }

    /// What happens when the feed no longer reaches back to a position. Default: stop.
    #[must_use]
    pub fn expired(mut self, value: ExpiredPolicy) -> Self {
        self.expired = value;
        self
    }

    /// What happens when the container was deleted and created again. Default: stop.
    #[must_use]
    pub fn recreated(mut self, value: RecreatedPolicy) -> Self {
        self.recreated = value;
        self
    }

    /// How long after its last proof of life an instance stops by itself.
    pub(crate) fn fence_after(&self) -> Duration {
        self.lease_duration - self.lease_duration / 5
    }

    /// The pauses between attempts.
    pub(crate) fn pauses(&self) -> Backoff {
        Backoff { min: self.backoff_min, max: self.backoff_max }
    }

    /// How long a call to the lease container may take.
    pub(crate) fn request_timeout(&self) -> Duration {
        self.round_interval.max(self.lease_duration / 5)
    }

    /// The size of a page of the feed.
    pub(crate) fn page_size(&self) -> PageSize {
        PageSize::items(self.batch_items_max).clamped()
    }

    /// Checks everything once.
    pub(crate) fn check(&self) -> Result<()> {
        match self.flaw() {
            Some(reason) => Err(Error::invalid("use the options of the processor", reason)),
            None => Ok(()),
        }
    }

    fn flaw(&self) -> Option<&'static str> {
        let durations = [
            self.lease_duration,
            self.round_interval,
            self.poll_interval,
            self.read_timeout,
            self.backoff_max,
        ];
        let interval = match self.checkpoint {
            Checkpoint::Every { interval, .. } => interval,
            Checkpoint::EachBatch | Checkpoint::ByHand => Duration::ZERO,
        };
        let long = [self.handover_deadline, self.stop_grace, interval];
        let long = durations.iter().chain(&long).any(|it| Self::DURATION_MAX < *it);
        let rules = [
            (durations.iter().any(Duration::is_zero), "a duration is zero"),
            (long, "a duration is above 24 hours"),
            (
                self.lease_duration / 3 < self.round_interval,
                "the lease duration must be at least three round intervals",
            ),
            (self.backoff_max < self.backoff_min, "the shortest back-off is above the longest"),
            (self.backoff_min.is_zero(), "the shortest back-off is zero"),
            (
                self.batch_items_max < 1 || PageSize::ITEMS_MAX < self.batch_items_max,
                "a batch must have 1 to 10,000 changes",
            ),
            (
                self.in_flight_items_max < self.batch_items_max,
                "the changes in flight must be at least those of a batch",
            ),
            (
                Self::IN_FLIGHT_MAX < self.in_flight_items_max,
                "the changes in flight are above 1,000,000",
            ),
            (
                self.leases_per_range < 1 || Self::LEASES_PER_RANGE_MAX < self.leases_per_range,
                "a range can have 1 to 64 leases",
            ),
            (self.leases_max == Some(0), "an instance must be allowed at least one lease"),
            (
                self.leases_max.is_some_and(|max| max < self.leases_min),
                "the fewest leases of an instance are above the most",
            ),
            (self.attempts_max < 1, "there must be at least one attempt"),
            (
                self.checkpoint_is_empty(),
                "a checkpoint every 0 changes or 0 seconds is none; use EachBatch",
            ),
            (!self.concurrency_is_possible(), "the keyed concurrency must be between 1 and 1,024"),
        ];
        rules.into_iter().find(|(broken, _)| *broken).map(|(_, reason)| reason)
    }

    fn concurrency_is_possible(&self) -> bool {
        match self.concurrency {
            Concurrency::Serial => true,
            Concurrency::Keyed(at_once) => (1..=Self::CONCURRENCY_MAX).contains(&at_once),
        }
    }

    fn checkpoint_is_empty(&self) -> bool {
        match self.checkpoint {
            Checkpoint::Every { items, interval } => items == 0 || interval.is_zero(),
            Checkpoint::EachBatch | Checkpoint::ByHand => false,
        }
    }
}

impl std::fmt::Display for StartPosition {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Now => f.write_str("now"),
            Self::Beginning => f.write_str("beginning"),
            Self::Time(time) => write!(f, "time {}", time.as_millis()),
            Self::Continuation(continuation) => write!(f, "continuation {continuation}"),
        }
    }
}
