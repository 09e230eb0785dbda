//! HTTP/2 as no client library speaks it.

use std::time::Duration;

use http::Method;
use millstream_gateway::{GatewayOptions, PUBLIC_EMULATOR_KEY, ServerLimits};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::client::{Backend, PATIENCE, Running, on_both, run, signed};

/// Kinds of frames.
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const INITIAL_WINDOW_SIZE: u8 = 4;
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
const ACK: u8 = 1;

/// A connection of frames.
struct Frames(TcpStream);

/// A frame that came.
struct Frame {
    kind: u8,
    flags: u8,
    stream: u8,
}

impl Frames {
    async fn open(gateway: &Running) -> Self {
        Self::open_with(gateway, &[]).await
    }

    async fn open_with(gateway: &Running, settings: &[u8]) -> Self {
        let mut stream = TcpStream::connect(gateway.address()).await.unwrap();
        stream.write_all(PREFACE).await.unwrap();
        let mut frames = Self(stream);
        frames.send(SETTINGS, 0, 0, settings).await;
        frames
    }

    async fn send(&mut self, kind: u8, flags: u8, stream: u8, payload: &[u8]) {
        let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
        let mut frame = length[1..].to_vec();
        frame.extend_from_slice(&[kind, flags, 0, 0, 0, stream]);
        frame.extend_from_slice(payload);
        self.0.write_all(&frame).await.unwrap();
    }

    /// The headers of a signed request.
    async fn ask(&mut self, stream: u8, method: Method, path: &str, more: &[(&str, &str)]) {
        let request = signed(method.clone(), path, PUBLIC_EMULATOR_KEY);
        let pseudo =
            [(":method", method.as_str()), (":scheme", "http"), (":authority", "localhost")];
        let signed =
            request.headers().iter().map(|(name, it)| (name.as_str(), it.to_str().unwrap()));
        let mut block = Vec::new();
        for (name, value) in pseudo.into_iter().chain([(":path", path)]).chain(signed) {
            literal(&mut block, name, value);
        }
        more.iter().for_each(|(name, value)| literal(&mut block, name, value));
        let is_last = method == Method::GET;
        let flags = END_HEADERS | if is_last { END_STREAM } else { 0 };
        self.send(HEADERS, flags, stream, &block).await;
    }

    async fn next(&mut self) -> Frame {
        let mut head = [0; 9];
        timeout(PATIENCE, self.0.read_exact(&mut head)).await.unwrap().unwrap();
        let [a, b, c, kind, flags, _, _, _, stream] = head;
        let mut payload = vec![0; usize::try_from(u32::from_be_bytes([0, a, b, c])).unwrap()];
        timeout(PATIENCE, self.0.read_exact(&mut payload)).await.unwrap().unwrap();
        if kind == SETTINGS && flags & ACK == 0 {
            self.send(SETTINGS, ACK, 0, &[]).await;
        }
        Frame { kind, flags, stream }
    }

    /// Waits for a frame of this kind.
    async fn until(&mut self, kind: u8, stream: u8) {
        loop {
            let frame = self.next().await;
            if (frame.kind, frame.stream) == (kind, stream) {
                return;
            }
        }
    }

    /// Waits until a request has been answered.
    async fn answered(&mut self, stream: u8) {
        loop {
            let frame = self.next().await;
            let has_ended = [DATA, HEADERS].contains(&frame.kind) && frame.flags & END_STREAM != 0;
            if frame.stream == stream && has_ended {
                return;
            }
        }
    }
}

/// A header in the longest form there is.
fn literal(block: &mut Vec<u8>, name: &str, value: &str) {
    block.push(0);
    for text in [name, value] {
        match text.len().checked_sub(127) {
            None => block.push(u8::try_from(text.len()).unwrap()),
            Some(more) => {
                assert!(more < 1 << 14, "a header of a test is short");
                let low = u8::try_from(more % 128).unwrap();
                block.extend_from_slice(&[127, 128 | low, u8::try_from(more / 128).unwrap()]);
            }
        }
        block.extend_from_slice(text.as_bytes());
    }
}

#[test]
fn a_body_that_is_cut_off_changes_nothing() {
    on_both(|gateway| async move {
        gateway.with_container().await;
        let key = ("x-ms-documentdb-partitionkey", r#"["a"]"#);
        let mut frames = Frames::open(&gateway).await;
        // Whole for itself; what was announced, or the end of the stream, never comes.
        for (stream, announced) in [(1, Some(("content-length", "50"))), (5, None)] {
            let mut headers = vec![key];
            headers.extend(announced);
            frames.ask(stream, Method::POST, "/dbs/d/colls/c/docs", &headers).await;
            frames.send(DATA, 0, stream, br#"{"id":"1","pk":"a"}"#).await;
            // No error: hyper takes that for the end.
            frames.send(RST_STREAM, 0, stream, &[0; 4]).await;
            frames.ask(stream + 2, Method::GET, "/dbs/d", &[]).await;
            frames.answered(stream + 2).await;
            // Had it been begun, it would be done before this.
            let other = format!(r#"{{"id":"other-{stream}","pk":"a"}}"#);
            let created = gateway.ask(Method::POST, "/dbs/d/colls/c/docs", &[key], other).await;
            assert_eq!(created.status, 201);
            let path = "/dbs/d/colls/c/docs/1";
            let found = gateway.ask(Method::GET, path, &[key], "").await;
            assert_eq!(found.status, 404, "{announced:?}");
        }
    });
}

#[test]
fn an_answer_of_which_one_byte_is_taken_is_given_up() {
    run(async {
        let mut limits = ServerLimits::default();
        limits.write_timeout = Duration::from_secs(2);
        let options = GatewayOptions::default();
        let gateway = Running::start_with(Backend::Memory, options, limits, None, None).await;
        let settings = [0, INITIAL_WINDOW_SIZE, 0, 0, 0, 1];
        let mut frames = Frames::open_with(&gateway, &settings).await;
        frames.ask(1, Method::GET, "/", &[]).await;
        frames.until(DATA, 1).await;
        frames.until(RST_STREAM, 1).await;
    });
}
