//! A gateway that runs, and a client that signs.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use hmac::{Hmac, KeyInit, Mac};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request};
use http_body_util::{BodyExt, Full};
use hyper_util::rt::TokioIo;
use millstream_core::memory::Memory;
use millstream_core::{Clock, Containers, RandomIds, SystemClock, Timestamp};
use millstream_gateway::{Gateway, GatewayOptions, PUBLIC_EMULATOR_KEY, Server, ServerLimits, Tls};
use millstream_store::Store;
use serde_json::Value;
use sha2::Sha256;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// Longest time anything in a test may take.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// A gateway that runs until it is dropped or stopped.
pub(crate) struct Running {
    address: SocketAddr,
    shutdown: CancellationToken,
    task: Option<JoinHandle<()>>,
    /// Where a store is.
    directory: Option<tempfile::TempDir>,
}

/// What came back.
#[derive(Debug)]
pub(crate) struct Answered {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Answered {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|error| panic!("{error}: {:?}", self.body))
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |it| it.to_str().unwrap())
    }

    #[track_caller]
    pub(crate) fn expect(self, status: u16) -> Self {
        assert_eq!(self.status, status, "{:?} {:?}", self.headers, self.body);
        self
    }
}

/// Which backend a test runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Backend {
    Memory,
    Store,
}

/// Runs a test on both backends.
pub(crate) fn on_both<F: Future<Output = ()>>(test: impl Fn(Running) -> F) {
    for backend in [Backend::Memory, Backend::Store] {
        run(async {
            let running = Running::start(backend, GatewayOptions::default()).await;
            test(running).await;
        });
    }
}

fn system_clock() -> Arc<dyn Clock> {
    Arc::new(SystemClock::default())
}

/// A backend in memory.
pub(crate) fn memory() -> Arc<dyn Containers> {
    Arc::new(Memory::new(system_clock()))
}

/// Runs a test in a runtime of its own, and not for ever.
pub(crate) fn run(test: impl Future<Output = ()>) {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        tokio::time::timeout(3 * PATIENCE, test).await.expect("the test ends in time");
    });
}

impl Running {
    pub(crate) async fn start(backend: Backend, options: GatewayOptions) -> Self {
        Self::start_with(backend, options, ServerLimits::default(), None, None).await
    }

    pub(crate) async fn start_with(
        backend: Backend,
        options: GatewayOptions,
        limits: ServerLimits,
        tls: Option<Tls>,
        directory: Option<tempfile::TempDir>,
    ) -> Self {
        let mut directory = directory;
        let containers: Arc<dyn Containers> = match backend {
            Backend::Memory => memory(),
            Backend::Store => {
                let place = directory.take().unwrap_or_else(|| tempfile::tempdir().unwrap());
                let store = Store::open(place.path()).unwrap();
                directory = Some(place);
                Arc::new(store)
            }
        };
        let mut running = Self::serve(containers, system_clock(), options, limits, tls).await;
        running.directory = directory;
        running
    }

    /// A gateway over a backend that others may use as well.
    pub(crate) async fn on(containers: Arc<dyn Containers>) -> Self {
        Self::on_with(containers, system_clock(), GatewayOptions::default()).await
    }

    /// The same, by a clock of the test.
    pub(crate) async fn on_with(
        containers: Arc<dyn Containers>,
        clock: Arc<dyn Clock>,
        options: GatewayOptions,
    ) -> Self {
        Self::serve(containers, clock, options, ServerLimits::default(), None).await
    }

    async fn serve(
        containers: Arc<dyn Containers>,
        clock: Arc<dyn Clock>,
        options: GatewayOptions,
        limits: ServerLimits,
        tls: Option<Tls>,
    ) -> Self {
        let ids = Arc::new(RandomIds::new(Arc::clone(&clock)));
        let gateway = Gateway::open(containers, clock, ids, options).await.unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let shutdown = CancellationToken::new();
        let mut server = Server::new(listener, gateway.router()).limits(limits);
        server = server.gateway(gateway);
        if let Some(tls) = tls {
            server = server.tls(tls);
        }
        let task = Some(tokio::spawn(server.run(shutdown.clone())));
        Self { address, shutdown, task, directory: None }
    }

    /// Where it listens. A method, because a test that captures a field alone drops the rest.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Stops the server, and returns the directory of the store.
    pub(crate) async fn stop(mut self) -> Option<tempfile::TempDir> {
        self.shutdown.cancel();
        if let Some(task) = self.task.take() {
            task.await.unwrap();
        }
        self.directory.take()
    }

    /// A request with a valid signature.
    pub(crate) async fn ask(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> Answered {
        let mut request = signed(method, path, PUBLIC_EMULATOR_KEY);
        for (name, value) in headers {
            let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
            let value = HeaderValue::from_bytes(value.as_bytes()).unwrap();
            request.headers_mut().insert(name, value);
        }
        self.send(request.map(|()| body.into())).await
    }

    pub(crate) async fn get(&self, path: &str) -> Answered {
        self.ask(Method::GET, path, &[], "").await
    }

    pub(crate) async fn post(&self, path: &str, body: &str) -> Answered {
        self.ask(Method::POST, path, &[], body.to_owned()).await
    }

    /// Sends a request on a connection of its own.
    pub(crate) async fn send(&self, mut request: Request<Bytes>) -> Answered {
        let exchange = async {
            let stream = TcpStream::connect(self.address).await.unwrap();
            let (mut sender, connection) =
                hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
            let connection = tokio::spawn(connection);
            let host = self.address.to_string();
            request.headers_mut().insert("host", HeaderValue::from_str(&host).unwrap());
            let response = sender.send_request(request.map(Full::new)).await.unwrap();
            let (parts, body) = response.into_parts();
            let body = body.collect().await.unwrap().to_bytes();
            connection.abort();
            Answered { status: parts.status.as_u16(), headers: parts.headers, body }
        };
        tokio::time::timeout(PATIENCE, exchange).await.expect("an answer comes in time")
    }

    /// A database `d` with a container `c` whose partition key is `/pk`.
    pub(crate) async fn with_container(&self) {
        self.post("/dbs", r#"{"id":"d"}"#).await.expect(201);
        let body = r#"{"id":"c","partitionKey":{"paths":["/pk"],"kind":"Hash","version":2}}"#;
        self.post("/dbs/d/colls", body).await.expect(201);
    }

    /// Creates an item.
    pub(crate) async fn item(&self, key: &str, body: &str) -> Answered {
        let key = format!("[\"{key}\"]");
        let headers = [("x-ms-documentdb-partitionkey", key.as_str())];
        self.ask(Method::POST, "/dbs/d/colls/c/docs", &headers, body.to_owned()).await
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.shutdown.cancel();
    }
}

/// A request signed with `key`, as SDKs do it.
pub(crate) fn signed(method: Method, path: &str, key: &str) -> Request<()> {
    let decoded = percent_encoding::percent_decode_str(path).decode_utf8().unwrap();
    let segments: Vec<&str> = decoded.split('/').filter(|it| !it.is_empty()).collect();
    let (kind, link) = match segments.len() {
        0 => ("", String::new()),
        count if count % 2 == 1 => (segments[count - 1], segments[..count - 1].join("/")),
        count => (segments[count - 2], segments.join("/")),
    };
    let now = SystemClock::default().now();
    let date = http_date(now);
    let verb = method.as_str().to_lowercase();
    let link = if kind == "offers" { link.replace("offers/", "").to_lowercase() } else { link };
    let message = format!("{verb}\n{kind}\n{link}\n{}\n\n", date.to_lowercase());
    let key = STANDARD.decode(key).unwrap();
    let mut mac = Hmac::<Sha256>::new_from_slice(&key).unwrap();
    mac.update(message.as_bytes());
    let signature = STANDARD.encode(mac.finalize().into_bytes());
    let token = format!("type=master&ver=1.0&sig={signature}");
    let token = percent_encoding::utf8_percent_encode(&token, percent_encoding::NON_ALPHANUMERIC);
    Request::builder()
        .method(method)
        .uri(path)
        .header("x-ms-date", date)
        .header("x-ms-version", "2020-07-15")
        .header("authorization", token.to_string())
        .body(())
        .unwrap()
}

/// The lines of a signed request, but for the empty one at their end.
pub(crate) fn head(method: Method, path: &str) -> String {
    let mut text = format!("{method} {path} HTTP/1.1\r\nhost: a\r\n");
    for (name, value) in signed(method, path, PUBLIC_EMULATOR_KEY).headers() {
        text += &format!("{name}: {}\r\n", value.to_str().unwrap());
    }
    text
}

/// A time as headers have it.
pub(crate) fn http_date(time: Timestamp) -> String {
    let since = Duration::from_millis(time.as_millis());
    httpdate::fmt_http_date(std::time::UNIX_EPOCH + since)
}
