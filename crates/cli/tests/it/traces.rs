use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use serde_json::Value;

use crate::process::{Up, eventually, succeed};
use crate::tools::{event, import};

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const CALLER: &str = "00f067aa0ba902b7";

/// A collector that keeps the spans it gets. It ends with the process of the test.
struct Collector {
    address: String,
    spans: Arc<Mutex<Vec<Value>>>,
}

impl Collector {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let spans: Arc<Mutex<Vec<Value>>> = Arc::default();
        let kept = Arc::clone(&spans);
        thread::spawn(move || {
            for stream in listener.incoming() {
                let kept = Arc::clone(&kept);
                // A connection that breaks off is the end of what comes through it.
                thread::spawn(move || answer(&stream.unwrap(), &kept).unwrap_or_default());
            }
        });
        Self { address, spans }
    }

    /// The spans of our trace whose name begins like this.
    fn spans(&self, name: &str) -> Vec<Value> {
        let spans = self.spans.lock().unwrap();
        let is_ours =
            |it: &&Value| it["traceId"] == TRACE && it["name"].as_str().unwrap().starts_with(name);
        spans.iter().filter(is_ours).cloned().collect()
    }
}

/// Answers the requests of one connection.
fn answer(stream: &TcpStream, kept: &Mutex<Vec<Value>>) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream);
    loop {
        let (mut length, mut first) = (0, String::new());
        reader.read_line(&mut first)?;
        if first.is_empty() {
            return Ok(());
        }
        assert_eq!(first.trim(), "POST /v1/traces HTTP/1.1");
        loop {
            let mut line = String::new();
            reader.read_line(&mut line)?;
            if line.trim().is_empty() {
                break;
            }
            let line = line.to_ascii_lowercase();
            if let Some(value) = line.strip_prefix("content-length:") {
                length = value.trim().parse().unwrap();
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body)?;
        let body: Value = serde_json::from_slice(&body).unwrap();
        for resource in body["resourceSpans"].as_array().unwrap() {
            for scope in resource["scopeSpans"].as_array().unwrap() {
                kept.lock().unwrap().extend(scope["spans"].as_array().unwrap().iter().cloned());
            }
        }
        (&mut &*stream).write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}")?;
    }
}

#[test]
fn a_trace_follows_an_event_from_its_commit_to_its_consumer() {
    let directory = tempfile::tempdir().unwrap();
    let collector = Collector::start();
    let config = format!("[traces]\nendpoint = \"http://{}\"\n", collector.address);
    fs::write(directory.path().join("millstream.toml"), config).unwrap();
    let up = Up::start(directory.path(), &["--demo", "--rate", "1"]);
    let headers =
        format!("content-type: application/json\r\ntraceparent: 00-{TRACE}-{CALLER}-01\r\n");
    let contact = r#"{"firstName": "Ada", "lastName": "King", "email": "ada@example.com", "companyName": "A"}"#;
    let answer = up.post("/api/contacts", &headers, contact);
    assert!(answer.starts_with("201 "), "{answer}");

    let destinations = ["contacts", "contacts-webhook"];
    let names = destinations.map(|it| [format!("relay {it}"), format!("publish {it}")]).concat();
    let path = "contacts/Subscriptions/search";
    let all = [vec!["commit contacts/data".to_owned(), format!("deliver {path}")], names].concat();
    for name in &all {
        let is_there = || collector.spans(name).iter().any(|it| it["name"] == name.as_str());
        eventually(&format!("there is a span {name}"), is_there);
    }
    for name in ["commit", "relay", "deliver"] {
        for span in collector.spans(name) {
            assert_eq!(span["parentSpanId"], CALLER, "{span}");
            assert!(span["status"].is_null(), "{span}");
        }
    }
    let id = |span: &Value, name: &str| span[name].as_str().unwrap().to_owned();
    let relays: BTreeSet<_> = collector.spans("relay").iter().map(|it| id(it, "spanId")).collect();
    for span in collector.spans("publish") {
        assert!(relays.contains(&id(&span, "parentSpanId")), "{span}");
        let time = |name: &str| id(&span, name).parse::<u64>().unwrap();
        assert!(time("startTimeUnixNano") <= time("endTimeUnixNano"), "{span}");
    }
    assert_eq!(up.metric("millstream_traces_dropped_total"), 0.0);
    assert_eq!(up.stop(), Some(0));
}

#[test]
fn commits_through_the_protocol_are_in_the_trace() {
    let (directory, source) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let traced = format!(r#"{{"traceparent":"00-{TRACE}-{CALLER}-01","#);
    let up = Up::start(source.path(), &[]);
    import(source.path(), &[event("a", 1).replacen('{', &traced, 1)]);
    assert_eq!(up.stop(), Some(0));

    let collector = Collector::start();
    let config = format!("[traces]\nendpoint = \"http://{}\"\n", collector.address);
    fs::write(directory.path().join("millstream.toml"), config).unwrap();
    let up = Up::start(directory.path(), &[]);
    let to = format!("cosmos+http://{}", up.address);
    let from = format!("file:{}", source.path().join("data").display());
    let copy = ["migrate", "--from", &from, "--to", &to, "--container", "app/data", "--once"];
    succeed(source.path(), &copy);
    eventually("there is a span", || !collector.spans("commit app/data").is_empty());
    assert_eq!(up.stop(), Some(0));
}

#[test]
fn a_collector_that_is_gone_keeps_nothing_from_working() {
    let directory = tempfile::tempdir().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let config = format!("[traces]\nendpoint = \"http://{address}\"\n");
    fs::write(directory.path().join("millstream.toml"), config).unwrap();
    let up = Up::start(directory.path(), &["--demo", "--rate", "50"]);
    eventually("spans are dropped", || 0.0 < up.metric("millstream_traces_dropped_total"));
    eventually("events arrive", || 20.0 <= up.metric("millstream_demo_events_total"));
    assert_eq!(up.stop(), Some(0));
}
