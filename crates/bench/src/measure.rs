//! Time, latencies, processor time, bytes written and resident memory.

use std::{
    fs, io,
    os::unix::fs::MetadataExt,
    path::Path,
    time::{Duration, Instant},
};

/// Each power of two is cut into this many buckets, so a value is off by at most 1/64.
const BUCKETS_PER_OCTAVE: u64 = 64;
const OCTAVE_BITS: u32 = BUCKETS_PER_OCTAVE.ilog2();

/// The time since it was started.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stopwatch(Instant);

impl Stopwatch {
    #[expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }

    pub(crate) fn elapsed(self) -> Duration {
        self.0.elapsed()
    }
}

/// Counts of durations in buckets that grow with the duration.
#[derive(Clone, Debug, Default)]
pub(crate) struct Histogram {
    counts: Vec<u64>,
    total: u64,
    worst: Duration,
}

impl Histogram {
    pub(crate) fn record(&mut self, value: Duration) {
        let bucket = bucket_of(u64::try_from(value.as_nanos()).unwrap_or(u64::MAX));
        if self.counts.len() <= bucket {
            self.counts.resize(bucket + 1, 0);
        }
        self.counts[bucket] += 1;
        self.total += 1;
        self.worst = self.worst.max(value);
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        if self.counts.len() < other.counts.len() {
            self.counts.resize(other.counts.len(), 0);
        }
        for (mine, theirs) in self.counts.iter_mut().zip(&other.counts) {
            *mine += theirs;
        }
        self.total += other.total;
        self.worst = self.worst.max(other.worst);
    }

    /// How many durations were recorded.
    pub(crate) fn count(&self) -> u64 {
        self.total
    }

    /// The longest one, exactly.
    pub(crate) fn worst(&self) -> Duration {
        self.worst
    }

    /// The duration that `per_mille` of 1000 did not exceed; zero if nothing was recorded.
    pub(crate) fn quantile(&self, per_mille: u64) -> Duration {
        assert!(per_mille <= 1000, "a quantile beyond all values");
        let rank = (self.total * per_mille).div_ceil(1000).max(1);
        let mut seen = 0;
        for (bucket, count) in self.counts.iter().enumerate() {
            seen += count;
            if rank <= seen {
                return Duration::from_nanos(highest_in(bucket)).min(self.worst);
            }
        }
        Duration::ZERO
    }
}

fn bucket_of(value: u64) -> usize {
    let bucket = if value < BUCKETS_PER_OCTAVE {
        value
    } else {
        let shift = value.ilog2() - OCTAVE_BITS;
        u64::from(shift) * BUCKETS_PER_OCTAVE + (value >> shift)
    };
    usize::try_from(bucket).expect("there are fewer than 4096 buckets")
}

/// The largest value of a bucket, so that a quantile is never flattered.
fn highest_in(bucket: usize) -> u64 {
    let bucket = u64::try_from(bucket).expect("there are fewer than 4096 buckets");
    if bucket < BUCKETS_PER_OCTAVE {
        return bucket;
    }
    let shift = bucket / BUCKETS_PER_OCTAVE - 1;
    let lowest = (bucket - shift * BUCKETS_PER_OCTAVE) << shift;
    lowest + ((1 << shift) - 1)
}

/// What processes have used since they started.
///
/// Bytes written are those passed to `write`. The other count a process has, of bytes sent to
/// storage, is no use: it takes a whole large page, up to 2 MiB, for every small overwrite in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    pub(crate) processor: Duration,
    /// `None` where the system does not say.
    pub(crate) bytes_written: Option<u64>,
}

impl Usage {
    /// The usage of this process.
    pub(crate) fn of_self() -> io::Result<Self> {
        let stat = Stat::parse(&fs::read_to_string("/proc/self/stat")?)?;
        let text = fs::read_to_string("/proc/self/io").ok();
        let bytes_written = text.and_then(|it| field(&it, "wchar:"));
        Ok(Self { processor: ticks(stat.own_ticks), bytes_written })
    }

    /// The usage of `root`, of its children, and of the children it has already buried.
    pub(crate) fn of_family(root: u32) -> io::Result<Self> {
        let mut ticks_all = 0;
        let mut bytes_written = Some(0);
        for entry in fs::read_dir("/proc")? {
            let name = entry?.file_name();
            let Some(process) = name.to_str().and_then(|it| it.parse::<u32>().ok()) else {
                continue;
            };
            // A process may end while we look; then its parent has taken over its numbers.
            let Ok(text) = fs::read_to_string(format!("/proc/{process}/stat")) else {
                continue;
            };
            let stat = Stat::parse(&text)?;
            if process == root {
                ticks_all += stat.own_ticks + stat.buried_ticks;
            } else if stat.parent == root {
                ticks_all += stat.own_ticks;
            } else {
                continue;
            }
            let text = fs::read_to_string(format!("/proc/{process}/io")).ok();
            let of_process = text.and_then(|it| field(&it, "wchar:"));
            bytes_written = bytes_written.zip(of_process).map(|(sum, it)| sum + it);
        }
        Ok(Self { processor: ticks(ticks_all), bytes_written })
    }

    /// What was used since `earlier`.
    pub(crate) fn since(self, earlier: Self) -> Self {
        let both = self.bytes_written.zip(earlier.bytes_written);
        Self {
            processor: self.processor.saturating_sub(earlier.processor),
            bytes_written: both.map(|(now, then)| now.saturating_sub(then)),
        }
    }
}

/// The block device below a directory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Device {
    major: u32,
    minor: u32,
}

impl Device {
    /// The device of `path`. A file system without one of its own is found out when asked.
    pub(crate) fn of(path: &Path) -> io::Result<Self> {
        let device = fs::metadata(path)?.dev();
        Ok(Self { major: rustix::fs::major(device), minor: rustix::fs::minor(device) })
    }

    /// Bytes written to the device so far, by everyone.
    pub(crate) fn bytes_written(self) -> Option<u64> {
        self.find(&fs::read_to_string("/proc/diskstats").ok()?)
    }

    fn find(self, text: &str) -> Option<u64> {
        /// The unit of this file, whatever the device's own sectors are.
        const SECTOR_BYTES: u64 = 512;
        let wanted = [self.major.to_string(), self.minor.to_string()];
        let mut lines = text.lines().map(|it| it.split_whitespace().collect::<Vec<_>>());
        let line = lines.find(|it| it.starts_with(&[&wanted[0], &wanted[1]]))?;
        Some(line.get(9)?.parse::<u64>().ok()? * SECTOR_BYTES)
    }
}

/// Memory of this process that is in use now, in MiB.
pub(crate) fn resident_mib() -> io::Result<f64> {
    resident_mib_of("self")
}

/// Memory of a process, by its number, that is in use now, in MiB.
pub(crate) fn resident_mib_of(process: &str) -> io::Result<f64> {
    let text = fs::read_to_string(format!("/proc/{process}/status"))?;
    let kib = field(&text, "VmRSS:").ok_or_else(|| io::Error::other("no VmRSS in status"))?;
    Ok(float(kib) / 1024.0)
}

/// How many are due after this time, at so many a second.
pub(crate) fn due(rate: u64, elapsed: Duration) -> u64 {
    let micros = u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX);
    rate.saturating_mul(micros) / 1_000_000
}

/// A count as a number to calculate with.
#[expect(clippy::as_conversions, reason = "no count here comes near 2^53, where it would round")]
pub(crate) fn float(count: u64) -> f64 {
    count as f64
}

#[derive(Debug, PartialEq, Eq)]
struct Stat {
    parent: u32,
    own_ticks: u64,
    buried_ticks: u64,
}

impl Stat {
    fn parse(text: &str) -> io::Result<Self> {
        // The name in parentheses may itself hold spaces and parentheses.
        let parse = || {
            let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
            let number = |index: usize| fields.get(index)?.parse::<u64>().ok();
            Some(Self {
                parent: u32::try_from(number(1)?).ok()?,
                own_ticks: number(11)? + number(12)?,
                buried_ticks: number(13)? + number(14)?,
            })
        };
        parse().ok_or_else(|| io::Error::other(format!("could not understand stat {text:?}")))
    }
}

fn ticks(count: u64) -> Duration {
    let per_second = rustix::param::clock_ticks_per_second();
    Duration::from_millis(count * 1000 / per_second.max(1))
}

/// The number after `name` at the start of a line.
fn field(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|it| it.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(microseconds: impl IntoIterator<Item = u64>, per_mille: u64, expected: u64) {
        let mut histogram = Histogram::default();
        for value in microseconds {
            histogram.record(Duration::from_micros(value));
        }
        let found = histogram.quantile(per_mille).as_nanos();
        let expected = u128::from(expected) * 1000;
        assert!(expected <= found, "{found} is less than {expected}");
        assert!(found <= expected + expected / 64, "{found} is far more than {expected}");
    }

    #[test]
    fn a_quantile_is_at_most_a_sixty_fourth_too_high() {
        check(1..=1000, 500, 500);
        check(1..=1000, 990, 990);
        check(1..=1000, 999, 999);
        check(1..=1000, 1000, 1000);
        check([7], 500, 7);
        check([1, 2, 3_000_000], 990, 3_000_000);
        check([1, 2, 3_000_000], 500, 2);
        check([], 990, 0);
    }

    #[test]
    fn every_value_lies_in_its_bucket_and_above_the_one_before() {
        for shift in 0..63 {
            for offset in [0, 1, 5] {
                let value = (1_u64 << shift) + offset;
                let bucket = bucket_of(value);
                assert!(value <= highest_in(bucket));
                assert!(bucket == 0 || highest_in(bucket - 1) < value);
            }
        }
        assert!(bucket_of(u64::MAX) < 4096);
        assert_eq!(highest_in(bucket_of(u64::MAX)), u64::MAX);
    }

    #[test]
    fn a_merged_histogram_counts_both() {
        let mut left = Histogram::default();
        let mut right = Histogram::default();
        left.record(Duration::from_micros(10));
        right.record(Duration::from_millis(10));
        left.merge(&right);
        assert_eq!(left.count(), 2);
        assert_eq!(left.worst(), Duration::from_millis(10));
        assert_eq!(left.quantile(1000), Duration::from_millis(10));
    }

    #[test]
    fn a_process_name_may_hold_parentheses() {
        let text = "41 (post) gres: x) S 7 1 1 0 -1 4194560 9 8 7 6 11 12 13 14 20 0 1 0 99";
        let stat = Stat::parse(text).expect("a line of the usual shape");
        assert_eq!(stat, Stat { parent: 7, own_ticks: 23, buried_ticks: 27 });
        assert!(Stat::parse("41 (short) S 7").is_err());
    }

    #[test]
    fn the_bytes_of_a_device_are_found_by_its_numbers() {
        let text = "254 0 vda 1 2 3 4 5 6 70 8 9\n  254    16 vdb 1 2 3 4 5 6 7 8 9\n";
        let check = |minor, expected| {
            assert_eq!(Device { major: 254, minor }.find(text), expected);
        };
        check(0, Some(70 * 512));
        check(16, Some(7 * 512));
        check(1, None);
    }

    #[test]
    fn a_field_is_found_at_the_start_of_a_line() {
        let text = "rchar: 1\nwchar: 70\nVmRSS:\t  2048 kB\n";
        let check = |name, expected| assert_eq!(field(text, name), expected);
        check("wchar:", Some(70));
        check("VmRSS:", Some(2048));
        check("char:", None);
    }

    #[test]
    fn usage_since_is_the_difference() {
        let usage = |seconds, bytes_written| Usage {
            processor: Duration::from_secs(seconds),
            bytes_written,
        };
        let now = usage(5, Some(20));
        assert_eq!(now.since(usage(2, Some(5))), usage(3, Some(15)));
        assert_eq!(now.since(usage(2, None)), usage(3, None));
    }

    #[test]
    fn this_process_has_used_something() {
        let usage = Usage::of_self().expect("this system has /proc");
        let family = Usage::of_family(std::process::id()).expect("this system has /proc");
        assert!(usage.processor <= family.processor);
        assert!(0.0 < resident_mib().expect("this system has /proc"));
    }
}
