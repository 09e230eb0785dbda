//! What a request that was served is answered with.

use std::fmt::{self, Write};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use millstream_core::{Etag, Lsn, RangeId};
use serde::Serialize;

use crate::headers;
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
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    pub(crate) charge: f64,
    /// Where the next value of a header is written: most are a few bytes, and all together are one
    /// allocation.
    values: BytesMut,
}

/// Room for what an answer usually has.
const HEADERS_USUAL: usize = 24;
const VALUE_BYTES_USUAL: usize = 256;

impl Reply {
    /// A reply without a body.
    pub(crate) fn empty(status: StatusCode) -> Self {
        Self {
            status,
            headers: HeaderMap::with_capacity(HEADERS_USUAL),
            body: Bytes::new(),
            charge: 1.0,
            values: BytesMut::with_capacity(VALUE_BYTES_USUAL),
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
    pub(crate) fn header(self, name: HeaderName, value: &str) -> Self {
        self.formatted(name, format_args!("{value}"))
    }

    /// Adds a header; a value that no header can have is left out.
    #[inline]
    pub(crate) fn formatted(mut self, name: HeaderName, value: fmt::Arguments<'_>) -> Self {
        self.format(name, value);
        self
    }

    /// In place: moving a reply once for every header costs more than the header.
    fn format(&mut self, name: HeaderName, value: fmt::Arguments<'_>) {
        let is_written = self.values.write_fmt(value).is_ok();
        let value = HeaderValue::from_maybe_shared(self.values.split().freeze());
        if let Ok(value) = value
            && is_written
        {
            self.headers.insert(name, value);
        }
    }

    /// Adds a header whose value is there already.
    #[inline]
    pub(crate) fn value(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.insert(name, value);
        self
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
