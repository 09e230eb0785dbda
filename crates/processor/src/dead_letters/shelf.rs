//! Where the dead letters of a processor lie in their container, and how they are read and written.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use millstream_core::{
    Batch, Clock, Container, Documents, Effect, Error as CoreError, ErrorKind as CoreErrorKind,
    Etag, Item, ItemId, KeyRange, Operation, PageSize, PartitionKey, Result as CoreResult,
    ScanContinuation, ScanScope, Timestamp,
};
use serde::Serialize;

use crate::dead_letters::documents::PROPERTIES;
use crate::error::{Error, ErrorKind, Result};
use crate::lease_store::{Stored, check_name, timed_out, within};
use crate::placement::Placement;
use crate::stored::schema::{Document, parse};

/// Documents that are listed together. Where the container allows it, they are one partition.
#[derive(Clone, Copy, Debug)]
pub(super) enum Group<'a> {
    /// The heads of all parked sequences.
    Heads,
    /// The letters of the sequence of the key with this hash.
    Letters(&'a str),
    /// The skipped changes.
    Skipped,
    /// The changes that were put off.
    Postponed,
}

/// What became of a write.
#[derive(Debug)]
pub(super) enum Written {
    /// It happened; with the new version if something is left.
    Done(Option<Etag>),
    /// It did not: the document exists, is gone, or has another version.
    Refused,
    /// It may have happened; read before repeating.
    Unknown(Error),
}

#[derive(Clone)]
pub(super) struct Shelf {
    documents: Arc<dyn Documents>,
    clock: Arc<dyn Clock>,
    name: Arc<str>,
    placement: Placement,
    timeout: Duration,
}

/// A document with its place in the container.
#[derive(Serialize)]
struct Placed<'a, T> {
    #[serde(flatten)]
    place: BTreeMap<&'a str, &'a str>,
    // Whatever the container says, these documents never expire.
    ttl: i32,
    #[serde(flatten)]
    document: &'a T,
}

impl Shelf {
    pub(super) fn new(
        container: &Container,
        name: &str,
        clock: Arc<dyn Clock>,
        timeout: Duration,
    ) -> Result<Self> {
        check_name("processor", name)?;
        let placement = Placement::beside(PROPERTIES, container);
        let placement = placement.ok_or_else(|| unusable(container))?;
        let documents = Arc::clone(&container.documents);
        Ok(Self { documents, clock, name: name.into(), placement, timeout })
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Whether scans of a group return it in the order of ids.
    pub(super) fn is_ordered(&self) -> bool {
        matches!(self.placement, Placement::ByProperty(_))
    }

    pub(super) fn full_id(&self, local: &str) -> String {
        format!("{}:{local}", self.name)
    }

    pub(super) async fn read<T: Document>(
        &self,
        group: Group<'_>,
        local: &str,
    ) -> Result<Option<Stored<T>>> {
        let id = self.full_id(local);
        let what = format!("read the {} \"{id}\"", T::WHAT);
        let item_id = item_id(&id).map_err(|it| Error::store(&*what, it))?;
        let key = self.partition(group, &id);
        let read = self.bounded(&what, self.documents.read(&key, &item_id)).await;
        let item = read.map_err(|it| Error::store(what, it))?;
        item.map(|it| self.decode(&it)).transpose()
    }

    /// Adds a document that must not exist.
    pub(super) async fn create<T: Document>(
        &self,
        group: Group<'_>,
        document: &T,
    ) -> Result<Written> {
        let id = self.full_id(&document.local_id());
        let what = format!("create the {} \"{id}\"", T::WHAT);
        let batch = self
            .encode(group, &id, document)
            .map(|body| Batch::new(self.partition(group, &id)).with(Operation::create(body)));
        self.commit(&what, batch).await
    }

    /// Writes a document if it has this version.
    pub(super) async fn replace<T: Document>(
        &self,
        group: Group<'_>,
        document: &T,
        etag: &Etag,
    ) -> Result<Written> {
        let id = self.full_id(&document.local_id());
        let what = format!("write the {} \"{id}\"", T::WHAT);
        let batch = self.encode(group, &id, document).and_then(|body| {
            let operation = Operation::replace(item_id(&id)?, body).if_match(etag.clone());
            Ok(Batch::new(self.partition(group, &id)).with(operation))
        });
        self.commit(&what, batch).await
    }

    /// Removes a document, only if it has this version where one is given.
    pub(super) async fn delete(
        &self,
        group: Group<'_>,
        id: &str,
        etag: Option<&Etag>,
    ) -> Result<Written> {
        let batch = item_id(id).map(|it| {
            let operation = Operation { if_match: etag.cloned(), ..Operation::delete(it) };
            Batch::new(self.partition(group, id)).with(operation)
        });
        self.commit(&format!("delete the parked document \"{id}\""), batch).await
    }

    /// Some documents of a group, and where to go on; there may be more although a page is empty.
    pub(super) async fn scan(
        &self,
        group: Group<'_>,
        after: Option<&ScanContinuation>,
        items_max: usize,
    ) -> Result<(Vec<Item>, Option<ScanContinuation>)> {
        let scope = match &self.placement {
            Placement::ById => ScanScope::Keys(KeyRange::all()),
            Placement::ByProperty(_) => ScanScope::Partition(self.value(group).into()),
        };
        let what = "list the parked changes";
        let scan = self.documents.scan(&scope, after, PageSize::items(items_max));
        let page = self.bounded(what, scan).await.map_err(|it| Error::store(what, it))?;
        let mut items = page.items;
        items.retain(|it| self.holds(group, it.id.as_str()));
        Ok((items, page.continuation))
    }

    pub(super) fn decode<T: Document>(&self, item: &Item) -> Result<Stored<T>> {
        let mut document: T = parse(item.id.as_str(), &item.body)?;
        let property = self.placement.property();
        // What stands for the place of the document, and what the backend adds, is not part of it.
        let is_place = |it: &str| ["id", "ttl", property].contains(&it) || it.starts_with('_');
        document.unknown().retain(|name, _| !is_place(name));
        Ok(Stored { document, etag: item.etag.clone() })
    }

    /// Whether the document with this id belongs to the group.
    pub(super) fn holds(&self, group: Group<'_>, id: &str) -> bool {
        let local = |group: &str| {
            id.strip_prefix(&*self.name)?.strip_prefix(':')?.strip_prefix(group)?.strip_prefix(':')
        };
        match group {
            Group::Heads => local("parked").is_some_and(|it| !it.contains(':')),
            Group::Letters(hash) => local("parked")
                .and_then(|it| it.strip_prefix(hash))
                .is_some_and(|it| it.starts_with(':')),
            Group::Skipped => local("skipped").is_some(),
            Group::Postponed => local("later").is_some(),
        }
    }

    fn encode<T: Serialize>(&self, group: Group<'_>, id: &str, document: &T) -> CoreResult<Bytes> {
        let value = self.value(group);
        let mut place = BTreeMap::from([("id", id)]);
        if let Placement::ByProperty(property) = &self.placement {
            place.insert(property, &value);
        }
        let body = serde_json::to_vec(&Placed { place, ttl: -1, document });
        body.map(Bytes::from).map_err(|it| CoreError::invalid(format!("write \"{id}\""), it))
    }

    /// The partition key of a group in a container that is partitioned by another property than id.
    fn value(&self, group: Group<'_>) -> String {
        match group {
            Group::Heads => format!("{}:parked", self.name),
            Group::Letters(hash) => format!("{}:parked:{hash}", self.name),
            Group::Skipped => format!("{}:skipped", self.name),
            Group::Postponed => format!("{}:later", self.name),
        }
    }

    fn partition(&self, group: Group<'_>, id: &str) -> PartitionKey {
        match &self.placement {
            Placement::ById => id.into(),
            Placement::ByProperty(_) => self.value(group).into(),
        }
    }

    async fn commit(&self, what: &str, batch: CoreResult<Batch>) -> Result<Written> {
        let committed = match batch {
            Ok(batch) => self.bounded(what, self.documents.commit(batch)).await,
            Err(error) => Err(error),
        };
        match committed {
            Ok(outcome) => {
                let item = outcome.results.first().and_then(|it| it.item());
                Ok(Written::Done(item.map(|it| it.etag.clone())))
            }
            Err(error) if error.effect() == Effect::Unknown => {
                Ok(Written::Unknown(Error::store(what, error)))
            }
            Err(error) if is_refusal(error.kind()) => Ok(Written::Refused),
            Err(error) => Err(Error::store(what, error)),
        }
    }

    /// Waits for a call at most the timeout. A call that took longer may have happened.
    async fn bounded<T>(
        &self,
        what: &str,
        call: impl Future<Output = CoreResult<T>>,
    ) -> CoreResult<T> {
        let outcome = within(&*self.clock, self.timeout, call).await;
        outcome.unwrap_or_else(|| Err(timed_out(what)))
    }
}

/// Several writers came in each other's way too often.
pub(super) fn contended(what: impl Into<String>) -> Error {
    Error::new(ErrorKind::Conflict, what).because("others wrote it at the same time")
}

fn is_refusal(kind: CoreErrorKind) -> bool {
    kind == CoreErrorKind::AlreadyExists
        || kind == CoreErrorKind::PreconditionFailed
        || kind == CoreErrorKind::NotFound
}

fn item_id(id: &str) -> CoreResult<ItemId> {
    ItemId::new(id)
}

fn unusable(container: &Container) -> Error {
    let attempted = format!("keep dead letters in the container {}", container.info.name);
    let reason = "it must be partitioned by one property of the document that dead letters do not \
                  use: /id or, so that one query lists a sequence, another such as /partitionKey";
    Error::invalid(attempted, reason)
}
