//! The databases and containers of a cluster.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use async_nats::jetstream::stream::Config;
use async_trait::async_trait;
use futures_util::{StreamExt, TryStreamExt, stream};
use millstream_core::refusals::{
    container_exists, database_exists, no_container, no_database, settings_changed,
};
use millstream_core::{
    BATCH_BYTES_MAX, BATCH_OPERATIONS_MAX, BoxFuture, Capabilities, ChangeFeed, Container,
    ContainerInfo, ContainerName, ContainerSettings, Containers, DatabaseInfo, Documents,
    EffectiveKey, Error, ErrorKind, Etag, ITEM_BYTES_MAX, RangeId, RangeInfo, ResourceId, Result,
    check_name,
};

use crate::Connection;
use crate::catalog::{Catalog, Change, ContainerRecord, DatabaseRecord, Found, Written};
use crate::container::{Handle, SETTINGS_AGE_MAX, Shared};
use crate::leftovers::Leftovers;
use crate::streams::{create_stream, range_config, stream_config};
use crate::subject::RangeNames;
use crate::wire::pause;

/// Room for subject and headers in a message of the largest size the server takes.
const MESSAGE_OVERHEAD_BYTES: usize = 8 * 1024;
/// How often settings are written before others have them.
pub(crate) const ATTEMPTS_MAX: u32 = 12;
/// Streams that are created or deleted at the same time.
pub(crate) const STREAMS_AT_ONCE: usize = 8;

/// A store on JetStream. Clones share what they know.
#[derive(Clone, Debug)]
pub struct NatsStore {
    pub(crate) inner: Arc<Inner>,
}

#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) connection: Connection,
    pub(crate) catalog: Catalog,
    containers: Mutex<BTreeMap<ResourceId, Arc<Shared>>>,
    pub(crate) leftovers: Mutex<Leftovers>,
}

impl NatsStore {
    /// Opens the store in the account of the connection, and creates its catalog if there is none.
    ///
    /// # Errors
    ///
    /// `Unavailable` if JetStream does not answer; `Invalid` if there are fewer servers than
    /// replicas.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future may leave the catalog created, which changes nothing.
    pub async fn open(connection: Connection) -> Result<Self> {
        let options = connection.options();
        let config = Config {
            name: Catalog::stream(&options.prefix),
            subjects: vec![Catalog::all(&options.prefix)],
            description: Some("databases and containers of Millstream".to_owned()),
            ..stream_config(options.replicas)
        };
        let replicas = match connection.jetstream().get_stream(&config.name).await {
            Ok(found) => found.cached_info().config.num_replicas,
            Err(_) => {
                create_stream(&connection, config).await?;
                options.replicas
            }
        };
        let catalog = Catalog::new(&connection, replicas);
        let (containers, leftovers) = (Mutex::default(), Mutex::default());
        let inner = Inner { connection, catalog, containers, leftovers };
        Ok(Self { inner: Arc::new(inner) })
    }

    pub(crate) fn known(&self) -> MutexGuard<'_, BTreeMap<ResourceId, Arc<Shared>>> {
        self.inner.containers.lock().expect("nothing panics while it holds the lock")
    }

    pub(crate) async fn database(&self, name: &str) -> Result<(u64, DatabaseRecord)> {
        let subject = self.inner.catalog.database(name);
        let Found { sequence, record } = self.inner.catalog.get(&subject).await?;
        let record = record.filter(|it: &DatabaseRecord| it.name == name);
        Ok((sequence, record.ok_or_else(|| no_database(name))?))
    }

    async fn record(&self, name: &ContainerName) -> Result<(String, u64, ContainerRecord)> {
        let (_, database) = self.database(name.database()).await?;
        let subject = self.inner.catalog.container(database.number, name.container());
        let Found { sequence, record } = self.inner.catalog.get(&subject).await?;
        let record: Option<ContainerRecord> = record;
        let record = record.filter(|it| it.is_called(name));
        Ok((subject, sequence, record.ok_or_else(|| no_container(name))?))
    }

    pub(crate) fn time(&self) -> Duration {
        self.inner.connection.options().clock.monotonic()
    }

    /// The open container, shared by all who have opened it.
    /// `at` is when the record was asked for, by [`Self::time`].
    pub(crate) fn share(
        &self,
        sequence: u64,
        record: &ContainerRecord,
        at: Duration,
    ) -> Result<Arc<Shared>> {
        let mut known = self.known();
        if let Some(shared) = known.get(&record.resource_id()) {
            shared.learn(sequence, record, at);
            return Ok(Arc::clone(shared));
        }
        let shared = Arc::new(Shared::new(&self.inner, sequence, record, at)?);
        known.insert(record.resource_id(), Arc::clone(&shared));
        Ok(shared)
    }

    /// Waits until every process keeps versions, and shows them from then on. Until that is done,
    /// also after it was broken off, the record says so and nobody is shown any. If the settings
    /// are replaced meanwhile, it is up to those who do so.
    pub(crate) async fn open_history(
        &self,
        sequence: u64,
        record: ContainerRecord,
    ) -> Result<ContainerInfo> {
        let Inner { connection, catalog, .. } = &*self.inner;
        let options = connection.options();
        let begun = record.info(sequence)?;
        // Then all processes know, and what they sent a moment before has arrived or was given up.
        tokio::time::sleep(SETTINGS_AGE_MAX + options.request_timeout).await;
        let shared = self.known().get(&record.resource_id()).cloned();
        // It was deleted meanwhile.
        let Some(shared) = shared else { return Ok(begun) };
        let mut newest = Vec::new();
        for range in &shared.ranges {
            newest.push(range.newest().await?);
        }
        let at = self.time();
        let id = record.resource_id();
        let subject = catalog.container(id.database, begun.name.container());
        let record = record.with_history_opened(newest, options.clock.now());
        if let Written::Done(sequence) = catalog.put(&subject, sequence, &record).await? {
            self.share(sequence, &record, at)?;
            return record.info(sequence);
        }
        let Found { sequence, record: found } = catalog.get::<ContainerRecord>(&subject).await?;
        match found.filter(|it| it.is_like(&record)) {
            Some(opened) => opened.info(sequence),
            None => Ok(begun),
        }
    }
}

#[async_trait]
impl Containers for NatsStore {
    /// Ranges are streams, and a stream cannot be divided: choose enough of them when the container
    /// is created.
    fn capabilities(&self) -> Capabilities {
        let bytes_max = item_bytes_max(&self.inner.connection);
        Capabilities {
            all_versions: true,
            split: false,
            merge: false,
            retention_guard: true,
            event_sequence: true,
            unique_keys: true,
            durable: true,
            batch_operations_max: BATCH_OPERATIONS_MAX,
            batch_bytes_max: BATCH_BYTES_MAX,
            item_bytes_max: bytes_max,
        }
    }

    async fn create_database(&self, name: &str) -> Result<DatabaseInfo> {
        check_name(name)?;
        let catalog = &self.inner.catalog;
        let subject = catalog.database(name);
        let Found { sequence, record } = catalog.get::<DatabaseRecord>(&subject).await?;
        if record.is_some() {
            return Err(database_exists(name));
        }
        let number = catalog.next_number("database").await?;
        let now = self.inner.connection.options().clock.now();
        let record = DatabaseRecord::new(name, number, now);
        match catalog.put(&subject, sequence, &record).await? {
            Written::Done(_) => Ok(record.info()),
            Written::Conflict => Err(database_exists(name)),
        }
    }

    async fn delete_database(&self, name: &str) -> Result<()> {
        let catalog = &self.inner.catalog;
        let (sequence, database) = self.database(name).await?;
        let removed = self.remove_records(sequence, &database).await?;
        for record in &removed {
            self.known().remove(&record.resource_id());
        }
        // What was created while the others were looked up.
        for (sequence, record) in catalog.containers(database.number).await? {
            let container = record.info(sequence)?.name;
            let subject = catalog.container(database.number, container.container());
            self.remove(&subject, sequence, &record).await?;
        }
        for record in removed {
            self.remove_streams(record.unfinished()).await?;
        }
        Ok(())
    }

    async fn list_databases(&self) -> Result<Vec<DatabaseInfo>> {
        let databases = self.inner.catalog.databases().await?;
        let mut infos: Vec<_> = databases.iter().map(DatabaseRecord::info).collect();
        infos.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(infos)
    }

    async fn create(
        &self,
        name: &ContainerName,
        settings: ContainerSettings,
    ) -> Result<ContainerInfo> {
        settings.check()?;
        let Inner { connection, catalog, .. } = &*self.inner;
        let (_, database) = self.database(name.database()).await?;
        let subject = catalog.container(database.number, name.container());
        let Found { sequence, record } = catalog.get::<ContainerRecord>(&subject).await?;
        if record.is_some() {
            return Err(container_exists(name));
        }
        let number = catalog.next_number("container").await?;
        let id = ResourceId { database: database.number, container: number };
        let options = connection.options();
        let now = options.clock.now();
        let record = ContainerRecord::new(name, id, options.replicas, &settings, now);
        // The streams come first: a record always has all of them. The mark that they are being
        // made goes in the same moment in which the record comes.
        let mark = catalog.unfinished(number);
        let Written::Done(marked) = catalog.put(&mark, 0, &record.unfinished()).await? else {
            return Err(interrupted(name));
        };
        let names = (0..record.streams).map(|it| RangeNames::new(&options.prefix, number, it));
        let configs = names.map(|it| range_config(&it, &record));
        let creations: Vec<BoxFuture<'_, Result<()>>> = configs
            .map(|it| -> BoxFuture<'_, _> { Box::pin(create_stream(connection, it)) })
            .collect();
        stream::iter(creations).buffer_unordered(STREAMS_AT_ONCE).try_collect::<()>().await?;
        let changes = [Change::remove(&mark, marked), Change::put(&subject, sequence, &record)];
        match catalog.write(&changes).await? {
            Written::Done(sequence) => record.info(sequence),
            Written::Conflict => {
                self.remove_streams(record.unfinished()).await?;
                let found: Found<ContainerRecord> = catalog.get(&subject).await?;
                let is_there = found.record.is_some();
                Err(if is_there { container_exists(name) } else { interrupted(name) })
            }
        }
    }

    async fn replace(
        &self,
        name: &ContainerName,
        settings: ContainerSettings,
        if_match: Option<Etag>,
    ) -> Result<ContainerInfo> {
        let attempted = || format!("replace the settings of \"{name}\"");
        for attempt in 0..ATTEMPTS_MAX {
            let at = self.time();
            let (subject, sequence, old) = self.record(name).await?;
            let info = old.info(sequence)?;
            if if_match.as_ref().is_some_and(|etag| *etag != info.etag) {
                return Err(settings_changed(name));
            }
            settings.check_replacing(&info.settings)?;
            let now = self.inner.connection.options().clock.now();
            let record = old.with(&settings, now);
            if let Written::Done(sequence) =
                self.inner.catalog.put(&subject, sequence, &record).await?
            {
                self.share(sequence, &record, at)?;
                if !record.is_history_opening {
                    return record.info(sequence);
                }
                let opened = self.open_history(sequence, record).await;
                return opened.map_err(Error::with_unknown_effect);
            }
            pause(attempt).await;
        }
        let error = Error::new(ErrorKind::Overloaded, attempted());
        Err(error.because("others change them all the time"))
    }

    async fn delete(&self, name: &ContainerName) -> Result<()> {
        let (subject, sequence, record) = self.record(name).await?;
        match self.remove(&subject, sequence, &record).await? {
            Written::Done(_) => Ok(()),
            Written::Conflict => {
                let error = Error::new(ErrorKind::Overloaded, format!("delete \"{name}\""));
                let error = error.because("somebody else changed it at the same time");
                Err(error.with_retry_after(Duration::from_millis(50)))
            }
        }
    }

    async fn list(&self, database: &str) -> Result<Vec<ContainerInfo>> {
        let (_, database) = self.database(database).await?;
        let records = self.inner.catalog.containers(database.number).await?;
        let infos = records.iter().map(|(sequence, record)| record.info(*sequence));
        let mut infos = infos.collect::<Result<Vec<_>>>()?;
        infos.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(infos)
    }

    async fn open(&self, name: &ContainerName) -> Result<Container> {
        let at = self.time();
        let (_, sequence, record) = self.record(name).await?;
        let handle = Arc::new(Handle { shared: self.share(sequence, &record, at)? });
        let documents: Arc<dyn Documents> = handle.clone();
        let feed: Arc<dyn ChangeFeed> = handle.clone();
        Ok(Container { info: record.info(sequence)?, documents, feed, guards: Some(handle) })
    }

    async fn split(
        &self,
        name: &ContainerName,
        range: RangeId,
        _at: Option<&EffectiveKey>,
    ) -> Result<Vec<RangeInfo>> {
        let error =
            Error::new(ErrorKind::Unsupported, format!("split range {range} of \"{name}\""));
        Err(error.because(FIXED_RANGES))
    }

    async fn merge(
        &self,
        name: &ContainerName,
        left: RangeId,
        right: RangeId,
    ) -> Result<RangeInfo> {
        let attempted = format!("merge the ranges {left} and {right} of \"{name}\"");
        Err(Error::new(ErrorKind::Unsupported, attempted).because(FIXED_RANGES))
    }
}

const FIXED_RANGES: &str =
    "on NATS the ranges of a container are streams, and their number is chosen at creation";

/// The largest body that fits into a message.
pub(crate) fn item_bytes_max(connection: &Connection) -> usize {
    let payload = connection.message_bytes_max();
    payload.saturating_sub(MESSAGE_OVERHEAD_BYTES).min(ITEM_BYTES_MAX)
}

fn interrupted(name: &ContainerName) -> Error {
    let error = Error::new(ErrorKind::Unavailable, format!("create container \"{name}\""));
    error.because("it took so long that maintenance took it for abandoned; try again")
}
