//! `bench feed`: reading changes in order, and what a change costs as the container grows.

use std::{sync::Arc, time::Duration};

use millstream_core::{ChangeFeed, Continuation, FeedMode, KeyRange, Lsn, PageSize, StartFrom};

use crate::{
    Options, Result,
    documents::{create, fill},
    measure::{Stopwatch, float},
    report::{Figures, optional},
    rounds::median,
    store,
    workload::Shape,
};

/// The sizes that are compared, smallest first.
const SIZES: [u64; 3] = [10_000, 1_000_000, 5_000_000];
/// Small, so that the largest container is written in minutes.
const SHAPE: Shape = Shape { bytes: 200, ttl_seconds: None };
/// What is read of each size in a round; a small container is read again and again.
const CHANGES: u64 = 1_000_000;
/// A reader that wants throughput asks for pages of this many items.
const PAGE_ITEMS: usize = 1000;

/// Runs the benchmark.
pub(crate) async fn run(options: &Options) -> Result<Figures> {
    let directory = options.fresh_directory()?;
    let store = store::open(directory.path())?;
    let mut readers = Vec::new();
    for size in SIZES.map(|it| options.scaled(it)) {
        let stopwatch = Stopwatch::start();
        let container = create(&store, &format!("items-{size}")).await?;
        fill(&container.documents, 0, size, SHAPE).await?;
        eprintln!("{size} items loaded in {:.1} s", stopwatch.elapsed().as_secs_f64());
        readers.push((size, Reader::new(container.feed).await?));
    }

    let changes = options.scaled(CHANGES);
    let mut costs = vec![Vec::new(); readers.len()];
    for round in 1..=options.rounds {
        for ((size, reader), costs) in readers.iter_mut().zip(&mut costs) {
            let elapsed = reader.read(changes).await?;
            let cost = elapsed.as_secs_f64() * 1e6 / float(changes);
            eprintln!("round {round}, {size} items: {changes} changes, {cost:.3} us each");
            costs.push(cost);
        }
    }

    println!("reading {changes} changes in order:");
    for ((size, _), costs) in readers.iter().zip(&costs) {
        let cost = median(costs.iter().copied());
        let seconds = cost.map(|it| it * float(changes) / 1e6);
        println!(
            "{size:>9} items: {} s, {} us per change",
            optional(seconds, 3),
            optional(cost, 3),
        );
    }
    let growth = costs[0].iter().zip(&costs[costs.len() - 1]).map(|(small, large)| large / small);
    let mut figures = Figures::default();
    figures.add("feed.growth_ratio", median(growth));
    Ok(figures)
}

/// Reads the feed of a container with one range, and begins again at its end.
struct Reader {
    feed: Arc<dyn ChangeFeed>,
    keys: KeyRange,
    start: Continuation,
    next: Continuation,
    last: Lsn,
}

impl Reader {
    async fn new(feed: Arc<dyn ChangeFeed>) -> Result<Self> {
        let keys = KeyRange::all();
        let start = feed.start(&keys, StartFrom::Beginning, FeedMode::LatestVersion).await?;
        Ok(Self { feed, keys, next: start.clone(), start, last: Lsn::ZERO })
    }

    fn rewind(&mut self) {
        self.next = self.start.clone();
        self.last = Lsn::ZERO;
    }

    /// Reads at least `changes` changes, and says how long that many took.
    async fn read(&mut self, changes: u64) -> Result<Duration> {
        let size = PageSize::items(PAGE_ITEMS);
        let mut count = 0;
        let stopwatch = Stopwatch::start();
        while count < changes {
            let page = self.feed.read(&self.keys, &self.next, size).await?;
            self.next = page.continuation;
            for change in &page.changes {
                if change.lsn < self.last {
                    return Err(
                        format!("the feed went back from {} to {}", self.last, change.lsn).into()
                    );
                }
                self.last = change.lsn;
                count += 1;
            }
            if page.newest <= self.last {
                self.rewind();
            } else if page.changes.is_empty() {
                return Err("the feed showed nothing although there is more".into());
            }
        }
        Ok(stopwatch.elapsed().mul_f64(float(changes) / float(count)))
    }
}
