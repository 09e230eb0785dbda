use std::path::Path;
use std::sync::Arc;

use millstream_core::{
    Clock, Container, ContainerName, ContainerSettings, Containers, ErrorKind, IdSource,
    PartitionKeyDefinition, RandomIds, SystemClock, TimeToLive,
};
use millstream_crash::{Attempt, Result};
use millstream_store::Store;

use crate::nats;
use crate::patience::reaching;

/// Ranges of the data, so that the relay has more than one lease.
pub(crate) const RANGES: u32 = 2;
const DATABASE: &str = "prove";

/// The store of the service.
pub(crate) struct ServiceWorld {
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) ids: Arc<dyn IdSource>,
    /// What the service commits.
    pub(crate) data: Container,
    /// The leases of the relay, and what it parked.
    pub(crate) leases: Container,
    _store: Arc<dyn Containers>,
}

/// The store of the broker.
pub(crate) struct BrokerWorld {
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) ids: Arc<dyn IdSource>,
    pub(crate) messages: Container,
    _store: Arc<dyn Containers>,
}

/// The store of the consumer.
pub(crate) struct ConsumerWorld {
    /// What the consumer made of the messages.
    pub(crate) effects: Container,
    _store: Arc<dyn Containers>,
}

impl ServiceWorld {
    pub(crate) async fn open(directory: &Path) -> Result<Self> {
        let (clock, ids) = sources();
        let store = open(directory, "service").await?;
        let expiring = settings()?.default_ttl(TimeToLive::Never);
        let mut divided = expiring.clone();
        divided.ranges = RANGES;
        let data = container(&*store, "data", divided).await?;
        let leases = container(&*store, "leases", expiring).await?;
        Ok(Self { clock, ids, data, leases, _store: store })
    }
}

impl BrokerWorld {
    pub(crate) async fn open(directory: &Path) -> Result<Self> {
        let (clock, ids) = sources();
        let store = open(directory, "broker").await?;
        let messages = container(&*store, "messages", settings()?).await?;
        Ok(Self { clock, ids, messages, _store: store })
    }
}

impl ConsumerWorld {
    pub(crate) async fn open(directory: &Path) -> Result<Self> {
        let store = open(directory, "consumer").await?;
        let expiring = settings()?.default_ttl(TimeToLive::Never);
        let effects = container(&*store, "effects", expiring).await?;
        Ok(Self { effects, _store: store })
    }
}

fn sources() -> (Arc<dyn Clock>, Arc<dyn IdSource>) {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::default());
    let ids = Arc::new(RandomIds::new(Arc::clone(&clock)));
    (clock, ids)
}

/// The store of a part: on the NATS servers of the directory if it has some, otherwise in it.
async fn open(directory: &Path, name: &str) -> Result<Arc<dyn Containers>> {
    if let Some(store) = nats::store(directory, name).await? {
        return Ok(Arc::new(store));
    }
    let opened = Store::open(directory.join(name));
    Ok(Arc::new(opened.attempt(|| format!("open the store \"{name}\""))?))
}

fn settings() -> Result<ContainerSettings> {
    let key = PartitionKeyDefinition::hash("/partitionKey").attempt(|| "divide a container")?;
    Ok(ContainerSettings::new(key))
}

async fn container(
    store: &dyn Containers,
    name: &str,
    settings: ContainerSettings,
) -> Result<Container> {
    let attempted = || format!("open the container \"{name}\"");
    let name = ContainerName::new(DATABASE, name).attempt(attempted)?;
    reaching(async || {
        unless_exists(store.create_database(DATABASE).await)?;
        unless_exists(store.create(&name, settings.clone()).await)?;
        store.open(&name).await
    })
    .await
    .attempt(attempted)
}

/// A process that was killed before may have created it.
pub(crate) fn unless_exists<T>(outcome: millstream_core::Result<T>) -> millstream_core::Result<()> {
    match outcome {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(error),
        Ok(_) | Err(_) => Ok(()),
    }
}
