//! Obligation 6 for scans: pages are complete, in order, and show each item once.

use crate::conformance::Subject;
use crate::conformance::harness::{Scene, extended, must, must_fail, settings};
use crate::{
    Batch, ErrorKind, Item, KeyRange, Operation, PageSize, PartitionKey, ScanContinuation,
    ScanScope,
};

async fn filled(subject: &dyn Subject) -> (Scene, Vec<Item>) {
    let scene = Scene::new(subject, settings().ranges(3)).await;
    let mut items = Vec::new();
    for key in 0..9 {
        let key = format!("key-{key}");
        let mut batch = Batch::new(key.as_str());
        // Written in another order than they come back.
        for id in ["b", "a", "ä", "aa", "10", "9", " "] {
            batch = batch.with(Operation::create(extended(&key, id, "")));
        }
        let results = scene.commit(batch).await.results;
        items.extend(results.iter().filter_map(|it| it.item().cloned()));
    }
    items.sort_by_key(|it| (scene.effective(name(&it.partition_key)), it.id.clone()));
    (scene, items)
}

fn name(key: &PartitionKey) -> &str {
    match key.components() {
        [crate::PartitionKeyComponent::String(text)] => text,
        _ => panic!("{key} is not one of the keys of this test"),
    }
}

pub(super) async fn obligation_06_a_scan_returns_every_item_once_in_key_order(
    subject: &mut dyn Subject,
) {
    let (scene, items) = filled(subject).await;
    let all = ScanScope::Keys(KeyRange::all());
    for size in (1..8).chain([62, 63, 64, 1000]) {
        let found = scene.scan(&all, PageSize::items(size)).await;
        assert_eq!(found, items, "a scan in pages of {size} differs from the items in key order");
    }
    let small = PageSize { items_max: 1000, bytes_max: 1 };
    assert_eq!(scene.scan(&all, small).await, items, "a scan in pages of few bytes differs");
    assert_eq!(scene.scan(&all, PageSize::items(0)).await, items, "a page of no items is no end");
    let page = must(scene.container.documents.scan(&all, None, PageSize::items(5)).await);
    assert!(page.items.len() <= 5, "a page of a scan holds more items than were asked for");
}

pub(super) async fn obligation_06_a_scan_keeps_to_its_partition_or_keys(subject: &mut dyn Subject) {
    let (scene, items) = filled(subject).await;
    for key in (0..9).map(|it| PartitionKey::from(format!("key-{it}"))) {
        let expected: Vec<_> = items.iter().filter(|it| it.partition_key == key).cloned().collect();
        for size in [1, 3, 100] {
            let scope = ScanScope::Partition(key.clone());
            assert_eq!(scene.scan(&scope, PageSize::items(size)).await, expected, "{key}");
        }
    }
    let nobody = ScanScope::Partition("nobody".into());
    assert_eq!(scene.scan(&nobody, PageSize::default()).await, []);
    // Parts of ranges, whole ranges, and keys across ranges.
    for parts in [2, 3, 5] {
        let mut found = Vec::new();
        for keys in must(KeyRange::divide(parts)) {
            let part = scene.scan(&ScanScope::Keys(keys.clone()), PageSize::items(4)).await;
            for item in &part {
                let key = scene.effective(name(&item.partition_key));
                assert!(keys.contains(&key), "a scan of {keys} returned an item at {key}");
            }
            found.extend(part);
        }
        assert_eq!(found, items, "the parts of the key space do not add up to the whole");
    }
}

pub(super) async fn obligation_06_a_scan_goes_on_while_items_come_and_go(
    subject: &mut dyn Subject,
) {
    let (scene, items) = filled(subject).await;
    let scope = ScanScope::Keys(KeyRange::all());
    let (mut found, mut after, mut round) = (Vec::new(), None::<ScanContinuation>, 0);
    loop {
        let size = PageSize::items(3);
        let page = must(scene.container.documents.scan(&scope, after.as_ref(), size).await);
        found.extend(page.items);
        after = page.continuation;
        if after.is_none() {
            break;
        }
        // The last item seen disappears, and new ones appear before and after it.
        let last = found.last().expect("a page with a continuation has items").clone();
        let key = name(&last.partition_key).to_owned();
        if found.len() % 2 == 0 {
            scene.delete(&key, last.id.as_str()).await;
        }
        scene.create(&key, &format!("\u{1}new-{round}")).await;
        scene.create(&key, &format!("zzz-new-{round}")).await;
        round += 1;
    }
    let old = |it: &Item| items.iter().any(|item| item.etag == it.etag);
    let (kept, new): (Vec<_>, Vec<_>) = found.into_iter().partition(old);
    assert_eq!(kept, items, "a scan lost or repeated items that were there all the time");
    let mut seen = new.iter().map(|it| it.etag.as_str()).collect::<Vec<_>>();
    seen.sort_unstable();
    let count = seen.len();
    seen.dedup();
    assert_eq!(seen.len(), count, "a scan returned a new item twice");
}

pub(super) async fn obligation_06_a_foreign_scan_continuation_is_refused(
    subject: &mut dyn Subject,
) {
    let (scene, _) = filled(subject).await;
    let documents = &scene.container.documents;
    let all = ScanScope::Keys(KeyRange::all());
    for text in ["", "x", "....", "AAAA", "\u{0}", "ä", "ffffffffffffffffffffffffffffffff"] {
        let after = ScanContinuation::new(text);
        let refused = documents.scan(&all, Some(&after), PageSize::default()).await;
        must_fail(refused, ErrorKind::Invalid, &format!("go on with a scan from {text:?}"));
    }
    let page = must(documents.scan(&all, None, PageSize::items(1)).await);
    let after = page.continuation.expect("there are more items");
    let other = ScanScope::Partition("key-1".into());
    let refused = documents.scan(&other, Some(&after), PageSize::default()).await;
    must_fail(refused, ErrorKind::Invalid, "go on with another scan");
}

pub(super) async fn obligation_06_a_scan_goes_on_after_reopening(subject: &mut dyn Subject) {
    let (scene, items) = filled(subject).await;
    let all = ScanScope::Keys(KeyRange::all());
    let first = must(scene.container.documents.scan(&all, None, PageSize::items(10)).await);
    let after = first.continuation.expect("there are more items");
    let after = ScanContinuation::new(after.as_str());
    let scene = scene.reopened(subject).await;
    let rest =
        must(scene.container.documents.scan(&all, Some(&after), PageSize::items(1000)).await);
    let found: Vec<_> = first.items.into_iter().chain(rest.items).collect();
    assert_eq!(found, items, "a scan that was continued after reopening differs");
}
