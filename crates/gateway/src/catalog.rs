//! What the protocol knows of databases and containers beyond what a backend keeps: policies that
//! are only given back, and throughput.
//!
//! It lives in a container of the backend, one document for each database or container that has
//! any. Documents are named by numbers that are never used again, so that one whose owner is gone
//! means nothing to anybody; where a document is missing, defaults hold. A crash between the
//! change of a backend and that of its document therefore leaves something whole.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use millstream_core::{
    Batch, Container, ContainerName, ContainerSettings, Containers, Error, ErrorKind, Etag, ItemId,
    KeyRange, Operation, PageSize, PartitionKeyDefinition, ResourceId, ScanScope,
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::refusal::Refusal;

/// The container the documents are in.
const CONTAINER: &str = "gateway";
/// How often a change is tried while others change the same document.
pub(crate) const ATTEMPTS_MAX: u32 = 16;

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

/// What is known as it was read, and as it is to be.
#[derive(Debug)]
pub(crate) struct Draft {
    pub(crate) entry: Entry,
    id: ItemId,
    etag: Option<Etag>,
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

    /// Adds what is known of `owner` from its beginning, unless somebody has changed it already.
    pub(crate) async fn begin(&self, owner: Owner, entry: &Entry) -> Result<(), Refusal> {
        let begin = |found: &mut Entry| {
            if found.definition.is_empty() {
                found.definition.clone_from(&entry.definition);
            }
            found.throughput = found.throughput.or(entry.throughput);
            Ok(())
        };
        self.change(owner, begin).await.map(drop)
    }

    /// Changes what is known of `owner`, without undoing what others change at the same time:
    /// `change` is called again with what they have left.
    pub(crate) async fn change(
        &self,
        owner: Owner,
        mut change: impl FnMut(&mut Entry) -> Result<(), Refusal>,
    ) -> Result<Entry, Refusal> {
        for attempt in 0..ATTEMPTS_MAX {
            pause(attempt).await;
            let mut draft = self.draft(owner).await?;
            change(&mut draft.entry)?;
            if self.keep(&draft).await? {
                return Ok(draft.entry);
            }
        }
        Err(overtaken())
    }

    /// What is known of `owner`, to be changed and kept.
    pub(crate) async fn draft(&self, owner: Owner) -> Result<Draft, Refusal> {
        let id = owner.item_id()?;
        let found = self.container.documents.read(&id.as_str().into(), &id).await?;
        let (entry, etag) = match found {
            Some(item) => (parse(&item.body)?.entry, Some(item.etag)),
            None => (Entry::default(), None),
        };
        Ok(Draft { entry, id, etag })
    }

    /// Writes a draft; false if somebody else has written since it was made.
    pub(crate) async fn keep(&self, draft: &Draft) -> Result<bool, Refusal> {
        let Draft { entry, id, etag } = draft;
        let body = body(id, entry)?;
        let operation = match etag {
            Some(etag) => Operation::replace(id.clone(), body).if_match(etag.clone()),
            None => Operation::create(body),
        };
        let batch = Batch::new(id.as_str()).with(operation);
        match self.container.documents.commit(batch).await {
            Ok(_) => Ok(true),
            Err(error) if is_overtaken(&error) => Ok(false),
            Err(error) => Err(error.into()),
        }
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

/// Lets others come to an end before the next attempt.
pub(crate) async fn pause(attempt: u32) {
    if 1 < attempt {
        tokio::time::sleep(Duration::from_millis(1 << attempt.min(6))).await;
    }
}

/// What is said when all attempts were overtaken.
pub(crate) fn overtaken() -> Refusal {
    let error = Error::new(ErrorKind::Overloaded, "change what is known of a resource");
    error.because("others change it all the time").into()
}

/// Whether somebody else has written, or removed, the document since it was read.
fn is_overtaken(error: &Error) -> bool {
    use ErrorKind::{AlreadyExists, NotFound, PreconditionFailed};
    error.operation().is_some()
        && [AlreadyExists, NotFound, PreconditionFailed].contains(&error.kind())
}

fn body(id: &ItemId, entry: &Entry) -> Result<Vec<u8>, Refusal> {
    let id = id.as_str().to_owned();
    let stored = Stored { partition_key: id.clone(), id, entry: entry.clone() };
    serde_json::to_vec(&stored).map_err(|error| damaged(&error))
}

fn parse(body: &Bytes) -> Result<Stored, Refusal> {
    serde_json::from_slice(body).map_err(|error| damaged(&error))
}

fn damaged(error: &serde_json::Error) -> Refusal {
    let message = format!("could not use a document of the gateway's catalog: {error}");
    Refusal::new(http::StatusCode::INTERNAL_SERVER_ERROR, message)
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use millstream_core::SystemClock;
    use millstream_core::memory::Memory;

    use super::*;

    /// What the store in memory does, it does at once.
    fn at_once<T>(future: impl Future<Output = T>) -> T {
        future.now_or_never().expect("nothing waits")
    }

    #[test]
    fn changes_at_one_time_are_all_kept() {
        let containers: Arc<dyn Containers> =
            Arc::new(Memory::new(Arc::new(SystemClock::default())));
        let catalog = at_once(Catalog::open(&containers, "own")).unwrap();
        let owner = Owner::Container(ResourceId { database: 1, container: 2 });
        let spend = |units: u32| {
            let change = |entry: &mut Entry| {
                entry.throughput = Some(Throughput::Manual(units));
                Ok(())
            };
            at_once(catalog.change(owner, change)).unwrap();
        };
        // The first document, one more, and one that was removed.
        let others: [&dyn Fn(); 3] =
            [&|| spend(400), &|| spend(500), &|| at_once(catalog.remove(owner)).unwrap()];
        for (round, (other, kept)) in others.into_iter().zip([400, 500, 0]).enumerate() {
            let mut calls = 0;
            let change = |entry: &mut Entry| {
                if calls == 0 {
                    other();
                }
                calls += 1;
                entry.definition.insert("round".to_owned(), round.into());
                Ok(())
            };
            let changed = at_once(catalog.change(owner, change)).unwrap();
            assert_eq!(calls, 2);
            assert_eq!(changed, at_once(catalog.read(owner)).unwrap());
            assert_eq!(changed.definition["round"], round);
            assert_eq!(changed.throughput.map_or(0, Throughput::most), kept);
        }
    }

    #[test]
    fn what_others_have_changed_is_not_begun_again() {
        let containers: Arc<dyn Containers> =
            Arc::new(Memory::new(Arc::new(SystemClock::default())));
        let catalog = at_once(Catalog::open(&containers, "own")).unwrap();
        let owner = Owner::Database(1);
        let spend = |entry: &mut Entry| {
            entry.throughput = Some(Throughput::Manual(500));
            Ok(())
        };
        at_once(catalog.change(owner, spend)).unwrap();
        let mut begun = Entry { throughput: Some(Throughput::Manual(400)), ..Entry::default() };
        begun.definition.insert("policy".to_owned(), 1.into());
        at_once(catalog.begin(owner, &begun)).unwrap();
        let found = at_once(catalog.read(owner)).unwrap();
        assert_eq!(found.throughput, Some(Throughput::Manual(500)));
        assert_eq!(found.definition, begun.definition);
    }

    #[tokio::test(start_paused = true)]
    async fn a_change_that_never_succeeds_ends() {
        let containers: Arc<dyn Containers> =
            Arc::new(Memory::new(Arc::new(SystemClock::default())));
        let catalog = at_once(Catalog::open(&containers, "own")).unwrap();
        let owner = Owner::Database(1);
        let change = |_: &mut Entry| at_once(catalog.change(owner, |_| Ok(()))).map(drop);
        let refusal = catalog.change(owner, change).await.unwrap_err();
        assert_eq!(refusal.status, http::StatusCode::TOO_MANY_REQUESTS, "{refusal}");
    }
}
