use std::path::Path;

use crate::process::{Up, eventually, run, run_with_input, succeed};
use crate::tools::{event, import};

/// Writes lines into a container as nobody should.
fn spoil(directory: &Path, container: &str, lines: &str) {
    let ended = run_with_input(directory, &["import", container], lines);
    assert_eq!(ended.code, Some(0), "{ended:?}");
}

#[track_caller]
fn check_problem(directory: &Path, expected: &str) {
    let ended = run(directory, &["verify"]);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.out.contains(expected), "{ended:?}");
    assert_eq!(ended.err, "millstream: the store has a problem; see above\n");
}

/// A store with a broker, a relay and a parked key.
fn used() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let up = Up::start(path, &[]);
    import(path, &[event("a", 1), event("a", 2), event(&"k".repeat(200), 3)]);
    let parked = "millstream_relay_parked_sequences{relay=\"events\"}";
    eventually("the key is parked", || up.metric(parked) == 1.0);
    let sent = "millstream_relay_published_total{relay=\"events\"}";
    eventually("others are sent", || up.metric(sent) == 2.0);
    assert_eq!(up.stop(), Some(0));
    let verified = succeed(path, &["verify"]);
    assert!(verified.ends_with("everything fits together\n"), "{verified}");
    directory
}

#[test]
fn what_is_wrong_with_the_broker_is_told() {
    let directory = used();
    let line = r#"{"id":"seg-00000000000000000001","partitionKey":"lost@7","type":"x","bytes":""}"#;
    spoil(directory.path(), "millstream/broker", line);
    let expected = "millstream/broker: 1 documents of [\"lost@7\"] belong to no queue or topic\n";
    check_problem(directory.path(), expected);
}

#[test]
fn keys_without_a_lease_are_told() {
    let directory = used();
    let path = directory.path();
    let leases = succeed(path, &["export", "millstream/leases"]);
    let lease = leases.lines().find(|it| it.contains("\"state\":\"active\"")).unwrap();
    spoil(path, "millstream/leases", &lease.replace("\"active\"", "\"retired\""));
    check_problem(path, "millstream/leases: relay \"events\": no lease stands for the keys [");
}

#[test]
fn a_parked_event_that_cannot_be_read_is_told() {
    let directory = used();
    let path = directory.path();
    let leases = succeed(path, &["export", "millstream/leases"]);
    let letter = leases.lines().find(|it| it.contains("\"lsn\":") && it.contains("parked:"));
    let spoilt = letter.unwrap().replace("\"lsn\":", "\"lsn\":\"?\",\"was\":");
    spoil(path, "millstream/leases", &spoilt);
    check_problem(path, "millstream/leases: relay \"events\": could not read");
}
