use std::{
    collections::BTreeMap,
    fmt,
    io::Write,
    path::Path,
    sync::{Mutex, PoisonError},
};

use crate::error::{Attempt, Error, Result};

/// A store under test.
///
/// Its load is several writers, each in a partition of its own. Commit `n` of a writer is one
/// batch: the item `entity` gets the counter `n`, and the item `event-n` is created. Writers go on
/// where they find the counter.
pub trait Subject: Send + Sync {
    /// Opens the directory, commits, and acknowledges each commit as soon as the store says it is
    /// done.
    ///
    /// # Errors
    ///
    /// If the store cannot be opened or refuses a commit.
    fn load(&self, directory: &Path, load: &Load, acks: &Acks) -> Result<()>;

    /// Opens the directory, reads everything by key and through the feed, then commits once more
    /// for each of the writers.
    ///
    /// # Errors
    ///
    /// If the store cannot be opened or read, which counts as a violation.
    fn observe(&self, directory: &Path, writers: u32) -> Result<Observed>;
}

/// How much to write.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// For whatever the load chooses at random.
    pub seed: u64,
    /// Writers at the same time.
    pub writers: u32,
    /// Commits of all writers together.
    pub commits: u64,
}

/// One acknowledged commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ack {
    /// Who committed; also the partition.
    pub writer: u32,
    /// The counter of that writer, from 1.
    pub number: u64,
    /// Commit numbers count within a range.
    pub range: u32,
    /// The commit number.
    pub lsn: u64,
    /// Etag of the entity.
    pub entity_etag: String,
    /// Etag of the event.
    pub event_etag: String,
}

impl fmt::Display for Ack {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { writer, number, range, lsn, entity_etag, event_etag } = self;
        write!(formatter, "{writer} {number} {range} {lsn} {entity_etag} {event_etag}")
    }
}

impl Ack {
    /// Reads every whole line; a last line that was cut by a kill was never acknowledged.
    ///
    /// # Errors
    ///
    /// If a whole line is not an acknowledgement.
    pub fn parse_lines(bytes: &[u8]) -> Result<Vec<Self>> {
        bytes
            .split_inclusive(|it| *it == b'\n')
            .filter_map(|line| line.strip_suffix(b"\n"))
            .map(|line| {
                let line = String::from_utf8_lossy(line);
                Self::parse(&line)
                    .ok_or_else(|| Error::new(format!("read the acknowledgement \"{line}\"")))
            })
            .collect()
    }

    fn parse(line: &str) -> Option<Self> {
        let mut words = line.split(' ');
        let ack = Self {
            writer: words.next()?.parse().ok()?,
            number: words.next()?.parse().ok()?,
            range: words.next()?.parse().ok()?,
            lsn: words.next()?.parse().ok()?,
            entity_etag: words.next()?.to_owned(),
            event_etag: words.next()?.to_owned(),
        };
        words.next().is_none().then_some(ack)
    }
}

/// Where a load says what it has committed. Shared by its writers.
pub struct Acks {
    output: Mutex<(Box<dyn Write + Send>, u64)>,
    exit_after: Option<u64>,
}

/// How a load ends that was told to stop dead; see [`Acks::exit_after`].
pub const EXIT_CODE_DEAD: i32 = 86;

impl fmt::Debug for Acks {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Acks").field("exit_after", &self.exit_after).finish_non_exhaustive()
    }
}

impl Acks {
    /// One line per commit goes to `output`, in one write each.
    #[must_use]
    pub fn new(output: Box<dyn Write + Send>) -> Self {
        Self { output: Mutex::new((output, 0)), exit_after: None }
    }

    /// Ends the process after so many acknowledgements, with the other writers still at work and
    /// nothing closed.
    #[must_use]
    pub const fn exit_after(mut self, acks: Option<u64>) -> Self {
        self.exit_after = acks;
        self
    }

    /// Tells the outside. Call this when the commit has returned, not before.
    ///
    /// # Errors
    ///
    /// If nobody listens any more.
    pub fn send(&self, ack: &Ack) -> Result<()> {
        let mut guard = self.output.lock().unwrap_or_else(PoisonError::into_inner);
        let (output, sent) = &mut *guard;
        output
            .write_all(format!("{ack}\n").as_bytes())
            .and_then(|()| output.flush())
            .attempt(|| "acknowledge a commit")?;
        *sent += 1;
        if self.exit_after.is_some_and(|limit| limit <= *sent) {
            std::process::exit(EXIT_CODE_DEAD);
        }
        Ok(())
    }
}

/// What a reopened store shows.
#[derive(Clone, Debug, Default)]
pub struct Observed {
    /// By key, for each writer that has left anything.
    pub writers: BTreeMap<u32, Partition>,
    /// Latest versions from the beginning, in small pages, in the order they were read.
    pub feed: Vec<Page>,
    /// The commits made after reading; see [`Subject::observe`].
    pub next: Vec<Ack>,
}

/// What one writer has left.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Partition {
    /// The range it lies in.
    pub range: u32,
    /// The counter and its version.
    pub entity: Option<(u64, Version)>,
    /// Events by number.
    pub events: BTreeMap<u64, Version>,
}

/// Which version of an item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version {
    /// Commit number.
    pub lsn: u64,
    /// Etag.
    pub etag: String,
}

/// One page of the feed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// The range it was read from.
    pub range: u32,
    /// In the order of the page.
    pub items: Vec<FeedItem>,
}

/// One item of a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FeedItem {
    /// The partition.
    pub writer: u32,
    /// Which item of it.
    pub name: ItemName,
    /// At which version.
    pub version: Version,
}

/// The two kinds of items of the load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ItemName {
    /// `entity`.
    Entity,
    /// `event-n`.
    Event(u64),
}

impl fmt::Display for ItemName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Entity => formatter.write_str("entity"),
            Self::Event(number) => write!(formatter, "event-{number}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(bytes: &str, expected: Option<usize>) {
        let found = Ack::parse_lines(bytes.as_bytes()).ok();
        assert_eq!(found.map(|it| it.len()), expected, "{bytes}");
    }

    #[test]
    fn a_cut_line_was_never_acknowledged() {
        check("1 2 0 3 a b\n", Some(1));
        check("1 2 0 3 a b\n1 3 0 4 a", Some(1));
        check("", Some(0));
        check("1 2 0 3 a\n", None);
        check("1 2 0 3 a b c\n", None);
    }

    #[test]
    fn an_acknowledgement_reads_back() {
        let line = "7 12 1 99 \"e-1\" \"e-2\"";
        assert_eq!(Ack::parse(line).unwrap().to_string(), line);
    }
}
