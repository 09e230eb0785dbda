//! Keys that are parked, skipped changes, and what operators do with them; the circuit breaker.

use millstream_core::PartitionKey;
use millstream_processor::{
    Concurrency, ErrorKind, FailurePolicy, Notification, ParkedChange, ParkedState,
    ProcessorOptions, StartPosition,
};

use crate::harness::node::Node;
use crate::harness::recorder::Failing;
use crate::harness::{World, ranges};
use crate::harness_more::{LEASE, ROUND, SOON, done_up_to, is_lost, millis, options, secs};

scenarios! {
    a_parked_key_waits_in_order_while_others_go_on: ranges(1);
    a_parked_key_waits_in_order_while_others_go_on_keyed: ranges(1);
    a_redrive_keeps_the_order_while_new_changes_arrive: ranges(1);
    a_redrive_keeps_the_order_while_new_changes_arrive_keyed: ranges(1);
    a_redrive_that_fails_parks_the_rest_again: ranges(1);
    a_redrive_is_not_begun_twice: ranges(1);
    changes_of_the_feed_come_between_redrives: ranges(1);
    a_redrive_goes_on_with_the_next_owner: ranges(1);
    a_redrive_waits_while_the_outside_is_down: ranges(1);
    a_parked_key_stays_parked_through_a_split_and_a_reset: ranges(1);
    all_parked_keys_are_redriven_at_once: ranges(2);
    a_discarded_key_goes_on: ranges(1);
    a_skipped_change_stands_alone: ranges(1);
    the_policy_to_stop_ends_the_instance: ranges(1);
    a_permanent_error_is_parked_at_once: ranges(1);
    later_changes_get_all_their_attempts: ranges(1);
    a_transient_error_opens_the_breaker_and_spends_no_attempts: ranges(2);
    a_probe_that_is_lost_does_not_hold_the_breaker: ranges(2);
}

fn keyed(options: ProcessorOptions) -> ProcessorOptions {
    options.concurrency(Concurrency::Keyed(8))
}

fn write_all(world: &World, key: &str, numbers: std::ops::Range<usize>) {
    for number in numbers {
        world.write(key, &format!("{key}-{number}"));
    }
}

fn ids(key: &str, numbers: std::ops::Range<usize>) -> Vec<String> {
    numbers.map(|it| format!("{key}-{it}")).collect()
}

fn is_parked(it: &Notification) -> bool {
    matches!(it, Notification::Parked { .. })
}

fn is_redriven(it: &Notification) -> bool {
    matches!(it, Notification::Redriven { .. })
}

/// Parks the key "a" at its second item: the first is handled, five are parked.
fn park(world: &World, options: &ProcessorOptions) -> Node {
    let h1 = world.start_owner("h1", options);
    world.recorder().fail("a-1", usize::MAX, Failing::Failed);
    for number in 0..4 {
        write_all(world, "a", number..number + 1);
        write_all(world, "b", number..number + 1);
    }
    world.run_until_handled(&["a-0", "b-0", "b-1", "b-2", "b-3"]);
    write_all(world, "a", 4..6);
    world.run_until(SOON, || world.parked_ids("a") == ids("a", 1..6));
    h1
}

fn a_parked_key_waits_in_order_while_others_go_on(world: &World) {
    parked_in_order(world, &options().attempts_max(2));
}

fn a_parked_key_waits_in_order_while_others_go_on_keyed(world: &World) {
    parked_in_order(world, &keyed(options().attempts_max(2)));
}

fn parked_in_order(world: &World, options: &ProcessorOptions) {
    let h1 = park(world, options);
    let parked = world.parked("a").expect("it is parked");
    assert_eq!((parked.parked, parked.attempts, parked.state), (5, 2, ParkedState::Parked));
    assert_eq!(parked.first_id, "a-1");
    assert!(parked.first_parked_at <= parked.last_parked_at);
    assert_eq!(world.letters_parked(), 1);
    let failed = sequence(world, "a");
    assert!(failed[0].error.as_ref().is_some_and(|it| it.contains("told to fail")));
    assert_eq!(failed[0].attempts, 2);
    assert!(failed[1..].iter().all(|it| it.error.is_none() && it.attempts == 0));
    assert!(failed.windows(2).all(|it| it[0].change.lsn < it[1].change.lsn));
    assert_eq!(h1.told(is_parked), 1, "the key once, not each change");
    assert_eq!(world.handled_of_key("b"), ids("b", 0..4));
    // What is put aside is done: the position passes it, also for the next owner.
    world.stop(&h1);
    let newest = failed.last().expect("five").change.lsn.as_u64();
    assert_eq!(done_up_to(&world.only_lease().position), newest);
    let h2 = world.start("h2", options);
    write_all(world, "a", 6..7);
    write_all(world, "b", 4..5);
    world.run_until_handled(&["b-4"]);
    world.run_until(SOON, || world.parked_ids("a") == ids("a", 1..7));
    assert_eq!(world.handled_of_key("a"), ["a-0"]);
    assert_eq!(world.deliveries_of_item("a-6").len(), 0);
    // Redriven, all come in order, and the key goes on as before.
    world.recorder().fail("a-1", 0, Failing::Failed);
    world.redrive("a");
    world.run_until(SOON, || world.parked("a").is_none());
    write_all(world, "a", 7..9);
    world.run_until_handled(&["a-8"]);
    assert_eq!(world.handled_of_key("a"), ids("a", 0..9));
    world.run(ROUND);
    assert_eq!(h2.told(is_redriven), 1);
    assert!(world.deliveries_of_item("a-5").iter().all(|it| it.redriven));
    assert!(world.deliveries_of_item("a-7").iter().all(|it| !it.redriven));
}

fn sequence(world: &World, key: &str) -> Vec<ParkedChange> {
    let (letters, key) = (world.letters(), PartitionKey::from(key));
    let found = world.block_on(async move { letters.sequence(&key, None, 100).await });
    found.expect("the container is there")
}

fn a_redrive_keeps_the_order_while_new_changes_arrive(world: &World) {
    redrive_under_load(world, &options().attempts_max(1).batch_items_max(2));
}

fn a_redrive_keeps_the_order_while_new_changes_arrive_keyed(world: &World) {
    redrive_under_load(world, &keyed(options().attempts_max(1).batch_items_max(2)));
}

fn redrive_under_load(world: &World, options: &ProcessorOptions) {
    let h1 = park(world, options);
    world.recorder().fail("a-1", 0, Failing::Failed);
    world.recorder().take("h1", millis(700));
    world.redrive("a");
    for number in 6..30 {
        write_all(world, "a", number..number + 1);
        write_all(world, "b", number..number + 1);
        world.run(millis(400));
    }
    world.run_until(secs(90), || {
        world.handled_of_key("a").len() == 30 && world.parked("a").is_none()
    });
    assert_eq!(world.handled_of_key("a"), ids("a", 0..30), "each once and in order");
    let batches = world.recorder().batches();
    let of_a = batches.iter().filter(|it| it.ids[0].starts_with("a-") && it.attempt == 1);
    let mut last = millis(0);
    for batch in of_a.filter(|it| it.ended.is_some_and(|(_, content)| content)) {
        assert!(last <= batch.started, "two batches of the key at the same time");
        last = batch.ended.expect("it ended").0;
    }
    assert!(0 < h1.told(is_redriven));
    world.run_until_handled(&["b-29"]);
}

fn a_redrive_that_fails_parks_the_rest_again(world: &World) {
    let h1 = park(world, &options().attempts_max(2).batch_items_max(2));
    let failed = |it: &Notification| matches!(it, Notification::HandlerFailed { .. });
    let before = h1.told(failed);
    world.recorder().fail("a-1", 0, Failing::Failed);
    // It was only kept behind another, so it has all its attempts.
    world.recorder().fail("a-4", 2, Failing::FailedAt);
    world.redrive("a");
    world.run_until(SOON, || {
        world.parked("a").is_some_and(|it| it.state == ParkedState::Parked && it.attempts == 3)
    });
    assert_eq!(world.parked_ids("a"), ids("a", 4..6));
    assert_eq!(world.handled_of_key("a"), ids("a", 0..3), "and a-3 in the call that failed");
    world.run(ROUND * 2);
    assert_eq!((h1.told(is_redriven), h1.outcome()), (0, None));
    assert_eq!(h1.told(failed), before + 1);
    write_all(world, "a", 6..7);
    world.redrive("a");
    world.run_until(SOON, || world.parked("a").is_none());
    assert_eq!(world.handled_of_key("a")[3..], ids("a", 4..7));
    let (letters, key, operations) = (world.letters(), PartitionKey::from("a"), world.operations());
    let again = async move { operations.redrive(&letters, &key).await };
    let again = world.block_on(again).expect_err("it is gone");
    assert_eq!(*again.kind(), ErrorKind::NotFound);
}

fn a_redrive_is_not_begun_twice(world: &World) {
    let options = keyed(options().attempts_max(1));
    let h1 = park(world, &options);
    world.recorder().fail("c-0", usize::MAX, Failing::Failed);
    write_all(world, "c", 0..2);
    world.run_until(SOON, || world.parked_ids("c").len() == 2);
    world.recorder().fail("a-1", 0, Failing::Failed);
    world.recorder().fail("c-0", 0, Failing::Failed);
    world.recorder().close("h1");
    world.redrive("a");
    world.run_until(SOON, || world.recorder().at_work("h1") == 1);
    // Another key is asked for while the first one is with the handler.
    world.redrive("c");
    world.run_until(SOON, || world.recorder().at_work("h1") == 2);
    world.redrive("a");
    world.run(ROUND * 3);
    assert_eq!(world.recorder().at_work("h1"), 2);
    world.recorder().open("h1");
    world.run_until(SOON, || world.letters_parked() == 0);
    world.run(ROUND * 2);
    assert_eq!(world.handled_of_key("a"), ids("a", 0..6), "each once");
    assert_eq!(world.handled_of_key("c"), ids("c", 0..2));
    assert_eq!(h1.told(is_redriven), 2);
}

fn changes_of_the_feed_come_between_redrives(world: &World) {
    let _h1 = world.start_owner("h1", &options().attempts_max(1));
    let keys = ["c", "d", "e", "f", "g"];
    for key in keys {
        world.recorder().fail(&format!("{key}-0"), usize::MAX, Failing::Failed);
        write_all(world, key, 0..1);
    }
    world.run_until(SOON, || world.letters_parked() == keys.len());
    world.recorder().close("h1");
    for key in keys {
        world.recorder().fail(&format!("{key}-0"), 0, Failing::Failed);
        world.redrive(key);
    }
    world.run_until(SOON, || world.recorder().at_work("h1") == 1);
    // All of them are known and one is with the handler when a change of another key comes.
    write_all(world, "b", 0..1);
    world.run(ROUND * 2);
    world.recorder().open("h1");
    world.run_until(SOON, || world.letters_parked() == 0);
    world.run_until_handled(&["b-0"]);
    let batches = world.recorder().batches();
    let after = batches.iter().rev().take_while(|it| it.ids[0] != "b-0").count();
    assert!(2 < after, "{after} sequences came after it");
}

fn a_redrive_goes_on_with_the_next_owner(world: &World) {
    let options = options().attempts_max(1).batch_items_max(2);
    let h1 = park(world, &options);
    world.recorder().fail("a-1", 0, Failing::Failed);
    world.recorder().take("h1", secs(2));
    world.redrive("a");
    world.run_until_exact(SOON, || world.recorder().at_work("h1") == 1);
    // It stops between two batches of the sequence, not at its end.
    h1.stop();
    let took = world.run_until(SOON, || h1.outcome().is_some());
    assert!(took < secs(3), "{took:?}");
    assert_eq!(world.parked("a").expect("it is not done").state, ParkedState::Redriving);
    assert_eq!(world.parked_ids("a"), ids("a", 3..6));
    let h2 = world.start("h2", &options);
    world.run_until(SOON, || world.parked("a").is_none());
    assert_eq!(world.handled_of_key("a"), ids("a", 0..6), "each once");
    world.run(ROUND);
    assert_eq!((h1.told(is_redriven), h2.told(is_redriven)), (0, 1));
}

fn a_redrive_waits_while_the_outside_is_down(world: &World) {
    let options = options().attempts_max(2).backoff(secs(1), secs(4));
    let h1 = park(world, &options);
    world.recorder().fail("a-1", 6, Failing::Transient);
    world.redrive("a");
    world.run_until(secs(120), || world.parked("a").is_none());
    assert_eq!(world.handled_of_key("a"), ids("a", 0..6), "each once");
    world.run(secs(1));
    assert_eq!(h1.told(|it| matches!(it, Notification::BreakerOpened { .. })), 1);
    assert_eq!(h1.told(|it| matches!(it, Notification::BreakerClosed)), 1);
    assert_eq!(h1.told(is_redriven), 1);
}

fn a_parked_key_stays_parked_through_a_split_and_a_reset(world: &World) {
    park(world, &options().attempts_max(1));
    world.recorder().fail("a-1", 0, Failing::Failed);
    world.split(0);
    world.run_until(SOON, || world.leases().len() == 2);
    write_all(world, "a", 6..7);
    world.run_until(SOON, || world.parked_ids("a") == ids("a", 1..7));
    let handled = world.handled_of_key("b").len();
    world.operate(|it| async move { it.reset(StartPosition::Beginning).await });
    world.run_until(SOON, || world.handled_of_key("b").len() == handled * 2);
    world.run(ROUND);
    // Everything came again; what is parked was not delivered, and not parked twice.
    assert_eq!(world.parked_ids("a"), ids("a", 0..7), "also what came before, to keep the order");
    assert_eq!(world.handled_of_key("a"), ["a-0"]);
    world.redrive("a");
    world.run_until(SOON, || world.parked("a").is_none());
    assert_eq!(world.handled_of_key("a")[1..], ids("a", 0..7));
}

fn all_parked_keys_are_redriven_at_once(world: &World) {
    let h1 = world.start("h1", &options().attempts_max(1));
    let h2 = world.start("h2", &options().attempts_max(1));
    world.run_until(SOON, || world.owners().len() == 2);
    let (left, right) = (world.key_in(0), world.key_in(1));
    for key in [&left, &right] {
        world.recorder().fail(&format!("{key}-0"), usize::MAX, Failing::Failed);
        write_all(world, key, 0..3);
    }
    world.run_until(SOON, || [&left, &right].iter().all(|it| world.parked_ids(it).len() == 3));
    for key in [&left, &right] {
        world.recorder().fail(&format!("{key}-0"), 0, Failing::Failed);
    }
    let letters = world.letters();
    let count = world.operate(|it| async move { it.redrive_all(&letters).await });
    assert_eq!(count, 2);
    world.run_until(SOON, || world.letters_parked() == 0);
    assert_eq!(world.handled_of_key(&left), ids(&left, 0..3));
    assert_eq!(world.handled_of_key(&right), ids(&right, 0..3));
    world.run(ROUND);
    assert_eq!((h1.told(is_redriven), h2.told(is_redriven)), (1, 1), "each its own");
}

fn a_discarded_key_goes_on(world: &World) {
    park(world, &options().attempts_max(1));
    // One change is thrown away, then all.
    let (letters, key) = (world.letters(), PartitionKey::from("a"));
    let third = sequence(world, "a")[2].id.clone();
    let discard = async move { letters.discard_item(&key, &third).await };
    world.block_on(discard).expect("it is there");
    assert_eq!(world.parked_ids("a"), ["a-1", "a-2", "a-4", "a-5"]);
    let (letters, key) = (world.letters(), PartitionKey::from("a"));
    let count = world.block_on(async move { letters.discard(&key).await }).expect("it is parked");
    assert_eq!((count, world.parked("a")), (4, None));
    write_all(world, "a", 6..8);
    world.run_until_handled(&["a-6", "a-7"]);
    assert_eq!(world.handled_of_key("a"), ["a-0", "a-6", "a-7"]);
    assert_eq!(world.parked("a"), None);
}

fn a_skipped_change_stands_alone(world: &World) {
    let options = options().attempts_max(2).failure(FailurePolicy::Skip);
    let h1 = world.start_owner("h1", &options);
    world.recorder().fail("a-1", usize::MAX, Failing::Failed);
    world.recorder().fail("a-3", usize::MAX, Failing::PermanentAt);
    write_all(world, "a", 0..5);
    world.run_until_handled(&["a-0", "a-2", "a-4"]);
    assert_eq!((world.letters_parked(), world.parked("a")), (0, None));
    let skipped = skipped(world);
    let names: Vec<&str> = skipped.iter().map(|it| it.change.id.as_str()).collect();
    assert_eq!(names, ["a-1", "a-3"]);
    assert!(skipped.iter().all(|it| it.attempts == 2 && it.error.is_some()));
    let alone = |it: &Notification| matches!(it, Notification::Parked { sequence: false, .. });
    assert_eq!((h1.told(is_parked), h1.told(alone)), (2, 2));
    // One is delivered again on request, the other thrown away.
    world.recorder().fail("a-1", 0, Failing::Failed);
    let letters = world.letters();
    let first = skipped[0].clone();
    world.operate(|it| async move { it.redrive_skipped(&letters, &first).await });
    world.run_until_handled(&["a-1"]);
    world.run(ROUND);
    let (letters, second) = (world.letters(), skipped[1].id.clone());
    let discard = async move { letters.discard_skipped(&second).await };
    world.block_on(discard).expect("it is there");
    assert!(self::skipped(world).is_empty());
    assert_eq!(world.letters_parked(), 0);
    assert!(world.deliveries_of_item("a-1").last().is_some_and(|it| it.redriven));
    write_all(world, "a", 5..6);
    world.run_until_handled(&["a-5"]);
}

fn skipped(world: &World) -> Vec<ParkedChange> {
    let letters = world.letters();
    let page = world.block_on(async move { letters.list_skipped(None, 100).await });
    let mut changes = page.expect("the container is there").changes;
    changes.sort_by_key(|it| it.change.lsn);
    changes
}

fn the_policy_to_stop_ends_the_instance(world: &World) {
    let options = options().attempts_max(2).failure(FailurePolicy::Stop);
    let h1 = world.start_owner("h1", &options);
    write_all(world, "a", 0..3);
    world.run_until_handled(&["a-2"]);
    world.run(secs(1));
    let position = world.only_lease().position;
    world.recorder().fail("a-3", usize::MAX, Failing::Failed);
    write_all(world, "a", 3..6);
    world.run_until(SOON, || h1.outcome().is_some());
    assert_eq!(h1.outcome(), Some(Err(ErrorKind::HandlerFailed)));
    assert_eq!(world.only_lease().position, position, "the lease stays where it is");
    assert_eq!(world.letters_parked(), 0);
    assert!(skipped(world).is_empty());
    assert_eq!(h1.notifications().last(), Some(&Notification::Stopped));
    // Whoever comes next gets the same change; when it works, all goes on.
    world.recorder().fail("a-3", 0, Failing::Failed);
    world.start("h2", &options);
    world.run_until(LEASE + ROUND * 2, || world.all_handled(&world.written()));
    assert_eq!(world.handled_of_key("a"), ids("a", 0..6));
}

fn a_permanent_error_is_parked_at_once(world: &World) {
    let h1 = world.start_owner("h1", &options());
    world.recorder().fail("item-2", usize::MAX, Failing::PermanentAt);
    let written = world.write_many(6, 6);
    world.run_until(SOON, || world.all_handled(&written[3..]) && world.parked("key-2").is_some());
    assert_eq!(world.deliveries_of_item("item-2").len(), 1, "no second attempt");
    world.assert_each_once(&written[..2]);
    let took = world.batches_of("h1");
    assert!(took[1].started - took[0].started < millis(100), "no pause");
    assert_eq!(h1.told(is_parked), 1);
}

fn later_changes_get_all_their_attempts(world: &World) {
    let h1 = world.start_owner("h1", &options().attempts_max(3).batch_items_max(4));
    world.recorder().fail("a-0", usize::MAX, Failing::Failed);
    world.recorder().fail("c-0", 2, Failing::Failed);
    write_all(world, "a", 0..3);
    write_all(world, "b", 0..1);
    // These are in memory while the failing change of the batch before is looked for.
    write_all(world, "c", 0..1);
    write_all(world, "d", 0..1);
    world.run_until_handled(&["b-0", "c-0", "d-0"]);
    assert_eq!(world.parked_ids("a"), ids("a", 0..3));
    assert_eq!(world.parked("c"), None);
    let attempts: Vec<u32> = world.deliveries_of_item("c-0").iter().map(|it| it.attempt).collect();
    assert_eq!(attempts, [1, 2, 3]);
    assert_eq!(h1.told(is_parked), 1);
}

fn a_transient_error_opens_the_breaker_and_spends_no_attempts(world: &World) {
    let options = options().attempts_max(2).backoff(secs(1), secs(8));
    let h1 = world.start_owner("h1", &options);
    let (left, right) = (world.key_in(0), world.key_in(1));
    world.recorder().fail("down", 8, Failing::Transient);
    let first = world.write(&left, "down");
    let opened = |it: &Notification| matches!(it, Notification::BreakerOpened { .. });
    let closed = |it: &Notification| matches!(it, Notification::BreakerClosed);
    world.run_until(SOON, || h1.told(opened) == 1);
    assert_eq!(world.deliveries_of_item("down").len(), 3, "that many failures open it");
    // Nothing is delivered while it is open, but for one try after each pause.
    let before = world.recorder().count();
    let second = world.write(&right, "beside");
    world.run(millis(400));
    assert_eq!(world.recorder().count(), before);
    world.run_until(secs(120), || world.all_handled(&[first.clone(), second.clone()]));
    world.run(secs(1));
    let tries = world.deliveries_of_item("down");
    assert!(tries.iter().all(|it| it.attempt == 1), "no attempt was spent");
    assert_eq!(world.deliveries_of_item("beside").len(), 1);
    assert_eq!(h1.told(opened), h1.told(closed));
    let failed = |it: &Notification| matches!(it, Notification::HandlerFailed { .. });
    assert_eq!((h1.told(failed), h1.told(is_parked), h1.told(is_lost)), (0, 0, 0));
    assert_eq!(world.letters_parked(), 0);
}

fn a_probe_that_is_lost_does_not_hold_the_breaker(world: &World) {
    let options = options().backoff(secs(1), secs(2));
    let h1 = world.start_owner("h1", &options);
    let (left, right) = (world.key_in(0), world.key_in(1));
    world.recorder().fail("down", 3, Failing::Transient);
    world.write(&left, "down");
    world.run_until(SOON, || h1.told(|it| matches!(it, Notification::BreakerOpened { .. })) == 1);
    // The try after the pause hangs, and then its lease is taken away.
    world.recorder().close("h1");
    world.run_until(SOON, || world.recorder().at_work("h1") == 1);
    let beside = world.write(&right, "beside");
    let keys = world.ranges()[0].keys.clone();
    world.operate(|it| async move { it.reset_range(&keys, StartPosition::Now).await });
    world.run_until(SOON, || h1.told(is_lost) == 1);
    world.recorder().open("h1");
    world.run_until(SOON, || world.all_handled(std::slice::from_ref(&beside)));
}
