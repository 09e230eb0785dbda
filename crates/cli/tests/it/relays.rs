//! Relays that are behind, that keep events until they are due, and that are no longer wanted.

use std::fs;

use crate::process::{Up, eventually, run, succeed};
use crate::tools::{event, import};

/// An event with further properties.
fn event_with(key: &str, number: u32, further: &str) -> String {
    event(key, number).replacen('{', &format!("{{{further},"), 1)
}

#[test]
fn a_relay_that_waits_is_seen_and_one_that_is_not_wanted_any_more_is_forgotten() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    // Nobody listens there.
    let webhook = "[[webhooks]]\nname = \"shop\"\nurl = \"http://127.0.0.1:1/\"\n";
    fs::write(path.join("millstream.toml"), webhook).unwrap();
    let up = Up::start(path, &[]);
    let later = event_with("b", 2, r#""deliverAt":"2100-01-01T00:00:00Z""#);
    import(path, &[event_with("a", 1, r#""ttl":1000"#), later]);
    let of_shop = |name: &str| up.metric(&format!("{name}{{relay=\"webhook-shop\"}}"));
    eventually("an unsent event is seen", || {
        of_shop("millstream_relay_unsent_ttl_seconds") == 1_000.0
    });
    assert!(0.0 < of_shop("millstream_relay_unsent_age_seconds"));
    assert_eq!(of_shop("millstream_relay_position_expired"), 0.0);
    assert!(2.0 <= up.metric("millstream_store_commits_total"));
    eventually("the other is kept until it is due", || {
        of_shop("millstream_relay_scheduled_events") == 1.0
    });
    let list = succeed(path, &["scheduled", "list"]);
    let row = list.lines().find(|it| it.contains("2100-01-01T00:00:00")).unwrap();
    assert!(row.starts_with("webhook-shop"), "{list}");
    let id = row.split_whitespace().last().unwrap();
    succeed(path, &["scheduled", "discard", "webhook-shop", id]);
    let list = succeed(path, &["scheduled", "list"]);
    assert_eq!(list, "no relay keeps an event until it is due\n");
    assert_eq!(up.stop(), Some(0));

    assert!(!succeed(path, &["lag"]).contains("not in the settings"));
    fs::write(path.join("millstream.toml"), "").unwrap();
    let lag = succeed(path, &["lag"]);
    assert!(lag.contains("webhook-shop (not in the settings)"), "{lag}");
    for (arguments, sentence) in [
        (vec!["forget", "webhook-shop"], "add --yes"),
        (vec!["forget", "events", "--yes"], "is in the settings"),
        (vec!["forget", "nobody", "--yes"], "these do: webhook-shop"),
    ] {
        let refused = run(path, &arguments);
        assert_eq!(refused.code, Some(2), "{refused:?}");
        assert!(refused.err.contains(sentence), "{refused:?}");
    }
    let forgotten = succeed(path, &["forget", "webhook-shop", "--yes"]);
    assert!(forgotten.starts_with("events are no longer held for it"), "{forgotten}");
    assert!(!succeed(path, &["lag"]).contains("webhook-shop"));
    succeed(path, &["verify"]);
}
