//! What a delivery has to do with the circuit breaker.

use std::sync::Arc;
use std::time::Duration;

use crate::breaker::Permit;
use crate::metrics;
use crate::notification::Notification;
use crate::shared::Setup;

/// The delivery that decides for all others whether the outside is there again. If it is dropped
/// without an outcome, because its lease was lost or handed over, another one may try; nobody else
/// would ever close the breaker.
pub(super) struct Probe {
    setup: Option<Arc<Setup>>,
}

impl Probe {
    pub(super) fn new(setup: &Arc<Setup>) -> Self {
        Self { setup: Some(Arc::clone(setup)) }
    }

    /// Its outcome is being told to the breaker.
    pub(super) fn settle(mut self) {
        self.setup = None;
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        if let Some(setup) = &self.setup {
            setup.breaker().release_probe();
        }
    }
}

/// Waits until the breaker lets a delivery pass.
pub(super) async fn permitted(setup: &Arc<Setup>) -> Option<Probe> {
    loop {
        let now = setup.clock.monotonic();
        let permit = setup.breaker().may_deliver(now);
        match permit {
            Permit::Yes => return None,
            Permit::Probe => return Some(Probe::new(setup)),
            Permit::NotBefore(time) => setup.clock.sleep(time.saturating_sub(now)).await,
        }
    }
}

/// Notes that a delivery failed because something outside is down.
pub(super) fn note_transient(setup: &Setup, error: &str, now: Duration) {
    let random = setup.random();
    if setup.breaker().on_transient(now, random) {
        tracing::warn!(error, "the circuit breaker opened");
        setup.metrics.gauge(metrics::BREAKER_OPEN, 1.0);
        setup.notifier.tell(Notification::BreakerOpened { error: error.to_owned() });
    }
}

/// Notes that a delivery reached the outside, whatever came of it there.
pub(super) fn note_reached(setup: &Setup, succeeded: bool) {
    let mut breaker = setup.breaker();
    let closed = if succeeded { breaker.on_success() } else { breaker.on_other_failure() };
    drop(breaker);
    if closed {
        setup.metrics.gauge(metrics::BREAKER_OPEN, 0.0);
        setup.notifier.tell(Notification::BreakerClosed);
    }
}
