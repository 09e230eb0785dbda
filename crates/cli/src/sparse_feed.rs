//! A feed for tests in which readers have to pass over much.

use std::sync::Arc;

use async_trait::async_trait;
use millstream_core::memory::Memory;
use millstream_core::{
    Batch, ChangeFeed, Container, ContainerName, ContainerSettings, Containers, Continuation,
    Cursor, FeedMode, FeedPage, KeyRange, Operation, PageSize, PartitionKeyDefinition, RangeInfo,
    Result, StartFrom, SystemClock, Timestamp,
};

/// A container with one item and such a feed.
pub(crate) async fn sparse_container() -> Container {
    let memory = Memory::new(Arc::new(SystemClock::default()));
    memory.create_database("app").await.unwrap();
    let name = ContainerName::new("app", "data").unwrap();
    let settings = ContainerSettings::new(PartitionKeyDefinition::hash("/pk").unwrap());
    memory.create(&name, settings).await.unwrap();
    let mut container = memory.open(&name).await.unwrap();
    let create = Operation::create(r#"{"id":"1","pk":"a"}"#);
    container.documents.commit(Batch::new("a").with(create)).await.unwrap();
    container.feed = Arc::new(SparseFeed(container.feed));
    container
}

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
