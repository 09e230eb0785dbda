mod timers;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use event_listener::Event;

use crate::clock::timers::Timer;

/// A future on the heap, as [`Clock::sleep`] returns it.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Milliseconds since 1970-01-01T00:00:00Z by the clock of one machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(u64);

impl Timestamp {
    /// 1970-01-01T00:00:00Z.
    pub const EPOCH: Self = Self(0);

    /// The time that many milliseconds after [`Timestamp::EPOCH`].
    #[must_use]
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis)
    }

    /// Milliseconds since [`Timestamp::EPOCH`].
    #[must_use]
    pub const fn as_millis(self) -> u64 {
        self.0
    }

    /// The time `duration` later, at most the last time there is.
    #[must_use]
    pub fn plus(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)))
    }

    /// How much later this is than `earlier`; zero if it is not.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }
}

/// The only source of time, so that a simulation can move it.
pub trait Clock: Send + Sync + fmt::Debug {
    /// The time of day; may jump in both directions.
    fn now(&self) -> Timestamp;

    /// Time since some fixed moment; never goes back. Leases and timeouts use this.
    fn monotonic(&self) -> Duration;

    /// Resolves once `duration` has passed.
    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()>;
}

/// The clock of the machine.
#[derive(Debug)]
pub struct SystemClock {
    started: Instant,
}

impl Default for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "this is the Clock that everybody else takes")]
    fn default() -> Self {
        Self { started: Instant::now() }
    }
}

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "this is the Clock that everybody else takes")]
    fn now(&self) -> Timestamp {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Timestamp::EPOCH.plus(since)
    }

    fn monotonic(&self) -> Duration {
        self.started.elapsed()
    }

    #[expect(clippy::disallowed_methods, reason = "this is the Clock that everybody else takes")]
    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        Box::pin(Timer::after(Instant::now(), duration))
    }
}

/// A clock that stands still until a test moves it.
///
/// ```
/// use std::time::Duration;
/// use millstream_core::{Clock, ManualClock, Timestamp};
///
/// let clock = ManualClock::starting_at(Timestamp::from_millis(1_000));
/// clock.advance(Duration::from_secs(2));
/// assert_eq!(clock.now(), Timestamp::from_millis(3_000));
/// ```
#[derive(Debug)]
pub struct ManualClock {
    start: u64,
    passed: std::sync::Arc<Passed>,
}

#[derive(Debug)]
struct Passed {
    millis: AtomicU64,
    moved: Event,
}

impl ManualClock {
    /// A clock that shows `start`.
    #[must_use]
    pub fn starting_at(start: Timestamp) -> Self {
        let passed = Passed { millis: AtomicU64::new(0), moved: Event::new() };
        Self { start: start.as_millis(), passed: std::sync::Arc::new(passed) }
    }

    /// Moves the clock forward and wakes every sleeper whose time has come.
    pub fn advance(&self, duration: Duration) {
        let millis = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        self.passed.millis.fetch_add(millis, Ordering::SeqCst);
        self.passed.moved.notify(usize::MAX);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.start + self.passed.millis.load(Ordering::SeqCst))
    }

    fn monotonic(&self) -> Duration {
        Duration::from_millis(self.passed.millis.load(Ordering::SeqCst))
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        let until = self.monotonic() + duration;
        let passed = std::sync::Arc::clone(&self.passed);
        Box::pin(async move {
            loop {
                let moved = passed.moved.listen();
                if until <= Duration::from_millis(passed.millis.load(Ordering::SeqCst)) {
                    return;
                }
                moved.await;
            }
        })
    }
}
