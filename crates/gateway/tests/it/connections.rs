use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Method};
use http_body_util::{BodyExt, Empty};
use hyper_util::rt::{TokioExecutor, TokioIo};
use millstream_gateway::{GatewayOptions, PUBLIC_EMULATOR_KEY, ServerLimits, Tls};
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use crate::client::{Backend, PATIENCE, Running, head, on_both, run, signed};

/// The account, over HTTP/2.
async fn account_by_http2<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    stream: S,
    scheme: &str,
) -> Value {
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
            .await
            .unwrap();
    let connection = tokio::spawn(connection);
    let mut request = signed(Method::GET, "/", PUBLIC_EMULATOR_KEY).map(|()| Empty::<Bytes>::new());
    *request.uri_mut() = format!("{scheme}://localhost:8081/").parse().unwrap();
    let response = sender.send_request(request).await.unwrap();
    assert_eq!(response.status().as_u16(), 200);
    let body = response.into_body().collect().await.unwrap().to_bytes();
    connection.abort();
    serde_json::from_slice(&body).unwrap()
}

fn endpoint(account: &Value) -> &str {
    account["writableLocations"][0]["databaseAccountEndpoint"].as_str().unwrap()
}

#[test]
fn http2_needs_no_tls() {
    on_both(|gateway| async move {
        let stream = TcpStream::connect(gateway.address()).await.unwrap();
        let account = timeout(PATIENCE, account_by_http2(stream, "http")).await.unwrap();
        assert_eq!(endpoint(&account), "http://localhost:8081/");
    });
}

/// A gateway that speaks TLS, and a connection to it for which these protocols can be agreed upon.
async fn over_tls(protocols: &[&[u8]], limits: ServerLimits) -> (Running, TlsStream<TcpStream>) {
    let directory = tempfile::tempdir().unwrap();
    let tls = Tls::self_signed(directory.path(), &["localhost".to_owned()]).unwrap();
    let mut roots = RootCertStore::empty();
    let certificate = std::fs::read(tls.certificate()).unwrap();
    roots.add(CertificateDer::from_pem_slice(&certificate).unwrap()).unwrap();
    let options = GatewayOptions::default();
    let gateway = Running::start_with(Backend::Memory, options, limits, Some(tls), None).await;
    let provider = tokio_rustls::rustls::crypto::ring::default_provider();
    let mut config = ClientConfig::builder_with_provider(Arc::new(provider))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = protocols.iter().map(|it| it.to_vec()).collect();
    let connector = TlsConnector::from(Arc::new(config));
    let stream = TcpStream::connect(gateway.address()).await.unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    let stream = timeout(PATIENCE, connector.connect(name, stream)).await.unwrap().unwrap();
    (gateway, stream)
}

#[test]
fn tls_and_plain_requests_share_the_port() {
    run(async {
        let (gateway, stream) = over_tls(&[b"h2"], ServerLimits::default()).await;
        gateway.get("/").await.expect(200);
        let account = timeout(PATIENCE, account_by_http2(stream, "https")).await.unwrap();
        assert_eq!(endpoint(&account), "https://localhost:8081/");
    });
}

#[test]
fn a_connection_over_tls_ends_properly() {
    run(async {
        let (gateway, mut stream) = over_tls(&[], ServerLimits::default()).await;
        let request = format!("{}\r\n", head(Method::GET, "/"));
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut begin = [0; 12];
        timeout(PATIENCE, stream.read_exact(&mut begin)).await.unwrap().unwrap();
        assert_eq!(&begin, b"HTTP/1.1 200");
        gateway.stop().await;
        // A connection that is merely cut off is an error to rustls.
        let mut rest = String::new();
        timeout(PATIENCE, stream.read_to_string(&mut rest)).await.unwrap().unwrap();
        assert!(rest.contains("https://a/"), "{rest}");
    });
}

#[test]
fn a_connection_serves_many_requests() {
    on_both(|gateway| async move {
        let stream = TcpStream::connect(gateway.address()).await.unwrap();
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
        let connection = tokio::spawn(connection);
        for _ in 0..50 {
            let mut request =
                signed(Method::GET, "/dbs", PUBLIC_EMULATOR_KEY).map(|()| Empty::<Bytes>::new());
            request.headers_mut().insert("host", HeaderValue::from_static("localhost"));
            sender.ready().await.unwrap();
            let response = timeout(PATIENCE, sender.send_request(request)).await.unwrap().unwrap();
            assert_eq!(response.status().as_u16(), 200);
            response.into_body().collect().await.unwrap();
        }
        connection.abort();
    });
}

#[test]
fn requests_of_every_form_share_a_connection() {
    on_both(|gateway| async move {
        gateway.with_container().await;
        let key = "x-ms-documentdb-partitionkey: [\"a\"]\r\n";
        let create = |id: &str, is_chunked: bool| {
            let body = format!(r#"{{"id":"{id}","pk":"a"}}"#);
            let head = head(Method::POST, "/dbs/d/colls/c/docs");
            if is_chunked {
                let length = body.len();
                let chunked = format!("{length:x}\r\n{body}\r\n0\r\n\r\n");
                return format!("{head}{key}transfer-encoding: chunked\r\n\r\n{chunked}");
            }
            format!("{head}{key}content-length: {}\r\n\r\n{body}", body.len())
        };
        let read = |id: &str, more: &str| {
            let head = head(Method::GET, &format!("/dbs/d/colls/c/docs/{id}"));
            format!("{head}{key}{more}\r\n")
        };
        let requests = [
            create("1", false),
            read("1", ""),
            create("2", true),
            read("2", ""),
            create("3", false),
            read("3", "connection: close\r\n"),
        ];
        let mut stream = TcpStream::connect(gateway.address()).await.unwrap();
        stream.write_all(requests.concat().as_bytes()).await.unwrap();
        let mut answers = String::new();
        timeout(PATIENCE, stream.read_to_string(&mut answers)).await.unwrap().unwrap();
        let statuses: Vec<&str> =
            answers.split("HTTP/1.1 ").skip(1).map(|it| it.get(..3).unwrap()).collect();
        assert_eq!(statuses, ["201", "200", "201", "200", "201", "200"], "{answers}");
        for id in ["1", "2", "3"] {
            assert_eq!(answers.matches(&format!("\"id\":\"{id}\"")).count(), 2, "{answers}");
        }
    });
}

#[test]
fn stopping_does_not_wait_for_idle_connections() {
    run(async {
        let gateway = Running::start(Backend::Memory, GatewayOptions::default()).await;
        let address = gateway.address();
        let mut idle = TcpStream::connect(address).await.unwrap();
        gateway.get("/").await.expect(200);
        timeout(Duration::from_secs(8), gateway.stop()).await.expect("it stops in time");
        let mut byte = [0];
        let read = timeout(PATIENCE, idle.read(&mut byte)).await;
        drop(read);
        assert!(TcpStream::connect(address).await.is_err(), "nobody listens any more");
    });
}

#[test]
fn more_connections_than_allowed_wait_for_their_turn() {
    run(async {
        let mut limits = ServerLimits::default();
        limits.connections_max = 2;
        limits.handshake_timeout = Duration::from_millis(500);
        let options = GatewayOptions::default();
        let gateway = Running::start_with(Backend::Memory, options, limits, None, None).await;
        let _one = TcpStream::connect(gateway.address()).await.unwrap();
        let _two = TcpStream::connect(gateway.address()).await.unwrap();
        // The two say nothing and are disconnected; then it is the turn of this one.
        gateway.get("/").await.expect(200);
    });
}

/// Little time for headers, and more for idle connections than a test has.
fn hasty() -> ServerLimits {
    let mut limits = ServerLimits::default();
    limits.head_timeout = Duration::from_millis(300);
    limits
}

/// Sends the beginning of a request and waits until the server is tired of it; with `drip` a
/// little more comes for as long as it takes it.
async fn ends<S: AsyncRead + AsyncWrite>(stream: S, beginning: &str, drip: Option<&str>) {
    let (mut receiving, mut sending) = tokio::io::split(stream);
    sending.write_all(beginning.as_bytes()).await.unwrap();
    let dripping = async {
        let mut every = tokio::time::interval(Duration::from_millis(50));
        while let Some(drip) = drip {
            every.tick().await;
            if sending.write_all(drip.as_bytes()).await.is_err() {
                break;
            }
        }
        std::future::pending::<()>().await;
    };
    let mut answer = Vec::new();
    tokio::select! {
        end = timeout(PATIENCE, receiving.read_to_end(&mut answer)) => {
            assert!(end.is_ok(), "{beginning:?} was waited for");
        }
        () = dripping => unreachable!(),
    }
}

/// Sends a request and takes its answer, which has no body.
async fn empty_exchange(stream: &mut TcpStream, head: &str) {
    stream.write_all(format!("{head}\r\n").as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\n") {
        answer.push(timeout(PATIENCE, stream.read_u8()).await.unwrap().unwrap());
    }
    assert!(answer.starts_with(b"HTTP/1.1 "), "{}", answer.escape_ascii());
}

/// Sends a request of the kind that is served without hyper, and takes its answer.
async fn plain_exchange(stream: &mut TcpStream) {
    let request = format!("{}\r\n", head(Method::GET, "/dbs"));
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\n") {
        answer.push(timeout(PATIENCE, stream.read_u8()).await.unwrap().unwrap());
    }
    let answer = String::from_utf8(answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    let length = answer.lines().find_map(|it| it.strip_prefix("content-length: ")).unwrap();
    let mut body = vec![0; length.parse().unwrap()];
    timeout(PATIENCE, stream.read_exact(&mut body)).await.unwrap().unwrap();
}

#[test]
fn headers_have_little_time_to_arrive_and_idle_connections_have_more() {
    run(async {
        let options = GatewayOptions::default();
        let gateway = Running::start_with(Backend::Memory, options, hasty(), None, None).await;
        let connect = async || TcpStream::connect(gateway.address()).await.unwrap();
        // Served by hyper, which no plain request is.
        let other = "HEAD /dbs HTTP/1.1\r\nhost: a\r\n";
        let mut idle = connect().await;
        empty_exchange(&mut idle, other).await;
        // An empty line behind a request begins none.
        idle.write_all(b"\r\n").await.unwrap();
        let mut idle_and_plain = connect().await;
        plain_exchange(&mut idle_and_plain).await;
        idle_and_plain.write_all(b"\r\n").await.unwrap();
        ends(connect().await, "G", None).await;
        ends(connect().await, "GET /dbs HTTP/1.1\r\nx-a: ", None).await;
        ends(connect().await, "GET /dbs HTTP/1.1\r\n", Some("x-a: b\r\n")).await;
        ends(connect().await, "PRI * HT", None).await;
        let mut used = connect().await;
        empty_exchange(&mut used, other).await;
        ends(used, "GET /dbs HTTP/1.1\r\n", Some("x-a: b\r\n")).await;
        empty_exchange(&mut idle, other).await;
        plain_exchange(&mut idle_and_plain).await;
    });
}

#[test]
fn headers_over_tls_have_little_time_to_arrive() {
    run(async {
        let (_gateway, stream) = over_tls(&[b"http/1.1"], hasty()).await;
        ends(stream, "GET /dbs HTTP/1.1\r\nx-a: ", None).await;
        let (_gateway, stream) = over_tls(&[b"h2"], hasty()).await;
        ends(stream, "PRI * HT", None).await;
    });
}

#[test]
fn an_answer_over_http2_that_nobody_takes_is_given_up() {
    run(async {
        let mut limits = ServerLimits::default();
        limits.write_timeout = Duration::from_millis(300);
        let options = GatewayOptions::default();
        let gateway = Running::start_with(Backend::Memory, options, limits, None, None).await;
        let stream = TcpStream::connect(gateway.address()).await.unwrap();
        let (mut sender, connection) =
            hyper::client::conn::http2::Builder::new(TokioExecutor::new())
                .initial_stream_window_size(0)
                .handshake(TokioIo::new(stream))
                .await
                .unwrap();
        let connection = tokio::spawn(connection);
        for _ in 0..2 {
            let mut request = signed(Method::GET, "/", PUBLIC_EMULATOR_KEY);
            *request.uri_mut() = "http://localhost:8081/".parse().unwrap();
            let request = request.map(|()| Empty::<Bytes>::new());
            let answer = timeout(PATIENCE, sender.send_request(request)).await.unwrap().unwrap();
            assert_eq!(answer.status().as_u16(), 200);
            let body = timeout(PATIENCE, answer.into_body().collect()).await;
            assert!(body.expect("it is given up").is_err());
        }
        connection.abort();
    });
}

#[test]
fn an_idle_connection_of_http2_outlasts_the_time_for_headers() {
    run(async {
        let options = GatewayOptions::default();
        let gateway = Running::start_with(Backend::Memory, options, hasty(), None, None).await;
        let idle = TcpStream::connect(gateway.address()).await.unwrap();
        let (mut sender, connection) =
            hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(idle))
                .await
                .unwrap();
        let connection = tokio::spawn(connection);
        let stalled = TcpStream::connect(gateway.address()).await.unwrap();
        ends(stalled, "PRI * HT", None).await;
        let mut request = signed(Method::GET, "/", PUBLIC_EMULATOR_KEY);
        *request.uri_mut() = "http://localhost:8081/".parse().unwrap();
        let request = request.map(|()| Empty::<Bytes>::new());
        let response = timeout(PATIENCE, sender.send_request(request)).await.unwrap().unwrap();
        assert_eq!(response.status().as_u16(), 200);
        connection.abort();
    });
}
