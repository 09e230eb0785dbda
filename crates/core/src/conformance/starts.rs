//! Obligation 12: where a reader can begin, and what happens when that is too long ago.

use std::time::Duration;

use crate::conformance::Subject;
use crate::conformance::harness::{
    ALL, HOUR, LATEST, Scene, must, must_fail, settings, version_of, versions,
};
use crate::{ErrorKind, FeedMode, KeyRange, PageSize, StartFrom, Timestamp};

const MINUTE: Duration = Duration::from_secs(60);

pub(super) async fn obligation_12_the_beginning_shows_everything(subject: &mut dyn Subject) {
    let scene = Scene::plain(subject).await;
    let keys = KeyRange::all();
    let early = scene.start(&keys, StartFrom::Beginning, LATEST).await;
    let mut expected = Vec::new();
    for number in 0..5 {
        expected.push(version_of(&scene.create("k", &format!("item-{number}")).await));
        subject.advance(MINUTE);
    }
    let late = scene.start(&keys, StartFrom::Beginning, LATEST).await;
    for start in [early, late] {
        let (changes, _) = scene.drain_from(&keys, &start, PageSize::items(2)).await;
        assert_eq!(versions(&changes), expected, "the beginning is not the beginning");
    }
}

pub(super) async fn obligation_12_now_is_the_moment_of_asking(subject: &mut dyn Subject) {
    let scene = Scene::plain(subject).await;
    check_now(&scene, LATEST).await;
}

pub(super) async fn obligation_12_now_in_all_versions_is_the_moment_of_asking(
    subject: &mut dyn Subject,
) {
    if let Some(scene) = Scene::all_versions(subject, settings()).await {
        check_now(&scene, ALL).await;
    }
}

async fn check_now(scene: &Scene, mode: FeedMode) {
    let keys = KeyRange::all();
    let (mut starts, mut expected) = (Vec::new(), Vec::new());
    for number in 0..6 {
        starts.push(scene.start(&keys, StartFrom::Now, mode).await);
        expected.push(version_of(&scene.create("k", &format!("item-{number}")).await));
    }
    // Only now is anything read.
    for (place, start) in starts.iter().enumerate() {
        let (changes, _) = scene.drain_from(&keys, start, PageSize::items(2)).await;
        assert_eq!(versions(&changes), expected[place..], "now was not pinned when it was asked");
    }
    let now = scene.start(&keys, StartFrom::Now, mode).await;
    let (changes, _) = scene.drain_from(&keys, &now, PageSize::default()).await;
    assert_eq!(versions(&changes), Vec::<String>::new(), "now shows the past");
}

pub(super) async fn obligation_12_a_time_shows_what_was_committed_since(subject: &mut dyn Subject) {
    let scene = Scene::plain(subject).await;
    check_times(subject, &scene, LATEST).await;
}

pub(super) async fn obligation_12_a_time_works_in_all_versions_too(subject: &mut dyn Subject) {
    if let Some(scene) = Scene::all_versions(subject, settings()).await {
        check_times(subject, &scene, ALL).await;
    }
}

async fn check_times(subject: &dyn Subject, scene: &Scene, mode: FeedMode) {
    let keys = KeyRange::all();
    let (mut times, mut expected) = (Vec::new(), Vec::new());
    for number in 0..5 {
        let item = scene.create("k", &format!("item-{number}")).await;
        times.push(item.written_at);
        expected.push(version_of(&item));
        subject.advance(MINUTE);
    }
    let minute_millis = 60_000;
    let earlier = |time: Timestamp| Timestamp::from_millis(time.as_millis() - minute_millis / 2);
    for (place, time) in times.iter().enumerate() {
        for from in [*time, earlier(*time)] {
            let start = scene.start(&keys, StartFrom::Time(from), mode).await;
            for size in [1, 2, 100] {
                let (changes, _) = scene.drain_from(&keys, &start, PageSize::items(size)).await;
                assert_eq!(versions(&changes), expected[place..], "from {from:?}");
            }
        }
    }
    // A time to come: what is committed until then is left out.
    let last = times.last().expect("there were commits").plus(3 * MINUTE);
    let start = scene.start(&keys, StartFrom::Time(last), mode).await;
    scene.create("k", "too-early").await;
    subject.advance(3 * MINUTE);
    let late = scene.create("k", "late").await;
    let (changes, next) = scene.drain_from(&keys, &start, PageSize::items(1)).await;
    assert_eq!(versions(&changes), [version_of(&late)], "a start in the future");
    let later = scene.create("k", "later").await;
    let (changes, _) = scene.drain_from(&keys, &next, PageSize::items(1)).await;
    assert_eq!(versions(&changes), [version_of(&later)], "a reader that began at a time goes on");
}

pub(super) async fn obligation_12_a_position_that_is_too_old_is_a_typed_error(
    subject: &mut dyn Subject,
) {
    let Some(scene) = Scene::all_versions(subject, settings()).await else {
        return;
    };
    let (keys, feed) = (KeyRange::all(), &scene.container.feed);
    let before = scene.start(&keys, StartFrom::Beginning, ALL).await;
    let latest = scene.start(&keys, StartFrom::Beginning, LATEST).await;
    scene.create("k", "old-1").await;
    let between = scene.start(&keys, StartFrom::Now, ALL).await;
    scene.create("k", "old-2").await;
    let behind = scene.start(&keys, StartFrom::Now, ALL).await;
    subject.advance(HOUR / 2);
    subject.settle().await;
    assert_eq!(scene.drain_from(&keys, &before, PageSize::items(1)).await.0.len(), 2);
    subject.advance(HOUR);
    let new = scene.create("k", "new").await;
    subject.settle().await;
    for expired in [&before, &between] {
        let refused = feed.read(&keys, expired, PageSize::default()).await;
        must_fail(refused, ErrorKind::PositionExpired, "read versions that are no longer kept");
    }
    // Nothing is missing after the last old commit, nor in the newest versions.
    let (changes, _) = scene.drain_from(&keys, &behind, PageSize::default()).await;
    assert_eq!(versions(&changes), [version_of(&new)], "a position within the retention failed");
    let changes = scene.changes(StartFrom::Beginning, ALL).await;
    assert_eq!(versions(&changes), [version_of(&new)], "the beginning is what is still kept");
    assert_eq!(scene.drain_from(&keys, &latest, PageSize::default()).await.0.len(), 3);
    let scene = scene.reopened(subject).await;
    let refused = scene.container.feed.read(&keys, &before, PageSize::default()).await;
    must_fail(refused, ErrorKind::PositionExpired, "read from there after reopening");
}

pub(super) async fn obligation_12_time_in_a_range_never_goes_back(subject: &mut dyn Subject) {
    let scene = Scene::plain(subject).await;
    let mut last = Timestamp::EPOCH;
    for number in 0..10 {
        let item = scene.upsert("k", "1", number).await;
        assert!(last <= item.written_at, "a later commit has an earlier time");
        last = item.written_at;
        subject.advance(Duration::from_millis(1));
    }
    let keys = KeyRange::all();
    let now = must(scene.container.feed.start(&keys, StartFrom::Now, LATEST).await);
    assert_eq!(scene.drain_from(&keys, &now, PageSize::default()).await.0.len(), 0);
}
