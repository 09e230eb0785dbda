use std::{
    collections::BTreeMap,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
};

use millstream_core::{
    Batch, Container, ContainerName, ContainerSettings, Containers, ErrorKind, FeedMode, Item,
    ItemId, Operation, PageSize, PartitionKey, PartitionKeyDefinition, ScanScope, StartFrom,
    conformance::block_on,
};

use crate::{
    error::{Attempt, Error, Result},
    random::Random,
    subject::{Ack, Acks, FeedItem, ItemName, Load, Observed, Page, Partition, Subject, Version},
};

/// Commit numbers count within a range, so there must be more than one.
const RANGES: u32 = 2;
/// Small, so that pages end in many places.
const PAGE_ITEMS: usize = 3;
/// Bodies of different sizes put the ends of records everywhere, and fill the store's memory soon
/// enough.
const FILLER_BYTES_MAX: u64 = 3000;

/// Any store behind the ports of the contract.
pub struct Ports {
    open: Box<OpenStore>,
}

/// Opens the store in a directory; it closes when the last reference is dropped.
type OpenStore = dyn Fn(&Path) -> AnyStore + Send + Sync;
type AnyStore = millstream_core::Result<Arc<dyn Containers>>;

impl std::fmt::Debug for Ports {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Ports").finish_non_exhaustive()
    }
}

impl Ports {
    /// The store that `open` opens.
    pub fn new(open: impl Fn(&Path) -> AnyStore + Send + Sync + 'static) -> Self {
        Self { open: Box::new(open) }
    }

    fn open(&self, directory: &Path) -> Result<Opened> {
        let store = (self.open)(directory).attempt(|| "open the store")?;
        block_on(Opened::new(store)).attempt(|| "open the container")
    }
}

impl Subject for Ports {
    fn load(&self, directory: &Path, load: &Load, acks: &Acks) -> Result<()> {
        let opened = self.open(directory)?;
        let left = AtomicU64::new(load.commits);
        let take = || {
            left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |it| it.checked_sub(1)).is_ok()
        };
        thread::scope(|scope| {
            let writers: Vec<_> = (1..=load.writers)
                .map(|writer| {
                    let opened = &opened;
                    scope.spawn(move || {
                        let mut random = Random::new(load.seed ^ (u64::from(writer) << 32));
                        let mut number = block_on(opened.counter(writer))?;
                        while take() {
                            number += 1;
                            let ack = block_on(opened.commit(writer, number, &mut random))?;
                            acks.send(&ack)?;
                        }
                        Ok(())
                    })
                })
                .collect();
            writers.into_iter().try_for_each(|it| {
                it.join().map_err(|_| Error::new("run a writer: it panicked"))?
            })
        })
    }

    fn observe(&self, directory: &Path, writers: u32) -> Result<Observed> {
        let opened = self.open(directory)?;
        block_on(async {
            let mut observed = Observed::default();
            for writer in 1..=writers {
                let partition = opened.partition(writer).await?;
                if partition.entity.is_some() || !partition.events.is_empty() {
                    observed.writers.insert(writer, partition);
                }
            }
            observed.feed = opened.feed().await?;
            let mut random = Random::new(0);
            for writer in 1..=writers {
                let number = opened.counter(writer).await? + 1;
                observed.next.push(opened.commit(writer, number, &mut random).await?);
            }
            Ok(observed)
        })
    }
}

struct Opened {
    container: Container,
    // Closes the store after the container.
    _store: Arc<dyn Containers>,
}

impl Opened {
    /// Makes database and container where a crash came before or between.
    async fn new(store: Arc<dyn Containers>) -> millstream_core::Result<Self> {
        let may_exist = |result: millstream_core::Result<()>| match result {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(error),
            Err(_) | Ok(()) => Ok(()),
        };
        let name = ContainerName::new("crash", "data")?;
        may_exist(store.create_database(name.database()).await.map(drop))?;
        let definition = PartitionKeyDefinition::hash("/partitionKey")?;
        let settings = ContainerSettings::new(definition).ranges(RANGES);
        may_exist(store.create(&name, settings).await.map(drop))?;
        let container = store.open(&name).await?;
        Ok(Self { container, _store: store })
    }

    async fn counter(&self, writer: u32) -> Result<u64> {
        let id = ItemId::new("entity").attempt(|| "name an entity")?;
        let item = self.container.documents.read(&PartitionKey::from(key(writer)), &id).await;
        item.attempt(|| format!("read the entity of writer {writer}"))?
            .as_ref()
            .map_or(Ok(0), counter)
    }

    async fn commit(&self, writer: u32, number: u64, random: &mut Random) -> Result<Ack> {
        let key = key(writer);
        let filler = "x".repeat(usize::try_from(random.below(FILLER_BYTES_MAX)).unwrap_or(0));
        let batch = Batch::new(key.clone())
            .with(Operation::upsert(format!(
                r#"{{"id":"entity","partitionKey":"{key}","n":{number}}}"#
            )))
            .with(Operation::create(format!(
                r#"{{"id":"event-{number}","partitionKey":"{key}","type":"domainEvent","filler":"{filler}"}}"#
            )));
        let outcome = self
            .container
            .documents
            .commit(batch)
            .await
            .attempt(|| format!("make commit {number} of writer {writer}"))?;
        let etag = |index: usize| {
            let item = outcome.results.get(index).and_then(|it| it.item());
            let item =
                item.ok_or_else(|| Error::new("find the items of a commit in its outcome"))?;
            Ok::<_, Error>(item.etag.to_string())
        };
        Ok(Ack {
            writer,
            number,
            range: self.range_of(writer).await?,
            lsn: outcome.lsn.as_u64(),
            entity_etag: etag(0)?,
            event_etag: etag(1)?,
        })
    }

    async fn range_of(&self, writer: u32) -> Result<u32> {
        let definition = &self.container.info.settings.partition_key;
        let key =
            definition.effective(&PartitionKey::from(key(writer))).attempt(|| "hash a key")?;
        let ranges = self.container.feed.ranges().await.attempt(|| "list the ranges")?;
        let range = ranges.iter().find(|it| it.keys.contains(&key));
        Ok(range.ok_or_else(|| Error::new(format!("find the range of writer {writer}")))?.id.0)
    }

    /// Everything of one writer, by key.
    async fn partition(&self, writer: u32) -> Result<Partition> {
        let mut partition =
            Partition { range: self.range_of(writer).await?, ..Partition::default() };
        let scope = ScanScope::Partition(PartitionKey::from(key(writer)));
        let mut after = None;
        loop {
            let page = self
                .container
                .documents
                .scan(&scope, after.as_ref(), PageSize::default())
                .await
                .attempt(|| format!("read what writer {writer} has left"))?;
            for item in &page.items {
                match name(item)? {
                    ItemName::Entity => partition.entity = Some((counter(item)?, version(item))),
                    ItemName::Event(number) => drop(partition.events.insert(number, version(item))),
                }
            }
            after = page.continuation;
            if after.is_none() {
                return Ok(partition);
            }
        }
    }

    async fn feed(&self) -> Result<Vec<Page>> {
        let feed = &self.container.feed;
        let mut pages = Vec::new();
        for range in feed.ranges().await.attempt(|| "list the ranges")? {
            let mut after = feed
                .start(&range.keys, StartFrom::Beginning, FeedMode::LatestVersion)
                .await
                .attempt(|| "start reading the feed")?;
            loop {
                let page = feed
                    .read(&range.keys, &after, PageSize::items(PAGE_ITEMS))
                    .await
                    .attempt(|| "read a page of the feed")?;
                let mut items = Vec::new();
                for change in &page.changes {
                    let item = change.current.as_ref();
                    let item = item.ok_or_else(|| Error::new("find the item of a change"))?;
                    let version = Version { lsn: change.lsn.as_u64(), etag: item.etag.to_string() };
                    items.push(FeedItem { writer: writer(item)?, name: name(item)?, version });
                }
                // An empty page is the end only if it leads nowhere.
                if items.is_empty() && page.continuation == after {
                    break;
                }
                pages.push(Page { range: range.id.0, items });
                after = page.continuation;
            }
        }
        Ok(pages)
    }
}

fn key(writer: u32) -> String {
    format!("writer-{writer}")
}

fn version(item: &Item) -> Version {
    Version { lsn: item.lsn.as_u64(), etag: item.etag.to_string() }
}

fn name(item: &Item) -> Result<ItemName> {
    if item.id.as_str() == "entity" {
        return Ok(ItemName::Entity);
    }
    let number = item.id.as_str().strip_prefix("event-").and_then(|it| it.parse().ok());
    number
        .map(ItemName::Event)
        .ok_or_else(|| Error::new(format!("understand item \"{}\"", item.id)))
}

fn body(item: &Item) -> Result<BTreeMap<String, serde_json::Value>> {
    serde_json::from_slice(&item.body).attempt(|| format!("understand the body of \"{}\"", item.id))
}

fn counter(item: &Item) -> Result<u64> {
    let body = body(item)?;
    let counter = body.get("n").and_then(serde_json::Value::as_u64);
    counter.ok_or_else(|| Error::new("find the counter of an entity"))
}

fn writer(item: &Item) -> Result<u32> {
    let body = body(item)?;
    let key = body.get("partitionKey").and_then(serde_json::Value::as_str);
    let writer = key.and_then(|it| it.strip_prefix("writer-")).and_then(|it| it.parse().ok());
    writer.ok_or_else(|| Error::new("find the writer of an item"))
}
