//! Where a processor begins, and that nothing after that is missed.

use std::time::Duration;

use millstream_core::Timestamp;
use millstream_processor::{Notification, ProcessorOptions, StartPosition};

use crate::harness::recorder::Failing;
use crate::harness::{World, ranges};

const SECOND: Duration = Duration::from_secs(1);
const MILLISECOND: Duration = Duration::from_millis(1);

scenarios! {
    scenario_09_item_written_right_after_a_start_now_is_delivered: ranges(4);
    scenario_09_what_is_written_after_a_start_now_survives_the_death_of_the_host: ranges(4);
    scenario_10_first_batch_that_failed_is_delivered_to_the_next_process: ranges(1);
    scenario_11_position_of_an_idle_lease_is_kept_and_writes_during_downtime_arrive: ranges(1);
    scenario_12_other_start_position_is_ignored_with_a_warning_and_a_reset_honours_it: ranges(4);
    scenario_13_start_time_with_a_part_of_a_second_misses_nothing: ranges(2);
}

fn from(start: StartPosition) -> ProcessorOptions {
    ProcessorOptions::default().start(start)
}

fn scenario_09_item_written_right_after_a_start_now_is_delivered(world: &World) {
    let before = world.write_many(20, 20);
    world.start("h1", &from(StartPosition::Now));
    let written = world.write_many(20, 20);
    world.run_until(SECOND * 30, || world.all_handled(&written));
    world.run(SECOND * 30);
    world.assert_each_once(&written);
    assert_eq!(world.recorder().count(), written.len(), "{before:?} came before");
}

fn scenario_09_what_is_written_after_a_start_now_survives_the_death_of_the_host(world: &World) {
    world.write_many(20, 20);
    let first = world.start("h1", &from(StartPosition::Now));
    let written = world.write_many(20, 20);
    // It has not even looked at the feed yet.
    first.kill();
    world.start("h2", &from(StartPosition::Now));
    world.run_until(SECOND * 30, || world.all_handled(&written));
    assert_eq!(world.recorder().count_on("h1"), 0);
    world.assert_each_once(&written);
    assert_eq!(world.recorder().count(), written.len());
}

fn scenario_10_first_batch_that_failed_is_delivered_to_the_next_process(world: &World) {
    world.recorder().fail("item-2", 1, Failing::Failed);
    let options = from(StartPosition::Now).backoff(SECOND * 20, SECOND * 30);
    let first = world.start("h1", &options);
    let written = world.write_many(5, 1);
    world.run_until(SECOND * 10, || world.recorder().batches().len() == 1);
    world.run(SECOND);
    first.kill();
    let later = world.write_many(5, 1);
    let second = world.start("h2", &options);
    world.run_until(SECOND * 60, || world.all_handled(&later));
    let batches = world.recorder().batches();
    assert_eq!((batches[0].node.as_str(), batches[1].node.as_str()), ("h1", "h2"));
    assert!(batches[1].ids.starts_with(&batches[0].ids), "{batches:?}");
    // The attempt of the first process counts.
    assert_eq!((batches[0].attempt, batches[1].attempt), (1, 2));
    assert!(world.all_handled(&written));
    world.assert_in_order_per_key();
    assert!(second.outcome().is_none());
}

fn scenario_11_position_of_an_idle_lease_is_kept_and_writes_during_downtime_arrive(world: &World) {
    let options = from(StartPosition::Now).leases_per_range(2);
    let first = world.start("h1", &options);
    let begun: Vec<String> = world.leases().into_iter().map(|it| it.position).collect();
    assert_eq!(begun.len(), 2);
    // One lease has changes; the other reads nothing but empty pages.
    for _ in 0..5 {
        world.write("busy", &format!("busy-{}", world.written().len()));
        world.run(SECOND);
    }
    world.run(SECOND * 90);
    let positions = world.leases().into_iter().map(|it| it.position);
    assert!(positions.zip(begun).all(|(now, before)| now != before));
    first.kill();
    let written = world.write_many(40, 40);
    world.start("h2", &options);
    world.run_until(SECOND * 60, || world.all_handled(&written));
    world.assert_each_once(&world.written());
}

fn scenario_12_other_start_position_is_ignored_with_a_warning_and_a_reset_honours_it(
    world: &World,
) {
    let ignored = |it: &Notification| matches!(it, Notification::StartIgnored { .. });
    let before = world.write_many(20, 10);
    let first = world.start("h1", &from(StartPosition::Now));
    let after = world.write_many(20, 10);
    world.run_until(SECOND * 30, || world.all_handled(&after));
    world.stop(&first);
    assert_eq!(first.told(ignored), 0);
    let other = from(StartPosition::Time(Timestamp::EPOCH));
    let second = world.start("h2", &other);
    world.run(SECOND * 30);
    let told = Notification::StartIgnored { stored: "now".to_owned() };
    assert_eq!(second.told(|it| *it == told), 1);
    assert_eq!(world.recorder().count(), after.len());
    let operations = world.operations();
    let reset = async move { operations.reset(StartPosition::Time(Timestamp::EPOCH)).await };
    world.block_on(reset).expect("nothing is in the way");
    world.run_until(SECOND * 60, || world.all_handled(&before));
    world.run(SECOND * 10);
    world.assert_each_once(&before);
    assert_eq!(world.recorder().count(), before.len() + 2 * after.len());
    // The start is what the reset says now.
    world.stop(&second);
    let third = world.start("h3", &other);
    world.run(SECOND * 10);
    assert_eq!(third.told(ignored), 0);
}

fn scenario_13_start_time_with_a_part_of_a_second_misses_nothing(world: &World) {
    world.run(Duration::from_millis(5_234));
    let mut written = Vec::new();
    for _ in 0..20 {
        let number = written.len();
        let item = world.write(&format!("key-{}", number % 5), &format!("item-{number}"));
        written.push((world.time_of_day(), item));
        world.run(MILLISECOND * 97);
    }
    let (start, _) = written[7];
    assert_ne!(start.as_millis() % 1000, 0);
    world.start("h1", &from(StartPosition::Time(start)));
    let expected: Vec<_> = written[7..].iter().map(|(_, it)| it.clone()).collect();
    world.run_until(SECOND * 30, || world.all_handled(&expected));
    world.run(SECOND * 10);
    world.assert_each_once(&expected);
    assert_eq!(world.recorder().count(), expected.len());
    world.assert_in_order_per_key();
}
