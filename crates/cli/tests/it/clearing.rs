use std::fs;

use crate::process::{Up, eventually, run, succeed};
use crate::tools::{event, import};

#[test]
fn messages_are_thrown_away_and_dead_letters_are_sent_back() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let late = "{ name = \"late\", ttl_seconds = 1, dead_letter_expired = true }";
    let config = format!("[relay]\nsubscriptions = [\"all\", {late}]\n");
    fs::write(path.join("millstream.toml"), config).unwrap();
    let up = Up::start(path, &[]);
    import(path, &[event("a", 1), event("a", 2), event("b", 3)]);
    let count = |name: &str, state: &str| {
        let path = format!("events/Subscriptions/{name}");
        up.metric(&format!("millstream_broker_messages{{path=\"{path}\",state=\"{state}\"}}"))
    };
    eventually("all are dead letters", || count("late", "deadLettered") == 3.0);
    let all = "events/Subscriptions/all";
    let asked = run(path, &["purge", all]);
    assert_eq!(asked.code, Some(2), "{asked:?}");
    let expected = "millstream: 3 waiting messages of events/Subscriptions/all would be thrown \
                    away for good: write --yes if that is what you want\n";
    assert_eq!(asked.err, expected);
    assert_eq!(count("all", "active"), 3.0);
    assert_eq!(succeed(path, &["purge", all, "--yes"]), "3 messages were thrown away\n");
    assert_eq!(count("all", "active"), 0.0);
    let nobody = run(path, &["purge", "events/Subscriptions/nobody", "--yes"]);
    assert_eq!(nobody.code, Some(1), "{nobody:?}");

    let late = "events/Subscriptions/late";
    let back = succeed(path, &["resubmit", late, "--max", "2"]);
    assert_eq!(back, "2 messages were sent back\n");
    // They do not expire again.
    assert_eq!((count("late", "active"), count("late", "deadLettered")), (2.0, 1.0));
    assert_eq!(up.stop(), Some(0));

    let dead = "events/Subscriptions/late/$DeadLetterQueue";
    assert_eq!(succeed(path, &["purge", dead, "--yes"]), "1 message was thrown away\n");
    assert_eq!(succeed(path, &["resubmit", dead]), "0 messages were sent back\n");
    assert!(succeed(path, &["peek", late]).contains("active"));
}
