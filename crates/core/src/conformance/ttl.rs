//! Obligation 5: an item that has expired is invisible at once, and its id is free.

use std::time::Duration;

use crate::conformance::Subject;
use crate::conformance::harness::{
    ALL, LATEST, Scene, body, expiring, extended, item_id, must, settings,
};
use crate::{
    Batch, ChangeKind, ErrorKind, FeedMode, Operation, Patch, PatchOperation, StartFrom, TimeToLive,
};

const SECOND: Duration = Duration::from_secs(1);

pub(super) async fn obligation_05_the_item_decides_before_the_container(subject: &mut dyn Subject) {
    // Container, item, seconds until it expires.
    let cases: &[(Option<TimeToLive>, Option<i32>, Option<u64>)] = &[
        (None, None, None),
        (None, Some(-1), None),
        (None, Some(5), None),
        (Some(TimeToLive::Never), None, None),
        (Some(TimeToLive::Never), Some(-1), None),
        (Some(TimeToLive::Never), Some(5), Some(5)),
        (Some(TimeToLive::Seconds(10)), None, Some(10)),
        (Some(TimeToLive::Seconds(10)), Some(-1), None),
        (Some(TimeToLive::Seconds(10)), Some(5), Some(5)),
        (Some(TimeToLive::Seconds(10)), Some(20), Some(20)),
    ];
    let mut scenes = Vec::new();
    for (index, (container, item, seconds)) in cases.iter().enumerate() {
        let mut settings = settings();
        settings.default_ttl = *container;
        let scene = Scene::named(subject, &format!("case-{index}"), settings).await;
        let ttl = item.map(|it| format!(r#","ttl":{it}"#)).unwrap_or_default();
        let written = scene.commit_one("k", Operation::create(extended("k", "1", &ttl))).await;
        let expected = seconds.map(|it| written.written_at.plus(SECOND * narrow(it)));
        assert_eq!(written.expires_at, expected, "container {container:?}, item {item:?}");
        scenes.push((scene, *seconds, format!("container {container:?}, item {item:?}")));
    }
    // Ages of 4, 6, 9, 11, 19 and 21 seconds.
    let mut age = 0;
    for step in [4, 2, 3, 2, 8, 2] {
        subject.advance(SECOND * step);
        age += u64::from(step);
        for (scene, seconds, case) in &scenes {
            let expected = seconds.is_none_or(|it| age < it);
            assert_eq!(scene.is_there("k", "1").await, expected, "{case} at {age} s");
            assert_eq!(scene.scan_all().await.len(), usize::from(expected), "{case} at {age} s");
            let changes = scene.changes(StartFrom::Beginning, LATEST).await;
            assert_eq!(changes.len(), usize::from(expected), "{case} at {age} s in the feed");
        }
    }
    subject.settle().await;
    for (scene, seconds, case) in &scenes {
        assert_eq!(scene.is_there("k", "1").await, seconds.is_none(), "{case} after purging");
    }
}

pub(super) async fn obligation_05_an_expired_item_is_gone_for_every_operation(
    subject: &mut dyn Subject,
) {
    for settle in [false, true] {
        let name = if settle { "purged" } else { "not-purged" };
        let scene = Scene::named(subject, name, expiring()).await;
        let old = scene.commit_one("k", Operation::create(extended("k", "1", r#","ttl":5"#))).await;
        subject.advance(6 * SECOND);
        if settle {
            subject.settle().await;
        }
        let set = must(Patch::new(vec![must(PatchOperation::set("/n", &1))]));
        for operation in [
            Operation::read(item_id("1")),
            Operation::replace(item_id("1"), body("k", "1", 1)),
            Operation::patch(item_id("1"), set),
            Operation::delete(item_id("1")),
            Operation::delete(item_id("1")).if_match(old.etag.clone()),
        ] {
            scene.refused(Batch::new("k").with(operation), ErrorKind::NotFound, Some(0)).await;
        }
        let outcome =
            scene.commit(Batch::new("k").with(Operation::create(body("k", "1", 1)))).await;
        assert!(matches!(outcome.results[..], [crate::OperationResult::Created(_)]));
        let new = scene.existing("k", "1").await;
        assert_ne!(new.etag, old.etag, "a new item has the etag of an expired one");
        assert!(old.lsn < new.lsn, "a new item has no later number than an expired one");
        subject.advance(10 * SECOND);
        subject.settle().await;
        assert_eq!(scene.existing("k", "1").await, new, "a new item expired with the old one");
        let changes = scene.changes(StartFrom::Beginning, LATEST).await;
        assert_eq!(changes.len(), 1, "the feed shows an expired item");
    }
}

pub(super) async fn obligation_05_every_write_starts_the_time_anew(subject: &mut dyn Subject) {
    let scene = Scene::new(subject, expiring()).await;
    let lives = extended("k", "1", r#","ttl":10"#);
    let touch = || must(Patch::new(vec![must(PatchOperation::set("/n", &1))]));
    scene.commit_one("k", Operation::create(lives.clone())).await;
    for operation in [
        Operation::upsert(lives.clone()),
        Operation::replace(item_id("1"), lives.clone()),
        Operation::patch(item_id("1"), touch()),
    ] {
        subject.advance(8 * SECOND);
        subject.settle().await;
        scene.commit_one("k", operation).await;
    }
    subject.advance(8 * SECOND);
    assert!(scene.is_there("k", "1").await, "a write did not start the time anew");
    let read = Batch::new("k").with(Operation::read(item_id("1")));
    scene.commit(read).await;
    subject.advance(3 * SECOND);
    assert!(!scene.is_there("k", "1").await, "reading kept an item alive");

    // A later version may live shorter, longer or for ever.
    scene.commit_one("k", Operation::create(lives.clone())).await;
    scene.commit_one("k", Operation::upsert(extended("k", "1", r#","ttl":-1"#))).await;
    subject.advance(100 * SECOND);
    subject.settle().await;
    assert!(scene.is_there("k", "1").await, "an item expired by the TTL of an earlier version");
    scene.commit_one("k", Operation::upsert(extended("k", "1", r#","ttl":1"#))).await;
    subject.advance(2 * SECOND);
    assert!(!scene.is_there("k", "1").await, "an item outlived its newest TTL");
}

pub(super) async fn obligation_05_a_new_default_counts_for_old_items(subject: &mut dyn Subject) {
    let scene = Scene::new(subject, settings()).await;
    scene.create("k", "plain").await;
    scene.commit_one("k", Operation::create(extended("k", "short", r#","ttl":5"#))).await;
    scene.commit_one("k", Operation::create(extended("k", "for-ever", r#","ttl":-1"#))).await;
    subject.advance(10 * SECOND);
    assert_eq!(scene.scan_all().await.len(), 3, "items expired though TTLs are off");
    let set = async |ttl: Option<TimeToLive>| {
        let mut settings = settings();
        settings.default_ttl = ttl;
        must(scene.store.replace(&scene.name, settings, None).await);
    };
    set(Some(TimeToLive::Seconds(30))).await;
    assert!(!scene.is_there("k", "short").await, "an old item outlived its TTL");
    let plain = scene.existing("k", "plain").await;
    assert_eq!(plain.expires_at, Some(plain.written_at.plus(30 * SECOND)));
    set(Some(TimeToLive::Seconds(60))).await;
    subject.advance(30 * SECOND);
    subject.settle().await;
    assert!(scene.is_there("k", "plain").await, "an item expired by a default of the past");
    set(Some(TimeToLive::Seconds(20))).await;
    assert!(!scene.is_there("k", "plain").await, "a shorter default does not count at once");
    assert!(scene.is_there("k", "for-ever").await, "an item with TTL -1 expired");
    scene.commit_one("k", Operation::create(extended("k", "late", r#","ttl":5"#))).await;
    set(None).await;
    subject.advance(10 * SECOND);
    subject.settle().await;
    assert!(scene.is_there("k", "late").await, "an item expired though TTLs are off again");
}

pub(super) async fn obligation_05_expiry_goes_on_after_reopening(subject: &mut dyn Subject) {
    let scene = Scene::new(subject, expiring()).await;
    for (id, ttl) in [("early", 5), ("late", 50)] {
        let body = extended("k", id, &format!(r#","ttl":{ttl}"#));
        scene.commit_one("k", Operation::create(body)).await;
    }
    subject.advance(10 * SECOND);
    let scene = scene.reopened(subject).await;
    assert!(!scene.is_there("k", "early").await, "an expired item came back by reopening");
    assert!(scene.is_there("k", "late").await, "an item was lost by reopening");
    subject.advance(50 * SECOND);
    subject.settle().await;
    assert!(!scene.is_there("k", "late").await, "an item does not expire after reopening");
}

pub(super) async fn obligation_11_an_expiry_is_a_delete_marked_as_such(subject: &mut dyn Subject) {
    let Some(scene) = Scene::all_versions(subject, expiring()).await else {
        return;
    };
    let body = extended("k", "1", r#","ttl":5"#);
    let old = scene.commit_one("k", Operation::create(body)).await;
    scene.create("k", "other").await;
    subject.advance(6 * SECOND);
    // Created again before anything was purged.
    let new = scene.create("k", "1").await;
    subject.settle().await;
    subject.advance(6 * SECOND);
    subject.settle().await;
    scene.create("k", "another").await;
    let changes = changes_of(&scene, ALL, "1").await;
    let kinds: Vec<_> = changes.iter().map(|it| it.kind).collect();
    assert_eq!(kinds, [ChangeKind::Created, ChangeKind::Expired, ChangeKind::Created]);
    assert_eq!(changes[1].previous.as_ref(), Some(&old), "an expiry lacks the item before it");
    assert_eq!(changes[1].current, None, "an expiry shows an item that is gone");
    assert_eq!(changes[2].current.as_ref(), Some(&new));
    assert_eq!(changes[2].previous, None, "a new item seems to continue an expired one");
    assert!(changes[0].lsn < changes[1].lsn, "an expiry has no later number than the write");
    assert!(changes[1].lsn <= changes[2].lsn, "an expiry comes after what replaced the item");
}

async fn changes_of(scene: &Scene, mode: FeedMode, id: &str) -> Vec<crate::Change> {
    let changes = scene.changes(StartFrom::Beginning, mode).await;
    changes.into_iter().filter(|it| it.id.as_str() == id).collect()
}

fn narrow(seconds: u64) -> u32 {
    u32::try_from(seconds).expect("the seconds of a test are few")
}
