use millstream_core::{
    Container, ContainerName, ContainerSettings, Containers, ErrorKind, PartitionKeyDefinition,
    TimeToLive,
};

/// The containers of the example: what the service writes, and what its consumer makes of it.
#[derive(Clone, Debug)]
pub struct ContactContainers {
    /// Contacts and their events, one logical partition per contact.
    pub data: Container,
    /// The search list.
    pub search: Container,
}

impl ContactContainers {
    /// The database of both.
    pub const DATABASE: &'static str = "contacts";
    /// The name of [`ContactContainers::data`].
    pub const DATA: &'static str = "data";
    /// The name of [`ContactContainers::search`].
    pub const SEARCH: &'static str = "search";

    /// Opens both containers, creating what is missing. Both may expire single items: events and
    /// the ids of handled messages do.
    ///
    /// # Errors
    ///
    /// Those of the store.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future may leave some of it created; call it again.
    pub async fn prepare(containers: &dyn Containers) -> millstream_core::Result<Self> {
        unless_exists(containers.create_database(Self::DATABASE).await)?;
        Ok(Self {
            data: Self::open(containers, Self::DATA).await?,
            search: Self::open(containers, Self::SEARCH).await?,
        })
    }

    async fn open(
        containers: &dyn Containers,
        container: &str,
    ) -> millstream_core::Result<Container> {
        let name = ContainerName::new(Self::DATABASE, container)?;
        let key = PartitionKeyDefinition::hash("/partitionKey")?;
        let settings = ContainerSettings::new(key).default_ttl(TimeToLive::Never);
        unless_exists(containers.create(&name, settings).await)?;
        containers.open(&name).await
    }
}

fn unless_exists<T>(outcome: millstream_core::Result<T>) -> millstream_core::Result<()> {
    match outcome {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(error),
        Ok(_) | Err(_) => Ok(()),
    }
}
