//! What the operations of a bulk request may spend.

use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use http::StatusCode;
use millstream_core::Clock;
use tokio::sync::Semaphore;

use crate::batch::bulk::Done;
use crate::batch::refused;
use crate::batch_wire::ResultWire;
use crate::throttle::{self, Throttle};

/// Takes what each operation costs from what the container may spend. When nothing is left, the
/// operations that follow are refused, and all of them: what is earned meanwhile is for others, and
/// for the same client when it comes again.
pub(super) struct Meter<'a> {
    throttle: &'a Throttle,
    clock: &'a dyn Clock,
    /// Nothing was left.
    is_spent: AtomicBool,
    /// Had by an operation whose cost nobody can know before.
    unknown: Semaphore,
}

/// What an operation will cost if it succeeds.
#[derive(Clone, Copy, Debug)]
pub(super) enum Cost {
    /// But for little.
    Known(f64),
    /// It depends on the item that is there.
    AtLeast(f64),
}

impl<'a> Meter<'a> {
    pub(super) fn new(throttle: &'a Throttle, clock: &'a dyn Clock) -> Self {
        let (is_spent, unknown) = (AtomicBool::new(false), Semaphore::new(1));
        Self { throttle, clock, is_spent, unknown }
    }

    /// Does an operation if anything is left to spend. Those whose cost is known go on side by
    /// side, the others one by one: together they would spend far more than there is.
    pub(super) async fn metered(&self, cost: Cost, operation: impl Future<Output = Done>) -> Done {
        if self.throttle.is_off() {
            return operation.await;
        }
        let (expected, _turn) = match cost {
            Cost::Known(charge) => (charge, None),
            Cost::AtLeast(charge) => (charge, self.unknown.acquire().await.ok()),
        };
        if let Err(wait) = self.admit(expected) {
            return (refused_for(wait), None);
        }
        let done = operation.await;
        self.throttle.spend(done.0.charge - expected);
        done
    }

    /// Takes what it costs to refuse an operation for what it is.
    pub(super) fn refuse(&self, result: &ResultWire) {
        self.throttle.spend(result.charge);
    }

    fn admit(&self, expected: f64) -> Result<(), Duration> {
        if self.is_spent.load(Ordering::Relaxed) {
            return Err(self.throttle.wait_for(expected));
        }
        let admitted = self.throttle.admit_for(self.clock.monotonic(), expected);
        self.is_spent.store(admitted.is_err(), Ordering::Relaxed);
        admitted
    }
}

/// The result of an operation that is not done because nothing is left to spend. SDKs wait and
/// send these operations again, that for JavaScript after it has waited for one after the other.
fn refused_for(wait: Duration) -> ResultWire {
    let refused = refused(&throttle::refusal(wait));
    ResultWire { retry_after: Some(wait), charge: 0.0, ..refused }
}

/// Whether an operation is to be sent again after some time.
pub(super) fn is_to_wait(result: &ResultWire) -> bool {
    result.status == StatusCode::TOO_MANY_REQUESTS
}
