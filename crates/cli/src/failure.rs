use std::fmt;

/// What the commands return.
pub(crate) type Result<T, E = Failure> = std::result::Result<T, E>;

/// Why the program ends without success: a sentence for the person who started it.
#[derive(Debug)]
pub(crate) struct Failure {
    text: String,
    code: u8,
    is_locked: bool,
}

impl Failure {
    /// The person has to write something else.
    pub(crate) fn usage(text: impl Into<String>) -> Self {
        Self { text: text.into(), code: 2, is_locked: false }
    }

    /// Something else went wrong.
    pub(crate) fn other(text: impl Into<String>) -> Self {
        Self { text: text.into(), code: 1, is_locked: false }
    }

    /// What the process ends with.
    pub(crate) fn code(&self) -> u8 {
        self.code
    }

    /// Whether another process has the store open.
    pub(crate) fn is_locked(&self) -> bool {
        self.is_locked
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl From<millstream_core::Error> for Failure {
    fn from(error: millstream_core::Error) -> Self {
        let is_locked = error.kind() == millstream_core::ErrorKind::Locked;
        Self { is_locked, ..Self::other(error.report()) }
    }
}

impl From<millstream_processor::Error> for Failure {
    fn from(error: millstream_processor::Error) -> Self {
        Self::other(error.report())
    }
}

impl From<serde_json::Error> for Failure {
    fn from(error: serde_json::Error) -> Self {
        Self::other(format!("could not read or write JSON: {error}"))
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Self::other(error.to_string())
    }
}
