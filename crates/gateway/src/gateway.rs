//! From HTTP to a [`Request`] and back.

use std::error::Error as StdError;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use bytes::Bytes;
use http::uri::PathAndQuery;
use http::{Method, StatusCode, Version, header, request};
use hyper::body::{Body as HttpBody, Incoming};
use millstream_core::{Clock, Containers, IdSource, Result, Timestamp};
use uuid::Uuid;

use crate::dispatch::{dispatch, respond};
use crate::fields::Fields;
use crate::options::GatewayOptions;
use crate::refusal::Refusal;
use crate::reply::{Answer, Reply};
use crate::request::Request;
use crate::server::{Arriving, Secured};
use crate::state::State;
use crate::target::{Path, Target};
use crate::{auth, headers, request_body, web_pages};

/// Most headers of a request, over whatever protocol. A server may allow fewer.
const HEADERS_MAX: usize = 128;
/// Longest host and port a client may write.
const HOST_BYTES_MAX: usize = 300;

/// The Cosmos DB protocol over a backend. Clones share everything.
///
/// ```
/// use std::sync::Arc;
/// use millstream_core::memory::Memory;
/// use millstream_core::{RandomIds, SystemClock};
/// use millstream_gateway::{Gateway, GatewayOptions};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> millstream_core::Result<()> {
/// let clock = Arc::new(SystemClock::default());
/// let ids = Arc::new(RandomIds::new(clock.clone()));
/// let backend = Arc::new(Memory::new(clock.clone()));
/// let gateway = Gateway::open(backend, clock, ids, GatewayOptions::default()).await?;
/// let router = gateway.router(); // serve it with `Server`
/// # drop(router);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Gateway {
    state: Arc<State>,
}

impl Gateway {
    /// A gateway to `containers`. Makes its own container there at the first start.
    ///
    /// # Errors
    ///
    /// `Invalid` if an option is out of bounds; otherwise those of the backend.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future may leave the container made or not; call it again.
    pub async fn open(
        containers: Arc<dyn Containers>,
        clock: Arc<dyn Clock>,
        ids: Arc<dyn IdSource>,
        options: GatewayOptions,
    ) -> Result<Self> {
        let state = State::new(containers, clock, ids, options).await?;
        Ok(Self { state: Arc::new(state) })
    }

    /// Serves every path. Use it as the fallback of a router that has paths of its own.
    pub fn router(&self) -> Router {
        let state = Arc::clone(&self.state);
        Router::new().fallback(move |request: http::Request<Body>| {
            let state = Arc::clone(&state);
            let origin = Origin {
                peer: request.extensions().get::<ConnectInfo<SocketAddr>>().map(|it| it.0),
                is_secured: request.extensions().get::<Secured>().is_some(),
            };
            // The future of a request is large; it is moved around as a pointer.
            Box::pin(async move { http::Response::from(serve(&state, request, origin).await) })
        })
    }

    /// Serves a request as the router does, without the way through one.
    pub(crate) fn serve(
        &self,
        request: http::Request<Arriving<Incoming>>,
        origin: Origin,
    ) -> impl Future<Output = http::Response<Body>> + Send + use<> {
        let state = Arc::clone(&self.state);
        async move { serve(&state, request, origin).await.into() }
    }

    /// Serves a request that has arrived whole.
    pub(crate) async fn answer(&self, head: Head<'_>, body: &[u8], origin: Origin) -> Reply {
        let state = &self.state;
        let started = state.clock.monotonic();
        let activity_id = activity_id(state, &head);
        let answer = admit_and_dispatch(state, head, body, origin).await;
        finish(state, answer, activity_id, started)
    }

    /// Waits until what changes definitions is at its end, also what nobody waits for any more.
    ///
    /// [`Server`](crate::Server) does so when it stops, if it has the gateway; whoever has it serve
    /// the router alone, or has another server, does it before the runtime ends.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    pub async fn settled(&self) {
        self.state.changes.settled().await;
    }

    /// The time of the gateway.
    pub(crate) fn now(&self) -> Timestamp {
        self.state.clock.now()
    }
}

/// The beginning of a request, whoever has read it.
#[derive(Debug)]
pub(crate) struct Head<'a> {
    pub(crate) method: Method,
    /// With what may be its query.
    pub(crate) path: &'a str,
    /// Host and port, where they are no header.
    pub(crate) authority: Option<&'a str>,
    pub(crate) headers: Fields,
}

impl<'a> Head<'a> {
    fn of(parts: &'a request::Parts) -> Self {
        let is_http2 = parts.version == Version::HTTP_2;
        let authority = parts.uri.authority().filter(|_| is_http2);
        Self {
            method: parts.method.clone(),
            path: parts.uri.path_and_query().map_or_else(|| parts.uri.path(), PathAndQuery::as_str),
            authority: authority.map(|it| it.as_str()),
            headers: Fields::from(&parts.headers),
        }
    }
}

impl Head<'_> {
    /// Host and port as the client wrote them; nothing if it has not.
    fn host(&self) -> &str {
        self.authority.or_else(|| self.headers.text(&header::HOST)).unwrap_or_default()
    }
}

/// Where a request comes from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Origin {
    pub(crate) peer: Option<SocketAddr>,
    /// It came over TLS.
    pub(crate) is_secured: bool,
}

async fn serve<B>(state: &Arc<State>, request: http::Request<B>, origin: Origin) -> Reply
where
    B: HttpBody<Data = Bytes> + Unpin,
    B::Error: Into<Box<dyn StdError + Send + Sync>>,
{
    let (parts, body) = request.into_parts();
    let head = Head::of(&parts);
    let started = state.clock.monotonic();
    let activity_id = activity_id(state, &head);
    let answer = read_and_dispatch(state, head, body, origin).await;
    finish(state, answer, activity_id, started)
}

fn finish(state: &State, answer: Answer, activity_id: Uuid, started: Duration) -> Reply {
    if let Err(refusal) = &answer {
        note(refusal, activity_id);
    }
    respond(answer, activity_id, state.clock.monotonic().saturating_sub(started))
}

/// Failures that are not the client's are worth a line.
fn note(refusal: &Refusal, activity_id: Uuid) {
    let (status, message) = (refusal.status.as_u16(), &refusal.message);
    if refusal.status.is_server_error() && refusal.status != StatusCode::NOT_IMPLEMENTED {
        tracing::warn!(status, %activity_id, message, "could not serve a request");
    } else {
        tracing::debug!(status, %activity_id, message, "refused a request");
    }
}

async fn read_and_dispatch<B>(state: &Arc<State>, head: Head<'_>, body: B, origin: Origin) -> Answer
where
    B: HttpBody<Data = Bytes> + Unpin,
    B::Error: Into<Box<dyn StdError + Send + Sync>>,
{
    let understood =
        understand(state, &head, origin).and_then(|path| Ok((path, base(&head, origin)?)));
    let (path, base) = match understood {
        Ok(understood) => understood,
        Err(refusal) => {
            request_body::discard(state, &head, body).await;
            return Err(refusal);
        }
    };
    let body = request_body::read(state, &head, body).await?;
    let request = Request { method: head.method, path, headers: head.headers, body, base };
    dispatch(state, request).await
}

async fn admit_and_dispatch(
    state: &Arc<State>,
    head: Head<'_>,
    body: &[u8],
    origin: Origin,
) -> Answer {
    let path = understand(state, &head, origin)?;
    let base = base(&head, origin)?;
    let max = state.options.body_bytes_max;
    let body = if request_body::means_nothing(&head.method) {
        Bytes::new()
    } else if max < body.len() {
        return Err(request_body::too_large(max));
    } else {
        Bytes::copy_from_slice(body)
    };
    let request = Request { method: head.method, path, headers: head.headers, body, base };
    dispatch(state, request).await
}

/// What the path of a request names; refused unless the request is signed as it has to be.
fn understand(state: &State, head: &Head<'_>, origin: Origin) -> Result<Arc<Path>, Refusal> {
    let Head { method, path, headers, .. } = head;
    check_count(headers)?;
    if state.has_public_key {
        web_pages::check_host(head.host(), &state.options.names)?;
    }
    if !headers.contains(&header::AUTHORIZATION) {
        let path = Path::parse(path)?;
        if is_open_to_all(state, &path, origin) {
            web_pages::check_unsigned(headers, head.host())?;
            return Ok(Arc::new(path));
        }
    }
    auth::authorise(&state.verified, &state.options, state.clock.now(), method, path, headers)
}

/// Over HTTP/1.1 the server refuses too many by itself; HTTP/2 bounds no more than their size.
fn check_count(headers: &Fields) -> Result<(), Refusal> {
    let count = headers.count();
    if count <= HEADERS_MAX {
        return Ok(());
    }
    let message = format!("the request has {count} headers, more than {HEADERS_MAX}");
    Err(Refusal::new(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, message))
}

/// Splits and merges need no signature from this machine while everybody knows the key anyway.
fn is_open_to_all(state: &State, path: &Path, origin: Origin) -> bool {
    let is_management =
        matches!(path.target, Target::Split(..) | Target::Merge(_) | Target::Operation(_));
    is_management && state.has_public_key && origin.peer.is_some_and(|it| it.ip().is_loopback())
}

/// The id the client gave its request, if it is one; otherwise a new one.
fn activity_id(state: &State, head: &Head<'_>) -> Uuid {
    let given = head.headers.text(&headers::ACTIVITY_ID);
    let given = given.and_then(|it| Uuid::parse_str(it).ok());
    given.unwrap_or_else(|| state.ids.next_id())
}

/// Scheme, host and port as the client wrote them.
fn base(head: &Head<'_>, origin: Origin) -> Result<String, Refusal> {
    let refused = || Refusal::bad_request("the request does not say which host it is for");
    let host = head.host();
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || b".-_:[]".contains(&byte);
    if host.is_empty() || HOST_BYTES_MAX < host.len() || !host.bytes().all(is_letter) {
        return Err(refused());
    }
    let scheme = if origin.is_secured { "https" } else { "http" };
    Ok([scheme, "://", host].concat())
}
