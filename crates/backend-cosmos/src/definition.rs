//! Databases and containers as the service describes them.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use millstream_core::{
    ContainerInfo, ContainerName, ContainerSettings, DatabaseInfo, Error, ErrorKind, Etag,
    PartitionKeyDefinition, ResourceId, Result, TimeToLive, Timestamp, UniqueKey,
};
use serde::Deserialize;
use serde_json::{Map, Value, json};

/// Seconds of the unit in which the service keeps versions.
const MINUTE: u64 = 60;

/// A database in an answer.
#[derive(Deserialize)]
pub(crate) struct DatabaseWire {
    id: String,
    #[serde(rename = "_rid")]
    rid: String,
    #[serde(rename = "_ts", default)]
    seconds: u64,
}

/// A container in an answer.
#[derive(Deserialize)]
pub(crate) struct ContainerWire {
    pub(crate) id: String,
    #[serde(rename = "_rid")]
    pub(crate) rid: String,
    #[serde(rename = "_etag")]
    etag: String,
    #[serde(rename = "_ts", default)]
    seconds: u64,
    #[serde(rename = "partitionKey")]
    partition_key: PartitionKeyDefinition,
    #[serde(rename = "defaultTtl")]
    default_ttl: Option<i64>,
    #[serde(rename = "changeFeedPolicy")]
    change_feed: Option<ChangeFeedWire>,
    #[serde(rename = "uniqueKeyPolicy")]
    unique_keys: Option<UniqueKeysWire>,
}

#[derive(Deserialize)]
struct UniqueKeysWire {
    #[serde(rename = "uniqueKeys")]
    keys: Option<Vec<UniqueKey>>,
}

#[derive(Deserialize)]
struct ChangeFeedWire {
    #[serde(rename = "retentionDuration", default)]
    minutes: u64,
}

impl DatabaseWire {
    pub(crate) fn info(self) -> Result<DatabaseInfo> {
        let (database, _) = numbers(&self.rid)?;
        Ok(DatabaseInfo { name: self.id, resource_id: database, created_at: time(self.seconds) })
    }
}

impl ContainerWire {
    /// What it is; the service says elsewhere how many ranges it has.
    pub(crate) fn info(self, database: &str, ranges: usize) -> Result<ContainerInfo> {
        let (database_number, container_number) = numbers(&self.rid)?;
        let container = container_number.ok_or_else(|| strange("it is that of a database"))?;
        let retention = self.change_feed.map_or(0, |it| it.minutes.saturating_mul(MINUTE));
        let mut settings = ContainerSettings::new(self.partition_key)
            .all_versions_retention(Duration::from_secs(retention))
            .ranges(u32::try_from(ranges).unwrap_or(u32::MAX));
        settings.default_ttl = self.default_ttl.map(TimeToLive::new).transpose()?;
        settings.unique_keys = self.unique_keys.and_then(|it| it.keys).unwrap_or_default();
        Ok(ContainerInfo {
            name: ContainerName::new(database, &self.id)?,
            resource_id: ResourceId { database: database_number, container },
            settings,
            etag: Etag::new(self.etag),
            modified_at: time(self.seconds),
        })
    }
}

/// What a new container is created with.
pub(crate) fn new_container(name: &ContainerName, settings: &ContainerSettings) -> Vec<u8> {
    let partition_key = json!(settings.partition_key);
    let mut body = Map::new();
    body.insert("id".to_owned(), name.container().into());
    body.insert("partitionKey".to_owned(), partition_key);
    if !settings.unique_keys.is_empty() {
        let policy = json!({ "uniqueKeys": settings.unique_keys });
        body.insert("uniqueKeyPolicy".to_owned(), policy);
    }
    apply(&mut body, settings);
    Value::Object(body).to_string().into_bytes()
}

/// Writes the settings that can change into the description of a container.
///
/// What we do not know of, such as how it is indexed, stays as it is.
pub(crate) fn apply(body: &mut Map<String, Value>, settings: &ContainerSettings) {
    match settings.default_ttl {
        Some(TimeToLive::Never) => body.insert("defaultTtl".to_owned(), json!(-1)),
        Some(TimeToLive::Seconds(seconds)) => body.insert("defaultTtl".to_owned(), json!(seconds)),
        None => body.remove("defaultTtl"),
    };
    // Whole minutes, so that nothing is kept for less time than was asked for.
    let minutes = settings.all_versions_retention.as_secs().div_ceil(MINUTE);
    if minutes == 0 {
        body.remove("changeFeedPolicy");
    } else {
        body.insert("changeFeedPolicy".to_owned(), json!({ "retentionDuration": minutes }));
    }
}

/// Refuses what the service would not remember.
pub(crate) fn check(settings: &ContainerSettings) -> Result<()> {
    settings.check()?;
    match settings.event_type.as_deref() {
        None | Some(ContainerSettings::EVENT_TYPE) => Ok(()),
        Some(other) => {
            let error = Error::new(ErrorKind::Unsupported, format!("use the event type {other:?}"));
            Err(error.because("Cosmos DB does not keep one; events are of the type domainEvent"))
        }
    }
}

/// The numbers in a resource id: of the database, and of the container if it is one's.
fn numbers(rid: &str) -> Result<(u32, Option<u32>)> {
    let bytes = STANDARD.decode(rid.replace('-', "/"));
    let bytes = bytes.map_err(|error| strange(error.to_string()))?;
    let number = |bytes: &[u8]| bytes.first_chunk().map(|it| u32::from_be_bytes(*it));
    let database = number(&bytes).ok_or_else(|| strange("it is shorter than four bytes"))?;
    Ok((database, bytes.get(4..).and_then(number)))
}

fn strange(reason: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
    Error::new(ErrorKind::Unavailable, "read a resource id of the service").because(reason)
}

fn time(seconds: u64) -> Timestamp {
    Timestamp::from_millis(seconds.saturating_mul(1000))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wire(text: &str) -> ContainerInfo {
        serde_json::from_str::<ContainerWire>(text).unwrap().info("db", 3).unwrap()
    }

    #[test]
    fn a_container_is_read_as_the_service_describes_it() {
        let info = wire(
            r#"{"id":"c","_rid":"AAAAAYAAAAI=","_etag":"\"e\"","_ts":7,"indexingPolicy":{},
                "partitionKey":{"paths":["/pk"],"kind":"Hash","version":2},"defaultTtl":-1,
                "changeFeedPolicy":{"retentionDuration":10},
                "uniqueKeyPolicy":{"uniqueKeys":[{"paths":["/a","/b/c"]}]}}"#,
        );
        assert_eq!(info.settings.unique_keys, [UniqueKey::new(["/a", "/b/c"]).unwrap()]);
        assert_eq!(info.name, ContainerName::new("db", "c").unwrap());
        assert_eq!(info.resource_id, ResourceId { database: 1, container: 0x8000_0002 });
        assert_eq!(info.settings.default_ttl, Some(TimeToLive::Never));
        assert_eq!(info.settings.all_versions_retention, Duration::from_secs(600));
        assert_eq!((info.settings.ranges, info.modified_at.as_millis()), (3, 7000));
    }

    #[test]
    fn settings_are_written_and_the_rest_is_kept() {
        let key = PartitionKeyDefinition::hash("/pk").unwrap();
        let settings = ContainerSettings::new(key)
            .default_ttl(TimeToLive::Seconds(5))
            .all_versions_retention(Duration::from_secs(61));
        let mut body = json!({ "indexingPolicy": 1, "defaultTtl": -1 });
        apply(body.as_object_mut().unwrap(), &settings);
        assert_eq!(
            body,
            json!({
                "indexingPolicy": 1, "defaultTtl": 5, "changeFeedPolicy": { "retentionDuration": 2 }
            })
        );
    }

    #[test]
    fn strange_resource_ids_are_refused() {
        for rid in ["", "AAA=", "%"] {
            let wire = DatabaseWire { id: "d".to_owned(), rid: rid.to_owned(), seconds: 0 };
            assert!(wire.info().is_err(), "{rid}");
        }
    }
}
