//! Ranges that move, containers that are replaced, positions that expire.

use std::time::Duration;

use millstream_core::FeedMode;
use millstream_processor::{
    ErrorKind, ExpiredPolicy, LeaseState, Notification, ProcessorOptions, RecreatedPolicy,
};

use crate::harness::node::Node;
use crate::harness::port::{Call, Fault, Rule};
use crate::harness::{Layout, World, ranges};
use crate::harness_more::{
    LEASE, ROUND, SOON, done_up_to, is_lost, is_split, millis, options, secs,
};

scenarios! {
    scenario_38_a_split_during_a_batch_loses_and_repeats_nothing: ranges(1);
    scenario_38_ranges_split_again_while_children_are_created: ranges(1);
    scenario_38_the_owner_dies_between_the_first_child_and_the_second: ranges(1);
    scenario_38_the_owner_dies_before_any_child_exists: ranges(1);
    scenario_38_the_owner_dies_before_the_parent_is_retired: ranges(1);
    scenario_38_a_merge_keeps_the_position_of_each_lease: ranges(2);
    scenario_38_ranges_merge_and_split_under_load: ranges(3);
    scenario_39_a_recreated_container_stops_the_instance: ranges(2);
    scenario_39_a_recreated_container_begins_anew_by_policy: ranges(2);
    scenario_40_an_expired_position_stops_the_instance: expiring();
    scenario_40_an_expired_position_goes_on_from_the_oldest_change: expiring();
    scenario_40_an_expired_position_goes_on_from_now: expiring();
}

const RETENTION: Duration = Duration::from_secs(3_600);

fn expiring() -> Layout {
    Layout { retention: RETENTION, ..ranges(1) }
}

/// Everything was delivered in order, every key is covered once, and retired leases stay so.
#[track_caller]
fn check_whole(world: &World, leases: usize) {
    assert!(world.leases_are_whole());
    assert_eq!(world.leases().len(), leases);
    let all = world.all_leases();
    assert!(all.iter().all(|it| it.state != LeaseState::Splitting), "a split was left half done");
    world.assert_each_delivered(&world.written());
    world.assert_in_order_per_key();
}

fn scenario_38_a_split_during_a_batch_loses_and_repeats_nothing(world: &World) {
    let h1 = world.start_owner("h1", &options().batch_items_max(5));
    let parent = world.only_lease();
    world.recorder().close("h1");
    world.write_many(12, 6);
    world.run_until_exact(SOON, || world.recorder().at_work("h1") == 1);
    world.split(0);
    world.write_many(8, 6);
    world.run(ROUND * 2);
    assert_eq!(world.recorder().at_work("h1"), 1, "the batch goes on");
    assert_eq!(world.leases().len(), 1, "nothing is replaced before it is done");
    world.recorder().open("h1");
    world.run_until(SOON, || world.all_handled(&world.written()) && world.leases().len() == 2);
    check_whole(world, 2);
    world.assert_each_once(&world.written());
    let all = world.all_leases();
    let retired = all.iter().find(|it| it.id == parent.id).expect("its lineage is kept");
    assert_eq!((retired.state, &retired.owner), (LeaseState::Retired, &None));
    for child in world.leases() {
        let lineage = serde_json::to_value(vec![parent.keys.clone()]).expect("keys are JSON");
        assert_eq!(child.body["lineage"], lineage);
    }
    assert_eq!((h1.told(is_split), h1.told(is_lost)), (1, 0));
}

fn scenario_38_ranges_split_again_while_children_are_created(world: &World) {
    let h1 = world.start_owner("h1", &options().batch_items_max(5));
    world.write_many(10, 10);
    world.run_until(SOON, || world.all_handled(&world.written()));
    let slow = Rule::new(Call::Commit, Fault::Delay(secs(3))).touching("create mailer:lease:");
    h1.leases.add(slow.times(2));
    world.split(0);
    world.write_many(10, 10);
    let splitting = || world.all_leases().iter().any(|it| it.state == LeaseState::Splitting);
    world.run_until_exact(SOON, splitting);
    world.run(secs(1));
    world.split(0);
    world.split(2);
    world.write_many(10, 10);
    world.run_until(secs(60), || world.all_handled(&world.written()) && world.leases().len() == 4);
    check_whole(world, 4);
    world.assert_each_once(&world.written());
    assert_eq!(h1.told(is_split), 3);
}

fn scenario_38_the_owner_dies_between_the_first_child_and_the_second(world: &World) {
    let die = Rule::new(Call::Commit, Fault::Die { takes_effect: true });
    let seen = die_during_split(world, die.touching("create mailer:lease:"));
    assert_eq!(seen, (1, LeaseState::Splitting));
}

fn scenario_38_the_owner_dies_before_any_child_exists(world: &World) {
    let die = Rule::new(Call::Commit, Fault::Die { takes_effect: false });
    let seen = die_during_split(world, die.touching("create mailer:lease:"));
    assert_eq!(seen, (0, LeaseState::Splitting));
}

fn scenario_38_the_owner_dies_before_the_parent_is_retired(world: &World) {
    let die = Rule::new(Call::Commit, Fault::Die { takes_effect: false });
    // The first write freezes the position, the second one retires the lease.
    let seen = die_during_split(world, die.touching("replace mailer:lease:").after(1));
    assert_eq!(seen, (2, LeaseState::Splitting));
}

/// Lets the owner die, and returns how many children there were then, and what the parent was.
fn die_during_split(world: &World, rule: Rule) -> (usize, LeaseState) {
    let options = options().batch_items_max(5);
    let h1 = world.start_owner("h1", &options);
    let h2 = world.start("h2", &options);
    world.write_many(10, 10);
    world.run_until(SOON, || world.all_handled(&world.written()));
    world.run(ROUND);
    let parent = world.only_lease();
    h1.leases.add(rule.times(1));
    world.split(0);
    world.run(secs(2));
    // It is dead by now. Nobody notices for a while, and changes go on.
    let all = world.all_leases();
    let children = all.iter().filter(|it| it.id != parent.id).count();
    let state = all.iter().find(|it| it.id == parent.id).expect("it is kept").state;
    world.write_many(10, 10);
    world.run_until(LEASE + ROUND * 3, || {
        world.all_handled(&world.written()) && world.leases().len() == 2
    });
    world.run(ROUND * 2);
    check_whole(world, 2);
    assert_eq!(world.all_leases().len(), 3);
    assert!(world.owners().keys().eq(["h2"]));
    assert_eq!(h2.told(is_lost), 0);
    (children, state)
}

fn scenario_38_a_merge_keeps_the_position_of_each_lease(world: &World) {
    let options = options().batch_items_max(5);
    let h1 = world.start_owner("h1", &options);
    let (left, right) = (world.key_in(0), world.key_in(1));
    for number in 0..20 {
        world.write(&left, &format!("left-{number}"));
    }
    world.run_until(SOON, || world.all_handled(&world.written()));
    world.run(secs(1));
    // The right one is at work at its first batch while the left one is far ahead.
    world.recorder().close("h1");
    for number in 0..20 {
        world.write(&right, &format!("right-{number}"));
    }
    world.run_until_exact(SOON, || world.recorder().at_work("h1") == 1);
    let positions = |world: &World| -> Vec<u64> {
        world.leases().iter().map(|it| done_up_to(&it.position)).collect()
    };
    let before = positions(world);
    assert_ne!(before[0], before[1]);
    world.merge(0);
    for number in 20..30 {
        world.write(&left, &format!("left-{number}"));
        world.write(&right, &format!("right-{number}"));
    }
    world.run(secs(1));
    h1.kill();
    assert_eq!(positions(world), before, "each one keeps its own");
    world.start("h2", &options);
    world.run_until(LEASE + ROUND * 3, || world.all_handled(&world.written()));
    world.run(ROUND);
    check_whole(world, 2);
    assert_eq!(world.ranges().len(), 1);
    for number in 0..20 {
        let id = format!("left-{number}");
        assert_eq!(world.deliveries_of_item(&id).len(), 1, "{id} was checkpointed");
    }
}

fn scenario_38_ranges_merge_and_split_under_load(world: &World) {
    let options = options().batch_items_max(5);
    let start = |name: &str| world.start(name, &options);
    let mut nodes: Vec<Node> = ["h1", "h2"].into_iter().map(start).collect();
    let steps: [&dyn Fn(); 8] = [
        &|| world.split(1),
        &|| world.merge(0),
        &|| world.split(0),
        &|| world.split(0),
        &|| world.merge(1),
        &|| world.merge(1),
        &|| world.split(1),
        &|| world.merge(0),
    ];
    for (number, step) in steps.into_iter().enumerate() {
        world.write_many(15, 20);
        step();
        world.write_many(15, 20);
        world.run(millis(700));
        if number == 3 {
            nodes[0].kill();
            nodes.push(start("h3"));
        }
    }
    world.run_until(LEASE * 3, || world.all_handled(&world.written()));
    world.run(ROUND * 2);
    check_whole(world, world.leases().len());
}

fn scenario_39_a_recreated_container_stops_the_instance(world: &World) {
    let h1 = world.start_owner("h1", &options());
    world.write_many(10, 10);
    world.run_until(SOON, || world.all_handled(&world.written()));
    world.run(ROUND);
    let before = world.leases();
    world.recreate();
    let fresh = world.write_many(10, 10);
    world.run_until(secs(60), || h1.outcome().is_some());
    assert_eq!(h1.outcome(), Some(Err(ErrorKind::ContainerRecreated)));
    assert!(0 < h1.told(|it| *it == Notification::ContainerRecreated));
    // The same leases are refused at a start too, and nothing is changed.
    let refused = world.instance("h2").options(options()).start_refused();
    assert_eq!(refused, ErrorKind::ContainerRecreated);
    let positions = |leases: &[crate::harness::documents::LeaseSeen]| -> Vec<String> {
        leases.iter().map(|it| it.position.clone()).collect()
    };
    assert_eq!(positions(&world.leases()), positions(&before));
    assert!(fresh.iter().all(|it| world.deliveries_of_item(&it.id).is_empty()));
}

fn scenario_39_a_recreated_container_begins_anew_by_policy(world: &World) {
    let options = options().recreated(RecreatedPolicy::Restart);
    let h1 = world.start_owner("h1", &options);
    world.write_many(30, 10);
    world.run_until(SOON, || world.all_handled(&world.written()));
    world.run(ROUND);
    let old: Vec<String> = world.leases().into_iter().map(|it| it.id).collect();
    world.recreate();
    let fresh = world.write_many(10, 10);
    world.run_until(secs(60), || h1.outcome().is_some());
    assert_eq!(h1.outcome(), Some(Err(ErrorKind::ContainerRecreated)), "its feed is gone for good");
    let h2 = world.start("h2", &options);
    world.run_until(SOON, || world.all_handled(&fresh));
    assert_eq!(h2.told(|it| *it == Notification::ContainerRecreated), 1);
    // Positions of the old container lie beyond all of these; they were not used.
    world.assert_each_once(&fresh);
    let container = world.raw_feed().info.resource_id.incarnation();
    let new = world.leases().into_iter().filter(|it| !old.contains(&it.id));
    assert!(new.clone().all(|it| it.body["container"] == container));
    assert_eq!(new.count(), 2);
}

/// Handles some changes, stops, and comes back when the feed has forgotten what followed.
fn come_back_late(world: &World, options: &ProcessorOptions) -> Node {
    let h1 = world.start_owner("h1", options);
    world.write_many(5, 5);
    world.run_until(SOON, || world.all_handled(&world.written()));
    world.stop(&h1);
    for number in 0..5 {
        world.write("gone", &format!("gone-{number}"));
    }
    world.run(RETENTION * 2);
    world.maintain();
    for number in 0..5 {
        world.write("kept", &format!("kept-{number}"));
    }
    let before = world.recorder().count();
    assert_eq!(before, 5);
    world.start("h2", options)
}

fn all_versions() -> ProcessorOptions {
    options().mode(FeedMode::AllVersions)
}

fn expired(node: &Node) -> usize {
    node.told(|it| matches!(it, Notification::PositionExpired { .. }))
}

fn scenario_40_an_expired_position_stops_the_instance(world: &World) {
    let h2 = come_back_late(world, &all_versions());
    let lease = world.only_lease();
    world.run_until(SOON, || h2.outcome().is_some());
    let keys = Box::new(lease.keys.clone());
    assert_eq!(h2.outcome(), Some(Err(ErrorKind::PositionExpired { keys })));
    assert_eq!(expired(&h2), 1);
    let told = h2.notifications();
    let of_range = |it: &&Notification| {
        let expected = &lease.keys;
        matches!(it, Notification::PositionExpired { keys } if **keys == *expected)
    };
    assert_eq!(told.iter().filter(of_range).count(), 1);
    assert_eq!(world.recorder().count(), 5, "nothing was delivered past the gap");
    assert_eq!(world.only_lease().position, lease.position, "the position is kept");
    assert!(world.estimate().leases[0].expired);
    let reads = h2.feed.count(Call::FeedRead, Duration::ZERO);
    assert!(reads <= 2, "{reads} reads");
}

fn scenario_40_an_expired_position_goes_on_from_the_oldest_change(world: &World) {
    let h2 = come_back_late(world, &all_versions().expired(ExpiredPolicy::FromOldest));
    world.run_until_handled(&["kept-0", "kept-1", "kept-2", "kept-3", "kept-4"]);
    goes_on(world, &h2);
    for number in 0..5 {
        assert_eq!(world.deliveries_of_item(&format!("kept-{number}")).len(), 1);
    }
}

fn scenario_40_an_expired_position_goes_on_from_now(world: &World) {
    let h2 = come_back_late(world, &all_versions().expired(ExpiredPolicy::FromNow));
    world.run_until(SOON, || expired(&h2) == 1);
    world.run(secs(1));
    goes_on(world, &h2);
    assert!(world.deliveries_of_item("kept-0").is_empty());
}

/// It told of the expiry once, delivers what is new, and the position moved.
#[track_caller]
fn goes_on(world: &World, node: &Node) {
    let later = world.write_many(5, 5);
    world.run_until(SOON, || world.all_handled(&later));
    world.assert_each_once(&later);
    world.run(secs(120));
    assert_eq!((expired(node), node.outcome()), (1, None));
    assert!(world.deliveries_of_item("gone-0").is_empty());
    world.stop(node);
    let third = world.start("h3", &all_versions());
    let last = world.write_many(5, 5);
    world.run_until(SOON, || world.all_handled(&last));
    world.assert_each_once(&last);
    assert_eq!(expired(&third), 0, "the new position was stored");
}
