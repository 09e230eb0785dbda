//! The obligations of core, through the SDK and a gateway over both backends that need no server.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use millstream_backend_cosmos::Cosmos;
use millstream_core::conformance::{OBLIGATIONS, Subject};
use millstream_core::memory::Memory;
use millstream_core::{Containers, ManualClock, Timestamp};
use millstream_store::{Durability, Store, StoreOptions};
use tempfile::TempDir;

use crate::gateway::{Serving, block_on};

/// What is not kept, and why. Each of these is run, and must fail, so that the list stays true.
///
/// What the capabilities do not claim (all versions, split and merge, guards, numbers of events) is
/// not here: the suite asks for a refusal then, and gets it.
const NOT_KEPT: &[(&str, &str)] = &[
    (
        "obligation_02_a_patch_changes_what_it_names_and_nothing_else",
        "the condition of a patch travels as SQL text, and that of the suite is a function",
    ),
    (
        "obligation_05_a_new_default_counts_for_old_items",
        "a handle tells the time of expiry with the default TTL it was opened with",
    ),
    (
        "obligation_16_the_container_says_what_an_event_is",
        "an event type that the service would not remember is refused",
    ),
];

/// A connection to a gateway, and the clock of what is behind it.
struct Remote {
    clock: Arc<ManualClock>,
    serving: Serving,
    cosmos: Cosmos,
    store: Option<(Store, TempDir)>,
}

fn clock() -> Arc<ManualClock> {
    Arc::new(ManualClock::starting_at(Timestamp::from_millis(1_700_000_000_000)))
}

impl Remote {
    fn memory() -> Self {
        let clock = clock();
        let memory = Memory::new(clock.clone());
        Self::over(Arc::new(memory), clock, None)
    }

    fn store() -> Self {
        let clock = clock();
        let directory = tempfile::tempdir().unwrap();
        let options = StoreOptions::default()
            .clock(clock.clone())
            .durability(Durability::Never)
            .maintenance_interval(None);
        let store = Store::open_with(directory.path(), options).unwrap();
        Self::over(Arc::new(store.clone()), clock, Some((store, directory)))
    }

    fn over(
        containers: Arc<dyn Containers>,
        clock: Arc<ManualClock>,
        store: Option<(Store, TempDir)>,
    ) -> Self {
        block_on(async move {
            let serving = Serving::over(containers).await;
            let cosmos = serving.connect().await;
            Self { clock, serving, cosmos, store }
        })
    }
}

#[async_trait]
impl Subject for Remote {
    fn containers(&self) -> Arc<dyn Containers> {
        Arc::new(self.cosmos.clone())
    }

    fn advance(&self, by: Duration) {
        self.clock.advance(by);
    }

    async fn settle(&self) {
        if let Some((store, _)) = &self.store {
            store.maintain().unwrap();
        }
    }

    /// What is closed here is the connection; the store has its own tests.
    async fn reopen(&mut self) -> bool {
        self.cosmos = self.serving.connect().await;
        true
    }
}

fn examine(name: &str, make: fn() -> Remote) {
    let (_, obligation) = OBLIGATIONS.iter().find(|(it, _)| *it == name).unwrap();
    let run = || {
        let mut subject = make();
        block_on(obligation(&mut subject));
    };
    let Some((_, reason)) = NOT_KEPT.iter().find(|(it, _)| *it == name) else { return run() };
    let kept = catch_unwind(AssertUnwindSafe(run)).is_ok();
    assert!(!kept, "{name} is kept now, although {reason}: take it off the list");
}

macro_rules! through {
    ($make:expr; $($module:ident $name:ident;)*) => {
        $(
            #[test]
            fn $name() {
                $crate::conformance::examine(stringify!($name), $make);
            }
        )*
    };
}
use through;

mod over_memory {
    millstream_core::each_obligation!(crate::conformance::through, super::Remote::memory);
}

mod over_store {
    millstream_core::each_obligation!(crate::conformance::through, super::Remote::store);
}

#[test]
fn the_list_names_obligations_that_exist() {
    for (name, _) in NOT_KEPT {
        assert!(OBLIGATIONS.iter().any(|(it, _)| it == name), "{name}");
    }
}
