use std::error::Error as StdError;

use millstream_core::KeyRange;

/// What the calls of this crate return.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A processor that could not start or go on, or an operation on it that failed.
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
    /// An option or argument can never work; change it.
    Invalid,
    /// The leases belong to a processor of the other feed mode; choose another processor name.
    ModeMismatch,
    /// The documents were written by a newer version; update this one.
    NewerSchema,
    /// Another instance of this name is running; give each instance its own.
    InstanceNameTaken,
    /// Another instance took this one's name while it could not be reached.
    Fenced,
    /// The container was deleted, or deleted and created again; its positions mean nothing now.
    ContainerRecreated,
    /// The feed no longer reaches back to the position of these keys.
    PositionExpired {
        /// Whose position it is.
        keys: Box<KeyRange>,
    },
    /// The handler failed for good, and the policy says stop.
    HandlerFailed,
    /// The position, lease or parked sequence that was named does not exist.
    NotFound,
    /// Somebody changed the same thing at the same time; try again.
    Conflict,
    /// A container could not do what was asked of it; the cause is an error of the ports.
    Store(millstream_core::ErrorKind),
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

    /// The failure and its causes in one line.
    #[must_use]
    pub fn report(&self) -> String {
        report(self)
    }
}

/// An error and its causes in one line.
pub(crate) fn report(error: &dyn StdError) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        text = format!("{text}: {cause}");
        next = cause.source();
    }
    text
}
