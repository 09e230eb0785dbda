//! What is not meant well is answered, or disconnected, and nothing else suffers.

use std::time::Duration;

use axum::Router;
use axum::routing::post;
use bytes::Bytes;
use http::{HeaderValue, Method, Request};
use millstream_gateway::{GatewayOptions, PUBLIC_EMULATOR_KEY, Server, ServerLimits};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::client::{Backend, PATIENCE, Running, head, on_both, run, signed};

/// Sends bytes and returns what comes back until the server ends the connection.
async fn raw(gateway: &Running, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(gateway.address()).await.unwrap();
    // The server may close before everything is written.
    let _ = stream.write_all(bytes).await;
    read_all(stream).await
}

/// Sends bytes, says that nothing more will come, and returns what comes back.
async fn truncated(gateway: &Running, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(gateway.address()).await.unwrap();
    let _ = stream.write_all(bytes).await;
    let _ = stream.shutdown().await;
    read_all(stream).await
}

async fn read_all(mut stream: TcpStream) -> String {
    let mut answer = Vec::new();
    let _ = timeout(PATIENCE, stream.read_to_end(&mut answer)).await.expect("an end comes");
    String::from_utf8_lossy(&answer).into_owned()
}

#[track_caller]
fn check_status(answer: &str, expected: &str) {
    assert!(answer.starts_with(&format!("HTTP/1.1 {expected}")), "{answer}");
}

#[test]
fn requests_without_a_good_signature_are_refused() {
    on_both(|gateway| async move {
        let other = "c2VjcmV0IHNlY3JldA==";
        let wrong = signed(Method::GET, "/dbs", other).map(|()| Bytes::new());
        let answer = gateway.send(wrong).await.expect(401).json();
        assert_eq!(answer["code"], "Unauthorized");
        let none = Request::builder().uri("/dbs").body(Bytes::new()).unwrap();
        gateway.send(none).await.expect(401);
        let mut old = signed(Method::GET, "/dbs", PUBLIC_EMULATOR_KEY).map(|()| Bytes::new());
        let date = HeaderValue::from_static("Tue, 14 Nov 2023 22:13:20 GMT");
        old.headers_mut().insert("x-ms-date", date);
        gateway.send(old).await.expect(401);
        let mut entra = signed(Method::GET, "/dbs", PUBLIC_EMULATOR_KEY).map(|()| Bytes::new());
        let token = HeaderValue::from_static("type%3daad%26ver%3d1.0%26sig%3dabc");
        entra.headers_mut().insert("authorization", token);
        let answer = gateway.send(entra).await.expect(401).json();
        assert!(answer["message"].as_str().unwrap().contains("Entra"), "{answer}");
    });
}

#[test]
fn bodies_that_are_no_definition_are_refused() {
    on_both(|gateway| async move {
        gateway.with_container().await;
        let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
        let long = format!(r#"{{"id":"{}"}}"#, "x".repeat(300));
        let bodies =
            ["", "{", "[]", "null", r#"{"id":7}"#, r#"{"id":"a/b"}"#, "\u{0}", &deep, &long];
        for body in bodies {
            let shown: String = body.chars().take(40).collect();
            let answer = gateway.post("/dbs", body).await;
            assert_eq!(answer.status, 400, "{shown}");
            assert_eq!(answer.json()["code"], "BadRequest");
            assert_eq!(gateway.post("/dbs/d/colls", body).await.status, 400, "{shown}");
        }
        gateway.ask(Method::POST, "/dbs", &[], vec![0xFF, 0xFE]).await.expect(400);
        gateway.get("/dbs/d").await.expect(200);
    });
}

#[test]
fn a_body_beyond_the_limit_is_refused() {
    on_both(|gateway| async move {
        let body = vec![b' '; GatewayOptions::default().body_bytes_max + 1];
        let answer = gateway.ask(Method::POST, "/dbs", &[], body).await.expect(413).json();
        assert_eq!(answer["code"], "RequestEntityTooLarge");
    });
}

#[test]
fn who_is_still_sending_sees_why_it_is_refused() {
    on_both(|gateway| async move {
        let body = "x".repeat(8 << 20);
        let length = body.len();
        for framing in [
            format!("content-length: {length}\r\n\r\n{body}"),
            format!("transfer-encoding: chunked\r\n\r\n{length:x}\r\n{body}\r\n0\r\n\r\n"),
        ] {
            let head = "POST /dbs HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n";
            let mut stream = TcpStream::connect(gateway.address()).await.unwrap();
            stream.write_all(format!("{head}{framing}").as_bytes()).await.expect("all is taken");
            check_status(&read_all(stream).await, "401");
        }
        // Nobody has to send what was kept back, and what is too much is not waited for.
        for header in ["expect: 100-continue\r\ncontent-length: 9", "content-length: 999999999"] {
            let head = format!("POST /dbs HTTP/1.1\r\nhost: localhost\r\n{header}\r\n\r\n");
            check_status(&raw(&gateway, head.as_bytes()).await, "401");
        }
    });
}

#[test]
fn headers_that_make_no_sense_are_refused() {
    on_both(|gateway| async move {
        gateway.with_container().await;
        let path = "/dbs/d/colls/c/docs";
        for (name, value) in [
            ("x-ms-max-item-count", "many"),
            ("x-ms-max-item-count", "-7"),
            ("x-ms-documentdb-partitionkey", "not json"),
            ("x-ms-documentdb-partitionkey", "[1,2,3,4,5]"),
            ("x-ms-documentdb-partitionkeyrangeid", "first"),
            ("x-ms-session-token", "garbage"),
            ("x-ms-start-epk", "00"),
            ("x-ms-documentdb-partitionkey", "[\"\u{e4}"),
        ] {
            let answer = gateway.ask(Method::GET, path, &[(name, value)], "").await;
            assert_eq!(answer.status, 400, "{name}: {value} {:?}", answer.body);
        }
        gateway.ask(Method::GET, path, &[], "").await.expect(200);
    });
}

#[test]
fn paths_and_methods_that_nobody_serves_are_refused() {
    on_both(|gateway| async move {
        gateway.with_container().await;
        gateway.get("/nothing/at/all").await.expect(400);
        let broken = b"GET /dbs/%FF HTTP/1.1\r\nconnection: close\r\n\r\n";
        check_status(&raw(&gateway, broken).await, "400");
        gateway.get(&format!("/dbs/{}", "a".repeat(9_000))).await.expect(414);
        gateway.ask(Method::PUT, "/dbs", &[], "{}").await.expect(405);
        gateway.ask(Method::PATCH, "/dbs/d/colls/c", &[], "{}").await.expect(405);
        gateway.ask(Method::OPTIONS, "/", &[], "").await.expect(405);
    });
}

#[test]
fn broken_http_is_answered_or_disconnected() {
    on_both(|gateway| async move {
        check_status(&raw(&gateway, b"NONSENSE\r\n\r\n").await, "400");
        let plain = b"GET / HTTP/1.1\r\nconnection: close\r\n\r\n";
        check_status(&raw(&gateway, plain).await, "401");
        let many = format!("GET / HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(5_000));
        check_status(&raw(&gateway, many.as_bytes()).await, "431");
        let huge = format!("GET / HTTP/1.1\r\na: {}\r\n\r\n", "x".repeat(1 << 20));
        check_status(&raw(&gateway, huge.as_bytes()).await, "431");
        let long = format!("GET /{} HTTP/1.1\r\nconnection: close\r\n\r\n", "x".repeat(20_000));
        check_status(&raw(&gateway, long.as_bytes()).await, "414");
        // TLS where there is none, a preface that ends early, and nothing at all.
        for bytes in [&b"\x16\x03\x01\x00\x05hello"[..], b"PRI * HTTP/2.0\r\n\r\nSM", b""] {
            truncated(&gateway, bytes).await;
        }
        gateway.get("/").await.expect(200);
    });
}

#[test]
fn a_truncated_body_changes_nothing() {
    on_both(|gateway| async move {
        let request = signed(Method::POST, "/dbs", PUBLIC_EMULATOR_KEY);
        let mut text = "POST /dbs HTTP/1.1\r\nhost: a\r\ncontent-length: 50\r\n".to_owned();
        for (name, value) in request.headers() {
            text += &format!("{name}: {}\r\n", value.to_str().unwrap());
        }
        text += "\r\n{\"id\":\"d\"}";
        truncated(&gateway, text.as_bytes()).await;
        gateway.get("/dbs/d").await.expect(404);
    });
}

#[test]
fn requests_behind_each_other_are_answered_in_order() {
    on_both(|gateway| async move {
        let mut text = String::new();
        for path in ["/", "/dbs", "/dbs/nothing"] {
            text += &head(Method::GET, path);
            text += if path == "/dbs/nothing" { "connection: close\r\n\r\n" } else { "\r\n" };
        }
        let answer = raw(&gateway, text.as_bytes()).await;
        let statuses: Vec<&str> = answer.split("HTTP/1.1 ").skip(1).map(|it| &it[..3]).collect();
        assert_eq!(statuses, ["200", "200", "404"]);
    });
}

#[test]
fn a_client_that_closes_its_side_is_still_answered() {
    on_both(|gateway| async move {
        gateway.with_container().await;
        for item in 0..20 {
            let body = format!(r#"{{"id":"{item}","pk":"a"}}"#);
            let mut text = head(Method::POST, "/dbs/d/colls/c/docs");
            text += "x-ms-documentdb-partitionkey: [\"a\"]\r\n";
            text += &format!("content-length: {}\r\n\r\n{body}", body.len());
            check_status(&truncated(&gateway, text.as_bytes()).await, "201");
        }
    });
}

#[test]
fn bodies_for_the_router_have_little_time_as_well() {
    run(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut limits = ServerLimits::default();
        limits.body_timeout = Duration::from_millis(300);
        let router = Router::new().route("/take", post(async |_: Bytes| "taken"));
        let shutdown = CancellationToken::new();
        let server = Server::new(listener, router).limits(limits);
        let serving = tokio::spawn(server.run(shutdown.clone()));
        let mut stream = TcpStream::connect(address).await.unwrap();
        let begin = b"POST /take HTTP/1.1\r\nhost: localhost\r\ncontent-length: 9\r\n\r\nx";
        stream.write_all(begin).await.unwrap();
        check_status(&read_all(stream).await, "400");
        shutdown.cancel();
        serving.await.unwrap();
    });
}

#[test]
fn what_a_page_from_elsewhere_asks_is_refused() {
    on_both(|gateway| async move {
        gateway.with_container().await;
        let split = "POST /databases/d/containers/c/partitions/0/split HTTP/1.1\r\n\
                     connection: close\r\n";
        let ask = async |host: &str, headers: &str, body: &str| {
            let length = body.len();
            let head = format!("{split}host: {host}\r\n{headers}content-length: {length}\r\n");
            raw(&gateway, format!("{head}\r\n{body}").as_bytes()).await
        };
        let (json, plain) = ("content-type: application/json\r\n", "content-type: text/plain\r\n");
        let (elsewhere, here) = ("origin: http://b.example\r\n", "origin: http://localhost\r\n");
        check_status(&ask("localhost", elsewhere, "").await, "403");
        check_status(&ask("localhost", "sec-fetch-site: cross-site\r\n", "").await, "403");
        check_status(&ask("localhost", plain, "{}").await, "403");
        // A page whose own name leads here.
        check_status(&ask("b.example", elsewhere, "").await, "403");
        let mut signed = head(Method::GET, "/dbs/d").replace("host: a", "host: b.example");
        signed += "connection: close\r\n\r\n";
        check_status(&raw(&gateway, signed.as_bytes()).await, "403");
        let ranges = gateway.get("/dbs/d/colls/c/pkranges").await.expect(200).json();
        assert_eq!(ranges["_count"], 1);
        check_status(&ask("localhost", &format!("{here}{json}"), "{}").await, "200");
        let ranges = gateway.get("/dbs/d/colls/c/pkranges").await.expect(200).json();
        assert_eq!(ranges["_count"], 2);
    });
}

#[test]
fn slow_clients_are_disconnected() {
    run(async {
        let mut limits = ServerLimits::default();
        limits.handshake_timeout = Duration::from_millis(200);
        limits.idle_timeout = Duration::from_millis(300);
        let mut options = GatewayOptions::default();
        options.body_timeout = Duration::from_millis(300);
        let gateway = Running::start_with(Backend::Memory, options, limits, None, None).await;
        for beginning in ["", "G", "GET / HTTP/1.1\r\nhost: a\r\n", "PRI * HT"] {
            let mut stream = TcpStream::connect(gateway.address()).await.unwrap();
            stream.write_all(beginning.as_bytes()).await.unwrap();
            let mut answer = Vec::new();
            let end = timeout(PATIENCE, stream.read_to_end(&mut answer)).await;
            assert!(end.is_ok(), "{beginning:?} was waited for");
        }
        // Also one that has been answered before, and has begun another request.
        let mut stream = TcpStream::connect(gateway.address()).await.unwrap();
        stream.write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\nGET").await.unwrap();
        let mut answer = Vec::new();
        let end = timeout(PATIENCE, stream.read_to_end(&mut answer)).await;
        assert!(end.is_ok(), "it was waited for after an answer");
        assert!(answer.starts_with(b"HTTP/1.1 401"), "{}", answer.escape_ascii());
        let request = signed(Method::POST, "/dbs", PUBLIC_EMULATOR_KEY);
        let mut text = "POST /dbs HTTP/1.1\r\nhost: a\r\ncontent-length: 50\r\n".to_owned();
        for (name, value) in request.headers() {
            text += &format!("{name}: {}\r\n", value.to_str().unwrap());
        }
        let mut stream = TcpStream::connect(gateway.address()).await.unwrap();
        stream.write_all(format!("{text}\r\n{{").as_bytes()).await.unwrap();
        let mut answer = vec![0; 12];
        timeout(PATIENCE, stream.read_exact(&mut answer)).await.unwrap().unwrap();
        assert_eq!(answer, b"HTTP/1.1 408");
    });
}
