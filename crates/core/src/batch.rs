mod claims;
#[cfg(test)]
mod tests;

use std::error::Error as StdError;

use bytes::Bytes;

pub use crate::batch::claims::NotUnique;

use crate::batch::claims::Claims;
use crate::container::ContainerSettings;
use crate::json::RawEnvelope;
use crate::{
    Claim, Error, ErrorKind, Etag, Item, ItemId, Lsn, PartitionKey, Patch, Result, TimeToLive,
};

/// Most operations in a batch.
pub const BATCH_OPERATIONS_MAX: usize = 100;
/// Most bytes of bodies in a batch.
pub const BATCH_BYTES_MAX: usize = 2 * 1024 * 1024;
/// Most bytes of bodies that a batch reads and writes; an answer has to hold them.
pub const BATCH_RESULT_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Most bytes of bodies that a batch patches, each as it is before.
///
/// A patch that makes an item smaller is as much work as others, and writes little.
pub const BATCH_PATCHED_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Most steps of evaluation that the conditions of the patches of a batch may take together.
///
/// Backends decide about a batch while others that want to write wait. Half a million take 10 to 30
/// ms, and are enough to look at each of 40 000 elements of an item.
pub const CONDITION_STEPS_MAX: u64 = 500_000;
/// Largest item; also bounds what a patch may grow it to.
pub const ITEM_BYTES_MAX: usize = 2 * 1024 * 1024;

/// Operations on one logical partition that happen together or not at all.
///
/// ```
/// use millstream_core::{Batch, Operation};
///
/// let batch = Batch::new("contact-17")
///     .with(Operation::upsert(r#"{"id":"contact-17","partitionKey":"contact-17"}"#))
///     .with(Operation::create(r#"{"id":"event-1","partitionKey":"contact-17"}"#));
/// assert_eq!(batch.operations.len(), 2);
/// ```
#[derive(Clone, Debug)]
pub struct Batch {
    /// The logical partition all operations touch.
    pub partition_key: PartitionKey,
    /// What to do, in this order.
    pub operations: Vec<Operation>,
}

/// One step of a batch.
#[derive(Clone, Debug)]
pub struct Operation {
    /// What to do.
    pub kind: OperationKind,
    /// Only if the item has this etag.
    pub if_match: Option<Etag>,
    /// Only if the item has not this etag, or does not exist.
    pub if_none_match: Option<IfNoneMatch>,
}

/// What an operation does.
#[derive(Clone, Debug)]
pub enum OperationKind {
    /// Adds an item that must not exist.
    Create(Bytes),
    /// Adds an item or replaces it.
    Upsert(Bytes),
    /// Replaces an item that must exist.
    Replace(ItemId, Bytes),
    /// Changes parts of an item that must exist.
    Patch(ItemId, Patch),
    /// Removes an item that must exist.
    Delete(ItemId),
    /// Returns an item that must exist.
    Read(ItemId),
}

/// The condition of an `If-None-Match`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IfNoneMatch {
    /// The item must not exist.
    Any,
    /// The item must have another etag.
    Etag(Etag),
}

/// What a committed batch did.
#[derive(Clone, Debug)]
pub struct BatchOutcome {
    /// The number all its writes share; that of the newest commit if it only read.
    pub lsn: Lsn,
    /// One result per operation, in order.
    pub results: Vec<OperationResult>,
}

/// What one operation did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OperationResult {
    /// The item did not exist before.
    Created(Item),
    /// The item existed before.
    Replaced(Item),
    /// The item is gone.
    Deleted,
    /// The item as it was at this step.
    Read(Item),
    /// The item still has the etag the reader knows.
    NotModified,
}

impl OperationResult {
    /// The item, where there is one.
    #[must_use]
    pub fn item(&self) -> Option<&Item> {
        match self {
            Self::Created(item) | Self::Replaced(item) | Self::Read(item) => Some(item),
            Self::Deleted | Self::NotModified => None,
        }
    }
}

impl Batch {
    /// An empty batch on one logical partition.
    pub fn new(partition_key: impl Into<PartitionKey>) -> Self {
        Self { partition_key: partition_key.into(), operations: Vec::new() }
    }

    /// Adds a step.
    #[must_use]
    pub fn with(mut self, operation: Operation) -> Self {
        self.operations.push(operation);
        self
    }

    /// Checks everything that needs no stored state: counts, sizes, bodies, ids and partition keys.
    ///
    /// Backends call this first, on the caller's thread, so that bad input never reaches the commit
    /// path.
    ///
    /// # Errors
    ///
    /// `Invalid` or `TooLarge`, with the operation that is wrong.
    pub fn check(self, settings: &ContainerSettings) -> Result<CheckedBatch> {
        let count = self.operations.len();
        if count == 0 {
            return Err(Error::invalid("commit a batch", "it has no operations"));
        }
        if BATCH_OPERATIONS_MAX < count {
            let reason = format!("it has {count} operations and at most 100 are possible");
            return Err(Error::invalid("commit a batch", reason));
        }
        let bytes: usize = self.operations.iter().map(Operation::body_bytes).sum();
        if BATCH_BYTES_MAX < bytes {
            let (attempted, advice) = match count {
                1 => ("store an item", ""),
                _ => ("commit a batch", "; send fewer or smaller items"),
            };
            let reason = format!("its {bytes} bytes exceed the limit of 2 MiB{advice}");
            return Err(Error::new(ErrorKind::TooLarge, attempted).because(reason));
        }
        let mut operations = Vec::with_capacity(count);
        for (index, operation) in self.operations.into_iter().enumerate() {
            let checked = operation.check(&self.partition_key, settings);
            operations.push(checked.map_err(|error| error.at_operation(index))?);
        }
        Ok(CheckedBatch { partition_key: self.partition_key, operations })
    }
}

impl Operation {
    /// Adds an item that must not exist.
    pub fn create(body: impl Into<Bytes>) -> Self {
        Self::from(OperationKind::Create(body.into()))
    }

    /// Adds an item or replaces it.
    pub fn upsert(body: impl Into<Bytes>) -> Self {
        Self::from(OperationKind::Upsert(body.into()))
    }

    /// Replaces an item that must exist.
    pub fn replace(id: ItemId, body: impl Into<Bytes>) -> Self {
        Self::from(OperationKind::Replace(id, body.into()))
    }

    /// Changes parts of an item that must exist.
    #[must_use]
    pub fn patch(id: ItemId, patch: Patch) -> Self {
        Self::from(OperationKind::Patch(id, patch))
    }

    /// Removes an item that must exist.
    #[must_use]
    pub fn delete(id: ItemId) -> Self {
        Self::from(OperationKind::Delete(id))
    }

    /// Returns an item that must exist.
    #[must_use]
    pub fn read(id: ItemId) -> Self {
        Self::from(OperationKind::Read(id))
    }

    /// Makes the step conditional on the etag of the item.
    #[must_use]
    pub fn if_match(mut self, etag: Etag) -> Self {
        self.if_match = Some(etag);
        self
    }

    /// Makes the step conditional on the absence of an etag.
    #[must_use]
    pub fn if_none_match(mut self, condition: IfNoneMatch) -> Self {
        self.if_none_match = Some(condition);
        self
    }

    fn body_bytes(&self) -> usize {
        match &self.kind {
            OperationKind::Create(body)
            | OperationKind::Upsert(body)
            | OperationKind::Replace(_, body) => body.len(),
            OperationKind::Patch(_, patch) => patch.byte_size(),
            OperationKind::Delete(_) | OperationKind::Read(_) => 0,
        }
    }

    fn check(self, key: &PartitionKey, settings: &ContainerSettings) -> Result<CheckedOperation> {
        let (id, action) = match self.kind {
            OperationKind::Create(body) => {
                let (id, body) = NewBody::check(body, key, settings)?;
                (id, Action::Create(body))
            }
            OperationKind::Upsert(body) => {
                let (id, body) = NewBody::check(body, key, settings)?;
                (id, Action::Upsert(body))
            }
            OperationKind::Replace(id, body) => {
                let (in_body, body) = NewBody::check(body, key, settings)?;
                if in_body != id {
                    let reason =
                        format!("its body has the id {in_body:?}; an id cannot be changed");
                    return Err(Error::invalid(format!("replace item {:?}", id.as_str()), reason));
                }
                (id, Action::Replace(body))
            }
            OperationKind::Patch(id, patch) => (id, Action::Patch(patch)),
            OperationKind::Delete(id) => (id, Action::Delete),
            OperationKind::Read(id) => (id, Action::Read),
        };
        Ok(CheckedOperation {
            id,
            action,
            if_match: self.if_match,
            if_none_match: self.if_none_match,
        })
    }
}

impl From<OperationKind> for Operation {
    fn from(kind: OperationKind) -> Self {
        Self { kind, if_match: None, if_none_match: None }
    }
}

/// A batch whose input is in order; what is left needs the stored state.
#[derive(Clone, Debug)]
pub struct CheckedBatch {
    /// The logical partition all operations touch.
    pub partition_key: PartitionKey,
    /// What to do, in this order.
    pub operations: Vec<CheckedOperation>,
}

/// A step whose input is in order.
#[derive(Clone, Debug)]
pub struct CheckedOperation {
    /// The item it touches.
    pub id: ItemId,
    /// What it does.
    pub action: Action,
    /// Only if the item has this etag.
    pub if_match: Option<Etag>,
    /// Only if the item has not this etag, or does not exist.
    pub if_none_match: Option<IfNoneMatch>,
}

/// What a checked step does.
#[derive(Clone, Debug)]
pub enum Action {
    /// Adds an item that must not exist.
    Create(NewBody),
    /// Adds an item or replaces it.
    Upsert(NewBody),
    /// Replaces an item that must exist.
    Replace(NewBody),
    /// Changes parts of an item that must exist.
    Patch(Patch),
    /// Removes an item that must exist.
    Delete,
    /// Returns an item that must exist.
    Read,
}

impl Action {
    /// Whether it is known already that this stores an event; a patch shows only when it is
    /// applied.
    #[must_use]
    pub fn writes_event(&self) -> bool {
        match self {
            Self::Create(body) | Self::Upsert(body) | Self::Replace(body) => body.is_event,
            Self::Patch(_) | Self::Delete | Self::Read => false,
        }
    }
}

/// A body that may be stored, and what the store reads from it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewBody {
    /// The bytes as received.
    pub bytes: Bytes,
    /// The `ttl` property.
    pub ttl: Option<TimeToLive>,
    /// Whether it is an event of its container.
    pub is_event: bool,
    /// What it claims by the unique keys of its container.
    pub claims: Vec<Claim>,
}

impl NewBody {
    /// Checks a body against the partition it is to be stored in.
    ///
    /// # Errors
    ///
    /// `Invalid` or `TooLarge`.
    pub fn check(
        bytes: Bytes,
        key: &PartitionKey,
        settings: &ContainerSettings,
    ) -> Result<(ItemId, Self)> {
        if ITEM_BYTES_MAX < bytes.len() {
            let reason = format!("its {} bytes exceed the limit of 2 MiB", bytes.len());
            return Err(Error::new(ErrorKind::TooLarge, "store an item").because(reason));
        }
        let definition = &settings.partition_key;
        let RawEnvelope { id, ttl, kind, extra } =
            RawEnvelope::scan(&bytes, definition.only_name())?;
        // What most bodies have, plainly spelled, needs no second pass.
        if !extra.is_some_and(|it| key.is_spelled_plainly(it)) {
            let found = definition.extract(&bytes)?;
            if found != *key {
                let reason = format!("its body has the partition key {found} instead of {key}");
                return Err(Error::invalid(format!("store item {:?}", id.as_str()), reason));
            }
        }
        let is_event =
            settings.event_type.is_some() && kind.as_deref() == settings.event_type.as_deref();
        let claims = settings.claims(&bytes)?;
        Ok((id, Self { bytes, ttl, is_event, claims }))
    }
}

/// The items of a logical partition as a batch finds them, expired ones left out.
pub trait CurrentItems {
    /// Whether the item exists.
    ///
    /// # Errors
    ///
    /// Those of the backend.
    fn exists(&mut self, id: &ItemId) -> Result<bool>;

    /// The item with its body.
    ///
    /// # Errors
    ///
    /// Those of the backend.
    fn item(&mut self, id: &ItemId) -> Result<Option<Item>>;

    /// The etag of the item.
    ///
    /// # Errors
    ///
    /// Those of the backend.
    fn etag(&mut self, id: &ItemId) -> Result<Option<Etag>>;

    /// The item that has the values of a claim. Asked only if the container has unique keys.
    ///
    /// # Errors
    ///
    /// Those of the backend.
    fn holder(&mut self, claim: &Claim) -> Result<Option<ItemId>>;
}

/// What a step comes down to once the stored state is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Store this body.
    Write {
        /// The item.
        id: ItemId,
        /// Whether it existed right before.
        existed: bool,
        /// What to store.
        body: NewBody,
    },
    /// Remove the item.
    Delete {
        /// The item.
        id: ItemId,
    },
    /// Return the item as it is in the store.
    Read(Item),
    /// Return what an earlier step of the same batch wrote; the number of that step.
    ReadStep(usize),
    /// Nothing to return: the reader has this version.
    NotModified,
}

impl CheckedBatch {
    /// Decides what each step does, or why the batch is refused. Changes nothing.
    ///
    /// # Errors
    ///
    /// `AlreadyExists`, `NotFound`, `PreconditionFailed`, `TooLarge` or `Invalid`, with the
    /// operation that failed; the others were not attempted because of it.
    pub fn resolve(
        &self,
        settings: &ContainerSettings,
        current: &mut dyn CurrentItems,
    ) -> Result<Vec<Step>> {
        let mut steps: Vec<Step> = Vec::with_capacity(self.operations.len());
        let mut sizes = Sizes::default();
        let mut claims = Claims::new(settings);
        let mut room = PatchRoom::default();
        for (index, operation) in self.operations.iter().enumerate() {
            let touched = Earlier { steps: &steps, id: &operation.id }.last();
            let touched = touched.as_ref();
            let step =
                operation.resolve(&self.partition_key, settings, touched, current, &mut room);
            let step = step
                .and_then(|step| claims.note(operation, &step, touched, current).map(|()| step))
                .and_then(|step| sizes.note(&step, &steps).map(|()| step))
                .map_err(|error| error.at_operation(index))?;
            steps.push(step);
        }
        Ok(steps)
    }
}

/// How many bytes of bodies the steps of a batch write and return.
#[derive(Default)]
struct Sizes {
    written: usize,
    read: usize,
}

impl Sizes {
    /// Counts a step. A small patch may rewrite a large item, so the limits are about what steps
    /// come to.
    fn note(&mut self, step: &Step, earlier: &[Step]) -> Result<()> {
        match step {
            Step::Write { body, .. } => self.written += body.bytes.len(),
            Step::Read(item) => self.read += item.body.len(),
            Step::ReadStep(index) => match &earlier[*index] {
                Step::Write { body, .. } => self.read += body.bytes.len(),
                Step::Delete { .. } | Step::Read(_) | Step::ReadStep(_) | Step::NotModified => {}
            },
            Step::Delete { .. } | Step::NotModified => {}
        }
        let reason = if BATCH_BYTES_MAX < self.written {
            "its items would exceed the limit of 2 MiB; patch fewer at a time"
        } else if BATCH_RESULT_BYTES_MAX < self.written + self.read {
            "what it reads and writes would exceed the limit of 4 MiB; read fewer at a time"
        } else {
            return Ok(());
        };
        Err(Error::new(ErrorKind::TooLarge, "commit a batch").because(reason))
    }
}

/// What the patches of a batch may still take.
struct PatchRoom {
    bytes_left: usize,
    condition_steps_left: u64,
}

impl Default for PatchRoom {
    fn default() -> Self {
        Self { bytes_left: BATCH_PATCHED_BYTES_MAX, condition_steps_left: CONDITION_STEPS_MAX }
    }
}

impl PatchRoom {
    /// Counts a body that is to be patched.
    fn note(&mut self, bytes: usize) -> Result<()> {
        let reason = "it would patch more than 4 MiB of items; patch fewer at a time";
        let left = self
            .bytes_left
            .checked_sub(bytes)
            .ok_or_else(|| Error::new(ErrorKind::TooLarge, "commit a batch").because(reason))?;
        self.bytes_left = left;
        Ok(())
    }
}

/// What earlier steps of the same batch did to one item.
struct Earlier<'a> {
    steps: &'a [Step],
    id: &'a ItemId,
}

enum Touched<'a> {
    Written(usize, &'a NewBody),
    Deleted,
}

impl<'a> Earlier<'a> {
    fn last(&self) -> Option<Touched<'a>> {
        self.steps.iter().enumerate().rev().find_map(|(index, step)| match step {
            Step::Write { id, body, .. } if id == self.id => Some(Touched::Written(index, body)),
            Step::Delete { id } if id == self.id => Some(Touched::Deleted),
            Step::Write { .. }
            | Step::Delete { .. }
            | Step::Read(_)
            | Step::ReadStep(_)
            | Step::NotModified => None,
        })
    }
}

impl CheckedOperation {
    fn resolve(
        &self,
        key: &PartitionKey,
        settings: &ContainerSettings,
        touched: Option<&Touched<'_>>,
        current: &mut dyn CurrentItems,
        room: &mut PatchRoom,
    ) -> Result<Step> {
        let exists = match touched {
            Some(Touched::Written(..)) => true,
            Some(Touched::Deleted) => false,
            None => current.exists(&self.id)?,
        };
        match (&self.action, exists) {
            (Action::Create(_), true) => {
                return Err(self.refused(ErrorKind::AlreadyExists, "an item with this id exists"));
            }
            (Action::Replace(_) | Action::Patch(_) | Action::Delete | Action::Read, false) => {
                return Err(self.refused(ErrorKind::NotFound, "there is no item with this id"));
            }
            _ => {}
        }
        if exists {
            let (matches, differs) = self.conditions(touched, current)?;
            if matches && !differs && matches!(self.action, Action::Read) {
                return Ok(Step::NotModified);
            }
            if !matches || !differs {
                let reason = "the item has changed since it was read; read it again";
                return Err(self.refused(ErrorKind::PreconditionFailed, reason));
            }
        }
        let write = |body: NewBody| Step::Write { id: self.id.clone(), existed: exists, body };
        Ok(match &self.action {
            Action::Create(body) | Action::Upsert(body) | Action::Replace(body) => {
                write(body.clone())
            }
            Action::Delete => Step::Delete { id: self.id.clone() },
            Action::Read => match touched {
                Some(Touched::Written(index, _)) => Step::ReadStep(*index),
                _ => Step::Read(self.existing(current)?),
            },
            Action::Patch(patch) => {
                let after = self.patched(patch, touched, current, room)?;
                write(NewBody::check(after, key, settings)?.1)
            }
        })
    }

    /// Whether if-match and if-none-match hold for an item that exists. One that an earlier step
    /// wrote has an etag that nobody can know yet, so no etag matches it.
    fn conditions(
        &self,
        touched: Option<&Touched<'_>>,
        current: &mut dyn CurrentItems,
    ) -> Result<(bool, bool)> {
        if self.if_match.is_none() && self.if_none_match.is_none() {
            return Ok((true, true));
        }
        let etag = if touched.is_some() { None } else { current.etag(&self.id)? };
        let matches = self.if_match.as_ref().is_none_or(|wanted| etag.as_ref() == Some(wanted));
        let differs = match &self.if_none_match {
            None => true,
            Some(IfNoneMatch::Any) => false,
            Some(IfNoneMatch::Etag(known)) => etag.as_ref() != Some(known),
        };
        Ok((matches, differs))
    }

    fn existing(&self, current: &mut dyn CurrentItems) -> Result<Item> {
        let item = current.item(&self.id)?;
        item.ok_or_else(|| self.refused(ErrorKind::NotFound, "there is no item with this id"))
    }

    fn patched(
        &self,
        patch: &Patch,
        touched: Option<&Touched<'_>>,
        current: &mut dyn CurrentItems,
        room: &mut PatchRoom,
    ) -> Result<Bytes> {
        let (before, stored) = match touched {
            Some(Touched::Written(_, body)) => (body.bytes.clone(), None),
            _ => {
                let item = self.existing(current)?;
                (item.body.clone(), Some(item))
            }
        };
        room.note(before.len())?;
        let steps_left = &mut room.condition_steps_left;
        if !patch.condition_holds(&before, stored.as_ref(), steps_left)? {
            let reason = "the condition of the patch does not hold";
            return Err(self.refused(ErrorKind::PreconditionFailed, reason));
        }
        Ok(Bytes::from(patch.apply(&before)?))
    }

    fn refused(
        &self,
        kind: ErrorKind,
        reason: impl Into<Box<dyn StdError + Send + Sync>>,
    ) -> Error {
        let verb = match self.action {
            Action::Create(_) => "create",
            Action::Upsert(_) => "upsert",
            Action::Replace(_) => "replace",
            Action::Patch(_) => "patch",
            Action::Delete => "delete",
            Action::Read => "read",
        };
        Error::new(kind, format!("{verb} item {:?}", self.id.as_str())).because(reason)
    }
}
