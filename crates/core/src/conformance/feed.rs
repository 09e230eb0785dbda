//! Obligation 9: commits are numbered and stay whole. Obligation 13: a continuation is text that
//! means the same every time.

use std::collections::BTreeMap;

use crate::conformance::Subject;
use crate::conformance::harness::{
    ALL, LATEST, Scene, body, item_id, must, must_fail, settings, versions,
};
use crate::{
    Batch, Change, Continuation, ErrorKind, FeedMode, KeyRange, Lsn, Operation, PageSize, RangeId,
    StartFrom,
};

pub(super) async fn obligation_09_numbers_of_a_range_strictly_increase(subject: &mut dyn Subject) {
    let mut scene = Scene::new(subject, settings().ranges(3)).await;
    let mut newest: BTreeMap<RangeId, Lsn> = BTreeMap::new();
    for round in 0..3 {
        let ranges = scene.ranges().await;
        for number in 0..30 {
            let key = format!("key-{}", number % 11);
            let range = ranges.iter().find(|it| it.keys.contains(&scene.effective(&key)));
            let range = range.expect("ranges have no gaps").id;
            let exists = scene.is_there(&key, "item").await;
            let operation = match (number % 3, exists) {
                (0, true) => Operation::delete(item_id("item")),
                _ => Operation::upsert(body(&key, "item", number)),
            };
            let lsn = scene.commit(Batch::new(key.as_str()).with(operation)).await.lsn;
            let last = newest.insert(range, lsn);
            let last = last.unwrap_or(Lsn::ZERO);
            assert!(last < lsn, "commit {lsn} of range {range} came after commit {last}");
            if let Some(item) = scene.read(&key, "item").await {
                assert_eq!(item.lsn, lsn, "an item does not carry the number of its commit");
            }
        }
        if round < 2 {
            scene = scene.reopened(subject).await;
        }
    }
}

pub(super) async fn obligation_09_a_number_is_not_used_again_after_a_delete(
    subject: &mut dyn Subject,
) {
    let mut scene = Scene::plain(subject).await;
    let mut last = Lsn::ZERO;
    for _ in 0..3 {
        let created = scene.create("k", "1").await.lsn;
        assert!(last < created, "number {created} was used before");
        last = scene.delete("k", "1").await;
        assert!(created < last, "a delete has no later number than the item it removes");
        // Nothing is stored now that could remember the number.
        scene = scene.reopened(subject).await;
    }
}

pub(super) async fn obligation_09_a_page_never_cuts_a_batch(subject: &mut dyn Subject) {
    let scene = Scene::plain(subject).await;
    let sizes = [1, 5, 2, 1, 4, 3, 7, 1, 1, 2];
    fill(&scene, &sizes).await;
    check_pages(&scene, LATEST, sizes.iter().sum()).await;
}

pub(super) async fn obligation_09_a_page_of_all_versions_never_cuts_a_batch(
    subject: &mut dyn Subject,
) {
    let Some(scene) = Scene::all_versions(subject, settings()).await else {
        return;
    };
    let sizes = [1, 5, 2, 1, 4, 3, 7, 1, 1, 2];
    fill(&scene, &sizes).await;
    let mut batch = Batch::new("k");
    for _ in 0..3 {
        batch = batch.with(Operation::upsert(body("k", "again", 1)));
    }
    scene.commit(batch.with(Operation::delete(item_id("again")))).await;
    check_pages(&scene, ALL, sizes.iter().sum::<usize>() + 4).await;
}

async fn fill(scene: &Scene, sizes: &[usize]) {
    for (number, size) in sizes.iter().enumerate() {
        let mut batch = Batch::new("k");
        for index in 0..*size {
            batch = batch.with(Operation::create(body("k", &format!("{number}-{index}"), 0)));
        }
        scene.commit(batch).await;
    }
}

async fn check_pages(scene: &Scene, mode: FeedMode, count: usize) {
    let keys = KeyRange::all();
    let whole = scene.changes(StartFrom::Beginning, mode).await;
    assert_eq!(whole.len(), count, "the feed does not show every change");
    let largest = whole.chunk_by(|one, next| one.lsn == next.lsn).map(<[Change]>::len).max();
    let sizes = (1..=12).chain([1000]).map(PageSize::items);
    for size in sizes.chain([PageSize { items_max: 1000, bytes_max: 1 }, PageSize::items(0)]) {
        let mut after = scene.start(&keys, StartFrom::Beginning, mode).await;
        let mut found: Vec<Change> = Vec::new();
        loop {
            let page = must(scene.container.feed.read(&keys, &after, size).await);
            let first = page.changes.first().map(|it| it.lsn);
            let last = found.last().map(|it| it.lsn);
            assert!(
                first.is_none() || last < first,
                "a page in {mode:?} with {size:?} begins with commit {first:?} after {last:?}: \
                 the commit was cut or shown again",
            );
            assert!(page.changes.iter().all(|it| it.lsn <= page.newest), "newest is not newest");
            let limit = size.items_max.max(1) + largest.unwrap_or(0);
            assert!(page.changes.len() < limit, "a page is far larger than {size:?}");
            let is_dry = page.changes.is_empty() && page.continuation == after;
            found.extend(page.changes);
            after = page.continuation;
            if is_dry {
                break;
            }
        }
        assert_eq!(found, whole, "pages of {size:?} do not add up to the whole feed");
    }
}

pub(super) async fn obligation_09_the_newest_number_tells_the_lag(subject: &mut dyn Subject) {
    let scene = Scene::plain(subject).await;
    let keys = KeyRange::all();
    let start = scene.start(&keys, StartFrom::Beginning, LATEST).await;
    for number in 0..5 {
        let written = scene.upsert("k", &format!("item-{number}"), number).await;
        let page = must(scene.container.feed.read(&keys, &start, PageSize::items(1)).await);
        assert!(written.lsn <= page.newest, "a page does not know the newest commit");
        let first = page.changes.first().expect("there are changes");
        assert!(first.lsn <= page.newest);
    }
}

pub(super) async fn obligation_13_reading_twice_gives_the_same_changes_first(
    subject: &mut dyn Subject,
) {
    let scene = Scene::plain(subject).await;
    let keys = KeyRange::all();
    fill(&scene, &[1, 2, 3, 1, 2]).await;
    let start = scene.start(&keys, StartFrom::Beginning, LATEST).await;
    let size = PageSize::items(2);
    let mut places = vec![start.clone()];
    loop {
        let after = places.last().expect("there is a start");
        let page = must(scene.container.feed.read(&keys, after, size).await);
        let again = must(scene.container.feed.read(&keys, after, size).await);
        assert_eq!(page.changes, again.changes, "two reads of {after} differ");
        assert_eq!(page.continuation, again.continuation, "two reads of {after} end elsewhere");
        if page.changes.is_empty() {
            break;
        }
        places.push(page.continuation);
    }
    let mut before = Vec::new();
    for place in &places {
        before.push(versions(&scene.drain_from(&keys, place, size).await.0));
    }
    scene.create("k", "more").await;
    let text = |it: &Continuation| must(Continuation::new(it.as_str()));
    let places: Vec<_> = places.iter().map(text).collect();
    let scene = scene.reopened(subject).await;
    for (place, before) in places.iter().zip(before) {
        let after = versions(&scene.drain_from(&keys, place, size).await.0);
        assert!(after.starts_with(&before), "{place}: first {before:?}, then {after:?}");
        assert_eq!(after.len(), before.len() + 1, "{place}: a later commit is missing");
    }
}

pub(super) async fn obligation_13_a_foreign_continuation_is_refused(subject: &mut dyn Subject) {
    let scene = Scene::plain(subject).await;
    let (keys, feed) = (KeyRange::all(), &scene.container.feed);
    for text in ["", "x", "0", "\u{0}", "\"1\"", "....", "{}"] {
        let after = must(Continuation::new(text));
        let refused = feed.read(&keys, &after, PageSize::default()).await;
        must_fail(refused, ErrorKind::Invalid, &format!("read from {text:?}"));
        let refused = feed.wait(&keys, &after).await;
        must_fail(refused, ErrorKind::Invalid, &format!("wait at {text:?}"));
    }
}
