//! `bench ttl`: how much commits slow down while many items expire.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use millstream_core::{
    BoxFuture, ChangeFeed, Clock, FeedMode, KeyRange, PageSize, StartFrom, SystemClock, Timestamp,
};

use crate::{
    Options, Result,
    documents::{DocumentWriter, create, fill},
    measure::{Histogram, Stopwatch, float},
    report::{Figures, optional},
    rounds::{Crowd, Writer, median},
    store,
    workload::{Pair, Shape},
};

/// Items the foreground load updates; these never expire.
const ITEMS: u64 = 10_000;
const EXPIRING: u64 = 500_000;
const SHAPE: Shape = Shape { bytes: 600, ttl_seconds: Some(3600) };
const WRITERS: usize = 8;
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// After this something is wrong, and the benchmark says so.
const EXPIRY_TIME_MAX: Duration = Duration::from_secs(300);

/// Runs the benchmark.
pub(crate) async fn run(options: &Options) -> Result<Figures> {
    let directory = options.fresh_directory()?;
    let clock = Arc::new(MovableClock::default());
    let store = store::open_at(directory.path(), clock.clone())?;
    let container = create(&store, "items").await?;
    fill(&container.documents, 0, ITEMS, Shape::CONTACT).await?;

    let expiring = options.scaled(EXPIRING);
    let mut ratios = Vec::new();
    for round in 1..=options.rounds {
        fill(&container.documents, ITEMS, ITEMS + expiring, SHAPE).await?;
        let committed = Arc::new(AtomicU64::new(0));
        let newest_before = newest(&*container.feed).await?;
        let writer = || -> Box<dyn Writer> {
            let writer = DocumentWriter(Arc::clone(&container.documents));
            Box::new(CountingWriter { writer, committed: Arc::clone(&committed) })
        };
        let crowd = Crowd::start((0..WRITERS).map(|_| writer()).collect(), ITEMS);
        tokio::time::sleep(options.duration() / 5).await;
        crowd.enter_next_phase();
        // Twice a round: all later figures are compared with this one.
        tokio::time::sleep(options.duration() * 2).await;

        clock.advance(Duration::from_secs(3601));
        let stopwatch = Stopwatch::start();
        crowd.enter_next_phase();
        loop {
            // Every expiry is a commit of its own; the writers' commits are subtracted.
            let commits = newest(&*container.feed).await? - newest_before;
            if expiring <= commits.saturating_sub(committed.load(Ordering::SeqCst)) {
                break;
            }
            if EXPIRY_TIME_MAX < stopwatch.elapsed() {
                return Err("the items did not expire in five minutes".into());
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        let elapsed = stopwatch.elapsed();
        let phases = crowd.stop().await?;
        let (before, during) = (Summary::of(&phases[1]), Summary::of(&phases[2]));
        let rate = float(expiring) / elapsed.as_secs_f64();
        println!("round {round}: {expiring} items expired in {elapsed:.2?} ({rate:.0}/s)");
        println!("  before  {before}");
        println!("  during  {during}");
        ratios.push(during.p99_ms / before.p99_ms);
    }
    let ratio = median(ratios);
    println!("p99 during / before: {}", optional(ratio, 2));
    let mut figures = Figures::default();
    figures.add("ttl.p99_ratio", ratio);
    Ok(figures)
}

/// The number of the newest commit.
async fn newest(feed: &dyn ChangeFeed) -> Result<u64> {
    let keys = KeyRange::all();
    let now = feed.start(&keys, StartFrom::Now, FeedMode::LatestVersion).await?;
    Ok(feed.read(&keys, &now, PageSize::items(1)).await?.newest.as_u64())
}

/// A writer whose commits are counted when they are done.
struct CountingWriter {
    writer: DocumentWriter,
    committed: Arc<AtomicU64>,
}

#[async_trait]
impl Writer for CountingWriter {
    async fn commit(&mut self, pair: Pair) -> Result<()> {
        self.writer.commit(pair).await?;
        self.committed.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }
}

struct Summary {
    commits: u64,
    p50_ms: f64,
    p99_ms: f64,
    worst_ms: f64,
}

impl Summary {
    fn of(latencies: &Histogram) -> Self {
        let milliseconds = |per_mille| latencies.quantile(per_mille).as_secs_f64() * 1e3;
        Self {
            commits: latencies.count(),
            p50_ms: milliseconds(500),
            p99_ms: milliseconds(990),
            worst_ms: latencies.worst().as_secs_f64() * 1e3,
        }
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { commits, p50_ms, p99_ms, worst_ms } = self;
        write!(
            formatter,
            "{commits} commits, p50 {p50_ms:.3} ms, p99 {p99_ms:.3} ms, worst {worst_ms:.1} ms",
        )
    }
}

/// The clock of the machine, put forward on demand, so that items expire when the benchmark wants.
#[derive(Debug, Default)]
struct MovableClock {
    system: SystemClock,
    ahead_millis: AtomicU64,
}

impl MovableClock {
    fn advance(&self, duration: Duration) {
        let millis = u64::try_from(duration.as_millis()).expect("an hour is not long");
        self.ahead_millis.fetch_add(millis, Ordering::SeqCst);
    }
}

impl Clock for MovableClock {
    fn now(&self) -> Timestamp {
        self.system.now().plus(Duration::from_millis(self.ahead_millis.load(Ordering::SeqCst)))
    }

    fn monotonic(&self) -> Duration {
        self.system.monotonic()
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        self.system.sleep(duration)
    }
}
