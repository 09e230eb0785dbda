//! The documents of another processor in the container of its leases.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use millstream_core::{
    Batch, Clock, Container, Documents, ErrorKind as CoreErrorKind, Item, ItemId, KeyRange,
    Operation, PageSize, PartitionKey, ScanScope,
};
use serde_json::{Map, Value};

use crate::error::{Error, ErrorKind, Result};
use crate::foreign::document::{ForeignDocument, ForeignLease, SEPARATOR, excerpt};
use crate::foreign::report::Problem;
use crate::lease_store::{timed_out, within};

/// Longest time one call takes.
pub(crate) const CALL_TIMEOUT: Duration = Duration::from_secs(30);
/// Items read at once.
const LIST_PAGE_ITEMS: usize = 1_000;
/// Most leases of one processor; ten times as many as a container has ranges.
const LEASES_MAX: usize = 100_000;
/// Longest prefix: an id has room for it, the separator and a token of two hashes.
const PREFIX_BYTES_MAX: usize = 900;

/// Where the documents of another processor are, and how to write them.
pub(crate) struct ForeignStore {
    documents: Arc<dyn Documents>,
    clock: Arc<dyn Clock>,
    prefix: String,
    /// The property of the partition key, unless that is the id.
    property: Option<String>,
}

/// What was found under a prefix.
#[derive(Debug, Default)]
pub(crate) struct Found {
    pub(crate) leases: Vec<FoundLease>,
    pub(crate) is_initialised: bool,
    pub(crate) is_locked: bool,
    /// The processor that imported it before.
    pub(crate) imported_by: Option<String>,
    /// Documents that were not understood.
    pub(crate) problems: Vec<Problem>,
}

/// A lease with the document it was read from.
#[derive(Debug)]
pub(crate) struct FoundLease {
    pub(crate) lease: ForeignLease,
    pub(crate) item: Item,
    pub(crate) fields: Map<String, Value>,
}

impl Found {
    /// Sorts the leases by id, and notices when one exists twice: old SDKs chose the partition key
    /// of a lease at random, so that two hosts could both create it.
    fn sort(&mut self) {
        self.leases.sort_by(|left, right| left.lease.id.cmp(&right.lease.id));
        let twice = self.leases.windows(2).filter(|it| it[0].lease.id == it[1].lease.id);
        let text =
            |id: &str| format!("there are two documents with the id {id:?}; delete the older one");
        let problems: Vec<Problem> =
            twice.map(|it| Problem::invalid(text(&it[0].lease.id))).collect();
        self.problems.extend(problems);
    }
}

impl ForeignStore {
    pub(crate) fn new(container: &Container, prefix: &str, clock: Arc<dyn Clock>) -> Result<Self> {
        if prefix.is_empty() || PREFIX_BYTES_MAX < prefix.len() {
            let reason = format!("it must have 1 to {PREFIX_BYTES_MAX} bytes");
            return Err(Error::invalid("use the prefix of the leases", reason));
        }
        let property = match container.info.settings.partition_key.segments() {
            [path] => match path.as_slice() {
                [property] if property == "id" => None,
                [property] => Some(property.clone()),
                _ => return Err(unusable(container)),
            },
            _ => return Err(unusable(container)),
        };
        let documents = Arc::clone(&container.documents);
        Ok(Self { documents, clock, prefix: prefix.to_owned(), property })
    }

    /// Whether the container is partitioned by `/id`.
    pub(crate) fn is_by_id(&self) -> bool {
        self.property.is_none()
    }

    /// Reads every document under the prefix.
    pub(crate) async fn list(&self) -> Result<Found> {
        let scope = ScanScope::Keys(KeyRange::all());
        let mut found = Found::default();
        let mut after = None;
        loop {
            let scan =
                self.documents.scan(&scope, after.as_ref(), PageSize::items(LIST_PAGE_ITEMS));
            let page = bounded(&*self.clock, "list the leases of another processor", scan).await?;
            for item in page.items {
                self.sort_in(item, &mut found);
            }
            if LEASES_MAX < found.leases.len() {
                let reason = format!("there are more than {LEASES_MAX}");
                return Err(Error::invalid("list the leases of another processor", reason));
            }
            after = page.continuation;
            if after.is_none() {
                found.sort();
                return Ok(found);
            }
        }
    }

    /// Adds a document under its id. `Conflict` if it exists.
    pub(crate) async fn create(&self, id: &str, fields: Map<String, Value>) -> Result<()> {
        let body = self.body(id, fields)?;
        let batch = Batch::new(PartitionKey::from(id)).with(Operation::create(body));
        self.commit(&format!("create the document {:?}", excerpt(id)), batch).await
    }

    /// Writes a document of our own under its id, whether it exists or not.
    pub(crate) async fn put(&self, id: &str, fields: Map<String, Value>) -> Result<()> {
        let body = self.body(id, fields)?;
        let batch = Batch::new(PartitionKey::from(id)).with(Operation::upsert(body));
        self.commit(&format!("write the document {:?}", excerpt(id)), batch).await
    }

    /// Writes a document again. `Conflict` if somebody has written it since it was read.
    pub(crate) async fn replace(&self, old: &Item, fields: &Map<String, Value>) -> Result<()> {
        let what = format!("write the document {:?}", excerpt(old.id.as_str()));
        let body = serde_json::to_vec(fields).map_err(|error| Error::invalid(&*what, error))?;
        let operation = Operation::replace(old.id.clone(), body).if_match(old.etag.clone());
        // Old SDKs chose a partition key at random, so the document stays where it is.
        let batch = Batch::new(old.partition_key.clone()).with(operation);
        self.commit(&what, batch).await
    }

    fn sort_in(&self, item: Item, found: &mut Found) {
        let Some(rest) = item.id.as_str().strip_prefix(&self.prefix) else { return };
        let is_lease = rest.starts_with(SEPARATOR) && !rest[SEPARATOR.len()..].contains(SEPARATOR);
        if !is_lease && ![".info", ".lock", ".imported"].contains(&rest) {
            return;
        }
        let not_a_lease = || {
            let text = format!("the document {:?} is not a lease", excerpt(item.id.as_str()));
            Problem::invalid(text)
        };
        match ForeignDocument::parse(&item.body) {
            Ok(Some(ForeignDocument::Lease(lease))) => {
                let fields = serde_json::from_slice(&item.body).unwrap_or_default();
                found.leases.push(FoundLease { lease: *lease, item, fields });
            }
            Ok(Some(ForeignDocument::Marker { .. })) => found.is_initialised = true,
            Ok(Some(ForeignDocument::Lock { .. })) => found.is_locked = true,
            Ok(Some(ForeignDocument::Imported { processor, .. })) => {
                found.imported_by = Some(processor);
            }
            Ok(None) => found.problems.push(not_a_lease()),
            Err(error) => found.problems.push(Problem::from_error(&error)),
        }
    }

    fn body(&self, id: &str, mut fields: Map<String, Value>) -> Result<Vec<u8>> {
        let attempted = || format!("write the document {:?}", excerpt(id));
        ItemId::new(id).map_err(|error| Error::store(attempted(), error))?;
        fields.insert("id".to_owned(), Value::from(id));
        if let Some(property) = &self.property {
            fields.insert(property.clone(), Value::from(id));
        }
        serde_json::to_vec(&fields).map_err(|error| Error::invalid(attempted(), error))
    }

    async fn commit(&self, what: &str, batch: Batch) -> Result<()> {
        bounded(&*self.clock, what, self.documents.commit(batch)).await?;
        Ok(())
    }
}

/// Waits for a call of a port, but not for ever.
pub(crate) async fn bounded<T>(
    clock: &dyn Clock,
    what: &str,
    call: impl Future<Output = millstream_core::Result<T>>,
) -> Result<T> {
    let outcome = within(clock, CALL_TIMEOUT, call).await;
    let error = match outcome.unwrap_or_else(|| Err(timed_out(what))) {
        Ok(value) => return Ok(value),
        Err(error) => error,
    };
    let refused = [CoreErrorKind::AlreadyExists, CoreErrorKind::PreconditionFailed];
    let kind = match refused.contains(&error.kind()) {
        true => ErrorKind::Conflict,
        false => ErrorKind::Store(error.kind()),
    };
    Err(Error::new(kind, what).because(error))
}

fn unusable(container: &Container) -> Error {
    let attempted = format!("use leases of another processor in {}", container.info.name);
    Error::invalid(attempted, "the container must be partitioned by one property, such as /id")
}
