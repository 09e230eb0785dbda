//! From the start of a commit to a subscriber of the broker, with and without a poisoned key.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use millstream_core::Documents;
use tokio::task::JoinSet;

use crate::{
    Options, Result,
    measure::{Histogram, Stopwatch, due},
    relay::{
        receiver::{Receiver, Receiving},
        stage::{KEYS, POISONED, Stage, commit},
    },
    report::{Figures, optional},
    rounds::median,
    workload::Random,
};

/// Commits per second.
const MODERATE: u64 = 300;
const HIGH: u64 = 5_000;
/// One commit in so many goes to the poisoned key, in all runs, so that the runs are alike.
const POISONED_SHARE: u64 = 1_000;

/// Measures both rates, and the high one with a poisoned key too, in turns.
pub(super) async fn measure(
    stage: &mut Stage,
    options: &Options,
    figures: &mut Figures,
) -> Result<()> {
    stage.start_relay().await?;
    let mut runs = Runs::new(Receiving::Together);
    let seconds = options.duration();
    // Nobody is measured while the relay takes its leases.
    runs.next(stage, MODERATE, Duration::from_secs(1), false).await?;
    let (mut moderate, mut high, mut poisoned) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..options.rounds {
        moderate.push(runs.next(stage, MODERATE, seconds, false).await?);
        // Each is first in every other round, in case being first is an advantage.
        let is_poisoned_first = round % 2 == 1;
        for is_poisoned in [is_poisoned_first, !is_poisoned_first] {
            let run = runs.next(stage, HIGH, seconds, is_poisoned).await?;
            if is_poisoned { poisoned.push(run) } else { high.push(run) }
        }
    }
    stage.check_order()?;
    print(&format!("commit to subscriber at {MODERATE}/s"), &moderate);
    print(&format!("commit to subscriber at {HIGH}/s"), &high);
    print(&format!("the same with one poisoned key of {KEYS}, others only"), &poisoned);
    let ratio = |it: &Run| milliseconds(&it.delivery, 500) / milliseconds(&it.commit, 500);
    let p99 = |it: &Run| milliseconds(&it.delivery, 990);
    // One stall of the disk decides the p99 of a short run, so the middle ones are compared.
    let middle = |runs: &[Run]| median(runs.iter().map(p99));
    let poison = middle(&poisoned).zip(middle(&high)).map(|(with, without)| with / without);
    figures.add("relay.latency_p50_commits", median(moderate.iter().map(ratio)));
    figures.add("relay.p99_ms_300", median(moderate.iter().map(p99)));
    figures.add("relay.p99_ms_5k", median(high.iter().map(p99)));
    figures.add("relay.poison_p99_ratio", poison);
    Ok(())
}

/// Measures both rates at a subscription with sessions, whose receivers see that the events of each
/// key come in order.
pub(super) async fn measure_sessions(
    stage: &mut Stage,
    options: &Options,
    figures: &mut Figures,
) -> Result<()> {
    stage.start_relay().await?;
    let mut runs = Runs::new(Receiving::BySession);
    runs.next(stage, MODERATE, Duration::from_secs(1), false).await?;
    let (mut moderate, mut high) = (Vec::new(), Vec::new());
    for _ in 0..options.rounds {
        moderate.push(runs.next(stage, MODERATE, options.duration(), false).await?);
        high.push(runs.next(stage, HIGH, options.duration(), false).await?);
    }
    stage.check_order()?;
    print(&format!("commit to receiver of a session at {MODERATE}/s"), &moderate);
    print(&format!("commit to receiver of a session at {HIGH}/s"), &high);
    let p99 = |it: &Run| milliseconds(&it.delivery, 990);
    let ratio = |it: &Run| milliseconds(&it.delivery, 500) / milliseconds(&it.commit, 500);
    figures.add("relay.session_p50_commits", median(moderate.iter().map(ratio)));
    figures.add("relay.session_p99_ms_5k", median(high.iter().map(p99)));
    Ok(())
}

/// Runs that do not share a key or an event.
struct Runs {
    receiving: Receiving,
    runs: u64,
    events: u64,
}

/// What one run showed.
struct Run {
    commit: Histogram,
    delivery: Histogram,
    refused: u64,
}

impl Runs {
    fn new(receiving: Receiving) -> Self {
        Self { receiving, runs: 0, events: 0 }
    }

    async fn next(
        &mut self,
        stage: &Stage,
        rate: u64,
        duration: Duration,
        poisoned: bool,
    ) -> Result<Run> {
        self.runs += 1;
        let (run, first) = (self.runs, self.events);
        let load = Load { run, first, rate, duration, poisoned };
        self.events += load.commits();
        stage.publisher.begin(poisoned);
        let moments = Arc::new(Moments::new(load));
        let receiver = Receiver::start(stage.broker.clone(), Arc::clone(&moments), self.receiving);
        offer(&stage.data.documents, &moments).await?;
        receiver.finish().await?;
        let run = moments.run();
        eprintln!("{rate}/s{}: {run}", if poisoned { " with a poisoned key" } else { "" });
        Ok(run)
    }
}

/// Starts commits when they are due, whether or not earlier ones have ended.
async fn offer(documents: &Arc<dyn Documents>, moments: &Arc<Moments>) -> Result<()> {
    let load = moments.load;
    let mut random = Random::new(load.first);
    let mut tasks: JoinSet<()> = JoinSet::new();
    let stopwatch = Stopwatch::start();
    let mut sent = 0;
    while sent < load.commits() {
        let due = load.due(stopwatch.elapsed());
        for index in sent..due {
            let event = load.first + index;
            let batch = commit(load.run, load.key(index), event..event + 1, &mut random);
            let (documents, moments) = (Arc::clone(documents), Arc::clone(moments));
            tasks.spawn(async move {
                moments.note(&moments.started, index);
                match documents.commit(batch).await {
                    Ok(_) => moments.note(&moments.acknowledged, index),
                    Err(_) => drop(moments.refused.fetch_add(1, Ordering::Relaxed)),
                }
            });
        }
        sent = due;
        // What has ended need not wait in memory for the end of the run.
        while tasks.try_join_next().is_some() {}
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    while let Some(outcome) = tasks.join_next().await {
        outcome?;
    }
    Ok(())
}

/// So many commits per second, for so long.
#[derive(Clone, Copy, Debug)]
struct Load {
    run: u64,
    /// The number of the first event.
    first: u64,
    rate: u64,
    duration: Duration,
    poisoned: bool,
}

impl Load {
    fn commits(self) -> u64 {
        self.due(self.duration)
    }

    /// Commits that shall have begun after this time.
    fn due(self, elapsed: Duration) -> u64 {
        due(self.rate, elapsed.min(self.duration))
    }

    fn key(self, index: u64) -> u64 {
        if index.is_multiple_of(POISONED_SHARE) { POISONED } else { 1 + index % (KEYS - 1) }
    }
}

/// When what happened to each commit, in nanoseconds since the run began; 0 if it did not.
pub(super) struct Moments {
    load: Load,
    stopwatch: Stopwatch,
    started: Vec<AtomicU64>,
    acknowledged: Vec<AtomicU64>,
    received: Vec<AtomicU64>,
    pub(super) received_count: AtomicU64,
    refused: AtomicU64,
    pub(super) is_over: AtomicU64,
}

impl Moments {
    fn new(load: Load) -> Self {
        let moments = || (0..load.commits()).map(|_| AtomicU64::new(0)).collect();
        Self {
            load,
            stopwatch: Stopwatch::start(),
            started: moments(),
            acknowledged: moments(),
            received: moments(),
            received_count: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            is_over: AtomicU64::new(0),
        }
    }

    fn note(&self, moments: &[AtomicU64], index: u64) {
        let index = usize::try_from(index).expect("the moments fit into memory");
        let now = u64::try_from(self.stopwatch.elapsed().as_nanos()).unwrap_or(u64::MAX);
        moments[index].store(now, Ordering::Relaxed);
    }

    /// Notes an event; one of an earlier run, or one that came before, is not for us.
    pub(super) fn receive(&self, event: Option<u64>) {
        let index = event.and_then(|it| it.checked_sub(self.load.first));
        let Some(index) = index.filter(|it| *it < self.load.commits()) else { return };
        let place = usize::try_from(index).expect("the moments fit into memory");
        if self.received[place].load(Ordering::Relaxed) == 0 {
            self.note(&self.received, index);
            self.received_count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Whether the event of a commit gets to the subscriber.
    fn is_expected(&self, index: usize) -> bool {
        let number = u64::try_from(index).unwrap_or(u64::MAX);
        let is_refused = self.load.poisoned && self.load.key(number) == POISONED;
        !is_refused && 0 < self.acknowledged[index].load(Ordering::Relaxed)
    }

    pub(super) fn expected(&self) -> u64 {
        let expected = (0..self.acknowledged.len()).filter(|it| self.is_expected(*it)).count();
        u64::try_from(expected).unwrap_or(u64::MAX)
    }

    fn run(&self) -> Run {
        let mut run = Run {
            commit: Histogram::default(),
            delivery: Histogram::default(),
            refused: self.refused.load(Ordering::Relaxed),
        };
        for index in (0..self.started.len()).filter(|it| self.is_expected(*it)) {
            let at = |moments: &[AtomicU64]| moments[index].load(Ordering::Relaxed);
            let started = at(&self.started);
            let since = |moment: u64| Duration::from_nanos(moment.saturating_sub(started));
            run.commit.record(since(at(&self.acknowledged)));
            run.delivery.record(since(at(&self.received)));
        }
        run
    }
}

impl fmt::Display for Run {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { commit, delivery, refused } = self;
        write!(
            formatter,
            "{} received, p50 {:.3} ms, p99 {:.3} ms, worst {:.1} ms; commit p50 {:.3} ms; \
             {refused} refused",
            delivery.count(),
            milliseconds(delivery, 500),
            milliseconds(delivery, 990),
            delivery.worst().as_secs_f64() * 1e3,
            milliseconds(commit, 500),
        )
    }
}

fn print(title: &str, runs: &[Run]) {
    println!("{title}, median of {} rounds:", runs.len());
    type Part = fn(&Run) -> &Histogram;
    let parts: [(&str, Part); 2] =
        [("commit", |it| &it.commit), ("start of commit to subscriber", |it| &it.delivery)];
    for (name, of) in parts {
        let count: u64 = runs.iter().map(|it| of(it).count()).sum();
        let middle = |per_mille| median(runs.iter().map(|it| milliseconds(of(it), per_mille)));
        println!(
            "  {name:<30} p50 {:>7} ms, p99 {:>7} ms, {count} commits",
            optional(middle(500), 3),
            optional(middle(990), 3),
        );
    }
}

fn milliseconds(histogram: &Histogram, per_mille: u64) -> f64 {
    histogram.quantile(per_mille).as_secs_f64() * 1e3
}
