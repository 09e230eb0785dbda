//! What a request that was served is answered with.

use std::fmt;
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use http::{HeaderName, StatusCode, header};
use millstream_core::{Etag, Lsn, RangeId};
use serde::Serialize;
use uuid::Uuid;

use crate::charge::Charge;
use crate::headers;
use crate::lines::Lines;
use crate::refusal::Refusal;
use crate::session::SessionToken;

/// What every handler returns.
pub(crate) type Answer = Result<Reply, Refusal>;

/// A request that was served.
///
/// Handlers set what only they know; the dispatcher adds activity id, the paths of the container,
/// versions, content type and the charge. Without [`Reply::charge`] a reply costs 1.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: StatusCode,
    pub(crate) lines: Lines,
    pub(crate) body: Bytes,
    /// What the body is, if there is one.
    content_type: &'static str,
    pub(crate) charge: f64,
}

const SERVICE_VERSION: &str = concat!("version=", env!("CARGO_PKG_VERSION"));
/// Room for the headers that an answer usually has.
const LINES_BYTES_USUAL: usize = 768;

impl Reply {
    /// A reply without a body.
    pub(crate) fn empty(status: StatusCode) -> Self {
        Self {
            status,
            lines: Lines::with_capacity(LINES_BYTES_USUAL),
            body: Bytes::new(),
            content_type: "application/json",
            charge: 1.0,
        }
    }

    /// A reply whose body is JSON text already, or another form that its content type tells.
    pub(crate) fn new(status: StatusCode, body: impl Into<Bytes>) -> Self {
        Self { body: body.into(), ..Self::empty(status) }
    }

    /// A reply with `value` as JSON.
    pub(crate) fn json(status: StatusCode, value: &impl Serialize) -> Answer {
        let body = serde_json::to_vec(value).map_err(|error| {
            let message = format!("could not write the answer: {error}");
            Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, message)
        })?;
        Ok(Self::new(status, body))
    }

    /// Adds a header; a value that no header can have is left out.
    #[inline]
    pub(crate) fn header(mut self, name: HeaderName, value: &str) -> Self {
        self.lines.add(&name, value.as_bytes());
        self
    }

    /// Adds a header; a value that no header can have is left out.
    #[inline]
    pub(crate) fn formatted(mut self, name: HeaderName, value: fmt::Arguments<'_>) -> Self {
        self.lines.add_formatted(&name, value);
        self
    }

    /// Sets what the body is. Default: JSON.
    pub(crate) fn content_type(mut self, content_type: &'static str) -> Self {
        self.content_type = content_type;
        self
    }

    /// Adds what every answer has: what the request cost and how long it took, versions, and what
    /// the body is.
    pub(crate) fn finished(self, activity_id: Uuid, duration: Duration) -> Self {
        let (charge, content_type) = (Charge(self.charge), self.content_type);
        let reply = self
            .formatted(headers::REQUEST_CHARGE, format_args!("{charge}"))
            .formatted(headers::REQUEST_DURATION_MS, format_args!("{}", Milliseconds(duration)))
            .formatted(headers::ACTIVITY_ID, format_args!("{activity_id}"))
            .header(headers::SERVICE_VERSION, SERVICE_VERSION)
            .header(headers::SCHEMA_VERSION, "1.18");
        if reply.body.is_empty() {
            return reply;
        }
        reply.header(header::CONTENT_TYPE, content_type)
    }

    /// Sets what the request cost.
    #[inline]
    pub(crate) fn charge(mut self, charge: f64) -> Self {
        self.charge = charge;
        self
    }

    /// Sets `etag`, in quotes.
    #[inline]
    pub(crate) fn etag(self, etag: &Etag) -> Self {
        self.formatted(header::ETAG, format_args!("\"{etag}\""))
    }

    /// Sets `x-ms-item-count`.
    #[inline]
    pub(crate) fn item_count(self, count: usize) -> Self {
        self.formatted(headers::ITEM_COUNT, format_args!("{count}"))
    }

    /// Sets what the client has seen of one range: `x-ms-session-token`, `lsn` and
    /// `x-ms-documentdb-partitionkeyrangeid`.
    #[inline]
    pub(crate) fn session(self, range: RangeId, lsn: Lsn) -> Self {
        self.formatted(headers::SESSION_TOKEN, format_args!("{}", SessionToken(range, lsn)))
            .formatted(headers::LSN, format_args!("{lsn}"))
            .formatted(headers::RANGE_ID, format_args!("{}", range.0))
    }
}

impl From<Reply> for http::Response<Body> {
    fn from(reply: Reply) -> Self {
        let mut response = Self::new(Body::from(reply.body));
        *response.status_mut() = reply.status;
        *response.headers_mut() = reply.lines.to_map();
        response
    }
}

/// A time as it stands in headers: milliseconds with a fraction.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Milliseconds(pub(crate) Duration);

impl fmt::Display for Milliseconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let micros = self.0.as_micros();
        write!(f, "{}.{:03}", micros / 1000, micros % 1000)
    }
}

/// An etag as it stands in `etag` and `_etag`: in quotes.
pub(crate) fn quoted(etag: &Etag) -> String {
    format!("\"{etag}\"")
}

/// The etag of a header or property, with or without quotes.
pub(crate) fn unquoted(text: &str) -> Etag {
    let text = text.trim();
    let inner = text.strip_prefix('"').and_then(|it| it.strip_suffix('"'));
    Etag::new(inner.unwrap_or(text))
}
