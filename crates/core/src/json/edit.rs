//! Changes a text in places and copies the rest byte for byte.

use std::ops::Range;

use crate::json::cursor::Fault;
use crate::json::scanner::Scanner;

/// New text for a range of the old one.
pub(crate) type Edit = (Range<usize>, String);

/// Replaces or appends top-level properties of an item; every other byte stays as it was.
///
/// The last one is replaced where a name is repeated, because that is the one that counts. Names in
/// `changes` are expected to differ.
///
/// # Panics
///
/// If `body` is not a JSON object (see [`Envelope::scan`](crate::Envelope::scan)) or a value is not
/// JSON.
///
/// ```
/// let body = br#"{"id": "1", "n": 1e400}"#;
/// let body = millstream_core::set_properties(body, &[("_ts", "17"), ("id", "\"2\"")]);
/// assert_eq!(body, br#"{"id": "2", "n": 1e400,"_ts":17}"#);
/// ```
#[must_use]
pub fn set_properties(body: &[u8], changes: &[(&str, &str)]) -> Vec<u8> {
    let text = std::str::from_utf8(body).expect("an item body was checked when it came in");
    for (name, value) in changes {
        assert!(is_value(value), "the new value of {name:?} is not JSON");
    }
    let edits = plan(text, changes).expect("an item body was checked when it came in");
    splice(text, &edits).into_bytes()
}

/// Replaces or appends one top-level property of an item; see [`set_properties`].
///
/// # Panics
///
/// If `body` is not a JSON object or `raw_value` is not JSON.
#[must_use]
pub fn set_property(body: &[u8], name: &str, raw_value: &str) -> Vec<u8> {
    set_properties(body, &[(name, raw_value)])
}

/// Applies edits, which must be in order and not overlap.
pub(crate) fn splice(text: &str, edits: &[Edit]) -> String {
    let added: usize = edits.iter().map(|(_, new)| new.len()).sum();
    let mut result = String::with_capacity(text.len() + added);
    let mut copied = 0;
    for (place, new) in edits {
        result.push_str(&text[copied..place.start]);
        result.push_str(new);
        copied = place.end;
    }
    result.push_str(&text[copied..]);
    result
}

/// The JSON spelling of a string.
pub(crate) fn quote(text: &str) -> String {
    serde_json::to_string(text).expect("every string has a JSON spelling")
}

fn plan(text: &str, changes: &[(&str, &str)]) -> Result<Vec<Edit>, Fault> {
    let mut places: Vec<Option<Range<usize>>> = vec![None; changes.len()];
    let mut scanner = Scanner::new(text);
    scanner.space();
    let mut end = scanner.position() + 1;
    let mut follows = false;
    scanner.object(|scanner, key, _| {
        let start = scanner.position();
        scanner.value()?;
        (end, follows) = (scanner.position(), true);
        if let Some(index) = changes.iter().position(|(name, _)| key.says(name)) {
            places[index] = Some(start..end);
        }
        Ok(())
    })?;
    scanner.end()?;
    let mut edits: Vec<Edit> = Vec::with_capacity(changes.len());
    for ((name, value), place) in changes.iter().zip(places) {
        edits.push(match place {
            Some(place) => (place, (*value).to_owned()),
            None => {
                let comma = if follows { "," } else { "" };
                follows = true;
                (end..end, format!("{comma}{}:{value}", quote(name)))
            }
        });
    }
    // Stable, so that appended properties keep the order in which they were given.
    edits.sort_by_key(|(place, _)| place.start);
    Ok(edits)
}

fn is_value(text: &str) -> bool {
    let mut scanner = Scanner::new(text);
    scanner.value().and_then(|()| scanner.end()).is_ok()
}
