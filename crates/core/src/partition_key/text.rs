//! The JSON form of a partition key, as Cosmos DB carries it in a header.

use std::fmt::{self, Write};
use std::str::FromStr;

use serde_json::value::RawValue;

use crate::partition_key::{PartitionKey, PartitionKeyComponent, STRING_BYTES_MAX};
use crate::{Error, Result};

/// Longest text of a key: every byte of its strings may be written as an escape of six; the rest is
/// numbers and blanks.
const TEXT_BYTES_MAX: usize = 6 * STRING_BYTES_MAX + 4096;

/// Writes a JSON array in ASCII, so that it can be a header: `["a"]`, `[null]`, `[{}]` for
/// undefined.
impl fmt::Display for PartitionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_char('[')?;
        for (index, component) in self.components().iter().enumerate() {
            if 0 < index {
                f.write_char(',')?;
            }
            write!(f, "{component}")?;
        }
        f.write_char(']')
    }
}

/// Writes JSON in ASCII; undefined is `{}`.
impl fmt::Display for PartitionKeyComponent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Undefined => f.write_str("{}"),
            Self::Null => f.write_str("null"),
            Self::Bool(value) => write!(f, "{value}"),
            Self::Number(number) => write_number(*number, f),
            Self::String(text) => write_string(text, f),
        }
    }
}

/// Reads the JSON array that `Display` writes, and any other way to write the same values.
impl FromStr for PartitionKey {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        if TEXT_BYTES_MAX < text.len() {
            return Err(refused(format!(
                "its text has {} bytes, more than {TEXT_BYTES_MAX}",
                text.len()
            )));
        }
        if let Some(string) = plain_string(text) {
            return Self::of([PartitionKeyComponent::String(string.to_owned())]);
        }
        let values: Vec<&RawValue> = serde_json::from_str(text)
            .map_err(|error| Error::invalid("read the partition key", error))?;
        let mut components = Vec::with_capacity(values.len());
        for value in values {
            components.push(component(value.get())?);
        }
        Self::of(components)
    }
}

fn component(json: &str) -> Result<PartitionKeyComponent> {
    if let Some(scalar) = scalar(json).map_err(refused)? {
        return Ok(scalar);
    }
    let inside = json.strip_prefix('{').and_then(|it| it.strip_suffix('}'));
    match inside.map(str::trim) {
        Some("") => Ok(PartitionKeyComponent::Undefined),
        Some(_) => Err(refused("a component is an object")),
        None => Err(refused("a component is an array")),
    }
}

/// The component that a JSON value stands for, or nothing if it is an object or an array.
///
/// `json` is valid JSON. Its numbers are not left to `serde_json`, which rounds some of them to a
/// neighbour and so would give them another hash.
pub(crate) fn scalar(json: &str) -> Result<Option<PartitionKeyComponent>, String> {
    let component = match json.as_bytes().first() {
        Some(b'{' | b'[') => return Ok(None),
        Some(b'n') => PartitionKeyComponent::Null,
        Some(b't') => PartitionKeyComponent::Bool(true),
        Some(b'f') => PartitionKeyComponent::Bool(false),
        Some(b'"') => {
            let text = serde_json::from_str(json).map_err(|error| error.to_string())?;
            PartitionKeyComponent::String(text)
        }
        _ => PartitionKeyComponent::Number(json.parse().map_err(|_| "a number is not JSON")?),
    };
    Ok(Some(component))
}

/// Writes the shortest digits that give the same number, with an exponent where JavaScript would
/// use one.
fn write_number(number: f64, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let size = number.abs();
    if size == 0.0 || (1e-6..1e21).contains(&size) {
        return write!(f, "{number}");
    }
    write!(f, "{number:e}")
}

fn write_string(text: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    f.write_char('"')?;
    if text.bytes().all(is_plain) {
        f.write_str(text)?;
        return f.write_char('"');
    }
    for character in text.chars() {
        match character {
            '"' => f.write_str("\\\"")?,
            '\\' => f.write_str("\\\\")?,
            '\n' => f.write_str("\\n")?,
            '\r' => f.write_str("\\r")?,
            '\t' => f.write_str("\\t")?,
            ' '..='~' => f.write_char(character)?,
            _ => {
                for unit in character.encode_utf16(&mut [0; 2]) {
                    write!(f, "\\u{unit:04x}")?;
                }
            }
        }
    }
    f.write_char('"')
}

/// Whether a byte of a string stands in JSON as it is.
fn is_plain(byte: u8) -> bool {
    matches!(byte, b' '..=b'~') && byte != b'"' && byte != b'\\'
}

/// The string of a key that is one string without escapes, as most are.
fn plain_string(text: &str) -> Option<&str> {
    let inside = text.strip_prefix("[\"")?.strip_suffix("\"]")?;
    inside.bytes().all(is_plain).then_some(inside)
}

fn refused(reason: impl Into<String>) -> Error {
    Error::invalid("read the partition key", reason.into())
}
