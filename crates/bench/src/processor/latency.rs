//! From a commit to the handler: at a moderate rate, and at the highest one that is sustained.

use std::{
    fmt,
    future::ready,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use millstream_core::{Batch, Documents, Operation};
use millstream_processor::{ChangeBatch, Context, Notification, ProcessorOptions};
use tokio::task::JoinSet;

use crate::{
    Options, Result,
    measure::{Histogram, Stopwatch, due, float},
    processor::{Countdown, RANGES, Running, Stage},
    report::{Figures, optional},
    rounds::median,
    workload::{Random, Shape, item_body, partition_of},
};

/// Commits per second at the moderate rate.
const RATE: u64 = 300;
/// Where the search for the highest rate begins.
const SEARCH_RATE: u64 = 2_000;
/// How often the interval between a rate that was sustained and one that was not is halved.
const SEARCH_STEPS: usize = 3;
/// A rate that a moment of a busy machine spoiled gets another try.
const TRIES: usize = 2;
/// A processor that ends this much behind does not sustain the rate.
const LAG_MAX: Duration = Duration::from_millis(100);
/// One item is one commit.
const SHAPE: Shape = Shape { bytes: 200, ttl_seconds: None };
/// Before the name of an item, whose rest is its number.
const ID_PREFIX: &str = "item-";

/// Measures both rates.
pub(super) async fn measure(
    stage: &mut Stage,
    options: &Options,
    figures: &mut Figures,
) -> Result<()> {
    let mut numbers = Numbers(options.items_or(crate::processor::ITEMS));
    let mut moderate = Vec::new();
    let mut alone = Vec::new();
    for round in 1..=options.rounds {
        let load = numbers.take(RATE, options.duration());
        alone.push(commit_alone(stage, load).await?);
        let run = commit_and_process(stage, numbers.take(RATE, options.duration())).await?;
        eprintln!("round {round}, {RATE}/s: {run}");
        moderate.push(run);
    }
    println!("commit to handler at {RATE}/s, median of {} rounds:", options.rounds);
    print_medians(&moderate);
    let alone = median(alone.iter().map(|it| milliseconds(it, 500)));
    println!("  a commit while nothing is processed: p50 {} ms", optional(alone, 3));

    let ratio = |it: &Run| milliseconds(&it.from_start, 500) / milliseconds(&it.commit, 500);
    let p99 = |it: &Run| milliseconds(&it.from_start, 990);
    figures.add("processor.latency_p50_commits", median(moderate.iter().map(ratio)));
    figures.add("processor.latency_p99_ms", median(moderate.iter().map(p99)));

    let highest = highest_sustained(stage, &mut numbers, options.duration()).await?;
    println!("commit to handler at the highest sustained rate:");
    if let Some(run) = &highest {
        println!("  {} commits/s sustained for {:?}", run.load.rate, run.load.duration);
        print_medians(std::slice::from_ref(run));
    }
    let of_highest = |of: &dyn Fn(&Run) -> f64| highest.as_ref().map(of);
    figures.add("processor.highest_rate", of_highest(&|it| float(it.load.rate)));
    figures.add("processor.highest_rate_p50_commits", of_highest(&ratio));
    figures.add("processor.highest_rate_p99_ms", of_highest(&p99));
    Ok(())
}

/// Doubles the rate until the processor or the store falls behind, then looks in between.
async fn highest_sustained(
    stage: &mut Stage,
    numbers: &mut Numbers,
    duration: Duration,
) -> Result<Option<Run>> {
    let mut best: Option<Run> = None;
    let mut rate = SEARCH_RATE;
    let mut too_high = None;
    let mut steps = 0;
    while steps < SEARCH_STEPS {
        match sustained(stage, numbers, rate, duration).await? {
            Some(run) => best = Some(run),
            None => too_high = Some(rate),
        }
        let sustained = best.as_ref().map_or(0, |it| it.load.rate);
        match too_high {
            None => rate *= 2,
            Some(too_high) => {
                steps += 1;
                rate = u64::midpoint(sustained, too_high);
            }
        }
    }
    Ok(best)
}

/// A run at this rate, if one did not fall behind.
async fn sustained(
    stage: &mut Stage,
    numbers: &mut Numbers,
    rate: u64,
    duration: Duration,
) -> Result<Option<Run>> {
    for _ in 0..TRIES {
        let run = commit_and_process(stage, numbers.take(rate, duration)).await?;
        let Offered { left, refused, .. } = run.offered;
        eprintln!("{rate}/s: {left} behind at the end, {refused} refused; {run}");
        if run.is_sustained() {
            return Ok(Some(run));
        }
    }
    Ok(None)
}

/// Commits in an open loop while a processor runs, and waits for the last delivery.
async fn commit_and_process(stage: &mut Stage, load: Load) -> Result<Run> {
    let moments = Arc::new(Moments::new(load));
    let handler = {
        let moments = Arc::clone(&moments);
        move |batch: ChangeBatch, _: Context| {
            moments.handle(&batch);
            ready(Ok(()))
        }
    };
    let mut started = stage.start(ProcessorOptions::default(), handler).await?;
    let mut notifications = started.notifications();
    let mut running = Running::begin(started);
    let acquired = async {
        let mut acquired = 0;
        while acquired < RANGES {
            match notifications.next().await {
                Some(Notification::Acquired { .. }) => acquired += 1,
                Some(_) => (),
                None => return,
            }
        }
    };
    running.until(acquired).await?;
    let offered = offer(&stage.items.documents, &moments).await?;
    // What was refused will never come.
    moments.countdown.passed(offered.refused);
    running.until(moments.countdown.wait()).await?;
    running.stop().await?;
    Ok(Run::new(offered, &moments))
}

/// Commits in an open loop while nobody looks, and returns how long the commits took.
async fn commit_alone(stage: &Stage, load: Load) -> Result<Histogram> {
    let moments = Arc::new(Moments::new(load));
    offer(&stage.items.documents, &moments).await?;
    Ok(moments.between(&moments.started, &moments.acknowledged))
}

/// What became of the commits.
#[derive(Clone, Copy, Debug)]
struct Offered {
    /// Until the last one was begun.
    took: Duration,
    /// Not handled at that moment.
    left: u64,
    refused: u64,
}

/// Starts commits when they are due, whether or not earlier ones have ended.
async fn offer(documents: &Arc<dyn Documents>, moments: &Arc<Moments>) -> Result<Offered> {
    let load = moments.load;
    let mut random = Random::new(load.first);
    let mut tasks: JoinSet<()> = JoinSet::new();
    let stopwatch = Stopwatch::start();
    let mut sent = 0;
    while sent < load.commits() {
        let due = load.due(stopwatch.elapsed());
        for index in sent..due {
            let body = item_body(load.first + index, 0, SHAPE, &mut random);
            let (documents, moments) = (Arc::clone(documents), Arc::clone(moments));
            tasks.spawn(async move { moments.commit(&*documents, index, body).await });
        }
        sent = due;
        // What has ended need not wait in memory for the end of the run.
        while tasks.try_join_next().is_some() {}
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let (took, left) = (stopwatch.elapsed(), moments.countdown.left());
    while let Some(outcome) = tasks.join_next().await {
        outcome?;
    }
    Ok(Offered { took, left, refused: moments.refused.load(Ordering::Relaxed) })
}

/// Items that were not used yet.
struct Numbers(u64);

impl Numbers {
    fn take(&mut self, rate: u64, duration: Duration) -> Load {
        let load = Load { first: self.0, rate, duration };
        self.0 += load.commits();
        load
    }
}

/// So many commits per second, for so long.
#[derive(Clone, Copy, Debug)]
struct Load {
    /// The number of the first item.
    first: u64,
    rate: u64,
    duration: Duration,
}

impl Load {
    fn commits(self) -> u64 {
        self.due(self.duration)
    }

    /// Commits that shall have begun after this time.
    fn due(self, elapsed: Duration) -> u64 {
        due(self.rate, elapsed.min(self.duration))
    }
}

/// When what happened to each commit, in nanoseconds since the run began; 0 if it did not.
struct Moments {
    load: Load,
    stopwatch: Stopwatch,
    started: Vec<AtomicU64>,
    acknowledged: Vec<AtomicU64>,
    handled: Vec<AtomicU64>,
    refused: AtomicU64,
    countdown: Countdown,
}

impl Moments {
    fn new(load: Load) -> Self {
        let moments = || (0..load.commits()).map(|_| AtomicU64::new(0)).collect();
        Self {
            load,
            stopwatch: Stopwatch::start(),
            started: moments(),
            acknowledged: moments(),
            handled: moments(),
            refused: AtomicU64::new(0),
            countdown: Countdown::new(load.commits()),
        }
    }

    async fn commit(&self, documents: &dyn Documents, index: u64, body: String) {
        let batch = Batch::new(partition_of(self.load.first + index)).with(Operation::create(body));
        self.note(&self.started, index);
        match documents.commit(batch).await {
            Ok(_) => self.note(&self.acknowledged, index),
            Err(_) => drop(self.refused.fetch_add(1, Ordering::Relaxed)),
        }
    }

    fn handle(&self, batch: &ChangeBatch) {
        let now = self.now();
        for change in batch.iter() {
            let number = change.id.as_str().strip_prefix(ID_PREFIX).and_then(|it| it.parse().ok());
            let index = number.and_then(|it: u64| it.checked_sub(self.load.first));
            let moment = index.and_then(|it| self.handled.get(usize::try_from(it).ok()?));
            moment.expect("only items of this run are committed").store(now, Ordering::Relaxed);
        }
        self.countdown.passed(u64::try_from(batch.len()).unwrap_or(u64::MAX));
    }

    fn note(&self, moments: &[AtomicU64], index: u64) {
        let index = usize::try_from(index).expect("the moments fit into memory");
        moments[index].store(self.now(), Ordering::Relaxed);
    }

    fn now(&self) -> u64 {
        u64::try_from(self.stopwatch.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// The times between two moments of the commits that were acknowledged.
    fn between(&self, from: &[AtomicU64], to: &[AtomicU64]) -> Histogram {
        let mut histogram = Histogram::default();
        for (index, acknowledged) in self.acknowledged.iter().enumerate() {
            if acknowledged.load(Ordering::Relaxed) == 0 {
                continue;
            }
            let (from, to) =
                (from[index].load(Ordering::Relaxed), to[index].load(Ordering::Relaxed));
            // A handler may be called before the writer is told that its commit is done.
            histogram.record(Duration::from_nanos(to.saturating_sub(from)));
        }
        histogram
    }
}

/// What one run showed.
struct Run {
    load: Load,
    offered: Offered,
    commit: Histogram,
    from_start: Histogram,
    from_acknowledgement: Histogram,
}

impl Run {
    fn new(offered: Offered, moments: &Moments) -> Self {
        Self {
            load: moments.load,
            offered,
            commit: moments.between(&moments.started, &moments.acknowledged),
            from_start: moments.between(&moments.started, &moments.handled),
            from_acknowledgement: moments.between(&moments.acknowledged, &moments.handled),
        }
    }

    fn is_sustained(&self) -> bool {
        let Offered { took, left, refused } = self.offered;
        refused == 0 && left <= self.load.due(LAG_MAX) && took <= self.load.duration + LAG_MAX
    }
}

impl fmt::Display for Run {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (start, commit) = (&self.from_start, &self.commit);
        write!(
            formatter,
            "{} handled, p50 {:.3} ms, p99 {:.3} ms, worst {:.1} ms; commit p50 {:.3} ms",
            start.count(),
            milliseconds(start, 500),
            milliseconds(start, 990),
            start.worst().as_secs_f64() * 1e3,
            milliseconds(commit, 500),
        )
    }
}

fn print_medians(runs: &[Run]) {
    type Part = fn(&Run) -> &Histogram;
    let parts: [(&str, Part); 3] = [
        ("commit", |it| &it.commit),
        ("start of commit to handler", |it| &it.from_start),
        ("acknowledgement to handler", |it| &it.from_acknowledgement),
    ];
    for (name, of) in parts {
        let count: u64 = runs.iter().map(|it| of(it).count()).sum();
        let middle = |per_mille| median(runs.iter().map(|it| milliseconds(of(it), per_mille)));
        println!(
            "  {name:<27} p50 {:>7} ms, p99 {:>7} ms, {count} commits",
            optional(middle(500), 3),
            optional(middle(990), 3),
        );
    }
}

fn milliseconds(histogram: &Histogram, per_mille: u64) -> f64 {
    histogram.quantile(per_mille).as_secs_f64() * 1e3
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::item_id;

    #[test]
    fn commits_are_due_evenly_and_never_more_than_all() {
        let load = Load { first: 0, rate: 300, duration: Duration::from_secs(2) };
        assert_eq!(load.commits(), 600);
        assert_eq!(load.due(Duration::ZERO), 0);
        assert_eq!(load.due(Duration::from_millis(10)), 3);
        assert_eq!(load.due(Duration::from_secs(9)), 600);
    }

    #[test]
    fn runs_never_share_an_item() {
        let mut numbers = Numbers(7);
        let first = numbers.take(300, Duration::from_secs(1));
        assert_eq!((first.first, numbers.take(1, Duration::from_secs(1)).first), (7, 307));
        assert!(item_id(first.first).starts_with(ID_PREFIX));
    }
}
