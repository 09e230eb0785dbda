use std::time::Duration;

use millstream_core::{
    ContainerInfo, ContainerName, ContainerSettings, DatabaseInfo, EffectiveKey, Etag, KeyRange,
    PartitionKeyDefinition, ResourceId, Result, TimeToLive, Timestamp, UniqueKey,
};
use serde::{Deserialize, Serialize};

/// A database as the catalog keeps it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct DatabaseRecord {
    pub(crate) name: String,
    pub(crate) number: u32,
    created_at: u64,
}

impl DatabaseRecord {
    pub(crate) fn new(name: &str, number: u32, now: Timestamp) -> Self {
        Self { name: name.to_owned(), number, created_at: now.as_millis() }
    }

    pub(crate) fn info(&self) -> DatabaseInfo {
        DatabaseInfo {
            name: self.name.clone(),
            resource_id: self.number,
            created_at: Timestamp::from_millis(self.created_at),
        }
    }
}

/// A container as the catalog keeps it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ContainerRecord {
    database: String,
    name: String,
    database_number: u32,
    pub(crate) number: u32,
    /// Streams it was created with; fixed for life.
    pub(crate) streams: u32,
    /// Copies of each.
    pub(crate) replicas: usize,
    modified_at: u64,
    partition_key: PartitionKeyDefinition,
    /// -1: never.
    default_ttl: Option<i64>,
    all_versions_retention_ms: u64,
    event_type: Option<String>,
    ranges: u32,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    unique_keys: Vec<UniqueKey>,
    /// Versions are kept from now on, but not all processes know that yet: nobody is shown any.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) is_history_opening: bool,
    /// Where the history begins that was switched on last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    history_opened: Option<Opened>,
}

/// When the history of a container was opened. It goes into the catalog in one message with the
/// word that it is open: readers may begin right here, and nobody may take it for later than it is.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Opened {
    at: u64,
    /// The newest commit of each range.
    lsns: Vec<u64>,
}

/// Streams that are being made before the record of their container is there, or removed after it
/// has gone. One that stays belongs to a process that died in between.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Unfinished {
    pub(crate) number: u32,
    pub(crate) streams: u32,
}

impl ContainerRecord {
    /// What stands for its streams while they come and go.
    pub(crate) fn unfinished(&self) -> Unfinished {
        Unfinished { number: self.number, streams: self.streams }
    }

    /// The number of its database.
    pub(crate) fn database_number(&self) -> u32 {
        self.database_number
    }

    pub(crate) fn new(
        name: &ContainerName,
        id: ResourceId,
        replicas: usize,
        settings: &ContainerSettings,
        now: Timestamp,
    ) -> Self {
        let record = Self {
            database: name.database().to_owned(),
            name: name.container().to_owned(),
            database_number: id.database,
            number: id.container,
            streams: settings.ranges,
            replicas,
            modified_at: 0,
            partition_key: settings.partition_key.clone(),
            default_ttl: None,
            all_versions_retention_ms: 0,
            event_type: None,
            ranges: settings.ranges,
            unique_keys: settings.unique_keys.clone(),
            is_history_opening: false,
            history_opened: None,
        };
        // Nobody has written to it yet.
        Self { is_history_opening: false, ..record.with(settings, now) }
    }

    /// The same container with other settings.
    pub(crate) fn with(mut self, settings: &ContainerSettings, now: Timestamp) -> Self {
        let was_off = self.all_versions_retention_ms == 0;
        self.is_history_opening =
            !settings.all_versions_retention.is_zero() && (was_off || self.is_history_opening);
        self.modified_at = now.as_millis();
        self.default_ttl = settings.default_ttl.map(|it| match it {
            TimeToLive::Never => -1,
            TimeToLive::Seconds(seconds) => i64::from(seconds),
        });
        let retention = settings.all_versions_retention.as_millis();
        self.all_versions_retention_ms = u64::try_from(retention).unwrap_or(u64::MAX);
        self.event_type.clone_from(&settings.event_type);
        self.ranges = settings.ranges;
        self
    }

    /// The same container when its history is shown from the newest commits of its ranges on.
    pub(crate) fn with_history_opened(mut self, lsns: Vec<u64>, now: Timestamp) -> Self {
        self.is_history_opening = false;
        self.history_opened = Some(Opened { at: now.as_millis(), lsns });
        self
    }

    /// What its history does not have because it was switched on later.
    pub(crate) fn opening(&self, range: u32) -> Floor {
        let opened = self.history_opened.as_ref();
        let at = |it: &Opened| it.lsns.get(usize::try_from(range).ok()?).copied();
        let floor = opened.and_then(|it| Some(Floor { lsn: at(it)?, at: it.at }));
        floor.unwrap_or_default()
    }

    /// Whether another record is of the same container and says the same.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        (self.number, self.is_history_opening, self.settings())
            == (other.number, other.is_history_opening, other.settings())
    }

    pub(crate) fn settings(&self) -> ContainerSettings {
        let seconds = |it: i64| u32::try_from(it).map_or(TimeToLive::Never, TimeToLive::Seconds);
        ContainerSettings {
            partition_key: self.partition_key.clone(),
            default_ttl: self.default_ttl.map(seconds),
            all_versions_retention: Duration::from_millis(self.all_versions_retention_ms),
            event_type: self.event_type.clone(),
            ranges: self.ranges,
            unique_keys: self.unique_keys.clone(),
        }
    }

    /// `sequence` is that of the message it stands in.
    pub(crate) fn info(&self, sequence: u64) -> Result<ContainerInfo> {
        Ok(ContainerInfo {
            name: ContainerName::new(&self.database, &self.name)?,
            resource_id: self.resource_id(),
            settings: self.settings(),
            etag: Etag::new(format!("{sequence:x}")),
            modified_at: Timestamp::from_millis(self.modified_at),
        })
    }

    /// A long name is hashed, so what is found may have another.
    pub(crate) fn is_called(&self, name: &ContainerName) -> bool {
        self.database == name.database() && self.name == name.container()
    }

    pub(crate) fn resource_id(&self) -> ResourceId {
        ResourceId { database: self.database_number, container: self.number }
    }
}

/// The newest commit that is no longer in a history, and its time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Floor {
    pub(crate) lsn: u64,
    pub(crate) at: u64,
}

/// How far one reader has come, by keys.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct GuardRecord {
    pub(crate) name: String,
    passed: Vec<(KeyRange, u64)>,
}

impl GuardRecord {
    pub(crate) fn new(name: &str) -> Self {
        Self { name: name.to_owned(), passed: Vec::new() }
    }

    /// Where a reader has said nothing, it has passed nothing.
    pub(crate) fn passed(&self, key: &EffectiveKey) -> u64 {
        let positions = self.passed.iter().filter(|(keys, _)| keys.contains(key));
        positions.map(|(_, lsn)| *lsn).max().unwrap_or(0)
    }

    /// A position never goes back: the largest counts. False if nothing changes.
    pub(crate) fn pass(&mut self, keys: &KeyRange, lsn: u64) -> bool {
        if self.passed.iter().any(|(old, passed)| old.covers(keys) && lsn <= *passed) {
            return false;
        }
        self.passed.retain(|(old, passed)| !keys.covers(old) || lsn < *passed);
        self.passed.push((keys.clone(), lsn));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guard_remembers_the_furthest_position_of_each_key() {
        let halves = KeyRange::divide(2).unwrap();
        let low = halves[0].min().clone();
        let high = halves[1].min().clone();
        let mut guard = GuardRecord::new("relay");
        assert!(guard.pass(&halves[0], 5));
        assert_eq!((guard.passed(&low), guard.passed(&high)), (5, 0));
        assert!(!guard.pass(&halves[0], 4), "a position never goes back");
        assert!(guard.pass(&KeyRange::all(), 3));
        assert_eq!((guard.passed(&low), guard.passed(&high)), (5, 3));
        assert!(guard.pass(&KeyRange::all(), 9));
        assert_eq!(guard.passed.len(), 1, "what is covered is not kept");
    }
}
