//! A store whose containers tell of their commits, for those who open containers themselves.

use std::sync::Arc;

use async_trait::async_trait;
use millstream_core::{
    Capabilities, Container, ContainerInfo, ContainerName, ContainerSettings, Containers,
    DatabaseInfo, EffectiveKey, Etag, RangeId, RangeInfo, Result,
};

use crate::traces::Traces;

pub(super) struct TracedContainers {
    pub(super) inner: Arc<dyn Containers>,
    pub(super) traces: Traces,
}

#[async_trait]
impl Containers for TracedContainers {
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    async fn create_database(&self, name: &str) -> Result<DatabaseInfo> {
        self.inner.create_database(name).await
    }

    async fn delete_database(&self, name: &str) -> Result<()> {
        self.inner.delete_database(name).await
    }

    async fn list_databases(&self) -> Result<Vec<DatabaseInfo>> {
        self.inner.list_databases().await
    }

    async fn create(
        &self,
        name: &ContainerName,
        settings: ContainerSettings,
    ) -> Result<ContainerInfo> {
        self.inner.create(name, settings).await
    }

    async fn replace(
        &self,
        name: &ContainerName,
        settings: ContainerSettings,
        if_match: Option<Etag>,
    ) -> Result<ContainerInfo> {
        self.inner.replace(name, settings, if_match).await
    }

    async fn delete(&self, name: &ContainerName) -> Result<()> {
        self.inner.delete(name).await
    }

    async fn list(&self, database: &str) -> Result<Vec<ContainerInfo>> {
        self.inner.list(database).await
    }

    async fn open(&self, name: &ContainerName) -> Result<Container> {
        Ok(self.traces.container(self.inner.open(name).await?))
    }

    async fn split(
        &self,
        name: &ContainerName,
        range: RangeId,
        at: Option<&EffectiveKey>,
    ) -> Result<Vec<RangeInfo>> {
        self.inner.split(name, range, at).await
    }

    async fn merge(
        &self,
        name: &ContainerName,
        left: RangeId,
        right: RangeId,
    ) -> Result<RangeInfo> {
        self.inner.merge(name, left, right).await
    }
}
