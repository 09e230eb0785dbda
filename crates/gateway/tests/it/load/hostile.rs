//! Clients that break the rules of TCP, TLS or HTTP, each on a connection of its own.

use std::net::SocketAddr;

use http::Method;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::load::server::{IDLE_MAX, ServerProcess};
use crate::load::wire::{
    ANSWER_MAX, ITEMS, KEY, Random, exchange, exchange_and_end, head, until_closed,
};

/// The partition of items that must never come to be.
const NEVER: &str = "[\"never\"]";
const NEVER_BODY: &str = r#"{"id":"never","pk":"never"}"#;

/// Does one of the things nobody should do.
pub(super) async fn act(address: SocketAddr, random: &mut Random) {
    match random.below(17) {
        0 => wrong_signature(address).await,
        1 => huge_headers(address).await,
        2 => many_headers(address).await,
        3 => truncated(address, random).await,
        4 => truncated_chunks(address).await,
        5 => slow(address).await,
        6..=7 => pipelined(address).await,
        8 => pipelined_with_garbage(address).await,
        9 => garbage(address, &[], random).await,
        10 => garbage(address, &[0x16], random).await,
        11 => garbage(address, &[0x16, 3, 1, 2, 0, 1, 0, 1, 0xFC, 3, 3], random).await,
        12 => garbage(address, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", random).await,
        13 => two_lengths(address).await,
        14 => impossible_lengths(address, random).await,
        15 => gone_before_the_answer(address, random).await,
        _ => drop(TcpStream::connect(address).await.unwrap()),
    }
}

/// Connections that are held open and never say all they should.
pub(super) struct Held(Vec<TcpStream>);

impl Held {
    pub(super) async fn open(server: &ServerProcess) -> Self {
        let unfinished = head(Method::POST, ITEMS, &[(KEY, NEVER), ("content-length", "200")]);
        let beginnings = [
            String::new(),
            "G".to_owned(),
            "\u{16}\u{3}\u{1}".to_owned(),
            "PRI * HTTP/2.0\r\n".to_owned(),
            "GET / HTTP/1.1\r\nhost: a\r\n".to_owned(),
            format!("{unfinished}\r\n{{\"id\":"),
        ];
        let mut held = Vec::new();
        for beginning in beginnings {
            let mut stream = TcpStream::connect(server.address()).await.unwrap();
            stream.write_all(beginning.as_bytes()).await.unwrap();
            held.push(stream);
        }
        Self(held)
    }

    /// The server has enough of them by itself.
    pub(super) async fn wait_until_disconnected(self) {
        for mut stream in self.0 {
            let mut answer = Vec::new();
            let end = stream.read_to_end(&mut answer);
            let end = timeout(2 * IDLE_MAX + ANSWER_MAX, end).await;
            assert!(end.is_ok(), "a connection that says nothing is kept");
        }
    }
}

#[track_caller]
fn check(answer: &str, statuses: &[&str]) {
    let found: Vec<&str> =
        answer.split("HTTP/1.1 ").skip(1).map(|it| it.get(..3).unwrap_or(it)).collect();
    assert_eq!(found, statuses, "{answer}");
}

async fn wrong_signature(address: SocketAddr) {
    let text = head(Method::POST, ITEMS, &[(KEY, NEVER), ("connection", "close")]);
    // The signature of another resource, and none at all.
    let text = format!("{text}content-length: {}\r\n\r\n{NEVER_BODY}", NEVER_BODY.len());
    let other = text.replace("POST /dbs/d/colls/c/docs", "POST /dbs/d/colls/e/docs");
    check(&exchange(address, other.as_bytes()).await, &["401"]);
    let none = text.replace("authorization: ", "x-authorization: ");
    check(&exchange(address, none.as_bytes()).await, &["401"]);
}

async fn huge_headers(address: SocketAddr) {
    let text = format!("GET / HTTP/1.1\r\nhost: a\r\nx-large: {}\r\n\r\n", "x".repeat(200_000));
    check(&exchange(address, text.as_bytes()).await, &["431"]);
}

async fn many_headers(address: SocketAddr) {
    let text = format!("GET / HTTP/1.1\r\nhost: a\r\n{}\r\n", "a: b\r\n".repeat(1_000));
    check(&exchange(address, text.as_bytes()).await, &["431"]);
}

async fn truncated(address: SocketAddr, random: &mut Random) {
    let length = NEVER_BODY.len().to_string();
    let text = head(Method::POST, ITEMS, &[(KEY, NEVER), ("content-length", &length)]);
    let end = random.index(NEVER_BODY.len());
    let text = format!("{text}\r\n{}", &NEVER_BODY[..end]);
    exchange_and_end(address, text.as_bytes()).await;
}

async fn truncated_chunks(address: SocketAddr) {
    let text = head(Method::POST, ITEMS, &[(KEY, NEVER), ("transfer-encoding", "chunked")]);
    // All of the body is there, but not the chunk that says so.
    let text = format!("{text}\r\n{:x}\r\n{NEVER_BODY}\r\n", NEVER_BODY.len());
    exchange_and_end(address, text.as_bytes()).await;
}

/// A request in small pieces is a request.
async fn slow(address: SocketAddr) {
    let text = head(Method::GET, "/dbs/d", &[("connection", "close")]) + "\r\n";
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.set_nodelay(true).unwrap();
    for piece in text.as_bytes().chunks(16) {
        stream.write_all(piece).await.unwrap();
        tokio::task::yield_now().await;
    }
    check(&until_closed(stream).await, &["200"]);
}

async fn pipelined(address: SocketAddr) {
    let mut text = String::new();
    for path in ["/dbs/d", "/dbs/missing", "/dbs/d/colls/c", "/"] {
        text += &(head(Method::GET, path, &[]) + "\r\n");
    }
    text += &(head(Method::GET, "/dbs/missing", &[("connection", "close")]) + "\r\n");
    let answer = exchange(address, text.as_bytes()).await;
    check(&answer, &["200", "404", "200", "200", "404"]);
}

async fn pipelined_with_garbage(address: SocketAddr) {
    let text = head(Method::GET, "/dbs/d", &[]) + "\r\nNONSENSE\u{0}\r\n\r\n";
    check(&exchange(address, text.as_bytes()).await, &["200", "400"]);
}

/// Whatever comes back, the connection ends.
async fn garbage(address: SocketAddr, beginning: &[u8], random: &mut Random) {
    let length = random.index(2_000);
    let bytes = [beginning, &random.bytes(length)].concat();
    exchange_and_end(address, &bytes).await;
}

/// Two lengths that contradict each other: whatever comes of it, the connection ends and what
/// seemed to be a request behind it writes nothing.
async fn two_lengths(address: SocketAddr) {
    let headers = [("content-length", "4"), ("transfer-encoding", "chunked")];
    let inner = head(Method::GET, "/dbs/missing", &[("connection", "close")]);
    let text = format!("{}\r\n0\r\n\r\n{inner}\r\n", head(Method::GET, "/dbs/d", &headers));
    exchange_and_end(address, text.as_bytes()).await;
}

async fn impossible_lengths(address: SocketAddr, random: &mut Random) {
    let lengths = ["-1", "99999999999999999999999", "7 8", "1073741824"];
    let length = lengths[random.index(lengths.len())];
    let text = head(Method::POST, ITEMS, &[(KEY, NEVER), ("content-length", length)]);
    let answer = exchange_and_end(address, format!("{text}\r\n{NEVER_BODY}").as_bytes()).await;
    check(&answer, &[if length == "1073741824" { "413" } else { "400" }]);
}

/// Asks for much and does not wait for it; what is not read makes the system reset the connection.
async fn gone_before_the_answer(address: SocketAddr, random: &mut Random) {
    let text = head(Method::GET, ITEMS, &[("x-ms-max-item-count", "1000")]) + "\r\n";
    let mut stream = TcpStream::connect(address).await.unwrap();
    for _ in 0..=random.below(4) {
        stream.write_all(text.as_bytes()).await.unwrap();
    }
    if random.below(2) == 0 {
        let mut first = [0; 1];
        let _ = timeout(ANSWER_MAX, stream.read(&mut first)).await;
    }
}
