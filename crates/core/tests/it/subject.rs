use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use millstream_core::conformance::Subject;
use millstream_core::memory::Memory;
use millstream_core::{Containers, ManualClock, Timestamp};

/// The memory store with a clock that stands still until it is moved.
pub(crate) struct InMemory {
    memory: Memory,
    clock: Arc<ManualClock>,
}

impl InMemory {
    pub(crate) fn new() -> Self {
        let clock = clock();
        Self { memory: Memory::new(clock.clone()), clock }
    }
}

pub(crate) fn clock() -> Arc<ManualClock> {
    Arc::new(ManualClock::starting_at(Timestamp::from_millis(1_700_000_000_000)))
}

#[async_trait]
impl Subject for InMemory {
    fn containers(&self) -> Arc<dyn Containers> {
        Arc::new(self.memory.clone())
    }

    fn advance(&self, by: Duration) {
        self.clock.advance(by);
    }

    async fn settle(&self) {}

    async fn reopen(&mut self) -> bool {
        // Nothing to close: the next handle shares the content.
        true
    }
}
