//! Databases, containers and ranges as they are stored.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use millstream_core::{
    ContainerInfo, ContainerName, ContainerSettings, DatabaseInfo, Error, ErrorKind, Etag,
    KeyRange, PartitionKeyDefinition, RangeId, RangeInfo, ResourceId, Result, TimeToLive,
    Timestamp, UniqueKey,
};
use serde::{Deserialize, Serialize};

use crate::buffer::Entry;
use crate::engine::{Engine, read, write};
use crate::guards::Positions;
use crate::keys::{self, MetaKey};
use crate::records::RangeRecord;
use crate::state::{ContainerState, PastTtl, RangeState, Source};
use crate::tables::Table;
use crate::view::Section;

/// Everything the meta table knows, as it is in memory.
#[derive(Debug, Default)]
pub(crate) struct Catalog {
    pub(crate) databases: BTreeMap<String, DatabaseInfo>,
    pub(crate) containers: BTreeMap<ContainerName, Arc<ContainerState>>,
    pub(crate) counters: Counters,
    /// Deleted containers whose entries are still to be removed.
    pub(crate) dropped: BTreeMap<u32, Dropped>,
    /// Containers whose items are still to be looked at because the default TTL changed.
    pub(crate) expiry_changed: BTreeMap<u32, ()>,
}

/// The numbers that are given out next. None is ever used again.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Counters {
    pub(crate) next_database: u32,
    pub(crate) next_container: u32,
    pub(crate) next_segment: u32,
}

impl Default for Counters {
    fn default() -> Self {
        Self { next_database: 1, next_container: 1, next_segment: 1 }
    }
}

/// What is left of a deleted container.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Dropped {
    pub(crate) segments: Vec<u32>,
}

#[derive(Debug, Serialize, Deserialize)]
struct StoredDatabase {
    name: String,
    created_at: u64,
}

#[derive(Debug, Serialize, Deserialize)]
struct StoredContainer {
    database: u32,
    database_name: String,
    name: String,
    settings: StoredSettings,
    revision: u64,
    modified_at: u64,
    next_range: u32,
    ranges: Vec<StoredRange>,
    /// Default TTLs that were replaced, and when.
    #[serde(default)]
    past_ttls: Vec<(Option<i64>, u64)>,
}

#[derive(Debug, Serialize, Deserialize)]
struct StoredSettings {
    partition_key: PartitionKeyDefinition,
    /// Absent: off. -1: never.
    default_ttl: Option<i64>,
    all_versions_retention_ms: u64,
    event_type: Option<String>,
    ranges: u32,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    unique_keys: Vec<UniqueKey>,
}

#[derive(Debug, Serialize, Deserialize)]
struct StoredRange {
    id: RangeId,
    keys: KeyRange,
    parents: Vec<RangeId>,
    segment: u32,
    sources: Vec<Source>,
}

impl Catalog {
    /// Reads the meta table.
    pub(crate) fn load(engine: &Engine) -> Result<Self> {
        let mut catalog = Self::default();
        let mut containers = BTreeMap::new();
        let mut ranges = BTreeMap::new();
        let mut guards = Vec::new();
        let section = Section { table: Table::Meta, from: Vec::new(), to: vec![u8::MAX] };
        for entry in engine.view(vec![section], |_| usize::MAX).entries(0) {
            let (key, value) = entry?;
            // What a newer minor version has added is left alone.
            let Some(parsed) = MetaKey::parse(&key) else { continue };
            match parsed {
                MetaKey::AppliedGroup => {}
                MetaKey::Counters => catalog.counters = from_json(&key, &value)?,
                MetaKey::Database(id) => {
                    let stored: StoredDatabase = from_json(&key, &value)?;
                    let info = DatabaseInfo {
                        name: stored.name.clone(),
                        resource_id: id,
                        created_at: Timestamp::from_millis(stored.created_at),
                    };
                    catalog.databases.insert(stored.name, info);
                }
                MetaKey::Container(id) => {
                    let stored: StoredContainer = from_json(&key, &value)?;
                    containers.insert(id, stored);
                }
                MetaKey::Range(segment) => {
                    let record = RangeRecord::decode(&value).ok_or_else(|| unreadable(&key))?;
                    ranges.insert(segment, record);
                }
                MetaKey::Guard(id, name) => {
                    let positions: Positions = from_json(&key, &value)?;
                    guards.push((id, name.to_owned(), positions));
                }
                MetaKey::Dropped(id) => {
                    catalog.dropped.insert(id, from_json(&key, &value)?);
                }
                MetaKey::ExpiryChanged(id) => {
                    catalog.expiry_changed.insert(id, ());
                }
            }
        }
        for (id, stored) in containers {
            let container = stored.into_state(id, &ranges, &engine.remembered)?;
            catalog.containers.insert(container.info().name.clone(), Arc::new(container));
        }
        for (id, name, positions) in guards {
            if let Some(container) = catalog.container(id) {
                write(&container.guards).set(&name, positions);
            }
        }
        Ok(catalog)
    }

    pub(crate) fn container(&self, id: u32) -> Option<&Arc<ContainerState>> {
        self.containers.values().find(|it| it.id == id)
    }

    pub(crate) fn in_database(
        &self,
        database: &str,
    ) -> impl Iterator<Item = (&ContainerName, &Arc<ContainerState>)> {
        self.containers.iter().filter(move |(name, _)| name.database() == database)
    }
}

pub(crate) fn counters_entry(counters: &Counters) -> Entry {
    Entry::put(Table::Meta, keys::COUNTERS, to_json(counters))
}

pub(crate) fn database_entry(info: &DatabaseInfo) -> Entry {
    let stored =
        StoredDatabase { name: info.name.clone(), created_at: info.created_at.as_millis() };
    Entry::put(Table::Meta, keys::database(info.resource_id), to_json(&stored))
}

pub(crate) fn guard_entry(container: u32, name: &str, positions: &Positions) -> Entry {
    Entry::put(Table::Meta, keys::guard(container, name), to_json(positions))
}

pub(crate) fn dropped_entry(container: u32, dropped: &Dropped) -> Entry {
    Entry::put(Table::Meta, keys::dropped(container), to_json(dropped))
}

/// The entry of a container with these settings and ranges.
pub(crate) fn container_entry(
    info: &ContainerInfo,
    ranges: &[Arc<RangeState>],
    next_range: u32,
    past_ttls: &[PastTtl],
) -> Entry {
    let stored = StoredContainer {
        database: info.resource_id.database,
        database_name: info.name.database().to_owned(),
        name: info.name.container().to_owned(),
        settings: StoredSettings::from(&info.settings),
        revision: revision_of(&info.etag),
        modified_at: info.modified_at.as_millis(),
        next_range,
        ranges: ranges.iter().map(|it| StoredRange::from(&**it)).collect(),
        past_ttls: past_ttls
            .iter()
            .map(|it| (it.ttl.map(ttl_number), it.until.as_millis()))
            .collect(),
    };
    Entry::put(Table::Meta, keys::container(info.resource_id.container), to_json(&stored))
}

/// The etag of the settings of a container that were written so many times before.
pub(crate) fn revision_etag(revision: u64) -> Etag {
    Etag::new(format!("{revision:016x}"))
}

pub(crate) fn revision_of(etag: &Etag) -> u64 {
    u64::from_str_radix(etag.as_str(), 16).expect("it was made from a number")
}

impl StoredContainer {
    fn into_state(
        self,
        id: u32,
        ranges: &BTreeMap<u32, RangeRecord>,
        remembered: &Arc<AtomicUsize>,
    ) -> Result<ContainerState> {
        let info = ContainerInfo {
            name: ContainerName::new(&self.database_name, &self.name)?,
            resource_id: ResourceId { database: self.database, container: id },
            settings: self.settings.into_settings()?,
            etag: revision_etag(self.revision),
            modified_at: Timestamp::from_millis(self.modified_at),
        };
        let range = |stored: StoredRange| {
            let info = RangeInfo { id: stored.id, keys: stored.keys, parents: stored.parents };
            let record = ranges.get(&stored.segment).copied().unwrap_or_default();
            let remembered = Arc::clone(remembered);
            Arc::new(RangeState::new(info, stored.segment, stored.sources, record, remembered))
        };
        let ranges = self.ranges.into_iter().map(range).collect();
        let state = ContainerState::new(info, ranges, self.next_range);
        let mut past_ttls = Vec::with_capacity(self.past_ttls.len());
        for (ttl, until) in self.past_ttls {
            let ttl = ttl.map(TimeToLive::new).transpose()?;
            past_ttls.push(PastTtl { ttl, until: Timestamp::from_millis(until) });
        }
        *write(&state.past_ttls) = Arc::new(past_ttls);
        Ok(state)
    }
}

impl StoredSettings {
    fn from(settings: &ContainerSettings) -> Self {
        Self {
            partition_key: settings.partition_key.clone(),
            default_ttl: settings.default_ttl.map(ttl_number),
            all_versions_retention_ms: u64::try_from(settings.all_versions_retention.as_millis())
                .unwrap_or(u64::MAX),
            event_type: settings.event_type.clone(),
            ranges: settings.ranges,
            unique_keys: settings.unique_keys.clone(),
        }
    }

    fn into_settings(self) -> Result<ContainerSettings> {
        Ok(ContainerSettings {
            partition_key: self.partition_key,
            default_ttl: self.default_ttl.map(TimeToLive::new).transpose()?,
            all_versions_retention: Duration::from_millis(self.all_versions_retention_ms),
            event_type: self.event_type,
            ranges: self.ranges,
            unique_keys: self.unique_keys,
        })
    }
}

impl From<&RangeState> for StoredRange {
    fn from(range: &RangeState) -> Self {
        Self {
            id: range.id,
            keys: range.keys.clone(),
            parents: range.parents.clone(),
            segment: range.segment,
            sources: read(&range.sources).to_vec(),
        }
    }
}

fn ttl_number(ttl: TimeToLive) -> i64 {
    match ttl {
        TimeToLive::Never => -1,
        TimeToLive::Seconds(seconds) => i64::from(seconds),
    }
}

fn to_json(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).expect("our own types have string keys only")
}

fn from_json<'a, T: Deserialize<'a>>(key: &[u8], value: &'a [u8]) -> Result<T> {
    serde_json::from_slice(value).map_err(|error| unreadable(key).because(error))
}

fn unreadable(key: &[u8]) -> Error {
    Error::new(ErrorKind::Corrupt, format!("read the entry {key:02x?} of the meta table"))
}
