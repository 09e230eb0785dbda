use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use millstream_core::{BoxFuture, Clock, Timestamp};

use crate::executor::handle::Handle;
use crate::rng::Rng;

/// When every simulation begins: 2026-01-01T00:00:00Z.
const START: Timestamp = Timestamp::from_millis(1_767_225_600_000);
/// How wrong the clock of a node may be, in either direction.
const SKEW_MILLIS_MAX: u64 = 5 * 60 * 1000;
/// A node may have been up for a month before the simulation begins.
const OFFSET_MAX: Duration = Duration::from_secs(30 * 24 * 3600);

/// The clock of one node in virtual time.
///
/// Its time of day is wrong by minutes, and its monotonic time begins anywhere, so that code which
/// compares the times of two nodes goes visibly wrong.
#[derive(Debug)]
pub struct SimClock {
    handle: Handle,
    skew_millis: AtomicI64,
    offset: Duration,
}

impl SimClock {
    /// The clock of the store and of writers: right, and counting from zero.
    #[must_use]
    pub fn of_world(handle: &Handle) -> Arc<Self> {
        Self::with(handle, 0, Duration::ZERO)
    }

    /// A clock whose errors are drawn.
    #[must_use]
    pub fn draw(handle: &Handle, rng: &mut Rng) -> Arc<Self> {
        let skew = draw_skew(rng);
        Self::with(handle, skew, rng.duration(Duration::ZERO, OFFSET_MAX))
    }

    /// A clock that is ahead by `skew_millis` and has been running for `offset` at the start.
    #[must_use]
    pub fn with(handle: &Handle, skew_millis: i64, offset: Duration) -> Arc<Self> {
        let skew_millis = AtomicI64::new(skew_millis);
        Arc::new(Self { handle: handle.clone(), skew_millis, offset })
    }

    /// Sets the time of day anew, as somebody or a time server may at any moment.
    pub fn jump(&self, rng: &mut Rng) {
        self.skew_millis.store(draw_skew(rng), Ordering::Relaxed);
    }
}

impl Clock for SimClock {
    fn now(&self) -> Timestamp {
        let right = START.plus(self.handle.now()).as_millis();
        let skew = self.skew_millis.load(Ordering::Relaxed);
        Timestamp::from_millis(right.saturating_add_signed(skew))
    }

    fn monotonic(&self) -> Duration {
        self.offset + self.handle.now()
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        Box::pin(self.handle.sleep(duration))
    }
}

/// One clock in four is right; the others are wrong by up to minutes.
fn draw_skew(rng: &mut Rng) -> i64 {
    if rng.chance(250) {
        return 0;
    }
    let size = i64::try_from(rng.below(SKEW_MILLIS_MAX)).expect("minutes fit");
    if rng.chance(500) { size } else { -size }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::executor::Executor;

    #[test]
    fn clocks_differ_by_minutes_and_run_at_the_same_speed() {
        let mut executor = Executor::new(1);
        let mut rng = Rng::stream(1, "clocks");
        let clocks: Vec<_> = (0..20).map(|_| SimClock::draw(executor.handle(), &mut rng)).collect();
        let before: Vec<_> = clocks.iter().map(|it| (it.now(), it.monotonic())).collect();
        let skews = || before.iter().map(|it| it.0.as_millis());
        assert!(60_000 < skews().max().unwrap() - skews().min().unwrap());
        executor.run_until(Duration::from_secs(90));
        for (clock, (now, monotonic)) in clocks.iter().zip(before) {
            assert_eq!(clock.now().since(now), Duration::from_secs(90));
            assert_eq!(clock.monotonic() - monotonic, Duration::from_secs(90));
        }
    }

    #[test]
    fn a_jump_changes_the_time_of_day_alone() {
        let executor = Executor::new(1);
        let clock = SimClock::with(executor.handle(), 0, Duration::from_secs(5));
        let before = clock.now();
        let mut rng = Rng::stream(2, "jump");
        while clock.now() == before {
            clock.jump(&mut rng);
        }
        assert_eq!(clock.monotonic(), Duration::from_secs(5));
    }
}
