//! Numbers for dashboards, as Prometheus reads them.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::{Mutex, MutexGuard, PoisonError};

use millstream_processor::Metrics;

/// Upper bounds of the buckets of durations, in seconds.
const BUCKETS: [f64; 8] = [0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0];

/// Collects the numbers of the relays.
#[derive(Debug, Default)]
pub(crate) struct Figures {
    series: Mutex<BTreeMap<(&'static str, String), Series>>,
}

/// Text in the form that Prometheus reads.
#[derive(Debug, Default)]
pub(crate) struct Page {
    text: String,
    last: String,
}

#[derive(Clone, Debug)]
enum Series {
    Counter(u64),
    Gauge(f64),
    Histogram { counts: [u64; BUCKETS.len()], count: u64, sum: f64 },
}

impl Figures {
    /// Writes all of them.
    pub(crate) fn write(&self, page: &mut Page) {
        let series = self.lock().clone();
        for ((name, processor), series) in &series {
            let label = label("relay", processor);
            match series {
                Series::Counter(value) => page.add(name, "counter", &label, value),
                Series::Gauge(value) => page.add(name, "gauge", &label, value),
                Series::Histogram { counts, count, sum } => {
                    page.head(name, "histogram");
                    for (bound, count) in BUCKETS.iter().zip(counts) {
                        page.line(
                            &format!("{name}_bucket"),
                            &format!("{label},le=\"{bound}\""),
                            count,
                        );
                    }
                    page.line(&format!("{name}_bucket"), &format!("{label},le=\"+Inf\""), count);
                    page.line(&format!("{name}_sum"), &label, sum);
                    page.line(&format!("{name}_count"), &label, count);
                }
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<(&'static str, String), Series>> {
        self.series.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Metrics for Figures {
    fn counter(&self, name: &'static str, processor: &str, value: u64) {
        let mut series = self.lock();
        let entry = series.entry((name, processor.to_owned())).or_insert(Series::Counter(0));
        if let Series::Counter(sum) = entry {
            *sum = sum.saturating_add(value);
        }
    }

    fn gauge(&self, name: &'static str, processor: &str, value: f64) {
        self.lock().insert((name, processor.to_owned()), Series::Gauge(value));
    }

    fn histogram(&self, name: &'static str, processor: &str, seconds: f64) {
        let mut series = self.lock();
        let empty = Series::Histogram { counts: [0; BUCKETS.len()], count: 0, sum: 0.0 };
        let entry = series.entry((name, processor.to_owned())).or_insert(empty);
        if let Series::Histogram { counts, count, sum } = entry {
            for (bound, count) in BUCKETS.iter().zip(counts) {
                *count += u64::from(seconds <= *bound);
            }
            *count += 1;
            *sum += seconds;
        }
    }
}

impl Page {
    /// Adds a number; those of one name must follow each other.
    pub(crate) fn add(
        &mut self,
        name: &str,
        kind: &str,
        labels: &str,
        value: impl std::fmt::Display,
    ) {
        self.head(name, kind);
        self.line(name, labels, value);
    }

    /// The whole text.
    pub(crate) fn into_text(self) -> String {
        self.text
    }

    fn head(&mut self, name: &str, kind: &str) {
        if self.last != name {
            // Writing to a string cannot fail.
            let _ = writeln!(self.text, "# TYPE {name} {kind}");
            name.clone_into(&mut self.last);
        }
    }

    fn line(&mut self, name: &str, labels: &str, value: impl std::fmt::Display) {
        let _ = match labels {
            "" => writeln!(self.text, "{name} {value}"),
            _ => writeln!(self.text, "{name}{{{labels}}} {value}"),
        };
    }
}

/// A label with its value escaped.
pub(crate) fn label(name: &str, value: &str) -> String {
    let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    format!("{name}=\"{value}\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_as_prometheus_reads_them() {
        let figures = Figures::default();
        figures.counter("a_total", "x", 2);
        figures.counter("a_total", "x", 3);
        figures.counter("a_total", "y\"", 1);
        figures.gauge("b", "x", 0.5);
        figures.histogram("c_seconds", "x", 0.02);
        let mut page = Page::default();
        figures.write(&mut page);
        let text = page.into_text();
        let expected = "# TYPE a_total counter\na_total{relay=\"x\"} 5\n\
                        a_total{relay=\"y\\\"\"} 1\n\
                        # TYPE b gauge\nb{relay=\"x\"} 0.5\n# TYPE c_seconds histogram\n";
        assert!(text.starts_with(expected), "{text}");
        assert!(text.contains("c_seconds_bucket{relay=\"x\",le=\"0.01\"} 0\n"), "{text}");
        assert!(text.contains("c_seconds_bucket{relay=\"x\",le=\"0.03\"} 1\n"), "{text}");
        assert!(
            text.ends_with("c_seconds_sum{relay=\"x\"} 0.02\nc_seconds_count{relay=\"x\"} 1\n")
        );
    }
}
