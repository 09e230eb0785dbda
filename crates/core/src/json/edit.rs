//! Changes a text in places and copies the rest byte for byte.

use std::ops::Range;

use memchr::{memchr, memmem};

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
/// If `body` is not a JSON object (see [`Envelope::scan`](crate::Envelope::scan)); with debug
/// assertions also if a value is not JSON.
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
        debug_assert!(is_value(value), "the new value of {name:?} is not JSON");
    }
    let plan = match Plan::behind_all(text, changes) {
        Some(plan) => plan,
        None => Plan::new(text, changes).expect("an item body was checked when it came in"),
    };
    plan.carry_out(text, changes).into_bytes()
}

/// Replaces or appends one top-level property of an item; see [`set_properties`].
///
/// # Panics
///
/// As [`set_properties`] does.
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

/// Where the properties to be changed stand, and where new ones go.
struct Plan {
    /// The value of each; none of those that are not there yet.
    places: Vec<Option<Range<usize>>>,
    /// Behind the last property.
    end: usize,
    has_properties: bool,
}

impl Plan {
    /// Without a look at every property: what the store and the protocol add begins with an
    /// underscore, and most items have no such name. None if this one may.
    fn behind_all(text: &str, changes: &[(&str, &str)]) -> Option<Self> {
        let is_reserved = |it: &(&str, &str)| it.0.starts_with('_');
        let body = text.as_bytes();
        if !changes.iter().all(is_reserved)
            || memchr(b'\\', body).is_some()
            || memmem::find(body, b"\"_").is_some()
        {
            return None;
        }
        let inside = text.trim_end().strip_suffix('}')?.trim_end();
        let has_properties = !inside.ends_with('{');
        Some(Self { places: vec![None; changes.len()], end: inside.len(), has_properties })
    }

    fn new(text: &str, changes: &[(&str, &str)]) -> Result<Self, Fault> {
        let mut places: Vec<Option<Range<usize>>> = vec![None; changes.len()];
        let mut scanner = Scanner::new(text);
        scanner.space();
        let mut end = scanner.position() + 1;
        let mut has_properties = false;
        scanner.object(|scanner, key, _| {
            let start = scanner.position();
            scanner.value()?;
            (end, has_properties) = (scanner.position(), true);
            if let Some(index) = changes.iter().position(|(name, _)| key.says(name)) {
                places[index] = Some(start..end);
            }
            Ok(())
        })?;
        scanner.end()?;
        Ok(Self { places, end, has_properties })
    }

    /// One allocation for the text, whatever changes: this is done for every item that is shown.
    fn carry_out(self, text: &str, changes: &[(&str, &str)]) -> String {
        let added: usize = changes.iter().map(|(name, value)| name.len() + value.len() + 4).sum();
        let mut result = String::with_capacity(text.len() + added);
        let places = self.places.iter().zip(changes);
        let mut replaced: Vec<(Range<usize>, &str)> =
            places.filter_map(|(place, (_, value))| Some((place.clone()?, *value))).collect();
        replaced.sort_by_key(|(place, _)| place.start);
        let mut copied = 0;
        for (place, value) in replaced {
            result.push_str(&text[copied..place.start]);
            result.push_str(value);
            copied = place.end;
        }
        // No value stands behind the last property.
        result.push_str(&text[copied..self.end]);
        let mut follows = self.has_properties;
        for ((name, value), _) in changes.iter().zip(&self.places).filter(|it| it.1.is_none()) {
            if follows {
                result.push(',');
            }
            follows = true;
            push_quoted(&mut result, name);
            result.push(':');
            result.push_str(value);
        }
        result.push_str(&text[self.end..]);
        result
    }
}

/// Appends the JSON spelling of a string; nearly every name is spelled as it is.
fn push_quoted(text: &mut String, name: &str) {
    if name.bytes().all(|it| it.is_ascii_alphanumeric() || it == b'_') {
        text.push('"');
        text.push_str(name);
        text.push('"');
    } else {
        text.push_str(&quote(name));
    }
}

fn is_value(text: &str) -> bool {
    let mut scanner = Scanner::new(text);
    scanner.value().and_then(|()| scanner.end()).is_ok()
}
