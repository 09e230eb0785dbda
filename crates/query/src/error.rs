use std::error::Error as StdError;
use std::fmt;

/// What the functions of this crate return.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A failed call: what was attempted, why, and where in the query.
///
/// ```
/// use millstream_query::{ErrorKind, Query};
///
/// let error = Query::parse("SELECT VALUE (1 FROM c").unwrap_err();
/// assert_eq!(error.kind(), ErrorKind::Syntax);
/// assert_eq!(
///     error.report(),
///     "could not read the query: expected \")\", found \"FROM\" at line 1, column 17",
/// );
/// ```
#[derive(Debug, thiserror::Error)]
#[error("could not {attempted}")]
pub struct Error {
    kind: ErrorKind,
    attempted: String,
    position: Option<Position>,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

/// What the caller can do about a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The text is not a query; [`Error::position`] says where. A bad request.
    Syntax,
    /// The query, a parameter or the request means nothing; change it. A bad request.
    Invalid,
    /// The language has this, this crate does not. A bad request.
    Unsupported,
    /// A documented limit was exceeded: ask for less. A bad request.
    TooLarge,
    /// The continuation was not given out for this query: start again without it. A bad request.
    Continuation,
    /// The store failed; [`Error::store`] has its error.
    Store,
}

/// A place in the text of a query, counted from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    /// The line.
    pub line: u32,
    /// The character within the line.
    pub column: u32,
}

impl Error {
    /// A failure. `attempted` completes "could not …".
    pub(crate) fn new(
        kind: ErrorKind,
        attempted: impl Into<String>,
        reason: impl Into<Box<dyn StdError + Send + Sync>>,
    ) -> Self {
        let source = Some(reason.into());
        Self { kind, attempted: attempted.into(), position: None, source }
    }

    /// A text that is no query.
    pub(crate) fn syntax(position: Position, reason: impl fmt::Display) -> Self {
        let reason = format!("{reason} at {position}");
        let error = Self::new(ErrorKind::Syntax, "read the query", reason);
        Self { position: Some(position), ..error }
    }

    /// A query that can be read but not run.
    pub(crate) fn meaningless(position: Position, reason: impl fmt::Display) -> Self {
        Self { kind: ErrorKind::Invalid, ..Self::syntax(position, reason) }
    }

    /// A query that uses what is missing here.
    pub(crate) fn unsupported(position: Position, reason: impl fmt::Display) -> Self {
        Self { kind: ErrorKind::Unsupported, ..Self::syntax(position, reason) }
    }

    pub(crate) fn invalid(
        attempted: impl Into<String>,
        reason: impl Into<Box<dyn StdError + Send + Sync>>,
    ) -> Self {
        Self::new(ErrorKind::Invalid, attempted, reason)
    }

    pub(crate) fn too_large(reason: impl Into<String>) -> Self {
        Self::new(ErrorKind::TooLarge, "run the query", reason.into())
    }

    pub(crate) fn continuation(reason: impl Into<String>) -> Self {
        Self::new(ErrorKind::Continuation, "continue the query", reason.into())
    }

    /// What the caller can do about it.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// Where in the query the fault is, if it is in one place.
    #[must_use]
    pub fn position(&self) -> Option<Position> {
        self.position
    }

    /// The error of the store, if it is one.
    #[must_use]
    pub fn store(&self) -> Option<&millstream_core::Error> {
        self.source.as_ref()?.downcast_ref()
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

impl From<millstream_core::Error> for Error {
    fn from(error: millstream_core::Error) -> Self {
        Self::new(ErrorKind::Store, "read the items of the query", error)
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {}", self.line, self.column)
    }
}
