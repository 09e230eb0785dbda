//! Obligation 1 for unique keys: no two items of a logical partition share their values.

use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;

use crate::conformance::Subject;
use crate::conformance::harness::{
    LATEST, Scene, expiring, extended, item_id, must, must_fail, settings, yield_now,
};
use crate::{
    Batch, ContainerName, ContainerSettings, ErrorKind, KeyRange, Operation, Patch, PatchOperation,
    StartFrom, TimeToLive, UniqueKey,
};

/// Two unique keys: `/email`, and `/name/first` with `/name/last`.
fn with_keys(settings: ContainerSettings) -> ContainerSettings {
    settings
        .unique_key(must(UniqueKey::new(["/email"])))
        .unique_key(must(UniqueKey::new(["/name/first", "/name/last"])))
}

/// A new container with unique keys, if the backend can. If it cannot, this checks that it says so.
async fn scene(subject: &dyn Subject, settings: ContainerSettings) -> Option<Scene> {
    let store = subject.containers();
    if store.capabilities().unique_keys {
        return Some(Scene::new(subject, with_keys(settings)).await);
    }
    must(store.create_database("conformance").await);
    let name = must(ContainerName::new("conformance", "data"));
    let refused = store.create(&name, with_keys(settings)).await;
    must_fail(refused, ErrorKind::Unsupported, "create a container with unique keys");
    None
}

/// A body whose name nobody else has.
fn person(key: &str, id: &str, email: &str) -> Bytes {
    extended(key, id, &format!(r#","email":"{email}","name":{{"first":"{id}","last":"x"}}"#))
}

fn one(operation: Operation) -> Batch {
    Batch::new("k").with(operation)
}

fn set(id: &str, path: &str, value: &str) -> Operation {
    let patch = Patch::new(vec![must(PatchOperation::set(path, &value))]);
    Operation::patch(item_id(id), must(patch))
}

const TAKEN: ErrorKind = ErrorKind::AlreadyExists;

pub(super) async fn obligation_01_unique_values_are_held_by_one_item_of_a_partition(
    subject: &mut dyn Subject,
) {
    let Some(scene) = scene(subject, settings()).await else { return };
    for id in ["1", "2"] {
        let email = format!("{id}@x");
        scene.commit_one("k", Operation::create(person("k", id, &email))).await;
    }
    let before = scene.scan_all().await;
    let refused = [
        Operation::create(person("k", "3", "1@x")),
        Operation::upsert(person("k", "3", "1@x")),
        Operation::upsert(person("k", "2", "1@x")),
        Operation::replace(item_id("2"), person("k", "2", "1@x")),
        set("2", "/email", "1@x"),
        // Both parts of the second key.
        set("2", "/name/first", "1"),
        Operation::create(extended(
            "k",
            "3",
            r#","email":"3@x","name":{"last":"\u0078","first":"1"}"#,
        )),
    ];
    for operation in refused {
        scene.refused(one(operation), TAKEN, Some(0)).await;
    }
    assert_eq!(scene.scan_all().await, before, "a refused write changed something");
    // One part may be shared, another partition is free, and an item is not in its own way.
    scene.commit_one("k", set("2", "/name/last", "y")).await;
    scene.commit_one("k", set("2", "/name/first", "1")).await;
    scene.commit_one("other", Operation::create(person("other", "3", "1@x"))).await;
    scene.commit_one("k", Operation::upsert(person("k", "1", "1@x"))).await;
    scene.commit_one("k", set("1", "/age", "7")).await;
    // What an item gives up is free.
    scene.commit_one("k", set("1", "/email", "new@x")).await;
    scene.commit_one("k", Operation::create(person("k", "3", "1@x"))).await;
    scene.delete("k", "2").await;
    scene.commit_one("k", Operation::create(person("k", "4", "2@x"))).await;
    scene.refused(one(Operation::create(person("k", "5", "new@x"))), TAKEN, Some(0)).await;
}

pub(super) async fn obligation_01_what_is_missing_is_unique_too(subject: &mut dyn Subject) {
    let Some(scene) = scene(subject, settings()).await else { return };
    let named = |id: &str, rest: &str| {
        Operation::create(extended("k", id, &format!(r#","name":{{"first":"{id}"}}{rest}"#)))
    };
    scene.commit_one("k", named("1", "")).await;
    for rest in ["", r#","email":null"#, r#","email":{"a":1}"#, r#","email":[1]"#] {
        scene.refused(one(named("2", rest)), TAKEN, Some(0)).await;
    }
    scene.commit_one("k", named("2", r#","email":1"#)).await;
    scene.refused(one(named("3", r#","email":1.0"#)), TAKEN, Some(0)).await;
    scene.commit_one("k", named("3", r#","email":"1""#)).await;
    let long = "x".repeat(10_000);
    scene.commit_one("k", named("4", &format!(r#","email":"{long}""#))).await;
    scene.refused(one(named("5", &format!(r#","email":"{long}""#))), TAKEN, Some(0)).await;
    scene.commit_one("k", named("5", &format!(r#","email":"{long}y""#))).await;
}

pub(super) async fn obligation_01_unique_keys_hold_from_step_to_step(subject: &mut dyn Subject) {
    let Some(scene) = scene(subject, settings()).await else { return };
    let create = |id: &str, email: &str| Operation::create(person("k", id, email));
    let twice = Batch::new("k").with(create("1", "1@x")).with(create("2", "1@x"));
    scene.refused(twice, TAKEN, Some(1)).await;
    assert_eq!(scene.scan_all().await, [], "part of a refused batch was stored");
    let given_on = Batch::new("k")
        .with(create("1", "1@x"))
        .with(set("1", "/email", "2@x"))
        .with(create("2", "1@x"))
        .with(Operation::delete(item_id("1")))
        .with(create("3", "2@x"));
    scene.commit(given_on).await;
    let swapped = Batch::new("k")
        .with(set("2", "/email", "between"))
        .with(set("3", "/email", "1@x"))
        .with(set("2", "/email", "2@x"));
    scene.commit(swapped).await;
    scene.refused(one(create("4", "1@x")), TAKEN, Some(0)).await;
    scene.refused(one(create("4", "2@x")), TAKEN, Some(0)).await;
    scene.commit_one("k", create("4", "between")).await;
    // What a step would need is not given up before it.
    let too_late = Batch::new("k").with(create("5", "1@x")).with(Operation::delete(item_id("3")));
    scene.refused(too_late, TAKEN, Some(0)).await;
}

pub(super) async fn obligation_01_an_expired_item_gives_its_unique_values_back(
    subject: &mut dyn Subject,
) {
    let Some(scene) = scene(subject, expiring()).await else { return };
    let dying = |id: &str| {
        let rest = format!(r#","email":"{id}@x","name":{{"first":"{id}"}},"ttl":5"#);
        Operation::create(extended("k", id, &rest))
    };
    for id in ["1", "2", "3"] {
        scene.commit_one("k", dying(id)).await;
        scene.refused(one(Operation::create(person("k", "9", "1@x"))), TAKEN, Some(0)).await;
    }
    subject.advance(Duration::from_secs(6));
    // Before it is purged, and by the same id as well as by another.
    scene.commit_one("k", Operation::create(person("k", "4", "1@x"))).await;
    scene.commit_one("k", Operation::create(person("k", "2", "new@x"))).await;
    subject.settle().await;
    // Purging takes nothing from those who came after.
    scene.refused(one(Operation::create(person("k", "5", "1@x"))), TAKEN, Some(0)).await;
    scene.refused(one(Operation::create(person("k", "5", "new@x"))), TAKEN, Some(0)).await;
    // One that was purged and comes back with other values has lost the old ones all the same.
    for (id, email) in [("3", "newer@x"), ("5", "2@x"), ("6", "3@x")] {
        scene.commit_one("k", Operation::create(person("k", id, email))).await;
    }
    let scene = scene.reopened(subject).await;
    for email in ["1@x", "2@x", "3@x", "new@x", "newer@x"] {
        scene.refused(one(Operation::create(person("k", "7", email))), TAKEN, Some(0)).await;
    }
}

pub(super) async fn obligation_01_what_lost_its_unique_values_does_not_come_back(
    subject: &mut dyn Subject,
) {
    let short = TimeToLive::Seconds(5);
    let Some(scene) = scene(subject, settings().default_ttl(short)).await else { return };
    let keys = KeyRange::all();
    let start = scene.start(&keys, StartFrom::Beginning, LATEST).await;
    let event = |id: &str| {
        let rest = format!(r#","email":"{id}@x","name":{{"first":"{id}"}},"type":"domainEvent""#);
        Operation::create(extended("k", id, &rest))
    };
    scene.commit_one("k", Operation::create(person("k", "1", "1@x"))).await;
    scene.commit_one("k", event("2")).await;
    subject.advance(Duration::from_secs(6));
    // They have expired, and nobody has purged them yet.
    let taken_over = Batch::new("k")
        .with(Operation::create(person("k", "3", "1@x")))
        .with(Operation::create(person("k", "4", "2@x")));
    scene.commit(taken_over).await;
    let expected = scene.scan_all().await;
    assert_eq!(expected.len(), 2);
    if let Some(guards) = &scene.container.guards {
        must(guards.hold("reader", &keys, &start).await);
        assert!(!scene.is_there("k", "2").await, "a guard brought an event back");
    }
    must(scene.store.replace(&scene.name, with_keys(settings()), None).await);
    let scene = scene.reopened(subject).await;
    let ids: Vec<_> = scene.scan_all().await.into_iter().map(|it| it.id.to_string()).collect();
    let expected: Vec<_> = expected.into_iter().map(|it| it.id.to_string()).collect();
    assert_eq!(ids, expected, "an item came back whose unique values another one has");
    let changes = scene.changes(StartFrom::Beginning, LATEST).await;
    assert_eq!(changes.len(), 2, "the feed shows an item that has expired");
    // All that the old ones held is free, not only what the new ones wanted.
    let names = [r#"{"first":"1","last":"x"}"#, r#"{"first":"2"}"#];
    for (id, name) in names.iter().enumerate() {
        let rest = format!(r#","email":"new-{id}","name":{name}"#);
        scene.commit_one("k", Operation::create(extended("k", &format!("new-{id}"), &rest))).await;
    }
}

pub(super) async fn obligation_01_unique_values_stay_held_by_all_means(subject: &mut dyn Subject) {
    let Some(mut scene) = scene(subject, settings()).await else { return };
    let keys = [
        Vec::new(),
        vec![must(UniqueKey::new(["/email"]))],
        vec![must(UniqueKey::new(["/other"])); 11],
    ];
    for unique_keys in keys {
        let changed = ContainerSettings { unique_keys, ..with_keys(settings()) };
        let refused = scene.store.replace(&scene.name, changed, None).await;
        must_fail(refused, ErrorKind::Invalid, "change the unique keys");
    }
    must(scene.store.replace(&scene.name, with_keys(expiring()), None).await);
    let partitions = ["a", "b", "c", "d", "e"];
    for key in partitions {
        scene.commit_one(key, Operation::create(person(key, "1", "1@x"))).await;
    }
    for round in 0..3 {
        for key in partitions {
            let another = Batch::new(key).with(Operation::create(person(key, "2", "1@x")));
            scene.refused(another, TAKEN, Some(0)).await;
        }
        let capabilities = scene.store.capabilities();
        match scene.ranges().await.as_slice() {
            [one] if capabilities.split => {
                must(scene.store.split(&scene.name, one.id, None).await);
            }
            [one, two] if capabilities.merge => {
                must(scene.store.merge(&scene.name, one.id, two.id).await);
            }
            _ => (),
        }
        if round == 1 {
            scene = scene.reopened(subject).await;
            assert_eq!(scene.container.info.settings.unique_keys.len(), 2);
        }
    }
    // A new container of the same name knows nothing of them.
    must(scene.store.delete(&scene.name).await);
    let scene = Scene::new(subject, with_keys(settings())).await;
    scene.commit_one("a", Operation::create(person("a", "2", "1@x"))).await;
}

pub(super) async fn obligation_01_one_of_many_claimers_wins(subject: &mut dyn Subject) {
    let Some(scene) = scene(subject, settings()).await else { return };
    for round in 0..10 {
        let email = format!("{round}@x");
        let outcomes = join_all((0..8).map(|writer| {
            let (scene, email) = (&scene, &email);
            async move {
                for _ in 0..writer % 3 {
                    yield_now().await;
                }
                let id = format!("{round}-{writer}");
                let batch = one(Operation::create(person("k", &id, email)));
                scene.container.documents.commit(batch).await
            }
        }));
        let outcomes = outcomes.await;
        let won = outcomes.iter().filter(|it| it.is_ok()).count();
        assert_eq!(won, 1, "{won} items hold the same unique value");
        for error in outcomes.into_iter().filter_map(Result::err) {
            assert_eq!(error.kind(), TAKEN, "{}", error.report());
        }
    }
    assert_eq!(scene.scan_all().await.len(), 10);
}
