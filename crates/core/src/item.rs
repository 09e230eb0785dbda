use std::fmt;
use std::time::Duration;

use bytes::Bytes;

use crate::{ItemId, PartitionKey, TimeToLive, Timestamp};

/// The version of an item: new with every write, compared only for equality.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Etag(Box<str>);

impl Etag {
    /// An etag from the text a backend gave out.
    pub fn new(text: impl Into<Box<str>>) -> Self {
        Self(text.into())
    }

    /// The text without quotes.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Etag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The number of a commit within its range. Larger is later.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lsn(u64);

impl Lsn {
    /// Before the first commit.
    pub const ZERO: Self = Self(0);

    /// The commit with this number.
    #[must_use]
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// The number.
    #[must_use]
    pub const fn as_u64(self) -> u64 {
        self.0
    }

    /// The number right after this one.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0.checked_add(1).expect("a range does not reach 2^64 commits"))
    }
}

impl fmt::Display for Lsn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A document as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// Unique within the logical partition.
    pub id: ItemId,
    /// The logical partition.
    pub partition_key: PartitionKey,
    /// The JSON object, byte for byte as it was written.
    pub body: Bytes,
    /// The version.
    pub etag: Etag,
    /// The commit that wrote it.
    pub lsn: Lsn,
    /// When it was written.
    pub written_at: Timestamp,
    /// When it becomes invisible, unless it is written again.
    pub expires_at: Option<Timestamp>,
    /// The place of an event among the events of its partition key, counted from 1 without gaps.
    pub sequence: Option<u64>,
}

impl TimeToLive {
    /// The moment an item expires: its own TTL counts before the container's, and neither counts
    /// when the container has none.
    #[must_use]
    pub fn expiry(
        container: Option<Self>,
        item: Option<Self>,
        written_at: Timestamp,
    ) -> Option<Timestamp> {
        match item.unwrap_or(container?) {
            Self::Never => None,
            Self::Seconds(seconds) => Some(written_at.plus(Duration::from_secs(seconds.into()))),
        }
    }
}
