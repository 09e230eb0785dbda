use async_trait::async_trait;

use crate::memory::Memory;
use crate::memory::state::ContainerState;
use crate::{
    Batch, BatchOutcome, ChangeFeed, ContainerName, Continuation, Documents, FeedMode, FeedPage,
    Item, ItemId, KeyRange, PageSize, PartitionKey, RangeInfo, ResourceId, Result, RetentionGuards,
    ScanContinuation, ScanPage, ScanScope, StartFrom, Timestamp,
};

/// An open container, bound to it by its number and not by its name.
#[derive(Debug)]
pub(super) struct Handle {
    memory: Memory,
    id: ResourceId,
    name: ContainerName,
}

impl Handle {
    pub(super) fn new(memory: Memory, id: ResourceId, name: ContainerName) -> Self {
        Self { memory, id, name }
    }

    fn with<T>(&self, act: impl FnOnce(&mut ContainerState, Timestamp) -> Result<T>) -> Result<T> {
        self.memory.with(self.id, &self.name, act)
    }
}

#[async_trait]
impl Documents for Handle {
    async fn read(&self, key: &PartitionKey, id: &ItemId) -> Result<Option<Item>> {
        self.with(|container, _| container.item(key, id))
    }

    async fn commit(&self, batch: Batch) -> Result<BatchOutcome> {
        self.with(|container, now| container.commit(batch, now))
    }

    async fn scan(
        &self,
        scope: &ScanScope,
        after: Option<&ScanContinuation>,
        size: PageSize,
    ) -> Result<ScanPage> {
        self.with(|container, _| container.scan(scope, after, size))
    }
}

#[async_trait]
impl ChangeFeed for Handle {
    async fn ranges(&self) -> Result<Vec<RangeInfo>> {
        self.with(|container, _| Ok(container.ranges.iter().map(|it| it.info.clone()).collect()))
    }

    async fn start(
        &self,
        keys: &KeyRange,
        from: StartFrom,
        mode: FeedMode,
    ) -> Result<Continuation> {
        self.with(|container, _| container.start(keys, from, mode))
    }

    async fn read(
        &self,
        keys: &KeyRange,
        after: &Continuation,
        size: PageSize,
    ) -> Result<FeedPage> {
        self.with(|container, _| container.read_feed(keys, after, size))
    }

    async fn wait(&self, keys: &KeyRange, after: &Continuation) -> Result<()> {
        loop {
            // Listening begins before looking, so that no commit falls in between (14).
            let changed = self.memory.shared.changed.listen();
            if self.with(|container, _| container.has_more(keys, after))? {
                return Ok(());
            }
            changed.await;
        }
    }
}

#[async_trait]
impl RetentionGuards for Handle {
    async fn hold(&self, name: &str, keys: &KeyRange, passed: &Continuation) -> Result<()> {
        self.with(|container, _| container.hold(name, keys, passed))
    }

    async fn release(&self, name: &str) -> Result<()> {
        self.with(|container, _| {
            container.guards.remove(name);
            Ok(())
        })
    }

    async fn holders(&self) -> Result<Vec<String>> {
        self.with(|container, _| Ok(container.guards.keys().cloned().collect()))
    }
}
