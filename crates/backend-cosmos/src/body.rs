//! What the service adds to an item, and the item without it.

use std::fmt;

use bytes::Bytes;
use millstream_core::{Etag, ItemId, Lsn, TimeToLive, Timestamp};
use serde::Deserializer;
use serde::de::{MapAccess, Visitor};
use serde_json::value::RawValue;

/// Properties that belong to the service.
const ADDED: [&str; 6] = ["_rid", "_self", "_etag", "_attachments", "_ts", "_lsn"];

/// An item as the service shows it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Shown {
    /// What the user wrote, as far as the service kept it.
    pub(crate) body: Bytes,
    pub(crate) id: Option<ItemId>,
    pub(crate) ttl: Option<TimeToLive>,
    pub(crate) etag: Option<Etag>,
    pub(crate) written_at: Option<Timestamp>,
    /// Only the feed says it.
    pub(crate) lsn: Option<Lsn>,
}

/// Takes apart what the user wrote and what the service added.
///
/// Only the properties of the service are cut out; every other byte stays as it came. What the
/// service took is not checked by our rules: one item must not keep readers from all others.
pub(crate) fn take_apart(text: &str) -> Result<Shown, serde_json::Error> {
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let members = deserializer.deserialize_map(Members)?;
    deserializer.end()?;
    let find = |name: &str| members.iter().rev().find(|it| it.name == name).map(|it| it.value);
    let id: Option<String> = parse(find("id"))?;
    // The service lets it be anything, and does nothing where it makes no sense.
    let ttl = find("ttl").and_then(|it| it.get().parse().ok());
    let etag: Option<String> = parse(find("_etag"))?;
    let seconds: Option<u64> = parse(find("_ts"))?;
    let lsn: Option<u64> = parse(find("_lsn"))?;
    Ok(Shown {
        body: without_added(text, &members).into(),
        id: id.map(ItemId::stored),
        ttl: ttl.and_then(|it| TimeToLive::new(it).ok()),
        etag: etag.map(Etag::new),
        written_at: seconds.map(|it| Timestamp::from_millis(it.saturating_mul(1000))),
        lsn: lsn.map(Lsn::new),
    })
}

struct Member<'a> {
    name: String,
    value: &'a RawValue,
}

struct Members;

impl<'de> Visitor<'de> for Members {
    type Value = Vec<Member<'de>>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an item")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut members = Vec::new();
        while let Some((name, value)) = map.next_entry()? {
            members.push(Member { name, value });
        }
        Ok(members)
    }
}

fn parse<T: serde::de::DeserializeOwned>(
    value: Option<&RawValue>,
) -> Result<Option<T>, serde_json::Error> {
    value.map(|it| serde_json::from_str(it.get())).transpose()
}

/// The text with the added properties, and the commas before them, cut out.
fn without_added(text: &str, members: &[Member<'_>]) -> String {
    let mut result = String::with_capacity(text.len());
    // What stands between two values belongs to the later one.
    let mut end = text.find('{').map_or(0, |it| it + 1);
    result.push_str(&text[..end]);
    let mut is_first = true;
    for (index, member) in members.iter().enumerate() {
        let start = end;
        end = end_of(text, member.value);
        if ADDED.contains(&member.name.as_str()) {
            continue;
        }
        let kept = &text[start..end];
        let kept = match kept.split_once(',') {
            Some((_, rest)) if is_first && 0 < index => rest,
            Some(_) | None => kept,
        };
        result.push_str(kept);
        is_first = false;
    }
    result.push_str(&text[end..]);
    result
}

/// Where a value that borrows from the text ends in it.
fn end_of(text: &str, value: &RawValue) -> usize {
    let value = value.get();
    value.as_ptr().addr() - text.as_ptr().addr() + value.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &str) {
        let shown = take_apart(text).unwrap();
        assert_eq!(std::str::from_utf8(&shown.body).unwrap(), expected);
    }

    #[test]
    fn what_the_user_wrote_comes_back_byte_for_byte() {
        let added = r#","_rid":"r","_self":"s","_etag":"\"7\"","_attachments":"a/","_ts":12"#;
        for (body, rest) in [
            (r#"{"id":"1""#, "}"),
            ("{ \"id\" :\t\"1\" , \"n\": 1e400", "\n}"),
            (r#"{"id":"1","n":18446744073709551615,"f":0.10"#, "  } "),
            (r#"{"_user":",","id":"1","nested":{"_ts":1,"_rid":[","]}"#, "}"),
        ] {
            check(&format!("{body}{added}{rest}"), &format!("{body}{rest}"));
        }
    }

    #[test]
    fn properties_of_the_service_are_found_wherever_they_are() {
        check(r#"{"_ts":1, "id":"1"}"#, r#"{ "id":"1"}"#);
        check(r#"{"_ts":1,"_lsn":3}"#, "{}");
        check(r#"{"a":",","_ts":1,"b":","}"#, r#"{"a":",","b":","}"#);
        check(r#"{"\u005fts":1,"b":2}"#, r#"{"b":2}"#);
    }

    #[test]
    fn etag_time_and_number_are_read() {
        let shown = take_apart(r#"{"id":"1","_etag":"\"7\"","_ts":12,"_lsn":9}"#).unwrap();
        assert_eq!(shown.etag, Some(Etag::new("\"7\"")));
        assert_eq!(shown.written_at, Some(Timestamp::from_millis(12_000)));
        assert_eq!(shown.lsn, Some(Lsn::new(9)));
        let shown = take_apart(r#"{"id":"1"}"#).unwrap();
        assert_eq!((shown.etag, shown.written_at, shown.lsn), (None, None, None));
    }

    #[track_caller]
    fn check_shown(text: &str, id: Option<&str>, ttl: Option<i64>) {
        let shown = take_apart(text).unwrap();
        assert_eq!(shown.id.as_ref().map(ItemId::as_str), id);
        assert_eq!(shown.ttl, ttl.map(|it| TimeToLive::new(it).unwrap()));
    }

    #[test]
    fn items_that_only_the_service_takes_are_read() {
        check_shown(r#"{"id":"1","ttl":60}"#, Some("1"), Some(60));
        check_shown(r#"{"id":"a/b\\c","ttl":-1}"#, Some("a/b\\c"), Some(-1));
        for ttl in ["null", "0", "-2", "1.5", "\"x\"", "{}", "99999999999", "1e400"] {
            check_shown(&format!(r#"{{"ttl":{ttl},"id":"\u0031"}}"#), Some("1"), None);
        }
        check_shown(r#"{"half":"\ud800","id":""}"#, Some(""), None);
        check_shown("{}", None, None);
    }

    #[test]
    fn what_is_no_item_is_refused() {
        for text in ["", "[]", "{", "{\"a\":1}x", r#"{"_ts":"x"}"#, r#"{"_etag":1}"#, r#"{"id":1}"#]
        {
            assert!(take_apart(text).is_err(), "{text}");
        }
    }
}
