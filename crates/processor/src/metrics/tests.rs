use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::metrics::{
    BREAKER_OPEN, HANDLER_SECONDS, ITEMS_HANDLED, Metrics, NoMetrics, SafeMetrics,
};

/// Keeps all numbers: counters are added up, gauges keep the last value, of histograms the sum.
#[derive(Debug, Default)]
pub(crate) struct CountingMetrics {
    numbers: Mutex<BTreeMap<(&'static str, String), f64>>,
}

impl CountingMetrics {
    /// The number of this name; 0 if nobody spoke of it.
    pub(crate) fn get(&self, name: &'static str, processor: &str) -> f64 {
        let numbers = self.numbers.lock().unwrap();
        numbers.get(&(name, processor.to_owned())).copied().unwrap_or(0.0)
    }

    fn change(&self, name: &'static str, processor: &str, change: impl Fn(f64) -> f64) {
        let mut numbers = self.numbers.lock().unwrap();
        let number = numbers.entry((name, processor.to_owned())).or_default();
        *number = change(*number);
    }
}

impl Metrics for CountingMetrics {
    fn counter(&self, name: &'static str, processor: &str, value: u64) {
        let value = f64::from(u32::try_from(value).unwrap());
        self.change(name, processor, |it| it + value);
    }

    fn gauge(&self, name: &'static str, processor: &str, value: f64) {
        self.change(name, processor, |_| value);
    }

    fn histogram(&self, name: &'static str, processor: &str, seconds: f64) {
        self.change(name, processor, |it| it + seconds);
    }
}

struct Panicking;

impl Metrics for Panicking {
    fn counter(&self, _: &'static str, _: &str, _: u64) {
        panic!("counter");
    }

    fn gauge(&self, _: &'static str, _: &str, _: f64) {
        panic!("gauge");
    }

    fn histogram(&self, _: &'static str, _: &str, _: f64) {
        panic!("histogram");
    }
}

fn use_all(metrics: &SafeMetrics) {
    metrics.count(ITEMS_HANDLED, 2);
    metrics.count(ITEMS_HANDLED, 3);
    metrics.gauge(BREAKER_OPEN, 1.0);
    metrics.gauge(BREAKER_OPEN, 0.0);
    metrics.seconds(HANDLER_SECONDS, Duration::from_millis(500));
    metrics.seconds(HANDLER_SECONDS, Duration::from_millis(250));
}

#[test]
fn numbers_arrive_under_the_name_of_the_processor() {
    let counting = Arc::new(CountingMetrics::default());
    use_all(&SafeMetrics::new(counting.clone(), "orders"));
    assert!((counting.get(ITEMS_HANDLED, "orders") - 5.0).abs() < f64::EPSILON);
    assert!(counting.get(BREAKER_OPEN, "orders").abs() < f64::EPSILON);
    assert!((counting.get(HANDLER_SECONDS, "orders") - 0.75).abs() < f64::EPSILON);
    assert!(counting.get(ITEMS_HANDLED, "other").abs() < f64::EPSILON);
}

#[test]
fn a_panic_in_a_hook_breaks_nothing() {
    use_all(&SafeMetrics::new(Arc::new(Panicking), "orders"));
    use_all(&SafeMetrics::new(Arc::new(NoMetrics), "orders"));
}
