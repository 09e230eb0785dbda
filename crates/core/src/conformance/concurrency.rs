//! Obligation 10, and the others while many write and read at the same time.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::future::{join, join_all};

use crate::conformance::Subject;
use crate::conformance::follower::Follower;
use crate::conformance::harness::{
    ALL, LATEST, Scene, body, drain, event, item_id, must, settings, version, version_of, versions,
    yield_now,
};
use crate::{
    Batch, Change, ErrorKind, FeedMode, KeyRange, Operation, PageSize, PartitionKey, StartFrom,
};

const WRITERS: usize = 8;
const ROUNDS: usize = 12;

/// Writes batches of one to three new items to its own key and to one that all share.
async fn write(scene: &Scene, writer: usize) {
    for round in 0..ROUNDS {
        let own = format!("writer-{writer}");
        for key in [own.as_str(), "shared"] {
            let mut batch = Batch::new(key);
            for index in 0..1 + (writer + round) % 3 {
                let id = format!("{writer}-{round}-{index}");
                batch = batch.with(Operation::create(body(key, &id, index)));
            }
            scene.commit(batch).await;
            for _ in 0..(writer * round) % 5 {
                yield_now().await;
            }
        }
    }
}

pub(super) async fn obligation_10_no_number_appears_behind_a_reader(subject: &mut dyn Subject) {
    let scene = Scene::plain(subject).await;
    check_readers(&scene, LATEST).await;
}

pub(super) async fn obligation_10_no_version_appears_behind_a_reader(subject: &mut dyn Subject) {
    if let Some(scene) = Scene::all_versions(subject, settings()).await {
        check_readers(&scene, ALL).await;
    }
}

/// Readers begin at every point of a running workload; in the end each must have seen, in the same
/// order, what a reader sees that begins at the same place when all is quiet.
async fn check_readers(scene: &Scene, mode: FeedMode) {
    let keys = KeyRange::all();
    let writing = AtomicUsize::new(WRITERS);
    let writers = join_all((0..WRITERS).map(async |writer| {
        write(scene, writer).await;
        writing.fetch_sub(1, Ordering::SeqCst);
    }));
    let readers = join_all((0..20).map(async |reader| {
        for _ in 0..reader * 3 {
            yield_now().await;
        }
        let from = if reader % 2 == 0 { StartFrom::Now } else { StartFrom::Beginning };
        let start = scene.start(&keys, from, mode).await;
        let (mut after, mut seen) = (start.clone(), Vec::<Change>::new());
        loop {
            let last_look = writing.load(Ordering::SeqCst) == 0;
            let size = PageSize::items(1 + reader % 4);
            let page = must(scene.container.feed.read(&keys, &after, size).await);
            let is_empty = page.changes.is_empty();
            seen.extend(page.changes);
            after = page.continuation;
            if last_look && is_empty {
                return (start, seen);
            }
            yield_now().await;
        }
    }));
    let (_, readers) = join(writers, readers).await;
    for (start, seen) in readers {
        let numbers: Vec<_> = seen.iter().map(|it| it.lsn).collect();
        assert!(numbers.is_sorted(), "a commit appeared behind a reader: {numbers:?}");
        let (quiet, _) = scene.drain_from(&keys, &start, PageSize::default()).await;
        assert_eq!(
            versions(&seen),
            versions(&quiet),
            "a reader from {start} missed or repeated commits that ran beside it",
        );
    }
    let whole = scene.changes(StartFrom::Beginning, mode).await;
    for commit in whole.chunk_by(|one, next| one.lsn == next.lsn) {
        let same = |it: &Change| it.partition_key == commit[0].partition_key;
        assert!(commit.iter().all(same), "two batches share the number {}", commit[0].lsn);
        let name = commit[0].id.as_str();
        let mut parts = name.split('-').map(|it| it.parse::<usize>().expect("a number"));
        let (writer, round) = (parts.next().unwrap_or(0), parts.next().unwrap_or(0));
        assert_eq!(commit.len(), 1 + (writer + round) % 3, "the batch of {name} is not whole");
    }
}

pub(super) async fn obligation_10_the_last_version_reaches_every_reader(subject: &mut dyn Subject) {
    let scene = Scene::new(subject, settings().ranges(2)).await;
    let writing = AtomicUsize::new(WRITERS);
    let writers = join_all((0..WRITERS).map(async |writer| {
        for round in 0..ROUNDS {
            // All writers change the same few items again and again.
            let key = format!("key-{}", (writer + round) % 4);
            scene.upsert(&key, "item", writer * 100 + round).await;
            yield_now().await;
        }
        writing.fetch_sub(1, Ordering::SeqCst);
    }));
    let ranges = scene.ranges().await;
    let readers = join_all((0..10).map(async |reader| {
        let mut places = Vec::new();
        for range in &ranges {
            let start = scene.start(&range.keys, StartFrom::Beginning, LATEST).await;
            places.push((range.keys.clone(), start, Vec::<Change>::new()));
        }
        loop {
            let last_look = writing.load(Ordering::SeqCst) == 0;
            for (keys, after, seen) in &mut places {
                let size = PageSize::items(1 + reader % 3);
                let (changes, next) = must(drain(&scene.container, keys, after, size).await);
                for change in changes {
                    let last = seen.last().map(|it| it.lsn);
                    assert!(last <= Some(change.lsn), "a commit appeared behind a reader");
                    seen.push(change);
                }
                *after = next;
            }
            if last_look {
                return places.into_iter().flat_map(|(_, _, seen)| seen).collect::<Vec<_>>();
            }
            yield_now().await;
        }
    }));
    let (_, readers) = join(writers, readers).await;
    let expected: BTreeMap<PartitionKey, String> = scene
        .scan_all()
        .await
        .iter()
        .map(|it| (it.partition_key.clone(), version_of(it)))
        .collect();
    for seen in readers {
        let last = seen.iter().map(|it| (it.partition_key.clone(), version(it)));
        assert_eq!(last.collect::<BTreeMap<_, _>>(), expected, "a reader missed a last version");
    }
}

pub(super) async fn obligation_08_nothing_is_lost_while_ranges_move(subject: &mut dyn Subject) {
    let scene = Scene::plain(subject).await;
    let capabilities = scene.store.capabilities();
    if !capabilities.split {
        return;
    }
    let writing = AtomicUsize::new(WRITERS);
    let writers = join_all((0..WRITERS).map(async |writer| {
        write(&scene, writer).await;
        writing.fetch_sub(1, Ordering::SeqCst);
    }));
    let start = scene.start(&KeyRange::all(), StartFrom::Beginning, LATEST).await;
    let readers = join_all((0..6).map(async |reader| {
        let mut follower = Follower::new(KeyRange::all(), start.clone());
        loop {
            let last_look = writing.load(Ordering::SeqCst) == 0;
            follower.catch_up(&scene.container, PageSize::items(1 + reader)).await;
            if last_look {
                return follower.seen;
            }
            yield_now().await;
        }
    }));
    let mover = async {
        let mut round = 0;
        while 0 < writing.load(Ordering::SeqCst) && round < 20 {
            let ranges = scene.ranges().await;
            if capabilities.merge && 3 < ranges.len() {
                let place = round % (ranges.len() - 1);
                let (left, right) = (ranges[place].id, ranges[place + 1].id);
                must(scene.store.merge(&scene.name, left, right).await);
            } else if ranges.len() < 8 {
                let range = ranges[round % ranges.len()].id;
                must(scene.store.split(&scene.name, range, None).await);
            }
            round += 1;
            for _ in 0..3 {
                yield_now().await;
            }
        }
    };
    let ((_, readers), ()) = join(join(writers, readers), mover).await;
    let mut expected: Vec<_> = scene.scan_all().await.iter().map(version_of).collect();
    expected.sort();
    for seen in readers {
        let mut found = versions(&seen);
        found.sort();
        found.dedup();
        assert_eq!(found, expected, "a reader lost commits while ranges were moved");
        for number in 0..WRITERS {
            let key = PartitionKey::from(format!("writer-{number}"));
            let mine = seen.iter().filter(|it| it.partition_key == key);
            let mut first: Vec<&Change> = Vec::new();
            for change in mine {
                if !first.iter().any(|it| it.id == change.id) {
                    first.push(change);
                }
            }
            let numbers: Vec<_> = first.iter().map(|it| it.lsn).collect();
            assert!(numbers.is_sorted(), "the commits of {key} came out of order: {numbers:?}");
        }
    }
}

pub(super) async fn obligation_03_no_update_is_lost_between_writers(subject: &mut dyn Subject) {
    let scene = Scene::plain(subject).await;
    scene.upsert("k", "counter", 0).await;
    join_all((0..WRITERS).map(async |_| {
        for _ in 0..ROUNDS {
            loop {
                let item = scene.existing("k", "counter").await;
                yield_now().await;
                let text = String::from_utf8_lossy(&item.body).into_owned();
                let number = text.rsplit(':').next().and_then(|it| it.strip_suffix('}'));
                let number: usize = number.and_then(|it| it.parse().ok()).expect("a number");
                let next = Operation::replace(item_id("counter"), body("k", "counter", number + 1));
                let batch = Batch::new("k").with(next.if_match(item.etag));
                match scene.container.documents.commit(batch).await {
                    Ok(_) => break,
                    Err(error) => {
                        assert_eq!(
                            error.kind(),
                            ErrorKind::PreconditionFailed,
                            "{}",
                            error.report()
                        );
                    }
                }
            }
        }
    }))
    .await;
    let found = scene.existing("k", "counter").await.body;
    assert_eq!(found, body("k", "counter", WRITERS * ROUNDS), "an update was lost");
}

pub(super) async fn obligation_02_one_of_many_creators_wins(subject: &mut dyn Subject) {
    let scene = Scene::plain(subject).await;
    for round in 0..5 {
        let id = format!("item-{round}");
        let attempts = (0..WRITERS).map(|number| {
            let batch = Batch::new("k").with(Operation::create(body("k", &id, number)));
            scene.container.documents.commit(batch)
        });
        let outcomes = join_all(attempts).await;
        let won = outcomes.iter().filter(|it| it.is_ok()).count();
        assert_eq!(won, 1, "{won} writers created the same item");
        for error in outcomes.into_iter().filter_map(Result::err) {
            assert_eq!(error.kind(), ErrorKind::AlreadyExists, "{}", error.report());
        }
    }
}

pub(super) async fn obligation_16_many_writers_leave_no_gap(subject: &mut dyn Subject) {
    let scene = Scene::plain(subject).await;
    if !scene.store.capabilities().event_sequence {
        return;
    }
    scene.create("k", "old").await;
    join_all((0..WRITERS).map(async |writer| {
        for round in 0..ROUNDS {
            let id = format!("{writer}-{round}");
            let batch = Batch::new("k").with(Operation::create(event("k", &id, None)));
            let refused = batch.clone().with(Operation::create(body("k", "old", 0)));
            scene.refused(refused, ErrorKind::AlreadyExists, Some(1)).await;
            yield_now().await;
            scene.commit(batch).await;
        }
    }))
    .await;
    let changes = scene.changes(StartFrom::Beginning, LATEST).await;
    let numbers = changes.iter().filter_map(|it| it.current.as_ref()?.sequence);
    let expected = 1..=u64::try_from(WRITERS * ROUNDS).expect("a small number");
    assert!(numbers.eq(expected), "events are not numbered in the order of their commits");
}
