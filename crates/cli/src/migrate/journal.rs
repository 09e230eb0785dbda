//! How far a migration is, in the target.

use millstream_core::{
    Batch, Container, ContainerName, ContainerSettings, Containers, Continuation, Documents, Etag,
    FeedMode, ItemId, KeyRange, Operation, PartitionKey, PartitionKeyDefinition, StartFrom,
};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

use crate::failure::{Failure, Result};
use crate::migrate::unless_exists;

const VERSION: u32 = 1;
/// Not that of the program: a Millstream that is the target keeps it from its clients.
pub(super) const DATABASE: &str = "millstream-migrations";
const CONTAINER: &str = "journals";
const ID: &str = "journal";

/// The journal of one container.
pub(super) struct Journal {
    documents: Arc<dyn Documents>,
    document: Document,
    etag: Option<Etag>,
}

/// How far a part of the keys is.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Position {
    pub(super) keys: KeyRange,
    continuation: String,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Document {
    id: String,
    partition_key: String,
    version: u32,
    /// What is copied: the place and the container in it.
    source: String,
    positions: Vec<Position>,
    copied: u64,
    switched: bool,
}

impl Journal {
    /// The journal of a container; a new one begins at the beginning.
    pub(super) async fn open(
        journals: &Container,
        name: &ContainerName,
        identity: &str,
        source: &Container,
    ) -> Result<Self> {
        let documents = Arc::clone(&journals.documents);
        let partition_key = name.to_string();
        let key = PartitionKey::from(partition_key.as_str());
        if let Some(item) = documents.read(&key, &ItemId::new(ID)?).await? {
            let document: Document = serde_json::from_slice(&item.body)?;
            if VERSION < document.version {
                return Err(Failure::other("a later version of this program began the migration"));
            }
            if document.source != identity {
                return Err(Failure::other(format!(
                    "{name} was migrated from another source before; remove the document of this \
                     name in {DATABASE}/{CONTAINER} of the target to begin anew"
                )));
            }
            return Ok(Self { documents, document, etag: Some(item.etag) });
        }
        let mut positions = Vec::new();
        for range in source.feed.ranges().await? {
            let start = source
                .feed
                .start(&range.keys, StartFrom::Beginning, FeedMode::LatestVersion)
                .await?;
            positions.push(Position { keys: range.keys, continuation: start.to_string() });
        }
        let document = Document {
            id: ID.to_owned(),
            partition_key,
            version: VERSION,
            source: identity.to_owned(),
            positions,
            copied: 0,
            switched: false,
        };
        Ok(Self { documents, document, etag: None })
    }

    pub(super) fn positions(&self) -> Vec<Position> {
        self.document.positions.clone()
    }

    pub(super) fn copied(&self) -> u64 {
        self.document.copied
    }

    pub(super) fn is_switched(&self) -> bool {
        self.document.switched
    }

    /// Notes that the keys of `position` are at `continuation`, `copied` changes further.
    pub(super) async fn advance(
        &mut self,
        position: &mut Position,
        continuation: &Continuation,
        copied: u64,
    ) -> Result<()> {
        position.continuation = continuation.to_string();
        let known = self.document.positions.iter_mut().find(|it| it.keys == position.keys);
        if let Some(known) = known {
            known.continuation.clone_from(&position.continuation);
        }
        self.document.copied += copied;
        self.write().await
    }

    /// Notes that a position is now several.
    pub(super) async fn divide(&mut self, old: &Position, parts: &[KeyRange]) -> Result<()> {
        let positions = &mut self.document.positions;
        positions.retain(|it| it.keys != old.keys);
        positions.extend(
            parts.iter().map(|keys| Position {
                keys: keys.clone(),
                continuation: old.continuation.clone(),
            }),
        );
        self.write().await
    }

    /// Notes that the migration is over.
    pub(super) async fn switch(&mut self) -> Result<()> {
        self.document.switched = true;
        self.write().await
    }

    /// Only one migration writes a journal: the etag sees to it.
    async fn write(&mut self) -> Result<()> {
        let body = serde_json::to_vec(&self.document)?;
        let operation = match self.etag.clone() {
            Some(etag) => Operation::replace(ItemId::new(ID)?, body).if_match(etag),
            None => Operation::create(body),
        };
        let key = PartitionKey::from(self.document.partition_key.as_str());
        let outcome = self.documents.commit(Batch::new(key).with(operation)).await?;
        let item = outcome.results.first().and_then(|it| it.item());
        self.etag = item.map(|it| it.etag.clone());
        Ok(())
    }
}

impl Position {
    pub(super) fn continuation(&self) -> Result<Continuation> {
        Ok(Continuation::new(self.continuation.as_str())?)
    }
}

/// The container of all journals, made if it is not there.
pub(super) async fn container(target: &dyn Containers) -> Result<Container> {
    unless_exists(target.create_database(DATABASE).await)?;
    let name = ContainerName::new(DATABASE, CONTAINER)?;
    let settings = ContainerSettings::new(PartitionKeyDefinition::hash("/partitionKey")?);
    unless_exists(target.create(&name, settings).await)?;
    Ok(target.open(&name).await?)
}
