//! What can go wrong with servers.

use std::error::Error as StdError;

/// A server could not be started or told something.
#[derive(Debug, thiserror::Error)]
#[error("could not {attempted}")]
pub struct Error {
    attempted: String,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

impl Error {
    pub(crate) fn new(attempted: impl Into<String>) -> Self {
        Self { attempted: attempted.into(), source: None }
    }

    pub(crate) fn because(mut self, cause: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.source = Some(cause.into());
        self
    }
}
