use std::fmt;

use crate::error::{Error, ErrorKind, Result, report};

/// A reason why nothing can be imported or exported as things are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// What to do about it.
    pub kind: ErrorKind,
    /// What is wrong, with the lease or range it is about.
    pub text: String,
}

impl Problem {
    pub(crate) fn new(kind: ErrorKind, text: impl Into<String>) -> Self {
        Self { kind, text: text.into() }
    }

    pub(crate) fn invalid(text: impl Into<String>) -> Self {
        Self::new(ErrorKind::Invalid, text)
    }

    /// A failed step that makes the whole impossible.
    pub(crate) fn from_error(error: &Error) -> Self {
        Self::new(error.kind().clone(), report(error))
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Refuses if there are problems; the kind is that of the first.
pub(crate) fn refuse(attempted: String, problems: &[Problem]) -> Result<()> {
    let Some(first) = problems.first() else { return Ok(()) };
    let all: Vec<&str> = problems.iter().map(|it| it.text.as_str()).collect();
    Err(Error::new(first.kind.clone(), attempted).because(all.join("; ")))
}
