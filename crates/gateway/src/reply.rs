//! What a request that was served is answered with.

use std::fmt;
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use http::{HeaderName, StatusCode, header};
use millstream_core::{Etag, Lsn, RangeId};
use serde::Serialize;
use uuid::Uuid;

use crate::digits::Digits;
use crate::lines::Lines;
use crate::refusal::Refusal;
use crate::{charge, headers, session};

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
    /// Whether the charge has been taken from what the container may spend.
    is_paid: bool,
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
            is_paid: false,
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
    pub(crate) fn header(mut self, name: &HeaderName, value: &str) -> Self {
        self.lines.add(name, value.as_bytes());
        self
    }

    /// Adds a header whose value is a number.
    #[inline]
    pub(crate) fn number(mut self, name: &HeaderName, value: u64) -> Self {
        self.lines.add(name, Digits::of(value).as_bytes());
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
        let mut reply = self;
        let hundredths = charge::hundredths(reply.charge);
        let micros = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        reply.decimal(&headers::REQUEST_CHARGE, hundredths / 100, hundredths % 100, 2);
        reply.decimal(&headers::REQUEST_DURATION_MS, micros / 1000, micros % 1000, 3);
        let mut text = Uuid::encode_buffer();
        let activity_id = activity_id.hyphenated().encode_lower(&mut text);
        reply.lines.add(&headers::ACTIVITY_ID, activity_id.as_bytes());
        reply.lines.add(&headers::SERVICE_VERSION, SERVICE_VERSION.as_bytes());
        reply.lines.add(&headers::SCHEMA_VERSION, b"1.18");
        if !reply.body.is_empty() {
            reply.lines.add(&header::CONTENT_TYPE, reply.content_type.as_bytes());
        }
        reply
    }

    /// Adds a header whose value has a fraction of so many digits.
    fn decimal(&mut self, name: &HeaderName, whole: u64, fraction: u64, digits: usize) {
        let (whole, fraction) = (Digits::of(whole), Digits::padded(fraction, digits));
        self.lines.add_parts(name, &[whole.as_bytes(), b".", fraction.as_bytes()]);
    }

    /// Sets what the request cost.
    #[inline]
    pub(crate) fn charge(mut self, charge: f64) -> Self {
        self.charge = charge;
        self
    }

    /// Says that the charge has been taken already from what the container may spend.
    pub(crate) fn paid(mut self) -> Self {
        self.is_paid = true;
        self
    }

    /// What has to be taken yet from what the container may spend.
    pub(crate) fn unpaid(&self) -> f64 {
        if self.is_paid { 0.0 } else { self.charge }
    }

    /// Sets `etag`, in quotes.
    #[inline]
    pub(crate) fn etag(mut self, etag: &Etag) -> Self {
        self.lines.add_parts(&header::ETAG, &[b"\"", etag.as_str().as_bytes(), b"\""]);
        self
    }

    /// Sets `x-ms-item-count`.
    #[inline]
    pub(crate) fn item_count(self, count: usize) -> Self {
        self.number(&headers::ITEM_COUNT, u64::try_from(count).unwrap_or(u64::MAX))
    }

    /// Sets what the client has seen of one range: `x-ms-session-token`, `lsn` and
    /// `x-ms-documentdb-partitionkeyrangeid`.
    #[inline]
    pub(crate) fn session(mut self, range: RangeId, lsn: Lsn) -> Self {
        let (range, lsn) = (Digits::of(range.0.into()), Digits::of(lsn.as_u64()));
        let token = session::parts(range.as_bytes(), lsn.as_bytes());
        self.lines.add_parts(&headers::SESSION_TOKEN, &token);
        self.lines.add(&headers::LSN, lsn.as_bytes());
        self.lines.add(&headers::RANGE_ID, range.as_bytes());
        self
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
