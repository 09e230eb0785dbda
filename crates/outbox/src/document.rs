//! The documents of entities and events: `{id, partitionKey, type, data, ttl}`.
//!
//! An event has the properties a relay needs beside its data; see [`StoredEvent`]. Its number is
//! not in the document: the store gives it at commit ([`Item::sequence`]).

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use millstream_core::{
    ContainerSettings, Envelope, Item, PartitionKey, PartitionKeyComponent, RawJson, TimeToLive,
    Timestamp,
};
use serde::Deserialize;
use serde_json::value::RawValue;
use uuid::Uuid;

use crate::{Error, ErrorKind, RaisedEvent, Result, TraceContext};

/// Properties of our documents; the partition key needs a name of its own.
const TAKEN: &[&str] = &[
    "id",
    "type",
    "data",
    "ttl",
    "action",
    "entityId",
    "createdAt",
    "deliverAt",
    "traceparent",
    "tracestate",
    "baggage",
    "consumer",
    "messageId",
    "lastSequence",
    "missing",
];

/// How the documents of one container look.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    /// Names of properties that lead to the partition key.
    key_path: Vec<String>,
}

impl Layout {
    pub(crate) fn of(settings: &ContainerSettings) -> Result<Self> {
        let attempted = "use the container for entities";
        let [path] = settings.partition_key.segments() else {
            let reason = "its partition key has several paths; the documents have room for one";
            return Err(Error::invalid(attempted, reason));
        };
        let first = path.first().map(String::as_str).unwrap_or_default();
        if TAKEN.contains(&first) {
            let reason = format!(
                "its partition key stands in {first:?}, which the documents use otherwise; \
                 create it with /partitionKey"
            );
            return Err(Error::invalid(attempted, reason));
        }
        Ok(Self { key_path: path.clone() })
    }

    /// A document with these further properties, each already spelled as JSON.
    pub(crate) fn document(
        &self,
        id: &str,
        key: &PartitionKey,
        kind: &str,
        further: &[(&str, String)],
    ) -> Result<Bytes> {
        let mut text = format!("{{\"id\":{}", quote(id));
        if let Some((name, value)) = self.key_property(key)? {
            text.push_str(&format!(",{}:{value}", quote(name)));
        }
        text.push_str(&format!(",\"type\":{}", quote(kind)));
        for (name, value) in further {
            text.push_str(&format!(",{}:{value}", quote(name)));
        }
        text.push('}');
        Ok(Bytes::from(text))
    }

    /// The document of an event.
    pub(crate) fn event(
        &self,
        event: &RaisedEvent,
        key: &PartitionKey,
        kind: &str,
        id_property: Option<&str>,
        keep: TimeToLive,
    ) -> Result<Bytes> {
        let id = quote(&event.id.to_string());
        let created_at = quote(&event.created_at.to_rfc3339());
        let (action, entity_id) = (quote(&event.action), quote(&event.entity_id));
        let mut own = vec![("entityId", &entity_id)];
        own.extend(id_property.filter(|it| *it != "entityId").map(|it| (it, &entity_id)));
        own.extend([("action", &action), ("id", &id), ("createdAt", &created_at)]);
        let data = extended(event, &own)?;
        let mut further = vec![
            ("data", data),
            ("ttl", seconds(event_ttl(event, keep)).to_string()),
            ("action", action.clone()),
            ("entityId", entity_id.clone()),
            ("createdAt", created_at.clone()),
        ];
        let deliver_at = event.deliver_not_before.map(|it| quote(&it.to_rfc3339()));
        further.extend(deliver_at.map(|it| ("deliverAt", it)));
        let trace = &event.trace;
        further.extend(trace.traceparent().map(|it| ("traceparent", quote(it))));
        further.extend(trace.tracestate().map(|it| ("tracestate", quote(it))));
        further.extend(trace.baggage().map(|it| ("baggage", quote(it))));
        self.document(&event.id.to_string(), key, kind, &further)
    }

    /// The top-level property that holds the partition key, and its value.
    fn key_property(&self, key: &PartitionKey) -> Result<Option<(&str, String)>> {
        let [component] = key.components() else {
            let reason = "it has several components where the container has one path";
            return Err(Error::invalid(format!("use the partition key {key}"), reason));
        };
        let Some((name, inner)) = self.key_path.split_first() else {
            return Ok(None);
        };
        if *component == PartitionKeyComponent::Undefined {
            return Ok(None);
        }
        let nested = inner
            .iter()
            .rev()
            .fold(component.to_string(), |value, name| format!("{{{}:{value}}}", quote(name)));
        Ok(Some((name, nested)))
    }
}

/// An event as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredEvent {
    /// Its id; also that of its message.
    pub id: Uuid,
    /// The logical partition; the session of its message.
    pub partition_key: PartitionKey,
    /// Its place among the events of the partition key, where the backend numbers them.
    pub sequence: Option<u64>,
    /// What happened; the subject of its message.
    pub action: String,
    /// To which entity.
    pub entity_id: String,
    /// When it was raised.
    pub created_at: Timestamp,
    /// What the event tells, with `id`, `action`, `entityId` and `createdAt`; the body of its
    /// message.
    pub data: RawJson,
    /// The trace it was raised in.
    pub trace: TraceContext,
    /// Its message is held back until then.
    pub deliver_not_before: Option<Timestamp>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct EventWire<'a> {
    id: Uuid,
    action: String,
    entity_id: String,
    created_at: String,
    #[serde(borrow)]
    data: &'a RawValue,
    deliver_at: Option<String>,
    traceparent: Option<String>,
    tracestate: Option<String>,
    baggage: Option<String>,
}

impl StoredEvent {
    /// Reads the document of an event. Properties it does not know are ignored.
    ///
    /// # Errors
    ///
    /// `Unreadable` if the item is not an event that a unit of work has written.
    pub fn read(item: &Item) -> Result<Self> {
        let wire: EventWire<'_> =
            serde_json::from_slice(&item.body).map_err(|error| unreadable(item).because(error))?;
        let time = |text: &str| {
            let reason = || unreadable(item).because(format!("{text:?} is not a time"));
            Timestamp::from_rfc3339(text).ok_or_else(reason)
        };
        let [parent, state, baggage] =
            [&wire.traceparent, &wire.tracestate, &wire.baggage].map(Option::as_deref);
        Ok(Self {
            id: wire.id,
            partition_key: item.partition_key.clone(),
            sequence: item.sequence,
            action: wire.action,
            entity_id: wire.entity_id,
            created_at: time(&wire.created_at)?,
            data: RawJson::parse(wire.data.get()).map_err(|it| unreadable(item).because(it))?,
            deliver_not_before: wire.deliver_at.as_deref().map(time).transpose()?,
            trace: TraceContext::from_headers(parent, state, baggage),
        })
    }
}

#[derive(Deserialize)]
struct EntityWire<'a> {
    #[serde(borrow)]
    data: &'a RawValue,
}

/// The data of a document of this type; none if it is of another type.
pub(crate) fn entity_data<'a>(item: &'a Item, kind: &str) -> Result<Option<&'a str>> {
    let envelope = Envelope::scan(&item.body).map_err(|error| unreadable(item).because(error))?;
    if envelope.kind.as_deref() != Some(kind) {
        return Ok(None);
    }
    let wire: EntityWire<'_> =
        serde_json::from_slice(&item.body).map_err(|error| unreadable(item).because(error))?;
    Ok(Some(wire.data.get()))
}

pub(crate) fn unreadable(item: &Item) -> Error {
    Error::new(ErrorKind::Unreadable, format!("read the stored document {:?}", item.id.as_str()))
}

/// The JSON spelling of a string.
pub(crate) fn quote(text: &str) -> String {
    serde_json::to_string(text).expect("every string has a JSON spelling")
}

/// The value of a property `ttl`.
pub(crate) fn seconds(ttl: TimeToLive) -> i64 {
    match ttl {
        TimeToLive::Never => -1,
        TimeToLive::Seconds(seconds) => seconds.into(),
    }
}

/// What the event tells, followed by our own properties.
fn extended(event: &RaisedEvent, own: &[(&str, &String)]) -> Result<String> {
    let attempted = || format!("raise the event {:?} of {:?}", event.action, event.entity_id);
    let text = match event.data.as_str() {
        "null" => "{}",
        text => text,
    };
    let properties: BTreeMap<String, &RawValue> = serde_json::from_str(text)
        .map_err(|_| Error::invalid(attempted(), "its data is not a JSON object"))?;
    if let Some((name, _)) = own.iter().find(|(name, _)| properties.contains_key(*name)) {
        let reason = format!("its data has a property {name:?}, which every event has already");
        return Err(Error::invalid(attempted(), reason));
    }
    let own: Vec<(&str, &str)> = own.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let bytes = millstream_core::set_properties(text.as_bytes(), &own);
    Ok(String::from_utf8(bytes).expect("edited text stays text"))
}

/// A message that is held back needs its document for that much longer. Counted from when the event
/// was raised, so that every attempt to commit writes the same.
fn event_ttl(event: &RaisedEvent, keep: TimeToLive) -> TimeToLive {
    let (Some(deliver_at), TimeToLive::Seconds(keep)) = (event.deliver_not_before, keep) else {
        return keep;
    };
    let wait = deliver_at.since(event.created_at) + Duration::from_millis(999);
    let total = wait.as_secs().saturating_add(keep.into());
    TimeToLive::Seconds(
        u32::try_from(total)
            .map_or(TimeToLive::SECONDS_MAX, |total| total.min(TimeToLive::SECONDS_MAX)),
    )
}

#[cfg(test)]
mod tests {
    use millstream_core::PartitionKeyDefinition;

    use super::*;

    fn layout(path: &str) -> Result<Layout> {
        let definition = PartitionKeyDefinition::hash(path).expect("a path");
        Layout::of(&ContainerSettings::new(definition))
    }

    #[track_caller]
    fn check(path: &str, key: impl Into<PartitionKey>, expected: &str) {
        let document = layout(path).and_then(|it| it.document("1", &key.into(), "t", &[]));
        let text = document.map_or_else(|it| it.report(), |it| String::from_utf8_lossy(&it).into());
        assert_eq!(text, expected);
    }

    #[test]
    fn the_partition_key_stands_where_the_container_wants_it() {
        check("/partitionKey", "a\"b", r#"{"id":"1","partitionKey":"a\"b","type":"t"}"#);
        check("/tenant/name", "a", r#"{"id":"1","tenant":{"name":"a"},"type":"t"}"#);
        check("/partitionKey", 17, r#"{"id":"1","partitionKey":17,"type":"t"}"#);
        check("/partitionKey", PartitionKey::none(), r#"{"id":"1","type":"t"}"#);
        check(
            "/partitionKey",
            PartitionKey::null(),
            r#"{"id":"1","partitionKey":null,"type":"t"}"#,
        );
    }

    #[test]
    fn a_partition_key_that_is_in_the_way_is_refused() {
        let report = layout("/id").unwrap_err().report();
        assert!(report.contains("create it with /partitionKey"), "{report}");
        let several = PartitionKeyDefinition::multi_hash(["/a", "/b"]).expect("paths");
        assert!(Layout::of(&ContainerSettings::new(several)).is_err());
        let key = PartitionKey::of(["a", "b"]).expect("a key");
        assert!(layout("/a").unwrap().document("1", &key, "t", &[]).is_err());
    }
}
