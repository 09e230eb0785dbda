use std::fs;
use std::path::Path;
use std::time::Duration;

use millstream_core::{Clock, SystemClock};

use crate::process::{Up, eventually, run, run_with_input, succeed};

pub(crate) fn event(key: &str, number: u32) -> String {
    format!(
        r#"{{"id":"00000000-0000-7000-8000-{number:012}","partitionKey":"{key}","type":"domainEvent","action":"Made","entityId":"e","createdAt":"2026-02-09T11:07:37Z","data":{{"n":{number}}}}}"#
    )
}

pub(crate) fn import(directory: &Path, lines: &[String]) {
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
    assert_eq!(up.metric("millstream_broker_kept_messages{entity=\"events\"}"), 250.0);
    assert_eq!(up.metric("millstream_broker_kept_messages_max{entity=\"events\"}"), 2e6);
    assert_eq!(up.metric("millstream_broker_nearly_full{entity=\"events\"}"), 0.0);
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
fn after_a_kill_events_are_relayed_without_waiting_for_leases() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    // What is sent again after the kill is dropped by duplicate detection.
    let kept = "millstream_broker_messages{path=\"events/Subscriptions/default\",state=\"active\"}";
    let up = Up::start(path, &[]);
    import(path, &[event("a", 1)]);
    eventually("it is sent", || up.metric(kept) == 1.0);
    up.kill();
    let up = Up::start(path, &[]);
    let clock = SystemClock::default();
    let begun = clock.monotonic();
    import(path, &[event("a", 2)]);
    eventually("the next one is sent", || up.metric(kept) == 2.0);
    // Twice the lease duration is what an instance waits that knows nothing of its predecessor.
    let lasted = clock.monotonic() - begun;
    assert!(lasted < Duration::from_secs(8), "it took {lasted:?}");
    assert_eq!(up.stop(), Some(0));
}

#[test]
fn events_are_replayed_to_one_subscription_and_the_others_get_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let config = "[relay]\nsubscriptions = [\"one\", \"two\"]\n";
    fs::write(path.join("millstream.toml"), config).unwrap();
    let up = Up::start(path, &[]);
    let lines: Vec<String> = (1..=20).map(|it| event("a", it)).collect();
    import(path, &lines);
    let active = |name: &str| {
        let path = format!("events/Subscriptions/{name}");
        up.metric(&format!("millstream_broker_messages{{path=\"{path}\",state=\"active\"}}"))
    };
    eventually("all are sent", || active("one") == 20.0 && active("two") == 20.0);
    let replay = ["replay", "--from", "beginning", "--to", "events", "--subscription"];
    let replayed = succeed(path, &[&replay[..], &["two"]].concat());
    assert_eq!(replayed, "20 events were sent; the other subscriptions got nothing\n");
    assert_eq!((active("one"), active("two")), (20.0, 40.0));
    let nobody = run(path, &[&replay[..], &["three"]].concat());
    assert_eq!(nobody.code, Some(1), "{nobody:?}");
    assert!(nobody.err.contains("no subscription of this name"), "{nobody:?}");
    assert_eq!(up.stop(), Some(0));
}

#[test]
fn subscriptions_are_made_and_changed_as_the_file_says() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let configure = |text: &str| {
        let text = format!("log = \"info\"\n[relay]\nsubscriptions = [{text}]\n");
        fs::write(path.join("millstream.toml"), text).unwrap();
    };
    let active = |up: &Up, name: &str| {
        let path = format!("events/Subscriptions/{name}");
        up.metric(&format!("millstream_broker_messages{{path=\"{path}\",state=\"active\"}}"))
    };
    configure(
        r#""all", { name = "made", filter = "sys.Label = 'Made'" },
                 { name = "other", filter = "sys.Label = 'Other'" }"#,
    );
    let up = Up::start(path, &[]);
    import(path, &[event("a", 1), event("a", 2)]);
    eventually("all are sent", || active(&up, "all") == 2.0);
    assert_eq!((active(&up, "made"), active(&up, "other")), (2.0, 0.0));
    assert_eq!(up.stop(), Some(0));

    // What was left out stays; messages whose time is over go although nobody takes them.
    configure(
        r#"{ name = "all", ttl_seconds = 1 }, "made",
                 { name = "other", filter = "TRUE", sessions = false }"#,
    );
    let up = Up::start(path, &[]);
    eventually("they are gone", || active(&up, "all") == 0.0);
    import(path, &[event("a", 3)]);
    eventually("the new filter holds", || active(&up, "other") == 1.0);
    assert_eq!(active(&up, "made"), 3.0);
    let kept = succeed(path, &["topics", "--json"]);
    assert!(!kept.contains("\"requiresSession\": false,\n    \"counts\": {"), "{kept}");
    assert_eq!(up.stop(), Some(0));
}

#[test]
fn a_replay_begins_with_a_commit_of_a_range_and_ends_where_it_is_told() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    fs::write(path.join("millstream.toml"), "ranges = 2\n").unwrap();
    let up = Up::start(path, &[]);
    // One commit each; these keys are in different ranges.
    for number in 1..=20 {
        import(path, &[event(if number % 2 == 0 { "a" } else { "b" }, number)]);
    }
    let replay = |more: &[&str]| {
        let arguments = ["replay", "--to", "events", "--subscription", "default", "--json"];
        run(path, &[&arguments[..], more].concat())
    };
    let refused = replay(&["--from", "lsn:6"]);
    assert_eq!(refused.code, Some(2), "{refused:?}");
    let (_, ranges) = refused.err.split_once("--keys: ").expect("it names the ranges");
    let published: Vec<u64> = ranges
        .trim_end()
        .split(" or ")
        .map(|keys| {
            let ended = replay(&["--from", "lsn:6", "--keys", keys]);
            assert_eq!(ended.code, Some(0), "{ended:?}");
            serde_json::from_str::<serde_json::Value>(&ended.out).unwrap()["published"]
                .as_u64()
                .unwrap()
        })
        .collect();
    assert_eq!(published, [5, 5]);
    let cut = replay(&["--from", "beginning", "--max", "13"]);
    assert!(cut.out.contains("\"published\": 13"), "{cut:?}");
    assert!(cut.out.contains("\"hasMore\": true"), "{cut:?}");
    for wrong in [["lsn:six", "[,FF)"], ["tomorrow", "[,FF)"], ["beginning", "all"]] {
        let refused = replay(&["--from", wrong[0], "--keys", wrong[1]]);
        assert_eq!(refused.code, Some(2), "{refused:?}");
    }
    assert_eq!(up.stop(), Some(0));
    let after = replay(&["--from", "beginning"]);
    assert!(after.out.contains("\"published\": 20"), "{after:?}");
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
fn all_events_of_a_parked_key_are_shown_however_many() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let up = Up::start(path, &[]);
    let key = "k".repeat(200);
    let lines: Vec<String> = (1..=1_100).map(|it| event(&key, it)).collect();
    import(path, &lines);
    eventually("all are parked", || {
        succeed(path, &["parked", "list", "--json"]).contains("\"parked\": 1100")
    });
    let shown = succeed(path, &["parked", "show", "events", &key]);
    assert_eq!(shown.lines().count(), 1_101);
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
