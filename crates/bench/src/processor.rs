//! `bench processor`: changes through a processor beside the raw feed, and how soon a commit gets
//! to the handler.

mod latency;

use std::{
    future::ready,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use millstream_core::{Container, FeedMode, KeyRange, PageSize, StartFrom};
use millstream_processor::{
    ChangeBatch, Concurrency, Context, Handler, Processor, ProcessorOptions, StartPosition, Started,
};
use tokio::{
    sync::Notify,
    task::{JoinHandle, JoinSet},
};
use tokio_util::sync::CancellationToken;

use crate::{
    Options, Result,
    documents::{create, create_divided, fill},
    measure::{Stopwatch, Usage, float},
    report::{Figures, optional},
    rounds::median,
    store,
    workload::Shape,
};

/// Changes that are processed in a round unless told otherwise.
const ITEMS: u64 = 300_000;
/// More ranges than cores, as a container that was split has.
const RANGES: u32 = 4;
/// What a page of the feed holds for both the raw read and the processor, whose default it is.
const PAGE_ITEMS: usize = 100;
/// Batches of a lease that a keyed processor handles at the same time.
const AT_ONCE: usize = 8;
/// A raw read that had less than this of the machine shared it with something else.
const PROCESSORS_MIN: f64 = 1.5;
/// After this something is wrong, and the benchmark says so.
const TIME_MAX: Duration = Duration::from_secs(300);

/// Runs the benchmark.
pub(crate) async fn run(options: &Options) -> Result<Figures> {
    let directory = options.fresh_directory()?;
    let store = store::open(directory.path())?;
    let mut stage = Stage {
        items: create_divided(&store, "items", RANGES).await?,
        leases: create(&store, "leases").await?,
        processors: 0,
    };
    let stopwatch = Stopwatch::start();
    fill(&stage.items.documents, 0, options.items_or(ITEMS), Shape::CONTACT).await?;
    eprintln!(
        "{} items loaded in {:.1} s",
        options.items_or(ITEMS),
        stopwatch.elapsed().as_secs_f64()
    );

    let mut figures = Figures::default();
    compare(&mut stage, options, &mut figures).await?;
    latency::measure(&mut stage, options, &mut figures).await?;
    Ok(figures)
}

/// Ways to get from the first change to the last.
#[derive(Clone, Copy, Debug)]
enum Reader {
    Raw,
    Serial,
    Keyed,
}

const READERS: [Reader; 3] = [Reader::Raw, Reader::Serial, Reader::Keyed];

/// What one reader did in one round.
#[derive(Clone, Copy, Debug)]
struct Pass {
    changes_per_second: f64,
    /// Microseconds of processor time for each change, whatever else the machine did.
    cost_us: f64,
    /// How many processors it had on average.
    processors: f64,
}

/// Reads everything in each way, in turns.
async fn compare(stage: &mut Stage, options: &Options, figures: &mut Figures) -> Result<()> {
    let mut passes = READERS.map(|_| Vec::new());
    for round in 0..options.rounds {
        for turn in 0..READERS.len() {
            // Everyone is first once, in case being first is an advantage.
            let index = (turn + round) % READERS.len();
            let pass = stage.pass(READERS[index], options.items_or(ITEMS)).await?;
            let Pass { changes_per_second, cost_us, processors } = pass;
            eprintln!(
                "round {}, {:?}: {changes_per_second:.0} changes/s, {cost_us:.2} us of processor \
                 time each, {processors:.2} processors",
                round + 1,
                READERS[index],
            );
            passes[index].push(pass);
        }
    }
    let [raw, serial, keyed] = passes;
    let (items, rounds) = (options.items_or(ITEMS), options.rounds);
    println!("{items} changes, {RANGES} ranges, pages of {PAGE_ITEMS}, median of {rounds} rounds:");
    for (name, passes) in [("raw feed", &raw), ("serial", &serial), ("keyed", &keyed)] {
        let middle = |of: fn(&Pass) -> f64| median(passes.iter().map(of));
        println!(
            "  {name:<9} {:>8} changes/s, {:>6} us of processor time each, on {} processors",
            optional(middle(|it| it.changes_per_second), 0),
            optional(middle(|it| it.cost_us), 2),
            optional(middle(|it| it.processors), 2),
        );
    }
    let quiet = raw.iter().filter(|it| it.was_undisturbed()).count();
    println!("  the machine was free for the raw read in {quiet} of {rounds} rounds");
    if quiet == 0 {
        println!("  so changes/s cannot be compared; compare the processor time");
    }
    figures.add("processor.feed_ratio", rate_ratio(&serial, &raw));
    figures.add("processor.keyed_ratio", rate_ratio(&keyed, &raw));
    figures.add("processor.feed_cost_ratio", cost_ratio(&serial, &raw));
    figures.add("processor.keyed_cost_ratio", cost_ratio(&keyed, &raw));
    Ok(())
}

impl Pass {
    /// Whether the raw read, which never waits, had the machine to itself.
    ///
    /// Where it had not, the system favours a reader that sleeps now and then over one that does
    /// not, and a processor looks faster than the feed it reads.
    fn was_undisturbed(&self) -> bool {
        PROCESSORS_MIN <= self.processors
    }
}

/// Changes per second in proportion to the raw read, over the rounds where that was undisturbed.
fn rate_ratio(mine: &[Pass], raw: &[Pass]) -> Option<f64> {
    let pairs = mine.iter().zip(raw).filter(|(_, raw)| raw.was_undisturbed());
    median(pairs.map(|(mine, raw)| mine.changes_per_second / raw.changes_per_second))
}

/// The same of changes per second of processor time, over all rounds.
fn cost_ratio(mine: &[Pass], raw: &[Pass]) -> Option<f64> {
    median(mine.iter().zip(raw).map(|(mine, raw)| raw.cost_us / mine.cost_us))
}

/// Reads all changes with a task for each range, as the processor has.
async fn read_raw(items: &Container, expected: u64) -> Result<Duration> {
    let ranges = items.feed.ranges().await?;
    let stopwatch = Stopwatch::start();
    let mut tasks: JoinSet<millstream_core::Result<u64>> = JoinSet::new();
    for range in ranges {
        tasks.spawn(read_range(items.clone(), range.keys));
    }
    let mut changes = 0;
    while let Some(outcome) = tasks.join_next().await {
        changes += outcome??;
    }
    if changes != expected {
        return Err(format!("the feed showed {changes} of {expected} changes").into());
    }
    Ok(stopwatch.elapsed())
}

async fn read_range(items: Container, keys: KeyRange) -> millstream_core::Result<u64> {
    let feed = items.feed;
    let mut next = feed.start(&keys, StartFrom::Beginning, FeedMode::LatestVersion).await?;
    let mut changes = 0;
    loop {
        let page = feed.read(&keys, &next, PageSize::items(PAGE_ITEMS)).await?;
        changes += u64::try_from(page.changes.len()).unwrap_or(u64::MAX);
        next = page.continuation;
        if page.changes.last().is_none_or(|it| page.newest <= it.lsn) {
            return Ok(changes);
        }
    }
}

/// The containers, and how many processors have worked on them.
struct Stage {
    items: Container,
    leases: Container,
    processors: u64,
}

impl Stage {
    async fn pass(&mut self, reader: Reader, changes: u64) -> Result<Pass> {
        let before = Usage::of_self()?;
        let elapsed = match reader {
            Reader::Raw => read_raw(&self.items, changes).await?,
            Reader::Serial => self.process(changes, Concurrency::Serial).await?,
            Reader::Keyed => self.process(changes, Concurrency::Keyed(AT_ONCE)).await?,
        };
        let used = Usage::of_self()?.since(before).processor;
        Ok(Pass {
            changes_per_second: float(changes) / elapsed.as_secs_f64(),
            cost_us: used.as_secs_f64() * 1e6 / float(changes),
            processors: used.as_secs_f64() / elapsed.as_secs_f64(),
        })
    }

    /// Lets a processor handle everything, and says how long it took from its start to its last
    /// change.
    async fn process(&mut self, expected: u64, concurrency: Concurrency) -> Result<Duration> {
        let countdown = Arc::new(Countdown::new(expected));
        let handler = {
            let countdown = Arc::clone(&countdown);
            move |batch: ChangeBatch, _: Context| {
                countdown.passed(u64::try_from(batch.len()).unwrap_or(u64::MAX));
                ready(Ok(()))
            }
        };
        let options = ProcessorOptions::default()
            .start(StartPosition::Beginning)
            .batch_items_max(PAGE_ITEMS)
            .concurrency(concurrency);
        let started = self.start(options, handler).await?;
        let stopwatch = Stopwatch::start();
        let mut running = Running::begin(started);
        running.until(countdown.wait()).await?;
        let elapsed = stopwatch.elapsed();
        running.stop().await?;
        Ok(elapsed)
    }

    /// Starts a processor that no leases are left of.
    async fn start(
        &mut self,
        options: ProcessorOptions,
        handler: impl Handler + 'static,
    ) -> Result<Started> {
        self.processors += 1;
        let name = format!("bench-{}", self.processors);
        let processor = Processor::new(&self.items, &self.leases, &name)
            .instance("worker")
            .options(options)
            .spawn_with(|task| drop(tokio::spawn(task)));
        Ok(processor.start(handler).await?)
    }
}

/// A processor at work.
struct Running {
    task: JoinHandle<millstream_processor::Result<()>>,
    shutdown: CancellationToken,
}

impl Running {
    fn begin(started: Started) -> Self {
        let shutdown = CancellationToken::new();
        Self { task: tokio::spawn(started.run(shutdown.clone())), shutdown }
    }

    /// Waits for `goal`, and fails if the processor ends first.
    async fn until(&mut self, goal: impl Future<Output = ()>) -> Result<()> {
        tokio::select! {
            biased;
            ended = &mut self.task => {
                ended??;
                Err("the processor ended by itself".into())
            }
            reached = tokio::time::timeout(TIME_MAX, goal) => {
                reached.map_err(|_| "the processor was not done in five minutes".into())
            }
        }
    }

    async fn stop(self) -> Result<()> {
        self.shutdown.cancel();
        Ok(self.task.await??)
    }
}

/// Says when so many changes have passed.
struct Countdown {
    left: AtomicU64,
    done: Notify,
}

impl Countdown {
    fn new(changes: u64) -> Self {
        Self { left: AtomicU64::new(changes), done: Notify::new() }
    }

    fn passed(&self, changes: u64) {
        let before = self.left.fetch_sub(changes, Ordering::Relaxed);
        assert!(changes <= before, "a change was delivered twice although nothing failed");
        if before == changes {
            self.done.notify_one();
        }
    }

    fn left(&self) -> u64 {
        self.left.load(Ordering::Relaxed)
    }

    async fn wait(&self) {
        self.done.notified().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(mine: &[f64], raw: &[(f64, f64)], expected: Option<f64>) {
        let pass = |(changes_per_second, processors)| Pass {
            changes_per_second,
            cost_us: 1.0,
            processors,
        };
        let mine: Vec<Pass> = mine.iter().map(|it| pass((*it, 1.0))).collect();
        let raw: Vec<Pass> = raw.iter().copied().map(pass).collect();
        assert_eq!(rate_ratio(&mine, &raw), expected);
    }

    #[test]
    fn rounds_in_which_the_raw_read_was_disturbed_do_not_count() {
        check(&[8.0, 30.0], &[(10.0, 1.9), (10.0, 0.4)], Some(0.8));
        check(&[30.0], &[(10.0, 0.4)], None);
    }
}
