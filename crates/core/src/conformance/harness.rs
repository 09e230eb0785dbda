//! Small helpers of the suite.

use std::future::{Future, poll_fn};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::{Either, select};

use crate::conformance::Subject;
use crate::{
    Batch, BatchOutcome, Change, Clock, Container, ContainerName, ContainerSettings, Containers,
    Continuation, Effect, EffectiveKey, Error, ErrorKind, FeedMode, Item, ItemId, KeyRange, Lsn,
    Operation, PageSize, PartitionKey, PartitionKeyDefinition, RangeInfo, Result, ScanScope,
    StartFrom, SystemClock, TimeToLive,
};

/// Longest time a wake-up may take in real time; only a violation ever waits so long.
const WAKE_UP_MAX: Duration = Duration::from_secs(5);
/// Pages after which a feed that never runs dry is given up.
const PAGES_MAX: usize = 100_000;

/// A container and the store it is in.
pub(super) struct Scene {
    pub(super) store: Arc<dyn Containers>,
    pub(super) name: ContainerName,
    pub(super) container: Container,
}

impl Scene {
    /// A new container "data" with the partition key `/pk`, one range and no TTL.
    pub(super) async fn plain(subject: &dyn Subject) -> Self {
        Self::new(subject, settings()).await
    }

    /// A new container "data".
    pub(super) async fn new(subject: &dyn Subject, settings: ContainerSettings) -> Self {
        Self::named(subject, "data", settings).await
    }

    /// A new container of another name in the same database.
    pub(super) async fn named(
        subject: &dyn Subject,
        container: &str,
        settings: ContainerSettings,
    ) -> Self {
        let store = subject.containers();
        if let Err(error) = store.create_database("conformance").await {
            assert_eq!(error.kind(), ErrorKind::AlreadyExists, "{}", error.report());
        }
        let name = must(ContainerName::new("conformance", container));
        must(store.create(&name, settings).await);
        let container = must(store.open(&name).await);
        Self { store, name, container }
    }

    /// A new container that keeps all versions for an hour, if the backend can.
    ///
    /// If it cannot, this checks that it says so.
    pub(super) async fn all_versions(
        subject: &dyn Subject,
        settings: ContainerSettings,
    ) -> Option<Self> {
        if subject.containers().capabilities().all_versions {
            return Some(Self::new(subject, settings.all_versions_retention(HOUR)).await);
        }
        let scene = Self::named(subject, "no-versions", settings).await;
        let started = scene.container.feed.start(&KeyRange::all(), StartFrom::Now, ALL).await;
        must_fail(started, ErrorKind::Unsupported, "start a feed the backend does not have");
        None
    }

    /// The same container after the backend was closed and opened again, where it can do so.
    pub(super) async fn reopened(self, subject: &mut dyn Subject) -> Self {
        let Self { name, container, store } = self;
        drop((container, store));
        subject.reopen().await;
        let store = subject.containers();
        let container = must(store.open(&name).await);
        Self { store, name, container }
    }

    pub(super) async fn commit(&self, batch: Batch) -> BatchOutcome {
        must(self.container.documents.commit(batch).await)
    }

    /// Commits one operation and returns the item it left.
    pub(super) async fn commit_one(&self, key: &str, operation: Operation) -> Item {
        let outcome = self.commit(Batch::new(key).with(operation)).await;
        let item = outcome.results.first().and_then(|it| it.item().cloned());
        item.unwrap_or_else(|| panic!("a write of {key:?} returned no item"))
    }

    pub(super) async fn create(&self, key: &str, id: &str) -> Item {
        self.commit_one(key, Operation::create(body(key, id, 0))).await
    }

    pub(super) async fn upsert(&self, key: &str, id: &str, number: usize) -> Item {
        self.commit_one(key, Operation::upsert(body(key, id, number))).await
    }

    pub(super) async fn delete(&self, key: &str, id: &str) -> Lsn {
        self.commit(Batch::new(key).with(Operation::delete(item_id(id)))).await.lsn
    }

    /// Commits a batch that must be refused at `operation`.
    #[track_caller]
    pub(super) fn refused(
        &self,
        batch: Batch,
        kind: ErrorKind,
        operation: Option<usize>,
    ) -> impl Future<Output = ()> {
        let what = format!("commit {:?}", batch.operations);
        let place = std::panic::Location::caller();
        let documents = Arc::clone(&self.container.documents);
        async move {
            let what: String =
                what.chars().take(300).chain(format!(" ({place})").chars()).collect();
            let error = must_fail(documents.commit(batch).await, kind, &what);
            assert_eq!(error.operation(), operation, "{what} named the wrong operation");
        }
    }

    pub(super) async fn read(&self, key: &str, id: &str) -> Option<Item> {
        must(self.container.documents.read(&PartitionKey::from(key), &item_id(id)).await)
    }

    /// The item, which must be there.
    pub(super) async fn existing(&self, key: &str, id: &str) -> Item {
        let item = self.read(key, id).await;
        item.unwrap_or_else(|| panic!("item {id:?} of {key:?} is not there"))
    }

    pub(super) async fn is_there(&self, key: &str, id: &str) -> bool {
        self.read(key, id).await.is_some()
    }

    pub(super) async fn ranges(&self) -> Vec<RangeInfo> {
        must(self.container.feed.ranges().await)
    }

    pub(super) async fn start(
        &self,
        keys: &KeyRange,
        from: StartFrom,
        mode: FeedMode,
    ) -> Continuation {
        must(self.container.feed.start(keys, from, mode).await)
    }

    /// Everything after a continuation, and where it ends.
    pub(super) async fn drain_from(
        &self,
        keys: &KeyRange,
        after: &Continuation,
        size: PageSize,
    ) -> (Vec<Change>, Continuation) {
        must(drain(&self.container, keys, after, size).await)
    }

    /// Everything a reader of a container with one range sees from a start.
    pub(super) async fn changes(&self, from: StartFrom, mode: FeedMode) -> Vec<Change> {
        let keys = KeyRange::all();
        let start = self.start(&keys, from, mode).await;
        self.drain_from(&keys, &start, PageSize::default()).await.0
    }

    /// All live items in key order.
    pub(super) async fn scan(&self, scope: &ScanScope, size: PageSize) -> Vec<Item> {
        let (mut items, mut after) = (Vec::new(), None);
        for _ in 0..PAGES_MAX {
            let page = must(self.container.documents.scan(scope, after.as_ref(), size).await);
            items.extend(page.items);
            after = page.continuation;
            if after.is_none() {
                return items;
            }
        }
        panic!("a scan of {scope:?} did not end");
    }

    pub(super) async fn scan_all(&self) -> Vec<Item> {
        self.scan(&ScanScope::Keys(KeyRange::all()), PageSize::default()).await
    }

    pub(super) fn effective(&self, key: &str) -> EffectiveKey {
        let definition = &self.container.info.settings.partition_key;
        must(definition.effective(&PartitionKey::from(key)))
    }

    /// Partition keys whose items lie in `keys`.
    pub(super) fn keys_in(&self, keys: &KeyRange, count: usize) -> Vec<String> {
        let names = (0..1_000_000).map(|it| format!("key-{it}"));
        names.filter(|it| keys.contains(&self.effective(it))).take(count).collect()
    }
}

/// Everything after a continuation until the feed is dry.
pub(super) async fn drain(
    container: &Container,
    keys: &KeyRange,
    after: &Continuation,
    size: PageSize,
) -> Result<(Vec<Change>, Continuation)> {
    let (mut changes, mut after) = (Vec::new(), after.clone());
    for _ in 0..PAGES_MAX {
        let page = container.feed.read(keys, &after, size).await?;
        let is_dry = page.changes.is_empty() && page.continuation == after;
        changes.extend(page.changes);
        after = page.continuation;
        if is_dry {
            return Ok((changes, after));
        }
    }
    panic!("the feed of {keys} did not run dry although nobody writes");
}

pub(super) const HOUR: Duration = Duration::from_secs(3600);
pub(super) const LATEST: FeedMode = FeedMode::LatestVersion;
pub(super) const ALL: FeedMode = FeedMode::AllVersions;

/// Partition key `/pk`, one range, no TTL.
pub(super) fn settings() -> ContainerSettings {
    ContainerSettings::new(must(PartitionKeyDefinition::hash("/pk")))
}

/// As [`settings`], with TTLs switched on.
pub(super) fn expiring() -> ContainerSettings {
    settings().default_ttl(TimeToLive::Never)
}

/// `{"id":…,"pk":…,"n":…}`.
pub(super) fn body(key: &str, id: &str, number: usize) -> Bytes {
    extended(key, id, &format!(r#","n":{number}"#))
}

/// A body that goes on with `rest` after id and key.
pub(super) fn extended(key: &str, id: &str, rest: &str) -> Bytes {
    let text = |it: &str| serde_json::to_string(it).expect("a string is JSON");
    format!(r#"{{"id":{},"pk":{}{rest}}}"#, text(id), text(key)).into()
}

/// An event document with a TTL.
pub(super) fn event(key: &str, id: &str, ttl: Option<i32>) -> Bytes {
    let ttl = ttl.map(|it| format!(r#","ttl":{it}"#)).unwrap_or_default();
    extended(key, id, &format!(r#","type":"domainEvent"{ttl}"#))
}

pub(super) fn item_id(id: &str) -> ItemId {
    must(ItemId::new(id))
}

/// Which versions of which items, in order: what most comparisons are about.
pub(super) fn versions(changes: &[Change]) -> Vec<String> {
    changes.iter().map(version).collect()
}

pub(super) fn version(change: &Change) -> String {
    match &change.current {
        Some(item) => version_of(item),
        None => format!("{}/{} {:?}", change.partition_key, change.id, change.kind),
    }
}

pub(super) fn version_of(item: &Item) -> String {
    format!("{}/{} {}", item.partition_key, item.id, item.etag)
}

#[track_caller]
pub(super) fn must<T>(result: Result<T>) -> T {
    result.unwrap_or_else(|error| panic!("a call failed that must not: {}", error.report()))
}

#[track_caller]
pub(super) fn must_fail<T>(result: Result<T>, kind: ErrorKind, what: &str) -> Error {
    let Err(error) = result else {
        panic!("a call succeeded that must fail with {kind:?}: {what}");
    };
    assert_eq!(error.kind(), kind, "{what}: {}", error.report());
    assert_eq!(error.effect(), Effect::None, "{what}: {}", error.report());
    error
}

/// Lets every other future of the same task go on.
pub(super) async fn yield_now() {
    let mut yielded = false;
    poll_fn(|context| {
        if std::mem::replace(&mut yielded, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// The future's result, or a panic if it does not come soon.
#[track_caller]
pub(super) fn soon<T>(what: &str, future: impl Future<Output = T>) -> impl Future<Output = T> {
    let place = std::panic::Location::caller();
    async move {
        let limit = SystemClock::default().sleep(WAKE_UP_MAX);
        match select(Box::pin(future), limit).await {
            Either::Left((output, _)) => output,
            Either::Right(_) => panic!("{what} took longer than {WAKE_UP_MAX:?} ({place})"),
        }
    }
}
