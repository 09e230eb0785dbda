//! What the protocol knows of databases and containers beyond what a backend keeps: policies that
//! are only given back, and throughput.
//!
//! It lives in a container of the backend, one document for each database or container that has
//! any. Documents are named by numbers that are never used again, so that one whose owner is gone
//! means nothing to anybody; where a document is missing, defaults hold. A crash between the
//! change of a backend and that of its document therefore leaves something whole.

use std::sync::Arc;

use bytes::Bytes;
use millstream_core::{
    Batch, Container, ContainerName, ContainerSettings, Containers, ErrorKind, ItemId, KeyRange,
    Operation, PageSize, PartitionKeyDefinition, ResourceId, ScanScope,
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::refusal::Refusal;

/// The container the documents are in.
const CONTAINER: &str = "gateway";

/// The documents.
#[derive(Debug)]
pub(crate) struct Catalog {
    container: Container,
}

/// Whose document.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Owner {
    /// A database, by its number.
    Database(u32),
    /// A container.
    Container(ResourceId),
}

/// What is known of a database or container.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Entry {
    /// The definition of a container as the client sent it, without what the backend keeps.
    #[serde(default)]
    pub(crate) definition: Map<String, Value>,
    /// What was provisioned.
    #[serde(default)]
    pub(crate) throughput: Option<Throughput>,
}

/// Provisioned throughput, in request units a second.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Throughput {
    /// So much, always.
    Manual(u32),
    /// As much as is needed, up to this.
    Autoscale(u32),
    /// The same, with by how many percent Cosmos DB would raise the most by itself. It is only
    /// given back.
    #[serde(rename_all = "camelCase")]
    Growing { most: u32, increment_percent: u32 },
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Stored {
    id: String,
    partition_key: String,
    #[serde(flatten)]
    entry: Entry,
}

impl Throughput {
    /// The most that may be spent in a second.
    pub(crate) fn most(self) -> u32 {
        match self {
            Self::Manual(units) | Self::Autoscale(units) => units,
            Self::Growing { most, .. } => most,
        }
    }
}

impl Catalog {
    /// Opens the container, making it at the first start.
    pub(crate) async fn open(
        containers: &Arc<dyn Containers>,
        database: &str,
    ) -> millstream_core::Result<Self> {
        let unless_exists = |error: millstream_core::Error| {
            if error.kind() == ErrorKind::AlreadyExists { Ok(()) } else { Err(error) }
        };
        containers.create_database(database).await.map(drop).or_else(unless_exists)?;
        let name = ContainerName::new(database, CONTAINER)?;
        let mut settings = ContainerSettings::new(PartitionKeyDefinition::hash("/partitionKey")?);
        settings.event_type = None;
        containers.create(&name, settings).await.map(drop).or_else(unless_exists)?;
        Ok(Self { container: containers.open(&name).await? })
    }

    /// What is known of `owner`; nothing if there is no document.
    pub(crate) async fn read(&self, owner: Owner) -> Result<Entry, Refusal> {
        let id = owner.item_id()?;
        let found = self.container.documents.read(&id.as_str().into(), &id).await?;
        found.map_or_else(|| Ok(Entry::default()), |item| parse(&item.body).map(|it| it.entry))
    }

    /// Writes what is known of `owner`.
    pub(crate) async fn write(&self, owner: Owner, entry: &Entry) -> Result<(), Refusal> {
        let id = owner.item_id()?.as_str().to_owned();
        let stored = Stored { partition_key: id.clone(), id, entry: entry.clone() };
        let body = serde_json::to_vec(&stored).map_err(|error| damaged(&error))?;
        let batch = Batch::new(stored.partition_key.as_str()).with(Operation::upsert(body));
        self.container.documents.commit(batch).await?;
        Ok(())
    }

    /// Forgets `owner`.
    pub(crate) async fn remove(&self, owner: Owner) -> Result<(), Refusal> {
        let id = owner.item_id()?;
        let batch = Batch::new(id.as_str()).with(Operation::delete(id.clone()));
        match self.container.documents.commit(batch).await {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error.into()),
            Ok(_) | Err(_) => Ok(()),
        }
    }

    /// All who have a document.
    pub(crate) async fn owners(&self) -> Result<Vec<Owner>, Refusal> {
        let scope = ScanScope::Keys(KeyRange::all());
        let (mut after, mut owners) = (None, Vec::new());
        loop {
            let page = self.container.documents.scan(&scope, after.as_ref(), PageSize::default());
            let page = page.await?;
            owners.extend(page.items.iter().filter_map(|it| Owner::parse(it.id.as_str())));
            after = page.continuation;
            if after.is_none() {
                return Ok(owners);
            }
        }
    }
}

impl Owner {
    fn item_id(self) -> Result<ItemId, Refusal> {
        let text = match self {
            Self::Database(number) => format!("d.{number}"),
            Self::Container(id) => format!("c.{}.{}", id.database, id.container),
        };
        Ok(ItemId::new(&text)?)
    }

    fn parse(text: &str) -> Option<Self> {
        let parts: Vec<&str> = text.split('.').collect();
        match parts.as_slice() {
            ["d", number] => Some(Self::Database(number.parse().ok()?)),
            ["c", database, container] => {
                let (database, container) = (database.parse().ok()?, container.parse().ok()?);
                Some(Self::Container(ResourceId { database, container }))
            }
            _ => None,
        }
    }
}

fn parse(body: &Bytes) -> Result<Stored, Refusal> {
    serde_json::from_slice(body).map_err(|error| damaged(&error))
}

fn damaged(error: &serde_json::Error) -> Refusal {
    let message = format!("could not use a document of the gateway's catalog: {error}");
    Refusal::new(http::StatusCode::INTERNAL_SERVER_ERROR, message)
}
