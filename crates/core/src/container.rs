use std::fmt;
use std::time::Duration;

use crate::{
    Claim, Error, Etag, KeyRange, PartitionKeyDefinition, RangeId, Result, TimeToLive, Timestamp,
    UniqueKey,
};

/// The name of a container within its database.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ContainerName {
    database: Box<str>,
    container: Box<str>,
}

impl ContainerName {
    /// Longest name of a database or container.
    pub const BYTES_MAX: usize = 255;

    /// The container `container` of the database `database`.
    ///
    /// # Errors
    ///
    /// `Invalid` if a name is empty, too long or holds one of `/ \ ? #`.
    pub fn new(database: &str, container: &str) -> Result<Self> {
        check_name(database)?;
        check_name(container)?;
        Ok(Self { database: database.into(), container: container.into() })
    }

    /// The name of the database.
    #[must_use]
    pub fn database(&self) -> &str {
        &self.database
    }

    /// The name of the container.
    #[must_use]
    pub fn container(&self) -> &str {
        &self.container
    }
}

impl fmt::Display for ContainerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.database, self.container)
    }
}

/// Checks the name of a database or container.
///
/// # Errors
///
/// `Invalid` if the name is empty, longer than [`ContainerName::BYTES_MAX`] or holds one of `/ \ ?
/// #`.
pub fn check_name(name: &str) -> Result<()> {
    let reason = if name.is_empty() {
        "it is empty"
    } else if ContainerName::BYTES_MAX < name.len() {
        "it is longer than 255 bytes"
    } else if name.contains(['/', '\\', '?', '#']) || name.chars().any(char::is_control) {
        "it holds one of / \\ ? # or a control character"
    } else {
        return Ok(());
    };
    let shown: String = name.chars().take(32).collect();
    Err(Error::invalid(format!("use the name {shown:?}"), reason))
}

/// What the owner of a container chooses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerSettings {
    /// Where the partition key stands in the body, and how it is hashed. Fixed for life.
    pub partition_key: PartitionKeyDefinition,
    /// Time to live of items that do not say. Without it no item expires, not even one with a
    /// `ttl`.
    pub default_ttl: Option<TimeToLive>,
    /// How long the all-versions feed reaches back. Zero switches that feed off.
    pub all_versions_retention: Duration,
    /// Items whose `type` has this value are events: numbered per partition key, and kept beyond
    /// their TTL until every reader that holds them has passed.
    pub event_type: Option<String>,
    /// Number of ranges at creation.
    pub ranges: u32,
    /// Values that no two items of a logical partition may share. Fixed for life.
    pub unique_keys: Vec<UniqueKey>,
}

impl ContainerSettings {
    /// `type` of event documents, unless another is chosen.
    pub const EVENT_TYPE: &'static str = "domainEvent";
    /// Most ranges a container can be created with.
    pub const RANGES_MAX: u32 = 1024;
    /// Longest retention of all versions: 30 days, as in Cosmos DB's continuous backup.
    pub const RETENTION_MAX: Duration = Duration::from_secs(30 * 24 * 3600);

    /// One range, no TTL, no history, events of type [`ContainerSettings::EVENT_TYPE`].
    #[must_use]
    pub fn new(partition_key: PartitionKeyDefinition) -> Self {
        Self {
            partition_key,
            default_ttl: None,
            all_versions_retention: Duration::ZERO,
            event_type: Some(Self::EVENT_TYPE.to_owned()),
            ranges: 1,
            unique_keys: Vec::new(),
        }
    }

    /// Sets the time to live of items that do not say. Default: none, nothing expires.
    #[must_use]
    pub fn default_ttl(mut self, value: TimeToLive) -> Self {
        self.default_ttl = Some(value);
        self
    }

    /// Sets how long the all-versions feed reaches back. Default: zero, off.
    #[must_use]
    pub fn all_versions_retention(mut self, value: Duration) -> Self {
        self.all_versions_retention = value;
        self
    }

    /// Sets the number of ranges at creation. Default: 1; more let more readers work side by side.
    #[must_use]
    pub fn ranges(mut self, value: u32) -> Self {
        self.ranges = value;
        self
    }

    /// Adds values that no two items of a logical partition may share. Default: none, only ids are
    /// unique.
    #[must_use]
    pub fn unique_key(mut self, value: UniqueKey) -> Self {
        self.unique_keys.push(value);
        self
    }

    /// What an item with this body claims by the unique keys of the container, in their order.
    ///
    /// # Errors
    ///
    /// `Invalid` if the body is not one that may be stored.
    pub fn claims(&self, body: &[u8]) -> Result<Vec<Claim>> {
        UniqueKey::claims(&self.unique_keys, body)
    }

    /// Checks the settings of a new container.
    ///
    /// # Errors
    ///
    /// `Invalid` with the setting that is out of bounds.
    pub fn check(&self) -> Result<()> {
        let refused = |reason: &str| Err(Error::invalid("use the container settings", reason));
        if self.ranges < 1 || Self::RANGES_MAX < self.ranges {
            return refused("the number of ranges must be between 1 and 1024");
        }
        if self.default_ttl == Some(TimeToLive::Seconds(0)) {
            return refused("the default TTL must be -1 (never) or a positive number of seconds");
        }
        if Self::RETENTION_MAX < self.all_versions_retention {
            return refused("the retention of all versions must not exceed 30 days");
        }
        if self.event_type.as_ref().is_some_and(|it| it.is_empty() || 255 < it.len()) {
            return refused("the event type must have 1 to 255 bytes");
        }
        let paths: usize = self.unique_keys.iter().map(|it| it.paths().len()).sum();
        if UniqueKey::COUNT_MAX < self.unique_keys.len() || UniqueKey::PATHS_MAX < paths {
            return refused("a container has at most 10 unique keys with 16 paths altogether");
        }
        Ok(())
    }

    /// Checks settings that are to replace `old` ones.
    ///
    /// # Errors
    ///
    /// `Invalid` if a setting is out of bounds or one that is fixed for life differs.
    pub fn check_replacing(&self, old: &Self) -> Result<()> {
        self.check()?;
        if self.partition_key != old.partition_key {
            let reason = "the partition key of a container cannot be changed; create another one";
            return Err(Error::invalid("use the container settings", reason));
        }
        if self.unique_keys != old.unique_keys {
            let reason = "the unique keys of a container cannot be changed; create another one";
            return Err(Error::invalid("use the container settings", reason));
        }
        if self.event_type != old.event_type {
            let reason = "the event type of a container cannot be changed: events have numbers";
            return Err(Error::invalid("use the container settings", reason));
        }
        Ok(())
    }
}

/// Names a container for ever: two containers of the same name, one after the other, differ in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ResourceId {
    /// Of the database.
    pub database: u32,
    /// Of the container within the store.
    pub container: u32,
}

impl ResourceId {
    /// The number continuations carry.
    #[must_use]
    pub fn incarnation(self) -> u64 {
        u64::from(self.database) << 32 | u64::from(self.container)
    }
}

/// A database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DatabaseInfo {
    /// Its name.
    pub name: String,
    /// Its number, never used again.
    pub resource_id: u32,
    /// When it was created.
    pub created_at: Timestamp,
}

/// A container and its settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerInfo {
    /// Its name.
    pub name: ContainerName,
    /// Its number, never used again.
    pub resource_id: ResourceId,
    /// Its settings.
    pub settings: ContainerSettings,
    /// The version of the settings.
    pub etag: Etag,
    /// When the settings were last written.
    pub modified_at: Timestamp,
}

/// A part of the key space with its own commit numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RangeInfo {
    /// Its number within the container, never used again.
    pub id: RangeId,
    /// The keys it holds.
    pub keys: KeyRange,
    /// The ranges it came from, oldest first.
    pub parents: Vec<RangeId>,
}
