//! Obligation 7: ranges divide the key space as Cosmos DB hashes. Obligation 8 for the ranges
//! themselves.

use crate::conformance::Subject;
use crate::conformance::harness::{
    LATEST, Scene, body, must, must_fail, settings, version_of, versions,
};
use crate::{
    Batch, ContainerSettings, EffectiveKey, ErrorKind, HashKind, KeyRange, Operation, PageSize,
    PartitionKey, PartitionKeyDefinition, RangeId, RangeInfo, ScanScope, StartFrom,
};

/// Checks that ranges cover the key space without gap or overlap.
#[track_caller]
pub(super) fn check_tiles(ranges: &[RangeInfo]) {
    let mut next = EffectiveKey::MIN;
    for range in ranges {
        let (min, max) = (range.keys.min(), range.keys.max());
        assert_eq!(
            min.trimmed(),
            next.trimmed(),
            "there is a gap or overlap before {}",
            range.keys
        );
        next = max.clone();
    }
    assert_eq!(next.trimmed(), EffectiveKey::MAX.trimmed(), "the last range ends too early");
    let mut ids: Vec<RangeId> = ranges.iter().map(|it| it.id).collect();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), ranges.len(), "two ranges have the same id");
}

pub(super) async fn obligation_07_ranges_tile_the_key_space(subject: &mut dyn Subject) {
    for count in [1, 2, 3, 8, 100] {
        let name = format!("ranges-{count}");
        let scene = Scene::named(subject, &name, settings().ranges(count)).await;
        let ranges = scene.ranges().await;
        assert_eq!(ranges.len(), usize::try_from(count).expect("a small number"));
        check_tiles(&ranges);
        assert!(ranges.iter().all(|it| it.parents.is_empty()), "a first range has parents");
        let scene = scene.reopened(subject).await;
        assert_eq!(scene.ranges().await, ranges, "ranges changed when the store was reopened");
    }
}

pub(super) async fn obligation_07_a_key_lies_where_cosmos_db_puts_it(subject: &mut dyn Subject) {
    let definitions = [
        must(PartitionKeyDefinition::new(["/pk"], HashKind::V1)),
        must(PartitionKeyDefinition::hash("/pk")),
        must(PartitionKeyDefinition::multi_hash(["/pk"])),
        must(PartitionKeyDefinition::multi_hash(["/pk", "/id"])),
    ];
    let known = must(definitions[1].effective(&PartitionKey::from("a")));
    assert_eq!(known.to_string(), "3A5381E1114EB8D3FCC90795045B49B7", "V2 hashes \"a\" otherwise");
    for (number, definition) in definitions.into_iter().enumerate() {
        let settings = ContainerSettings::new(definition.clone()).ranges(4);
        let scene = Scene::named(subject, &format!("hash-{number}"), settings).await;
        let ranges = scene.ranges().await;
        check_tiles(&ranges);
        let mut used = vec![0; ranges.len()];
        for index in 0..40 {
            let text = body(&format!("key-{index}"), &format!("id-{index}"), index);
            let key = must(definition.extract(&text));
            let place = must(definition.effective(&key));
            let holder = ranges.iter().position(|it| it.keys.contains(&place));
            let holder = holder.expect("ranges have no gaps");
            let mut starts = Vec::new();
            for range in &ranges {
                starts.push(scene.start(&range.keys, StartFrom::Now, LATEST).await);
            }
            scene.commit(Batch::new(key.clone()).with(Operation::create(text))).await;
            for (at, (range, start)) in ranges.iter().zip(&starts).enumerate() {
                let size = PageSize::default();
                let found = scene.drain_from(&range.keys, start, size).await.0.len();
                let expected = usize::from(at == holder);
                assert_eq!(found, expected, "{key} hashes to {place}, seen in {}", range.keys);
            }
            used[holder] += 1;
        }
        assert!(!used.contains(&0), "the ranges are used unevenly: {used:?}");
        for (range, expected) in ranges.iter().zip(used) {
            let items = scene.scan(&ScanScope::Keys(range.keys.clone()), PageSize::default()).await;
            assert_eq!(items.len(), expected, "a scan of {} differs from its feed", range.keys);
        }
    }
}

pub(super) async fn obligation_07_keys_across_ranges_are_refused(subject: &mut dyn Subject) {
    let scene = Scene::new(subject, settings().ranges(2)).await;
    let feed = &scene.container.feed;
    let ranges = scene.ranges().await;
    let refused = feed.start(&KeyRange::all(), StartFrom::Beginning, LATEST).await;
    must_fail(refused, ErrorKind::RangeMoved, "start on keys of several ranges");
    let start = scene.start(&ranges[0].keys, StartFrom::Beginning, LATEST).await;
    let refused = feed.read(&KeyRange::all(), &start, PageSize::default()).await;
    must_fail(refused, ErrorKind::RangeMoved, "read keys of several ranges");
    let refused = feed.wait(&KeyRange::all(), &start).await;
    must_fail(refused, ErrorKind::RangeMoved, "wait for keys of several ranges");

    // A part of a range, down to one logical partition, is fine.
    let definition = &scene.container.info.settings.partition_key;
    for key in (0..10).map(|it| format!("key-{it}")) {
        let item = scene.create(&key, "1").await;
        scene.upsert(&format!("other-{key}"), "1", 0).await;
        let keys = must(definition.range_of(&PartitionKey::from(key)));
        let start = scene.start(&keys, StartFrom::Beginning, LATEST).await;
        let (changes, _) = scene.drain_from(&keys, &start, PageSize::default()).await;
        assert_eq!(versions(&changes), [version_of(&item)], "the feed of one key shows others");
    }
}

pub(super) async fn obligation_08_a_split_makes_two_ranges_of_one(subject: &mut dyn Subject) {
    let scene = Scene::new(subject, settings().ranges(2)).await;
    let ranges = scene.ranges().await;
    let parent = &ranges[0];
    if !scene.store.capabilities().split {
        let refused = scene.store.split(&scene.name, parent.id, None).await;
        must_fail(refused, ErrorKind::Unsupported, "split though the backend cannot");
        return;
    }
    for at in ["", "FF", "3FFFFFFF"] {
        let at = must(at.parse::<EffectiveKey>());
        let refused = scene.store.split(&scene.name, parent.id, Some(&at)).await;
        must_fail(refused, ErrorKind::Invalid, "split a range outside of it");
    }
    let refused = scene.store.split(&scene.name, RangeId(4_000_000), None).await;
    must_fail(refused, ErrorKind::NotFound, "split a range that never was");
    assert_eq!(scene.ranges().await, ranges, "a refused split changed the ranges");

    let at = must("07".parse::<EffectiveKey>());
    let children = must(scene.store.split(&scene.name, parent.id, Some(&at)).await);
    assert_eq!(children.len(), 2);
    assert_eq!(children[0].keys.max().trimmed(), at.trimmed(), "the split is elsewhere");
    assert!(children.iter().all(|it| it.parents == [parent.id]), "children know no parent");
    let again = scene.store.split(&scene.name, parent.id, None).await;
    must_fail(again, ErrorKind::NotFound, "split a range again");
    let grandchildren = must(scene.store.split(&scene.name, children[1].id, None).await);
    let family = [parent.id, children[1].id];
    assert!(grandchildren.iter().all(|it| it.parents == family), "the parents are not in order");
    let now = scene.ranges().await;
    check_tiles(&now);
    assert_eq!(now.len(), 4);
    let all = [&children[0], &grandchildren[0], &grandchildren[1], &ranges[1]];
    assert!(now.iter().eq(all), "the ranges are not what the splits returned: {now:?}");
    let scene = scene.reopened(subject).await;
    assert_eq!(scene.ranges().await, now, "splits were lost by reopening");
    let more = must(scene.store.split(&scene.name, now[0].id, None).await);
    let known = [&ranges[..], &children, &grandchildren].concat();
    let is_new = |it: &RangeInfo| known.iter().all(|old| old.id != it.id);
    assert!(more.iter().all(is_new), "the id of a range was used again");
}

pub(super) async fn obligation_08_a_split_divides_the_keys_of_every_kind(
    subject: &mut dyn Subject,
) {
    let definitions = [
        must(PartitionKeyDefinition::new(["/pk"], HashKind::V1)),
        must(PartitionKeyDefinition::hash("/pk")),
        must(PartitionKeyDefinition::multi_hash(["/pk", "/id"])),
    ];
    for (number, definition) in definitions.into_iter().enumerate() {
        let settings = ContainerSettings::new(definition.clone());
        let scene = Scene::named(subject, &format!("halves-{number}"), settings).await;
        if !scene.store.capabilities().split {
            return;
        }
        let place = |key: usize| must(definition.range_of(&PartitionKey::from(format!("{key}"))));
        let places: Vec<KeyRange> = (0..256).map(place).collect();
        // The whole, then its first part, then the last part of all.
        for split in [0, 0, 2] {
            let parent = scene.ranges().await[split].clone();
            let children = must(scene.store.split(&scene.name, parent.id, None).await);
            let count = |keys: &KeyRange| places.iter().filter(|it| keys.covers(it)).count();
            let all = count(&parent.keys);
            for child in children {
                let part = count(&child.keys);
                assert!(
                    all / 4 < part,
                    "{} of the {all} keys of {} are in its half {}",
                    part,
                    parent.keys,
                    child.keys
                );
            }
        }
    }
}

pub(super) async fn obligation_08_a_merge_makes_one_range_of_two(subject: &mut dyn Subject) {
    let scene = Scene::new(subject, settings().ranges(4)).await;
    let ranges = scene.ranges().await;
    let merge =
        async |left: RangeId, right: RangeId| scene.store.merge(&scene.name, left, right).await;
    if !scene.store.capabilities().merge {
        let refused = merge(ranges[0].id, ranges[1].id).await;
        must_fail(refused, ErrorKind::Unsupported, "merge though the backend cannot");
        return;
    }
    for (left, right) in [(0, 2), (1, 0), (0, 0), (3, 0)] {
        let refused = merge(ranges[left].id, ranges[right].id).await;
        must_fail(refused, ErrorKind::Invalid, "merge ranges that are not neighbours in order");
    }
    let refused = merge(ranges[0].id, RangeId(4_000_000)).await;
    must_fail(refused, ErrorKind::NotFound, "merge a range that never was");
    assert_eq!(scene.ranges().await, ranges, "a refused merge changed the ranges");
    let merged = must(merge(ranges[1].id, ranges[2].id).await);
    assert_eq!(merged.parents, [ranges[1].id, ranges[2].id], "a merged range knows no parents");
    assert!(merged.keys.covers(&ranges[1].keys) && merged.keys.covers(&ranges[2].keys));
    let now = scene.ranges().await;
    check_tiles(&now);
    assert!(
        now.iter().eq([&ranges[0], &merged, &ranges[3]]),
        "the ranges are not what it returned"
    );
    let again = merge(ranges[1].id, ranges[2].id).await;
    must_fail(again, ErrorKind::NotFound, "merge ranges again");
    let scene = scene.reopened(subject).await;
    assert_eq!(scene.ranges().await, now, "a merge was lost by reopening");
}
