//! Events per second while commits go on: writers commit as fast as they can, and what they commit
//! is relayed at the same time on the same machine. In turns with the peers.

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use tempfile::TempDir;
use tokio::task::JoinHandle;

use crate::{
    Options, Result,
    documents::{ContainerSubject, fill},
    measure::{Stopwatch, float},
    postgres::Postgres,
    postgres_server::Server,
    relay::{graphile::Follower, nats::Nats, peer::Poller, stage::Stage},
    report::{Figures, optional},
    rounds::{Crowd, Subject, median},
    workload::Shape,
};

/// Items that are there before, so that each commit changes one.
const ITEMS: u64 = 10_000;
const WRITERS: usize = 64;
const ADD_JOB: &str = "SELECT graphile_worker.add_job('publish', json_build_object(
    'event', $1::bigint, 'item', $2::bigint, 'body', $3::text))";
const WARM_UP: Duration = Duration::from_millis(500);
/// How long what is left of a round may take.
const REST_MAX: Duration = Duration::from_secs(60);
const LOOK_INTERVAL: Duration = Duration::from_millis(5);

/// What one round showed.
#[derive(Clone, Copy, Debug)]
struct Rates {
    committed: f64,
    relayed: f64,
}

/// Measures all of them in turns.
pub(super) async fn measure(
    directory: &Path,
    options: &Options,
    figures: &mut Figures,
) -> Result<()> {
    let mut stage = Stage::open(directory).await?;
    fill(&stage.data.documents, 0, ITEMS, Shape::CONTACT).await?;
    stage.publisher.begin(false);
    let monitor = stage.start_relay().await?;
    let documents = Arc::clone(&stage.data.documents);
    let ours = ContainerSubject { documents, fdatasyncs: || 0 };
    let (polled, worked) = match options.postgres {
        true => (Polled::start(directory).await?, Worked::start(directory).await?),
        false => (None, None),
    };
    let [mut own, mut into_stream, mut by_worker] = [const { Vec::new() }; 3];
    for _ in 0..options.rounds {
        let seconds = options.duration();
        own.push(round(&ours, || monitor.messages_published(), seconds).await?);
        if let Some(it) = &polled {
            into_stream.push(round(&it.database, || it.relayed(), seconds).await?);
        }
        if let Some(it) = &worked {
            by_worker.push(round(&it.database, || it.worker.done(), seconds).await?);
        }
    }
    stage.check_order()?;
    println!("while {WRITERS} writers commit, relayed and acknowledged at the same time:");
    let of = |rounds: &[Rates], value: fn(&Rates) -> f64| median(rounds.iter().map(value));
    let rows = [
        ("ours, in the order of each key", &own),
        ("PostgreSQL into NATS JetStream", &into_stream),
        ("graphile-worker, jobs that do nothing", &by_worker),
    ];
    for (name, rounds) in rows {
        println!(
            "  {name:<37} {:>6} events/s of {} committed",
            optional(of(rounds, |it| it.relayed), 0),
            optional(of(rounds, |it| it.committed), 0),
        );
    }
    let best = |round: usize| {
        let peers = [&into_stream, &by_worker].into_iter().filter_map(|it| it.get(round));
        peers.map(|it| it.relayed).reduce(f64::max)
    };
    let ratios = own.iter().enumerate().filter_map(|(at, it)| Some(it.relayed / best(at)?));
    figures.add("relay.events_per_s", of(&own, |it| it.relayed));
    figures.add("relay.peer_events_per_s", of(&into_stream, |it| it.relayed));
    figures.add("relay.graphile_events_per_s", of(&by_worker, |it| it.relayed));
    figures.add("relay.peer_ratio", median(ratios));
    if let Some(polled) = polled {
        polled.stop().await?;
    }
    stage.close().await
}

/// Commits for so long, and waits until everything is relayed.
async fn round(
    subject: &dyn Subject,
    relayed: impl Fn() -> u64,
    duration: Duration,
) -> Result<Rates> {
    let before_all = relayed();
    let crowd = Crowd::start(subject.writers(WRITERS).await?, ITEMS);
    tokio::time::sleep(WARM_UP).await;
    let before = relayed();
    let stopwatch = Stopwatch::start();
    crowd.enter_next_phase();
    tokio::time::sleep(duration).await;
    crowd.enter_next_phase();
    let count = relayed() - before;
    let seconds = stopwatch.elapsed().as_secs_f64();
    let phases = crowd.stop().await?;
    let committed: u64 = phases.iter().map(|it| it.count()).sum();
    // The last commit of each writer is in no phase.
    let committed = committed + u64::try_from(WRITERS)?;
    let rest = Stopwatch::start();
    while relayed() - before_all < committed {
        if REST_MAX < rest.elapsed() {
            let relayed = relayed() - before_all;
            return Err(format!("{relayed} of {committed} events were relayed").into());
        }
        tokio::time::sleep(LOOK_INTERVAL).await;
    }
    let rates =
        Rates { committed: float(phases[1].count()) / seconds, relayed: float(count) / seconds };
    eprintln!(
        "{}: {:.0} committed/s, {:.0} relayed/s, the rest in {:.2} s",
        subject.name(),
        rates.committed,
        rates.relayed,
        rest.elapsed().as_secs_f64()
    );
    Ok(rates)
}

/// PostgreSQL, and who polls it into a stream.
struct Polled {
    database: Postgres,
    relayed: Arc<AtomicU64>,
    is_over: Arc<AtomicBool>,
    poller: JoinHandle<Result<()>>,
    _stream: TempDir,
}

impl Polled {
    /// None if something of it is not installed.
    async fn start(directory: &Path) -> Result<Option<Self>> {
        let stream = tempfile::tempdir_in(directory)?;
        let Some(nats) = Nats::start(stream.path(), false)? else { return Ok(None) };
        let Some(server) = Server::start(directory)? else { return Ok(None) };
        let database = Postgres::fill(server, ITEMS).await?;
        let (relayed, is_over) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let poller = Poller::new(database.connect().await?, Some(nats)).await?;
        let poller = tokio::spawn(poll(poller, Arc::clone(&relayed), Arc::clone(&is_over)));
        Ok(Some(Self { database, relayed, is_over, poller, _stream: stream }))
    }

    fn relayed(&self) -> u64 {
        self.relayed.load(Ordering::Relaxed)
    }

    async fn stop(self) -> Result<()> {
        self.is_over.store(true, Ordering::Relaxed);
        self.poller.await?
    }
}

/// PostgreSQL with jobs, and who does them.
struct Worked {
    // First, because it ends before its database does.
    worker: Follower,
    database: Postgres,
}

impl Worked {
    /// None if something of it is not installed.
    async fn start(directory: &Path) -> Result<Option<Self>> {
        let Some(server) = Server::start(directory)? else { return Ok(None) };
        let database = Postgres::fill(server, ITEMS).await?.adding_by(ADD_JOB);
        let Some(worker) = Follower::start(directory, database.server()).await? else {
            return Ok(None);
        };
        Ok(Some(Self { worker, database }))
    }
}

async fn poll(mut poller: Poller, relayed: Arc<AtomicU64>, is_over: Arc<AtomicBool>) -> Result<()> {
    while !is_over.load(Ordering::Relaxed) {
        let count = poller.poll().await?;
        relayed.fetch_add(count, Ordering::Relaxed);
        if count == 0 {
            tokio::time::sleep(LOOK_INTERVAL).await;
        }
    }
    Ok(())
}
