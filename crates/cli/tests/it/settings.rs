use std::fs;

use crate::process::{Up, run, succeed};

#[track_caller]
fn check(config: &str, arguments: &[&str], code: i32, expected: &str) {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("millstream.toml"), config).unwrap();
    let ended = run(directory.path(), arguments);
    assert_eq!(ended.code, Some(code), "{ended:?}");
    let text = if code == 0 { &ended.out } else { &ended.err };
    assert_eq!(text, expected);
}

#[test]
fn good_settings_are_shown_with_what_was_left_out() {
    let config = "log = \"info\"\n[[webhooks]]\nname = \"a\"\nurl = \"http://localhost/hook\"\n";
    let expected = "\
store = \"file:data\"
broker = \"\"
ranges = 1
listen = \"127.0.0.1:8081\"
log_format = \"text\"
log = \"info\"

[gateway]
key_env = \"MILLSTREAM_ACCOUNT_KEY\"
read_only_key_env = \"MILLSTREAM_READ_ONLY_KEY\"
tls = true
names = []
enforce_throughput = false

[relay]
topic = \"events\"
duplicate_window_seconds = 600
source = \"millstream\"
raw = false
leases_per_range = 4

[[relay.subscriptions]]
name = \"default\"
sessions = true
lock_seconds = 60
deliveries_max = 10
ttl_seconds = 1209600
dead_letter_expired = false

[[webhooks]]
name = \"a\"
url = \"http://localhost/hook\"
all_documents = false

[traces]
service = \"millstream\"
# these settings can be used
";
    check(config, &["config", "check"], 0, expected);
}

#[test]
fn wrong_settings_are_told_in_a_sentence() {
    check(
        "[relay]\nleases_per_range = 0",
        &["config", "check"],
        2,
        "millstream: relay.leases_per_range must be between 1 and 64\n",
    );
    check(
        "",
        &["config", "check", "--store", "redis://here"],
        2,
        "millstream: store is \"redis://here\": write file: and a directory, such as file:./data, \
         NATS servers, such as nats://localhost:4222, or an account of Cosmos DB, such as \
         cosmos+http://localhost:8081\n",
    );
    check(
        "",
        &["config", "check", "--log", "a=b=c"],
        2,
        "millstream: log is \"a=b=c\": write a level such as info, or several such as \
         warn,millstream_relay=debug\n",
    );
    check(
        "",
        &["config", "check", "--config", "nowhere.toml"],
        2,
        "millstream: could not read nowhere.toml: No such file or directory (os error 2)\n",
    );
    for command in [&["up", "--listen", "127.0.0.1:0"][..], &["config", "check"]] {
        check(
            "[relay]\nsubscriptions = [{ name = \"paid\", filter = \"sys.Label = 'Paid\" }]",
            command,
            2,
            "millstream: the subscription \"paid\": could not read the filter \"sys.Label = \
             'Paid\": expected ' to end what begins at column 13, found the end\n",
        );
        check(
            "[[webhooks]]\nname = \"a\"\nurl = \"http://localhost/\"\nsecret_env = \"NOT_SET\"",
            command,
            2,
            "millstream: the webhook \"a\" takes its secret from NOT_SET, which is not set\n",
        );
        check(
            "[[webhooks]]\nname = \"a\"\nurl = \"ftp://localhost/\"",
            command,
            2,
            "millstream: the webhook \"a\": could not use the address of the webhook: it must \
             begin with http:// or https:// and a host\n",
        );
    }
}

#[test]
fn certificates_and_keys_are_tried_before_the_start() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    fs::write(path.join("empty.pem"), "nothing\n").unwrap();
    let config = "[gateway]\ncertificate = \"empty.pem\"\ncertificate_key = \"key.pem\"\n";
    fs::write(path.join("millstream.toml"), config).unwrap();
    for command in [&["up", "--listen", "127.0.0.1:0"][..], &["config", "check"]] {
        let ended = run(path, command);
        assert_eq!(ended.code, Some(2), "{ended:?}");
        assert!(ended.err.contains("key.pem: No such file"), "{ended:?}");
    }
    fs::write(path.join("key.pem"), "nothing\n").unwrap();
    let ended = run(path, &["config", "check"]);
    assert!(ended.err.contains("empty.pem: there is no certificate in it"), "{ended:?}");
    // The one that is made at the start serves as one that is named.
    fs::remove_file(path.join("millstream.toml")).unwrap();
    assert_eq!(Up::start(path, &[]).stop(), Some(0));
    let made = succeed(path, &["config", "check"]);
    assert!(made.contains("tls = true"), "{made}");
    let open = run(path, &["config", "check", "--listen", "0.0.0.0:8081"]);
    assert_eq!(open.code, Some(2), "{open:?}");
}

#[test]
fn what_is_shown_can_be_used_as_the_file() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("millstream.toml");
    let table = "{ name = \"paid\", filter = \"sys.Label = 'Paid'\", ttl_seconds = 0 }";
    fs::write(&file, format!("[relay]\nsubscriptions = [\"all\", {table}]")).unwrap();
    let shown = succeed(directory.path(), &["config", "check"]);
    assert!(shown.contains("filter = \"sys.Label = 'Paid'\""), "{shown}");
    fs::write(&file, &shown).unwrap();
    assert_eq!(succeed(directory.path(), &["config", "check"]), shown);
}

#[test]
fn commands_say_when_there_is_no_store() {
    check(
        "",
        &["topics"],
        1,
        "millstream: there is no store in data; `millstream up` makes one, --store names another\n",
    );
}

#[test]
fn mistakes_on_the_command_line_end_with_2() {
    let directory = tempfile::tempdir().unwrap();
    for arguments in [&["upp"][..], &["up", "--rate", "1"], &["parked", "redrive", "events"]] {
        let ended = run(directory.path(), arguments);
        assert_eq!(ended.code, Some(2), "{ended:?}");
        assert!(ended.err.starts_with("error: "), "{ended:?}");
    }
}
