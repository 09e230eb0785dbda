use std::time::Duration;

/// Shortest nominal delay; less would be a busy loop.
const FLOOR: Duration = Duration::from_millis(1);

/// How long to wait before the next attempt: twice as long after each, up to a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Backoff {
    pub(crate) min: Duration,
    pub(crate) max: Duration,
}

impl Backoff {
    /// The wait after the failure of `attempt`, counted from 1: between half and all of `min`,
    /// `2 * min`, `4 * min` … `max`, so that those who failed together do not come back together.
    /// Never zero.
    pub(crate) fn delay(self, attempt: u32, random: u64) -> Duration {
        let nominal = u128::from(self.nominal(attempt));
        let half = nominal / 2;
        let spread = (nominal - half) * u128::from(random) / u128::from(u64::MAX);
        Duration::from_nanos(u64::try_from(half + spread).unwrap_or(u64::MAX))
    }

    /// The longest wait after the failure of `attempt`, in nanoseconds.
    fn nominal(self, attempt: u32) -> u64 {
        let nanos = |it: Duration| u64::try_from(it.as_nanos()).unwrap_or(u64::MAX);
        let min = nanos(self.min.max(FLOOR));
        let max = nanos(self.max).max(min);
        let factor = 2_u64.saturating_pow(attempt.saturating_sub(1));
        min.saturating_mul(factor).min(max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn backoff(min: u64, max: u64) -> Backoff {
        Backoff { min: Duration::from_millis(min), max: Duration::from_millis(max) }
    }

    /// The longest delays in milliseconds of the first attempts.
    #[track_caller]
    fn check(min: u64, max: u64, expected: &[u64]) {
        let delays = (1..).map(|it| backoff(min, max).delay(it, u64::MAX));
        let found: Vec<_> = delays.take(expected.len()).collect();
        let expected: Vec<_> = expected.iter().map(|it| Duration::from_millis(*it)).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn delays_double_up_to_the_limit() {
        check(100, 1_000, &[100, 200, 400, 800, 1_000, 1_000]);
        check(100, 100, &[100, 100]);
        check(0, 3, &[1, 2, 3, 3]);
        // A limit below the beginning is none.
        check(50, 10, &[50, 50]);
    }

    #[test]
    fn jitter_stays_between_half_and_all() {
        let backoff = backoff(100, 30_000);
        for attempt in 0..70 {
            let longest = backoff.delay(attempt, u64::MAX);
            assert_eq!(backoff.delay(attempt, 0), longest / 2);
            for random in [1, 17, u64::MAX / 3, u64::MAX / 2, u64::MAX - 1] {
                let delay = backoff.delay(attempt, random);
                assert!(longest / 2 <= delay && delay <= longest, "{attempt} {random} {delay:?}");
            }
        }
    }

    #[test]
    fn nothing_overflows_and_nothing_is_zero() {
        let endless = Backoff { min: Duration::MAX, max: Duration::MAX };
        for attempt in [0, 1, 64, u32::MAX] {
            assert_eq!(endless.delay(attempt, u64::MAX), Duration::from_nanos(u64::MAX));
            assert!(!backoff(0, 0).delay(attempt, 0).is_zero());
        }
    }
}
