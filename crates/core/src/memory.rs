//! The reference: every obligation of the contract in the plainest way, in memory.
//!
//! One lock around ordered maps; every call looks at everything it needs. It is what examples run
//! on, what unit tests of other crates use as their store, and what a real backend is compared
//! with. Numbers in comments are obligations.
//!
//! Read `state` first (commits and expiry), then `feed`, `ranges`, `guards` and `scan`.

mod feed;
mod guards;
mod handle;
mod ranges;
mod scan;
mod state;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use async_trait::async_trait;
use event_listener::Event;

use crate::memory::handle::Handle;
use crate::memory::state::ContainerState;
use crate::refusals::{container_exists, database_exists, no_container, no_database};
use crate::{
    BATCH_BYTES_MAX, BATCH_OPERATIONS_MAX, Capabilities, ChangeFeed, Clock, Container,
    ContainerInfo, ContainerName, ContainerSettings, Containers, DatabaseInfo, Documents,
    EffectiveKey, Etag, ITEM_BYTES_MAX, RangeId, RangeInfo, ResourceId, Result, Timestamp,
    check_name,
};

/// A store in memory. Clones share their content.
///
/// ```
/// use std::sync::Arc;
/// use millstream_core::conformance::block_on;
/// use millstream_core::memory::Memory;
/// use millstream_core::{Containers, SystemClock};
///
/// let memory = Memory::new(Arc::new(SystemClock::default()));
/// block_on(memory.create_database("app"))?;
/// assert_eq!(block_on(memory.list_databases())?.len(), 1);
/// # Ok::<(), millstream_core::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Memory {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
    /// Notified after everything a waiting reader may want to look at.
    changed: Event,
}

#[derive(Debug, Default)]
struct State {
    databases: BTreeMap<String, DatabaseInfo>,
    names: BTreeMap<ContainerName, ResourceId>,
    containers: BTreeMap<ResourceId, ContainerState>,
    /// Numbers given out so far; none is given out twice.
    databases_made: u32,
    containers_made: u32,
}

impl Memory {
    /// An empty store that takes the time from `clock`.
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        let shared = Shared { clock, state: Mutex::default(), changed: Event::new() };
        Self { shared: Arc::new(shared) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock().expect("nothing panics while it holds the lock")
    }

    /// Does something with the container that is called `name` now.
    fn with_named<T>(
        &self,
        name: &ContainerName,
        act: impl FnOnce(&mut ContainerState, Timestamp) -> Result<T>,
    ) -> Result<T> {
        let id = self.lock().names.get(name).copied();
        self.with(id.ok_or_else(|| no_container(name))?, name, act)
    }

    /// Does something with a container after removing what has expired, and wakes waiting readers
    /// if anything moved.
    fn with<T>(
        &self,
        id: ResourceId,
        name: &ContainerName,
        act: impl FnOnce(&mut ContainerState, Timestamp) -> Result<T>,
    ) -> Result<T> {
        let now = self.shared.clock.now();
        let mut state = self.lock();
        let container = state.containers.get_mut(&id).ok_or_else(|| no_container(name))?;
        let moves = container.moves;
        container.expire_due(now);
        container.forget_history(now);
        let outcome = act(container, now);
        container.expire_due(now);
        container.forget_history(now);
        let moved = container.moves != moves;
        drop(state);
        if moved {
            self.shared.changed.notify(usize::MAX);
        }
        outcome
    }
}

#[async_trait]
impl Containers for Memory {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            all_versions: true,
            split: true,
            merge: true,
            retention_guard: true,
            event_sequence: true,
            unique_keys: true,
            durable: false,
            batch_operations_max: BATCH_OPERATIONS_MAX,
            batch_bytes_max: BATCH_BYTES_MAX,
            item_bytes_max: ITEM_BYTES_MAX,
        }
    }

    async fn create_database(&self, name: &str) -> Result<DatabaseInfo> {
        check_name(name)?;
        let created_at = self.shared.clock.now();
        let mut state = self.lock();
        if state.databases.contains_key(name) {
            return Err(database_exists(name));
        }
        state.databases_made += 1;
        let resource_id = state.databases_made;
        let info = DatabaseInfo { name: name.to_owned(), resource_id, created_at };
        state.databases.insert(name.to_owned(), info.clone());
        Ok(info)
    }

    async fn delete_database(&self, name: &str) -> Result<()> {
        let mut state = self.lock();
        let database = state.databases.remove(name).ok_or_else(|| no_database(name))?;
        state.names.retain(|container, _| container.database() != name);
        state.containers.retain(|id, _| id.database != database.resource_id);
        drop(state);
        self.shared.changed.notify(usize::MAX);
        Ok(())
    }

    async fn list_databases(&self) -> Result<Vec<DatabaseInfo>> {
        Ok(self.lock().databases.values().cloned().collect())
    }

    async fn create(
        &self,
        name: &ContainerName,
        settings: ContainerSettings,
    ) -> Result<ContainerInfo> {
        settings.check()?;
        let now = self.shared.clock.now();
        let mut state = self.lock();
        let database = state.databases.get(name.database());
        let database = database.ok_or_else(|| no_database(name.database()))?.resource_id;
        if state.names.contains_key(name) {
            return Err(container_exists(name));
        }
        let resource_id = ResourceId { database, container: state.containers_made + 1 };
        let container = ContainerState::new(name.clone(), resource_id, settings, now)?;
        let info = container.info.clone();
        state.containers_made += 1;
        state.names.insert(name.clone(), resource_id);
        state.containers.insert(resource_id, container);
        Ok(info)
    }

    async fn replace(
        &self,
        name: &ContainerName,
        settings: ContainerSettings,
        if_match: Option<Etag>,
    ) -> Result<ContainerInfo> {
        self.with_named(name, |container, now| container.replace(settings, if_match, now))
    }

    async fn delete(&self, name: &ContainerName) -> Result<()> {
        let mut state = self.lock();
        let id = state.names.remove(name).ok_or_else(|| no_container(name))?;
        state.containers.remove(&id);
        drop(state);
        self.shared.changed.notify(usize::MAX);
        Ok(())
    }

    async fn list(&self, database: &str) -> Result<Vec<ContainerInfo>> {
        let state = self.lock();
        if !state.databases.contains_key(database) {
            return Err(no_database(database));
        }
        let ids = state.names.iter().filter(|(name, _)| name.database() == database);
        Ok(ids.map(|(_, id)| state.containers[id].info.clone()).collect())
    }

    async fn open(&self, name: &ContainerName) -> Result<Container> {
        let info = self.with_named(name, |container, _| Ok(container.info.clone()))?;
        let handle = Arc::new(Handle::new(self.clone(), info.resource_id, name.clone()));
        let documents: Arc<dyn Documents> = handle.clone();
        let feed: Arc<dyn ChangeFeed> = handle.clone();
        Ok(Container { info, documents, feed, guards: Some(handle) })
    }

    async fn split(
        &self,
        name: &ContainerName,
        range: RangeId,
        at: Option<&EffectiveKey>,
    ) -> Result<Vec<RangeInfo>> {
        self.with_named(name, |container, _| container.split(range, at))
    }

    async fn merge(
        &self,
        name: &ContainerName,
        left: RangeId,
        right: RangeId,
    ) -> Result<RangeInfo> {
        self.with_named(name, |container, _| container.merge(left, right))
    }
}
