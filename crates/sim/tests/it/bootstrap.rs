//! The first start, starts beside others, and leases that somebody tampered with.

use std::time::Duration;

use millstream_core::{ErrorKind as CoreErrorKind, FeedMode};
use millstream_processor::{ErrorKind, Notification, ProcessorOptions};
use serde_json::json;

use crate::harness::port::{Call, Fault, Rule};
use crate::harness::{Layout, World, ranges};

const SECOND: Duration = Duration::from_secs(1);

scenarios! {
    scenario_01_three_hosts_start_together_one_lease_per_range: ranges(6);
    scenario_01_three_hosts_start_together_with_leases_partitioned_by_id: by_id();
    scenario_02_host_dies_after_half_the_leases_the_next_completes_the_set: ranges(40);
    scenario_03_lock_left_by_a_dead_host_does_not_hold_up_a_start: ranges(4);
    scenario_04_throttled_marker_read_creates_and_resets_nothing: ranges(4);
    scenario_05_failed_lease_create_is_repeated_within_the_start: ranges(6);
    scenario_05_failed_lease_create_leaves_the_store_unmarked_and_the_next_start_repairs: ranges(6);
    scenario_06_lease_deleted_by_hand_is_refilled_and_reported: ranges(4);
    scenario_07_start_in_the_other_mode_is_refused_and_changes_nothing: with_versions();
    scenario_08_newer_control_document_is_refused_and_left_untouched: ranges(4);
    scenario_08_newer_lease_ends_the_instance_and_is_left_untouched: ranges(4);
    bootstrap_initialised_store_finishes_at_once: ranges(8);
    bootstrap_uninitialised_store_creates_all_leases_then_marks_it: ranges(8);
}

fn by_id() -> Layout {
    Layout { lease_key: "/id", ..ranges(6) }
}

fn with_versions() -> Layout {
    Layout { retention: Duration::from_secs(3600), ..ranges(4) }
}

fn scenario_01_three_hosts_start_together_one_lease_per_range(world: &World) {
    let launch = |name: &&str| world.instance(name).launch();
    let hosts: Vec<_> = ["h1", "h2", "h3"].iter().map(launch).collect();
    // No lock exists that one could wait for; a lost race costs a short pause.
    world.run_until_exact(SECOND, || hosts.iter().all(|it| it.has_started()));
    assert_eq!(world.all_leases().len(), 6);
    assert!(world.leases_are_whole());
    assert_eq!(world.control().expect("there is a marker")["complete"], true);
    let others = world.documents().into_keys().filter(|it| !it.contains(":lease:"));
    let others: Vec<String> = others.filter(|it| !it.contains(":member:")).collect();
    assert_eq!(others, ["mailer:control"]);
    let written = world.write_many(60, 20);
    world.run_until(SECOND * 60, || world.all_handled(&written));
    world.run(SECOND * 20);
    world.assert_each_once(&written);
    world.assert_in_order_per_key();
    assert!(hosts.iter().all(|it| it.outcome().is_none()));
    assert!(world.owners().values().all(|it| *it == 2), "{:?}", world.owners());
}

fn scenario_01_three_hosts_start_together_with_leases_partitioned_by_id(world: &World) {
    scenario_01_three_hosts_start_together_one_lease_per_range(world);
}

fn scenario_02_host_dies_after_half_the_leases_the_next_completes_the_set(world: &World) {
    let first = world.instance("h1").launch();
    let dies = Rule::new(Call::Commit, Fault::Die { takes_effect: true });
    first.leases.add(dies.touching("create mailer:lease:").after(9).times(1));
    world.run(SECOND);
    assert!(!first.has_started());
    let made = world.all_leases().len();
    assert!((10..40).contains(&made), "{made} leases");
    assert_eq!(world.control().expect("it came first")["complete"], false);
    // The positions were pinned when the first host began.
    let written = world.write_many(50, 50);
    let second = world.instance("h2").start();
    assert_eq!(world.all_leases().len(), 40);
    assert!(world.leases_are_whole());
    assert_eq!(world.control().expect("it is there")["complete"], true);
    world.run_until(SECOND * 60, || world.all_handled(&written));
    world.assert_each_once(&written);
    assert!(second.outcome().is_none());
}

fn scenario_03_lock_left_by_a_dead_host_does_not_hold_up_a_start(world: &World) {
    let locks = ["mailer.lock", "mailer:lock", "mailer.info"];
    let locks = locks.map(|id| json!({ "id": id, "partitionKey": "mailer", "owner": "dead" }));
    locks.iter().for_each(|it| world.put_document(it));
    let begun = world.now();
    world.instance("h1").start();
    assert!(world.now() - begun < SECOND);
    let written = world.write_many(20, 10);
    world.run_until(SECOND * 30, || world.all_handled(&written));
    let documents = world.documents();
    for lock in locks {
        assert_eq!(documents[lock["id"].as_str().expect("an id")], lock);
    }
}

fn scenario_04_throttled_marker_read_creates_and_resets_nothing(world: &World) {
    let first = world.instance("h1").start();
    let written = world.write_many(30, 10);
    world.run_until(SECOND * 30, || world.all_handled(&written));
    world.stop(&first);
    let before = world.documents();
    let second = world.instance("h2").launch();
    second.leases.fail_next(Call::Read, 3, Fault::Throttled);
    world.run_until_exact(SECOND * 30, || second.has_started());
    let reads = second.leases.log().into_iter().filter(|it| it.what == "mailer:control");
    assert_eq!(reads.count(), 4);
    assert_eq!(second.leases.count(Call::Commit, Duration::ZERO), 0);
    assert_eq!(world.documents(), before);
    let more = world.write_many(30, 10);
    world.run_until(SECOND * 30, || world.all_handled(&more));
    let created = second.leases.log().into_iter().filter(|it| it.what.contains("create"));
    let created: Vec<String> = created.map(|it| it.what).collect();
    assert_eq!(created, ["create mailer:member:h2"]);
    world.assert_each_once(&world.written());
}

fn scenario_05_failed_lease_create_is_repeated_within_the_start(world: &World) {
    let host = world.instance("h1").launch();
    let fails = Rule::new(Call::Commit, Fault::Error(CoreErrorKind::Unavailable));
    host.leases.add(fails.touching("create mailer:lease:").after(3).times(1));
    world.run_until_exact(SECOND * 30, || host.has_started());
    assert_eq!(world.all_leases().len(), 6);
    assert!(world.leases_are_whole());
}

fn scenario_05_failed_lease_create_leaves_the_store_unmarked_and_the_next_start_repairs(
    world: &World,
) {
    let host = world.instance("h1").launch();
    let fails = Rule::new(Call::Commit, Fault::Error(CoreErrorKind::Unavailable));
    let keys = &world.ranges()[3].keys;
    let last = keys.max().trimmed().iter().map(|it| format!("{it:02X}")).collect::<String>();
    host.leases.add(fails.touching(&format!("-{last}")));
    world.run_until_exact(SECOND * 120, || host.refusal().is_some());
    assert_eq!(host.refusal(), Some(ErrorKind::Store(CoreErrorKind::Unavailable)));
    assert_eq!(world.control().expect("it came first")["complete"], false);
    assert_eq!(world.all_leases().len(), 5);
    let written = world.write_many(30, 30);
    world.instance("h1").start();
    assert_eq!(world.control().expect("it is there")["complete"], true);
    assert_eq!(world.all_leases().len(), 6);
    assert!(world.leases_are_whole());
    world.run_until(SECOND * 60, || world.all_handled(&written));
    world.assert_each_once(&written);
}

fn scenario_06_lease_deleted_by_hand_is_refilled_and_reported(world: &World) {
    let hosts = ["h1", "h2"].map(|it| world.instance(it).start());
    let written = world.write_many(40, 20);
    world.run_until(SECOND * 60, || world.all_handled(&written) && world.owners().len() == 2);
    let deleted = world.leases().remove(1);
    world.remove_document(&deleted.id);
    let more = world.write_many(40, 20);
    // A hole counts once three looks in a row have found it.
    world.run_until(SECOND * 40, || world.leases_are_whole());
    let repaired =
        |it: &Notification| *it == Notification::HoleRepaired { keys: deleted.keys.clone() };
    assert!(hosts.iter().any(|it| 0 < it.told(repaired)));
    world.run_until(SECOND * 60, || world.all_handled(&more));
    let later = world.write_many(40, 20);
    world.run_until(SECOND * 60, || world.all_handled(&later));
    world.assert_in_order_per_key();
    let lost =
        |it: &Notification| matches!(it, Notification::Lost { keys, .. } if **keys == deleted.keys);
    assert_eq!(hosts.iter().map(|it| it.told(lost)).sum::<usize>(), 1);
    assert!(hosts.iter().all(|it| it.outcome().is_none()));
}

fn scenario_07_start_in_the_other_mode_is_refused_and_changes_nothing(world: &World) {
    let first = world.instance("h1").start();
    let written = world.write_many(20, 10);
    world.run_until(SECOND * 30, || world.all_handled(&written));
    world.stop(&first);
    let before = world.documents();
    let options = ProcessorOptions::default().mode(FeedMode::AllVersions);
    let refusal = world.instance("h2").options(options).start_refused();
    assert_eq!(refusal, ErrorKind::ModeMismatch);
    assert_eq!(world.documents(), before);
}

fn scenario_08_newer_control_document_is_refused_and_left_untouched(world: &World) {
    let first = world.instance("h1").start();
    world.stop(&first);
    let mut control = world.control().expect("it is there");
    control["schema"] = json!({ "writtenBy": 3, "minReader": 3 });
    control["roots"] = json!("of another shape");
    world.put_document(&control);
    let before = world.documents();
    assert_eq!(world.instance("h2").start_refused(), ErrorKind::NewerSchema);
    assert_eq!(world.documents(), before);
}

fn scenario_08_newer_lease_ends_the_instance_and_is_left_untouched(world: &World) {
    let first = world.instance("h1").start();
    world.stop(&first);
    let mut lease = world.leases().remove(2).body;
    lease["schema"] = json!({ "writtenBy": 3, "minReader": 3 });
    lease["owner"] = json!(["of another shape"]);
    world.put_document(&lease);
    let before = world.documents();
    let second = world.instance("h2").start();
    world.run_until_exact(SECOND * 30, || second.outcome().is_some());
    assert_eq!(second.outcome(), Some(Err(ErrorKind::NewerSchema)));
    assert_eq!(world.documents(), before);
    assert_eq!(world.recorder().count(), 0);
}

/// Initialize, is the lease store initialised, yes, done.
fn bootstrap_initialised_store_finishes_at_once(world: &World) {
    let first = world.instance("h1").start();
    world.stop(&first);
    let (before, begun) = (world.documents(), world.now());
    let second = world.instance("h2").launch();
    world.run_until_exact(SECOND * 30, || second.has_started());
    assert!(world.now() - begun < Duration::from_millis(10));
    let calls: Vec<String> = second.leases.log().into_iter().map(|it| it.what).collect();
    // The second call is the first of the run itself.
    assert_eq!(calls[0], "mailer:control");
    assert!(calls.len() <= 2, "{calls:?}");
    assert!(second.feed.log().is_empty());
    assert_eq!(world.documents(), before);
}

/// Initialize, is the lease store initialised, no, create all leases, mark it.
fn bootstrap_uninitialised_store_creates_all_leases_then_marks_it(world: &World) {
    let host = world.instance("h1").launch();
    // What is written while the leases are being made must not be before them.
    let slow = Rule::new(Call::Commit, Fault::Delay(SECOND));
    host.leases.add(slow.touching("create mailer:lease:").after(5).times(1));
    let marked = || world.control().is_some_and(|it| it["complete"] == true);
    world.run(SECOND / 2);
    assert!(!host.has_started() && !marked());
    assert_eq!(world.all_leases().len(), 7);
    world.run_until_exact(SECOND * 30, || host.has_started());
    assert!(marked());
    assert_eq!(world.all_leases().len(), 8);
    let commits = host.leases.log().into_iter().filter(|it| it.call == Call::Commit);
    let commits: Vec<String> = commits.map(|it| it.what).collect();
    assert_eq!(commits[0], "create mailer:control");
    assert!(commits[1..9].iter().all(|it| it.starts_with("create mailer:lease:")), "{commits:?}");
    assert_eq!(commits[9], "replace mailer:control");
    assert_eq!(commits.len(), 10);
}
