//! Runs subjects in turn, many short rounds each, and takes medians over the rounds.
//!
//! A shared machine is fast in one minute and slow in the next. Subjects that run right after each
//! other meet the same minute, so the ratio of two neighbours is steadier than any figure alone.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicU32, AtomicUsize, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use tokio::task::JoinSet;

use crate::{
    Result,
    measure::{Device, Histogram, Stopwatch, Usage, float},
    workload::{Pair, Pairs},
};

/// Enough for caches and connections to be warm.
const WARM_UP_MAX: Duration = Duration::from_millis(500);
/// Lets the writes of one subject drain before the next one is measured.
const PAUSE: Duration = Duration::from_millis(200);

/// Something that commits batches and is measured while it does.
#[async_trait]
pub(crate) trait Subject: Send + Sync {
    fn name(&self) -> &'static str;

    /// Makes `count` writers ready for one round. Not measured.
    async fn writers(&self, count: usize) -> Result<Vec<Box<dyn Writer>>>;

    /// How often it has called `fdatasync` (or an equal) so far, if it knows.
    async fn fdatasyncs(&self) -> Result<Option<u64>>;

    /// What the processes involved have used so far: the processor time of the load generator
    /// included, bytes written to anything but files left out.
    fn usage(&self) -> io::Result<Usage>;
}

/// One caller that waits for each of its commits before it starts the next.
#[async_trait]
pub(crate) trait Writer: Send {
    /// Commits the update and the insert together; returns when both are durable.
    async fn commit(&mut self, pair: Pair) -> Result<()>;
}

/// How a subject is loaded in one round.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    pub(crate) writers: usize,
    pub(crate) items: u64,
    pub(crate) duration: Duration,
    /// Watched while the round runs; whatever else writes to it is counted too.
    pub(crate) device: Option<Device>,
}

/// What one round of one subject showed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Round {
    pub(crate) batches_per_second: f64,
    pub(crate) p50_ms: f64,
    pub(crate) p99_ms: f64,
    pub(crate) p999_ms: f64,
    pub(crate) worst_ms: f64,
    pub(crate) fdatasyncs_per_second: Option<f64>,
    pub(crate) processor_us_per_batch: f64,
    pub(crate) bytes_per_batch: Option<f64>,
    pub(crate) device_bytes_per_batch: Option<f64>,
}

/// Loads `subject` once.
pub(crate) async fn run_round(subject: &dyn Subject, load: Load) -> Result<Round> {
    let fdatasyncs_before = subject.fdatasyncs().await?;
    let crowd = Crowd::start(subject.writers(load.writers).await?, load.items);
    tokio::time::sleep(WARM_UP_MAX.min(load.duration / 10)).await;

    let device_bytes = || load.device.and_then(Device::bytes_written);
    let (usage_before, device_before) = (subject.usage()?, device_bytes());
    let stopwatch = Stopwatch::start();
    crowd.enter_next_phase();
    tokio::time::sleep(load.duration).await;
    crowd.enter_next_phase();
    let elapsed = stopwatch.elapsed();
    let usage = subject.usage()?.since(usage_before);
    let device = device_bytes().zip(device_before).map(|(now, then)| now - then);

    let phases = crowd.stop().await?;
    let batches_all: u64 = phases.iter().map(Histogram::count).sum();
    let latencies = &phases[1];
    if latencies.count() == 0 {
        return Err("no batch was committed in a whole round; make rounds longer".into());
    }
    let fdatasyncs = subject.fdatasyncs().await?.zip(fdatasyncs_before);
    tokio::time::sleep(PAUSE).await;

    let batches = float(latencies.count());
    let per_batch = |count| float(count) / batches;
    let batches_per_second = batches / elapsed.as_secs_f64();
    // Some count only when a round is over, so the warm-up is in it, and taken out by proportion.
    let fdatasyncs_per_batch = fdatasyncs.map(|(now, then)| float(now - then) / float(batches_all));
    let milliseconds = |per_mille| latencies.quantile(per_mille).as_secs_f64() * 1e3;
    Ok(Round {
        batches_per_second,
        p50_ms: milliseconds(500),
        p99_ms: milliseconds(990),
        p999_ms: milliseconds(999),
        worst_ms: latencies.worst().as_secs_f64() * 1e3,
        fdatasyncs_per_second: fdatasyncs_per_batch.map(|it| it * batches_per_second),
        processor_us_per_batch: usage.processor.as_secs_f64() * 1e6 / batches,
        bytes_per_batch: usage.bytes_written.map(per_batch),
        device_bytes_per_batch: device.map(per_batch),
    })
}

/// Loads the subjects in turn, `rounds` times; `progress` hears of every round.
///
/// The result has the rounds of each subject, in the order they ran.
pub(crate) async fn interleave(
    subjects: &[&dyn Subject],
    load: Load,
    rounds: usize,
    mut progress: impl FnMut(&str, usize, &Round),
) -> Result<Vec<Vec<Round>>> {
    let mut results = vec![Vec::new(); subjects.len()];
    for round in 0..rounds {
        for turn in 0..subjects.len() {
            // Everyone is first once, in case being first is an advantage.
            let index = (turn + round) % subjects.len();
            let result = run_round(subjects[index], load).await?;
            progress(subjects[index].name(), round + 1, &result);
            results[index].push(result);
        }
    }
    Ok(results)
}

/// The middle value; of an even number, the mean of the two in the middle.
pub(crate) fn median(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.is_empty() {
        None
    } else if values.len() % 2 == 1 {
        Some(values[middle])
    } else {
        Some(f64::midpoint(values[middle - 1], values[middle]))
    }
}

/// The median over the rounds of `of(left) / of(right)`, each from the same round.
pub(crate) fn median_ratio(
    left: &[Round],
    right: &[Round],
    of: impl Fn(&Round) -> f64,
) -> Option<f64> {
    let pairs = left.iter().zip(right).map(|(left, right)| (of(left), of(right)));
    median(pairs.filter(|(_, right)| 0.0 < *right).map(|(left, right)| left / right))
}

/// Writers at work. Their latencies are kept apart by phase; the first phase is the warm-up.
pub(crate) struct Crowd {
    phase: Arc<AtomicUsize>,
    tasks: JoinSet<Result<Vec<Histogram>>>,
}

impl Crowd {
    const STOPPING: usize = usize::MAX;

    /// Lets every writer commit one pair after the other.
    pub(crate) fn start(writers: Vec<Box<dyn Writer>>, items: u64) -> Self {
        let phase = Arc::new(AtomicUsize::new(0));
        let mut tasks = JoinSet::new();
        for writer in writers {
            tasks.spawn(write(writer, Pairs::new(writer_number(), items), Arc::clone(&phase)));
        }
        Self { phase, tasks }
    }

    /// Commits that end from now on belong to the next phase.
    pub(crate) fn enter_next_phase(&self) {
        self.phase.fetch_add(1, Ordering::Relaxed);
    }

    /// Waits for the last commit of every writer and returns the latencies of each phase.
    pub(crate) async fn stop(mut self) -> Result<Vec<Histogram>> {
        let phases = self.phase.swap(Self::STOPPING, Ordering::Relaxed) + 1;
        let mut latencies = vec![Histogram::default(); phases];
        while let Some(outcome) = self.tasks.join_next().await {
            for (sum, part) in latencies.iter_mut().zip(outcome??) {
                sum.merge(&part);
            }
        }
        Ok(latencies)
    }
}

async fn write(
    mut writer: Box<dyn Writer>,
    mut pairs: Pairs,
    phase: Arc<AtomicUsize>,
) -> Result<Vec<Histogram>> {
    let mut latencies = Vec::new();
    loop {
        let pair = pairs.next();
        let stopwatch = Stopwatch::start();
        writer.commit(pair).await?;
        let elapsed = stopwatch.elapsed();
        let phase = phase.load(Ordering::Relaxed);
        if phase == Crowd::STOPPING {
            return Ok(latencies);
        }
        if latencies.len() <= phase {
            latencies.resize(phase + 1, Histogram::default());
        }
        latencies[phase].record(elapsed);
    }
}

/// A number no other writer of this process has.
pub(crate) fn writer_number() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Commits at once, and remembers nothing.
    struct Immediate(&'static str);

    #[async_trait]
    impl Subject for Immediate {
        fn name(&self) -> &'static str {
            self.0
        }

        async fn writers(&self, count: usize) -> Result<Vec<Box<dyn Writer>>> {
            Ok((0..count).map(|_| -> Box<dyn Writer> { Box::new(Self("writer")) }).collect())
        }

        async fn fdatasyncs(&self) -> Result<Option<u64>> {
            Ok(None)
        }

        fn usage(&self) -> io::Result<Usage> {
            Usage::of_self()
        }
    }

    #[async_trait]
    impl Writer for Immediate {
        async fn commit(&mut self, _: Pair) -> Result<()> {
            tokio::task::yield_now().await;
            Ok(())
        }
    }

    fn round(batches_per_second: f64) -> Round {
        Round {
            batches_per_second,
            p50_ms: 1.0,
            p99_ms: 1.0,
            p999_ms: 1.0,
            worst_ms: 1.0,
            fdatasyncs_per_second: None,
            processor_us_per_batch: 1.0,
            bytes_per_batch: None,
            device_bytes_per_batch: None,
        }
    }

    #[test]
    fn a_median_is_in_the_middle() {
        let check = |values: &[f64], expected| {
            assert_eq!(median(values.iter().copied()), expected);
        };
        check(&[], None);
        check(&[3.0], Some(3.0));
        check(&[9.0, 1.0, 2.0], Some(2.0));
        check(&[4.0, 1.0, 2.0, 9.0], Some(3.0));
    }

    #[test]
    fn a_ratio_compares_rounds_that_ran_together() {
        let check = |left: &[f64], right: &[f64], expected| {
            let rounds = |it: &[f64]| it.iter().copied().map(round).collect::<Vec<_>>();
            let found = median_ratio(&rounds(left), &rounds(right), |it| it.batches_per_second);
            assert_eq!(found, expected);
        };
        // The machine was ten times faster in the second round, for both.
        check(&[1.0, 10.0, 1.5], &[2.0, 20.0, 2.0], Some(0.5));
        check(&[1.0], &[0.0], None);
        check(&[], &[], None);
    }

    #[test]
    fn subjects_take_turns() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let (first, second) = (Immediate("first"), Immediate("second"));
        let load = Load { writers: 3, items: 10, duration: Duration::from_millis(5), device: None };
        let mut order = Vec::new();
        let results =
            runtime.block_on(interleave(&[&first, &second], load, 2, |name, round, _| {
                order.push(format!("{name} {round}"));
            }));
        assert_eq!(order, ["first 1", "second 1", "second 2", "first 2"]);
        for rounds in results.unwrap() {
            assert_eq!(rounds.len(), 2);
            assert!(rounds.iter().all(|it| 0.0 < it.batches_per_second));
        }
    }
}
