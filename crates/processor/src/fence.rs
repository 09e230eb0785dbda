use std::sync::Mutex;
use std::time::Duration;

use millstream_core::Clock;
use tokio::sync::Notify;

/// Whether this instance may still believe that it has its leases.
///
/// Others take the leases of an instance that was silent for a lease duration. The instance stops
/// by itself earlier than that, counted from the moment it sent its last successful sign of life.
/// Once it has stopped, leases from before are gone for good, even if it is heard again:
/// somebody may have had them in between.
#[derive(Debug)]
pub(crate) struct Fence {
    state: Mutex<State>,
    extended: Notify,
}

/// Everything that was acquired between two lapses of the fence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tenure(u64);

#[derive(Debug)]
struct State {
    tenure: u64,
    valid_until: Duration,
}

impl Fence {
    /// A fence that is closed until it is extended.
    pub(crate) fn new() -> Self {
        let state = State { tenure: 0, valid_until: Duration::ZERO };
        Self { state: Mutex::new(state), extended: Notify::new() }
    }

    /// Takes note of a sign of life that counts until `until`.
    pub(crate) fn extend(&self, now: Duration, until: Duration) {
        let mut state = self.lock();
        if state.valid_until <= now {
            state.tenure += 1;
        }
        state.valid_until = state.valid_until.max(until);
        drop(state);
        self.extended.notify_one();
    }

    /// The tenure of what is acquired now; none while the fence is closed.
    pub(crate) fn tenure(&self, now: Duration) -> Option<Tenure> {
        let state = self.lock();
        (now < state.valid_until).then_some(Tenure(state.tenure))
    }

    /// Whether what was acquired in `tenure` is still this instance's.
    pub(crate) fn holds(&self, tenure: Tenure, now: Duration) -> bool {
        self.tenure(now) == Some(tenure)
    }

    /// Returns when what was acquired in `tenure` is lost.
    pub(crate) async fn lapsed(&self, tenure: Tenure, clock: &dyn Clock) {
        loop {
            let now = clock.monotonic();
            if !self.holds(tenure, now) {
                return;
            }
            let left = self.lock().valid_until.saturating_sub(now);
            tokio::select! {
                biased;
                () = clock.sleep(left) => (),
                () = self.extended.notified() => (),
            }
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().expect("nothing panics while it holds the lock")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn secs(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn what_was_acquired_before_a_lapse_is_lost_although_the_instance_is_heard_again() {
        let fence = Fence::new();
        assert_eq!(fence.tenure(secs(0)), None);
        fence.extend(secs(0), secs(10));
        let tenure = fence.tenure(secs(5)).unwrap();
        fence.extend(secs(8), secs(18));
        assert!(fence.holds(tenure, secs(17)));
        assert!(!fence.holds(tenure, secs(18)));
        fence.extend(secs(20), secs(30));
        assert!(!fence.holds(tenure, secs(21)));
        assert!(fence.tenure(secs(21)).is_some());
    }

    #[test]
    fn an_older_sign_of_life_does_not_shorten_the_tenure() {
        let fence = Fence::new();
        fence.extend(secs(0), secs(10));
        fence.extend(secs(1), secs(5));
        assert!(fence.tenure(secs(9)).is_some());
    }
}
