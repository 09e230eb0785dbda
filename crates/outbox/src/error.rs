use std::error::Error as StdError;
use std::time::Duration;

/// What the calls of this crate return.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A unit of work or an inbox that could not do what was asked.
#[derive(Debug, thiserror::Error)]
#[error("could not {attempted}")]
pub struct Error {
    kind: ErrorKind,
    attempted: String,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

/// What to do about it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// It can never work as it is; change it.
    Invalid,
    /// The unit holds this entity already; change the one it holds.
    AlreadyTracked,
    /// The unit does not hold this entity.
    NotTracked,
    /// The entity is deleted already; there is nothing left to do.
    AlreadyDeleted,
    /// A unit commits to one logical partition, and this entity lives in another; use a second
    /// unit.
    OtherPartition,
    /// More documents than one batch takes; commit fewer entities at a time, or raise fewer events.
    TooManyOperations {
        /// What the batch would have.
        operations: usize,
        /// What it may have.
        operations_max: usize,
    },
    /// A document, or all together, exceed what one batch takes; make them smaller or fewer.
    TooLarge {
        /// The size it would have.
        bytes: usize,
        /// The size it may have.
        bytes_max: usize,
    },
    /// Somebody else changed the entity; read it again and decide anew. Nothing was written.
    Conflict(Conflict),
    /// An event handler refused the commit; its reason is the source. Nothing was written.
    Refused,
    /// Event handlers kept raising events; one of them answers its own. Nothing was written.
    HandlersNeverEnd,
    /// The commit may have happened. Commit the same unit again, or handle the same message again:
    /// that is safe, and tells.
    Unknown,
    /// A message came before one that precedes it, and the policy says refuse. Nothing was written.
    SequenceGap {
        /// The number that was due.
        expected: u64,
        /// The number that came.
        found: u64,
    },
    /// A stored document is not what its type says.
    Unreadable,
    /// The container could not do what was asked of it; the source is an error of the ports.
    Store(millstream_core::ErrorKind),
}

/// Which entity a commit failed on, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// The entity, or the item of an inbox's effect.
    pub id: String,
    /// What stood in the way.
    pub reason: ConflictReason,
}

/// What stood in the way of a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConflictReason {
    /// It was to be created, and exists.
    Exists,
    /// It has another etag by now.
    Changed,
    /// It does not exist any more.
    Gone,
}

impl ConflictReason {
    /// The reason behind an error of a batch, if it is one of these.
    pub(crate) fn of(kind: millstream_core::ErrorKind) -> Option<Self> {
        if kind == millstream_core::ErrorKind::AlreadyExists {
            Some(Self::Exists)
        } else if kind == millstream_core::ErrorKind::PreconditionFailed {
            Some(Self::Changed)
        } else if kind == millstream_core::ErrorKind::NotFound {
            Some(Self::Gone)
        } else {
            None
        }
    }
}

impl Error {
    /// A failure; `attempted` completes "could not …".
    pub(crate) fn new(kind: ErrorKind, attempted: impl Into<String>) -> Self {
        Self { kind, attempted: attempted.into(), source: None }
    }

    /// A request that can never succeed.
    pub(crate) fn invalid(
        attempted: impl Into<String>,
        reason: impl Into<Box<dyn StdError + Send + Sync>>,
    ) -> Self {
        Self::new(ErrorKind::Invalid, attempted).because(reason)
    }

    /// A port that failed.
    pub(crate) fn store(attempted: impl Into<String>, error: millstream_core::Error) -> Self {
        Self::new(ErrorKind::Store(error.kind()), attempted).because(error)
    }

    /// Adds the cause.
    #[must_use]
    pub(crate) fn because(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// What to do about it.
    #[must_use]
    pub fn kind(&self) -> &ErrorKind {
        &self.kind
    }

    /// The entity somebody else changed, if that is what happened.
    #[must_use]
    pub fn conflict(&self) -> Option<&Conflict> {
        if let ErrorKind::Conflict(conflict) = &self.kind { Some(conflict) } else { None }
    }

    /// The error of the port behind it, if there is one.
    #[must_use]
    pub fn store_error(&self) -> Option<&millstream_core::Error> {
        self.source.as_deref().and_then(|it| it.downcast_ref())
    }

    /// How long to wait before trying again, when the backend knows.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        self.store_error().and_then(millstream_core::Error::retry_after)
    }

    /// The failure and its causes in one line.
    #[must_use]
    pub fn report(&self) -> String {
        let mut text = self.to_string();
        let mut next = self.source();
        while let Some(cause) = next {
            text = format!("{text}: {cause}");
            next = cause.source();
        }
        text
    }
}
