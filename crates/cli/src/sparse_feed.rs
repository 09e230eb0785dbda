//! A feed for tests in which readers have to pass over much.

use std::sync::Arc;

use async_trait::async_trait;
use millstream_core::{
    ChangeFeed, Continuation, Cursor, FeedMode, FeedPage, KeyRange, PageSize, RangeInfo, Result,
    StartFrom, Timestamp,
};

/// Before each page with changes there is an empty one, from which it goes on.
pub(crate) struct SparseFeed(pub(crate) Arc<dyn ChangeFeed>);

#[async_trait]
impl ChangeFeed for SparseFeed {
    async fn ranges(&self) -> Result<Vec<RangeInfo>> {
        self.0.ranges().await
    }

    async fn start(
        &self,
        keys: &KeyRange,
        from: StartFrom,
        mode: FeedMode,
    ) -> Result<Continuation> {
        self.0.start(keys, from, mode).await
    }

    async fn read(
        &self,
        keys: &KeyRange,
        after: &Continuation,
        size: PageSize,
    ) -> Result<FeedPage> {
        let page = self.0.read(keys, after, size).await?;
        if page.changes.is_empty() {
            return Ok(FeedPage { continuation: after.clone(), ..page });
        }
        // The same place in other words stands for one further on.
        let further = Cursor { since: Some(Timestamp::EPOCH), ..Cursor::parse(after)? };
        let further = further.to_continuation();
        if further == *after {
            let reached = Cursor { since: None, ..Cursor::parse(&page.continuation)? };
            return Ok(FeedPage { continuation: reached.to_continuation(), ..page });
        }
        Ok(FeedPage { changes: Vec::new(), continuation: further, ..page })
    }

    async fn wait(&self, keys: &KeyRange, after: &Continuation) -> Result<()> {
        self.0.wait(keys, after).await
    }
}
