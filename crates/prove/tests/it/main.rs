//! The proof against real processes: a short run is well, and planted bugs are found.
#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::path::PathBuf;
use std::time::Duration;

use millstream_prove::{
    FleetOptions, FleetReport, Mutant, ProveOptions, Report, StoreKind, prove, prove_fleet,
};

fn scratch() -> PathBuf {
    let memory = PathBuf::from("/dev/shm");
    if memory.is_dir() { memory } else { std::env::temp_dir() }
}

fn run_fleet(mutant: Option<Mutant>, rounds: u64) -> FleetReport {
    let options = FleetOptions {
        executable: PathBuf::from(env!("CARGO_BIN_EXE_millstream-prove")),
        rounds,
        duration: None,
        seed: 7,
        life_max: Duration::from_secs(2),
        scratch: scratch(),
        servers: 3,
        // A bug is found by the death of whoever has it.
        kills_servers: mutant.is_none(),
        mutant,
    };
    prove_fleet(&options).unwrap_or_else(|error| panic!("{}", error.report()))
}

fn run(mutant: Option<Mutant>, rounds: u64) -> Report {
    run_on(StoreKind::Directory, mutant, rounds)
}

fn run_on(store: StoreKind, mutant: Option<Mutant>, rounds: u64) -> Report {
    let options = ProveOptions {
        executable: PathBuf::from(env!("CARGO_BIN_EXE_millstream-prove")),
        rounds,
        duration: None,
        seed: 7,
        life_max: Duration::from_millis(700),
        scratch: scratch(),
        mutant,
        store,
    };
    // The first finding is enough.
    let proved = prove(&options, Report::is_well);
    proved.unwrap_or_else(|error| panic!("{}", error.report()))
}

#[test]
fn nothing_is_lost_reordered_or_repeated_whatever_is_killed() {
    let report = run(None, 6);
    assert!(report.is_well(), "{report:#?}");
    assert!(6 <= report.kills && 0 < report.commits, "{report:#?}");
    assert_eq!(report.events + report.events_unacknowledged, report.delivered, "{report:#?}");
    assert_eq!((report.parked_keys, report.redriven_in_order), (1, 1), "{report:#?}");
}

#[test]
fn the_same_holds_on_a_nats_server() {
    let report = run_on(StoreKind::Nats { servers: 1 }, None, 6);
    assert!(report.is_well(), "{report:#?}");
    assert!(6 <= report.kills && 0 < report.commits, "{report:#?}");
    assert_eq!((report.parked_keys, report.redriven_in_order), (1, 1), "{report:#?}");
}

#[test]
fn a_fleet_loses_and_reorders_nothing_whichever_two_are_killed() {
    let report = run_fleet(None, 6);
    assert!(report.is_well(), "{report:#?}");
    assert_eq!((report.kills(), report.delivered), (6, report.commits), "{report:#?}");
    assert_eq!(report.servers_killed, 1, "{report:#?}");
}

#[test]
fn a_processor_that_acknowledges_before_it_has_counted_is_caught() {
    let report = run_fleet(Some(Mutant::AcknowledgeEarly), 6);
    assert!(0 < report.lost + report.reordered, "it was not caught: {report:#?}");
}

#[track_caller]
fn check_caught(mutant: Mutant, count: impl Fn(&Report) -> u64) {
    let report = run(Some(mutant), 30);
    assert!(0 < count(&report), "{} was not caught: {report:#?}", mutant.name());
}

#[test]
fn a_relay_that_acknowledges_before_it_has_published_is_caught() {
    check_caught(Mutant::AcknowledgeEarly, |it| it.lost);
}

#[test]
fn a_consumer_without_inbox_is_caught() {
    check_caught(Mutant::NoInbox, |it| it.repeated);
}

#[test]
fn a_relay_that_publishes_last_first_is_caught() {
    check_caught(Mutant::Reversed, |it| it.reordered);
}

#[test]
fn a_consumer_that_completes_before_the_effect_is_caught() {
    // Whoever dies takes the effect along; whoever is only slow has it after that of the next one.
    check_caught(Mutant::SettleFirst, |it| it.lost + it.reordered);
}
