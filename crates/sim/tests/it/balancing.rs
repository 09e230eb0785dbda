//! How leases are shared out, and what moving them costs.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use millstream_processor::{Notification, ProcessorOptions, Strategy};
use serde_json::json;

use crate::harness::node::Node;
use crate::harness::{World, Written, ranges};

const SECOND: Duration = Duration::from_secs(1);
/// Those of the default options.
const ROUND: Duration = Duration::from_secs(5);
const LEASE: Duration = Duration::from_secs(20);
/// What requests and looks of the test add.
const SLACK: Duration = Duration::from_millis(300);

scenarios! {
    scenario_14_newcomer_gets_half_after_two_rounds_and_nothing_is_delivered_twice: ranges(10);
    scenario_15_more_hosts_than_leases_and_nothing_moves_for_ten_rounds: ranges(3);
    scenario_16_leases_of_a_killed_host_are_shared_out_at_once: ranges(4);
    scenario_17_two_newcomers_at_once_steal_no_lease_twice: ranges(12);
    scenario_18_rolling_restart_with_stable_names_moves_own_leases_only: ranges(20);
    scenario_18_rolling_restart_with_random_names_converges: ranges(20);
    scenario_19_lease_above_all_limits_is_reported_and_waits_for_a_third_host: ranges(5);
    scenario_20_hot_lease_ends_alone_and_nothing_oscillates: ranges(10);
    scenario_21_two_documents_with_one_lease_token_are_reported_and_harm_nothing: ranges(4);
    graceful_handoff_of_a_hundred_leases_delivers_nothing_twice: ranges(4);
    crash_takeover_within_one_lease_duration_plus_one_round: ranges(4);
}

/// A hundred leases on four ranges.
fn hundred() -> ProcessorOptions {
    ProcessorOptions::default().leases_per_range(25)
}

fn shares(world: &World) -> Vec<usize> {
    world.owners().into_values().collect()
}

fn is_settled(world: &World, expected: &[(&str, usize)]) -> bool {
    let expected = expected.iter().map(|(name, count)| ((*name).to_owned(), *count));
    world.owners() == expected.collect::<BTreeMap<_, _>>()
}

/// How often each lease was acquired, by its keys.
fn acquisitions<'a>(nodes: impl IntoIterator<Item = &'a Node>) -> BTreeMap<String, usize> {
    let mut times = BTreeMap::new();
    for node in nodes {
        for notification in node.notifications() {
            if let Notification::Acquired { keys, .. } = notification {
                *times.entry(keys.to_string()).or_default() += 1;
            }
        }
    }
    times
}

/// Writes items at an even pace for a while.
fn write_steadily(world: &World, time: Duration, per_second: usize) -> Vec<Written> {
    let mut written = Vec::new();
    let until = world.now() + time;
    while world.now() < until {
        written.extend(world.write_many(per_second, 200));
        world.run(SECOND);
    }
    written
}

fn scenario_14_newcomer_gets_half_after_two_rounds_and_nothing_is_delivered_twice(world: &World) {
    let options = ProcessorOptions::default().batch_items_max(5);
    world.recorder().take("h1", SECOND);
    world.recorder().take("h2", SECOND);
    let first = world.start("h1", &options);
    world.run_until(ROUND, || is_settled(world, &[("h1", 10)]));
    let written = world.write_many(200, 50);
    world.run(SECOND / 2);
    assert!(0 < world.recorder().at_work("h1"));
    let second = world.start("h2", &options);
    // Every batch at hand takes up to a second.
    let took =
        world.run_until(ROUND * 2 + SECOND * 2, || is_settled(world, &[("h1", 5), ("h2", 5)]));
    assert!(took <= ROUND * 2 + SECOND * 2);
    world.run_until(SECOND * 60, || world.all_handled(&written));
    world.assert_each_once(&written);
    world.assert_in_order_per_key();
    // Every batch was finished: none was cancelled for a move.
    assert!(world.recorder().batches().iter().all(|it| it.ended.is_some_and(|(_, ok)| ok)));
    let released =
        first.told(|it| matches!(it, Notification::Released { to: Some(to), .. } if to == "h2"));
    assert_eq!(released, 5);
    assert_eq!(second.told(|it| matches!(it, Notification::Acquired { .. })), 5);
    assert_eq!(first.told(|it| matches!(it, Notification::Lost { .. })), 0);
}

fn scenario_15_more_hosts_than_leases_and_nothing_moves_for_ten_rounds(world: &World) {
    let hosts: Vec<Node> =
        (1..=5).map(|it| world.start(&format!("h{it}"), &ProcessorOptions::default())).collect();
    world.run_until(ROUND * 3, || shares(world) == [1, 1, 1]);
    world.run(ROUND);
    let before: Vec<_> = world.leases().into_iter().map(|it| (it.owner, it.epoch)).collect();
    let owners: BTreeSet<_> = before.iter().map(|(owner, _)| owner.clone()).collect();
    assert_eq!(owners.len(), 3);
    let written = write_steadily(world, ROUND * 10, 3);
    let after: Vec<_> = world.leases().into_iter().map(|it| (it.owner, it.epoch)).collect();
    assert_eq!(before, after);
    let busy = hosts.iter().filter(|it| 0 < world.recorder().count_on(&it.name));
    assert_eq!(busy.count(), 3);
    world.run_until(SECOND * 10, || world.all_handled(&written));
    world.assert_each_once(&written);
}

fn scenario_16_leases_of_a_killed_host_are_shared_out_at_once(world: &World) {
    let first = world.start("h1", &hundred());
    world.run_until(ROUND, || is_settled(world, &[("h1", 100)]));
    // The others have joined, but nothing was handed to them yet.
    let others = ["h2", "h3"].map(|it| world.start(it, &hundred()));
    world.run_until_exact(SECOND, || world.members().len() == 3);
    first.kill();
    let killed = world.now();
    let left = world.owners().get("h1").copied();
    let written = world.write_many(200, 200);
    let fair = || is_settled(world, &[("h2", 50), ("h3", 50)]);
    // Not one per round: each takes its share in one round.
    world.run_until(LEASE + ROUND * 3, fair);
    let took = world.now() - killed;
    assert_eq!(left, Some(100));
    assert!(took <= LEASE + ROUND + SLACK, "{took:?}");
    world.run_until(SECOND * 10, || world.all_handled(&written));
    world.assert_each_delivered(&written);
    assert!(others.iter().all(|it| it.outcome().is_none()));
}

fn scenario_17_two_newcomers_at_once_steal_no_lease_twice(world: &World) {
    let options = ProcessorOptions::default();
    let first = world.start("h1", &options);
    world.run_until(ROUND, || is_settled(world, &[("h1", 12)]));
    let others = ["h2", "h3"].map(|it| world.instance(it).launch());
    let written = write_steadily(world, ROUND * 4, 10);
    assert!(is_settled(world, &[("h1", 4), ("h2", 4), ("h3", 4)]), "{:?}", world.owners());
    let times = acquisitions([&first, &others[0], &others[1]]);
    assert!(times.values().all(|it| *it <= 2), "{times:?}");
    let moved = times.values().filter(|it| **it == 2).count();
    assert_eq!(moved, 8, "{times:?}");
    world.run_until(SECOND * 10, || world.all_handled(&written));
    world.assert_each_once(&written);
}

fn scenario_18_rolling_restart_with_stable_names_moves_own_leases_only(world: &World) {
    let options = ProcessorOptions::default();
    let start = |number: usize| world.start(&format!("h{number}"), &options);
    let mut hosts: Vec<Node> = (0..5).map(start).collect();
    world.run_until(ROUND * 6, || shares(world) == [4; 5]);
    world.run(ROUND);
    let mut written = Vec::new();
    for number in 0..hosts.len() {
        let before: usize = acquisitions(&hosts).values().sum();
        world.stop(&hosts[number]);
        written.extend(write_steadily(world, SECOND * 3, 10));
        let old = std::mem::replace(&mut hosts[number], start(number));
        world.run_until(ROUND * 4, || shares(world) == [4; 5]);
        world.run(ROUND);
        let after: usize = acquisitions(&hosts).values().sum();
        let own: usize = acquisitions([&old]).values().sum();
        // Its four go to others and four come back; nothing else moves.
        let moved = after + own - before;
        assert!(moved <= 8, "{moved} moves");
        assert_eq!(world.members().len(), 5);
    }
    world.run_until(SECOND * 10, || world.all_handled(&written));
    world.assert_each_once(&written);
    world.assert_in_order_per_key();
}

fn scenario_18_rolling_restart_with_random_names_converges(world: &World) {
    let options = ProcessorOptions::default();
    let hosts: Vec<Node> = (0..5).map(|it| world.start(&format!("first-{it}"), &options)).collect();
    world.run_until(ROUND * 6, || shares(world) == [4; 5]);
    let mut written = Vec::new();
    for (number, host) in hosts.iter().enumerate() {
        world.stop(host);
        written.extend(write_steadily(world, SECOND * 3, 10));
        world.start(&format!("second-{number}"), &options);
    }
    world.run_until(ROUND * 4, || shares(world) == [4; 5]);
    assert!(world.owners().keys().all(|it| it.starts_with("second")));
    assert_eq!(world.members().len(), 5);
    world.run_until(SECOND * 10, || world.all_handled(&written));
    world.assert_each_once(&written);
}

fn scenario_19_lease_above_all_limits_is_reported_and_waits_for_a_third_host(world: &World) {
    let options = ProcessorOptions::default().leases_max(2);
    let hosts = ["h1", "h2"].map(|it| world.start(it, &options));
    let unassigned =
        |leases: usize| move |it: &Notification| *it == Notification::Unassigned { leases };
    world.run_until(ROUND * 3, || is_settled(world, &[("", 1), ("h1", 2), ("h2", 2)]));
    world.run(ROUND * 2);
    assert!(hosts.iter().all(|it| it.told(unassigned(1)) == 1));
    let written = world.write_many(50, 50);
    let third = world.start("h3", &options);
    world.run_until(ROUND * 3, || is_settled(world, &[("h1", 2), ("h2", 2), ("h3", 1)]));
    world.run_until(SECOND * 10, || world.all_handled(&written));
    world.assert_each_once(&written);
    // Children of a split count as leases of their own: one fits, the next has to wait.
    for (splits, left) in [(1, 0), (2, 1)] {
        world.split(0);
        let begun = world.now();
        while world.now() < begun + ROUND * 6 {
            world.run(SECOND / 10);
            let mut owners = world.owners().into_iter().filter(|(name, _)| !name.is_empty());
            assert!(owners.all(|(_, leases)| leases <= 2), "{:?}", world.owners());
        }
        assert_eq!(world.leases().len(), 5 + splits);
        assert_eq!(world.owners().get("").copied().unwrap_or(0), left);
        assert!(world.leases_are_whole());
    }
    assert!(hosts.iter().chain([&third]).any(|it| 0 < it.told(unassigned(1))));
}

fn scenario_20_hot_lease_ends_alone_and_nothing_oscillates(world: &World) {
    let options = ProcessorOptions::default().strategy(Strategy::LoadAware);
    let hosts = ["h1", "h2"].map(|it| world.start(it, &options));
    // A key of the first range is hot, changes come all the time; the others see one now and then.
    let hot = (0..).map(|it| format!("hot-{it}")).find(|it| in_first_range(world, it));
    let hot = hot.expect("some key lies there");
    let work = |time: Duration| {
        let until = world.now() + time;
        while world.now() < until {
            for _ in 0..5 {
                world.write(&hot, &format!("hot-item-{}", world.written().len()));
                world.run(SECOND / 5);
            }
            world.write_many(2, 100);
        }
    };
    work(ROUND * 16);
    let first = world.ranges().remove(0).keys;
    let leases = world.leases();
    let owner = leases.iter().find(|it| it.keys == first).and_then(|it| it.owner.clone());
    let owner = owner.expect("the hot lease has an owner");
    let before = world.owners();
    assert!(before[&owner] <= 3, "{before:?}, the hot one is with {owner}");
    let acquired = acquisitions(&hosts);
    work(ROUND * 20);
    assert_eq!(world.owners(), before);
    assert_eq!(acquisitions(&hosts), acquired, "leases moved to and fro");
    let written = world.written();
    world.run_until(SECOND * 10, || world.all_handled(&written));
    world.assert_each_once(&written);
}

fn in_first_range(world: &World, key: &str) -> bool {
    let feed = world.raw_feed();
    let key = feed.info.settings.partition_key.effective(&key.into()).expect("a key");
    world.ranges()[0].keys.contains(&key)
}

fn scenario_21_two_documents_with_one_lease_token_are_reported_and_harm_nothing(world: &World) {
    let first = world.start("h1", &ProcessorOptions::default());
    let written = world.write_many(20, 20);
    world.run_until(SECOND * 30, || world.all_handled(&written));
    world.stop(&first);
    // The same keys under ids that sort before and after the real one.
    let lease = world.leases().remove(2);
    let ids = ["mailer:lease:0-copy", "mailer:lease:copy"];
    for id in ids {
        let mut copy = lease.body.clone();
        copy["id"] = json!(id);
        copy["owner"] = json!({ "instance": "gone", "incarnation": uuid::Uuid::nil() });
        world.put_document(&copy);
    }
    let hosts = ["h2", "h3"].map(|it| world.start(it, &ProcessorOptions::default()));
    let more = world.write_many(40, 40);
    world.run_until(SECOND * 60, || world.all_handled(&more));
    world.run(ROUND * 6);
    world.assert_each_once(&world.written());
    assert!(hosts.iter().all(|it| it.outcome().is_none()));
    let overlap =
        |it: &Notification| matches!(it, Notification::Overlap { keys, .. } if *keys == lease.keys);
    assert!(hosts.iter().all(|it| 0 < it.told(overlap)));
    let real = |it: &crate::harness::documents::LeaseSeen| !ids.contains(&it.id.as_str());
    assert_eq!(world.leases().into_iter().filter(real).count(), 4);
    let owned = world.leases().into_iter().filter(real).filter(|it| it.owner.is_some());
    assert_eq!(owned.count(), 4);
}

fn graceful_handoff_of_a_hundred_leases_delivers_nothing_twice(world: &World) {
    world.recorder().take("h1", SECOND / 4);
    world.recorder().take("h2", SECOND / 4);
    let first = world.start("h1", &hundred());
    world.run_until(ROUND, || is_settled(world, &[("h1", 100)]));
    let mut written = write_steadily(world, SECOND * 2, 100);
    world.start("h2", &hundred());
    written.extend(write_steadily(world, ROUND * 3, 100));
    assert!(is_settled(world, &[("h1", 50), ("h2", 50)]), "{:?}", world.owners());
    // The other half goes over because the first one stops; nobody waits for a lease to run out.
    first.stop();
    let stopped = world.now();
    written.extend(write_steadily(world, ROUND * 2, 100));
    assert_eq!(first.outcome(), Some(Ok(())));
    assert!(is_settled(world, &[("h2", 100)]), "{:?}", world.owners());
    world.run_until(SECOND * 20, || world.all_handled(&written));
    assert!(world.now() - stopped < LEASE);
    world.assert_each_once(&written);
    world.assert_in_order_per_key();
    assert_eq!(world.members(), ["h2"]);
}

fn crash_takeover_within_one_lease_duration_plus_one_round(world: &World) {
    let mut old = world.start("h0", &hundred());
    // The kill comes at another phase of the heartbeats and rounds each time.
    for number in 1..=6 {
        let new = world.start(&format!("h{number}"), &hundred());
        let halves = [(old.name.as_str(), 50), (new.name.as_str(), 50)];
        world.run_until(ROUND * 4, || is_settled(world, &halves));
        world.run(ROUND + SECOND * 7 * number / 10);
        old.kill();
        let before: usize = acquisitions([&new]).values().sum();
        let written = world.write_many(200, 200);
        let took = world.run_until(LEASE + ROUND * 3, || world.all_handled(&written));
        assert!(took <= LEASE + ROUND + SLACK, "{took:?} after the {number}. kill");
        assert!(is_settled(world, &[(&new.name, 100)]), "{:?}", world.owners());
        let after: usize = acquisitions([&new]).values().sum();
        assert_eq!(after - before, 50, "one acquisition per orphan");
        old = new;
    }
}
