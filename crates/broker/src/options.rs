use std::time::Duration;

use millstream_core::{Error, Result};

use crate::flaw::Flaw;

/// Largest message a broker can keep: a document has at most 2 MiB and holds messages in base64.
pub const MESSAGE_BYTES_LIMIT: usize = 1024 * 1024;
/// Most messages in one segment.
pub const SEGMENT_MESSAGES_MAX: usize = 1000;
/// Most bytes of messages in one segment; in base64 a third more, and a batch has 2 MiB.
pub const SEGMENT_BYTES_MAX: usize = 1280 * 1024;

const _: () = assert!(MESSAGE_BYTES_LIMIT < SEGMENT_BYTES_MAX);

/// Settings of a broker.
#[derive(Clone, Debug)]
pub struct BrokerOptions {
    pub(crate) message_bytes_max: usize,
    pub(crate) messages_max: usize,
    pub(crate) pending_bytes_max: usize,
    pub(crate) cache_bytes_max: usize,
    pub(crate) storage_patience: Duration,
    pub(crate) flaw: Option<Flaw>,
}

impl Default for BrokerOptions {
    fn default() -> Self {
        Self {
            message_bytes_max: MESSAGE_BYTES_LIMIT,
            messages_max: 2_000_000,
            pending_bytes_max: 64 * 1024 * 1024,
            cache_bytes_max: 64 * 1024 * 1024,
            storage_patience: Duration::from_secs(30),
            flaw: None,
        }
    }
}

impl BrokerOptions {
    /// Largest message that is taken. Default, and most that is possible: 1 MiB.
    #[must_use]
    pub fn message_bytes_max(mut self, value: usize) -> Self {
        self.message_bytes_max = value;
        self
    }

    /// Most messages of one queue or topic that are kept; `send` is `Overloaded` beyond.
    ///
    /// A message that waits in one subscription takes 100 to 150 bytes of memory whatever its
    /// size, and about 40 more for each further subscription. Messages that are done count until
    /// all that were committed with them are, or until their segment is written again without
    /// them, half a minute after three quarters of it are done. Default: 2,000,000.
    #[must_use]
    pub fn messages_max(mut self, value: usize) -> Self {
        self.messages_max = value;
        self
    }

    /// Most bytes that one queue or topic holds for its next commits; `send` is `Overloaded`
    /// beyond. Default: 64 MiB.
    #[must_use]
    pub fn pending_bytes_max(mut self, value: usize) -> Self {
        self.pending_bytes_max = value;
        self
    }

    /// Most bytes of messages kept in memory; others are read when they are delivered. Larger helps
    /// receivers that are far behind. Default: 64 MiB.
    #[must_use]
    pub fn cache_bytes_max(mut self, value: usize) -> Self {
        self.cache_bytes_max = value;
        self
    }

    /// How long a commit is tried again while the store is unavailable, before the entity refuses
    /// everything until the broker is opened again. Default: 30 s.
    #[must_use]
    pub fn storage_patience(mut self, value: Duration) -> Self {
        self.storage_patience = value;
        self
    }

    /// Plants a bug, so that a simulation can show that it would find it.
    #[cfg(feature = "planted-flaws")]
    #[must_use]
    pub fn flaw(mut self, flaw: Flaw) -> Self {
        self.flaw = Some(flaw);
        self
    }

    pub(crate) fn check(&self) -> Result<()> {
        let reason = if self.message_bytes_max < 1 || MESSAGE_BYTES_LIMIT < self.message_bytes_max {
            "a message can have at most 1 MiB, because a stored document has at most 2 MiB"
        } else if self.messages_max < 1 {
            "an entity must be allowed to keep a message"
        } else if self.pending_bytes_max < MESSAGE_BYTES_LIMIT {
            "an entity must be allowed to hold 1 MiB for its next commit"
        } else {
            return Ok(());
        };
        Err(Error::invalid("use the broker options", reason))
    }
}
