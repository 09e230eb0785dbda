use std::sync::Arc;

use millstream_core::memory::Memory;
use millstream_core::{RandomIds, SystemClock};
use tokio::io::DuplexStream;
use tokio::task::JoinHandle;

use crate::options::GatewayOptions;
use crate::server::ServerLimits;
use crate::server::patience::Activity;
use crate::server::plain::*;
use crate::server::stream::Impatient;

const IDLE_MAX: Duration = Duration::from_secs(120);
/// Is refused, which is an answer as any other.
const PLAIN: &str = "POST /dbs/a HTTP/1.1\r\nhost: h\r\ncontent-length: 2\r\n\r\n{}";
const CHUNKED: &str = "POST /dbs/a HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n";

/// A connection, and what becomes of it.
struct Served {
    client: DuplexStream,
    stopping: CancellationToken,
    outcome: JoinHandle<io::Result<Option<Left>>>,
}

impl Served {
    async fn begin() -> Self {
        let clock = Arc::new(SystemClock::default());
        let ids = Arc::new(RandomIds::new(clock.clone()));
        let backend = Arc::new(Memory::new(clock.clone()));
        let options = GatewayOptions::default();
        let gateway = Gateway::open(backend, clock, ids, options).await.unwrap();
        let (client, stream) = tokio::io::duplex(64 * 1024);
        let activity = Activity::new();
        let mut stream = Impatient::new(stream, IDLE_MAX, Arc::clone(&activity));
        let stopping = CancellationToken::new();
        let stops = stopping.clone();
        let outcome = tokio::spawn(async move {
            let plain = Plain {
                stream: &mut stream,
                gateway: &gateway,
                origin: Origin { peer: None, is_secured: false },
                patience: &mut Patience::new(activity, IDLE_MAX, IDLE_MAX),
                limits: HeadLimits::within(&ServerLimits::default()),
                stopping: stops,
            };
            plain.serve().await
        });
        Self { client, stopping, outcome }
    }

    async fn send(&mut self, text: &str) {
        self.client.write_all(text.as_bytes()).await.unwrap();
    }

    /// The next answer, without its body.
    async fn answer(&mut self) -> String {
        let mut text = Vec::new();
        while !text.ends_with(b"\r\n\r\n") {
            text.push(self.client.read_u8().await.unwrap());
        }
        let text = String::from_utf8(text).unwrap();
        let length = text.lines().find_map(|it| it.strip_prefix("content-length: ")).unwrap();
        let mut body = vec![0; length.parse().unwrap()];
        self.client.read_exact(&mut body).await.unwrap();
        text
    }

    /// What was left to hyper.
    async fn left(self) -> Option<String> {
        let left = self.outcome.await.unwrap().unwrap();
        left.map(|it| String::from_utf8(it.received).unwrap())
    }
}

#[track_caller]
fn check(reply: &Reply, is_last: bool, expected: &str) {
    let mut out = b"left over".to_vec();
    write_head(reply, b"now", is_last, &mut out);
    assert_eq!(String::from_utf8(out).unwrap(), expected);
}

#[test]
fn answers_say_how_long_they_are_if_they_can_have_a_body() {
    let reply = Reply::new(StatusCode::CREATED, "{}").header(&http::header::ETAG, "a");
    let head = "HTTP/1.1 201 Created\r\netag: a\r\ncontent-length: 2\r\n";
    check(&reply, false, &format!("{head}date: now\r\n\r\n"));
    check(&reply, true, &format!("{head}connection: close\r\ndate: now\r\n\r\n"));
    let head = "HTTP/1.1 200 OK\r\ncontent-length: 0\r\ndate: now\r\n\r\n";
    check(&Reply::empty(StatusCode::OK), false, head);
    let head = "HTTP/1.1 204 No Content\r\ndate: now\r\n\r\n";
    check(&Reply::empty(StatusCode::NO_CONTENT), false, head);
    let head = "HTTP/1.1 304 Not Modified\r\ndate: now\r\n\r\n";
    check(&Reply::empty(StatusCode::NOT_MODIFIED), false, head);
    assert!(!has_body(&Reply::new(StatusCode::NOT_MODIFIED, "{}")), "it would not be told");
}

#[tokio::test(start_paused = true)]
async fn a_request_is_answered_in_whatever_pieces_it_comes() {
    let mut served = Served::begin().await;
    for cut in 1..PLAIN.len() {
        served.send(&PLAIN[..cut]).await;
        tokio::time::sleep(REST_TIME_MAX / 2).await;
        served.send(&PLAIN[cut..]).await;
        assert!(served.answer().await.starts_with("HTTP/1.1 401 "), "cut at {cut}");
    }
}

#[tokio::test(start_paused = true)]
async fn requests_behind_each_other_are_answered_one_by_one() {
    let mut served = Served::begin().await;
    served.send(&PLAIN.repeat(3)).await;
    for _ in 0..3 {
        assert!(served.answer().await.starts_with("HTTP/1.1 401 "));
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_not_plain_is_left_as_it_came() {
    let mut served = Served::begin().await;
    served.send(&[PLAIN, CHUNKED, PLAIN].concat()).await;
    assert!(served.answer().await.starts_with("HTTP/1.1 401 "));
    let left = served.outcome.await.unwrap().unwrap().unwrap();
    assert_eq!(left.received, [CHUNKED, PLAIN].concat().as_bytes());
    assert!(left.is_http1, "no other version can follow");
}

#[tokio::test(start_paused = true)]
async fn a_request_that_comes_too_slowly_is_left_as_it_came() {
    let mut served = Served::begin().await;
    let begun = Instant::now();
    // However often something comes, the time is that of the whole request.
    for letter in PLAIN.chars().take(8) {
        served.send(&letter.to_string()).await;
        tokio::time::sleep(REST_TIME_MAX / 10).await;
    }
    assert_eq!(served.left().await, Some(PLAIN[..8].to_owned()));
    assert!(begun.elapsed() <= REST_TIME_MAX + Duration::from_millis(1));
}

#[tokio::test(start_paused = true)]
async fn a_request_that_breaks_off_is_left_as_it_came() {
    let mut served = Served::begin().await;
    served.send(&PLAIN[..PLAIN.len() - 1]).await;
    served.client.shutdown().await.unwrap();
    assert_eq!(served.left().await, Some(PLAIN[..PLAIN.len() - 1].to_owned()));
}

#[tokio::test(start_paused = true)]
async fn a_connection_on_which_nothing_is_asked_ends() {
    let mut served = Served::begin().await;
    tokio::time::sleep(IDLE_MAX / 2).await;
    served.send(PLAIN).await;
    served.answer().await;
    let begun = Instant::now();
    assert_eq!(served.left().await, None);
    let waited = begun.elapsed();
    assert!(IDLE_MAX - Duration::from_millis(2) <= waited && waited <= IDLE_MAX, "{waited:?}");
}

#[tokio::test(start_paused = true)]
async fn a_connection_ends_with_the_server() {
    let mut served = Served::begin().await;
    served.send(PLAIN).await;
    assert!(!served.answer().await.contains("connection: close"));
    served.stopping.cancel();
    let begun = Instant::now();
    assert_eq!(served.left().await, None);
    assert_eq!(begun.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn the_last_answer_says_that_it_is_the_last() {
    let mut served = Served::begin().await;
    // Both are there when the connection is looked at for the first time.
    served.send(&PLAIN.repeat(2)).await;
    served.stopping.cancel();
    assert!(served.answer().await.contains("connection: close\r\n"));
    assert_eq!(served.left().await, None);
}
