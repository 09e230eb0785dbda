//! A lease store that has too much to do, and how little is asked of it when nothing happens.

use std::time::Duration;

use millstream_core::ErrorKind;
use millstream_processor::{Notification, ProcessorOptions};

use crate::harness::port::{Call, Fault, Rule};
use crate::harness::{Backend, World, ranges};

const SECOND: Duration = Duration::from_secs(1);
/// Those of the default options.
const ROUND: Duration = Duration::from_secs(5);
const LEASE: Duration = Duration::from_secs(20);

scenarios! {
    throttled_lease_store_stops_deliveries_at_the_margin_and_nothing_crashes: ranges(4);
    failing_listings_skip_rounds_and_keep_leases: ranges(4);
    idle_instances_write_once_per_heartbeat_and_list_once_per_round: ranges(4);
}

fn throttled_lease_store_stops_deliveries_at_the_margin_and_nothing_crashes(world: &World) {
    let host = world.start("h1", &ProcessorOptions::default());
    world.run_until(ROUND, || world.owners().get("h1") == Some(&4));
    world.run(SECOND * 7);
    host.leases.fail_all(Fault::Throttled);
    let cut = world.now();
    let margin = LEASE - LEASE / 5;
    while world.now() < cut + SECOND * 120 {
        world.write_many(4, 40);
        world.run(SECOND);
    }
    // The last sign of life was up to a round before.
    let last = world.recorder().deliveries().into_iter().map(|it| it.at).max().expect("some");
    assert!(last <= cut + margin, "{:?} after", last - cut);
    assert!(cut + margin - ROUND - SECOND <= last, "{:?} after", last - cut);
    assert_eq!(host.outcome(), None);
    assert_eq!(host.told(|it| matches!(it, Notification::Lost { .. })), 4);
    let calls = host.leases.log().into_iter().filter(|it| cut <= it.at).count();
    assert!(calls < 120 * 4, "{calls} calls in two minutes");
    host.leases.heal();
    let written = world.written();
    world.run_until(ROUND * 2, || world.all_handled(&written));
    world.assert_in_order_per_key();
    assert_eq!(world.owners().get("h1"), Some(&4));
}

fn failing_listings_skip_rounds_and_keep_leases(world: &World) {
    let hosts = ["h1", "h2"].map(|it| world.start(it, &ProcessorOptions::default()));
    world.run_until(ROUND * 4, || {
        world.owners().len() == 2 && world.owners().values().all(|it| *it == 2)
    });
    world.run(ROUND * 2);
    let before: Vec<_> = world.leases().into_iter().map(|it| (it.owner, it.epoch)).collect();
    hosts[0].leases.add(Rule::new(Call::Scan, Fault::Error(ErrorKind::Unavailable)));
    hosts[1].leases.add(Rule::new(Call::Scan, Fault::Hang));
    for _ in 0..60 {
        world.write_many(4, 40);
        world.run(SECOND);
    }
    let written = world.written();
    world.run_until(SECOND * 2, || world.all_handled(&written));
    let after: Vec<_> = world.leases().into_iter().map(|it| (it.owner, it.epoch)).collect();
    assert_eq!(before, after);
    world.assert_each_once(&written);
    for host in &hosts {
        assert_eq!(host.outcome(), None);
        assert_eq!(host.told(|it| matches!(it, Notification::Lost { .. })), 0);
        assert!(0 < host.told(|it| matches!(it, Notification::StoreFailed { .. })));
    }
}

fn idle_instances_write_once_per_heartbeat_and_list_once_per_round(world: &World) {
    let options = ProcessorOptions::default().leases_per_range(25);
    let hosts = ["h1", "h2"].map(|it| world.start(it, &options));
    let written = world.write_many(100, 100);
    world.run_until(SECOND * 60, || {
        world.all_handled(&written) && world.owners().values().all(|it| *it == 50)
    });
    // What the last changes left behind is written within a minute.
    world.run(SECOND * 70);
    let since = world.now();
    world.run(ROUND * 10);
    for host in &hosts {
        let (writes, scans) =
            (host.leases.count(Call::Commit, since), host.leases.count(Call::Scan, since));
        assert!(writes <= 10, "{} wrote {writes} times", host.name);
        // Rounds come up to an eighth of their interval early, so that instances do not meet.
        assert!(scans <= 12, "{} listed {scans} times", host.name);
        assert!(8 <= writes && 9 <= scans);
        assert_eq!(host.leases.count(Call::Read, since), 0);
        let log = host.leases.log().into_iter().filter(|it| since <= it.at);
        let mut log = log.filter(|it| it.call == Call::Scan);
        assert!(log.all(|it| it.what.starts_with("Partition")));
    }
}

#[test]
fn two_hundred_leases_from_four_to_eight_instances_settle_within_three_rounds() {
    let world = World::new(Backend::Memory, 1, ranges(8));
    let options = ProcessorOptions::default().leases_per_range(25);
    let start = |number: usize| world.start(&format!("h{number}"), &options);
    let mut hosts: Vec<_> = (0..4).map(start).collect();
    let fair = |hosts: usize| {
        world.owners().len() == hosts && world.owners().values().all(|it| *it == 200 / hosts)
    };
    world.run_until(ROUND * 4, || fair(4));
    world.run(ROUND);
    let launch = |number| world.instance(&format!("h{number}")).options(options.clone()).launch();
    hosts.extend((4..8).map(launch));
    let took = world.run_until(ROUND * 3, || fair(8));
    assert!(took <= ROUND * 3, "{took:?}");
    // Everything that was handed over is at work with its new owner, and then nothing moves.
    let acquired = |it: &Notification| matches!(it, Notification::Acquired { .. });
    let count = || hosts.iter().map(|it| it.told(acquired)).sum::<usize>();
    world.run(ROUND);
    let before = count();
    world.run(ROUND * 5);
    assert_eq!(count(), before);
    assert!(before <= 200 + 200, "{before} acquisitions");
}
