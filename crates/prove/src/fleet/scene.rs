//! The containers that all processes of a fleet work on.

use std::path::Path;

use millstream_core::{
    Container, ContainerName, ContainerSettings, Containers, ItemId, PartitionKey,
    PartitionKeyDefinition, TimeToLive,
};
use millstream_crash::{Attempt, Error, Result};
use serde::{Deserialize, Serialize};

use crate::nats;
use crate::patience::{patiently, reaching};
use crate::world::unless_exists;

/// Ranges of the data: more than there are processors, so that each has some.
const RANGES: u32 = 6;
/// The id of the entity of a key.
pub(crate) const ENTITY: &str = "entity";
/// What ids of events begin with; their number follows.
pub(crate) const EVENT: &str = "event-";
/// The id of what the processors know of a key.
pub(crate) const COUNT: &str = "count";

/// What was committed, the leases of the processors, and what they counted.
pub(crate) struct Scene {
    pub(crate) data: Container,
    pub(crate) leases: Container,
    pub(crate) counts: Container,
}

/// What the processors know of a key.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Count {
    pub(crate) id: String,
    pub(crate) partition_key: String,
    /// The number of the last event.
    pub(crate) last: u64,
    /// How often an event came before an earlier one.
    pub(crate) gaps: u64,
}

/// The name of the container that clients write to.
pub(crate) fn data_name(directory: &Path) -> Result<ContainerName> {
    ContainerName::new(&database(directory), "data").attempt(|| "name a container")
}

impl Scene {
    /// Makes the containers, and opens them.
    pub(crate) async fn create(directory: &Path) -> Result<Self> {
        let store = store(directory).await?;
        let database = database(directory);
        reaching(async || unless_exists(store.create_database(&database).await))
            .await
            .attempt(|| "create the database of the fleet")?;
        let key = PartitionKeyDefinition::hash("/partitionKey").attempt(|| "divide a container")?;
        let settings = ContainerSettings::new(key).default_ttl(TimeToLive::Never);
        for (name, ranges) in [("data", RANGES), ("leases", 1), ("counts", 1)] {
            let attempted = || format!("create the container \"{name}\"");
            let name = ContainerName::new(&database, name).attempt(attempted)?;
            let settings = settings.clone().ranges(ranges);
            let create = async || unless_exists(store.create(&name, settings.clone()).await);
            reaching(create).await.attempt(attempted)?;
        }
        Self::open_in(&store, &database).await
    }

    /// Opens the containers.
    pub(crate) async fn open(directory: &Path) -> Result<Self> {
        let (store, database) = (store(directory).await?, database(directory));
        // A server that was just killed may have led.
        patiently(async || Self::open_in(&store, &database).await).await
    }

    async fn open_in(store: &dyn Containers, database: &str) -> Result<Self> {
        let open = async |name: &str| {
            let attempted = || format!("open the container \"{name}\"");
            let name = ContainerName::new(database, name).attempt(attempted)?;
            store.open(&name).await.attempt(attempted)
        };
        let (data, leases) = (open("data").await?, open("leases").await?);
        Ok(Self { data, leases, counts: open("counts").await? })
    }

    /// How many commits a key has.
    pub(crate) async fn entity(&self, key: &str) -> Result<u64> {
        #[derive(Deserialize)]
        struct Entity {
            number: u64,
        }
        let entity: Option<Entity> = read(&self.data, key, ENTITY).await?;
        Ok(entity.map_or(0, |it| it.number))
    }

    /// What the processors know of a key.
    pub(crate) async fn count(&self, key: &str) -> Result<Count> {
        Ok(read(&self.counts, key, COUNT).await?.unwrap_or_default())
    }
}

/// The database of a fleet. It is called like nobody else's: while a gateway is dead, that of
/// another fleet may get its port.
fn database(directory: &Path) -> String {
    let name = directory.file_name().unwrap_or(directory.as_os_str());
    name.to_string_lossy().into_owned()
}

/// The store that all of them share.
pub(crate) async fn store(directory: &Path) -> Result<millstream_backend_nats::NatsStore> {
    let opened = nats::store(directory, "fleet").await?;
    opened.ok_or_else(|| Error::new("find the NATS servers of the fleet"))
}

async fn read<T: for<'de> Deserialize<'de>>(
    container: &Container,
    key: &str,
    id: &str,
) -> Result<Option<T>> {
    let attempted = || format!("read {id} of {key}");
    let item_id = ItemId::new(id).attempt(attempted)?;
    let key = PartitionKey::from(key);
    let found = reaching(async || container.documents.read(&key, &item_id).await).await;
    let Some(item) = found.attempt(attempted)? else { return Ok(None) };
    serde_json::from_slice(&item.body).map(Some).attempt(attempted)
}
