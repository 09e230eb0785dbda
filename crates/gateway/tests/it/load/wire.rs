//! Connections of clients, and bytes that are sent as they are.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Method, Request};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use millstream_gateway::PUBLIC_EMULATOR_KEY;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use crate::client::{Answered, signed};
use crate::load::server::ServerProcess;

/// Turns an answer that does not come into a failure.
pub(super) const ANSWER_MAX: Duration = Duration::from_secs(60);
pub(super) const ITEMS: &str = "/dbs/d/colls/c/docs";
pub(super) const KEY: &str = "x-ms-documentdb-partitionkey";

/// The same numbers for the same seed: SplitMix64.
#[derive(Clone, Debug)]
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(super) fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    pub(super) fn index(&mut self, length: usize) -> usize {
        usize::try_from(self.below(u64::try_from(length).unwrap())).unwrap()
    }

    pub(super) fn bytes(&mut self, length: usize) -> Vec<u8> {
        (0..length).map(|_| self.next().to_le_bytes()[0]).collect()
    }
}

/// How a client speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Http1,
    Http2,
    /// HTTP/1.1 within TLS.
    Secured,
}

/// A connection that is kept.
pub(super) enum Connection {
    Http1(http1::SendRequest<Full<Bytes>>),
    Http2(http2::SendRequest<Full<Bytes>>),
}

impl Connection {
    pub(super) async fn open(server: &ServerProcess, kind: Kind) -> Self {
        let stream = TcpStream::connect(server.address()).await.unwrap();
        stream.set_nodelay(true).unwrap();
        match kind {
            Kind::Http1 => {
                let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
                tokio::spawn(connection);
                Self::Http1(sender)
            }
            Kind::Http2 => {
                let opened = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await;
                let (sender, connection) = opened.unwrap();
                tokio::spawn(connection);
                Self::Http2(sender)
            }
            Kind::Secured => {
                let name = ServerName::try_from("localhost").unwrap();
                let stream = connector(&server.certificate()).connect(name, stream);
                let stream = timeout(ANSWER_MAX, stream).await.unwrap().unwrap();
                let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
                tokio::spawn(connection);
                Self::Http1(sender)
            }
        }
    }

    /// Sends a signed request and waits for the whole answer.
    pub(super) async fn ask(
        &mut self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> Answered {
        let mut request = signed(method, path, PUBLIC_EMULATOR_KEY);
        for (name, value) in headers {
            let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
            request.headers_mut().insert(name, HeaderValue::from_bytes(value.as_bytes()).unwrap());
        }
        self.send(request.map(|()| body.into())).await
    }

    async fn send(&mut self, request: Request<Bytes>) -> Answered {
        let mut request = request.map(Full::new);
        let response = match self {
            Self::Http1(sender) => {
                request.headers_mut().insert("host", HeaderValue::from_static("localhost"));
                sender.ready().await.unwrap();
                timeout(ANSWER_MAX, sender.send_request(request)).await
            }
            Self::Http2(sender) => {
                let uri = format!("http://localhost{}", request.uri()).parse().unwrap();
                *request.uri_mut() = uri;
                sender.ready().await.unwrap();
                timeout(ANSWER_MAX, sender.send_request(request)).await
            }
        };
        let (parts, body) = response.expect("an answer comes in time").unwrap().into_parts();
        let body = timeout(ANSWER_MAX, body.collect()).await.unwrap().unwrap().to_bytes();
        Answered { status: parts.status.as_u16(), headers: parts.headers, body }
    }
}

fn connector(certificate: &[u8]) -> TlsConnector {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(certificate).unwrap()).unwrap();
    let provider = Arc::new(tokio_rustls::rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    TlsConnector::from(Arc::new(config))
}

/// The lines of a signed request up to its headers; whoever sends it adds an empty line.
pub(super) fn head(method: Method, path: &str, headers: &[(&str, &str)]) -> String {
    let request = signed(method, path, PUBLIC_EMULATOR_KEY);
    let mut text = format!("{} {path} HTTP/1.1\r\nhost: localhost\r\n", request.method());
    for (name, value) in request.headers() {
        text += &format!("{name}: {}\r\n", value.to_str().unwrap());
    }
    for (name, value) in headers {
        text += &format!("{name}: {value}\r\n");
    }
    text
}

/// Sends bytes as they are, and returns what comes back until the server ends the connection.
pub(super) async fn exchange(address: SocketAddr, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    // The server may have enough before everything is written.
    let _ = stream.write_all(bytes).await;
    until_closed(stream).await
}

/// As [`exchange`], but says that nothing more will come.
pub(super) async fn exchange_and_end(address: SocketAddr, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let _ = stream.write_all(bytes).await;
    let _ = stream.shutdown().await;
    until_closed(stream).await
}

pub(super) async fn until_closed(mut stream: TcpStream) -> String {
    let mut answer = Vec::new();
    let _ = timeout(ANSWER_MAX, stream.read_to_end(&mut answer)).await.expect("an end comes");
    String::from_utf8_lossy(&answer).into_owned()
}
