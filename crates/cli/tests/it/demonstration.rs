use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::time::Duration;

use crate::process::{Up, eventually, run, succeed};

fn shows_the_demonstration(directory: &Path) {
    let topics = succeed(directory, &["topics"]);
    assert!(topics.contains("contacts/Subscriptions/search"), "{topics}");
    assert!(topics.contains("events/Subscriptions/default"), "{topics}");
    let lag = succeed(directory, &["lag", "--json"]);
    assert!(lag.contains("\"relay\": \"contacts-webhook\""), "{lag}");
    let leases = succeed(directory, &["leases"]);
    assert_eq!(leases.lines().count(), 13, "{leases}");
    assert_eq!(succeed(directory, &["parked", "list"]), "nothing is parked\n");
}

#[test]
fn the_demonstration_delivers_events_stops_cleanly_and_goes_on_later() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    for _ in 0..2 {
        let up = Up::start(path, &["--demo", "--rate", "50"]);
        assert_eq!(up.get("/health"), "200 alive\n");
        eventually("it is ready", || up.get("/ready") == "200 ready\n");
        for consumer in ["search", "webhook"] {
            eventually("events arrive", || {
                20.0 <= up
                    .metric(&format!("millstream_demo_events_total{{consumer=\"{consumer}\"}}"))
            });
        }
        assert_eq!(up.metric("millstream_demo_out_of_order_total"), 0.0);
        eventually("the search list has contacts", || {
            up.get("/api/search?text=").contains("fullName")
        });
        shows_the_demonstration(path);
        let second = run(path, &["up", "--listen", "127.0.0.1:0"]);
        assert_eq!(second.code, Some(1));
        assert_eq!(
            second.err,
            "millstream: could not lock the store in data: another process has it open; stop that \
             one or choose another directory\n"
        );
        assert_eq!(up.stop(), Some(0));
        assert!(!path.join("data/millstream.address").exists());
        shows_the_demonstration(path);
    }
    let verified = succeed(path, &["verify"]);
    assert!(verified.ends_with("everything fits together\n"), "{verified}");
}

#[test]
fn commands_are_refused_to_whoever_cannot_read_the_directory() {
    let directory = tempfile::tempdir().unwrap();
    let up = Up::start(directory.path(), &[]);
    for headers in ["", "authorization: Bearer wrong\r\n"] {
        let answer = up.post("/admin", headers, "\"topics\"");
        assert!(answer.starts_with("403 only commands on this machine"), "{answer}");
    }
    // Nothing of their requests is waited for.
    let mut stream = TcpStream::connect(&up.address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream.write_all(b"POST /admin HTTP/1.1\r\nhost: a\r\ncontent-length: 9000\r\n\r\n").unwrap();
    let mut begin = [0; 12];
    stream.read_exact(&mut begin).unwrap();
    assert_eq!(&begin, b"HTTP/1.1 403");
}
