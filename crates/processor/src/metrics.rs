//! Numbers about a processor instance, handed to whatever collects them.
//!
//! An instance calls a [`Metrics`] with one of the names below. Nothing here exports anything.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Counter: changes of batches that the handler completed.
pub const ITEMS_HANDLED: &str = "millstream_processor_items_handled_total";
/// Counter: batches the handler completed.
pub const BATCHES_HANDLED: &str = "millstream_processor_batches_handled_total";
/// Histogram: how long the handler took for a batch, whatever came of it.
pub const HANDLER_SECONDS: &str = "millstream_processor_handler_seconds";
/// Counter: batches the handler failed at, panics included.
pub const HANDLER_FAILURES: &str = "millstream_processor_handler_failures_total";
/// Counter: changes that failed as often as they may and were put into the dead letters. Those that
/// are kept behind them do not count.
pub const ITEMS_PARKED: &str = "millstream_processor_items_parked_total";
/// Counter: changes that the handler put off until a time.
pub const ITEMS_POSTPONED: &str = "millstream_processor_items_postponed_total";
/// Counter: positions that were written to leases.
pub const CHECKPOINTS: &str = "millstream_processor_checkpoints_total";
/// Counter: writes of leases, checkpoints included.
pub const LEASE_WRITES: &str = "millstream_processor_lease_writes_total";
/// Counter: leases this instance began to process.
pub const LEASES_ACQUIRED: &str = "millstream_processor_leases_acquired_total";
/// Counter: leases this instance gave up after its work was checkpointed.
pub const LEASES_RELEASED: &str = "millstream_processor_leases_released_total";
/// Counter: leases that were taken from this instance.
pub const LEASES_LOST: &str = "millstream_processor_leases_lost_total";
/// Gauge: leases this instance processes now.
pub const LEASES_OWNED: &str = "millstream_processor_leases_owned";
/// Counter: rounds of saying that the instance is alive and looking at the others.
pub const ROUNDS: &str = "millstream_processor_rounds_total";
/// Counter: calls to the feed or the container of the leases that failed.
pub const STORE_ERRORS: &str = "millstream_processor_store_errors_total";
/// Gauge: commits the leases of this instance are behind, all together.
pub const LAG_COMMITS: &str = "millstream_processor_lag_commits";
/// Gauge: 1 while the circuit breaker keeps the handler from being called, otherwise 0.
pub const BREAKER_OPEN: &str = "millstream_processor_breaker_open";

/// Collects numbers. Every call should return at once; it may come from any thread.
pub trait Metrics: Send + Sync {
    /// Adds to a number that only grows.
    fn counter(&self, name: &'static str, processor: &str, value: u64);

    /// Sets a number that goes up and down.
    fn gauge(&self, name: &'static str, processor: &str, value: f64);

    /// Notes how long something took.
    fn histogram(&self, name: &'static str, processor: &str, seconds: f64);
}

/// Collects nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoMetrics;

impl Metrics for NoMetrics {
    fn counter(&self, _: &'static str, _: &str, _: u64) {}

    fn gauge(&self, _: &'static str, _: &str, _: f64) {}

    fn histogram(&self, _: &'static str, _: &str, _: f64) {}
}

/// The metrics of one processor. A hook that panics costs its number and nothing else.
#[derive(Clone)]
pub(crate) struct SafeMetrics {
    hooks: Arc<dyn Metrics>,
    processor: Arc<str>,
    panicked: Arc<AtomicBool>,
}

impl SafeMetrics {
    pub(crate) fn new(hooks: Arc<dyn Metrics>, processor: &str) -> Self {
        Self { hooks, processor: processor.into(), panicked: Arc::default() }
    }

    pub(crate) fn count(&self, name: &'static str, value: u64) {
        self.guarded(name, || self.hooks.counter(name, &self.processor, value));
    }

    pub(crate) fn gauge(&self, name: &'static str, value: f64) {
        self.guarded(name, || self.hooks.gauge(name, &self.processor, value));
    }

    pub(crate) fn seconds(&self, name: &'static str, value: std::time::Duration) {
        let seconds = value.as_secs_f64();
        self.guarded(name, || self.hooks.histogram(name, &self.processor, seconds));
    }

    fn guarded(&self, name: &'static str, call: impl FnOnce()) {
        if catch_unwind(AssertUnwindSafe(call)).is_err()
            && !self.panicked.swap(true, Ordering::Relaxed)
        {
            // Once is enough: a broken hook breaks at every batch.
            tracing::warn!(processor = &*self.processor, name, "metrics hook panicked");
        }
    }
}

impl std::fmt::Debug for SafeMetrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SafeMetrics").field("processor", &self.processor).finish_non_exhaustive()
    }
}

#[cfg(test)]
pub(crate) mod tests;
