//! The parts that every command works on: the store, the containers in it, the broker.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use contacts::ContactContainers;
use millstream_broker::{Broker, BrokerOptions};
use millstream_core::{
    Clock, Container, ContainerName, ContainerSettings, Containers, ErrorKind, IdSource,
    PartitionKeyDefinition, RandomIds, SystemClock, TimeToLive,
};
use millstream_processor::{DeadLetters, Estimator, Operations};

use crate::config::{Config, TracesConfig};
use crate::failure::{Failure, Result};
use crate::messages::{MessageService, Messages};
use crate::places::{OpenStore, connect};
use crate::traces::{Exporter, Traces};

/// The database of the user.
const APP: &str = "app";
/// The database of the program itself.
const OWN: &str = "millstream";
/// The relay from the user's container to the broker.
pub(crate) const RELAY: &str = "events";
/// The relay of the demonstration, and its topic.
pub(crate) const DEMO_RELAY: &str = "contacts";
/// The subscription of the demonstration.
pub(crate) const DEMO_SUBSCRIPTION: &str = "search";
/// The relay of the demonstration that posts.
pub(crate) const DEMO_WEBHOOK: &str = "contacts-webhook";
/// The `source` of the events of the demonstration.
pub(crate) const DEMO_SOURCE: &str = "contacts";
/// Longest time one call to the dead letters may take.
const TIMEOUT: Duration = Duration::from_secs(10);

/// An open store and its broker.
#[derive(Clone)]
pub(crate) struct System {
    pub(crate) store: OpenStore,
    pub(crate) messages: Messages,
    pub(crate) leases: Container,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) ids: Arc<dyn IdSource>,
    pub(crate) relays: Vec<RelayName>,
    pub(crate) config: Config,
    pub(crate) traces: Traces,
}

/// A relay that there may be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RelayName {
    pub(crate) name: String,
    /// The container whose events it sends.
    pub(crate) data: ContainerName,
}

impl System {
    /// Opens everything, making what is missing.
    pub(crate) async fn open(config: &Config) -> Result<(Self, MessageService)> {
        let (system, service, _) = Self::open_with(config, &TracesConfig::default()).await?;
        Ok((system, service))
    }

    /// The same with traces, which are sent while the exporter runs.
    pub(crate) async fn open_with(
        config: &Config,
        traces: &TracesConfig,
    ) -> Result<(Self, MessageService, Option<Exporter>)> {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::default());
        let ids: Arc<dyn IdSource> = Arc::new(RandomIds::new(Arc::clone(&clock)));
        let (traces, exporter) = Traces::new(traces, &clock, &ids)?;
        let store = config.store_place()?.open().await?;
        let containers = &*store.containers;
        let expiring = settings("/partitionKey")?.default_ttl(TimeToLive::Never);
        ensure(containers, APP, "data", expiring.ranges(config.ranges)).await?;
        ensure(containers, APP, "leases", settings("/id")?).await?;
        let leases = ensure(containers, OWN, "leases", settings("/partitionKey")?).await?;
        let (messages, service) = match config.broker_url()? {
            Some(url) => (Messages::Nats(Arc::new(connect(&url).await?)), MessageService::Nothing),
            None => {
                let container = ensure(containers, OWN, "broker", settings("/partitionKey")?);
                let (clock, ids) = (Arc::clone(&clock), Arc::clone(&ids));
                let options = BrokerOptions::default();
                let opened = Broker::open(&container.await?, options, clock, ids).await?;
                (Messages::Own(opened.0), MessageService::Own(opened.1))
            }
        };
        let relays = relays(config)?;
        let config = config.clone();
        let system = Self { store, messages, leases, clock, ids, relays, config, traces };
        Ok((system, service, exporter))
    }

    /// The container that somebody names, such as `app/data`.
    pub(crate) async fn container(&self, name: &str) -> Result<Container> {
        let opened = self.store.containers.open(&parse_name(name)?).await?;
        Ok(self.traces.container(opened))
    }

    /// The `source` of the events of a container.
    pub(crate) fn source_of(&self, data: &Container) -> String {
        match data.info.name.database() {
            ContactContainers::DATABASE => DEMO_SOURCE.to_owned(),
            _ => self.config.relay.source.clone(),
        }
    }

    /// Looks at a relay; none if its container does not exist.
    pub(crate) async fn look(&self, relay: &RelayName) -> Result<Option<RelayTools>> {
        let data = match self.store.containers.open(&relay.data).await {
            Ok(data) => data,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let name = relay.name.as_str();
        let clock = || Arc::clone(&self.clock);
        Ok(Some(RelayTools {
            operations: Operations::new_with(&data, &self.leases, name, clock())?,
            estimator: Estimator::new_with(&data, &self.leases, name, clock())?,
            letters: DeadLetters::new(&self.leases, name, clock(), TIMEOUT)?,
        }))
    }

    /// The relay of this name.
    pub(crate) async fn relay(&self, name: &str) -> Result<RelayTools> {
        if let Some(relay) = self.relays.iter().find(|it| it.name == name)
            && let Some(tools) = self.look(relay).await?
        {
            return Ok(tools);
        }
        let names: Vec<&str> = self.relays.iter().map(|it| it.name.as_str()).collect();
        let sentence = format!("there is no relay {name:?}; there may be {}", names.join(", "));
        Err(Failure::usage(sentence))
    }
}

/// What looks at a relay from outside.
#[derive(Clone)]
pub(crate) struct RelayTools {
    pub(crate) operations: Operations,
    pub(crate) estimator: Estimator,
    pub(crate) letters: DeadLetters,
}

/// Whether there is a store in the directory.
pub(crate) fn exists(directory: &Path) -> bool {
    directory.join("format.json").exists()
}

/// The name of the relay to a webhook of the configuration.
pub(crate) fn webhook_relay(name: &str) -> String {
    format!("webhook-{name}")
}

/// The container whose events are relayed.
pub(crate) fn data_name() -> Result<ContainerName> {
    Ok(ContainerName::new(APP, "data")?)
}

/// The container of the broker in the store.
pub(crate) fn broker_name() -> Result<ContainerName> {
    Ok(ContainerName::new(OWN, "broker")?)
}

/// The container with the leases of the relays.
pub(crate) fn leases_name() -> Result<ContainerName> {
    Ok(ContainerName::new(OWN, "leases")?)
}

/// Reads `database/container`.
pub(crate) fn parse_name(text: &str) -> Result<ContainerName> {
    let Some((database, container)) = text.split_once('/') else {
        return Err(Failure::usage(format!(
            "{text:?} is not a container: write database/container, such as app/data"
        )));
    };
    Ok(ContainerName::new(database, container)?)
}

/// The relays that there may be.
pub(crate) fn relays(config: &Config) -> Result<Vec<RelayName>> {
    let data = data_name()?;
    let contacts = ContainerName::new(ContactContainers::DATABASE, ContactContainers::DATA)?;
    let mut relays = vec![RelayName { name: RELAY.to_owned(), data: data.clone() }];
    let names = config.webhooks.iter().map(|it| webhook_relay(&it.name));
    relays.extend(names.map(|name| RelayName { name, data: data.clone() }));
    let names = [DEMO_RELAY, DEMO_WEBHOOK].map(str::to_owned);
    relays.extend(names.map(|name| RelayName { name, data: contacts.clone() }));
    Ok(relays)
}

fn settings(partition_key: &str) -> Result<ContainerSettings> {
    Ok(ContainerSettings::new(PartitionKeyDefinition::hash(partition_key)?))
}

async fn ensure(
    store: &dyn Containers,
    database: &str,
    container: &str,
    settings: ContainerSettings,
) -> Result<Container> {
    unless_exists(store.create_database(database).await)?;
    let name = ContainerName::new(database, container)?;
    unless_exists(store.create(&name, settings).await)?;
    Ok(store.open(&name).await?)
}

fn unless_exists<T>(outcome: millstream_core::Result<T>) -> Result<()> {
    match outcome {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(error.into()),
        Ok(_) | Err(_) => Ok(()),
    }
}
