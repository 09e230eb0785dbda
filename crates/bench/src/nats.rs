//! `bench nats`: commits, the feed and the way from a commit to a reader on NATS JetStream, against
//! plain atomic publishes, plain reads and a plain consumer of the same bytes on the same servers.
//!
//! Three servers on this machine replicate every stream, as they do in production. With one replica
//! a server stages every atomic batch in files of its own, and everybody who publishes one waits
//! for that. Everyone is connected to the server that leads all streams.
//!
//! A commit of ours is one message more than a plain batch: the last number given to an event of
//! the partition, so that events are numbered without gaps.

mod arrival;
mod raw;
mod servers;

use std::{io, sync::Arc, time::Duration};

use async_trait::async_trait;
use millstream_backend_nats::{Connection, ConnectionOptions, NatsStore};
use millstream_core::{Container, FeedMode, KeyRange, PageSize, StartFrom};

use crate::{
    Options, Result,
    documents::{DocumentWriter, create, fill},
    measure::{Histogram, Stopwatch, Usage, float},
    nats::{arrival::FeedReader, raw::Raw, servers::Servers},
    report::{Figures, optional},
    rounds::{Load, Round, Subject, Writer, interleave, median, median_ratio, writer_number},
    workload::{Pairs, Shape},
};

/// Items that are there before the first round.
const ITEMS: u64 = 2_000;
/// Servers that have just started elect a leader first.
const OPEN_ATTEMPTS_MAX: u32 = 60;
const OPEN_INTERVAL: Duration = Duration::from_millis(500);
/// Changes in a page of the feed.
const PAGE_ITEMS: usize = 1000;

/// What is reported.
const FIGURES: [&str; 6] = [
    "nats.commit_ratio",
    "nats.latency_ratio",
    "nats.arrival_p50_ms",
    "nats.arrival_ratio",
    "nats.feed_items_per_s",
    "nats.feed_ratio",
];

/// Runs the benchmark; every figure is skipped where no server is installed.
pub(crate) async fn run(options: &Options) -> Result<Figures> {
    let mut figures = Figures::default();
    let directory = options.fresh_directory()?;
    let Some(servers) = Servers::start(directory.path())? else {
        eprintln!("nats-server is not installed; nothing is measured");
        for name in FIGURES {
            figures.add(name, None);
        }
        return Ok(figures);
    };
    let store = open(&servers).await?;
    let container = create(&store, "items").await?;
    fill(&container.documents, 0, ITEMS, Shape::CONTACT).await?;
    let raw = Raw::open(&servers.url, Servers::COUNT, ITEMS).await?;
    servers.lead_with_first().await?;
    let ours = OnNats(container.clone());
    commits(&raw, &ours, options, &mut figures).await?;
    arrivals(&raw, &ours, options, &mut figures).await?;
    feeds(&raw, &container, options, &mut figures).await?;
    Ok(figures)
}

async fn commits(raw: &Raw, ours: &OnNats, options: &Options, figures: &mut Figures) -> Result<()> {
    let subjects: [&dyn Subject; 2] = [raw, ours];
    println!("writers subject   batches/s   p50 ms   p99 ms worst ms");
    for &writers in &options.writers {
        let load = Load { writers, items: ITEMS, duration: options.duration(), device: None };
        let rounds = interleave(&subjects, load, options.rounds, |name, round, result| {
            let rate = result.batches_per_second;
            eprintln!("{writers:>3} writers, round {round}, {name}: {rate:.0} batches/s");
        });
        let rounds = rounds.await?;
        print_rows(writers, &rounds);
        let (raw, ours) = (&rounds[0], &rounds[1]);
        let rate = median_ratio(ours, raw, |it| it.batches_per_second);
        let latency = median_ratio(ours, raw, |it| it.p50_ms);
        println!("{writers:>7} millstream/raw: {} batches/s, {} p50", show(rate), show(latency));
        if writers == most(&options.writers) {
            figures.add("nats.commit_ratio", rate);
        }
        if writers == least(&options.writers) {
            figures.add("nats.latency_ratio", latency);
        }
    }
    Ok(())
}

/// From the start of a commit to a reader that waits, in turns.
async fn arrivals(
    raw: &Raw,
    ours: &OnNats,
    options: &Options,
    figures: &mut Figures,
) -> Result<()> {
    let pairs = || Pairs::new(writer_number(), ITEMS);
    let (mut plain, mut fed) = (Vec::new(), Vec::new());
    for _ in 0..options.rounds {
        let reader = Box::new(raw.reader().await?);
        plain.push(arrival::measure(raw, reader, pairs(), options.duration()).await?);
        let reader = Box::new(FeedReader::new(&ours.0).await?);
        fed.push(arrival::measure(ours, reader, pairs(), options.duration()).await?);
    }
    let middle = |rounds: &[Histogram], per_mille| {
        median(rounds.iter().map(|it| it.quantile(per_mille).as_secs_f64() * 1e3))
    };
    for (name, rounds) in [("raw", &plain), ("millstream", &fed)] {
        let (p50, p99) = (optional(middle(rounds, 500), 3), optional(middle(rounds, 990), 3));
        println!("commit to a waiting reader, {name}: p50 {p50} ms, p99 {p99} ms");
    }
    let p50 = |it: &Histogram| it.quantile(500).as_secs_f64();
    let ratios = fed.iter().zip(&plain).map(|(ours, raw)| p50(ours) / p50(raw));
    figures.add("nats.arrival_p50_ms", middle(&fed, 500));
    figures.add("nats.arrival_ratio", median(ratios));
    Ok(())
}

/// The whole feed, and the whole raw stream, in turns.
async fn feeds(
    raw: &Raw,
    container: &Container,
    options: &Options,
    figures: &mut Figures,
) -> Result<()> {
    let (mut plain, mut fed) = (Vec::new(), Vec::new());
    for _ in 0..options.rounds {
        plain.push(raw.read().await?);
        fed.push(read_feed(container).await?);
    }
    let (plain, fed) = (median(plain), median(fed));
    println!(
        "feed: {} changes/s; a plain consumer of a stream of the same kind: {} messages/s",
        optional(fed, 0),
        optional(plain, 0),
    );
    figures.add("nats.feed_items_per_s", fed);
    figures.add("nats.feed_ratio", fed.zip(plain).map(|(fed, plain)| fed / plain));
    Ok(())
}

/// Opens the store once the servers have found each other.
async fn open(servers: &Servers) -> Result<NatsStore> {
    let options = ConnectionOptions::parse(&servers.url)?.replicas(Servers::COUNT);
    let mut attempt = 0;
    loop {
        let opened = match Connection::open(options.clone()).await {
            Ok(connection) => NatsStore::open(connection).await,
            Err(error) => Err(error),
        };
        attempt += 1;
        match opened {
            Ok(store) => return Ok(store),
            Err(error) if OPEN_ATTEMPTS_MAX <= attempt => return Err(error.into()),
            Err(_) => tokio::time::sleep(OPEN_INTERVAL).await,
        }
    }
}

fn show(value: Option<f64>) -> String {
    optional(value, 2)
}

fn most(writers: &[usize]) -> usize {
    writers.iter().copied().max().unwrap_or(0)
}

fn least(writers: &[usize]) -> usize {
    writers.iter().copied().min().unwrap_or(0)
}

fn print_rows(writers: usize, rounds: &[Vec<Round>]) {
    for (name, rounds) in ["raw", "millstream"].iter().zip(rounds) {
        let of = |value: fn(&Round) -> f64| median(rounds.iter().map(value));
        println!(
            "{writers:>7} {name:<10} {:>8} {:>8} {:>8} {:>8}",
            optional(of(|it| it.batches_per_second), 0),
            optional(of(|it| it.p50_ms), 3),
            optional(of(|it| it.p99_ms), 3),
            optional(rounds.iter().map(|it| it.worst_ms).reduce(f64::max), 1),
        );
    }
}

/// Changes per second from the beginning of the feed to its end.
async fn read_feed(container: &Container) -> Result<f64> {
    let (keys, feed) = (KeyRange::all(), &container.feed);
    let mut after = feed.start(&keys, StartFrom::Beginning, FeedMode::LatestVersion).await?;
    let stopwatch = Stopwatch::start();
    let mut count = 0_u64;
    loop {
        let page = feed.read(&keys, &after, PageSize::items(PAGE_ITEMS)).await?;
        count += u64::try_from(page.changes.len())?;
        if page.changes.is_empty() && page.continuation == after {
            return Ok(float(count) / stopwatch.elapsed().as_secs_f64());
        }
        after = page.continuation;
    }
}

/// A container of ours.
struct OnNats(Container);

#[async_trait]
impl Subject for OnNats {
    fn name(&self) -> &'static str {
        "millstream"
    }

    async fn writers(&self, count: usize) -> Result<Vec<Box<dyn Writer>>> {
        let writer =
            |_| -> Box<dyn Writer> { Box::new(DocumentWriter(Arc::clone(&self.0.documents))) };
        Ok((0..count).map(writer).collect())
    }

    async fn fdatasyncs(&self) -> Result<Option<u64>> {
        Ok(None)
    }

    fn usage(&self) -> io::Result<Usage> {
        Usage::of_self()
    }
}
