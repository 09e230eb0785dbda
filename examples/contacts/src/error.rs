use std::error::Error as StdError;
use std::time::Duration;

use crate::{ChangeError, Invalid};

/// What the calls of the service return.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A call that the service could not do.
#[derive(Debug, thiserror::Error)]
#[error("could not {attempted}")]
pub struct Error {
    kind: ErrorKind,
    attempted: String,
    retry_after: Option<Duration>,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

/// What the caller can do about it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// Mend these fields.
    Invalid(Invalid),
    /// There is no such contact, or it is deleted.
    NotFound,
    /// The contact has another etag than the caller expects; read it again and decide anew.
    Changed,
    /// Somebody else changed the contact at the same moment; try again.
    Conflict,
    /// Too much is waiting; try again after [`Error::retry_after`].
    Overloaded,
    /// The store cannot be reached; try again later.
    Unavailable,
    /// The change may have been made: read before trying again.
    Unknown,
    /// Something is wrong with the service itself.
    Failed,
}

impl Error {
    /// A failure; `attempted` completes "could not …".
    pub(crate) fn new(kind: ErrorKind, attempted: impl Into<String>) -> Self {
        Self { kind, attempted: attempted.into(), retry_after: None, source: None }
    }

    pub(crate) fn because(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// What an error of the outbox means to a caller.
    pub(crate) fn of_outbox(attempted: impl Into<String>, error: millstream_outbox::Error) -> Self {
        let retry_after = error.retry_after();
        let kind = kind_of(error.kind());
        Self { retry_after, ..Self::new(kind, attempted) }.because(error)
    }

    /// What a refusal of a contact means to a caller.
    pub(crate) fn of_change(attempted: impl Into<String>, error: ChangeError) -> Self {
        match error {
            ChangeError::Invalid(invalid) => {
                Self::new(ErrorKind::Invalid(invalid.clone()), attempted).because(invalid)
            }
            ChangeError::Deleted => Self::new(ErrorKind::NotFound, attempted).because(error),
        }
    }

    /// What the caller can do about it.
    #[must_use]
    pub fn kind(&self) -> &ErrorKind {
        &self.kind
    }

    /// How long to wait before trying again, when the store knows.
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

fn kind_of(kind: &millstream_outbox::ErrorKind) -> ErrorKind {
    if matches!(kind, millstream_outbox::ErrorKind::Conflict(_)) {
        return ErrorKind::Conflict;
    }
    if *kind == millstream_outbox::ErrorKind::Unknown {
        return ErrorKind::Unknown;
    }
    let millstream_outbox::ErrorKind::Store(kind) = kind else {
        return ErrorKind::Failed;
    };
    if *kind == millstream_core::ErrorKind::Overloaded {
        return ErrorKind::Overloaded;
    }
    if *kind == millstream_core::ErrorKind::Unavailable {
        return ErrorKind::Unavailable;
    }
    ErrorKind::Failed
}
