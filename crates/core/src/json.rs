//! What the store needs to know of an item's body, read from its bytes.
//!
//! A body is never parsed into a tree and written again: what a user wrote comes back byte for
//! byte.

pub(crate) mod cursor;
mod decimal;
pub(crate) mod edit;
pub(crate) mod same;
pub(crate) mod scanner;
#[cfg(test)]
pub(crate) mod tests;

use std::borrow::Cow;

use crate::error::{Error, Result};
use crate::item_id::ItemId;
use crate::json::cursor::Fault;
use crate::json::scanner::Scanner;

/// Most levels of objects and arrays within each other, the item itself being the first.
///
/// The limit of Azure Cosmos DB. `serde_json::Value` reads one level less unless its recursion
/// limit is lifted.
pub const JSON_DEPTH_MAX: u32 = 128;

/// The properties of an item that mean something to the store.
///
/// ```
/// use millstream_core::{Envelope, TimeToLive};
///
/// let envelope = Envelope::scan(br#"{"id": "17", "ttl": 60, "size": 1e400}"#)?;
/// assert_eq!(envelope.id.as_str(), "17");
/// assert_eq!(envelope.ttl, Some(TimeToLive::Seconds(60)));
/// assert_eq!(envelope.kind, None);
/// # Ok::<(), millstream_core::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Envelope {
    /// Property `id`.
    pub id: ItemId,
    /// Property `ttl`, if there is one.
    pub ttl: Option<TimeToLive>,
    /// Property `type`, if it is a string.
    pub kind: Option<String>,
}

/// When an item expires, as written in its property `ttl`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TimeToLive {
    /// -1: it does not.
    Never,
    /// This long after its last write; from 1 to [`TimeToLive::SECONDS_MAX`].
    Seconds(u32),
}

/// One JSON value, kept as it was written.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RawJson(String);

impl Envelope {
    /// Checks a body and reads its envelope in one pass.
    ///
    /// Of a repeated property the last one counts. Numbers may have any size.
    ///
    /// # Errors
    ///
    /// `Invalid` if the body is not one JSON object in UTF-8, is nested deeper than
    /// [`JSON_DEPTH_MAX`], holds half of a surrogate pair, has no `id` that [`ItemId`] accepts, or
    /// has a `ttl` that [`TimeToLive`] cannot express.
    pub fn scan(body: &[u8]) -> Result<Self> {
        let RawEnvelope { id, ttl, kind, .. } = RawEnvelope::scan(body, None)?;
        Ok(Self { id, ttl, kind: kind.map(Into::into) })
    }
}

/// An envelope as it stands in the body, and one property more.
#[derive(Debug)]
pub(crate) struct RawEnvelope<'a> {
    pub(crate) id: ItemId,
    pub(crate) ttl: Option<TimeToLive>,
    pub(crate) kind: Option<Cow<'a, str>>,
    /// The value as it is spelled.
    pub(crate) extra: Option<&'a str>,
}

impl<'a> RawEnvelope<'a> {
    /// As [`Envelope::scan`]. `extra` is the name of the property that is wanted as well; it is
    /// not found if it is one of the envelope.
    pub(crate) fn scan(body: &'a [u8], extra: Option<&str>) -> Result<Self> {
        let text = utf8(body)?;
        let names = ["id", "ttl", "type", extra.unwrap_or("id")];
        let [id, ttl, kind, extra] = scanner::properties(text, names).map_err(unreadable)?;
        let Some(id) = id else {
            return Err(unreadable("it has no property \"id\""));
        };
        let Some(id) = scanner::decode(id) else {
            return Err(unreadable("its property \"id\" is not a string"));
        };
        Ok(Self {
            id: ItemId::new(&id)?,
            ttl: ttl.map(TimeToLive::parse).transpose()?,
            kind: kind.and_then(scanner::decode),
            extra,
        })
    }
}

impl TimeToLive {
    /// Longest time to live, about 68 years.
    pub const SECONDS_MAX: u32 = i32::MAX.cast_unsigned();

    /// Takes -1 for never, or a number of seconds.
    ///
    /// # Errors
    ///
    /// `Invalid` for 0, any other negative number, and more than [`Self::SECONDS_MAX`].
    pub fn new(seconds: i64) -> Result<Self> {
        Self::of(seconds).ok_or_else(|| Self::refused(&seconds.to_string()))
    }

    fn parse(raw: &str) -> Result<Self> {
        raw.parse().ok().and_then(Self::of).ok_or_else(|| Self::refused(raw))
    }

    fn of(seconds: i64) -> Option<Self> {
        match u32::try_from(seconds) {
            Ok(seconds @ 1..=Self::SECONDS_MAX) => Some(Self::Seconds(seconds)),
            _ => (seconds == -1).then_some(Self::Never),
        }
    }

    fn refused(raw: &str) -> Error {
        Error::invalid(
            format!("use {} as time to live", excerpt(raw)),
            "property \"ttl\" must be -1 (never) or a whole number of seconds from 1 to 2147483647",
        )
    }
}

impl RawJson {
    /// Takes one JSON value as it is spelled; space around it is dropped.
    ///
    /// # Errors
    ///
    /// `Invalid` if `text` is not one JSON value or nested deeper than [`JSON_DEPTH_MAX`].
    pub fn parse(text: &str) -> Result<Self> {
        let mut scanner = Scanner::new(text);
        scanner.space();
        let start = scanner.position();
        let checked = scanner.value().map(|()| scanner.since(start));
        checked
            .and_then(|value| scanner.end().map(|()| Self(value.to_owned())))
            .map_err(|fault| Error::invalid("read a JSON value", fault))
    }

    /// Spells a value.
    ///
    /// # Errors
    ///
    /// `Invalid` if the value has no JSON spelling, for example a map whose keys are not strings.
    pub fn of(value: &(impl serde::Serialize + ?Sized)) -> Result<Self> {
        let text = serde_json::to_string(value)
            .map_err(|error| Error::invalid("write a value as JSON", error))?;
        // A `RawValue` inside may hold what only our own check refuses.
        Self::parse(&text)
    }

    /// The value as it is spelled.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Checks that `text` is one JSON object.
pub(crate) fn check_object(text: &str) -> Result<(), Fault> {
    scanner::properties(text, []).map(|[]| ())
}

pub(crate) fn utf8(body: &[u8]) -> Result<&str> {
    std::str::from_utf8(body)
        .map_err(|error| unreadable(format!("no UTF-8 at byte {}", error.valid_up_to())))
}

/// The beginning of `text`, short enough for a message.
pub(crate) fn excerpt(text: &str) -> String {
    const CHARACTERS_MAX: usize = 40;
    match text.char_indices().nth(CHARACTERS_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

fn unreadable(reason: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
    Error::invalid("read the item's body", reason)
}
