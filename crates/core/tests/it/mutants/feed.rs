use std::sync::Arc;

use async_trait::async_trait;
use millstream_core::{
    Change, ChangeFeed, ChangeKind, Continuation, Cursor, ErrorKind, FeedMode, FeedPage, KeyRange,
    Lsn, PageSize, RangeInfo, Result, StartFrom,
};

use crate::mutants::Flaw;
use crate::mutants::store::Shared;

/// The text a flawed "now" is given out as.
const NOW: &str = "now";

pub(crate) struct MutantFeed {
    pub(crate) shared: Shared,
    pub(crate) inner: Arc<dyn ChangeFeed>,
}

impl MutantFeed {
    /// Where a flawed reader really begins.
    async fn place(&self, keys: &KeyRange, after: &Continuation) -> Result<Continuation> {
        if after.as_str() == NOW {
            return self.inner.start(keys, StartFrom::Now, FeedMode::LatestVersion).await;
        }
        if self.shared.has(Flaw::ChildLosesThePositionOfItsParent) {
            let wanted = Cursor::parse(after)?.after;
            let splits = self.shared.notes().split.clone();
            let lost = splits.into_iter().rev().find(|(child, _)| child.covers(keys));
            if let Some((_, start)) = lost
                && wanted < Cursor::parse(&start)?.after
            {
                return Ok(start);
            }
        }
        if self.shared.has(Flaw::ContinuationMovesWithItsReader) {
            let again = self.shared.notes().reads.contains(after);
            self.shared.notes().reads.push(after.clone());
            if again {
                return Ok(self.inner.read(keys, after, PageSize::items(1)).await?.continuation);
            }
        }
        Ok(after.clone())
    }

    fn spoil(&self, page: &mut FeedPage, after: Lsn, mode: FeedMode, size: PageSize) -> Result<()> {
        if self.shared.has(Flaw::PageCutsABatch) {
            page.changes.truncate(size.clamped().items_max);
        }
        if self.shared.has(Flaw::CommitAppearsLate) && page.newest.as_u64().is_multiple_of(2) {
            page.changes.retain(|it| it.lsn.next() != page.newest);
        }
        if self.shared.has(Flaw::OldVersionsInLatestMode) && mode == FeedMode::LatestVersion {
            let until = Cursor::parse(&page.continuation)?.after;
            for item in &self.shared.notes().items {
                let known = page.changes.iter().any(|it| it.current.as_ref() == Some(item));
                if after < item.lsn && item.lsn <= until && !known {
                    page.changes.push(Change {
                        kind: ChangeKind::Written,
                        lsn: item.lsn,
                        committed_at: item.written_at,
                        partition_key: item.partition_key.clone(),
                        id: item.id.clone(),
                        current: Some(item.clone()),
                        previous: None,
                    });
                }
            }
            page.changes.sort_by_key(|it| it.lsn);
        }
        for change in &mut page.changes {
            if self.shared.has(Flaw::NoPreviousImage) {
                change.previous = None;
            }
            if self.shared.has(Flaw::ExpiryNotMarked) && change.kind == ChangeKind::Expired {
                change.kind = ChangeKind::Deleted;
            }
        }
        Ok(())
    }
}

#[async_trait]
impl ChangeFeed for MutantFeed {
    async fn ranges(&self) -> Result<Vec<RangeInfo>> {
        let mut ranges = self.inner.ranges().await?;
        if self.shared.has(Flaw::LastRangeNotListed) && 1 < ranges.len() {
            ranges.pop();
        }
        Ok(ranges)
    }

    async fn start(
        &self,
        keys: &KeyRange,
        from: StartFrom,
        mode: FeedMode,
    ) -> Result<Continuation> {
        match from {
            StartFrom::Now if self.shared.has(Flaw::NowPinnedAtTheFirstRead) => {
                Continuation::new(NOW)
            }
            StartFrom::Time(_) if self.shared.has(Flaw::StartTimeIgnored) => {
                self.inner.start(keys, StartFrom::Beginning, mode).await
            }
            StartFrom::Beginning | StartFrom::Now | StartFrom::Time(_) => {
                self.inner.start(keys, from, mode).await
            }
        }
    }

    async fn read(
        &self,
        keys: &KeyRange,
        after: &Continuation,
        size: PageSize,
    ) -> Result<FeedPage> {
        // What makes no sense to a flawed port is left to the store to refuse.
        let place = self.place(keys, after).await.unwrap_or_else(|_| after.clone());
        let page = self.inner.read(keys, &place, size).await;
        let mut page = match page {
            Err(error)
                if error.kind() == ErrorKind::PositionExpired
                    && self.shared.has(Flaw::ExpiredPositionReadSilently) =>
            {
                let mode = FeedMode::AllVersions;
                let oldest = self.inner.start(keys, StartFrom::Beginning, mode).await?;
                self.inner.read(keys, &oldest, size).await?
            }
            page => page?,
        };
        let cursor = Cursor::parse(&place)?;
        self.spoil(&mut page, cursor.after, cursor.mode, size)?;
        Ok(page)
    }

    async fn wait(&self, keys: &KeyRange, after: &Continuation) -> Result<()> {
        if self.shared.has(Flaw::WaitNeverWaits) {
            return Ok(());
        }
        if self.shared.has(Flaw::WaitNeverWakes) {
            std::future::pending::<()>().await;
        }
        self.inner.wait(keys, after).await
    }
}
