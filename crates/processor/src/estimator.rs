//! Lag, read from the feed by somebody who owns no lease.

use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{self, StreamExt, TryStreamExt};
use millstream_core::{
    Clock, Container, Continuation, ErrorKind as CoreErrorKind, FeedPage, KeyRange, PageSize,
    Result as CoreResult, SystemClock, Timestamp,
};

use crate::error::{Error, ErrorKind, Result};
use crate::feed_calls::{FeedCalls, feed_error};
use crate::lag::{Estimate, LeaseLag, distance};
use crate::lease_store::LeaseStore;
use crate::leaves::{Leaves, check_container};
use crate::stored::Lease;

/// Leases looked at at the same time.
const CONCURRENCY: usize = 16;
/// Pages without a change after which the end of the feed is no longer looked for.
const EMPTY_PAGES_MAX: usize = 64;
/// How often the ranges under one lease may move while it is looked at.
const MOVES_MAX: usize = 32;
/// Longest time a call to the container of the leases may take.
const STORE_TIMEOUT: Duration = Duration::from_secs(10);

/// Tells how far a processor is behind, from outside.
///
/// It costs one listing of the leases and one or two reads of one commit per lease, and changes
/// nothing. It works while no instance runs, and while leases are split.
#[derive(Clone, Debug)]
pub struct Estimator {
    feed: FeedCalls,
    container: u64,
    store: LeaseStore,
    clock: Arc<dyn Clock>,
    count_max: u64,
}

/// What is found out about a part of the keys of a lease.
#[derive(Clone, Copy, Debug, Default)]
struct Part {
    commits: u64,
    /// How many changes were seen, and whether those are all.
    items: u64,
    counted: bool,
    oldest: Option<Timestamp>,
    expired: bool,
}

impl Estimator {
    /// Most changes that are counted per lease.
    pub const COUNT_MAX: u64 = 10_000;

    /// Looks at the processor `processor`, which reads `feed` and keeps its documents in `leases`.
    ///
    /// # Errors
    ///
    /// `Invalid` if the name or the container of the leases cannot be one of a processor.
    pub fn new(feed: &Container, leases: &Container, processor: &str) -> Result<Self> {
        Self::new_with(feed, leases, processor, Arc::new(SystemClock::default()))
    }

    /// The same with another clock; the age of changes is measured against it.
    ///
    /// # Errors
    ///
    /// As for [`Estimator::new`].
    pub fn new_with(
        feed: &Container,
        leases: &Container,
        processor: &str,
        clock: Arc<dyn Clock>,
    ) -> Result<Self> {
        Ok(Self {
            feed: FeedCalls::new(Arc::clone(&feed.feed), Arc::clone(&clock)),
            container: feed.info.resource_id.incarnation(),
            store: LeaseStore::new(leases, processor, Arc::clone(&clock), STORE_TIMEOUT)?,
            clock,
            count_max: 0,
        })
    }

    /// Counts the changes of each lease up to this many, at most [`Estimator::COUNT_MAX`], by
    /// reading them. Default: 0, nothing is counted, and [`LeaseLag::items`] is none unless there
    /// is nothing to count.
    #[must_use]
    pub fn count_items_up_to(mut self, items: u64) -> Self {
        self.count_max = items.min(Self::COUNT_MAX);
        self
    }

    /// Finds out how far every lease is behind.
    ///
    /// # Errors
    ///
    /// `NotFound` if the processor was never started, `ContainerRecreated` if it belongs to another
    /// container, `Store` if a container cannot be reached. An expired position is not an error;
    /// the lease says so.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    pub async fn estimate(&self) -> Result<Estimate> {
        let leaves = Leaves::find(&self.store).await?;
        check_container(&self.store, &leaves.control.document, self.container)?;
        let active = leaves.active.into_iter().map(|it| it.document);
        // A lease that does not exist yet will begin where its parent or root stands.
        let leases = active.chain(leaves.missing);
        let lags: Vec<LeaseLag> = stream::iter(leases.map(|it| self.lag_of(it)))
            .buffered(CONCURRENCY)
            .try_collect()
            .await?;
        Ok(Estimate::new(lags, leaves.control.document.paused))
    }

    async fn lag_of(&self, lease: Lease) -> Result<LeaseLag> {
        let position = lease.continuation()?;
        let mut whole = Part { counted: true, ..Part::default() };
        let mut open = vec![lease.keys.clone()];
        let mut moves = 0;
        while let Some(keys) = open.pop() {
            let left = self.count_max.saturating_sub(whole.items);
            match self.part(&keys, &position, left).await {
                Ok(part) => whole.add(part),
                Err(error) if error.kind() == CoreErrorKind::PositionExpired => {
                    whole.add(Part { expired: true, ..Part::default() });
                }
                Err(error) if error.kind() == CoreErrorKind::RangeMoved && moves < MOVES_MAX => {
                    moves += 1;
                    let ranges = self.feed.ranges().await;
                    let ranges = ranges.map_err(|error| failed(&keys, error))?;
                    open.extend(ranges.iter().filter_map(|it| it.keys.intersect(&keys)));
                }
                Err(error) => return Err(failed(&keys, error)),
            }
        }
        Ok(self.lag_from(&lease, whole))
    }

    /// Looks at keys that lie in one range. At most `count_max` changes are counted.
    async fn part(
        &self,
        keys: &KeyRange,
        position: &Continuation,
        count_max: u64,
    ) -> CoreResult<Part> {
        let first = self.next_page(keys, position, PageSize::items(page_items(count_max))).await?;
        let mut page = match first {
            NextPage::Changes(page) => page,
            NextPage::End => return Ok(Part { counted: true, ..Part::default() }),
            // There is something that could not be reached; it is at least one commit.
            NextPage::Unknown => return Ok(Part { commits: 1, ..Part::default() }),
        };
        let Some(first) = page.changes.first() else { return Ok(Part::default()) };
        let commits = distance(first.lsn, page.newest);
        let mut part = Part { commits, oldest: Some(first.committed_at), ..Part::default() };
        loop {
            part.items += u64::try_from(page.changes.len()).unwrap_or(u64::MAX);
            if count_max < part.items {
                return Ok(part);
            }
            let size = PageSize::items(page_items(count_max - part.items));
            page = match self.next_page(keys, &page.continuation, size).await? {
                NextPage::Changes(page) => page,
                NextPage::End => return Ok(Part { counted: true, ..part }),
                NextPage::Unknown => return Ok(part),
            };
        }
    }

    /// The next page with a change. The end is where a read does not move the position.
    async fn next_page(
        &self,
        keys: &KeyRange,
        position: &Continuation,
        size: PageSize,
    ) -> CoreResult<NextPage> {
        let mut after = position.clone();
        for _ in 0..EMPTY_PAGES_MAX {
            let page = self.feed.read(keys, &after, size).await?;
            if !page.changes.is_empty() {
                return Ok(NextPage::Changes(page));
            }
            if page.continuation == after {
                return Ok(NextPage::End);
            }
            after = page.continuation;
        }
        Ok(NextPage::Unknown)
    }

    fn lag_from(&self, lease: &Lease, whole: Part) -> LeaseLag {
        let seconds = match whole.oldest {
            Some(oldest) => Some(self.clock.now().since(oldest)),
            None => (whole.commits == 0 && !whole.expired).then_some(Duration::ZERO),
        };
        LeaseLag {
            keys: Arc::new(lease.keys.clone()),
            owner: lease.owner.as_ref().map(|it| it.instance.clone()),
            epoch: lease.epoch,
            commits: whole.commits,
            items: whole.counted.then_some(whole.items),
            seconds,
            attempts: lease.failing.iter().map(|it| it.attempts).max().unwrap_or(0),
            expired: whole.expired,
        }
    }
}

impl Part {
    fn add(&mut self, other: Self) {
        self.commits = self.commits.saturating_add(other.commits);
        self.items = self.items.saturating_add(other.items);
        self.counted &= other.counted;
        self.oldest = self.oldest.into_iter().chain(other.oldest).min();
        self.expired |= other.expired;
    }
}

enum NextPage {
    Changes(FeedPage),
    End,
    /// Only empty pages, and no end.
    Unknown,
}

/// Enough to see that there are more than may be counted.
fn page_items(count_max: u64) -> usize {
    usize::try_from(count_max.saturating_add(1)).unwrap_or(PageSize::ITEMS_MAX)
}

fn failed(keys: &KeyRange, error: millstream_core::Error) -> Error {
    let attempted = format!("estimate the lag of the lease {keys}");
    if error.kind() == CoreErrorKind::RangeMoved {
        return Error::new(ErrorKind::Conflict, attempted)
            .because("its ranges are split and merged all the time; try again");
    }
    feed_error(attempted, keys, error)
}

#[cfg(test)]
mod tests;
