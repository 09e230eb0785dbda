//! Obligation 15: an event that a registered reader has not passed is never purged.

use std::sync::Arc;
use std::time::Duration;

use crate::conformance::Subject;
use crate::conformance::harness::{LATEST, Scene, event, expiring, extended, must, must_fail};
use crate::{
    Batch, ContainerSettings, Continuation, ErrorKind, KeyRange, Operation, PageSize,
    RetentionGuards, StartFrom,
};

const LONG: Duration = Duration::from_secs(100);

/// A container with TTLs and its guards, if the backend has them; otherwise checks that it says so.
async fn guarded(
    subject: &dyn Subject,
    settings: ContainerSettings,
) -> Option<(Scene, Arc<dyn RetentionGuards>)> {
    let scene = Scene::new(subject, settings).await;
    let guards = scene.container.guards.clone();
    let can = scene.store.capabilities().retention_guard;
    assert_eq!(guards.is_some(), can, "guards and capabilities do not agree");
    guards.map(|it| (scene, it))
}

/// Commits an event that lives for ten seconds.
async fn raise(scene: &Scene, key: &str, id: &str) {
    scene.commit_one(key, Operation::create(event(key, id, Some(10)))).await;
}

/// Lets every TTL pass, and whatever purges what has expired.
async fn grow_old(subject: &dyn Subject) {
    subject.advance(LONG);
    subject.settle().await;
}

async fn now(scene: &Scene, keys: &KeyRange) -> Continuation {
    scene.start(keys, StartFrom::Now, LATEST).await
}

pub(super) async fn obligation_15_an_event_not_passed_stays_visible(subject: &mut dyn Subject) {
    let Some((scene, guards)) = guarded(subject, expiring()).await else {
        return;
    };
    let keys = KeyRange::all();
    let start = scene.start(&keys, StartFrom::Beginning, LATEST).await;
    must(guards.hold("relay", &keys, &start).await);
    raise(&scene, "k", "event").await;
    let plain = extended("k", "plain", r#","ttl":10"#);
    scene.commit_one("k", Operation::create(plain)).await;
    let written = scene.existing("k", "event").await;
    for _ in 0..3 {
        grow_old(subject).await;
        assert_eq!(scene.read("k", "event").await, Some(written.clone()), "an event is lost");
        assert_eq!(
            scene.scan_all().await,
            std::slice::from_ref(&written),
            "a scan does not show what is held"
        );
        let (changes, _) = scene.drain_from(&keys, &start, PageSize::default()).await;
        let ids: Vec<_> = changes.iter().map(|it| it.id.as_str()).collect();
        assert_eq!(ids, ["event"], "the feed does not show what is held and nothing else");
        let again = Batch::new("k").with(Operation::create(event("k", "event", None)));
        scene.refused(again, ErrorKind::AlreadyExists, Some(0)).await;
    }
    must(guards.hold("relay", &keys, &now(&scene, &keys).await).await);
    subject.settle().await;
    assert!(!scene.is_there("k", "event").await, "an event outlived its last reader");
    assert_eq!(scene.changes(StartFrom::Beginning, LATEST).await, []);
    raise(&scene, "k", "event").await;
}

pub(super) async fn obligation_15_every_reader_counts(subject: &mut dyn Subject) {
    let Some((scene, guards)) = guarded(subject, expiring()).await else {
        return;
    };
    let keys = KeyRange::all();
    let start = scene.start(&keys, StartFrom::Beginning, LATEST).await;
    for name in ["slow", "fast", "gone"] {
        must(guards.hold(name, &keys, &start).await);
    }
    let mut holders = must(guards.holders().await);
    holders.sort();
    assert_eq!(holders, ["fast", "gone", "slow"]);
    raise(&scene, "k", "1").await;
    let between = now(&scene, &keys).await;
    raise(&scene, "k", "2").await;
    must(guards.hold("fast", &keys, &now(&scene, &keys).await).await);
    must(guards.hold("slow", &keys, &between).await);
    grow_old(subject).await;
    assert!(scene.is_there("k", "1").await, "an event is lost that one reader has not passed");
    must(guards.release("gone").await);
    subject.settle().await;
    assert!(!scene.is_there("k", "1").await, "an event is held that every reader has passed");
    assert!(scene.is_there("k", "2").await, "an event is lost that one reader has not passed");
    must(guards.release("slow").await);
    must(guards.release("nobody").await);
    subject.settle().await;
    assert!(!scene.is_there("k", "2").await, "an event is held for a reader that was released");
    assert_eq!(must(guards.holders().await), ["fast"]);
}

pub(super) async fn obligation_15_a_position_never_goes_back(subject: &mut dyn Subject) {
    let Some((scene, guards)) = guarded(subject, expiring()).await else {
        return;
    };
    let keys = KeyRange::all();
    let start = scene.start(&keys, StartFrom::Beginning, LATEST).await;
    raise(&scene, "k", "1").await;
    must(guards.hold("relay", &keys, &now(&scene, &keys).await).await);
    must(guards.hold("relay", &keys, &start).await);
    grow_old(subject).await;
    assert!(!scene.is_there("k", "1").await, "an earlier position took back a later one");
    // Written again after it was passed: this version has not been passed.
    raise(&scene, "k", "2").await;
    must(guards.hold("relay", &keys, &now(&scene, &keys).await).await);
    scene.commit_one("k", Operation::upsert(event("k", "2", Some(10)))).await;
    grow_old(subject).await;
    assert!(scene.is_there("k", "2").await, "a version is lost that the reader has not passed");
}

pub(super) async fn obligation_15_where_nothing_was_said_nothing_is_passed(
    subject: &mut dyn Subject,
) {
    let Some((scene, guards)) = guarded(subject, expiring().ranges(2)).await else {
        return;
    };
    let ranges = scene.ranges().await;
    let keys: Vec<_> = ranges.iter().map(|it| scene.keys_in(&it.keys, 1).remove(0)).collect();
    raise(&scene, &keys[0], "1").await;
    raise(&scene, &keys[1], "1").await;
    must(guards.hold("relay", &ranges[0].keys, &now(&scene, &ranges[0].keys).await).await);
    grow_old(subject).await;
    assert!(!scene.is_there(&keys[0], "1").await, "an event outlived its last reader");
    assert!(scene.is_there(&keys[1], "1").await, "an event is lost in a range not spoken of");
    must(guards.hold("relay", &ranges[1].keys, &now(&scene, &ranges[1].keys).await).await);
    subject.settle().await;
    assert!(!scene.is_there(&keys[1], "1").await, "an event outlived its last reader");
}

pub(super) async fn obligation_15_guards_survive_splits_merges_and_reopening(
    subject: &mut dyn Subject,
) {
    let Some((scene, guards)) = guarded(subject, expiring()).await else {
        return;
    };
    let capabilities = scene.store.capabilities();
    let halves = must(KeyRange::divide(2));
    let left = scene.keys_in(&halves[0], 1).remove(0);
    let right = scene.keys_in(&halves[1], 1).remove(0);
    let all = KeyRange::all();
    raise(&scene, &left, "passed").await;
    raise(&scene, &right, "passed").await;
    must(guards.hold("relay", &all, &now(&scene, &all).await).await);
    raise(&scene, &left, "unread").await;
    raise(&scene, &right, "unread").await;
    drop(guards);
    let scene = scene.reopened(subject).await;
    let check = async |stage: &str, scene: &Scene, left_there: bool, right_there: bool| {
        subject.advance(LONG);
        subject.settle().await;
        for (key, expected) in [(&left, left_there), (&right, right_there)] {
            let found = scene.is_there(key, "unread").await;
            assert_eq!(found, expected, "{stage}: the unread event of {key:?}");
            assert!(!scene.is_there(key, "passed").await, "{stage}: a passed event is held");
        }
    };
    check("after reopening", &scene, true, true).await;
    let guards = scene.container.guards.clone().expect("the backend has guards");
    if !capabilities.split {
        return;
    }
    let whole = scene.ranges().await.remove(0).id;
    let children = must(scene.store.split(&scene.name, whole, Some(halves[1].min())).await);
    check("after a split", &scene, true, true).await;
    must(guards.hold("relay", &children[0].keys, &now(&scene, &children[0].keys).await).await);
    check("after one child was passed", &scene, false, true).await;
    raise(&scene, &left, "late").await;
    if !capabilities.merge {
        return;
    }
    must(scene.store.merge(&scene.name, children[0].id, children[1].id).await);
    check("after a merge", &scene, false, true).await;
    assert!(scene.is_there(&left, "late").await, "a merge took one part's position for all");
    must(guards.hold("relay", &all, &now(&scene, &all).await).await);
    check("after all was passed", &scene, false, false).await;
    assert!(!scene.is_there(&left, "late").await, "an event outlived its last reader");
}

pub(super) async fn obligation_15_a_foreign_position_is_refused(subject: &mut dyn Subject) {
    let Some((_, guards)) = guarded(subject, expiring()).await else {
        return;
    };
    let keys = KeyRange::all();
    let garbage = must(Continuation::new("garbage"));
    let refused = guards.hold("relay", &keys, &garbage).await;
    must_fail(refused, ErrorKind::Invalid, "hold at a position that is none");
    let other = Scene::named(subject, "other", expiring()).await;
    let foreign = now(&other, &keys).await;
    let refused = guards.hold("relay", &keys, &foreign).await;
    must_fail(refused, ErrorKind::ContainerRecreated, "hold at a position of another container");
    assert_eq!(must(guards.holders().await), Vec::<String>::new(), "a refused reader holds");
}
