//! Writers that remember what was acknowledged, a reader that follows the feed, and the comparison
//! of the two.
//!
//! Every commit of a writer writes an entity and two events with the same number in one batch. The
//! entity carries the number, so a commit that happened twice or never shows.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use millstream_backend_nats::NatsStore;
use millstream_core::{
    Batch, Change, Container, ContainerName, ContainerSettings, Containers, Effect, ErrorKind,
    FeedMode, ItemId, KeyRange, Operation, PageSize, PartitionKey, PartitionKeyDefinition,
    ScanScope, StartFrom, TimeToLive,
};
use tokio::task::JoinHandle;

const KEYS_PER_WRITER: u64 = 3;

/// What a writer knows about one of its keys.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    acknowledged: u64,
    /// The newest commit that may have happened.
    attempted: u64,
    /// The newest commit of which nobody could say whether it happened.
    doubtful: u64,
}

#[derive(Debug, Default)]
struct Tally {
    acknowledged: AtomicU64,
    refused: AtomicU64,
    unknown: AtomicU64,
    stop: AtomicBool,
}

pub(crate) struct Ledger {
    tally: Arc<Tally>,
    writers: Vec<JoinHandle<BTreeMap<String, Known>>>,
    readers: Vec<JoinHandle<Vec<Change>>>,
    drained: Arc<AtomicBool>,
}

fn name() -> ContainerName {
    ContainerName::new("faults", "data").unwrap()
}

/// The container all of them use.
pub(crate) async fn create(store: &NatsStore) {
    store.create_database("faults").await.unwrap();
    let settings = ContainerSettings::new(PartitionKeyDefinition::hash("/pk").unwrap())
        .ranges(2)
        .default_ttl(TimeToLive::Never)
        .all_versions_retention(Duration::from_secs(3600));
    store.create(&name(), settings).await.unwrap();
}

impl Ledger {
    pub(crate) async fn start(stores: Vec<NatsStore>, reader: NatsStore) -> Self {
        let tally = Arc::new(Tally::default());
        let drained = Arc::new(AtomicBool::new(false));
        let mut writers = Vec::new();
        for (number, store) in stores.into_iter().enumerate() {
            let container = store.open(&name()).await.unwrap();
            writers.push(tokio::spawn(write(number, container, Arc::clone(&tally))));
        }
        let container = reader.open(&name()).await.unwrap();
        let mut readers = Vec::new();
        for range in container.feed.ranges().await.unwrap() {
            let (container, drained) = (container.clone(), Arc::clone(&drained));
            readers.push(tokio::spawn(follow(container, range.keys, drained)));
        }
        Self { tally, writers, readers, drained }
    }

    pub(crate) fn acknowledged(&self) -> u64 {
        self.tally.acknowledged.load(Ordering::SeqCst)
    }

    /// Fails as soon as a writer or a reader has failed.
    pub(crate) fn check(&self) {
        let writers = self.writers.iter().filter(|it| it.is_finished()).count();
        let readers = self.readers.iter().filter(|it| it.is_finished()).count();
        assert_eq!((writers, readers), (0, 0), "somebody failed, and has said why");
    }

    /// Stops everybody and compares. Returns the commits the feed showed, and a summary.
    pub(crate) async fn stop(self, store: &NatsStore) -> (u64, String) {
        self.tally.stop.store(true, Ordering::SeqCst);
        let mut known = BTreeMap::new();
        for writer in self.writers {
            known.extend(writer.await.unwrap());
        }
        self.drained.store(true, Ordering::SeqCst);
        let mut seen = 0;
        let mut found: BTreeMap<String, u64> = BTreeMap::new();
        for reader in self.readers {
            let changes = reader.await.unwrap();
            seen += check_feed(&changes, &mut found);
        }
        let container = store.open(&name()).await.unwrap();
        for (key, known) in &known {
            let shown = PartitionKey::from(key.as_str()).to_string();
            let shown = found.get(&shown).copied().unwrap_or(0);
            check_key(&container, key, *known, shown).await;
        }
        let count = |it: &AtomicU64| it.load(Ordering::SeqCst);
        let Tally { acknowledged, refused, unknown, .. } = &*self.tally;
        let summary = format!(
            "{} acknowledged, {} failed without effect, {} with unknown effect",
            count(acknowledged),
            count(refused),
            count(unknown),
        );
        (seen, summary)
    }
}

/// Commits one batch after the other. After an unknown effect it looks before it goes on, as every
/// caller must.
async fn write(writer: usize, container: Container, tally: Arc<Tally>) -> BTreeMap<String, Known> {
    let mut keys: BTreeMap<String, Known> = (0..KEYS_PER_WRITER)
        .map(|it| (format!("writer-{writer}-{it}"), Known::default()))
        .collect();
    while !tally.stop.load(Ordering::SeqCst) {
        for (key, known) in &mut keys {
            let number = known.acknowledged + 1;
            known.attempted = number;
            match container.documents.commit(batch(key, number)).await {
                Ok(_) => {
                    known.acknowledged = number;
                    tally.acknowledged.fetch_add(1, Ordering::SeqCst);
                }
                Err(error) if error.effect() == Effect::None => {
                    tally.refused.fetch_add(1, Ordering::SeqCst);
                    if error.kind() == ErrorKind::AlreadyExists {
                        // An earlier commit whose effect was unknown has happened after all.
                        let report = error.report();
                        assert_eq!(known.doubtful, number, "it was said not to be: {report}");
                        known.acknowledged = settled(&container, key).await;
                        assert_eq!(known.acknowledged, number, "{}", error.report());
                    }
                }
                Err(error) => {
                    eprintln!("a writer looks after: {}", error.report());
                    tally.unknown.fetch_add(1, Ordering::SeqCst);
                    known.doubtful = number;
                    known.acknowledged = settled(&container, key).await;
                    assert!(number - 1 <= known.acknowledged && known.acknowledged <= number);
                }
            }
        }
    }
    keys
}

/// The number of a key, as soon as the cluster answers.
async fn settled(container: &Container, key: &str) -> u64 {
    loop {
        if let Ok(number) = read(container, key).await {
            return number;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

async fn read(container: &Container, key: &str) -> millstream_core::Result<u64> {
    let id = ItemId::new("entity").unwrap();
    let item = container.documents.read(&PartitionKey::from(key), &id).await?;
    Ok(item.map_or(0, |it| number_of(&it.body)))
}

fn batch(key: &str, number: u64) -> Batch {
    let event = |part: &str| {
        format!(r#"{{"id":"{part}-{number}","pk":"{key}","type":"domainEvent","n":{number}}}"#)
    };
    Batch::new(key)
        .with(Operation::upsert(format!(r#"{{"id":"entity","pk":"{key}","n":{number}}}"#)))
        .with(Operation::create(event("first")))
        .with(Operation::create(event("second")))
}

fn number_of(body: &[u8]) -> u64 {
    let value: serde_json::Value = serde_json::from_slice(body).unwrap();
    value["n"].as_u64().unwrap()
}

/// Follows the history of a range until everybody has stopped and nothing is left.
async fn follow(container: Container, keys: KeyRange, drained: Arc<AtomicBool>) -> Vec<Change> {
    let mut changes = Vec::new();
    let mut after = loop {
        match container.feed.start(&keys, StartFrom::Beginning, FeedMode::AllVersions).await {
            Ok(beginning) => break beginning,
            Err(error) => eprintln!("the reader begins anew after: {}", error.report()),
        }
    };
    loop {
        let is_last = drained.load(Ordering::SeqCst);
        match container.feed.read(&keys, &after, PageSize::items(200)).await {
            Ok(page) => {
                let is_dry = page.changes.is_empty() && page.continuation == after;
                changes.extend(page.changes);
                after = page.continuation;
                if is_dry && is_last {
                    return changes;
                }
                if !is_dry {
                    continue;
                }
            }
            Err(error) => eprintln!("the reader goes on after: {}", error.report()),
        }
        let wait = container.feed.wait(&keys, &after);
        let _ = tokio::time::timeout(Duration::from_millis(500), wait).await;
    }
}

/// Commits are whole, numbers increase, and those of a key have no gap. Returns how many there are.
fn check_feed(changes: &[Change], found: &mut BTreeMap<String, u64>) -> u64 {
    let mut count = 0;
    let mut last = None;
    for commit in changes.chunk_by(|one, next| one.lsn == next.lsn) {
        assert!(last < Some(commit[0].lsn), "commit {:?} after {last:?}", commit[0].lsn);
        last = Some(commit[0].lsn);
        assert_eq!(commit.len(), 3, "a batch is half visible: {commit:?}");
        let items: Vec<_> = commit.iter().map(|it| it.current.as_ref().unwrap()).collect();
        let number = number_of(&items[0].body);
        assert!(items.iter().all(|it| number_of(&it.body) == number), "batches are mixed");
        let key = commit[0].partition_key.to_string();
        let before = found.entry(key.clone()).or_default();
        assert_eq!(number, *before + 1, "{key} goes from {before} to {number}");
        let sequences: Vec<_> = items.iter().filter_map(|it| it.sequence).collect();
        assert_eq!(sequences, [2 * number - 1, 2 * number], "events of {key} are numbered wrongly");
        *before = number;
        count += 1;
    }
    count
}

async fn check_key(container: &Container, key: &str, known: Known, shown: u64) {
    let stored = settled(container, key).await;
    let Known { acknowledged, attempted, .. } = known;
    assert!(acknowledged <= stored, "{key}: {acknowledged} was acknowledged, {stored} is there");
    assert!(stored <= attempted.max(acknowledged), "{key}: {stored} was never written");
    assert_eq!(shown, stored, "{key}: the feed does not show all that is there");
    let ids = ids(container, key).await;
    for number in 1..=stored {
        for part in ["first", "second"] {
            let id = format!("{part}-{number}");
            assert!(ids.contains(&id), "{key}: event {id} is lost");
        }
    }
}

/// The ids of the items of a key.
async fn ids(container: &Container, key: &str) -> BTreeSet<String> {
    let scope = ScanScope::Partition(PartitionKey::from(key));
    let (mut ids, mut after) = (BTreeSet::new(), None);
    loop {
        let page = container.documents.scan(&scope, after.as_ref(), PageSize::items(1000)).await;
        let Ok(page) = page else {
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        ids.extend(page.items.iter().map(|it| it.id.as_str().to_owned()));
        after = page.continuation;
        if after.is_none() {
            return ids;
        }
    }
}
