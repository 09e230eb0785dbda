use std::collections::BTreeSet;

use millstream_crash::{Load, PowerOptions, Rule, Rules, Variant, read, record, unplug};

use crate::{naive, scratch};

fn options(mutant: Option<&str>, rules: Rules) -> PowerOptions {
    PowerOptions {
        target: naive(mutant),
        seed: 7,
        load: Load { seed: 7, writers: 3, commits: 90 },
        deaths: 2,
        rules,
        torn_per_moment: 2,
        scratch: scratch(),
    }
}

/// How often a bug that shows only after some deaths may escape.
const ATTEMPTS_MAX: u32 = 12;

/// What cutting the power at every moment of a run shows.
fn found(mutant: Option<&str>, rules: Rules) -> (BTreeSet<Rule>, Vec<String>) {
    let options = options(mutant, rules);
    let recorded = read(&record(&options).unwrap()).unwrap();
    assert!(90 <= recorded.acks.len(), "each acknowledgement is a mark");
    let report = unplug(&options, &recorded, |_| true).unwrap();
    assert!(recorded.acks.len() * 2 < report.prefixes, "a commit writes and syncs");
    let broken = report.violations.iter().map(|(_, it)| it.rule).collect();
    (broken, report.violations.iter().map(|(at, it)| format!("{at:?}: {it}")).collect())
}

#[track_caller]
fn check(mutant: Option<&str>, rules: Rules, expected: Option<Rule>) {
    let Some(rule) = expected else {
        assert_eq!(found(mutant, rules).1, [""; 0]);
        return;
    };
    // When the recorded process dies depends on the machine, and not every death shows every bug.
    let mut seen = BTreeSet::new();
    for _ in 0..ATTEMPTS_MAX {
        let (broken, _) = found(mutant, rules);
        if broken.contains(&rule) {
            return;
        }
        seen.extend(broken);
    }
    panic!("{mutant:?}: {seen:?}");
}

#[test]
fn a_correct_store_survives_loss_of_power() {
    check(None, Rules::Strict, None);
    check(None, Rules::Journaled, None);
}

#[test]
fn catches_an_acknowledgement_before_the_sync() {
    check(Some("acknowledge-before-sync"), Rules::Strict, Some(Rule::AcknowledgedIsThere));
}

#[test]
fn catches_a_feed_entry_in_a_second_batch() {
    check(Some("feed-in-second-batch"), Rules::Strict, Some(Rule::FeedIsComplete));
}

#[test]
fn catches_a_commit_number_used_again() {
    check(Some("number-reused"), Rules::Strict, Some(Rule::NumbersGrow));
}

#[test]
fn catches_a_batch_cut_at_the_end_of_a_page() {
    check(Some("batch-cut"), Rules::Strict, Some(Rule::PageKeepsBatch));
}

#[test]
fn catches_a_directory_that_was_not_synced() {
    check(Some("directory-not-synced"), Rules::Strict, Some(Rule::AcknowledgedIsThere));
    // What these file systems do on their own hides the bug.
    check(Some("directory-not-synced"), Rules::Journaled, None);
}

#[test]
fn catches_half_a_batch_taken_from_a_torn_write() {
    check(Some("no-checksum"), Rules::Strict, Some(Rule::BatchIsWhole));
}

#[test]
fn catches_what_was_recovered_but_never_synced() {
    check(Some("recovered-not-synced"), Rules::Strict, Some(Rule::BatchIsWhole));
}

#[test]
fn an_image_without_losses_is_what_a_kill_leaves() {
    let mut options = options(Some("acknowledge-before-sync"), Rules::Strict);
    options.torn_per_moment = 0;
    let recorded = read(&record(&options).unwrap()).unwrap();
    let report = unplug(&options, &recorded, |_| true).unwrap();
    assert!(!report.violations.is_empty());
    for (moment, violation) in report.violations {
        assert_eq!(moment.variant, Variant::Dropped, "{violation}");
    }
}
