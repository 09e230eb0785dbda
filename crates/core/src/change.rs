use std::fmt;
use std::str::FromStr;

use crate::{Error, Item, ItemId, Lsn, PartitionKey, Result, Timestamp};

/// Which changes a feed shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FeedMode {
    /// Each live item once, at its newest commit. Deletes do not appear.
    LatestVersion,
    /// Every create, replace and delete within the retention of the container.
    AllVersions,
}

/// Where a reader begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartFrom {
    /// The oldest change the feed still has.
    Beginning,
    /// After the newest commit at the moment of asking.
    Now,
    /// The first change committed at this time or later.
    Time(Timestamp),
}

/// What happened to an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ChangeKind {
    /// Created or replaced; the latest-version feed does not say which.
    Written,
    /// It did not exist before.
    Created,
    /// It existed before.
    Replaced,
    /// Removed by a request.
    Deleted,
    /// Removed because its time to live was over.
    Expired,
}

/// One change of one item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// What happened.
    pub kind: ChangeKind,
    /// The commit it belongs to.
    pub lsn: Lsn,
    /// When it was committed.
    pub committed_at: Timestamp,
    /// The logical partition of the item.
    pub partition_key: PartitionKey,
    /// The id of the item.
    pub id: ItemId,
    /// The item after the change; none after a delete.
    pub current: Option<Item>,
    /// The item before the change, in all-versions mode.
    pub previous: Option<Item>,
}

/// Changes of a range in commit order, never part of a batch, and where to go on.
#[derive(Clone, Debug)]
pub struct FeedPage {
    /// The changes; may be empty although more will come.
    pub changes: Vec<Change>,
    /// Read from here next.
    pub continuation: Continuation,
    /// The newest commit of the range when the page was read; the distance to it is the lag.
    pub newest: Lsn,
}

impl FeedPage {
    /// Whether there was nothing more behind `after`, from which the page was read.
    ///
    /// A page that is only empty says less: where much is passed over, changes can follow it.
    #[must_use]
    pub fn is_end(&self, after: &Continuation) -> bool {
        let has_reached =
            || Cursor::parse(&self.continuation).is_ok_and(|it| self.newest <= it.after);
        self.changes.is_empty() && (self.continuation == *after || has_reached())
    }
}

/// How much one page may hold.
///
/// Both are hints: a page holds at least one commit and never part of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageSize {
    /// Items after which the page ends.
    pub items_max: usize,
    /// Bytes of bodies after which the page ends.
    pub bytes_max: usize,
}

impl PageSize {
    /// Largest number of items a backend puts into a page, whatever was asked.
    pub const ITEMS_MAX: usize = 10_000;
    /// Largest number of bytes a backend puts into a page, whatever was asked.
    pub const BYTES_MAX: usize = 16 * 1024 * 1024;

    /// A page of that many items and at most 4 MiB.
    #[must_use]
    pub fn items(items_max: usize) -> Self {
        Self { items_max, ..Self::default() }
    }

    /// The size within the limits of every backend: at least one item, at most the maxima.
    #[must_use]
    pub fn clamped(self) -> Self {
        Self {
            items_max: self.items_max.clamp(1, Self::ITEMS_MAX),
            bytes_max: self.bytes_max.clamp(1, Self::BYTES_MAX),
        }
    }
}

impl Default for PageSize {
    /// 100 items, 4 MiB.
    fn default() -> Self {
        Self { items_max: 100, bytes_max: 4 * 1024 * 1024 }
    }
}

/// A place in the feed, as text that survives restarts, splits and merges.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Continuation(Box<str>);

impl Continuation {
    /// Longest text that is looked at.
    pub const BYTES_MAX: usize = 1024;

    /// A continuation from the text of an earlier one.
    ///
    /// # Errors
    ///
    /// `Invalid` if the text is longer than [`Continuation::BYTES_MAX`]. Whether it means something
    /// is found out by the backend that reads from it.
    pub fn new(text: impl Into<Box<str>>) -> Result<Self> {
        let text = text.into();
        if Self::BYTES_MAX < text.len() {
            let reason = format!("it is longer than {} bytes", Self::BYTES_MAX);
            return Err(Error::invalid("use the continuation", reason));
        }
        Ok(Self(text))
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Continuation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What a continuation says, for backends whose ranges number their commits.
///
/// The text form is `1.<container>.<l|a>.<lsn>[.<since>]`: version, incarnation of the container,
/// mode, the last commit seen, and the time before which changes are left out.
///
/// ```
/// use millstream_core::{Cursor, FeedMode, Lsn};
///
/// let cursor = Cursor {
///     container: 7,
///     mode: FeedMode::LatestVersion,
///     after: Lsn::new(42),
///     since: None,
/// };
/// let continuation = cursor.to_continuation();
/// assert_eq!(continuation.as_str(), "1.7.l.42");
/// assert_eq!(Cursor::parse(&continuation).unwrap(), cursor);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cursor {
    /// The incarnation of the container; a recreated one has another.
    pub container: u64,
    /// Which feed it belongs to.
    pub mode: FeedMode,
    /// The last commit that was seen.
    pub after: Lsn,
    /// Changes committed before this are left out, when the reader started from a time.
    pub since: Option<Timestamp>,
}

impl Cursor {
    /// The text form.
    #[must_use]
    pub fn to_continuation(self) -> Continuation {
        let mode = match self.mode {
            FeedMode::LatestVersion => 'l',
            FeedMode::AllVersions => 'a',
        };
        let mut text = format!("1.{}.{mode}.{}", self.container, self.after);
        if let Some(since) = self.since {
            text = format!("{text}.{}", since.as_millis());
        }
        Continuation(text.into())
    }

    /// Reads the text form.
    ///
    /// # Errors
    ///
    /// `Invalid` if the text is not one of ours.
    pub fn parse(continuation: &Continuation) -> Result<Self> {
        let refused = |reason: &str| {
            Error::invalid(format!("use the continuation {:?}", continuation.as_str()), reason)
        };
        let parts: Vec<&str> = continuation.as_str().split('.').collect();
        let (container, mode, after, since) = match parts.as_slice() {
            ["1", container, mode, after] => (container, mode, after, None),
            ["1", container, mode, after, since] => (container, mode, after, Some(since)),
            _ => return Err(refused("it was not given out by this feed")),
        };
        let number = |text: &str| {
            u64::from_str(text).map_err(|_| refused("it was not given out by this feed"))
        };
        Ok(Self {
            container: number(container)?,
            mode: match *mode {
                "l" => FeedMode::LatestVersion,
                "a" => FeedMode::AllVersions,
                _ => return Err(refused("it names a feed mode that does not exist")),
            },
            after: Lsn::new(number(after)?),
            since: since.map(|it| number(it)).transpose()?.map(Timestamp::from_millis),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_refused(text: &str) {
        let error = Cursor::parse(&Continuation::new(text).unwrap()).unwrap_err();
        assert_eq!(error.kind(), crate::ErrorKind::Invalid, "{text}");
    }

    #[test]
    fn a_cursor_survives_its_text_form() {
        for since in [None, Some(Timestamp::from_millis(5))] {
            for mode in [FeedMode::LatestVersion, FeedMode::AllVersions] {
                let cursor = Cursor { container: 3, mode, after: Lsn::new(u64::MAX), since };
                assert_eq!(Cursor::parse(&cursor.to_continuation()).unwrap(), cursor);
            }
        }
    }

    #[test]
    fn foreign_text_is_refused() {
        for text in
            ["", "1", "2.1.l.1", "1.1.x.1", "1.1.l.-1", "1.1.l.1.2.3", "1.1.l.99999999999999999999"]
        {
            check_refused(text);
        }
        assert!(Continuation::new("x".repeat(Continuation::BYTES_MAX + 1)).is_err());
    }
}
