use std::{collections::BTreeSet, path::PathBuf};

use millstream_crash::{
    KillOptions, Load, PowerOptions, Rule, Rules, Target, kill, read, record, unplug,
};

use crate::scratch;

fn store(mutant: Option<&str>) -> Target {
    Target {
        executable: PathBuf::from(env!("CARGO_BIN_EXE_millstream-crash")),
        subject: "store".to_owned(),
        mutant: mutant.map(str::to_owned),
    }
}

/// Kills until something is found, at most `rounds` times.
fn found_by_kill(mutant: Option<&str>, rounds: u64) -> Vec<String> {
    let options =
        KillOptions { target: store(mutant), rounds, seed: 11, writers: 4, scratch: scratch() };
    let report = kill(&options, |report| report.violations.is_empty()).unwrap();
    report.violations.iter().map(|(round, it)| format!("after kill {round}: {it}")).collect()
}

/// What cutting the power at every moment shows; `commits` are enough to fill the memory of the
/// store more than once.
fn found_by_power(
    mutant: Option<&str>,
    commits: u64,
    deaths: u32,
) -> (BTreeSet<Rule>, Vec<String>) {
    let options = PowerOptions {
        target: store(mutant),
        seed: 11,
        load: Load { seed: 11, writers: 4, commits },
        deaths,
        rules: Rules::Strict,
        torn_per_moment: 1,
        scratch: scratch(),
    };
    let recorded = read(&record(&options).unwrap()).unwrap();
    let report = unplug(&options, &recorded, |_| true).unwrap();
    let rules = report.violations.iter().map(|(_, it)| it.rule).collect();
    let shown = report.violations.iter().map(|(at, it)| format!("{at:?}: {it}")).take(5).collect();
    (rules, shown)
}

#[track_caller]
fn check_caught_by_power(mutant: &str, expected: &[Rule]) {
    // A store with a bug may refuse to go on after a death, so it lives but once.
    let (rules, shown) = found_by_power(Some(mutant), 60, 0);
    assert!(expected.iter().any(|it| rules.contains(it)), "{mutant}: {shown:?}");
}

#[test]
fn survives_kills() {
    assert_eq!(found_by_kill(None, 40), [""; 0]);
}

#[test]
fn survives_loss_of_power() {
    assert_eq!(found_by_power(None, 240, 2).1, [""; 0]);
}

#[test]
fn an_acknowledgement_before_the_sync_is_caught() {
    check_caught_by_power("acknowledge-before-sync", &[Rule::AcknowledgedIsThere]);
}

#[test]
fn a_feed_entry_in_a_second_batch_is_caught() {
    // The index then names a version that the feed does not have, which the store itself notices
    // when it reads.
    check_caught_by_power("feed-entry-later", &[Rule::FeedIsComplete, Rule::Opens]);
}

#[test]
fn a_commit_number_used_again_is_caught() {
    check_caught_by_power("number-reused", &[Rule::NumbersGrow]);
    assert_ne!(found_by_kill(Some("number-reused"), 40), [""; 0]);
}

#[test]
fn a_batch_cut_at_the_end_of_a_page_is_caught() {
    check_caught_by_power("batch-cut", &[Rule::PageKeepsBatch, Rule::FeedIsComplete]);
    assert_ne!(found_by_kill(Some("batch-cut"), 40), [""; 0]);
}
