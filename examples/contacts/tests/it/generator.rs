use std::collections::BTreeSet;
use std::time::Duration;

use contacts::{GeneratedChange, Generator, GeneratorOptions};
use tokio_util::sync::CancellationToken;

use crate::world::World;

async fn steps(world: &World, options: GeneratorOptions, count: usize) -> Vec<GeneratedChange> {
    let mut generator = Generator::new(world.service.clone(), world.clock.clone(), options);
    let mut changes = Vec::new();
    for _ in 0..count {
        changes.push(generator.step().await.unwrap());
    }
    changes
}

#[tokio::test]
async fn the_same_seed_makes_the_same_changes() {
    let mut runs = Vec::new();
    for seed in [7, 7, 8] {
        let world = World::new().await;
        runs.push(steps(&world, GeneratorOptions::default().seed(seed), 50).await);
    }
    assert_eq!(runs[0], runs[1]);
    assert_ne!(runs[0], runs[2]);
}

#[tokio::test]
async fn every_kind_of_change_is_made_and_each_raises_its_event() {
    let world = World::new().await;
    let changes = steps(&world, GeneratorOptions::default().contacts_max(10), 300).await;
    let kinds: BTreeSet<_> = changes.iter().map(|it| it.action).collect();
    assert_eq!(kinds.len(), 6);
    let events = world.events().await;
    // Names are drawn from a short list: now and then one stays what it is.
    let unchanged = changes.len() - events.len();
    assert!(unchanged < 30, "{unchanged}");
    assert!(events.iter().all(|it| it.trace.traceparent().is_some()));
    let page = world.service.list(100, None).await.unwrap();
    assert!(page.contacts.len() <= 10);
}

#[tokio::test]
async fn a_failure_is_counted_and_a_contact_that_is_gone_is_forgotten() {
    let world = World::new().await;
    let options = GeneratorOptions::default();
    let mut generator = Generator::new(world.service.clone(), world.clock.clone(), options);
    world.faults.plan("d");
    assert!(generator.step().await.is_err());
    let created = generator.step().await.unwrap();
    world.service.delete(created.id, None).await.unwrap();
    // Whatever it tries next with the contact fails once; then it goes on with another.
    let mut failures = 0;
    for _ in 0..20 {
        failures += usize::from(generator.step().await.is_err());
    }
    assert!(failures <= 1, "{failures}");
    let statistics = generator.statistics().get();
    assert_eq!(statistics.failed, u64::try_from(failures + 1).unwrap());
    let made = statistics.created + statistics.updated + statistics.deleted;
    assert_eq!(made + statistics.failed, 22);
}

#[tokio::test]
async fn it_runs_at_its_pace_until_it_is_stopped() {
    let world = World::new().await;
    world.created().await;
    let options = GeneratorOptions::default().per_second(4.0);
    let generator = Generator::new(world.service.clone(), world.clock.clone(), options);
    let (statistics, shutdown) = (generator.statistics(), CancellationToken::new());
    let drive = async {
        for round in 1..=8 {
            while changes(&statistics.get()) < round {
                tokio::task::yield_now().await;
            }
            for _ in 0..20 {
                tokio::task::yield_now().await;
            }
            assert_eq!(changes(&statistics.get()), round, "it waits for its time");
            world.clock.advance(Duration::from_millis(250));
        }
        shutdown.cancel();
    };
    tokio::join!(generator.run(shutdown.clone()), drive);
    assert!((8..=9).contains(&changes(&statistics.get())));
}

fn changes(statistics: &contacts::GeneratorStatistics) -> u64 {
    statistics.created + statistics.updated + statistics.deleted + statistics.failed
}
