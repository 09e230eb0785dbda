//! The documents of one processor in the container of the leases.

use std::future::Future;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::{Either, select};
use millstream_core::{
    Batch, Clock, Container, Documents, Error as CoreError, ErrorKind as CoreErrorKind, Etag, Item,
    ItemId, KeyRange, Operation, PageSize, PartitionKey, ScanScope,
};
use serde_json::Value;

use crate::error::{Error, ErrorKind, Result};
use crate::leaves::no_processor;
use crate::placement::Placement;
use crate::stored::schema::{Document, parse};
use crate::stored::{Control, LEASE_PREFIX, Lease, MEMBER_PREFIX, Member, lease_id, member_id};

/// Items read at once when all documents are listed.
const LIST_PAGE_ITEMS: usize = 1_000;
/// How often the control document is read again because somebody else has written it.
pub(crate) const CONFLICTS_MAX: usize = 16;
/// Longest name of a processor or an instance.
pub(crate) const NAME_BYTES_MAX: usize = 200;

/// Properties of our documents; the partition key needs another one.
const PROPERTIES: &[&str] = &[
    "accepting",
    "children",
    "complete",
    "container",
    "controlEpoch",
    "counter",
    "epoch",
    "failing",
    "handled",
    "incarnation",
    "instance",
    "keys",
    "leases",
    "leasesMax",
    "leasesMin",
    "lineage",
    "load",
    "mode",
    "owner",
    "ownersSinceCheckpoint",
    "paused",
    "position",
    "postpones",
    "redrives",
    "resets",
    "roots",
    "schema",
    "start",
    "state",
    "version",
    "writtenAt",
];

/// Where the documents of a processor are, and how to read and write them.
#[derive(Clone)]
pub(crate) struct LeaseStore {
    documents: Arc<dyn Documents>,
    clock: Arc<dyn Clock>,
    name: Arc<str>,
    placement: Placement,
    timeout: Duration,
}

/// A document with the version that was read or written.
#[derive(Clone, Debug)]
pub(crate) struct Stored<T> {
    pub(crate) document: T,
    pub(crate) etag: Etag,
}

/// All documents of a processor. Not a snapshot, but no document that was there all the time is
/// missing.
#[derive(Debug, Default)]
pub(crate) struct Listing {
    pub(crate) control: Option<Stored<Control>>,
    pub(crate) leases: Vec<Stored<Lease>>,
    pub(crate) members: Vec<Stored<Member>>,
    /// Leases whose id is not that of their keys, with that id. Somebody copied or renamed them, so
    /// another document stands for the keys; they are reported and never used.
    pub(crate) strays: Vec<(String, Lease)>,
}

impl LeaseStore {
    /// The documents of the processor `name` in `container`. Every call ends within `timeout`.
    pub(crate) fn new(
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

    /// The name of the processor.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Reads every document of the processor.
    pub(crate) async fn list(&self) -> Result<Listing> {
        let scope = match &self.placement {
            Placement::ById => ScanScope::Keys(KeyRange::all()),
            Placement::ByProperty(_) => ScanScope::Partition(PartitionKey::from(&*self.name)),
        };
        let mut listing = Listing::default();
        let mut after = None;
        loop {
            let scan =
                self.documents.scan(&scope, after.as_ref(), PageSize::items(LIST_PAGE_ITEMS));
            let page = self.bounded("list the leases", scan).await?;
            for item in page.items {
                self.sort_in(&item, &mut listing)?;
            }
            after = page.continuation;
            if after.is_none() {
                return Ok(listing);
            }
        }
    }

    /// Reads the control document.
    pub(crate) async fn read_control(&self) -> Result<Option<Stored<Control>>> {
        self.read(Control::LOCAL_ID).await
    }

    /// The control document.
    ///
    /// # Errors
    ///
    /// `NotFound` if the processor was never started.
    pub(crate) async fn control(&self) -> Result<Stored<Control>> {
        self.read_control().await?.ok_or_else(|| no_processor(self))
    }

    /// Changes the control document unless `change` says that there is nothing to change.
    pub(crate) async fn update_control(&self, change: impl Fn(&mut Control) -> bool) -> Result<()> {
        for _ in 0..CONFLICTS_MAX {
            let Stored { mut document, etag } = self.control().await?;
            if !change(&mut document) {
                return Ok(());
            }
            match self.replace(document, &etag).await {
                Err(error) if *error.kind() == ErrorKind::Conflict => (),
                outcome => return outcome.map(|_| ()),
            }
        }
        Err(control_is_busy(self))
    }

    /// Asks the owners of the leases to deliver what was marked for redelivery.
    pub(crate) async fn bump_redrives(&self) -> Result<()> {
        self.update_control(|control| {
            control.redrives += 1;
            control.epoch += 1;
            true
        })
        .await
    }

    /// The same by an instance, which is no operation that others have to act upon.
    pub(crate) async fn bump_redrives_by_instance(&self) -> Result<()> {
        self.update_control(|control| {
            control.redrives += 1;
            true
        })
        .await
    }

    /// Reads the lease of these keys.
    pub(crate) async fn read_lease(
        &self,
        container: u64,
        keys: &KeyRange,
    ) -> Result<Option<Stored<Lease>>> {
        self.read(&lease_id(container, keys)).await
    }

    /// Reads the member of this name.
    pub(crate) async fn read_member(&self, instance: &str) -> Result<Option<Stored<Member>>> {
        self.read(&member_id(instance)).await
    }

    /// Adds a document. `Conflict` if it exists.
    pub(crate) async fn create<T: Document>(&self, mut document: T) -> Result<Stored<T>> {
        document.declare_reader();
        let (id, key, body) = self.encode(&document)?;
        let what = format!("create the {} \"{id}\"", T::WHAT);
        let batch = Batch::new(key).with(Operation::create(body));
        let etag = self.commit(&what, batch).await?;
        Ok(Stored { document, etag: etag.ok_or_else(|| no_etag(&what))? })
    }

    /// Writes a document if nobody else has since `etag`. `Conflict` if somebody has, `NotFound` if
    /// it is gone.
    pub(crate) async fn replace<T: Document>(
        &self,
        mut document: T,
        etag: &Etag,
    ) -> Result<Stored<T>> {
        document.declare_reader();
        let (id, key, body) = self.encode(&document)?;
        let what = format!("write the {} \"{id}\"", T::WHAT);
        let operation = Operation::replace(item_id(&id)?, body).if_match(etag.clone());
        let etag = self.commit(&what, Batch::new(key).with(operation)).await?;
        Ok(Stored { document, etag: etag.ok_or_else(|| no_etag(&what))? })
    }

    /// Removes a document if nobody has written it since `etag`.
    pub(crate) async fn delete<T: Document>(&self, stored: &Stored<T>) -> Result<()> {
        let id = self.full_id(&stored.document.local_id());
        let operation = Operation::delete(item_id(&id)?).if_match(stored.etag.clone());
        let batch = Batch::new(self.partition_key(&id)).with(operation);
        self.commit(&format!("delete the {} \"{id}\"", T::WHAT), batch).await?;
        Ok(())
    }

    async fn read<T: Document>(&self, local_id: &str) -> Result<Option<Stored<T>>> {
        let id = self.full_id(local_id);
        let (key, item_id) = (self.partition_key(&id), item_id(&id)?);
        let read = self.documents.read(&key, &item_id);
        let item = self.bounded(&format!("read the {} \"{id}\"", T::WHAT), read).await?;
        item.map(|it| self.decode(&it)).transpose()
    }

    fn sort_in(&self, item: &Item, listing: &mut Listing) -> Result<()> {
        let Some(local) = item.id.as_str().strip_prefix(&*self.name) else { return Ok(()) };
        let Some(local) = local.strip_prefix(':') else { return Ok(()) };
        if local == Control::LOCAL_ID {
            listing.control = Some(self.decode(item)?);
        } else if local.starts_with(LEASE_PREFIX) {
            let lease: Stored<Lease> = self.decode(item)?;
            if lease.document.local_id() == local {
                listing.leases.push(lease);
            } else {
                listing.strays.push((local.to_owned(), lease.document));
            }
        } else if local.starts_with(MEMBER_PREFIX) {
            listing.members.push(self.decode(item)?);
        }
        Ok(())
    }

    fn encode<T: Document>(&self, document: &T) -> Result<(String, PartitionKey, Bytes)> {
        let id = self.full_id(&document.local_id());
        let failed = |error| Error::invalid(format!("write the {} \"{id}\"", T::WHAT), error);
        let value = serde_json::to_value(document).map_err(failed)?;
        let Value::Object(mut fields) = value else { unreachable!("a document is a struct") };
        fields.insert("id".to_owned(), Value::String(id.clone()));
        if let Placement::ByProperty(property) = &self.placement {
            fields.insert(property.to_string(), Value::String(self.name.to_string()));
        }
        let body = serde_json::to_vec(&fields).map_err(failed)?;
        let key = self.partition_key(&id);
        Ok((id, key, body.into()))
    }

    fn decode<T: Document>(&self, item: &Item) -> Result<Stored<T>> {
        let mut document: T = parse(item.id.as_str(), &item.body)?;
        let property = self.placement.property();
        // What stands for the place of the document, and what the backend adds, is not part of it.
        let is_place = |it: &str| it == "id" || it == property || it.starts_with('_');
        document.unknown().retain(|name, _| !is_place(name));
        Ok(Stored { document, etag: item.etag.clone() })
    }

    fn full_id(&self, local: &str) -> String {
        format!("{}:{local}", self.name)
    }

    fn partition_key(&self, id: &str) -> PartitionKey {
        match &self.placement {
            Placement::ById => PartitionKey::from(id),
            Placement::ByProperty(_) => PartitionKey::from(&*self.name),
        }
    }

    async fn commit(&self, what: &str, batch: Batch) -> Result<Option<Etag>> {
        let outcome = self.bounded(what, self.documents.commit(batch)).await?;
        Ok(outcome.results.first().and_then(|it| it.item()).map(|it| it.etag.clone()))
    }

    /// Waits for a call at most the timeout. A call that took longer may have happened.
    async fn bounded<T>(
        &self,
        what: &str,
        call: impl Future<Output = millstream_core::Result<T>>,
    ) -> Result<T> {
        let error = match within(&*self.clock, self.timeout, call).await {
            Some(Ok(value)) => return Ok(value),
            Some(Err(error)) => error,
            None => timed_out(what),
        };
        let is_conflict = [CoreErrorKind::AlreadyExists, CoreErrorKind::PreconditionFailed]
            .contains(&error.kind());
        let kind = if is_conflict {
            ErrorKind::Conflict
        } else if error.kind() == CoreErrorKind::NotFound {
            ErrorKind::NotFound
        } else {
            ErrorKind::Store(error.kind())
        };
        Err(Error::new(kind, what).because(error))
    }
}

impl std::fmt::Debug for LeaseStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LeaseStore").field("name", &self.name).finish_non_exhaustive()
    }
}

/// The outcome of `call`, or none if it takes longer than `limit`.
pub(crate) async fn within<T>(
    clock: &dyn Clock,
    limit: Duration,
    call: impl Future<Output = T>,
) -> Option<T> {
    let mut call = std::pin::pin!(call);
    // Most calls of an embedded backend are done at once; a timer would cost more than they do.
    let first = std::future::poll_fn(|context| Poll::Ready(call.as_mut().poll(context))).await;
    if let Poll::Ready(outcome) = first {
        return Some(outcome);
    }
    match select(call, clock.sleep(limit)).await {
        Either::Left((outcome, _)) => Some(outcome),
        Either::Right(((), _)) => None,
    }
}

/// A call that nobody answered in time; it may have happened.
pub(crate) fn timed_out(attempted: &str) -> CoreError {
    CoreError::new(CoreErrorKind::Unavailable, attempted)
        .because("there was no answer in time")
        .with_unknown_effect()
}

/// Checks the name of a processor or an instance: it becomes part of ids.
pub(crate) fn check_name(what: &str, name: &str) -> Result<()> {
    let reason = if name.is_empty() {
        "it is empty"
    } else if NAME_BYTES_MAX < name.len() {
        "it is longer than 200 bytes"
    } else if name.contains(['/', '\\', '?', '#', ':']) || name.chars().any(char::is_control) {
        "it holds one of / \\ ? # : or a control character"
    } else {
        return Ok(());
    };
    let shown: String = name.chars().take(32).collect();
    Err(Error::invalid(format!("use {shown:?} as the name of a {what}"), reason))
}

fn item_id(id: &str) -> Result<ItemId> {
    ItemId::new(id).map_err(|error| Error::store(format!("use the id {id:?}"), error))
}

fn unusable(container: &Container) -> Error {
    let attempted = format!("keep leases in the container {}", container.info.name);
    let reason = "it must be partitioned by one property of the document: /id or, so that one \
                  query lists the leases, another such as /partitionKey";
    Error::invalid(attempted, reason)
}

fn no_etag(what: &str) -> Error {
    let reason = "the backend did not return the item it wrote";
    Error::new(ErrorKind::Store(CoreErrorKind::Corrupt), what).because(reason)
}

/// The error when other operators do not let this one through.
pub(crate) fn control_is_busy(store: &LeaseStore) -> Error {
    let attempted = format!("write the control document of the processor \"{}\"", store.name());
    Error::new(ErrorKind::Conflict, attempted).because("others keep writing it; try again")
}
