//! Provisioned throughput: what a container may cost in a second, or all of a database that share
//! theirs.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use http::StatusCode;

use crate::refusal::{Refusal, sub_status};

/// A budget that fills with time and is spent by requests.
///
/// A request is admitted while anything is left and may overdraw, because what it costs is known
/// only afterwards; the ones after it wait until the debt is paid.
#[derive(Debug)]
pub(crate) struct Throttle {
    budget: Option<Mutex<Budget>>,
}

#[derive(Debug)]
struct Budget {
    /// Request units a second, and the most that can be saved up.
    per_second: f64,
    left: f64,
    updated: Duration,
}

impl Throttle {
    /// Admits everything.
    pub(crate) fn off() -> Self {
        Self { budget: None }
    }

    /// So many request units a second.
    pub(crate) fn new(per_second: u32, now: Duration) -> Self {
        let per_second = f64::from(per_second);
        let budget = Budget { per_second, left: per_second, updated: now };
        Self { budget: Some(Mutex::new(budget)) }
    }

    /// From now on so many request units a second; nothing if everything is admitted.
    pub(crate) fn set(&self, per_second: u32) {
        if let Some(budget) = &self.budget {
            let mut budget = budget.lock().unwrap_or_else(PoisonError::into_inner);
            budget.per_second = f64::from(per_second);
        }
    }

    /// Whether there is anything to spend or to refuse.
    pub(crate) fn is_off(&self) -> bool {
        self.budget.is_none()
    }

    /// Whether a request may go on; if not, how long it should wait. `now` is monotonic.
    pub(crate) fn admit(&self, now: Duration) -> Result<(), Duration> {
        self.admit_for(now, 0.0)
    }

    /// The same, and takes what the request is expected to cost at once if it may go on.
    pub(crate) fn admit_for(&self, now: Duration, expected: f64) -> Result<(), Duration> {
        let Some(budget) = &self.budget else { return Ok(()) };
        let mut budget = budget.lock().unwrap_or_else(PoisonError::into_inner);
        let passed = now.saturating_sub(budget.updated).as_secs_f64();
        budget.left = (budget.left + passed * budget.per_second).min(budget.per_second);
        budget.updated = now.max(budget.updated);
        if 0.0 < budget.left {
            budget.left -= expected;
            return Ok(());
        }
        Err(budget.wait(expected))
    }

    /// How long a request should wait that is refused whatever is left.
    pub(crate) fn wait_for(&self, expected: f64) -> Duration {
        let Some(budget) = &self.budget else { return Duration::ZERO };
        budget.lock().unwrap_or_else(PoisonError::into_inner).wait(expected)
    }

    /// Takes what a request cost, or what it cost beyond what was expected, which may be negative.
    pub(crate) fn spend(&self, charge: f64) {
        if let Some(budget) = &self.budget {
            budget.lock().unwrap_or_else(PoisonError::into_inner).left -= charge;
        }
    }
}

impl Budget {
    /// Until the debt is paid, but no less than until so much is earned: of many that are refused
    /// and wait one after the other, each has earned what it costs then.
    fn wait(&self, expected: f64) -> Duration {
        let lacking = (-self.left).max(expected);
        // Clients are told whole milliseconds: those who come a little too early come in vain.
        let millis = (lacking / self.per_second * 1000.0).ceil().clamp(1.0, 60_000.0);
        Duration::from_secs_f64(millis / 1000.0)
    }
}

/// What is answered where nothing is left to spend.
pub(crate) fn refusal(wait: Duration) -> Refusal {
    let message = "the request rate is too large: the throughput of the container is spent";
    let refusal = Refusal::new(StatusCode::TOO_MANY_REQUESTS, message);
    refusal.sub_status(sub_status::TOO_MANY_REQUESTS).retry_after(wait)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_debt_is_waited_for() {
        let throttle = Throttle::new(100, Duration::ZERO);
        assert_eq!(throttle.admit(Duration::ZERO), Ok(()));
        throttle.spend(150.0);
        assert_eq!(throttle.admit(Duration::ZERO), Err(Duration::from_millis(500)));
        assert_eq!(throttle.admit(Duration::from_millis(600)), Ok(()));
    }

    #[test]
    fn what_a_request_is_expected_to_cost_is_taken_at_once() {
        let throttle = Throttle::new(100, Duration::ZERO);
        assert_eq!(throttle.admit_for(Duration::ZERO, 99.0), Ok(()));
        assert_eq!(throttle.admit_for(Duration::ZERO, 6.5), Ok(()));
        assert_eq!(throttle.admit_for(Duration::ZERO, 3.0), Err(Duration::from_millis(55)));
        throttle.spend(-0.75);
        assert_eq!(throttle.admit(Duration::ZERO), Err(Duration::from_millis(48)));
        assert_eq!(throttle.wait_for(7.0), Duration::from_millis(70));
    }

    #[test]
    fn no_more_than_a_second_is_saved_up() {
        let throttle = Throttle::new(10, Duration::ZERO);
        assert_eq!(throttle.admit(Duration::from_secs(3600)), Ok(()));
        throttle.spend(20.0);
        assert_eq!(throttle.admit(Duration::from_secs(3600)), Err(Duration::from_secs(1)));
    }

    #[test]
    fn more_throughput_pays_a_debt_sooner() {
        let throttle = Throttle::new(100, Duration::ZERO);
        throttle.spend(200.0);
        assert_eq!(throttle.admit(Duration::ZERO), Err(Duration::from_secs(1)));
        throttle.set(1_000);
        assert_eq!(throttle.admit(Duration::ZERO), Err(Duration::from_millis(100)));
    }

    #[test]
    fn without_a_budget_everything_goes_on() {
        Throttle::off().spend(1e9);
        assert_eq!(Throttle::off().admit(Duration::ZERO), Ok(()));
    }
}
