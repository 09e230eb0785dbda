use std::sync::Arc;

use async_trait::async_trait;

use crate::{
    Batch, BatchOutcome, Capabilities, ContainerInfo, ContainerName, ContainerSettings,
    Continuation, DatabaseInfo, EffectiveKey, Etag, FeedMode, FeedPage, Item, ItemId, KeyRange,
    PageSize, PartitionKey, RangeId, RangeInfo, Result, StartFrom,
};

/// The items of one container. Obligations 1-6 and 16 of the contract.
#[async_trait]
pub trait Documents: Send + Sync {
    /// Returns the item, or none if there is no such item or it has expired.
    ///
    /// A read after an acknowledged commit sees it.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    async fn read(&self, key: &PartitionKey, id: &ItemId) -> Result<Option<Item>>;

    /// Commits a batch whole or not at all, and returns when it would survive loss of power.
    ///
    /// It writes at most [`crate::BATCH_BYTES_MAX`], and reads and writes at most
    /// [`crate::BATCH_RESULT_BYTES_MAX`] altogether. Patches take at most
    /// [`crate::BATCH_PATCHED_BYTES_MAX`] of items, and their conditions
    /// [`crate::CONDITION_STEPS_MAX`] steps.
    ///
    /// # Errors
    ///
    /// A refused batch changes nothing and names the operation that failed; see
    /// [`crate::ErrorKind`]. An error whose effect is unknown may have committed.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future may leave the batch committed or not, never half.
    async fn commit(&self, batch: Batch) -> Result<BatchOutcome>;

    /// Returns live items in key order: those of a logical partition, or of a range of keys.
    ///
    /// A scan is not a snapshot: each item is returned at most once, and one that exists from the
    /// first page to the last is returned. A page of one logical partition may show half of a batch
    /// that is committed meanwhile; the memory and the embedded store avoid it.
    ///
    /// # Errors
    ///
    /// `Invalid` if the continuation belongs to another scan.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    async fn scan(
        &self,
        scope: &ScanScope,
        after: Option<&ScanContinuation>,
        size: PageSize,
    ) -> Result<ScanPage>;
}

/// The commits of one container in order, range by range. Obligations 8-14.
#[async_trait]
pub trait ChangeFeed: Send + Sync {
    /// The ranges the container is divided into now, in key order and without gap or overlap.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    async fn ranges(&self) -> Result<Vec<RangeInfo>>;

    /// Pins a place to read from. "Now" means the moment of this call, not of the first read.
    ///
    /// # Errors
    ///
    /// `RangeMoved` if `keys` lie in several ranges; `Unsupported` if the container keeps no
    /// versions.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    async fn start(&self, keys: &KeyRange, from: StartFrom, mode: FeedMode)
    -> Result<Continuation>;

    /// Returns the changes after `after` of the items in `keys`, in commit order, never part of a
    /// batch.
    ///
    /// `keys` is a range or a part of one. A continuation taken from a range that was split or
    /// merged since works on every part of it.
    ///
    /// # Errors
    ///
    /// `RangeMoved` if `keys` lie in several ranges now: ask for the ranges and go on in each with
    /// the same continuation. `PositionExpired` if the feed no longer reaches back so far.
    /// `ContainerRecreated` if the continuation comes from an earlier container of the same
    /// name.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    async fn read(&self, keys: &KeyRange, after: &Continuation, size: PageSize)
    -> Result<FeedPage>;

    /// Returns as soon as there may be something after `after`, at once if there is already.
    ///
    /// The wake-up carries no data: read again. It may come without reason; it is never later than
    /// the commit by more than the backend needs to say so.
    ///
    /// # Errors
    ///
    /// Those of [`ChangeFeed::read`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    async fn wait(&self, keys: &KeyRange, after: &Continuation) -> Result<()>;
}

/// Readers whose unread events must not expire. Obligation 15.
#[async_trait]
pub trait RetentionGuards: Send + Sync {
    /// Registers the reader `name` if it is new, and notes that it has passed everything up to
    /// `passed` in `keys`.
    ///
    /// Where a reader has said nothing yet, it has passed nothing. A position never goes back: an
    /// earlier one than before changes nothing.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future may leave the position noted or not; say it again.
    async fn hold(&self, name: &str, keys: &KeyRange, passed: &Continuation) -> Result<()>;

    /// Forgets the reader; its events expire by their TTL again.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future may leave the reader registered or not; call it again.
    async fn release(&self, name: &str) -> Result<()>;

    /// The names of the registered readers.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    async fn holders(&self) -> Result<Vec<String>>;
}

/// The databases and containers of a store, and their ranges. Obligations 7 and 8.
#[async_trait]
pub trait Containers: Send + Sync {
    /// What this backend can do.
    fn capabilities(&self) -> Capabilities;

    /// Creates a database. `AlreadyExists` if there is one of that name.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future of any method of this port may leave its change made or not, never half.
    async fn create_database(&self, name: &str) -> Result<DatabaseInfo>;

    /// Removes a database with all its containers. `NotFound` if there is none of that name.
    ///
    /// # Cancel safety
    ///
    /// As for [`Containers::create_database`].
    async fn delete_database(&self, name: &str) -> Result<()>;

    /// All databases by name.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    async fn list_databases(&self) -> Result<Vec<DatabaseInfo>>;

    /// Creates a container in a database that exists.
    ///
    /// # Cancel safety
    ///
    /// As for [`Containers::create_database`].
    async fn create(
        &self,
        name: &ContainerName,
        settings: ContainerSettings,
    ) -> Result<ContainerInfo>;

    /// Replaces the settings; the partition key cannot be changed. `if_match` is the etag of the
    /// settings.
    ///
    /// # Cancel safety
    ///
    /// As for [`Containers::create_database`].
    async fn replace(
        &self,
        name: &ContainerName,
        settings: ContainerSettings,
        if_match: Option<Etag>,
    ) -> Result<ContainerInfo>;

    /// Removes a container with everything in it.
    ///
    /// # Cancel safety
    ///
    /// As for [`Containers::create_database`].
    async fn delete(&self, name: &ContainerName) -> Result<()>;

    /// The containers of a database by name.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    async fn list(&self, database: &str) -> Result<Vec<ContainerInfo>>;

    /// Opens a container that exists. What it returns stays bound to this very container: after it
    /// was deleted, also when another of the same name was created, its calls fail with
    /// `NotFound`.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    async fn open(&self, name: &ContainerName) -> Result<Container>;

    /// Divides a range in two at `at`, or near its middle. Readers and writers go on.
    ///
    /// # Errors
    ///
    /// `NotFound` if the range has been split or merged already; `Invalid` if `at` does not lie
    /// inside.
    ///
    /// # Cancel safety
    ///
    /// As for [`Containers::create_database`].
    async fn split(
        &self,
        name: &ContainerName,
        range: RangeId,
        at: Option<&EffectiveKey>,
    ) -> Result<Vec<RangeInfo>>;

    /// Joins two neighbours. Readers and writers go on.
    ///
    /// # Errors
    ///
    /// `NotFound` if a range has been split or merged already; `Invalid` if they are not
    /// neighbours.
    ///
    /// # Cancel safety
    ///
    /// As for [`Containers::create_database`].
    async fn merge(&self, name: &ContainerName, left: RangeId, right: RangeId)
    -> Result<RangeInfo>;
}

/// An open container.
#[derive(Clone)]
pub struct Container {
    /// What it is.
    pub info: ContainerInfo,
    /// Its items.
    pub documents: Arc<dyn Documents>,
    /// Its commits.
    pub feed: Arc<dyn ChangeFeed>,
    /// Its retention guards, where the backend has them.
    pub guards: Option<Arc<dyn RetentionGuards>>,
}

impl std::fmt::Debug for Container {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Container").field("info", &self.info).finish_non_exhaustive()
    }
}

/// Which items a scan returns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ScanScope {
    /// Those of one logical partition.
    Partition(PartitionKey),
    /// Those whose effective partition key lies in the range.
    Keys(KeyRange),
}

/// A page of a scan.
#[derive(Clone, Debug)]
pub struct ScanPage {
    /// The items.
    pub items: Vec<Item>,
    /// Where to go on; none at the end.
    pub continuation: Option<ScanContinuation>,
}

/// A place in a scan, as text.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ScanContinuation(Box<str>);

impl ScanContinuation {
    /// A continuation from the text a backend gave out.
    pub fn new(text: impl Into<Box<str>>) -> Self {
        Self(text.into())
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}
