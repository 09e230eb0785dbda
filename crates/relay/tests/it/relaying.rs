use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_lite::future::{block_on, or};
use millstream_core::{ErrorKind, FeedMode, PartitionKey, StartFrom, SystemClock, Timestamp};
use millstream_processor::{Concurrency, DeadLetters, ProcessorOptions, StartPosition};
use millstream_relay::Replay;

use crate::harness::{Failure, Scripted, World};

/// As often a processor tries by default.
const ATTEMPTS_MAX: usize = 5;

/// Checks that the events of each key arrived in order, `<key>-<number>` each, and none is missing.
#[track_caller]
fn check_order(ids: &[String], keys: usize, each: usize) {
    let mut next: BTreeMap<&str, usize> = BTreeMap::new();
    for id in ids {
        let (key, number) = id.split_once('-').unwrap();
        let number: usize = number.parse().unwrap();
        let expected = next.entry(key).or_default();
        // A repetition is allowed, a gap is not.
        assert!(number <= *expected, "{id} came before {key}-{expected}");
        *expected = (*expected).max(number + 1);
    }
    assert_eq!(next.len(), keys);
    assert!(next.values().all(|it| *it == each), "{next:?}");
}

fn commit_all(world: &World, keys: usize, each: usize) {
    for number in 0..each {
        for key in 0..keys {
            world.commit(&format!("k{key}"), &format!("k{key}-{number}"), "Changed", 0);
        }
    }
}

#[test]
fn every_event_is_published_once_and_in_order_per_key() {
    let world = World::new();
    commit_all(&world, 7, 20);
    let publisher = Arc::new(Scripted::new(140));
    world.relay(&publisher);
    let ids = publisher.ids();
    assert_eq!(ids.len(), 140);
    check_order(&ids, 7, 20);
    // Whole calls, not one message at a time.
    assert!(*publisher.calls.lock().unwrap() < 40);
}

#[test]
fn an_outage_spends_no_attempts_and_loses_nothing() {
    let world = World::new();
    commit_all(&world, 3, 5);
    let publisher = Arc::new(Scripted::new(15).failing(&[Failure::Down; 20]));
    world.relay(&publisher);
    let ids = publisher.ids();
    assert_eq!(ids.len(), 15);
    check_order(&ids, 3, 5);
    assert_eq!(parked(&world).len(), 0);
}

#[test]
fn a_lost_answer_repeats_the_same_messages_with_the_same_ids() {
    let world = World::new();
    commit_all(&world, 2, 10);
    let publisher = Arc::new(Scripted::new(20).failing(&[Failure::AnswerLost; 2]));
    world.relay(&publisher);
    check_order(&publisher.ids(), 2, 10);
}

#[test]
fn an_odd_failure_is_tried_again() {
    let world = World::new();
    commit_all(&world, 2, 3);
    let publisher = Arc::new(Scripted::new(6).failing(&[Failure::Odd; 2]));
    world.relay(&publisher);
    check_order(&publisher.ids(), 2, 3);
}

fn parked(world: &World) -> Vec<String> {
    let clock = Arc::new(SystemClock::default());
    let letters = DeadLetters::new(&world.leases, "relay", clock, Duration::from_secs(5)).unwrap();
    let mut ids = Vec::new();
    for key in ["k0", "k1", "k2"] {
        let found = block_on(letters.sequence(&PartitionKey::from(key), None, 100)).unwrap();
        ids.extend(found.iter().map(|it| it.change.id.as_str().to_owned()));
    }
    ids
}

#[test]
fn an_oversize_event_is_parked_at_once_with_the_later_ones_of_its_key_and_others_go_on() {
    let world = World::new();
    world.commit("k0", "k0-0", "Changed", 0);
    world.commit("k0", "k0-1", "Changed", 5_000);
    for number in 2..5 {
        world.commit("k0", &format!("k0-{number}"), "Changed", 0);
    }
    for number in 0..5 {
        world.commit("k1", &format!("k1-{number}"), "Changed", 0);
    }
    let publisher = Arc::new(Scripted::new(6));
    world.relay_until_parked(&publisher, 1);
    let ids = publisher.ids();
    assert!(ids.contains(&"k0-0".to_owned()) && !ids.contains(&"k0-2".to_owned()), "{ids:?}");
    assert_eq!(ids.iter().filter(|it| it.starts_with("k1")).count(), 5);
    let kept = parked(&world);
    assert!(kept.starts_with(&["k0-1".to_owned()]), "{kept:?}");
}

/// Relays an event of such a kind between others, until its key is parked; returns how often the
/// publisher was called.
#[track_caller]
fn relay_one_that_is_parked(action: &str) -> usize {
    let world = World::new();
    world.commit("k0", "k0-0", "Changed", 0);
    world.commit("k0", "k0-1", action, 0);
    world.commit("k0", "k0-2", "Changed", 0);
    world.commit("k1", "k1-0", "Changed", 0);
    let publisher = Arc::new(Scripted::new(2));
    world.relay_until_parked(&publisher, 1);
    let mut ids = publisher.ids();
    ids.sort();
    assert_eq!(ids, ["k0-0", "k1-0"]);
    assert!(parked(&world).starts_with(&["k0-1".to_owned()]));
    *publisher.calls.lock().unwrap()
}

#[test]
fn a_refused_event_is_parked_and_those_before_it_in_the_same_call_are_published() {
    relay_one_that_is_parked("Refused");
}

#[test]
fn an_event_that_the_destination_fails_at_is_parked_after_some_attempts_and_others_go_on() {
    assert!(ATTEMPTS_MAX <= relay_one_that_is_parked("Failing"));
}

#[test]
fn where_keys_are_handled_beside_each_other_none_waits_for_attempts_at_another() {
    let world = World::new();
    world.commit("k0", "k0-0", "Failing", 0);
    let (long, publisher) = (Duration::from_secs(3600), Arc::new(Scripted::new(20)));
    for number in 0..20 {
        world.commit(&format!("k{}", number + 1), &format!("event-{number}"), "Changed", 0);
    }
    let processor = ProcessorOptions::default()
        .start(StartPosition::Beginning)
        .concurrency(Concurrency::Keyed(4))
        .backoff(long, long);
    let started = world.started(World::options().processor(processor), &publisher);
    let mut stop = pin!(started.run(publisher.done.clone()));
    block_on(or(&mut stop, async {
        publisher.done.cancelled().await;
        Ok(())
    }))
    .unwrap();
    assert_eq!(publisher.ids().len(), 20);
}

#[test]
fn a_replay_passes_over_what_is_refused_but_not_over_what_failed() {
    let world = World::new();
    world.commit("k0", "k0-0", "Refused", 0);
    world.commit("k0", "k0-1", "Changed", 0);
    let publisher = Arc::new(Scripted::new(usize::MAX));
    let report = block_on(Replay::new(&world.data, publisher.clone()).run(&|_| ())).unwrap();
    assert_eq!((report.published, report.refused), (1, 1));
    world.commit("k1", "k1-0", "Failing", 0);
    let error = block_on(Replay::new(&world.data, publisher).run(&|_| ())).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
}

#[test]
fn a_replay_of_a_few_events_says_that_it_is_cut_also_if_those_are_refused() {
    let world = World::new();
    world.commit("k0", "k0-0", "Refused", 0);
    world.commit("k0", "k0-1", "Changed", 0);
    let publisher = Arc::new(Scripted::new(usize::MAX));
    let replay = Replay::new(&world.data, publisher.clone());
    let parts = block_on(replay.begin()).unwrap();
    let steps = parts.into_iter().map(|it| block_on(replay.step(it, 1)).unwrap());
    let cut: Vec<_> = steps.filter(|it| it.is_cut).collect();
    assert_eq!(cut.len(), 1);
    assert_eq!((cut[0].report.published, cut[0].report.refused), (0, 1));
    assert!(publisher.ids().is_empty());
}

#[test]
fn an_unsent_event_is_held_from_the_start() {
    let world = World::new();
    world.commit("k0", "k0-0", "Changed", 0);
    let publisher = Arc::new(Scripted::new(1));
    drop(world.started(World::options(), &publisher));
    let holders = block_on(world.data.guards.as_ref().unwrap().holders()).unwrap();
    assert_eq!(holders, ["relay"]);
}

#[test]
fn sent_events_can_be_replayed_from_a_time_with_the_same_ids() {
    let world = World::new();
    commit_all(&world, 3, 4);
    let publisher = Arc::new(Scripted::new(usize::MAX));
    let replay = Replay::new(&world.data, publisher.clone());
    let report = block_on(replay.run(&|_| ())).unwrap();
    assert_eq!((report.published, report.refused), (12, 0));
    check_order(&publisher.ids(), 3, 4);
    let never = Timestamp::from_millis(u64::MAX);
    let replay = Replay::new(&world.data, publisher);
    let report = block_on(replay.from(StartFrom::Time(never)).run(&|_| ())).unwrap();
    assert_eq!(report.published, 0);
}

#[test]
fn sent_events_can_be_replayed_from_a_position() {
    let world = World::new();
    world.commit("k0", "k0-0", "Changed", 0);
    let ranges = block_on(world.data.feed.ranges()).unwrap();
    let feed = &world.data.feed;
    let positions: Vec<_> = ranges
        .iter()
        .map(|it| (it.keys.clone(), StartFrom::Now, FeedMode::LatestVersion))
        .map(|(keys, from, mode)| (keys.clone(), block_on(feed.start(&keys, from, mode)).unwrap()))
        .collect();
    world.commit("k0", "k0-1", "Changed", 0);
    world.commit("k0", "k0-2", "Changed", 0);
    let publisher = Arc::new(Scripted::new(usize::MAX));
    for (keys, position) in positions {
        let replay = Replay::new(&world.data, publisher.clone()).keys(keys).after(position);
        block_on(replay.run(&|_| ())).unwrap();
    }
    assert_eq!(publisher.ids(), ["k0-1", "k0-2"]);
}

#[test]
fn a_replay_goes_on_step_by_step_up_to_the_newest_commit_at_its_begin() {
    let world = World::new();
    // More than a page of the feed.
    commit_all(&world, 3, 200);
    let publisher = Arc::new(Scripted::new(usize::MAX));
    let replay = || Replay::new(&world.data, publisher.clone());
    let mut todo = block_on(replay().begin()).unwrap();
    assert_eq!(publisher.ids().len(), 0);
    let ahead: u64 = todo.iter().map(|it| it.until.as_u64() - it.passed.as_u64()).sum();
    assert_eq!(ahead, 600);
    world.commit("k0", "k0-200", "Changed", 0);
    let mut steps = 0;
    while let Some(part) = todo.pop() {
        let step = block_on(replay().step(part, u64::MAX)).unwrap();
        todo.extend(step.rest);
        steps += 1;
    }
    assert!(1 < steps, "{steps}");
    check_order(&publisher.ids(), 3, 200);
}

#[test]
fn a_step_of_a_replay_can_be_cut_off() {
    let world = World::new();
    commit_all(&world, 1, 5);
    let publisher = Arc::new(Scripted::new(usize::MAX));
    let replay = Replay::new(&world.data, publisher.clone());
    let mut parts = block_on(replay.begin()).unwrap();
    parts.retain(|it| 0 < it.until.as_u64());
    let step = block_on(replay.step(parts[0].clone(), 2)).unwrap();
    assert_eq!((step.report.published, step.rest), (2, parts[..1].to_vec()));
    assert_eq!(publisher.ids(), ["k0-0", "k0-1"]);
}
