use std::fmt;
use std::str::FromStr;

use crate::error::{Error, Result};
use crate::json::excerpt;

/// What names an item within its logical partition.
///
/// 1 to 1023 bytes without `/` and `\`, which Cosmos DB keeps for paths. Only an item that exists
/// already may have another one ([`ItemId::stored`]).
///
/// ```
/// use millstream_core::ItemId;
///
/// assert_eq!(ItemId::new("order 17")?.as_str(), "order 17");
/// assert!(ItemId::new("orders/17").is_err());
/// # Ok::<(), millstream_core::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ItemId(String);

impl ItemId {
    /// Longest id.
    pub const BYTES_MAX: usize = 1023;

    /// Takes an id.
    ///
    /// # Errors
    ///
    /// `Invalid` if it is empty, too long, or has a character that is not allowed.
    pub fn new(id: &str) -> Result<Self> {
        let reason = if id.is_empty() {
            "it is empty"
        } else if Self::BYTES_MAX < id.len() {
            "it is longer than 1023 bytes"
        } else if id.bytes().any(|byte| matches!(byte, b'/' | b'\\')) {
            "it holds / or \\"
        } else {
            return Ok(Self(id.to_owned()));
        };
        Err(Error::invalid(format!("use {:?} as an item id", excerpt(id)), reason))
    }

    /// Takes an id of an item that exists, whatever it is.
    ///
    /// Azure Cosmos DB lets items be created whose id has `/` or `\`. They have to be read, and can
    /// be removed; a new item never gets such an id.
    ///
    /// ```
    /// use millstream_core::ItemId;
    ///
    /// assert_eq!(ItemId::stored("orders/17").as_str(), "orders/17");
    /// ```
    #[must_use]
    pub fn stored(id: impl Into<String>) -> Self {
        Self(id.into())
    }

    /// The id as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ItemId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl FromStr for ItemId {
    type Err = Error;

    fn from_str(id: &str) -> Result<Self> {
        Self::new(id)
    }
}

impl From<ItemId> for String {
    fn from(id: ItemId) -> Self {
        id.0
    }
}

impl AsRef<str> for ItemId {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(id: &str, expected: &str) {
        let found = ItemId::new(id);
        assert_eq!(found.map_or_else(|error| error.report(), |id| id.to_string()), expected);
    }

    #[test]
    fn an_id_is_no_path() {
        check("order 17 ", "order 17 ");
        check("ä|{}%?#", "ä|{}%?#");
        check("", "could not use \"\" as an item id: it is empty");
        for id in ["a/b", "a\\b"] {
            let report = format!("could not use {id:?} as an item id: it holds / or \\");
            check(id, &report);
        }
    }

    #[test]
    fn an_id_has_at_most_1023_bytes() {
        assert!(ItemId::new(&"x".repeat(1023)).is_ok());
        let report = ItemId::new(&"ä".repeat(512)).unwrap_err().report();
        assert!(report.ends_with("…\" as an item id: it is longer than 1023 bytes"), "{report}");
    }
}
