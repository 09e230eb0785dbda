use std::fs;
use std::path::Path;

use crate::process::{Up, eventually, run, run_with_input, succeed};

fn event(key: &str, number: u32) -> String {
    format!(
        r#"{{"id":"00000000-0000-7000-8000-{number:012}","partitionKey":"{key}","type":"domainEvent","action":"Made","entityId":"e","createdAt":"2026-02-09T11:07:37Z","data":{{"n":{number}}}}}"#
    )
}

fn import(directory: &Path, lines: &[String]) {
    let ended = run_with_input(directory, &["import", "app/data"], &lines.join("\n"));
    assert_eq!((ended.code, ended.out.as_str()), (Some(0), ""), "{ended:?}");
    assert_eq!(ended.err, format!("imported {} items\n", lines.len()));
}

#[test]
fn imported_events_are_relayed_peeked_exported_and_replayed() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let up = Up::start(path, &[]);
    let lines: Vec<String> = (1..=250).map(|it| event("a", it)).collect();
    import(path, &lines);
    let subscription = "events/Subscriptions/default";
    eventually("all are sent", || {
        let counts =
            format!("millstream_broker_messages{{path=\"{subscription}\",state=\"active\"}}");
        up.metric(&counts) == 250.0
    });
    let peeked = succeed(path, &["peek", subscription, "--max", "1", "--json"]);
    assert!(peeked.contains(r#""body": "{\"n\":1}""#), "{peeked}");
    let feed = succeed(path, &["feed", "read", "app/data", "--json"]);
    assert_eq!(feed.lines().count(), 250);
    assert!(feed.lines().last().unwrap().contains(r#""sequence":250"#), "{feed}");
    let tail = succeed(path, &["feed", "tail", "app/data", "--from", "beginning", "--max", "7"]);
    assert_eq!(tail.lines().count(), 7);
    let replayed = succeed(path, &["replay", "--from", "beginning", "--to", "events"]);
    assert!(replayed.starts_with("250 events were sent; "), "{replayed}");
    assert_eq!(up.stop(), Some(0));

    assert_eq!(succeed(path, &["feed", "read", "app/data", "--json"]), feed);
    succeed(path, &["export", "app/data", "--file", "items.jsonl"]);
    let exported = fs::read_to_string(path.join("items.jsonl")).unwrap();
    let mut exported: Vec<&str> = exported.lines().collect();
    exported.sort_unstable();
    assert_eq!(exported, lines);
    let counts = succeed(path, &["topics", "--json"]);
    assert!(counts.contains(r#""active": 250"#), "duplicates are dropped: {counts}");
}

#[test]
fn events_that_cannot_be_sent_are_parked_until_somebody_decides() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let up = Up::start(path, &[]);
    // The key becomes the id of a session, which may have 128 bytes.
    let key = "k".repeat(200);
    import(path, &[event(&key, 1), event(&key, 2), event("fine", 3)]);
    let parked = "millstream_relay_parked_sequences{relay=\"events\"}";
    eventually("the key is parked", || up.metric(parked) == 1.0);
    let published = "millstream_relay_published_total{relay=\"events\"}";
    eventually("others are sent", || up.metric(published) == 1.0);
    let list = succeed(path, &["parked", "list"]);
    assert!(list.contains(&format!("[\"{key}\"]")), "{list}");
    eventually("both events of the key are kept", || {
        succeed(path, &["parked", "show", "events", &key]).lines().count() == 3
    });
    let redriven = succeed(path, &["parked", "redrive", "events", "--all"]);
    assert_eq!(redriven, "1 key is sent again\n");
    eventually("it fails again", || {
        succeed(path, &["parked", "list", "--json"]).contains("\"state\": \"parked\"")
    });
    let discarded = succeed(path, &["parked", "discard", "events", &key]);
    assert_eq!(discarded, "2 events were thrown away\n");
    assert_eq!(succeed(path, &["parked", "list"]), "nothing is parked\n");
    let again = run(path, &["parked", "discard", "events", &key]);
    assert_eq!(again.code, Some(1), "{again:?}");
    let nobody = run(path, &["parked", "show", "nobody", "a"]);
    assert_eq!(nobody.code, Some(2), "{nobody:?}");
    assert!(nobody.err.starts_with("millstream: there is no relay \"nobody\""), "{nobody:?}");
    assert_eq!(up.stop(), Some(0));
}

#[test]
fn a_line_that_is_not_an_item_is_told() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    assert_eq!(Up::start(path, &[]).stop(), Some(0));
    let ended = run_with_input(path, &["import", "app/data"], "{\"id");
    assert_eq!(ended.code, Some(1));
    assert!(ended.err.contains("lines up to line 1, 0 were imported"), "{ended:?}");
}
