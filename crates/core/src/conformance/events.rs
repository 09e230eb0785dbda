//! Obligation 16: events of a partition key are numbered without gaps when they are committed.

use std::time::Duration;

use crate::conformance::Subject;
use crate::conformance::harness::{
    LATEST, Scene, body, event, expiring, extended, item_id, must, settings,
};
use crate::{Batch, ContainerSettings, ErrorKind, KeyRange, Operation, StartFrom};

/// A container whose backend numbers events, or a check that it does not.
async fn numbered(subject: &dyn Subject, settings: ContainerSettings) -> Option<Scene> {
    let scene = Scene::new(subject, settings).await;
    if scene.store.capabilities().event_sequence {
        return Some(scene);
    }
    let item = scene.commit_one("k", Operation::create(event("k", "1", None))).await;
    assert_eq!(item.sequence, None, "an event is numbered though the backend says it cannot");
    None
}

/// Commits events and returns their numbers.
async fn raise(scene: &Scene, key: &str, ids: &[&str]) -> Vec<Option<u64>> {
    let batch = ids
        .iter()
        .fold(Batch::new(key), |batch, id| batch.with(Operation::create(event(key, id, None))));
    let outcome = scene.commit(batch).await;
    outcome.results.iter().map(|it| it.item().and_then(|it| it.sequence)).collect()
}

pub(super) async fn obligation_16_events_are_numbered_from_1_per_partition_key(
    subject: &mut dyn Subject,
) {
    let Some(mut scene) = numbered(subject, settings()).await else {
        return;
    };
    assert_eq!(raise(&scene, "a", &["1"]).await, [Some(1)]);
    assert_eq!(raise(&scene, "a", &["2", "3", "4"]).await, [Some(2), Some(3), Some(4)]);
    assert_eq!(raise(&scene, "b", &["1", "2"]).await, [Some(1), Some(2)]);
    assert_eq!(scene.create("a", "entity").await.sequence, None, "an item is numbered");
    let other = extended("a", "other", r#","type":"other""#);
    let other = scene.commit_one("a", Operation::create(other)).await;
    assert_eq!(other.sequence, None, "an item of another type is numbered");
    let mixed = Batch::new("a")
        .with(Operation::upsert(body("a", "entity", 1)))
        .with(Operation::upsert(event("a", "5", None)))
        .with(Operation::delete(item_id("entity")))
        .with(Operation::create(event("a", "6", None)));
    scene.commit(mixed).await;
    scene = scene.reopened(subject).await;
    assert_eq!(raise(&scene, "a", &["7"]).await, [Some(7)], "reopening lost the count");
    assert_eq!(scene.existing("a", "5").await.sequence, Some(5));
    let changes = scene.changes(StartFrom::Beginning, LATEST).await;
    let items = changes.iter().filter_map(|it| it.current.as_ref());
    let a: Vec<_> = items.filter(|it| it.partition_key == "a".into()).collect();
    let numbers: Vec<_> = a.iter().filter_map(|it| it.sequence).collect();
    assert_eq!(numbers, [1, 2, 3, 4, 5, 6, 7], "the feed shows events without or out of number");
}

pub(super) async fn obligation_16_a_refused_batch_leaves_no_gap(subject: &mut dyn Subject) {
    let Some(scene) = numbered(subject, settings()).await else {
        return;
    };
    scene.create("k", "old").await;
    for round in 0_u64..5 {
        let refused = Batch::new("k")
            .with(Operation::create(event("k", "lost-1", None)))
            .with(Operation::create(event("k", "lost-2", None)))
            .with(Operation::create(body("k", "old", 0)));
        scene.refused(refused, ErrorKind::AlreadyExists, Some(2)).await;
        let id = format!("event-{round}");
        assert_eq!(raise(&scene, "k", &[&id]).await, [Some(round + 1)], "there is a gap");
    }
}

pub(super) async fn obligation_16_a_number_stays_with_its_event(subject: &mut dyn Subject) {
    let Some(scene) = numbered(subject, expiring()).await else {
        return;
    };
    raise(&scene, "k", &["1", "2"]).await;
    for operation in [
        Operation::replace(item_id("1"), event("k", "1", None)),
        Operation::upsert(event("k", "1", Some(10))),
    ] {
        let item = scene.commit_one("k", operation).await;
        assert_eq!(item.sequence, Some(1), "an event got another number when it was replaced");
    }
    scene.delete("k", "2").await;
    assert_eq!(raise(&scene, "k", &["2"]).await, [Some(3)], "a number was used again");
    subject.advance(Duration::from_secs(100));
    subject.settle().await;
    assert!(!scene.is_there("k", "1").await, "the event has expired");
    assert_eq!(raise(&scene, "k", &["1"]).await, [Some(4)], "a number was used again");
    let again = Batch::new("k")
        .with(Operation::delete(item_id("1")))
        .with(Operation::create(event("k", "1", None)));
    scene.commit(again).await;
    assert_eq!(scene.existing("k", "1").await.sequence, Some(5));
}

pub(super) async fn obligation_16_the_container_says_what_an_event_is(subject: &mut dyn Subject) {
    let own = ContainerSettings { event_type: Some("fact".to_owned()), ..settings() };
    let Some(scene) = numbered(subject, own).await else {
        return;
    };
    assert_eq!(raise(&scene, "k", &["1"]).await, [None], "an item of another type is numbered");
    let fact = extended("k", "fact", r#","type":"fact""#);
    assert_eq!(scene.commit_one("k", Operation::create(fact)).await.sequence, Some(1));
    let none = ContainerSettings { event_type: None, ..settings() };
    let scene = Scene::named(subject, "without", none).await;
    assert_eq!(raise(&scene, "k", &["1"]).await, [None], "an item is numbered without a type");
}

pub(super) async fn obligation_16_numbers_go_on_through_splits_and_merges(
    subject: &mut dyn Subject,
) {
    let Some(scene) = numbered(subject, settings()).await else {
        return;
    };
    let halves = must(KeyRange::divide(2));
    let keys: Vec<_> = halves.iter().map(|it| scene.keys_in(it, 1).remove(0)).collect();
    let capabilities = scene.store.capabilities();
    for round in 1_u64..=5 {
        for key in &keys {
            let id = format!("event-{round}");
            assert_eq!(raise(&scene, key, &[&id]).await, [Some(round)], "round {round}");
        }
        match scene.ranges().await.as_slice() {
            [one] if capabilities.split => {
                must(scene.store.split(&scene.name, one.id, None).await);
            }
            [one, two] if capabilities.merge => {
                must(scene.store.merge(&scene.name, one.id, two.id).await);
            }
            _ => return,
        }
    }
}
