use crate::truth::Truth;

/// Two commits with three events of one key, and what the consumer has of them.
#[track_caller]
fn check(effects: &str, expected: (u64, u64, u64)) {
    let mut truth = Truth::default();
    let said = format!("ack k 1 a b\nack k 3 c\nentity k 3\neffect k {effects}\nend\n");
    truth.hear(&said).unwrap();
    let report = truth.judge();
    assert_eq!((report.lost, report.reordered, report.repeated), expected, "{report:?}");
    assert_eq!(report.is_well(), expected == (0, 0, 0), "{report:?}");
}

#[test]
fn lost_late_and_repeated_events_are_told_apart() {
    check("1:a 2:b 3:c", (0, 0, 0));
    check("1:a 3:c", (1, 0, 0));
    check("1:a 3:c 2:b", (0, 1, 0));
    check("1:a 2:b 2:b 3:c", (0, 0, 1));
    check("1:a 2:b 3:c 1:a", (0, 0, 1));
}

#[track_caller]
fn check_finding(said: &str, finding: &str) {
    let mut truth = Truth::default();
    truth.hear(said).unwrap();
    let findings = truth.judge().findings;
    assert!(findings.iter().any(|it| it == finding), "{findings:?}");
}

#[test]
fn everything_odd_is_a_finding() {
    check_finding("ack k 1 a\n", "it did not come to its end");
    check_finding("ack k 1 a\nend\n", "event 1 of k is lost");
    check_finding("entity k 1\nend\n", "event 1 of k is lost");
    check_finding("effect k 1:a\nend\n", "event 1 of k was never committed");
    check_finding(
        "ack k 1 a\nentity k 1\neffect k 1:b\nend\n",
        "event 1 of k has the id of another: b",
    );
    check_finding("disorder k 7\nend\n", "the inbox saw a gap or a late event: k 7");
    check_finding("parked x 3\nend\n", "a key was parked that nobody knows");
}

#[test]
fn a_line_that_was_cut_by_the_kill_does_not_count() {
    let mut truth = Truth::default();
    truth.hear("ack k 1 a\nack k 2 b").unwrap();
    assert_eq!(truth.judge().commits, 1);
}

#[test]
fn a_commit_nobody_heard_of_must_be_delivered_too() {
    let mut truth = Truth::default();
    truth.hear("ack k 1 a\nentity k 2\neffect k 1:a 2:b\nend\n").unwrap();
    let report = truth.judge();
    assert_eq!((report.events_unacknowledged, report.is_well()), (1, true), "{report:?}");
}

#[test]
fn a_line_that_is_none_of_ours_is_refused() {
    let mut truth = Truth::default();
    let error = truth.hear("nonsense\n").unwrap_err();
    assert_eq!(error.to_string(), "could not understand a process, which said \"nonsense\"");
}
