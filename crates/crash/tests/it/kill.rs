use std::{collections::BTreeSet, process::Command};

use millstream_crash::{KillOptions, Rule, kill};

use crate::{naive, scratch};

/// Kills until something is found, at most `rounds` times.
fn found(mutant: Option<&str>, rounds: u64) -> BTreeSet<Rule> {
    let options =
        KillOptions { target: naive(mutant), rounds, seed: 7, writers: 4, scratch: scratch() };
    let report = kill(&options, |report| report.violations.is_empty()).unwrap();
    assert!(mutant.is_some() || 0 < report.acks, "a child that never commits proves nothing");
    report.violations.into_iter().map(|(_, violation)| violation.rule).collect()
}

#[track_caller]
fn check_caught(mutant: &str, rule: Rule) {
    let found = found(Some(mutant), 60);
    assert!(found.contains(&rule), "{mutant}: {found:?}");
}

#[test]
fn a_correct_store_survives_kills() {
    assert_eq!(found(None, 25), BTreeSet::new());
}

#[test]
fn catches_a_feed_entry_in_a_second_batch() {
    check_caught("feed-in-second-batch", Rule::FeedIsComplete);
}

#[test]
fn catches_a_commit_number_used_again() {
    check_caught("number-reused", Rule::NumbersGrow);
}

#[test]
fn catches_a_batch_cut_at_the_end_of_a_page() {
    check_caught("batch-cut", Rule::PageKeepsBatch);
}

#[test]
fn prints_figures_last_and_ends_with_one_if_something_was_found() {
    let run = |arguments: &[&str]| {
        let output =
            Command::new(naive(None).executable).args(arguments).output().expect("it starts");
        let text = String::from_utf8(output.stdout).expect("it prints text");
        let last: Vec<String> = text.lines().rev().take(2).map(str::to_owned).collect();
        (output.status.code(), last)
    };
    let (code, last) = run(&["crash", "--subject", "naive", "--rounds", "2", "--seed", "1"]);
    assert_eq!((code, last[1].as_str()), (Some(0), "figure crash.rounds 2"));
    assert_eq!(last[0], "figure crash.violations 0");
    let (code, last) =
        run(&["crash", "--subject", "naive", "--rounds", "3", "--mutant", "batch-cut"]);
    assert_eq!(code, Some(1));
    assert_ne!(last[0], "figure crash.violations 0");
    assert_eq!(run(&["crash", "--subject", "naive", "--mutant", "unheard-of"]).0, Some(2));
}
