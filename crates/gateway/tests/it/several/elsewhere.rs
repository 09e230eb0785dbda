//! A backend elsewhere: it takes its time to say what a container is, and cannot split ranges.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use millstream_core::{
    Capabilities, Container, ContainerInfo, ContainerName, ContainerSettings, Containers,
    DatabaseInfo, EffectiveKey, Error, ErrorKind, Etag, RangeId, RangeInfo, Result,
};

/// Enough for other requests to come.
const SLOW: Duration = Duration::from_millis(50);

pub(super) struct Elsewhere(pub(super) Arc<dyn Containers>);

#[async_trait]
impl Containers for Elsewhere {
    async fn open(&self, name: &ContainerName) -> Result<Container> {
        tokio::time::sleep(SLOW).await;
        self.0.open(name).await
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { split: false, merge: false, ..self.0.capabilities() }
    }

    async fn create_database(&self, name: &str) -> Result<DatabaseInfo> {
        self.0.create_database(name).await
    }

    async fn delete_database(&self, name: &str) -> Result<()> {
        self.0.delete_database(name).await
    }

    async fn list_databases(&self) -> Result<Vec<DatabaseInfo>> {
        self.0.list_databases().await
    }

    async fn create(
        &self,
        name: &ContainerName,
        settings: ContainerSettings,
    ) -> Result<ContainerInfo> {
        self.0.create(name, settings).await
    }

    async fn replace(
        &self,
        name: &ContainerName,
        settings: ContainerSettings,
        if_match: Option<Etag>,
    ) -> Result<ContainerInfo> {
        self.0.replace(name, settings, if_match).await
    }

    async fn delete(&self, name: &ContainerName) -> Result<()> {
        self.0.delete(name).await
    }

    async fn list(&self, database: &str) -> Result<Vec<ContainerInfo>> {
        self.0.list(database).await
    }

    async fn split(
        &self,
        _: &ContainerName,
        _: RangeId,
        _: Option<&EffectiveKey>,
    ) -> Result<Vec<RangeInfo>> {
        Err(Error::new(ErrorKind::Unsupported, "split a range"))
    }

    async fn merge(&self, _: &ContainerName, _: RangeId, _: RangeId) -> Result<RangeInfo> {
        Err(Error::new(ErrorKind::Unsupported, "merge ranges"))
    }
}
