use std::error::Error as StdError;
use std::time::Duration;

/// What the ports return.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A failed call: what was attempted, what the caller can do about it, and whether it may have
/// happened.
///
/// ```
/// use millstream_core::{Effect, Error, ErrorKind};
///
/// let error = Error::new(ErrorKind::NotFound, "read item \"17\"").because("no such item");
/// assert_eq!(error.to_string(), "could not read item \"17\"");
/// assert_eq!(error.report(), "could not read item \"17\": no such item");
/// assert_eq!(error.effect(), Effect::None);
/// ```
#[derive(Debug, thiserror::Error)]
#[error("could not {attempted}")]
pub struct Error {
    kind: ErrorKind,
    attempted: String,
    effect: Effect,
    operation: Option<usize>,
    retry_after: Option<Duration>,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

/// What the caller can do about a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The request can never succeed as it is; change it.
    Invalid,
    /// The item, container or database does not exist.
    NotFound,
    /// Something with this id or name exists already.
    AlreadyExists,
    /// The etag condition does not hold; read again and decide anew.
    PreconditionFailed,
    /// A documented size or count was exceeded; send less.
    TooLarge,
    /// The continuation lies before what the feed still keeps; choose a new start.
    PositionExpired,
    /// The ranges were split or merged; ask for the ranges again and continue with the same
    /// continuation.
    RangeMoved,
    /// The container was deleted and created again; positions of the old one mean nothing.
    ContainerRecreated,
    /// Too much is waiting; try again after [`Error::retry_after`].
    Overloaded,
    /// The backend cannot be reached or has stopped taking writes; wait or repair, then try again.
    Unavailable,
    /// Stored bytes are not what was written; restore from a copy.
    Corrupt,
    /// Another process holds the data.
    Locked,
    /// The backend does not offer this; see [`crate::Capabilities`].
    Unsupported,
}

/// Whether a failed call may have changed something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Effect {
    /// Nothing changed.
    None,
    /// It may have happened; read before repeating.
    Unknown,
}

impl Error {
    /// A failure without effect. `attempted` completes "could not …".
    pub fn new(kind: ErrorKind, attempted: impl Into<String>) -> Self {
        Self {
            kind,
            attempted: attempted.into(),
            effect: Effect::None,
            operation: None,
            retry_after: None,
            source: None,
        }
    }

    /// A request that can never succeed.
    pub fn invalid(
        attempted: impl Into<String>,
        reason: impl Into<Box<dyn StdError + Send + Sync>>,
    ) -> Self {
        Self::new(ErrorKind::Invalid, attempted).because(reason)
    }

    /// Adds the cause.
    #[must_use]
    pub fn because(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// Names the operation of a batch that failed, counted from 0.
    #[must_use]
    pub fn at_operation(mut self, index: usize) -> Self {
        self.operation = Some(index);
        self
    }

    /// Says that the call may have happened.
    #[must_use]
    pub fn with_unknown_effect(mut self) -> Self {
        self.effect = Effect::Unknown;
        self
    }

    /// Says how long to wait before trying again.
    #[must_use]
    pub fn with_retry_after(mut self, wait: Duration) -> Self {
        self.retry_after = Some(wait);
        self
    }

    /// What the caller can do about it.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// Whether it may have happened.
    #[must_use]
    pub fn effect(&self) -> Effect {
        self.effect
    }

    /// The operation of a batch that failed; the others were not attempted because of it.
    #[must_use]
    pub fn operation(&self) -> Option<usize> {
        self.operation
    }

    /// How long to wait before trying again, when the backend knows.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        self.retry_after
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
