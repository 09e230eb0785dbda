use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use async_trait::async_trait;
use millstream_core::conformance::Subject;
use millstream_core::memory::Memory;
use millstream_core::{
    Capabilities, Container, ContainerInfo, ContainerName, ContainerSettings, Containers,
    Continuation, DatabaseInfo, EffectiveKey, Etag, FeedMode, Item, ItemId, KeyRange, ManualClock,
    PartitionKey, RangeId, RangeInfo, Result, RetentionGuards, StartFrom,
};

use crate::mutants::Flaw;
use crate::mutants::documents::MutantDocuments;
use crate::mutants::feed::MutantFeed;
use crate::subject::clock;

/// The memory store behind ports that may have a flaw.
pub(crate) struct Mutant {
    flaw: Option<Flaw>,
    memory: Memory,
    clock: Arc<ManualClock>,
    notes: Arc<Mutex<Notes>>,
}

/// What flawed ports remember.
#[derive(Default)]
pub(crate) struct Notes {
    pub(crate) items: Vec<Item>,
    pub(crate) cache: Vec<(PartitionKey, ItemId, Option<Item>)>,
    pub(crate) reads: Vec<Continuation>,
    pub(crate) split: Vec<(KeyRange, Continuation)>,
    pub(crate) deletes: u64,
    pub(crate) refusals: u64,
    pub(crate) merged_at: Option<u64>,
    pub(crate) merged: bool,
}

/// The flaw and the notes, as every port of a mutant holds them.
#[derive(Clone)]
pub(crate) struct Shared {
    flaw: Option<Flaw>,
    notes: Arc<Mutex<Notes>>,
}

impl Shared {
    pub(crate) fn has(&self, flaw: Flaw) -> bool {
        self.flaw == Some(flaw)
    }

    pub(crate) fn notes(&self) -> MutexGuard<'_, Notes> {
        self.notes.lock().expect("nothing panics while it holds the lock")
    }
}

impl Mutant {
    pub(crate) fn new(flaw: Option<Flaw>) -> Self {
        let clock = clock();
        Self { flaw, memory: Memory::new(clock.clone()), clock, notes: Arc::default() }
    }
}

#[async_trait]
impl Subject for Mutant {
    fn containers(&self) -> Arc<dyn Containers> {
        let shared = Shared { flaw: self.flaw, notes: Arc::clone(&self.notes) };
        Arc::new(MutantContainers { shared, memory: self.memory.clone() })
    }

    fn advance(&self, by: Duration) {
        if self.flaw != Some(Flaw::ExpiredItemVisible) {
            self.clock.advance(by);
        }
    }

    async fn settle(&self) {}

    async fn reopen(&mut self) -> bool {
        if self.flaw == Some(Flaw::EverythingLostByReopening) {
            self.memory = Memory::new(self.clock.clone());
        }
        true
    }
}

struct MutantContainers {
    shared: Shared,
    memory: Memory,
}

#[async_trait]
impl Containers for MutantContainers {
    fn capabilities(&self) -> Capabilities {
        self.memory.capabilities()
    }

    async fn create_database(&self, name: &str) -> Result<DatabaseInfo> {
        self.memory.create_database(name).await
    }

    async fn delete_database(&self, name: &str) -> Result<()> {
        self.memory.delete_database(name).await
    }

    async fn list_databases(&self) -> Result<Vec<DatabaseInfo>> {
        self.memory.list_databases().await
    }

    async fn create(
        &self,
        name: &ContainerName,
        settings: ContainerSettings,
    ) -> Result<ContainerInfo> {
        let mut settings = settings;
        if self.shared.has(Flaw::UniqueKeysIgnored) {
            settings.unique_keys.clear();
        }
        self.memory.create(name, settings).await
    }

    async fn replace(
        &self,
        name: &ContainerName,
        settings: ContainerSettings,
        if_match: Option<Etag>,
    ) -> Result<ContainerInfo> {
        self.memory.replace(name, settings, if_match).await
    }

    async fn delete(&self, name: &ContainerName) -> Result<()> {
        self.memory.delete(name).await
    }

    async fn list(&self, database: &str) -> Result<Vec<ContainerInfo>> {
        self.memory.list(database).await
    }

    async fn open(&self, name: &ContainerName) -> Result<Container> {
        let mut container = self.memory.open(name).await?;
        let shared = &self.shared;
        container.documents = Arc::new(MutantDocuments {
            shared: shared.clone(),
            inner: container.documents,
            memory: self.memory.clone(),
            name: name.clone(),
        });
        container.feed = Arc::new(MutantFeed { shared: shared.clone(), inner: container.feed });
        container.guards = container.guards.map(|inner| -> Arc<dyn RetentionGuards> {
            Arc::new(MutantGuards { shared: shared.clone(), inner })
        });
        Ok(container)
    }

    async fn split(
        &self,
        name: &ContainerName,
        range: RangeId,
        at: Option<&EffectiveKey>,
    ) -> Result<Vec<RangeInfo>> {
        let children = self.memory.split(name, range, at).await?;
        let feed = self.memory.open(name).await?.feed;
        for child in &children {
            let now = feed.start(&child.keys, StartFrom::Now, FeedMode::LatestVersion).await?;
            self.shared.notes().split.push((child.keys.clone(), now));
        }
        Ok(children)
    }

    async fn merge(
        &self,
        name: &ContainerName,
        left: RangeId,
        right: RangeId,
    ) -> Result<RangeInfo> {
        self.shared.notes().merged = true;
        self.memory.merge(name, left, right).await
    }
}

struct MutantGuards {
    shared: Shared,
    inner: Arc<dyn RetentionGuards>,
}

#[async_trait]
impl RetentionGuards for MutantGuards {
    async fn hold(&self, name: &str, keys: &KeyRange, passed: &Continuation) -> Result<()> {
        if self.shared.has(Flaw::GuardIgnored) {
            return Ok(());
        }
        if self.shared.has(Flaw::GuardGoesBack) {
            self.inner.release(name).await?;
        }
        self.inner.hold(name, keys, passed).await
    }

    async fn release(&self, name: &str) -> Result<()> {
        self.inner.release(name).await
    }

    async fn holders(&self) -> Result<Vec<String>> {
        self.inner.holders().await
    }
}
