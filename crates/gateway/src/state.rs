//! What all requests share.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, Weak};
use std::time::Duration;

use futures_util::future;
use millstream_core::{
    Clock, ContainerInfo, ContainerName, Containers, DatabaseInfo, ErrorKind, IdSource, ResourceId,
};
use millstream_query::ComputedProperties;

use crate::auth::Verified;
use crate::catalog::{Catalog, Owner, Throughput};
use crate::changes::Changes;
use crate::definition;
use crate::known_ranges::KnownRanges;
use crate::management::Operations;
use crate::open_container::OpenContainer;
use crate::options::GatewayOptions;
use crate::refusal::{Refusal, sub_status};
use crate::request::Request;
use crate::rid::Rid;
use crate::target::ContainerPath;
use crate::throttle::Throttle;

/// Most containers that are held open; beyond it all are forgotten and opened again as they are
/// asked for.
const OPEN_MAX: usize = 4096;
/// How old what is known of computed properties may be.
const COMPUTED_AGE_MAX: Duration = Duration::from_secs(1);
/// Throughput of a container for which nothing was asked, in request units a second.
pub(crate) const THROUGHPUT_DEFAULT: u32 = 400;

/// What all requests share.
pub(crate) struct State {
    pub(crate) containers: Arc<dyn Containers>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) ids: Arc<dyn IdSource>,
    pub(crate) options: GatewayOptions,
    /// Whether everybody knows a key; to find out takes longer than serving a request.
    pub(crate) has_public_key: bool,
    pub(crate) catalog: Catalog,
    pub(crate) changes: Changes,
    pub(crate) operations: Operations,
    pub(crate) verified: Verified,
    open: RwLock<BTreeMap<ContainerPath, Found>>,
    /// What containers may spend, and databases whose containers share it: one budget each,
    /// whatever paths lead there and however often they are opened.
    throttles: Mutex<BTreeMap<Owner, Arc<Throttle>>>,
    /// The ranges of open containers: one set each, whatever paths lead there.
    ranges: Mutex<BTreeMap<ResourceId, Weak<KnownRanges>>>,
}

/// A container that a path led to.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    pub(crate) container: Arc<OpenContainer>,
    /// The path had resource ids, so that an item below is named by its resource id too.
    pub(crate) is_by_rid: bool,
}

/// What a handler of something in a container gets.
///
/// Handlers are `pub(crate) async fn name(call: Call<'_>, …) -> Answer`. They return a
/// [`crate::refusal::Refusal`] for everything that is not served; a failure of the backend becomes
/// one with `?`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call<'a> {
    pub(crate) state: &'a State,
    pub(crate) request: &'a Request,
    pub(crate) container: &'a Arc<OpenContainer>,
    /// The path names things by resource id.
    pub(crate) is_by_rid: bool,
}

impl State {
    pub(crate) async fn new(
        containers: Arc<dyn Containers>,
        clock: Arc<dyn Clock>,
        ids: Arc<dyn IdSource>,
        options: GatewayOptions,
    ) -> millstream_core::Result<Self> {
        options.check()?;
        let catalog = Catalog::open(&containers, &options.own_database).await?;
        let has_public_key = options.has_public_key();
        let state = Self {
            containers,
            clock,
            ids,
            options,
            has_public_key,
            catalog,
            changes: Changes::default(),
            operations: Operations::default(),
            verified: Verified::default(),
            open: RwLock::default(),
            throttles: Mutex::default(),
            ranges: Mutex::default(),
        };
        if let Err(refusal) = state.tidy_catalog().await {
            // What is left over means nothing to anybody; the next start tries again.
            tracing::info!(message = refusal.message, "could not tidy the catalog");
        }
        Ok(state)
    }

    /// Forgets databases and containers that are gone: what a crash between two deletes has left.
    async fn tidy_catalog(&self) -> Result<(), Refusal> {
        // Documents first: whatever is created meanwhile is there when the backend is asked.
        let mut owners: BTreeSet<Owner> = self.catalog.owners().await?.into_iter().collect();
        for database in self.containers.list_databases().await? {
            let Some(containers) = self.containers_in(&database).await? else { continue };
            owners.remove(&Owner::Database(database.resource_id));
            for container in containers {
                owners.remove(&Owner::Container(container.resource_id));
            }
        }
        for gone in owners {
            self.catalog.remove(gone).await?;
        }
        Ok(())
    }

    /// The databases clients can see, by name.
    pub(crate) async fn databases(&self) -> Result<Vec<DatabaseInfo>, Refusal> {
        let mut databases = self.containers.list_databases().await?;
        databases.retain(|it| it.name != self.options.own_database);
        Ok(databases)
    }

    /// The database that is named, or has the resource id, `text`.
    pub(crate) async fn database(&self, text: &str) -> Result<DatabaseInfo, Refusal> {
        let databases = self.databases().await?;
        let number = match Rid::decode(text) {
            Some(Rid::Database(number)) => Some(number),
            _ => None,
        };
        let by_name = databases.iter().find(|it| it.name == text);
        let found = by_name.or_else(|| databases.iter().find(|it| Some(it.resource_id) == number));
        found.cloned().ok_or_else(|| {
            let shown: String = text.chars().take(64).collect();
            Refusal::not_found(format!("there is no database {shown:?}"))
        })
    }

    /// The containers of a database that was there a moment ago; none if it has been deleted.
    pub(crate) async fn containers_in(
        &self,
        database: &DatabaseInfo,
    ) -> Result<Option<Vec<ContainerInfo>>, Refusal> {
        match self.containers.list(&database.name).await {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            listed => Ok(Some(listed?)),
        }
    }

    /// The container a path names, opened.
    ///
    /// # Errors
    ///
    /// 404, with sub-status 1003 if not even the database exists.
    pub(crate) async fn container(&self, path: &ContainerPath) -> Result<Found, Refusal> {
        let now = self.clock.monotonic();
        match self.known(path) {
            Some(found) if self.is_fresh(&found, now) => Ok(found),
            Some(found) => Box::pin(self.ask_again(path, found, now)).await,
            None => Box::pin(self.open(path)).await,
        }
    }

    /// The container a path names, which has been open for a while, as it is now.
    async fn ask_again(
        &self,
        path: &ContainerPath,
        found: Found,
        now: Duration,
    ) -> Result<Found, Refusal> {
        let container = Arc::clone(&found.container);
        // One request asks; others go on with what is known if it is not too old.
        let asking = match container.asking.try_lock() {
            Ok(asking) => asking,
            Err(_) if container.age(now) <= self.options.container_age_max => return Ok(found),
            Err(_) => container.asking.lock().await,
        };
        let Some(known) = self.known(path) else {
            // Somebody else was told that it is gone.
            drop(asking);
            return self.open(path).await;
        };
        if self.is_fresh(&known, now) {
            return Ok(known);
        }
        let mut asked = self.clock.monotonic();
        let still_holds = self.still_holds(&known.container).await;
        if let Ok(false) = still_holds {
            self.forget(&known.container.info().name);
            return self.open(path).await;
        }
        if still_holds.is_err() {
            // It cannot be asked now. Requests are going to tell; those that have waited for this
            // answer do not wait for another one.
            asked = self.clock.monotonic();
        }
        // Not when this request came: it holds for all who came before it was asked for.
        known.container.set_asked(asked);
        Ok(known)
    }

    fn known(&self, path: &ContainerPath) -> Option<Found> {
        self.read_open().get(path).cloned()
    }

    fn is_fresh(&self, found: &Found, now: Duration) -> bool {
        found.container.age(now) <= self.options.container_age_max / 2
    }

    /// The container a path names now, whatever is known.
    pub(crate) async fn open(&self, path: &ContainerPath) -> Result<Found, Refusal> {
        let found = self.look_up(path).await?;
        let mut open = self.open.write().unwrap_or_else(PoisonError::into_inner);
        if OPEN_MAX <= open.len() {
            open.clear();
        }
        open.insert(path.clone(), found.clone());
        Ok(found)
    }

    /// Forgets what is known of a container, so that the next request looks it up.
    pub(crate) fn forget(&self, name: &ContainerName) {
        let mut open = self.open.write().unwrap_or_else(PoisonError::into_inner);
        open.retain(|_, found| found.container.info().name != *name);
    }

    /// Forgets everything that is known of a database and its containers.
    pub(crate) fn forget_database(&self, info: &DatabaseInfo) {
        let mut open = self.open.write().unwrap_or_else(PoisonError::into_inner);
        open.retain(|_, found| found.container.info().name.database() != info.name);
        drop(open);
        self.lock_throttles().retain(|owner, _| match owner {
            Owner::Database(number) => *number != info.resource_id,
            Owner::Container(id) => id.database != info.resource_id,
        });
    }

    /// Forgets what a container that is gone might have spent.
    pub(crate) fn forget_throttle(&self, id: ResourceId) {
        self.lock_throttles().remove(&Owner::Container(id));
    }

    /// Changes what a container may spend, or the containers of a database.
    pub(crate) fn set_throughput(&self, owner: Owner, per_second: u32) {
        if let Some(throttle) = self.lock_throttles().get(&owner) {
            throttle.set(per_second);
        }
    }

    fn lock_throttles(&self) -> MutexGuard<'_, BTreeMap<Owner, Arc<Throttle>>> {
        self.throttles.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn read_open(&self) -> std::sync::RwLockReadGuard<'_, BTreeMap<ContainerPath, Found>> {
        self.open.read().unwrap_or_else(PoisonError::into_inner)
    }

    async fn look_up(&self, path: &ContainerPath) -> Result<Found, Refusal> {
        let database = self.database(&path.database).await;
        let database = database.map_err(|it| it.sub_status(sub_status::OWNER_NOT_FOUND))?;
        let is_named = ContainerName::new(&database.name, &path.container);
        if let Ok(name) = is_named
            && let Some(container) = self.open_named(&name).await?
        {
            return Ok(Found { container, is_by_rid: path.database != database.name });
        }
        if let Some(Rid::Container(id)) = Rid::decode(&path.container)
            && let Some(info) = self.by_number(&database, id).await?
            && let Some(container) = self.open_named(&info.name).await?
            // The name may have become that of another one meanwhile.
            && container.info().resource_id == id
        {
            return Ok(Found { container, is_by_rid: true });
        }
        let shown: String = path.container.chars().take(64).collect();
        let message = format!("there is no container {shown:?} in {:?}", database.name);
        Err(Refusal::not_found(message))
    }

    async fn by_number(
        &self,
        database: &DatabaseInfo,
        id: ResourceId,
    ) -> Result<Option<ContainerInfo>, Refusal> {
        let mut all = self.containers.list(&database.name).await?.into_iter();
        Ok(all.find(|it| it.resource_id == id))
    }

    async fn open_named(
        &self,
        name: &ContainerName,
    ) -> Result<Option<Arc<OpenContainer>>, Refusal> {
        let now = self.clock.monotonic();
        let container = match self.containers.open(name).await {
            Ok(container) => container,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let throttle = self.throttle(container.info.resource_id).await?;
        let ranges = self.known_ranges(container.info.resource_id);
        Ok(Some(Arc::new(OpenContainer::new(container, throttle, ranges, now).await?)))
    }

    /// What is known of the ranges of a container, which nobody may have asked for yet.
    pub(crate) fn known_ranges(&self, id: ResourceId) -> Arc<KnownRanges> {
        let mut ranges = self.ranges.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = ranges.get(&id).and_then(Weak::upgrade) {
            return known;
        }
        ranges.retain(|_, known| 0 < known.strong_count());
        let known = Arc::default();
        ranges.insert(id, Arc::downgrade(&known));
        known
    }

    /// Whether an open container is still what the backend has: another process may have deleted
    /// it or changed what it is. Asks for its ranges, too: the store itself may have split them.
    pub(crate) async fn still_holds(&self, container: &OpenContainer) -> Result<bool, Refusal> {
        let opened = self.containers.open(&container.info().name);
        let (current, ranges) = future::join(opened, container.refresh_ranges()).await;
        match current {
            Ok(current) if current.info != *container.info() => return Ok(false),
            Ok(_) => (),
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(error.into()),
        }
        ranges?;
        let throttle = self.throttle(container.info().resource_id).await?;
        Ok(throttle.is_off() || Arc::ptr_eq(&throttle, &container.throttle))
    }

    /// The computed properties of a container, which another process may have replaced. Only
    /// queries want to know.
    pub(crate) async fn computed(
        &self,
        container: &OpenContainer,
    ) -> Result<Arc<ComputedProperties>, Refusal> {
        let now = self.clock.monotonic();
        if let Some(known) = container.computed(now.saturating_sub(COMPUTED_AGE_MAX)) {
            return Ok(known);
        }
        let owner = Owner::Container(container.info().resource_id);
        let entry = self.catalog.read(owner).await?;
        let computed = Arc::new(definition::computed_properties(&entry.definition)?);
        container.set_computed(now, Arc::clone(&computed));
        Ok(computed)
    }

    async fn throttle(&self, id: ResourceId) -> Result<Arc<Throttle>, Refusal> {
        if !self.options.enforce_throughput {
            return Ok(Arc::new(Throttle::off()));
        }
        let own = self.catalog.read(Owner::Container(id)).await?.throughput;
        let shared = match own {
            Some(_) => None,
            None => self.catalog.read(Owner::Database(id.database)).await?.throughput,
        };
        let owner = match shared {
            Some(_) => Owner::Database(id.database),
            None => Owner::Container(id),
        };
        let units = own.or(shared).map_or(THROUGHPUT_DEFAULT, Throughput::most);
        let now = self.clock.monotonic();
        let mut throttles = self.lock_throttles();
        if OPEN_MAX <= throttles.len() && !throttles.contains_key(&owner) {
            throttles.clear();
        }
        let throttle = throttles.entry(owner).or_insert_with(|| Throttle::new(units, now).into());
        // Another process may have changed it since.
        throttle.set(units);
        Ok(Arc::clone(throttle))
    }
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("State").field("options", &self.options).finish_non_exhaustive()
    }
}
