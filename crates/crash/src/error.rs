use std::error::Error as StdError;

/// What this crate returns.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The run itself failed; a store that breaks its promise is a [`crate::Violation`] instead.
#[derive(Debug, thiserror::Error)]
#[error("could not {attempted}")]
pub struct Error {
    attempted: String,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

impl Error {
    /// A failure. `attempted` completes "could not …".
    pub fn new(attempted: impl Into<String>) -> Self {
        Self { attempted: attempted.into(), source: None }
    }

    /// Adds the cause.
    #[must_use]
    pub fn because(mut self, cause: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.source = Some(cause.into());
        self
    }

    /// The whole chain in one line.
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

/// Says what was attempted when something fails.
pub trait Attempt<T> {
    /// Turns any failure into an [`Error`]; `attempted` completes "could not …".
    fn attempt<S: Into<String>>(self, attempted: impl FnOnce() -> S) -> Result<T>;
}

impl<T, E: Into<Box<dyn StdError + Send + Sync>>> Attempt<T> for std::result::Result<T, E> {
    fn attempt<S: Into<String>>(self, attempted: impl FnOnce() -> S) -> Result<T> {
        self.map_err(|cause| Error::new(attempted()).because(cause))
    }
}
