//! The embedded store, opened for a benchmark.

use std::{path::Path, sync::Arc};

use millstream_core::{Clock, SystemClock};
use millstream_store::{Store, StoreOptions};

use crate::Result;

/// Opens the store in `directory`, which is created if it is not there, with default options.
pub(crate) fn open(directory: &Path) -> Result<Store> {
    open_at(directory, Arc::new(SystemClock::default()))
}

/// Opens the store as [`open`] does, with another clock.
pub(crate) fn open_at(directory: &Path, clock: Arc<dyn Clock>) -> Result<Store> {
    Ok(Store::open_with(directory, StoreOptions::default().clock(clock))?)
}
