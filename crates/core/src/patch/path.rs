use std::fmt;

use crate::error::{Error, Result};
use crate::json::excerpt;

/// The properties an item's owner does not write: its name, and what the store says about it.
const RESERVED: [&str; 6] = ["id", "_rid", "_self", "_etag", "_ts", "_attachments"];

/// Names a place in an item: `/stock/count`, `/tags/0`, `/tags/-`.
///
/// A JSON pointer (RFC 6901): `/` within a name is written `~1`, and `~` is written `~0`.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct PatchPath {
    text: String,
    names: Vec<String>,
}

impl PatchPath {
    /// Takes a path.
    ///
    /// # Errors
    ///
    /// `Invalid` if it does not start with `/` or has a `~` that is not part of `~0` or `~1`.
    pub fn parse(text: &str) -> Result<Self> {
        let refused = |reason| {
            Err(Error::invalid(format!("use {:?} as a patch path", excerpt(text)), reason))
        };
        let Some(relative) = text.strip_prefix('/') else {
            return refused("it does not start with \"/\"");
        };
        let names: Option<Vec<String>> = relative.split('/').map(unescape).collect();
        match names {
            Some(names) => Ok(Self { text: text.to_owned(), names }),
            None => refused("\"~\" must be written \"~0\""),
        }
    }

    /// The path as it was written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The names and indices on the way, without escapes; at least one.
    #[must_use]
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// The way to the first `count` names, for messages.
    pub(super) fn beginning(&self, count: usize) -> &str {
        let end = self.text.match_indices('/').nth(count).map_or(self.text.len(), |(at, _)| at);
        &self.text[..end]
    }

    pub(super) fn is_within(&self, other: &Self) -> bool {
        other.names.len() < self.names.len() && self.names.starts_with(&other.names)
    }

    pub(super) fn check_not_reserved(&self) -> Result<(), String> {
        let first = &self.names[0];
        if RESERVED.contains(&first.as_str()) {
            return Err(format!("property {first:?} cannot be patched"));
        }
        Ok(())
    }
}

impl fmt::Display for PatchPath {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.text)
    }
}

impl fmt::Debug for PatchPath {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.text, formatter)
    }
}

fn unescape(name: &str) -> Option<String> {
    let mut parts = name.split('~');
    let mut result = parts.next()?.to_owned();
    for part in parts {
        result.push(match part.as_bytes().first()? {
            b'0' => '~',
            b'1' => '/',
            _ => return None,
        });
        result.push_str(&part[1..]);
    }
    Some(result)
}
