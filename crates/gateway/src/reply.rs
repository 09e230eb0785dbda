//! What a request that was served is answered with.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use millstream_core::{Etag, Lsn, RangeId};
use serde::Serialize;

use crate::headers;
use crate::refusal::Refusal;

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
}

impl Reply {
    /// A reply without a body.
    pub(crate) fn empty(status: StatusCode) -> Self {
        Self { status, headers: HeaderMap::new(), body: Bytes::new(), charge: 1.0 }
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
    pub(crate) fn header(mut self, name: HeaderName, value: &str) -> Self {
        if let Ok(value) = HeaderValue::from_str(value) {
            self.headers.insert(name, value);
        }
        self
    }

    /// Sets what the request cost.
    pub(crate) fn charge(mut self, charge: f64) -> Self {
        self.charge = charge;
        self
    }

    /// Sets `etag`, in quotes.
    pub(crate) fn etag(self, etag: &Etag) -> Self {
        let quoted = quoted(etag);
        self.header(header::ETAG, &quoted)
    }

    /// Sets `x-ms-item-count`.
    pub(crate) fn item_count(self, count: usize) -> Self {
        self.header(headers::ITEM_COUNT, &count.to_string())
    }

    /// Sets what the client has seen of one range: `x-ms-session-token`, `lsn` and
    /// `x-ms-documentdb-partitionkeyrangeid`.
    pub(crate) fn session(self, range: RangeId, lsn: Lsn) -> Self {
        let token = crate::session::token(range, lsn);
        self.header(headers::SESSION_TOKEN, &token)
            .header(headers::LSN, &lsn.to_string())
            .header(headers::RANGE_ID, &range.0.to_string())
    }
}

/// A time as it stands in headers: milliseconds with a fraction.
pub(crate) fn milliseconds(duration: Duration) -> String {
    let micros = duration.as_micros();
    format!("{}.{:03}", micros / 1000, micros % 1000)
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
