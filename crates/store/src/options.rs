use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use millstream_core::{Clock, Error, Result, SystemClock};

use crate::disk::{Disk, SystemDisk};
use crate::flaw::Flaw;

/// When a commit is acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// After fdatasync: it survives loss of power.
    Always,
    /// After the write; fdatasync follows at least this often. A crash of the process loses
    /// nothing, loss of power at most this much.
    Interval(Duration),
    /// After the write; the operating system decides when it reaches the disk. For tests and
    /// throw-away data.
    Never,
}

/// Settings of a store. They may differ from one opening to the next.
#[derive(Clone)]
pub struct StoreOptions {
    pub(crate) durability: Durability,
    pub(crate) write_buffer_bytes: usize,
    pub(crate) cache_bytes: u64,
    pub(crate) waiting_commits_max: usize,
    pub(crate) range_bytes_max: u64,
    pub(crate) maintenance_interval: Option<Duration>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) flaw: Option<Flaw>,
}

impl Default for StoreOptions {
    fn default() -> Self {
        Self {
            durability: Durability::Always,
            write_buffer_bytes: 32 * MIB,
            cache_bytes: 64 * 1024 * 1024,
            waiting_commits_max: 4096,
            range_bytes_max: 8 * 1024 * 1024 * 1024,
            maintenance_interval: Some(Duration::from_secs(1)),
            clock: Arc::new(SystemClock::default()),
            disk: Arc::new(SystemDisk),
            flaw: None,
        }
    }
}

impl StoreOptions {
    /// When a commit is acknowledged. Default: [`Durability::Always`].
    #[must_use]
    pub fn durability(mut self, value: Durability) -> Self {
        self.durability = value;
        self
    }

    /// Bytes of recent commits kept in memory before they move to the sorted tables; up to twice as
    /// much is in use.
    ///
    /// More means fewer and larger moves, and a longer replay after a crash. Default: 32 MiB.
    #[must_use]
    pub fn write_buffer_bytes(mut self, value: usize) -> Self {
        self.write_buffer_bytes = value;
        self
    }

    /// Bytes of table blocks kept in memory for reads. Default: 64 MiB.
    #[must_use]
    pub fn cache_bytes(mut self, value: u64) -> Self {
        self.cache_bytes = value;
        self
    }

    /// Commits of one range that may wait for the disk; one more is refused as `Overloaded`.
    /// Default: 4096.
    #[must_use]
    pub fn waiting_commits_max(mut self, value: usize) -> Self {
        self.waiting_commits_max = value;
        self
    }

    /// Bytes of live items after which a range is split. Default: 8 GiB.
    #[must_use]
    pub fn range_bytes_max(mut self, value: u64) -> Self {
        self.range_bytes_max = value;
        self
    }

    /// How often expired items, old versions and the remains of splits are looked for. None leaves
    /// it to calls of [`crate::Store::maintain`], as tests like it. Default: 1 s.
    #[must_use]
    pub fn maintenance_interval(mut self, value: Option<Duration>) -> Self {
        self.maintenance_interval = value;
        self
    }

    /// The clock that dates commits and decides about expiry. Default: that of the machine.
    #[must_use]
    pub fn clock(mut self, value: Arc<dyn Clock>) -> Self {
        self.clock = value;
        self
    }

    /// The files of the commit log, so that a test can make them fail. Default: those of the
    /// machine.
    #[must_use]
    pub fn disk(mut self, value: Arc<dyn Disk>) -> Self {
        self.disk = value;
        self
    }

    /// Plants a bug, to prove that a test finds it. Has no effect without the feature
    /// `planted-flaws`.
    #[doc(hidden)]
    #[must_use]
    pub fn flaw(mut self, value: Option<Flaw>) -> Self {
        self.flaw = value;
        self
    }

    pub(crate) fn check(&self) -> Result<()> {
        let refused = |reason: &str| Err(Error::invalid("use the store options", reason));
        if self.write_buffer_bytes < MIB / 4 {
            return refused("the write buffer needs at least 256 KiB");
        }
        if GIB < self.write_buffer_bytes {
            return refused("a write buffer over 1 GiB would take minutes to replay");
        }
        if self.waiting_commits_max < 1 {
            return refused("at least one commit must be allowed to wait");
        }
        if self.range_bytes_max < 1024 * 1024 {
            return refused("a range must be allowed to hold at least 1 MiB");
        }
        if self.durability == Durability::Interval(Duration::ZERO) {
            return refused("an interval of zero is Durability::Always");
        }
        Ok(())
    }
}

impl fmt::Debug for StoreOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreOptions")
            .field("durability", &self.durability)
            .field("write_buffer_bytes", &self.write_buffer_bytes)
            .field("cache_bytes", &self.cache_bytes)
            .field("waiting_commits_max", &self.waiting_commits_max)
            .field("range_bytes_max", &self.range_bytes_max)
            .field("maintenance_interval", &self.maintenance_interval)
            .finish_non_exhaustive()
    }
}

const MIB: usize = 1024 * 1024;
const GIB: usize = 1024 * MIB;
