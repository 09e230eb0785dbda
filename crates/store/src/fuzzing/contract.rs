//! What clients send: bodies, patches, keys, ranges and continuations.

use millstream_core::{
    Continuation, Cursor, EffectiveKey, Envelope, HashKind, KeyRange, PartitionKey,
    PartitionKeyDefinition, Patch, TimeToLive, set_properties, set_property,
};

pub(super) fn effective_key(data: &[u8]) {
    let Some(text) = text(data) else { return };
    let Ok(key) = text.parse::<EffectiveKey>() else { return };
    assert_eq!(key.to_string(), text.to_ascii_uppercase());
    assert!(key.as_bytes().starts_with(key.trimmed()));
    assert_eq!(EffectiveKey::from_bytes(key.as_bytes()).expect("it is short enough"), key);
}

pub(super) fn key_range(data: &[u8]) {
    let Some(text) = text(data) else { return };
    for range in [KeyRange::from_json(text), KeyRange::from_base64(text)].into_iter().flatten() {
        assert_eq!(KeyRange::from_json(&range.to_json()).expect("it is ours"), range);
        assert_eq!(KeyRange::from_base64(&range.to_base64()).expect("it is ours"), range);
        assert!(KeyRange::all().covers(&range) && range.contains(range.min()));
        if let Some(middle) = range.middle() {
            let (low, high) = range.split_at(&middle).expect("it is the middle");
            assert!(!low.overlaps(&high) && range.covers(&low) && range.covers(&high));
            assert_eq!(range.intersect(&low), Some(low));
        }
    }
}

pub(super) fn cursor(data: &[u8]) {
    let Some(text) = text(data) else { return };
    let Ok(continuation) = Continuation::new(text) else { return };
    let Ok(cursor) = Cursor::parse(&continuation) else { return };
    let again = cursor.to_continuation();
    assert_eq!(Cursor::parse(&again).expect("it is ours"), cursor);
}

pub(super) fn key_bytes(data: &[u8]) {
    let Ok((key, rest)) = PartitionKey::decode(data) else { return };
    let mut written = Vec::new();
    key.encode(&mut written);
    assert_eq!(written, data[..data.len() - rest.len()], "two spellings of {key}");
    assert_eq!(key.to_string().parse::<PartitionKey>().expect("it is ours"), key);
    hash(&key);
}

pub(super) fn key_text(data: &[u8]) {
    let Some(text) = text(data) else { return };
    let Ok(key) = text.parse::<PartitionKey>() else { return };
    assert!(key.to_string().is_ascii(), "it would not fit into a header");
    assert_eq!(key.to_string().parse::<PartitionKey>().expect("it is ours"), key);
    let mut written = Vec::new();
    key.encode(&mut written);
    let (again, rest) = PartitionKey::decode(&written).expect("it is ours");
    assert!(again == key && rest.is_empty(), "{key} came back as {again}");
    hash(&key);
}

/// Input: the JSON of a definition, a zero byte, a body.
pub(super) fn key_definition(data: &[u8]) {
    let (json, body) = halves(data);
    let Ok(definition) = serde_json::from_slice::<PartitionKeyDefinition>(json) else { return };
    let written = serde_json::to_vec(&definition).expect("it has string keys only");
    let again: PartitionKeyDefinition = serde_json::from_slice(&written).expect("it is ours");
    assert_eq!(again, definition);
    if let Ok(key) = definition.extract(body) {
        let effective = definition.effective(&key).expect("it has a component for each path");
        assert!(definition.range_of(&key).expect("it is whole").contains(&effective));
        let parts = definition.divide(3).expect("three is few");
        assert_eq!(parts.iter().filter(|it| it.contains(&effective)).count(), 1, "{key}");
    }
}

pub(super) fn envelope(data: &[u8]) {
    let Ok(envelope) = Envelope::scan(data) else { return };
    serde_json::from_slice::<serde::de::IgnoredAny>(data).expect("others can read it as well");
    assert_eq!(id_in(data), Some(PartitionKey::from(envelope.id.as_str())));

    let stamped = set_property(data, "_etag", r#""1""#);
    assert_eq!(Envelope::scan(&stamped).expect("it is still whole"), envelope);
    let changed = set_properties(data, &[("id", r#""other""#), ("ttl", "7")]);
    let changed = Envelope::scan(&changed).expect("it is still whole");
    assert_eq!((changed.id.as_str(), changed.ttl), ("other", Some(TimeToLive::Seconds(7))));
    assert_eq!(changed.kind, envelope.kind);
}

/// Input: the JSON of a patch, a zero byte, a body.
pub(super) fn patch(data: &[u8]) {
    let (json, body) = halves(data);
    let Ok((patch, _)) = Patch::from_json(json) else { return };
    match Patch::from_json(&patch.to_json()) {
        Ok((again, _)) => assert_eq!(again.operations(), patch.operations()),
        // A bare array is written as part of an object, one level deeper.
        Err(error) => assert!(json.trim_ascii_start().starts_with(b"["), "{}", error.report()),
    }
    if let Ok(patched) = patch.apply(body) {
        let before = id_in(body).expect("only objects can be patched");
        assert_eq!(id_in(&patched), Some(before), "a patch changed the id");
    }
}

fn hash(key: &PartitionKey) {
    let paths = ["/a", "/b", "/c"].into_iter().take(key.components().len());
    for kind in [HashKind::V1, HashKind::V2, HashKind::MultiHash] {
        let Ok(definition) = PartitionKeyDefinition::new(paths.clone(), kind) else { continue };
        let effective = definition.effective(key).expect("it has a component for each path");
        assert!(KeyRange::all().contains(&effective), "{key}");
        assert!(definition.range_of(key).expect("it is whole").contains(&effective), "{key}");
    }
}

/// The id as the partition key would be found; none if the body is not an object.
///
/// An id that is no scalar or a very long one counts as undefined.
fn id_in(body: &[u8]) -> Option<PartitionKey> {
    let definition = PartitionKeyDefinition::hash("/id").expect("it is a path");
    match definition.extract(body) {
        Ok(key) => Some(key),
        Err(error) if error.to_string().contains("find the partition key in the item") => None,
        Err(_) => Some(PartitionKey::none()),
    }
}

fn text(data: &[u8]) -> Option<&str> {
    std::str::from_utf8(data).ok()
}

/// What stands before and after the first zero byte, which no JSON text holds.
fn halves(data: &[u8]) -> (&[u8], &[u8]) {
    match data.iter().position(|it| *it == 0) {
        Some(at) => (&data[..at], &data[at + 1..]),
        None => (data, b"{}"),
    }
}
