//! How far processing is behind, as plain data.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use millstream_core::{Change, FeedPage, KeyRange, Lsn, Timestamp};

/// How far a processor is behind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Estimate {
    /// Each lease, in the order of keys. While a lease is being replaced, those that replace it.
    pub leases: Vec<LeaseLag>,
    /// The commits of all leases together.
    pub commits: u64,
    /// The largest [`LeaseLag::seconds`]; none if no lease knows its own.
    pub oldest: Option<Duration>,
    /// Whether an operator has paused the processor, so that the lag grows on purpose.
    pub paused: bool,
}

/// How far a lease is behind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseLag {
    /// The keys of the lease.
    pub keys: Arc<KeyRange>,
    /// The instance that owns it.
    pub owner: Option<String>,
    /// The epoch of the lease.
    pub epoch: u64,
    /// Commits from the first one that is not handled to the newest of the range; 0 if there is
    /// none. Commits of other keys of the range and versions that the feed no longer shows count
    /// too, so it may be more than there is to do, never less.
    pub commits: u64,
    /// Changes that are not handled, where somebody counted them.
    pub items: Option<u64>,
    /// How long ago the first change that is not handled was committed; zero if there is none.
    ///
    /// The time of the store is compared with that of the reader of this number, so it is as wrong
    /// as their clocks differ. It is for people and alarms; nothing depends on it.
    pub seconds: Option<Duration>,
    /// How often the change that the handler fails at has been tried; 0 if none fails.
    pub attempts: u32,
    /// Whether the feed no longer reaches back to the position of some keys; what is missing there
    /// is not in the numbers.
    pub expired: bool,
}

impl Estimate {
    /// The sum of the leases.
    pub(crate) fn new(mut leases: Vec<LeaseLag>, paused: bool) -> Self {
        leases.sort_by(|one, other| one.keys.min().trimmed().cmp(other.keys.min().trimmed()));
        let commits = leases.iter().fold(0, |sum: u64, it| sum.saturating_add(it.commits));
        let oldest = leases.iter().filter_map(|it| it.seconds).max();
        Self { leases, commits, oldest, paused }
    }

    /// Whether nothing that is known of waits to be handled.
    #[must_use]
    pub fn is_caught_up(&self) -> bool {
        self.commits == 0 && !self.leases.iter().any(|it| it.expired)
    }
}

/// Follows the owner of a lease, who knows the lag without reading anything for it.
#[derive(Clone, Debug)]
pub(crate) struct LagTracker {
    keys: Arc<KeyRange>,
    owner: String,
    epoch: u64,
    /// What was read and is not handled, oldest first.
    waiting: VecDeque<Waiting>,
    /// The newest commit of the range at the last read; none before the first.
    newest: Option<Lsn>,
    /// The last change that was read.
    read: Option<(Lsn, Timestamp)>,
    /// Whether the last read found nothing more.
    at_end: bool,
    attempts: u32,
}

/// A page that is not handled yet.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    first: Lsn,
    first_at: Timestamp,
    last: Lsn,
    items: u64,
}

impl LagTracker {
    /// Follows the lease of these keys from the moment `owner` has it.
    pub(crate) fn new(keys: Arc<KeyRange>, owner: &str, epoch: u64) -> Self {
        Self {
            keys,
            owner: owner.to_owned(),
            epoch,
            waiting: VecDeque::new(),
            newest: None,
            read: None,
            at_end: false,
            attempts: 0,
        }
    }

    /// Notes a page that follows the one before.
    pub(crate) fn page_read(&mut self, page: &FeedPage, at_end: bool) {
        self.newest = Some(page.newest);
        self.at_end = at_end;
        let (Some(first), Some(last)) = (page.changes.first(), page.changes.last()) else {
            return;
        };
        self.read = Some((last.lsn, last.committed_at));
        self.waiting.push_back(Waiting {
            first: first.lsn,
            first_at: first.committed_at,
            last: last.lsn,
            items: count(page.changes.len()),
        });
    }

    /// Notes that `items` more changes are handled, and with them everything up to `last`.
    pub(crate) fn handled(&mut self, last: &Change, items: usize) {
        let mut items = count(items);
        while let Some(front) = self.waiting.front_mut() {
            if last.lsn < front.last {
                front.items = front.items.saturating_sub(items);
                if front.first <= last.lsn {
                    // What follows is not older, so the age is an upper bound until it is read off
                    // the next page.
                    (front.first, front.first_at) = (last.lsn.next(), last.committed_at);
                }
                return;
            }
            items = items.saturating_sub(front.items);
            self.waiting.pop_front();
        }
    }

    /// Notes how often the change that fails now has been tried; 0 once none fails.
    pub(crate) fn failing(&mut self, attempts: u32) {
        self.attempts = attempts;
    }

    /// The lag at this time; none before the first page was read.
    pub(crate) fn lag(&self, now: Timestamp) -> Option<LeaseLag> {
        let newest = self.newest?;
        let items = self.waiting.iter().map(|it| it.items).sum();
        let (commits, seconds) = match (self.waiting.front(), self.read) {
            (Some(front), _) => (distance(front.first, newest), Some(now.since(front.first_at))),
            (None, _) if self.at_end => (0, Some(Duration::ZERO)),
            (None, Some((last, at))) => (distance(last.next(), newest), Some(now.since(at))),
            (None, None) => (0, None),
        };
        Some(LeaseLag {
            keys: Arc::clone(&self.keys),
            owner: Some(self.owner.clone()),
            epoch: self.epoch,
            commits,
            items: self.at_end.then_some(items),
            seconds,
            attempts: self.attempts,
            expired: false,
        })
    }
}

/// How many commits there are from `first` to `newest`, which may have been seen a little earlier.
pub(crate) fn distance(first: Lsn, newest: Lsn) -> u64 {
    newest.next().as_u64().saturating_sub(first.as_u64()).max(1)
}

fn count(items: usize) -> u64 {
    u64::try_from(items).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
