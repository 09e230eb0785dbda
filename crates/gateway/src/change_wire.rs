//! Changes as they travel: a flat item with its commit number, or an envelope.

use bytes::Bytes;
use millstream_core::{
    Change, ChangeKind, Item, PartitionKeyComponent, PartitionKeyDefinition, Timestamp,
};
use serde_json::{Map, Value, json};

use crate::item_body::Home;

/// The newest version of an item, with the number of its commit in `_lsn`.
pub(crate) fn flat(home: Home<'_>, change: &Change) -> Bytes {
    match &change.current {
        Some(item) => with_lsn(home, item),
        None => Bytes::from_static(b"{}"),
    }
}

/// The newest version of an item in an envelope: `{"current":{…},"metadata":{…}}`.
pub(crate) fn latest(home: Home<'_>, change: &Change) -> Bytes {
    let metadata = json!({ "lsn": change.lsn.as_u64(), "crts": seconds(change.committed_at) });
    envelope(home, change, None, &metadata)
}

/// One of all versions: `{"current":{…},"previous":{…},"metadata":{…}}`.
///
/// A delete has an empty `current`, what was deleted in `previous`, and metadata that names the
/// item. A replace only says which commit wrote what it replaced: Cosmos DB gives the version
/// itself to those who have arranged for it, which takes more than a retention.
pub(crate) fn version(
    home: Home<'_>,
    definition: &PartitionKeyDefinition,
    change: &Change,
) -> Bytes {
    let operation = match change.kind {
        ChangeKind::Created => "create",
        ChangeKind::Written | ChangeKind::Replaced => "replace",
        ChangeKind::Deleted | ChangeKind::Expired => "delete",
    };
    let mut metadata = json!({
        "operationType": operation,
        "lsn": change.lsn.as_u64(),
        "crts": seconds(change.committed_at),
    });
    if let Some(previous) = &change.previous {
        metadata["previousImageLSN"] = previous.lsn.as_u64().into();
    }
    if change.kind == ChangeKind::Expired {
        metadata["timeToLiveExpired"] = true.into();
    }
    if change.current.is_none() {
        metadata["id"] = change.id.as_str().into();
        metadata["partitionKey"] = Value::Object(key(definition, change));
    }
    let deleted = change.previous.as_ref().filter(|_| change.current.is_none());
    envelope(home, change, deleted, &metadata)
}

fn envelope(home: Home<'_>, change: &Change, previous: Option<&Item>, metadata: &Value) -> Bytes {
    let current = flat(home, change);
    let previous = previous.map(|item| with_lsn(home, item));
    let bytes = current.len() + previous.as_ref().map_or(0, Bytes::len);
    let mut text = Vec::with_capacity(bytes + 256);
    text.extend(b"{\"current\":");
    text.extend(current);
    if let Some(previous) = previous {
        text.extend(b",\"previous\":");
        text.extend(previous);
    }
    text.extend(format!(",\"metadata\":{metadata}}}").bytes());
    text.into()
}

fn with_lsn(home: Home<'_>, item: &Item) -> Bytes {
    home.present_with(item, Some(("_lsn", &item.lsn.to_string())))
}

/// The partition key by the names of its paths; what is not there is left out.
fn key(definition: &PartitionKeyDefinition, change: &Change) -> Map<String, Value> {
    let names = definition.paths().iter().map(|path| path.trim_start_matches('/').to_owned());
    let values = change.partition_key.components().iter().map(|component| match component {
        PartitionKeyComponent::Undefined => None,
        PartitionKeyComponent::Null => Some(Value::Null),
        PartitionKeyComponent::Bool(value) => Some(Value::from(*value)),
        PartitionKeyComponent::Number(number) => Some(whole(*number)),
        PartitionKeyComponent::String(text) => Some(Value::from(text.as_str())),
    });
    names.zip(values).filter_map(|(name, value)| Some((name, value?))).collect()
}

/// A number as the user most likely wrote it: without a fraction if it has none.
fn whole(number: f64) -> Value {
    serde_json::from_str(&PartitionKeyComponent::Number(number).to_string())
        .unwrap_or_else(|_| Value::from(number))
}

fn seconds(time: Timestamp) -> u64 {
    time.as_millis() / 1000
}

#[cfg(test)]
mod tests {
    use millstream_core::{Etag, ItemId, Lsn, PartitionKey, ResourceId};

    use super::*;

    const HOME: Home<'static> =
        Home { container: ResourceId { database: 1, container: 2 }, self_link: "dbs/d/colls/c/" };

    fn item(lsn: u64) -> Item {
        Item {
            id: ItemId::new("1").unwrap(),
            partition_key: PartitionKey::from(7),
            body: Bytes::from_static(b"{\"id\":\"1\"}"),
            etag: Etag::new(lsn.to_string()),
            lsn: Lsn::new(lsn),
            written_at: Timestamp::from_millis(lsn * 1000),
            expires_at: None,
            sequence: None,
        }
    }

    fn change(kind: ChangeKind, current: Option<Item>, previous: Option<Item>) -> Change {
        Change {
            kind,
            lsn: Lsn::new(9),
            committed_at: Timestamp::from_millis(9_500),
            partition_key: PartitionKey::from(7),
            id: ItemId::new("1").unwrap(),
            current,
            previous,
        }
    }

    fn shape(bytes: &Bytes) -> (Value, Value, Value) {
        let value: Value = serde_json::from_slice(bytes).unwrap();
        (
            value["current"]["_lsn"].clone(),
            value["previous"]["_lsn"].clone(),
            value["metadata"].clone(),
        )
    }

    #[test]
    fn a_flat_change_has_its_commit_number() {
        let flat = flat(HOME, &change(ChangeKind::Written, Some(item(9)), None));
        let value: Value = serde_json::from_slice(&flat).unwrap();
        assert_eq!((&value["_lsn"], &value["id"]), (&json!(9), &json!("1")));
    }

    #[test]
    fn an_envelope_says_when() {
        let latest = latest(HOME, &change(ChangeKind::Written, Some(item(9)), None));
        assert_eq!(shape(&latest), (json!(9), Value::Null, json!({"lsn": 9, "crts": 9})));
    }

    #[test]
    fn versions_say_what_they_came_from_and_deletes_have_it() {
        let definition = PartitionKeyDefinition::hash("/customer").unwrap();
        let replaced = change(ChangeKind::Replaced, Some(item(9)), Some(item(4)));
        let metadata =
            json!({"operationType": "replace", "lsn": 9, "crts": 9, "previousImageLSN": 4});
        assert_eq!(
            shape(&version(HOME, &definition, &replaced)),
            (json!(9), Value::Null, metadata)
        );

        let expired = change(ChangeKind::Expired, None, Some(item(4)));
        let metadata = json!({
            "operationType": "delete", "lsn": 9, "crts": 9, "previousImageLSN": 4,
            "timeToLiveExpired": true, "id": "1", "partitionKey": {"customer": 7},
        });
        assert_eq!(shape(&version(HOME, &definition, &expired)), (Value::Null, json!(4), metadata));
    }
}
