//! A backend elsewhere: it takes its time to say what a container is, and with every commit, and
//! cannot split ranges, unless somebody else does it first.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use millstream_core::{
    Batch, BatchOutcome, Capabilities, Container, ContainerInfo, ContainerName, ContainerSettings,
    Containers, DatabaseInfo, Documents, EffectiveKey, Error, ErrorKind, Etag, Item, ItemId,
    PageSize, PartitionKey, RangeId, RangeInfo, Result, ScanContinuation, ScanPage, ScanScope,
};
use tokio::sync::Semaphore;

pub(crate) struct Elsewhere {
    containers: Arc<dyn Containers>,
    delay: Duration,
    asked: Arc<AtomicU64>,
    /// A database that somebody deletes whenever its containers are asked for.
    vanishing: Option<String>,
    /// Whether ranges can be split, which somebody else always does a moment before.
    is_overtaken: bool,
    hold: Option<Arc<Hold>>,
}

/// Keeps what has been created from being answered.
#[derive(Debug)]
pub(crate) struct Hold {
    created: Semaphore,
    answers: Semaphore,
}

impl Hold {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self { created: Semaphore::new(0), answers: Semaphore::new(0) })
    }

    /// Waits until a container has been created.
    pub(crate) async fn created(&self) {
        self.created.acquire().await.unwrap().forget();
    }

    /// Answers now.
    pub(crate) fn let_go(&self) {
        self.answers.add_permits(1);
    }
}

impl Elsewhere {
    /// It takes long enough for other requests to come.
    pub(crate) fn new(containers: Arc<dyn Containers>) -> Self {
        let delay = Duration::from_millis(50);
        let asked = Arc::default();
        Self { containers, delay, asked, vanishing: None, is_overtaken: false, hold: None }
    }

    /// Somebody deletes this database whenever its containers are asked for.
    pub(crate) fn losing(self, database: &str) -> Self {
        Self { vanishing: Some(database.to_owned()), ..self }
    }

    /// Ranges can be split, which somebody else always does a moment before.
    pub(crate) fn overtaken(self) -> Self {
        Self { is_overtaken: true, ..self }
    }

    /// It takes as long as that to say what a container is.
    pub(crate) fn slower(self, delay: Duration) -> Self {
        Self { delay, ..self }
    }

    /// What is created in the database `d` is held.
    pub(crate) fn held(self, hold: &Arc<Hold>) -> Self {
        Self { hold: Some(Arc::clone(hold)), ..self }
    }

    /// How often it was asked what a container is.
    pub(crate) fn asked(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.asked)
    }
}

struct Distant(Arc<dyn Documents>);

#[async_trait]
impl Documents for Distant {
    async fn read(&self, key: &PartitionKey, id: &ItemId) -> Result<Option<Item>> {
        self.0.read(key, id).await
    }

    async fn commit(&self, batch: Batch) -> Result<BatchOutcome> {
        tokio::task::yield_now().await;
        self.0.commit(batch).await
    }

    async fn scan(
        &self,
        scope: &ScanScope,
        after: Option<&ScanContinuation>,
        size: PageSize,
    ) -> Result<ScanPage> {
        self.0.scan(scope, after, size).await
    }
}

#[async_trait]
impl Containers for Elsewhere {
    async fn open(&self, name: &ContainerName) -> Result<Container> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        tokio::time::sleep(self.delay).await;
        let container = self.containers.open(name).await?;
        let documents = Arc::new(Distant(Arc::clone(&container.documents)));
        Ok(Container { documents, ..container })
    }

    fn capabilities(&self) -> Capabilities {
        let split = self.is_overtaken;
        Capabilities { split, merge: false, ..self.containers.capabilities() }
    }

    async fn create_database(&self, name: &str) -> Result<DatabaseInfo> {
        self.containers.create_database(name).await
    }

    async fn delete_database(&self, name: &str) -> Result<()> {
        self.containers.delete_database(name).await
    }

    async fn list_databases(&self) -> Result<Vec<DatabaseInfo>> {
        self.containers.list_databases().await
    }

    async fn create(
        &self,
        name: &ContainerName,
        settings: ContainerSettings,
    ) -> Result<ContainerInfo> {
        let created = self.containers.create(name, settings).await;
        if let Some(hold) = self.hold.as_ref().filter(|_| name.database() == "d") {
            hold.created.add_permits(1);
            hold.answers.acquire().await.unwrap().forget();
        }
        created
    }

    async fn replace(
        &self,
        name: &ContainerName,
        settings: ContainerSettings,
        if_match: Option<Etag>,
    ) -> Result<ContainerInfo> {
        self.containers.replace(name, settings, if_match).await
    }

    async fn delete(&self, name: &ContainerName) -> Result<()> {
        self.containers.delete(name).await
    }

    async fn list(&self, database: &str) -> Result<Vec<ContainerInfo>> {
        if self.vanishing.as_deref() == Some(database) {
            self.containers.delete_database(database).await?;
        }
        self.containers.list(database).await
    }

    async fn split(
        &self,
        name: &ContainerName,
        range: RangeId,
        at: Option<&EffectiveKey>,
    ) -> Result<Vec<RangeInfo>> {
        if !self.is_overtaken {
            return Err(Error::new(ErrorKind::Unsupported, "split a range"));
        }
        self.containers.split(name, range, at).await?;
        self.containers.split(name, range, at).await
    }

    async fn merge(&self, _: &ContainerName, _: RangeId, _: RangeId) -> Result<RangeInfo> {
        Err(Error::new(ErrorKind::Unsupported, "merge ranges"))
    }
}
