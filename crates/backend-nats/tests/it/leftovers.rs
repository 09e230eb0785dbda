//! Containers whose creation or removal is broken off, as by the death of the process.

use std::sync::Arc;
use std::time::Duration;

use async_nats::jetstream;
use futures_util::TryStreamExt;
use millstream_backend_nats::NatsStore;
use millstream_core::{
    Batch, ContainerName, ContainerSettings, Containers, ErrorKind, ManualClock, Operation,
    PartitionKeyDefinition, Result, Timestamp,
};

use crate::harness::{Servers, block_on, open};

const RANGES: u32 = 100;
/// How far something goes that is to be broken off before it is looked at.
const STEP: Duration = Duration::from_millis(1);
/// Longer than it takes until something counts as abandoned.
const LONG: Duration = Duration::from_secs(11 * 60);

struct Scene {
    store: NatsStore,
    clock: Arc<ManualClock>,
    context: jetstream::Context,
    prefix: String,
}

impl Scene {
    async fn new(servers: &Servers, prefix: &str) -> Self {
        let clock = Arc::new(ManualClock::starting_at(Timestamp::from_millis(1_700_000_000_000)));
        let store = open(&format!("{}?prefix={prefix}", servers.url()), clock.clone()).await;
        let context = jetstream::new(async_nats::connect(servers.url()).await.unwrap());
        store.create_database("d").await.unwrap();
        Self { store, clock, context, prefix: format!("{prefix}_") }
    }

    async fn create(&self, name: &str) -> Result<()> {
        let settings = ContainerSettings::new(PartitionKeyDefinition::hash("/pk").unwrap());
        self.store.create(&container(name), settings.ranges(RANGES)).await.map(drop)
    }

    /// How many streams there are beside the catalog.
    async fn streams(&self) -> usize {
        let names: Vec<String> = self.context.stream_names().try_collect().await.unwrap();
        let own = names.iter().filter(|it| it.starts_with(&self.prefix));
        own.filter(|it| !it.ends_with("_catalog")).count()
    }

    /// Breaks something off when some of so many streams are there; false if it was done before.
    async fn break_off(&self, work: impl Future<Output = Result<()>>, full: usize) -> bool {
        let mut work = Box::pin(work);
        loop {
            if let Ok(outcome) = tokio::time::timeout(STEP, &mut work).await {
                outcome.unwrap();
                return false;
            }
            // It stands still while we look: what it does after the last stream is not under way.
            if (1..full).contains(&self.streams().await) {
                break;
            }
        }
        drop(work);
        self.settle().await;
        true
    }

    /// The server goes on with what it was asked for, though nobody waits for the answer.
    async fn settle(&self) {
        let (mut before, mut same) = (self.streams().await, 0);
        while same < 10 {
            tokio::time::sleep(Duration::from_millis(20)).await;
            let now = self.streams().await;
            same = if now == before { same + 1 } else { 0 };
            before = now;
        }
    }

    /// What maintenance finds now, and what after a long time.
    async fn maintain(&self) -> (u64, u64) {
        let first = self.store.maintain().await.unwrap().leftovers;
        self.clock.advance(LONG);
        (first, self.store.maintain().await.unwrap().leftovers)
    }
}

fn container(name: &str) -> ContainerName {
    ContainerName::new("d", name).unwrap()
}

#[test]
fn streams_of_a_creation_that_was_broken_off_are_removed_after_a_while() {
    let Some(servers) = Servers::single() else { return };
    block_on(async {
        let scene = Scene::new(servers, "creation").await;
        let full = usize::try_from(RANGES).unwrap();
        while !scene.break_off(scene.create("c"), full).await {
            scene.store.delete(&container("c")).await.unwrap();
        }
        assert_eq!(scene.maintain().await, (0, 1));
        assert_eq!(scene.streams().await, 0);
        scene.create("c").await.unwrap();
        scene.store.open(&container("c")).await.unwrap();
        assert_eq!(scene.maintain().await, (0, 0));
        assert_eq!(scene.streams().await, full);
    });
}

#[test]
fn a_creation_that_is_taken_for_abandoned_is_whole_or_leaves_nothing() {
    let Some(servers) = Servers::single() else { return };
    block_on(async {
        let scene = Scene::new(servers, "slow").await;
        // Streams are removed while more of them are made.
        let sweeping = async {
            while scene.streams().await == 0 {}
            scene.maintain().await;
        };
        let (created, ()) = futures_util::future::join(scene.create("c"), sweeping).await;
        scene.maintain().await;
        let expected = match created {
            Ok(()) => usize::try_from(RANGES).unwrap(),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Unavailable, "{}", error.report());
                0
            }
        };
        assert_eq!(scene.streams().await, expected);
    });
}

#[test]
fn streams_of_a_removal_that_was_broken_off_are_removed_after_a_while() {
    let Some(servers) = Servers::single() else { return };
    block_on(async {
        let scene = Scene::new(servers, "removal").await;
        loop {
            scene.create("c").await.unwrap();
            let full = scene.streams().await;
            if scene.break_off(scene.store.delete(&container("c")), full).await {
                break;
            }
        }
        let error = scene.store.open(&container("c")).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound, "{}", error.report());
        assert_eq!(scene.maintain().await, (0, 1));
        assert_eq!(scene.streams().await, 0);
        let open = loop {
            let mut open = Vec::new();
            for name in ["one", "two"] {
                scene.create(name).await.unwrap();
                open.push(scene.store.open(&container(name)).await.unwrap());
            }
            let full = scene.streams().await;
            if scene.break_off(scene.store.delete_database("d"), full).await {
                break open;
            }
            scene.store.create_database("d").await.unwrap();
        };
        // Nobody goes on to write where nobody is going to read.
        scene.clock.advance(Duration::from_secs(2));
        scene.store.create_database("d").await.unwrap();
        for container in open {
            let write = Operation::create(r#"{"id":"1","pk":"k"}"#);
            let written = container.documents.commit(Batch::new("k").with(write)).await;
            assert_eq!(written.unwrap_err().kind(), ErrorKind::NotFound, "{}", container.info.name);
        }
        scene.maintain().await;
        assert_eq!(scene.streams().await, 0);
    });
}
