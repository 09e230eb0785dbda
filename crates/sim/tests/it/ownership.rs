//! Who may deliver and checkpoint: long handlers, stalls, cuts, wrong clocks, lost replies.

use std::time::Duration;

use millstream_core::ErrorKind as CoreErrorKind;
use millstream_processor::{ErrorKind, Notification};

use crate::harness::node::Node;
use crate::harness::port::{Call, Fault, Rule};
use crate::harness::{World, ranges};
use crate::harness_more::{
    LEASE, Positions, ROUND, SOON, done_up_to, is_acquired, is_lost, is_store_failed, millis,
    options, secs,
};

scenarios! {
    scenario_22_a_long_handler_keeps_its_lease: ranges(1);
    scenario_23_a_stalled_host_comes_back_too_late: ranges(1);
    scenario_23_a_checkpoint_that_arrives_after_the_takeover_is_refused: ranges(1);
    scenario_24_a_host_whose_lease_store_refuses_stops_in_time: ranges(1);
    scenario_24_a_host_whose_lease_store_is_silent_stops_in_time: ranges(1);
    scenario_25_a_clock_that_is_ahead_steals_nothing: ranges(2);
    scenario_25_a_clock_that_is_behind_steals_nothing: ranges(2);
    scenario_26_a_second_host_of_the_same_name_is_refused: ranges(2);
    scenario_26_a_second_host_of_the_name_of_a_stalled_one_fences_it: ranges(2);
    scenario_27_a_checkpoint_whose_reply_is_lost_is_recognised: ranges(1);
    scenario_27_a_checkpoint_without_any_reply_is_recognised: ranges(1);
    scenario_27_a_heartbeat_whose_reply_is_lost_is_recognised: ranges(1);
    scenario_27_a_release_whose_reply_is_lost_is_recognised: ranges(1);
    scenario_28_a_slow_checkpoint_never_moves_a_position_back: ranges(2);
    scenario_29_a_read_without_answer_is_given_up: ranges(1);
    scenario_29_a_split_goes_on_although_the_ranges_were_not_answered: ranges(1);
    scenario_29_a_stop_does_not_wait_for_a_read_without_answer: ranges(1);
    scenario_29_a_stop_does_not_wait_for_a_split_without_answer: ranges(1);
}

fn scenario_22_a_long_handler_keeps_its_lease(world: &World) {
    let h1 = world.start_owner("h1", &options());
    let h2 = world.start("h2", &options());
    world.recorder().close("h1");
    let written = world.write_many(10, 5);
    world.run_until(SOON, || world.recorder().at_work("h1") == 1);
    let epoch = world.only_lease().epoch;
    for _ in 0..3 * LEASE.as_secs() {
        world.run(secs(1));
        let lease = world.only_lease();
        assert_eq!((lease.owner.as_deref(), lease.epoch), (Some("h1"), epoch));
    }
    assert_eq!(world.recorder().at_work("h1"), 1);
    world.recorder().open("h1");
    world.run_until(SOON, || world.all_handled(&written));
    world.assert_each_once(&written);
    assert_eq!(world.recorder().count_on("h2"), 0);
    assert_eq!((h1.told(is_lost), h2.told(is_acquired)), (0, 0));
}

fn scenario_23_a_stalled_host_comes_back_too_late(world: &World) {
    let options = options().batch_items_max(5);
    let h1 = world.start_owner("h1", &options);
    world.start("h2", &options);
    world.run(ROUND * 2);
    world.recorder().close("h1");
    let written = world.write_many(20, 10);
    world.run_until(SOON, || world.recorder().at_work("h1") == 1);
    let before = world.only_lease();
    h1.stall(LEASE * 2);
    let took = world.run_until(LEASE * 2, || world.all_handled(&written));
    assert!(LEASE <= took, "{took:?}");
    world.run(secs(1));
    let taken = world.only_lease();
    assert_eq!(taken.owner.as_deref(), Some("h2"));
    assert!(before.epoch < taken.epoch);
    assert_eq!(h1.told(is_lost), 0, "it cannot know yet");
    // It comes back, and its handler would be ready to return.
    world.run(LEASE * 2 - took - secs(2));
    world.recorder().open("h1");
    let mut positions = Positions::default();
    positions.look(world);
    let resumed = world.now();
    world.run_watching(LEASE * 2, &mut positions);
    let own = world.batches_of("h1");
    assert_eq!(own.len(), 1, "it delivers nothing more");
    assert!(own[0].dropped && own[0].cancelled, "{own:?}");
    assert_eq!(h1.told(is_lost), 1);
    assert_eq!(world.only_lease().body, taken.body, "nobody wrote the lease since");
    let log = h1.leases.log();
    let writes = log.iter().filter(|it| it.call == Call::Commit && resumed <= it.at);
    assert!(writes.clone().all(|it| !it.what.contains(":lease:")), "no checkpoint is even tried");
    world.assert_in_order_per_key();
}

fn scenario_23_a_checkpoint_that_arrives_after_the_takeover_is_refused(world: &World) {
    let options = options().batch_items_max(5);
    let h1 = world.start_owner("h1", &options);
    world.start("h2", &options);
    world.run(ROUND * 2);
    // The checkpoint of the first batch is on its way when the host stops.
    let late = Fault::Delay(LEASE * 2);
    h1.leases.add(Rule::new(Call::Commit, late).touching("replace mailer:lease:").times(1));
    let written = world.write_many(20, 10);
    world.run_until_exact(SOON, || 5 < world.recorder().count_on("h1"));
    h1.stall(LEASE * 2 + secs(5));
    let mut positions = Positions::default();
    world.run_watching(LEASE + ROUND * 2, &mut positions);
    assert!(world.all_handled(&written));
    let taken = world.only_lease();
    assert_eq!(taken.owner.as_deref(), Some("h2"));
    world.run_watching(LEASE * 2, &mut positions);
    assert_eq!(world.only_lease().body, taken.body);
    assert_eq!(h1.told(is_lost), 1);
    world.assert_each_delivered(&written);
    world.assert_in_order_per_key();
}

fn scenario_24_a_host_whose_lease_store_refuses_stops_in_time(world: &World) {
    cut_off(world, Fault::Error(CoreErrorKind::Unavailable));
}

fn scenario_24_a_host_whose_lease_store_is_silent_stops_in_time(world: &World) {
    cut_off(world, Fault::Hang);
}

fn cut_off(world: &World, fault: Fault) {
    let h1 = world.start_owner("h1", &options());
    world.start("h2", &options());
    world.run(ROUND * 2);
    h1.leases.fail_all(fault);
    let cut = world.now();
    while world.recorder().count_on("h2") == 0 {
        assert!(world.now() < cut + LEASE + ROUND * 2, "nobody took over");
        world.write_many(1, 1_000);
        world.run(millis(200));
    }
    world.run(LEASE);
    let last = world.batches_of("h1").last().expect("the feed was not cut").clone();
    let first = world.batches_of("h2").first().expect("it took over").clone();
    assert!(cut < last.started, "the feed was not cut");
    assert!(last.started < cut + LEASE, "it delivered until {:?}", last.started - cut);
    assert!(last.ended.is_none_or(|(at, _)| at < first.started));
    assert!(cut + LEASE - ROUND <= first.started, "taken too early");
    assert_eq!(h1.told(is_lost), 1);
    // It is heard again, and gets its place back.
    h1.leases.heal();
    world.run(ROUND * 3);
    assert_eq!(h1.outcome(), None);
    assert_eq!(world.members(), ["h1", "h2"]);
    let written = world.written();
    world.run_until(SOON, || world.all_handled(&written));
    world.assert_in_order_per_key();
}

fn scenario_25_a_clock_that_is_ahead_steals_nothing(world: &World) {
    wrong_clock(world, 10 * 60 * 1_000);
}

fn scenario_25_a_clock_that_is_behind_steals_nothing(world: &World) {
    wrong_clock(world, -10 * 60 * 1_000);
}

fn wrong_clock(world: &World, skew_millis: i64) {
    let h1 = world.instance("h1").options(options()).skew_millis(0).start();
    let wrong = |name: &str| world.instance(name).options(options()).skew_millis(skew_millis);
    wrong("h2").start();
    world.run_until(SOON, || world.owners().values().eq([&1, &1]));
    world.run(ROUND * 2);
    let epochs = world.epochs();
    for _ in 0..10 {
        world.write_many(5, 5);
        world.run(LEASE);
        assert_eq!(world.epochs(), epochs, "a lease was stolen");
    }
    let written = world.written();
    world.assert_each_once(&written);
    // An orphan is found all the same.
    h1.kill();
    let took = world.run_until(LEASE + ROUND * 2, || world.owners().keys().eq(["h2"]));
    assert!(LEASE - ROUND <= took, "{took:?}");
    let written = world.write_many(10, 10);
    world.run_until(SOON, || world.all_handled(&written));
}

fn scenario_26_a_second_host_of_the_same_name_is_refused(world: &World) {
    let first = world.start_owner("twin", &options());
    let second = world.start("twin", &options());
    let written = world.write_many(20, 10);
    world.run_until(SOON, || second.outcome().is_some());
    assert_eq!(second.outcome(), Some(Err(ErrorKind::InstanceNameTaken)));
    assert_eq!(second.told(is_acquired), 0);
    world.run(LEASE * 2);
    assert_eq!((first.outcome(), first.told(is_lost)), (None, 0));
    assert!(world.all_handled(&written));
    world.assert_each_once(&written);
}

fn scenario_26_a_second_host_of_the_name_of_a_stalled_one_fences_it(world: &World) {
    let first = world.start_owner("twin", &options());
    world.run(ROUND);
    first.stall(LEASE * 4);
    let second = world.start("twin", &options());
    world.run_until(LEASE * 3, || second.told(is_acquired) == 2);
    let written = world.write_many(20, 10);
    world.run(LEASE * 3);
    assert_eq!(first.outcome(), Some(Err(ErrorKind::Fenced)));
    assert_eq!((second.outcome(), second.told(is_lost)), (None, 0));
    assert_eq!(first.told(is_acquired), 2, "it had both once, and never again");
    assert!(world.all_handled(&written));
    world.assert_each_once(&written);
    assert_eq!(world.members(), ["twin"], "the fenced one leaves the document alone");
}

fn scenario_27_a_checkpoint_whose_reply_is_lost_is_recognised(world: &World) {
    unsure(world, Rule::new(Call::Commit, Fault::LostReply).touching("replace mailer:lease:"));
}

fn scenario_27_a_checkpoint_without_any_reply_is_recognised(world: &World) {
    let silent = Rule::new(Call::Commit, Fault::HangAfterEffect);
    unsure(world, silent.touching("replace mailer:lease:"));
}

fn scenario_27_a_heartbeat_whose_reply_is_lost_is_recognised(world: &World) {
    unsure(world, Rule::new(Call::Commit, Fault::LostReply).touching("replace mailer:member:"));
}

/// Two writes succeed without the writer being told so.
fn unsure(world: &World, rule: Rule) {
    let h1 = world.start_owner("h1", &options().batch_items_max(5));
    h1.leases.add(rule.times(2));
    let epoch = world.only_lease().epoch;
    let mut positions = Positions::default();
    for _ in 0..8 {
        world.write_many(5, 5);
        world.run_watching(secs(2), &mut positions);
    }
    world.run_watching(ROUND * 2, &mut positions);
    let written = world.written();
    assert!(world.all_handled(&written));
    world.assert_each_once(&written);
    let lease = world.only_lease();
    assert_eq!((lease.owner.as_deref(), lease.epoch), (Some("h1"), epoch));
    assert_eq!(done_up_to(&lease.position), newest(world));
    assert_eq!((h1.told(is_lost), h1.told(is_acquired)), (0, 1));
}

fn scenario_27_a_release_whose_reply_is_lost_is_recognised(world: &World) {
    let h1 = world.start_owner("h1", &options());
    world.start("h2", &options());
    let written = world.write_many(10, 5);
    world.run_until(SOON, || world.all_handled(&written));
    world.run(ROUND);
    let lost = Rule::new(Call::Commit, Fault::LostReply).touching("replace mailer:lease:");
    h1.leases.add(lost.times(1));
    world.stop(&h1);
    assert_eq!(h1.told(is_lost), 0);
    assert_eq!(h1.told(|it| matches!(it, Notification::Released { .. })), 1);
    let written = world.write_many(10, 5);
    world.run_until(ROUND * 2, || world.all_handled(&written));
    assert_eq!(world.only_owner().as_deref(), Some("h2"));
    world.assert_each_once(&world.written());
}

fn newest(world: &World) -> u64 {
    let all = world.recorder().deliveries();
    all.iter().map(|it| it.lsn).max().unwrap_or(0)
}

fn scenario_28_a_slow_checkpoint_never_moves_a_position_back(world: &World) {
    let options = options().batch_items_max(3);
    let h1 = world.start_owner("h1", &options);
    // Checkpoints and heartbeats overtake each other; some come so late that they were given up.
    let slow = |time: Duration, what: &str| {
        Rule::new(Call::Commit, Fault::Delay(time)).touching(what).times(3)
    };
    for time in [secs(3), secs(12), millis(500), secs(30), secs(4)] {
        h1.leases.add(slow(time, "replace mailer:lease:"));
        h1.leases.add(slow(time / 4, "replace mailer:member:"));
    }
    let mut positions = Positions::default();
    let busy = |positions: &mut Positions, rounds: usize| {
        for _ in 0..rounds {
            world.write_many(7, 12);
            world.run_watching(secs(1), positions);
        }
    };
    busy(&mut positions, 10);
    let h2 = world.start("h2", &options);
    busy(&mut positions, 20);
    h1.stall(LEASE * 2);
    busy(&mut positions, 50);
    h2.kill();
    busy(&mut positions, 10);
    world.run_watching(LEASE * 2, &mut positions);
    let written = world.written();
    assert!(world.all_handled(&written));
    world.assert_in_order_per_key();
    assert!(world.leases_are_whole());
}

fn scenario_29_a_read_without_answer_is_given_up(world: &World) {
    let h1 = world.start_owner("h1", &options().read_timeout(secs(10)));
    h1.feed.fail_next(Call::FeedRead, 2, Fault::Hang);
    let written = world.write_many(10, 5);
    let took = world.run_until(secs(30), || world.all_handled(&written));
    assert!(secs(20) <= took, "two reads were waited for: {took:?}");
    world.assert_each_once(&written);
    assert_eq!(h1.told(is_store_failed), 2);
    assert_eq!((h1.told(is_lost), world.only_owner().as_deref()), (0, Some("h1")));
}

fn scenario_29_a_split_goes_on_although_the_ranges_were_not_answered(world: &World) {
    let h1 = world.start_owner("h1", &options().read_timeout(secs(10)));
    h1.feed.fail_next(Call::Ranges, 1, Fault::Hang);
    world.split(0);
    let written = world.write_many(10, 10);
    world.run_until(secs(60), || world.all_handled(&written) && world.leases().len() == 2);
    world.assert_each_once(&written);
    assert!(world.leases_are_whole());
}

fn scenario_29_a_stop_does_not_wait_for_a_read_without_answer(world: &World) {
    let options = options().read_timeout(secs(10)).stop_grace(secs(5));
    let h1 = world.start_owner("h1", &options);
    world.recorder().fail("item-3", usize::MAX, crate::harness::recorder::Failing::FailedAt);
    world.write_many(6, 6);
    world.run_until(SOON, || world.recorder().count_on("h1") != 0);
    // The stop wants to know where the changes end that are done, and is not told.
    h1.feed.add(Rule::new(Call::FeedRead, Fault::Hang));
    stop_within(world, &h1, secs(20));
    assert_eq!(world.only_owner(), None);
}

fn stop_within(world: &World, node: &Node, limit: Duration) {
    node.stop();
    world.run_until(limit, || node.outcome().is_some());
    assert_eq!(node.outcome(), Some(Ok(())));
}

fn scenario_29_a_stop_does_not_wait_for_a_split_without_answer(world: &World) {
    let h1 = world.start_owner("h1", &options());
    h1.feed.add(Rule::new(Call::Ranges, Fault::Error(CoreErrorKind::Unavailable)));
    world.split(0);
    let written = world.write_many(10, 10);
    world.run(secs(20));
    stop_within(world, &h1, SOON);
    assert_eq!(world.only_owner(), None, "it is free at once");
    world.start("h2", &options());
    world.run_until(SOON, || world.all_handled(&written) && world.leases().len() == 2);
    world.assert_each_once(&written);
}
