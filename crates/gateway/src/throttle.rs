//! Provisioned throughput: what a container may cost in a second, or all of a database that share
//! theirs.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

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

    /// Whether a request may go on; if not, how long it should wait. `now` is monotonic.
    pub(crate) fn admit(&self, now: Duration) -> Result<(), Duration> {
        let Some(budget) = &self.budget else { return Ok(()) };
        let mut budget = budget.lock().unwrap_or_else(PoisonError::into_inner);
        let passed = now.saturating_sub(budget.updated).as_secs_f64();
        budget.left = (budget.left + passed * budget.per_second).min(budget.per_second);
        budget.updated = now.max(budget.updated);
        if 0.0 < budget.left {
            return Ok(());
        }
        let seconds = (-budget.left / budget.per_second).clamp(0.001, 60.0);
        Err(Duration::from_secs_f64(seconds))
    }

    /// Takes what a request cost.
    pub(crate) fn spend(&self, charge: f64) {
        if let Some(budget) = &self.budget {
            budget.lock().unwrap_or_else(PoisonError::into_inner).left -= charge;
        }
    }
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
