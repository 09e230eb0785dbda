//! Events that are not to be delivered before a time, at publishers that know no times.

use std::sync::Arc;
use std::time::Duration;

use futures_lite::future::block_on;
use millstream_core::{Clock, SystemClock, Timestamp};
use millstream_processor::DeadLetters;
use millstream_relay::Replay;

use crate::harness::{Failure, Scripted, World};

fn now() -> Timestamp {
    SystemClock::default().now()
}

/// Soon, but later than a machine under load needs for what comes before.
fn soon() -> Timestamp {
    now().plus(Duration::from_secs(2))
}

fn letters(world: &World) -> DeadLetters {
    let clock = Arc::new(SystemClock::default());
    DeadLetters::new(&world.leases, "relay", clock, Duration::from_secs(5)).unwrap()
}

#[test]
fn a_scheduled_event_is_kept_until_it_is_due_and_others_of_its_key_go_on() {
    let (world, due) = (World::new(), soon());
    world.commit("k0", "k0-0", "Changed", 0);
    world.commit_for(due, "k0", "k0-1", "Reminder");
    world.commit("k0", "k0-2", "Changed", 0);
    let publisher = Arc::new(Scripted::new(3));
    world.relay(&publisher);
    assert!(due <= now());
    assert_eq!(publisher.ids(), ["k0-0", "k0-2", "k0-1"]);
    // The time is over, and the publisher would not know what to do with it.
    assert!(publisher.taken.lock().unwrap().iter().all(|it| it.scheduled_at.is_none()));
}

#[test]
fn a_relay_that_starts_later_sends_what_another_has_kept() {
    let (world, due) = (World::new(), soon());
    world.commit_for(due, "k0", "k0-0", "Reminder");
    world.commit("k0", "k0-1", "Changed", 0);
    let first = Arc::new(Scripted::new(1));
    world.relay(&first);
    assert_eq!(first.ids(), ["k0-1"]);
    let kept = block_on(letters(&world).list_postponed(None, 10)).unwrap().changes;
    assert_eq!((kept[0].change.id.as_str(), kept[0].due.as_millis()), ("k0-0", due.as_millis()));
    let second = Arc::new(Scripted::new(1));
    world.relay(&second);
    assert!(due <= now());
    assert_eq!(second.ids(), ["k0-0"]);
    assert!(block_on(letters(&world).list_postponed(None, 10)).unwrap().changes.is_empty());
}

#[test]
fn an_event_that_fails_when_it_is_due_is_tried_again() {
    let (world, due) = (World::new(), soon());
    world.commit_for(due, "k0", "k0-0", "Reminder");
    let failures = [Failure::Odd, Failure::Down, Failure::AnswerLost, Failure::Odd];
    let publisher = Arc::new(Scripted::new(1).failing(&failures));
    world.relay(&publisher);
    assert!(due <= now());
    assert_eq!(publisher.ids()[0], "k0-0");
}

#[test]
fn an_event_that_is_refused_when_it_is_due_is_parked() {
    let (world, due) = (World::new(), soon());
    world.commit_for(due, "k0", "k0-0", "Refused");
    world.commit("k1", "k1-0", "Changed", 0);
    let publisher = Arc::new(Scripted::new(1));
    world.relay_until_parked(&publisher, 1);
    assert!(due <= now());
    let parked = block_on(letters(&world).show(&"k0".into())).unwrap().unwrap();
    assert_eq!((parked.first_id.as_str(), parked.attempts), ("k0-0", 1));
}

#[test]
fn a_publisher_that_knows_times_gets_a_scheduled_event_at_once() {
    let (world, due) = (World::new(), now().plus(Duration::from_secs(3600)));
    world.commit_for(due, "k0", "k0-0", "Reminder");
    let mut publisher = Scripted::new(1);
    publisher.can_schedule = true;
    let publisher = Arc::new(publisher);
    world.relay(&publisher);
    let time = publisher.taken.lock().unwrap()[0].scheduled_at.unwrap();
    assert_eq!(time.as_millis(), due.as_millis());
}

#[test]
fn a_replay_leaves_out_what_is_not_due() {
    let world = World::new();
    world.commit_for(now().plus(Duration::from_secs(3600)), "k0", "k0-0", "Reminder");
    world.commit_for(Timestamp::EPOCH, "k0", "k0-1", "Reminder");
    let publisher = Arc::new(Scripted::new(usize::MAX));
    let report = block_on(Replay::new(&world.data, publisher.clone()).run(&|_| ())).unwrap();
    assert_eq!((report.published, report.refused), (1, 0));
    assert_eq!(publisher.ids(), ["k0-1"]);
}
