//! What is asked of a server, at 64 connections, each of which waits for its answer.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use crate::{
    Result,
    gateway::{
        clients::{self, Progress},
        http::{Connection, Signer},
        process::ServerProcess,
        requests::{FEED_ITEMS, KEY, Plan, READ_ITEMS, Requests},
        wire::Endpoint,
    },
    measure::{Stopwatch, Usage, float},
    rounds::median,
    workload::{Random, Shape, item_body, partition_of},
};

pub(super) const CONNECTIONS: u64 = 64;
/// Enough for connections and caches to be warm.
const WARM_UP_MAX: Duration = Duration::from_millis(300);
/// Lets the writes of one round drain before the next.
const PAUSE: Duration = Duration::from_millis(200);

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    /// A point read.
    Read,
    /// A new item of 600 bytes.
    Create,
    /// Two new items in one transaction.
    Batch,
    /// A page of a hundred changes.
    Feed,
}

/// What one round showed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rate {
    pub(super) per_second: f64,
    /// Of the server, for one request.
    pub(super) processor_us: f64,
    /// Of the clients, for the same.
    pub(super) client_us: f64,
}

/// What all rounds showed.
#[derive(Debug, Default)]
pub(super) struct Rates(BTreeMap<Kind, Vec<Rate>>);

impl Kind {
    pub(super) const ALL: [Self; 4] = [Self::Read, Self::Create, Self::Batch, Self::Feed];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Create => "create",
            Self::Batch => "batch",
            Self::Feed => "feed",
        }
    }

    /// The items of the container it is asked of.
    pub(super) fn path(self) -> String {
        format!("/dbs/bench/colls/{}/docs", self.container())
    }

    fn container(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Create => "created",
            Self::Batch => "batches",
            Self::Feed => "feed",
        }
    }

    fn status(self) -> u16 {
        match self {
            Self::Create => 201,
            Self::Read | Self::Batch | Self::Feed => 200,
        }
    }
}

impl Rates {
    pub(super) fn add(&mut self, kind: Kind, rate: Rate) {
        self.0.entry(kind).or_default().push(rate);
    }

    pub(super) fn per_second(&self, kind: Kind) -> Option<f64> {
        median(self.0.get(&kind)?.iter().map(|it| it.per_second))
    }

    pub(super) fn processor_us(&self, kind: Kind) -> Option<f64> {
        median(self.0.get(&kind)?.iter().map(|it| it.processor_us))
    }

    pub(super) fn client_us(&self, kind: Kind) -> Option<f64> {
        median(self.0.get(&kind)?.iter().map(|it| it.client_us))
    }
}

/// Makes the containers, and what is read from them.
pub(super) fn prepare(server: &ServerProcess) -> Result<()> {
    let signer = Signer::new();
    let mut connection = Connection::new(server.endpoint().clone());
    let request = signer.request("POST", "/dbs", &[], r#"{"id":"bench"}"#)?;
    expect(&mut connection, &request, 201)?;
    for kind in Kind::ALL {
        let body = format!(
            r#"{{"id":"{}","partitionKey":{{"paths":["/partitionKey"],"kind":"Hash","version":2}}}}"#,
            kind.container()
        );
        let request = signer.request("POST", "/dbs/bench/colls", &[], &body)?;
        expect(&mut connection, &request, 201)?;
    }
    let mut random = Random::new(0);
    for (kind, items) in [(Kind::Read, READ_ITEMS), (Kind::Feed, FEED_ITEMS)] {
        for item in 0..items {
            let key = format!("[\"{}\"]", partition_of(item));
            let body = item_body(item, 0, Shape::CONTACT, &mut random);
            let request = signer.request("POST", &kind.path(), &[(KEY, &key)], &body)?;
            expect(&mut connection, &request, 201)?;
        }
    }
    Ok(())
}

/// Asks for one kind of thing as fast as the server answers. `usage` tells what the
/// server has used.
pub(super) async fn run_round(
    endpoint: &Endpoint,
    usage: impl Fn() -> Result<Usage>,
    kind: Kind,
    duration: Duration,
) -> Result<Rate> {
    let plan = Plan::new(kind, &Signer::new())?;
    let requests: Vec<Requests> =
        (0..CONNECTIONS).map(|_| plan.requests(client_number())).collect();
    let progress = Arc::new(Progress::default());
    let watched = Arc::clone(&progress);
    let endpoint = endpoint.clone();
    let clients = tokio::task::spawn_blocking(move || {
        clients::run(&endpoint, requests, kind.status(), &watched)
    });
    tokio::time::sleep(WARM_UP_MAX.min(duration / 10)).await;
    let before = progress.answered.load(Ordering::Relaxed);
    let (usage_before, own_before) = (usage()?, Usage::of_self()?);
    let stopwatch = Stopwatch::start();
    tokio::time::sleep(duration).await;
    let count = progress.answered.load(Ordering::Relaxed) - before;
    let elapsed = stopwatch.elapsed();
    let (used, own) = (usage()?.since(usage_before), Usage::of_self()?.since(own_before));
    progress.is_over.store(true, Ordering::Relaxed);
    clients.await??;
    tokio::time::sleep(PAUSE).await;
    if count == 0 {
        return Err(format!("no {} was answered in a whole round", kind.name()).into());
    }
    let microseconds = |it: Usage| it.processor.as_secs_f64() * 1e6 / float(count);
    Ok(Rate {
        per_second: float(count) / elapsed.as_secs_f64(),
        processor_us: microseconds(used),
        client_us: microseconds(own),
    })
}

fn expect(connection: &mut Connection, request: &[u8], status: u16) -> Result<()> {
    let (found, _) = connection.exchange(request)?;
    if found == status {
        return Ok(());
    }
    Err(format!("the server answered {found} where {status} was due").into())
}

/// A number no other client of this process has.
fn client_number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}
