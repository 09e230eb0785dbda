//! Obligation 11: what each mode of the feed shows.

use crate::conformance::Subject;
use crate::conformance::harness::{
    ALL, LATEST, Scene, body, item_id, must, must_fail, settings, version_of, versions,
};
use crate::{Batch, Change, ChangeKind, ErrorKind, Item, KeyRange, Operation, StartFrom};

pub(super) async fn obligation_11_latest_version_shows_each_live_item_once(
    subject: &mut dyn Subject,
) {
    let scene = Scene::plain(subject).await;
    for number in 0..4 {
        for id in ["a", "b", "c", "d"] {
            scene.upsert("k", id, number).await;
        }
    }
    let b = scene.upsert("k", "b", 9).await;
    scene.delete("k", "c").await;
    scene.delete("k", "d").await;
    let d = scene.create("k", "d").await;
    let batch = Batch::new("k")
        .with(Operation::upsert(body("k", "f", 1)))
        .with(Operation::upsert(body("k", "e", 1)))
        .with(Operation::upsert(body("k", "f", 2)));
    scene.commit(batch).await;
    let (a, e, f) = (
        scene.existing("k", "a").await,
        scene.existing("k", "e").await,
        scene.existing("k", "f").await,
    );
    let changes = scene.changes(StartFrom::Beginning, LATEST).await;
    let expected: Vec<_> = [&a, &b, &d, &e, &f].into_iter().map(version_of).collect();
    assert_eq!(versions(&changes), expected, "the feed differs from the newest versions in order");
    for (change, item) in changes.iter().zip([a, b, d, e, f]) {
        assert_eq!(change.kind, ChangeKind::Written);
        assert_eq!(change.previous, None, "latest-version mode shows an earlier version");
        check_fields(change, &item);
    }
}

fn check_fields(change: &Change, item: &Item) {
    assert_eq!(change.current.as_ref(), Some(item), "the feed shows another item than a read");
    assert_eq!((&change.id, &change.partition_key), (&item.id, &item.partition_key));
    assert_eq!((change.lsn, change.committed_at), (item.lsn, item.written_at));
}

pub(super) async fn obligation_11_a_reader_of_latest_versions_sees_an_item_move(
    subject: &mut dyn Subject,
) {
    let scene = Scene::plain(subject).await;
    let keys = KeyRange::all();
    let mut after = scene.start(&keys, StartFrom::Beginning, LATEST).await;
    for number in 0..10 {
        let one = scene.upsert("k", "one", number).await;
        let mut expected = vec![version_of(&one)];
        if number % 3 == 0 {
            // An earlier item passes a later one.
            let two = scene.upsert("k", "two", number).await;
            let one = scene.upsert("k", "one", number).await;
            expected = vec![version_of(&two), version_of(&one)];
        }
        let (changes, next) = scene.drain_from(&keys, &after, Default::default()).await;
        assert_eq!(versions(&changes), expected);
        after = next;
    }
    scene.delete("k", "one").await;
    let (changes, _) = scene.drain_from(&keys, &after, Default::default()).await;
    assert_eq!(versions(&changes), Vec::<String>::new(), "latest-version mode shows a delete");
}

pub(super) async fn obligation_11_all_versions_show_everything_that_happened(
    subject: &mut dyn Subject,
) {
    let Some(scene) = Scene::all_versions(subject, settings()).await else {
        return;
    };
    let one = scene.create("k", "1").await;
    let two = scene.upsert("k", "1", 2).await;
    let other = scene.create("other", "1").await;
    let replace = Operation::replace(item_id("1"), body("k", "1", 3));
    let three = scene.commit_one("k", replace).await;
    let deleted = scene.delete("k", "1").await;
    let four = scene.create("k", "1").await;
    let changes = scene.changes(StartFrom::Beginning, ALL).await;
    let expected = [
        (ChangeKind::Created, Some(&one), None),
        (ChangeKind::Replaced, Some(&two), Some(&one)),
        (ChangeKind::Created, Some(&other), None),
        (ChangeKind::Replaced, Some(&three), Some(&two)),
        (ChangeKind::Deleted, None, Some(&three)),
        (ChangeKind::Created, Some(&four), None),
    ];
    let found: Vec<_> =
        changes.iter().map(|it| (it.kind, it.current.as_ref(), it.previous.as_ref())).collect();
    assert_eq!(found, expected, "the feed differs from what happened");
    for change in &changes {
        match &change.current {
            Some(item) => check_fields(change, item),
            None => {
                assert_eq!(change.lsn, deleted, "a delete does not carry its number");
                assert_eq!((change.id.as_str(), &change.partition_key), ("1", &"k".into()));
            }
        }
    }
}

pub(super) async fn obligation_11_all_versions_show_every_step_of_a_batch(
    subject: &mut dyn Subject,
) {
    let Some(scene) = Scene::all_versions(subject, settings()).await else {
        return;
    };
    let before = scene.create("k", "1").await;
    let batch = Batch::new("k")
        .with(Operation::upsert(body("k", "1", 1)))
        .with(Operation::create(body("k", "2", 0)))
        .with(Operation::read(item_id("1")))
        .with(Operation::upsert(body("k", "1", 2)))
        .with(Operation::delete(item_id("1")))
        .with(Operation::create(body("k", "1", 3)))
        .with(Operation::delete(item_id("2")));
    let outcome = scene.commit(batch).await;
    let item = |index: usize| outcome.results[index].item();
    let changes = scene.changes(StartFrom::Beginning, ALL).await;
    let expected = [
        (ChangeKind::Created, Some(&before), None),
        (ChangeKind::Replaced, item(0), Some(&before)),
        (ChangeKind::Created, item(1), None),
        (ChangeKind::Replaced, item(3), item(0)),
        (ChangeKind::Deleted, None, item(3)),
        (ChangeKind::Created, item(5), None),
        (ChangeKind::Deleted, None, item(1)),
    ];
    let found: Vec<_> =
        changes.iter().map(|it| (it.kind, it.current.as_ref(), it.previous.as_ref())).collect();
    assert_eq!(found, expected, "the feed differs from the steps of the batch");
    assert!(changes[1..].iter().all(|it| it.lsn == outcome.lsn), "a step has another number");
}

pub(super) async fn obligation_11_all_versions_need_a_retention(subject: &mut dyn Subject) {
    let scene = Scene::plain(subject).await;
    let feed = &scene.container.feed;
    scene.create("k", "1").await;
    for from in [StartFrom::Beginning, StartFrom::Now] {
        let refused = feed.start(&KeyRange::all(), from, ALL).await;
        must_fail(refused, ErrorKind::Unsupported, "read versions that are not kept");
    }
    if !scene.store.capabilities().all_versions {
        return;
    }
    // Switched on later, it shows what happens from then on.
    let kept = settings().all_versions_retention(crate::conformance::harness::HOUR);
    must(scene.store.replace(&scene.name, kept, None).await);
    let before = scene.existing("k", "1").await;
    let now = scene.start(&KeyRange::all(), StartFrom::Now, ALL).await;
    let after = scene.upsert("k", "1", 1).await;
    for start in [now, scene.start(&KeyRange::all(), StartFrom::Beginning, ALL).await] {
        let (changes, _) = scene.drain_from(&KeyRange::all(), &start, Default::default()).await;
        let last = changes.last().expect("the change after switching on is shown");
        assert_eq!(last.current.as_ref(), Some(&after));
        assert_eq!(last.previous.as_ref(), Some(&before), "the version before is not shown");
    }
}
