//! Databases, containers and their ranges: every change of the catalog goes through here.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use async_lock::{Mutex as AsyncMutex, MutexGuardArc};
use async_trait::async_trait;
use futures_channel::oneshot;
use millstream_core::refusals::{
    container_exists, database_exists, no_container, no_database, settings_changed,
};
use millstream_core::{
    BATCH_BYTES_MAX, BATCH_OPERATIONS_MAX, Capabilities, Container, ContainerInfo, ContainerName,
    ContainerSettings, Containers, DatabaseInfo, EffectiveKey, Error, ErrorKind, Etag,
    ITEM_BYTES_MAX, KeyRange, RangeId, RangeInfo, ResourceId, Result, check_name,
};

use crate::buffer::Entry;
use crate::catalog::{self, Catalog, Dropped};
use crate::documents::ContainerDocuments;
use crate::engine::{lock, read, stopped, write};
use crate::feed::ContainerFeed;
use crate::guard_port::ContainerGuards;
use crate::keys;
use crate::records::{Floor, RangeRecord};
use crate::state::{ContainerState, PastTtl, RangeState, Source};
use crate::store::{Inner, Store};
use crate::tables::Table;

/// Held from the look at the catalog until the change is durable, so that changes follow one
/// another.
pub(crate) type ChangeGuard = MutexGuardArc<()>;

pub(crate) type ChangeLock = Arc<AsyncMutex<()>>;

#[async_trait]
impl Containers for Store {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            all_versions: true,
            split: true,
            merge: true,
            retention_guard: true,
            event_sequence: true,
            unique_keys: true,
            durable: true,
            batch_operations_max: BATCH_OPERATIONS_MAX,
            batch_bytes_max: BATCH_BYTES_MAX,
            item_bytes_max: ITEM_BYTES_MAX,
        }
    }

    async fn create_database(&self, name: &str) -> Result<DatabaseInfo> {
        check_name(name)?;
        let guard = self.inner.changes.lock_arc().await;
        let (info, counters) = {
            let catalog = read(&self.inner.catalog);
            if catalog.databases.contains_key(name) {
                return Err(database_exists(name));
            }
            let mut counters = catalog.counters;
            let resource_id = counters.next_database;
            counters.next_database += 1;
            let created_at = self.inner.now();
            (DatabaseInfo { name: name.to_owned(), resource_id, created_at }, counters)
        };
        let entries = vec![catalog::database_entry(&info), catalog::counters_entry(&counters)];
        let added = info.clone();
        let apply = move |catalog: &mut Catalog| {
            catalog.counters = counters;
            catalog.databases.insert(added.name.clone(), added);
        };
        self.inner.change(guard, entries, Vec::new(), apply, || {}).await?;
        Ok(info)
    }

    async fn delete_database(&self, name: &str) -> Result<()> {
        let guard = self.inner.changes.lock_arc().await;
        let (info, containers) = {
            let catalog = read(&self.inner.catalog);
            let info = database(&catalog, name)?.clone();
            let containers: Vec<_> = catalog.in_database(name).map(|it| Arc::clone(it.1)).collect();
            (info, containers)
        };
        let mut entries = vec![Entry::remove(Table::Meta, keys::database(info.resource_id))];
        let refused_for = containers.clone();
        let dropped: Vec<_> =
            containers.into_iter().map(|it| Dropping::begin(it, &mut entries)).collect();
        let name = name.to_owned();
        let apply = move |catalog: &mut Catalog| {
            catalog.databases.remove(&name);
            for dropping in dropped {
                dropping.finish(catalog);
            }
        };
        let refused = || refused_for.iter().for_each(|it| reopen(it, &it.ranges()));
        self.inner.change(guard, entries, Vec::new(), apply, refused).await
    }

    async fn list_databases(&self) -> Result<Vec<DatabaseInfo>> {
        Ok(read(&self.inner.catalog).databases.values().cloned().collect())
    }

    async fn create(
        &self,
        name: &ContainerName,
        settings: ContainerSettings,
    ) -> Result<ContainerInfo> {
        settings.check()?;
        let guard = self.inner.changes.lock_arc().await;
        let (state, counters) = {
            let catalog = read(&self.inner.catalog);
            let database = database(&catalog, name.database())?.resource_id;
            if catalog.containers.contains_key(name) {
                return Err(container_exists(name));
            }
            let mut counters = catalog.counters;
            let container = counters.next_container;
            counters.next_container += 1;
            let parts = settings.partition_key.divide(settings.ranges)?;
            let info = ContainerInfo {
                name: name.clone(),
                resource_id: ResourceId { database, container },
                settings,
                etag: catalog::revision_etag(1),
                modified_at: self.inner.now(),
            };
            let mut ranges = Vec::with_capacity(parts.len());
            for (number, keys) in (0..).zip(parts) {
                let info = RangeInfo { id: RangeId(number), keys, parents: Vec::new() };
                let segment = counters.next_segment;
                counters.next_segment += 1;
                ranges.push(Arc::new(RangeState::new(
                    info,
                    segment,
                    Vec::new(),
                    RangeRecord::default(),
                    Arc::clone(&self.inner.engine.remembered),
                )));
            }
            let next_range = info.settings.ranges;
            (Arc::new(ContainerState::new(info, ranges, next_range)), counters)
        };
        let entries = vec![
            container_entry(&state, &state.info(), &state.ranges(), &[]),
            catalog::counters_entry(&counters),
        ];
        let added = Arc::clone(&state);
        let apply = move |catalog: &mut Catalog| {
            catalog.counters = counters;
            catalog.containers.insert(added.info().name.clone(), added);
        };
        self.inner.change(guard, entries, Vec::new(), apply, || {}).await?;
        Ok(ContainerInfo::clone(&state.info()))
    }

    async fn replace(
        &self,
        name: &ContainerName,
        settings: ContainerSettings,
        if_match: Option<Etag>,
    ) -> Result<ContainerInfo> {
        let guard = self.inner.changes.lock_arc().await;
        let container = self.inner.container(name)?;
        let old = container.info();
        settings.check_replacing(&old.settings)?;
        if if_match.is_some_and(|it| it != old.etag) {
            return Err(settings_changed(name));
        }
        // The number of ranges is a wish at creation; splits and merges change it later.
        let settings = ContainerSettings { ranges: old.settings.ranges, ..settings };
        let info = ContainerInfo {
            settings,
            etag: catalog::revision_etag(catalog::revision_of(&old.etag) + 1),
            modified_at: self.inner.now(),
            ..ContainerInfo::clone(&old)
        };
        let expiry_changes = info.settings.default_ttl != old.settings.default_ttl;
        let mut past_ttls = container.past_ttls().to_vec();
        if expiry_changes {
            past_ttls.push(PastTtl { ttl: old.settings.default_ttl, until: info.modified_at });
        }
        let mut entries = vec![container_entry(&container, &info, &container.ranges(), &past_ttls)];
        if expiry_changes {
            entries.push(Entry::put(Table::Meta, keys::expiry_changed(container.id), []));
        }
        let begins_history = old.settings.all_versions_retention.is_zero()
            && !info.settings.all_versions_retention.is_zero();
        // Which commit is the first with a history must be certain, so commits wait until the
        // change is durable.
        let closed = if begins_history { container.ranges().to_vec() } else { Vec::new() };
        let mut records = Vec::with_capacity(closed.len());
        for range in &closed {
            let record = close(range);
            let record = RangeRecord { history_floor: everything(&record), ..record };
            records.push((range.segment, record));
        }
        let (replaced, state, reopened) = (info.clone(), Arc::clone(&container), closed.clone());
        let apply = move |catalog: &mut Catalog| {
            if expiry_changes {
                catalog.expiry_changed.insert(state.id, ());
            }
            *write(&state.past_ttls) = Arc::new(past_ttls);
            *write(&state.info) = Arc::new(replaced);
            for range in reopened {
                let mut numbering = lock(&range.numbering);
                numbering.record.history_floor = everything(&numbering.record);
                numbering.is_closed = false;
            }
            state.topology.notify(usize::MAX);
        };
        let refused = || reopen(&container, &closed);
        self.inner.change(guard, entries, records, apply, refused).await?;
        Ok(info)
    }

    async fn delete(&self, name: &ContainerName) -> Result<()> {
        let guard = self.inner.changes.lock_arc().await;
        let container = self.inner.container(name)?;
        let mut entries = Vec::new();
        let dropping = Dropping::begin(Arc::clone(&container), &mut entries);
        let apply = move |catalog: &mut Catalog| dropping.finish(catalog);
        let refused = || reopen(&container, &container.ranges());
        self.inner.change(guard, entries, Vec::new(), apply, refused).await
    }

    async fn list(&self, database_name: &str) -> Result<Vec<ContainerInfo>> {
        let catalog = read(&self.inner.catalog);
        database(&catalog, database_name)?;
        let containers = catalog.in_database(database_name);
        Ok(containers.map(|it| ContainerInfo::clone(&it.1.info())).collect())
    }

    async fn open(&self, name: &ContainerName) -> Result<Container> {
        let container = self.inner.container(name)?;
        let engine = &self.inner.engine;
        Ok(Container {
            info: ContainerInfo::clone(&container.info()),
            documents: Arc::new(ContainerDocuments {
                engine: Arc::clone(engine),
                container: Arc::clone(&container),
                _open: self.clone(),
            }),
            feed: Arc::new(ContainerFeed {
                engine: Arc::clone(engine),
                container: Arc::clone(&container),
                _open: self.clone(),
            }),
            guards: Some(Arc::new(ContainerGuards { store: self.clone(), container })),
        })
    }

    async fn split(
        &self,
        name: &ContainerName,
        range: RangeId,
        at: Option<&EffectiveKey>,
    ) -> Result<Vec<RangeInfo>> {
        let guard = self.inner.changes.lock_arc().await;
        let container = self.inner.container(name)?;
        let parent = live_range(&container, range)?;
        let definition = &container.info().settings.partition_key;
        let middle = at.cloned().or_else(|| definition.middle(&parent.keys));
        let at = middle.ok_or_else(|| {
            Error::invalid(
                format!("split range {range}"),
                "it has no middle; name the key to split at",
            )
        })?;
        let (left, right) = parent.keys.split_at(&at)?;
        self.inner.divide(guard, &container, &[parent], vec![left, right]).await
    }

    async fn merge(
        &self,
        name: &ContainerName,
        left: RangeId,
        right: RangeId,
    ) -> Result<RangeInfo> {
        let guard = self.inner.changes.lock_arc().await;
        let container = self.inner.container(name)?;
        let (left, right) = (live_range(&container, left)?, live_range(&container, right)?);
        if left.keys.max() != right.keys.min() {
            let attempted = format!("merge the ranges {} and {}", left.id, right.id);
            return Err(Error::invalid(
                attempted,
                "the second does not start where the first ends",
            ));
        }
        let keys = KeyRange::new(left.keys.min().clone(), right.keys.max().clone())?;
        let merged = self.inner.divide(guard, &container, &[left, right], vec![keys]).await?;
        Ok(merged.into_iter().next().expect("one range was asked for"))
    }
}

impl Inner {
    pub(crate) fn container(&self, name: &ContainerName) -> Result<Arc<ContainerState>> {
        read(&self.catalog).containers.get(name).cloned().ok_or_else(|| no_container(name))
    }

    /// Makes a change of the catalog durable, then visible. It is carried through even if the
    /// caller goes away.
    pub(crate) async fn change(
        self: &Arc<Self>,
        guard: ChangeGuard,
        entries: Vec<Entry>,
        records: Vec<(u32, RangeRecord)>,
        apply: impl FnOnce(&mut Catalog) + Send + 'static,
        refused: impl FnOnce(),
    ) -> Result<()> {
        let (reply, done) = oneshot::channel();
        let inner = Arc::downgrade(self);
        let completion = Box::new(move |outcome: Result<(), Arc<str>>| {
            if let (Ok(()), Some(inner)) = (&outcome, inner.upgrade()) {
                apply(&mut write(&inner.catalog));
            }
            drop(guard);
            // Nobody listens when the caller has gone away.
            let _ = reply.send(outcome);
        });
        if let Err(not_queued) = self.engine.enqueue(entries, records, completion) {
            // The next change may begin only when the traces of this one are gone; the guard is in
            // the completion.
            refused();
            drop(not_queued.completion);
            return Err(not_queued.error);
        }
        match done.await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(reason)) => Err(stopped(&reason).with_unknown_effect()),
            Err(oneshot::Canceled) => Err(stopped("it was closed").with_unknown_effect()),
        }
    }

    /// Replaces neighbouring ranges by others over the same keys.
    ///
    /// The old ones take no more commits from here on; the new ones do once this is durable, and
    /// continue their numbers. What is stored stays where it is and moves later, bit by bit.
    pub(crate) async fn divide(
        self: &Arc<Self>,
        guard: ChangeGuard,
        container: &Arc<ContainerState>,
        parents: &[Arc<RangeState>],
        parts: Vec<KeyRange>,
    ) -> Result<Vec<RangeInfo>> {
        let mut counters = read(&self.catalog).counters;
        let records: Vec<RangeRecord> = parents.iter().map(|it| close(it)).collect();
        let mut lineage: Vec<RangeId> = Vec::new();
        for parent in parents {
            lineage.extend(parent.parents.iter().chain([&parent.id]));
        }
        lineage.sort_unstable();
        lineage.dedup();
        let mut children = Vec::with_capacity(parts.len());
        for keys in parts {
            let number = u32::try_from(container.next_range.fetch_add(1, Ordering::Relaxed))
                .expect("a container is not split 2^32 times");
            let segment = counters.next_segment;
            counters.next_segment += 1;
            let sources = sources_of(parents, &records, &keys);
            let record = successor_record(&records);
            let info = RangeInfo { id: RangeId(number), keys, parents: lineage.clone() };
            let remembered = Arc::clone(&self.engine.remembered);
            let child = RangeState::new(info, segment, sources, record, remembered);
            children.push(Arc::new(child));
        }
        let old = container.ranges();
        let first = old.iter().position(|it| Arc::ptr_eq(it, &parents[0]));
        let first = first.expect("the parents are live ranges");
        let mut ranges = old.to_vec();
        ranges.splice(first..first + parents.len(), children.iter().cloned());

        let entries = vec![
            container_entry(container, &container.info(), &ranges, &container.past_ttls()),
            catalog::counters_entry(&counters),
        ];
        let mut records = Vec::with_capacity(children.len());
        for child in &children {
            records.push((child.segment, lock(&child.numbering).record));
        }
        let infos = children.iter().map(|it| it.info()).collect();
        let (state, closed) = (Arc::clone(container), parents.to_vec());
        let apply = move |catalog: &mut Catalog| {
            catalog.counters = counters;
            *write(&state.ranges) = Arc::new(ranges);
            for parent in closed {
                parent.committed.notify(usize::MAX);
            }
            state.wake_all();
        };
        let refused = || reopen(container, parents);
        self.change(guard, entries, records, apply, refused).await?;
        Ok(infos)
    }
}

/// A container on its way out.
struct Dropping {
    container: Arc<ContainerState>,
    dropped: Dropped,
}

impl Dropping {
    /// Stops commits and says what the log has to hold.
    fn begin(container: Arc<ContainerState>, entries: &mut Vec<Entry>) -> Self {
        let mut segments = Vec::new();
        for range in container.ranges().iter() {
            close(range);
            segments.push(range.segment);
            segments.extend(range.sources().iter().map(|it| it.segment));
        }
        segments.sort_unstable();
        segments.dedup();
        let dropped = Dropped { segments };
        entries.push(Entry::remove(Table::Meta, keys::container(container.id)));
        entries.push(Entry::remove(Table::Meta, keys::expiry_changed(container.id)));
        for name in read(&container.guards).names() {
            entries.push(Entry::remove(Table::Meta, keys::guard(container.id, &name)));
        }
        entries.push(catalog::dropped_entry(container.id, &dropped));
        Self { container, dropped }
    }

    fn finish(self, catalog: &mut Catalog) {
        catalog.containers.remove(&self.container.info().name);
        catalog.expiry_changed.remove(&self.container.id);
        catalog.dropped.insert(self.container.id, self.dropped);
        self.container.drop_it();
    }
}

pub(crate) fn container_entry(
    container: &ContainerState,
    info: &ContainerInfo,
    ranges: &[Arc<RangeState>],
    past_ttls: &[PastTtl],
) -> Entry {
    let next_range = container.next_range.load(Ordering::Relaxed);
    let next_range = u32::try_from(next_range).expect("a container is not split 2^32 times");
    catalog::container_entry(info, ranges, next_range, past_ttls)
}

/// Ends the commits of a range and returns where they ended.
fn close(range: &RangeState) -> RangeRecord {
    let mut numbering = lock(&range.numbering);
    numbering.is_closed = true;
    numbering.record
}

/// Lets commits go on because the change they waited for was not even queued.
fn reopen(container: &ContainerState, closed: &[Arc<RangeState>]) {
    for range in closed {
        lock(&range.numbering).is_closed = false;
    }
    container.topology.notify(usize::MAX);
}

/// A history that starts after the newest commit.
fn everything(record: &RangeRecord) -> Floor {
    Floor { lsn: record.newest, time_ms: record.committed_at.as_millis() }
}

fn successor_record(parents: &[RangeRecord]) -> RangeRecord {
    let newest = parents.iter().map(|it| it.newest).max().unwrap_or(0);
    let committed_at = parents.iter().map(|it| it.committed_at).max().unwrap_or_default();
    let unordered = match parents {
        [only] => only.unordered,
        _ => newest,
    };
    RangeRecord { newest, committed_at, unordered, ..RangeRecord::default() }
}

/// Where the items of the keys of a new range are found: in the segments of its parents, and in
/// those that had items of theirs.
fn sources_of(
    parents: &[Arc<RangeState>],
    records: &[RangeRecord],
    keys: &KeyRange,
) -> Vec<Source> {
    let mut sources = Vec::new();
    for (parent, record) in parents.iter().zip(records) {
        let own = Source {
            segment: parent.segment,
            keys: parent.keys.clone(),
            history_floor: record.history_floor,
            is_settled: false,
        };
        for source in std::iter::once(&own).chain(parent.sources().iter()) {
            if let Some(shared) = source.keys.intersect(keys) {
                sources.push(Source { keys: shared, ..source.clone() });
            }
        }
    }
    sources
}

fn database<'c>(catalog: &'c Catalog, name: &str) -> Result<&'c DatabaseInfo> {
    catalog.databases.get(name).ok_or_else(|| no_database(name))
}

fn live_range(container: &ContainerState, id: RangeId) -> Result<Arc<RangeState>> {
    container.ranges().iter().find(|it| it.id == id).cloned().ok_or_else(|| {
        Error::new(ErrorKind::NotFound, format!("find range {id}"))
            .because("it has been split or merged, or never was; ask for the ranges again")
    })
}
