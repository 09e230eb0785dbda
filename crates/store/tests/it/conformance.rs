use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use millstream_core::conformance::{Subject, block_on};
use millstream_core::{Containers, ManualClock, Timestamp};
use millstream_store::{Durability, Store, StoreOptions};
use tempfile::TempDir;

/// A store in a directory of its own, with a clock that the suite moves.
struct Embedded {
    directory: TempDir,
    clock: Arc<ManualClock>,
    store: Option<Store>,
}

impl Embedded {
    fn new() -> Self {
        let clock = Arc::new(ManualClock::starting_at(Timestamp::from_millis(1_700_000_000_000)));
        let mut subject =
            Self { directory: tempfile::tempdir().expect("a directory"), clock, store: None };
        subject.open();
        subject
    }

    fn open(&mut self) {
        let options = StoreOptions::default()
            .clock(self.clock.clone())
            .durability(Durability::Never)
            .write_buffer_bytes(256 * 1024)
            .maintenance_interval(None);
        self.store = Some(Store::open_with(self.directory.path(), options).expect("it opens"));
    }

    fn store(&self) -> &Store {
        self.store.as_ref().expect("it is open")
    }
}

#[async_trait]
impl Subject for Embedded {
    fn containers(&self) -> Arc<dyn Containers> {
        Arc::new(self.store().clone())
    }

    fn advance(&self, by: Duration) {
        self.clock.advance(by);
    }

    async fn settle(&self) {
        self.store().maintain().expect("maintenance goes through");
    }

    async fn reopen(&mut self) -> bool {
        self.store = None;
        self.open();
        true
    }
}

millstream_core::conformance_tests!(Embedded::new(), block_on);
