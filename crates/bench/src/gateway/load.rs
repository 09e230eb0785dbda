//! What is asked of a server, at 64 connections, each of which waits for its answer.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::task::JoinSet;

use crate::{
    Result,
    gateway::{
        http::{Connection, Signer},
        process::ServerProcess,
    },
    measure::{Stopwatch, float},
    rounds::median,
    workload::{Random, Shape, item_body, item_id, partition_of},
};

pub(super) const CONNECTIONS: u64 = 64;
/// Items that are read one at a time.
pub(super) const READ_ITEMS: u64 = 1000;
/// Items of the page of a feed.
const FEED_ITEMS: u64 = 100;
/// Items of the first operation of a batch are numbered from here, those of the second from twice.
const BATCH_ITEMS: u64 = 1 << 40;
/// Enough for connections and caches to be warm.
const WARM_UP_MAX: Duration = Duration::from_millis(300);
/// Lets the writes of one round drain before the next.
const PAUSE: Duration = Duration::from_millis(200);
const KEY: &str = "x-ms-documentdb-partitionkey";

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

    /// The container it is asked of.
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
}

/// Makes the containers, and what is read from them.
pub(super) async fn prepare(server: &ServerProcess) -> Result<()> {
    let signer = Signer::new();
    let mut connection = Connection::new(server.address());
    let request = signer.request("POST", "/dbs", &[], r#"{"id":"bench"}"#)?;
    expect(&mut connection, &request, 201).await?;
    for kind in Kind::ALL {
        let body = format!(
            r#"{{"id":"{}","partitionKey":{{"paths":["/partitionKey"],"kind":"Hash","version":2}}}}"#,
            kind.container()
        );
        let request = signer.request("POST", "/dbs/bench/colls", &[], &body)?;
        expect(&mut connection, &request, 201).await?;
    }
    for (kind, items) in [(Kind::Read, READ_ITEMS), (Kind::Feed, FEED_ITEMS)] {
        let mut requests = Requests::new(kind, &signer, 0)?;
        for item in 0..items {
            let request = requests.create(item)?;
            expect(&mut connection, request, 201).await?;
        }
    }
    Ok(())
}

/// Asks for one kind of thing as fast as the server answers.
pub(super) async fn run_round(
    server: &ServerProcess,
    kind: Kind,
    duration: Duration,
) -> Result<Rate> {
    let signer = Signer::new();
    let (answered, is_over) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let mut clients = JoinSet::new();
    for _ in 0..CONNECTIONS {
        let mut requests = Requests::new(kind, &signer, client_number())?;
        let mut connection = Connection::new(server.address());
        let (answered, is_over) = (Arc::clone(&answered), Arc::clone(&is_over));
        clients.spawn(async move {
            while !is_over.load(Ordering::Relaxed) {
                expect(&mut connection, requests.next()?, kind.status()).await?;
                answered.fetch_add(1, Ordering::Relaxed);
            }
            Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
        });
    }
    tokio::time::sleep(WARM_UP_MAX.min(duration / 10)).await;
    let (usage_before, before) = (server.usage()?, answered.load(Ordering::Relaxed));
    let stopwatch = Stopwatch::start();
    tokio::time::sleep(duration).await;
    let count = answered.load(Ordering::Relaxed) - before;
    let (elapsed, usage) = (stopwatch.elapsed(), server.usage()?.since(usage_before));
    is_over.store(true, Ordering::Relaxed);
    while let Some(ended) = clients.join_next().await {
        ended??;
    }
    tokio::time::sleep(PAUSE).await;
    if count == 0 {
        return Err(format!("no {} was answered in a whole round", kind.name()).into());
    }
    Ok(Rate {
        per_second: float(count) / elapsed.as_secs_f64(),
        processor_us: usage.processor.as_secs_f64() * 1e6 / float(count),
    })
}

async fn expect(connection: &mut Connection, request: &[u8], status: u16) -> Result<()> {
    let (found, _) = connection.exchange(request).await?;
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

/// The requests of one client.
struct Requests {
    kind: Kind,
    random: Random,
    /// Up to the partition key, which differs.
    head: String,
    /// Whole requests, if they are always the same.
    made: Arc<Vec<Vec<u8>>>,
    item_next: u64,
    request: Vec<u8>,
}

impl Requests {
    fn new(kind: Kind, signer: &Signer, client: u64) -> Result<Self> {
        let path = format!("/dbs/bench/colls/{}/docs", kind.container());
        let batch =
            [("x-ms-cosmos-is-batch-request", "True"), ("x-ms-cosmos-batch-atomic", "True")];
        let headers: &[(&str, &str)] = if kind == Kind::Batch { &batch } else { &[] };
        let made = match kind {
            Kind::Read => reads(signer, &path)?,
            Kind::Feed => {
                let count = FEED_ITEMS.to_string();
                let headers = [
                    ("a-im", "Incremental Feed"),
                    ("x-ms-documentdb-partitionkeyrangeid", "0"),
                    ("x-ms-max-item-count", count.as_str()),
                ];
                vec![signer.request("GET", &path, &headers, "")?]
            }
            Kind::Create | Kind::Batch => Vec::new(),
        };
        Ok(Self {
            kind,
            random: Random::new(client),
            head: signer.head("POST", &path, headers)?,
            made: Arc::new(made),
            item_next: client << 24,
            request: Vec::new(),
        })
    }

    fn next(&mut self) -> Result<&[u8]> {
        if !self.made.is_empty() {
            let index = self.random.below(u64::try_from(self.made.len())?);
            return Ok(&self.made[usize::try_from(index)?]);
        }
        let item = self.item_next;
        self.item_next += 1;
        if self.kind == Kind::Create {
            return self.create(item);
        }
        let operations = [item, BATCH_ITEMS + item].map(|it| {
            let body = item_body(it, 0, Shape::CONTACT, &mut self.random);
            // Both have to be of one partition.
            let body = body.replacen(&partition_of(it), &partition_of(item), 1);
            format!(r#"{{"operationType":"Create","resourceBody":{body}}}"#)
        });
        let body = format!("[{}]", operations.join(","));
        Ok(self.post(item, &body))
    }

    fn create(&mut self, item: u64) -> Result<&[u8]> {
        let body = item_body(item, 0, Shape::CONTACT, &mut self.random);
        Ok(self.post(item, &body))
    }

    fn post(&mut self, item: u64, body: &str) -> &[u8] {
        self.request.clear();
        self.request.extend(self.head.bytes());
        let key = partition_of(item);
        let rest = format!("{KEY}: [\"{key}\"]\r\ncontent-length: {}\r\n\r\n", body.len());
        self.request.extend(rest.bytes());
        self.request.extend(body.bytes());
        &self.request
    }
}

/// A point read of each item. Signing one takes about as long as answering it.
fn reads(signer: &Signer, path: &str) -> Result<Vec<Vec<u8>>> {
    let read = |item| {
        let key = format!("[\"{}\"]", partition_of(item));
        signer.request("GET", &format!("{path}/{}", item_id(item)), &[(KEY, &key)], "")
    };
    (0..READ_ITEMS).map(read).collect()
}
