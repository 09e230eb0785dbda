//! Obligation 8: a split or merge keeps every item, every etag and every position.

use crate::conformance::Subject;
use crate::conformance::follower::Follower;
use crate::conformance::harness::{
    ALL, HOUR, LATEST, Scene, body, must, must_fail, settings, version_of, versions,
};
use crate::conformance::ranges::check_tiles;
use crate::{
    Batch, Change, Continuation, EffectiveKey, ErrorKind, FeedMode, Item, KeyRange, Lsn, Operation,
    PageSize, StartFrom,
};

/// Everything that was committed, in order, and every place a reader may have stopped at.
struct Journal {
    mode: FeedMode,
    written: Vec<(EffectiveKey, Item)>,
    places: Vec<(KeyRange, Continuation, usize)>,
}

impl Journal {
    /// Two items of each key in one batch, then one of them again; places before and behind each.
    async fn write(&mut self, scene: &Scene, keys: &[String]) {
        for key in keys {
            self.remember_places(scene).await;
            let number = self.written.len();
            let mut batch = Batch::new(key.as_str())
                .with(Operation::upsert(body(key, "state", number)))
                .with(Operation::create(body(key, &format!("event-{number}"), number)));
            if number.is_multiple_of(4) {
                batch.operations.reverse();
            }
            let outcome = scene.commit(batch).await;
            for item in outcome.results.iter().filter_map(|it| it.item()) {
                self.written.push((scene.effective(key), item.clone()));
            }
        }
        self.remember_places(scene).await;
    }

    async fn remember_places(&mut self, scene: &Scene) {
        for range in scene.ranges().await {
            let now = scene.start(&range.keys, StartFrom::Now, self.mode).await;
            self.places.push((range.keys, now, self.written.len()));
        }
    }

    /// What a reader of `keys` must still see if it has seen the first `from` entries.
    fn expected(&self, keys: &KeyRange, from: usize) -> Vec<&Item> {
        let rest = self.written.iter().enumerate().skip(from);
        let mine = rest.filter(|(_, (key, _))| keys.contains(key));
        let is_newest = |place: usize, item: &Item| {
            let later = self.written.iter().skip(place + 1);
            !later
                .into_iter()
                .any(|(_, it)| it.id == item.id && it.partition_key == item.partition_key)
        };
        let shown = mine.filter(|(place, (_, it))| self.mode == ALL || is_newest(*place, it));
        shown.map(|(_, (_, item))| item).collect()
    }

    /// From every place nothing is lost, and the commits of each key come in order.
    async fn check(&self, scene: &Scene, stage: &str) {
        for (keys, after, from) in &self.places {
            let mut follower = Follower::new(keys.clone(), after.clone());
            follower.catch_up(&scene.container, PageSize::items(1 + from % 3)).await;
            let expected = self.expected(keys, *from);
            let names: Vec<String> = expected.iter().map(|it| version_of(it)).collect();
            // A duplicate is allowed; what counts is when something is seen first.
            let mut first: Vec<&Change> = Vec::new();
            for change in &follower.seen {
                let name = versions(std::slice::from_ref(change)).remove(0);
                if names.contains(&name) && !first.iter().any(|it| it.current == change.current) {
                    first.push(change);
                }
            }
            for item in &expected {
                let of_key = |it: &&&Item| it.partition_key == item.partition_key;
                let order: Vec<_> = expected.iter().filter(of_key).map(|it| &it.etag).collect();
                let seen = first.iter().filter(|it| it.partition_key == item.partition_key);
                let seen: Vec<_> = seen.filter_map(|it| it.current.as_ref()).collect();
                let seen: Vec<_> = seen.iter().map(|it| &it.etag).collect();
                assert_eq!(
                    seen, order,
                    "{stage}: from {after}, taken on {keys} before write {from}, the commits of \
                     {} are lost or out of order",
                    item.partition_key,
                );
            }
        }
    }
}

pub(super) async fn obligation_08_positions_survive_splits_and_merges(subject: &mut dyn Subject) {
    let scene = Scene::plain(subject).await;
    check_moves(subject, scene, LATEST).await;
}

pub(super) async fn obligation_08_positions_in_all_versions_survive_them_too(
    subject: &mut dyn Subject,
) {
    if let Some(scene) = Scene::all_versions(subject, settings()).await {
        check_moves(subject, scene, ALL).await;
    }
}

async fn check_moves(subject: &mut dyn Subject, mut scene: Scene, mode: FeedMode) {
    let capabilities = scene.store.capabilities();
    if !capabilities.split {
        return;
    }
    let keys: Vec<String> =
        (0..4).flat_map(|it| scene.keys_in(&must(KeyRange::divide(4))[it], 1)).collect();
    let mut journal = Journal { mode, written: Vec::new(), places: Vec::new() };
    journal.write(&scene, &keys).await;
    // Which range is split, or merged with its right neighbour; several generations, and back to
    // one range.
    let moves = ["split 0", "split 1", "merge 0", "split 0", "merge 1", "merge 0", "split 0"];
    for (number, action) in moves.into_iter().enumerate() {
        let before = scene.scan_all().await;
        let ranges = scene.ranges().await;
        match action.split_once(' ') {
            Some(("split", place)) => {
                let place: usize = place.parse().expect("a number");
                must(scene.store.split(&scene.name, ranges[place].id, None).await);
                let whole = &ranges[place].keys;
                let start = &journal.places[0].1;
                let read = scene.container.feed.read(whole, start, PageSize::default()).await;
                must_fail(read, ErrorKind::RangeMoved, "read the keys of a range that was split");
            }
            _ if !capabilities.merge => continue,
            _ => {
                let place: usize = action["merge ".len()..].parse().expect("a number");
                let (left, right) = (ranges[place].id, ranges[place + 1].id);
                must(scene.store.merge(&scene.name, left, right).await);
            }
        }
        let stage = format!("after move {number} ({action})");
        check_tiles(&scene.ranges().await);
        assert_eq!(scene.scan_all().await, before, "{stage}: items or etags changed");
        journal.check(&scene, &stage).await;
        if number % 3 == 2 {
            scene = scene.reopened(subject).await;
            journal.check(&scene, &format!("{stage} and reopening")).await;
        }
        journal.write(&scene, &keys).await;
        journal.check(&scene, &format!("{stage} and more commits")).await;
    }
}

pub(super) async fn obligation_08_numbers_go_on_through_splits_and_merges(
    subject: &mut dyn Subject,
) {
    let scene = Scene::plain(subject).await;
    if !scene.store.capabilities().split {
        return;
    }
    let (mut low, mut high) = (Lsn::ZERO, Lsn::ZERO);
    let halves = must(KeyRange::divide(2));
    let (left, right) = (scene.keys_in(&halves[0], 1), scene.keys_in(&halves[1], 1));
    for round in 0..3 {
        for number in 0..5 {
            let lsn = scene.upsert(&left[0], "1", number).await.lsn;
            assert!(low < lsn, "round {round}: commit {lsn} after commit {low}");
            low = lsn;
        }
        let lsn = scene.upsert(&right[0], "1", 0).await.lsn;
        assert!(high < lsn, "round {round}: commit {lsn} after commit {high}");
        high = lsn;
        let ranges = scene.ranges().await;
        match ranges.as_slice() {
            [one] => {
                // In one range every number is later than all before it, whatever the key.
                (low, high) = (low.max(high), low.max(high));
                must(scene.store.split(&scene.name, one.id, Some(halves[1].min())).await);
            }
            [one, two] if scene.store.capabilities().merge => {
                must(scene.store.merge(&scene.name, one.id, two.id).await);
                (low, high) = (low.max(high), low.max(high));
            }
            _ => return,
        }
    }
}

pub(super) async fn obligation_08_a_merge_forgets_no_position_of_the_younger_part(
    subject: &mut dyn Subject,
) {
    let capabilities = subject.containers().capabilities();
    let Some(scene) = Scene::all_versions(subject, settings().ranges(2)).await else {
        return;
    };
    if !capabilities.merge {
        return;
    }
    let ranges = scene.ranges().await;
    let busy = scene.keys_in(&ranges[0].keys, 1).remove(0);
    let quiet = scene.keys_in(&ranges[1].keys, 1).remove(0);
    for number in 0..20 {
        scene.upsert(&busy, "1", number).await;
    }
    subject.advance(2 * HOUR);
    let place = scene.start(&ranges[1].keys, StartFrom::Now, ALL).await;
    let young = scene.upsert(&quiet, "1", 0).await;
    must(scene.store.merge(&scene.name, ranges[0].id, ranges[1].id).await);
    subject.settle().await;
    // The busy part lost versions with higher numbers; the quiet part lost none.
    let (changes, _) = scene.drain_from(&ranges[1].keys, &place, PageSize::default()).await;
    assert_eq!(versions(&changes), [version_of(&young)], "a version within the retention is lost");
}
