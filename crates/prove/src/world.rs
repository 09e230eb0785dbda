use std::path::Path;
use std::sync::Arc;

use millstream_core::{
    Clock, Container, ContainerName, ContainerSettings, Containers, ErrorKind, IdSource,
    PartitionKeyDefinition, RandomIds, SystemClock, TimeToLive,
};
use millstream_crash::{Attempt, Result};
use millstream_store::Store;

/// Ranges of the data, so that the relay has more than one lease.
pub(crate) const RANGES: u32 = 2;
const DATABASE: &str = "prove";

/// The three stores of a node.
pub(crate) struct World {
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) ids: Arc<dyn IdSource>,
    /// What the service commits.
    pub(crate) data: Container,
    /// The leases of the relay, and what it parked.
    pub(crate) leases: Container,
    /// The messages.
    pub(crate) broker: Container,
    /// What the consumer made of them.
    pub(crate) effects: Container,
    _stores: [Store; 3],
}

impl World {
    pub(crate) async fn open(directory: &Path) -> Result<Self> {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::default());
        let ids = Arc::new(RandomIds::new(Arc::clone(&clock)));
        let open = |name: &str| {
            Store::open(directory.join(name)).attempt(|| format!("open the store \"{name}\""))
        };
        let stores = [open("service")?, open("broker")?, open("consumer")?];
        let expiring = settings()?.default_ttl(TimeToLive::Never);
        let mut divided = expiring.clone();
        divided.ranges = RANGES;
        Ok(Self {
            data: container(&stores[0], "data", divided).await?,
            leases: container(&stores[0], "leases", expiring.clone()).await?,
            broker: container(&stores[1], "broker", settings()?).await?,
            effects: container(&stores[2], "effects", expiring).await?,
            clock,
            ids,
            _stores: stores,
        })
    }
}

fn settings() -> Result<ContainerSettings> {
    let key = PartitionKeyDefinition::hash("/partitionKey").attempt(|| "divide a container")?;
    Ok(ContainerSettings::new(key))
}

async fn container(store: &Store, name: &str, settings: ContainerSettings) -> Result<Container> {
    let attempted = || format!("open the container \"{name}\"");
    unless_exists(store.create_database(DATABASE).await).attempt(attempted)?;
    let name = ContainerName::new(DATABASE, name).attempt(attempted)?;
    unless_exists(store.create(&name, settings).await).attempt(attempted)?;
    store.open(&name).await.attempt(attempted)
}

/// A node that was killed before may have created it.
pub(crate) fn unless_exists<T>(outcome: millstream_core::Result<T>) -> millstream_core::Result<()> {
    match outcome {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(error),
        Ok(_) | Err(_) => Ok(()),
    }
}
