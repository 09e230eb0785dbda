//! Accepts connections: HTTP/1.1, HTTP/2 and TLS on one port.
//!
//! The first byte tells TLS from the rest; the preface of HTTP/2 tells it from HTTP/1.1. Requests
//! as SDKs send them are served by `plain`, everything else by hyper. Nothing waits without end: a
//! connection that says nothing, says it too slowly or does not take its answer is closed.

mod answers;
mod body;
mod patience;
pub(crate) mod plain;
mod stream;

use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use futures_util::FutureExt;
use futures_util::future::Either;
use http::{HeaderValue, header};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tower::Service;

use crate::gateway::{Gateway, Origin};
use crate::server::answers::{Streams, Taken};
pub(crate) use crate::server::body::Arriving;
use crate::server::patience::{Activity, Patience};
use crate::server::plain::parse::{HeadLimits, is_for_gateway};
use crate::server::plain::{Left, Plain};
use crate::server::stream::{Impatient, Resumed};
use crate::tls::Tls;

/// The first byte of every TLS connection: a handshake record.
const TLS_HANDSHAKE: u8 = 0x16;
/// How long to wait when the system has no descriptor left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Bounds of what clients can hold.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct ServerLimits {
    /// Most connections at a time; further ones wait in the queue of the system. Default: 1024.
    pub connections_max: usize,
    /// Most bytes of the headers of a request, path included. Default: 128 KiB, which the session
    /// token of a thousand ranges fits in.
    pub header_bytes_max: u32,
    /// Most headers of a request. Default: 128.
    pub headers_max: usize,
    /// Most requests at a time on a connection of HTTP/2. Default: 128.
    pub streams_max: u32,
    /// Longest time until the first byte, and for the handshake of TLS. Default: 10 s.
    pub handshake_timeout: Duration,
    /// Longest time from the moment the headers of a request over HTTP/1.1 begin to arrive until
    /// they are complete, and for the preface of HTTP/2. Default: 10 s.
    pub head_timeout: Duration,
    /// Longest time the body of a request may take to arrive that the router serves. Default: 30 s.
    pub body_timeout: Duration,
    /// Longest time from one answer to the next request, or in which nothing is sent of an answer
    /// that is a stream; HTTP/2 has pings instead. Default: 120 s; SDKs keep connections open and
    /// expect them to last.
    pub idle_timeout: Duration,
    /// Longest time a client may take no byte of an answer; over HTTP/2, where that ends only the
    /// request, less than 16 KiB or the rest of it. Default: 30 s.
    pub write_timeout: Duration,
    /// How long requests that have begun may take when the server stops. Default: 5 s.
    pub shutdown_grace: Duration,
}

impl Default for ServerLimits {
    fn default() -> Self {
        Self {
            connections_max: 1024,
            header_bytes_max: 128 * 1024,
            headers_max: 128,
            streams_max: 128,
            handshake_timeout: Duration::from_secs(10),
            head_timeout: Duration::from_secs(10),
            body_timeout: Duration::from_secs(30),
            idle_timeout: Duration::from_secs(120),
            write_timeout: Duration::from_secs(30),
            shutdown_grace: Duration::from_secs(5),
        }
    }
}

/// Serves a router on a listener.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    router: Router,
    gateway: Option<Gateway>,
    tls: Option<Tls>,
    limits: ServerLimits,
}

/// Put into requests that came over TLS.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Secured;

impl Server {
    /// A server without TLS and with the default limits.
    #[must_use]
    pub fn new(listener: TcpListener, router: Router) -> Self {
        let limits = ServerLimits::default();
        Self { listener, router, gateway: None, tls: None, limits }
    }

    /// Requests for something in a database, and those for the account, databases and offers that
    /// are signed as the protocol wants it, go to this gateway without a look at the router, which
    /// costs them much less. Default: everything goes through the router, which then needs a
    /// gateway of its own.
    #[must_use]
    pub fn gateway(mut self, gateway: Gateway) -> Self {
        self.gateway = Some(gateway);
        self
    }

    /// Speaks TLS, too, on the same port. Default: none; a client that tries is disconnected.
    #[must_use]
    pub fn tls(mut self, tls: Tls) -> Self {
        self.tls = Some(tls);
        self
    }

    /// Sets the limits.
    #[must_use]
    pub fn limits(mut self, limits: ServerLimits) -> Self {
        self.limits = limits;
        self
    }

    /// Serves until `shutdown`, then waits for requests that have begun, but not for ever.
    ///
    /// Requests carry the address of the client as `axum::extract::ConnectInfo<SocketAddr>`.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future stops accepting and cuts off all connections.
    pub async fn run(self, shutdown: CancellationToken) {
        let places = Arc::new(Semaphore::new(self.limits.connections_max));
        let graceful = GracefulShutdown::new();
        let mut connections = JoinSet::new();
        loop {
            let accepted = tokio::select! {
                biased;
                () = shutdown.cancelled() => break,
                Some(_) = connections.join_next() => continue,
                accepted = accept(&self.listener, &places) => accepted,
            };
            match accepted {
                Ok((stream, peer, place)) => {
                    let connection = Connection {
                        peer,
                        tls: self.tls.clone(),
                        limits: self.limits,
                        router: self.router.clone(),
                        gateway: self.gateway.clone(),
                        watcher: graceful.watcher(),
                        // Of its own: all would wait for the same lock with every request.
                        stopping: shutdown.child_token(),
                        _place: place,
                    };
                    connections.spawn(connection.run(stream));
                }
                Err(error) => {
                    // A connection that broke already, or no descriptor left: go on later.
                    tracing::debug!(%error, "could not accept a connection");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
        drop(self.listener);
        if timeout(self.limits.shutdown_grace, graceful.shutdown()).await.is_err() {
            tracing::info!("stopped although requests were still under way");
        }
        connections.shutdown().await;
        if let Some(gateway) = self.gateway
            && timeout(self.limits.shutdown_grace, gateway.settled()).await.is_err()
        {
            tracing::info!("stopped although definitions were still being changed");
        }
    }
}

/// The next connection, as soon as there is a place for it.
async fn accept(
    listener: &TcpListener,
    places: &Arc<Semaphore>,
) -> io::Result<(TcpStream, SocketAddr, OwnedSemaphorePermit)> {
    let place = Arc::clone(places).acquire_owned().await.map_err(io::Error::other)?;
    let (stream, peer) = listener.accept().await?;
    Ok((stream, peer, place))
}

/// What a connection is served with.
struct Connection {
    peer: SocketAddr,
    tls: Option<Tls>,
    limits: ServerLimits,
    router: Router,
    gateway: Option<Gateway>,
    watcher: Watcher,
    stopping: CancellationToken,
    /// Given back when the connection ends.
    _place: OwnedSemaphorePermit,
}

impl Connection {
    async fn run(self, stream: TcpStream) {
        // Answers are small and whole: waiting for more of them only delays.
        let _ = stream.set_nodelay(true);
        let mut first = [0];
        let limit = self.limits.handshake_timeout;
        let Ok(Ok(1)) = timeout(limit, stream.peek(&mut first)).await else { return };
        let peer = self.peer;
        let activity = Activity::new();
        let stream = Impatient::new(stream, self.limits.write_timeout, Arc::clone(&activity));
        if first != [TLS_HANDSHAKE] {
            return Box::pin(self.serve(stream, activity, false)).await;
        }
        let Some(tls) = &self.tls else {
            tracing::debug!(%peer, "a client tried TLS, which is off");
            return;
        };
        match timeout(limit, tls.accept(stream)).await {
            Ok(Ok(stream)) => Box::pin(self.serve(stream, activity, true)).await,
            Ok(Err(error)) => tracing::debug!(%peer, %error, "could not agree on TLS"),
            Err(_) => tracing::debug!(%peer, "the handshake of TLS took too long"),
        }
    }

    async fn serve<S>(self, mut stream: S, activity: Arc<Activity>, is_secured: bool)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let Self { peer, limits, router, gateway, watcher, stopping, _place, .. } = self;
        let mut patience =
            Patience::new(Arc::clone(&activity), limits.idle_timeout, limits.head_timeout);
        let mut left = Left { received: Vec::new(), is_http1: false };
        if let Some(gateway) = &gateway {
            let plain = Plain {
                stream: &mut stream,
                gateway,
                origin: Origin { peer: Some(peer), is_secured },
                patience: &mut patience,
                limits: HeadLimits::within(&limits),
                stopping,
            };
            match plain.serve().await {
                Ok(Some(more)) => left = more,
                Ok(None) => {
                    // TLS says that this is the end, and not somebody who cut the line.
                    let _ = stream.shutdown().await;
                    return;
                }
                Err(error) => {
                    tracing::debug!(%peer, %error, "a connection broke");
                    return;
                }
            }
        }
        let Left { received, is_http1 } = left;
        let stream = Resumed::new(received, stream, Arc::clone(&activity), is_http1);
        let service = service_fn(move |request: http::Request<Incoming>| {
            let version = request.version();
            let under_way = activity.begin(version);
            if let Some(gateway) = &gateway
                && is_for_gateway(request.uri().path(), authorization(&request))
            {
                let origin = Origin { peer: Some(peer), is_secured };
                // The future of a request is large; it is moved around as a pointer.
                let request = Arriving::of(request, None);
                let answer = Box::pin(gateway.serve(request, origin));
                let answer = answer.map(move |it| {
                    drop(under_way);
                    Ok::<_, Infallible>(Taken::of(it, version))
                });
                return Either::Left(answer);
            }
            let request = Arriving::of(request, Some(limits.body_timeout));
            let answer = router.clone().call(with_origin(request, peer, is_secured));
            Either::Right(answer.map(move |it| {
                drop(under_way);
                it.map(|it| Taken::of(it, version))
            }))
        });
        let mut builder = builder(limits);
        if is_http1 {
            builder = builder.http1_only();
        }
        let connection = builder.serve_connection(TokioIo::new(stream), service).into_owned();
        let mut connection = std::pin::pin!(watcher.watch(connection));
        let outcome = poll_fn(|context| match connection.as_mut().poll(context) {
            Poll::Ready(outcome) => Poll::Ready(outcome),
            Poll::Pending => patience.poll_ended(context).map(Ok),
        })
        .await;
        if let Err(error) = outcome {
            tracing::debug!(%peer, error, "a connection broke");
        }
    }
}

/// The request as the router gets it.
fn with_origin(
    request: http::Request<Arriving<Incoming>>,
    peer: SocketAddr,
    is_secured: bool,
) -> http::Request<Body> {
    let mut request = request.map(Body::new);
    request.extensions_mut().insert(ConnectInfo(peer));
    if is_secured {
        request.extensions_mut().insert(Secured);
    }
    request
}

fn authorization<B>(request: &http::Request<B>) -> Option<&[u8]> {
    request.headers().get(header::AUTHORIZATION).map(HeaderValue::as_bytes)
}

fn builder(limits: ServerLimits) -> auto::Builder<Streams> {
    let bytes = usize::try_from(limits.header_bytes_max).unwrap_or(usize::MAX);
    let mut builder = auto::Builder::new(Streams { write_timeout: limits.write_timeout });
    builder
        .http1()
        // A connection has a timer of its own, see `patience`.
        .header_read_timeout(None)
        // Otherwise it looks for the end of the connection while a request is served, which takes
        // a buffer each time. A client that has gone is noticed when its answer is sent.
        .half_close(true)
        .max_headers(limits.headers_max)
        .max_buf_size(bytes.max(8192));
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(limits.streams_max)
        .max_header_list_size(limits.header_bytes_max)
        .keep_alive_interval(limits.idle_timeout / 4)
        .keep_alive_timeout(limits.idle_timeout / 4);
    builder
}
