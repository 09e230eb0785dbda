//! Failures of the service in the words of the ports.

use std::error::Error as _;
use std::time::Duration;

use azure_data_cosmos_driver::{CosmosError, DiagnosticsContext, RequestDiagnostics};
use millstream_core::{Error, ErrorKind};
use serde::Deserialize;

/// Whether a call that failed could have changed something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    Write,
}

/// The container that was addressed is not the one of this name any more.
const CONTAINER_MISMATCH: u16 = 1024;
/// A replica has not seen yet what this client has seen.
const SESSION_NOT_AVAILABLE: u16 = 1002;
/// Another region takes the writes now.
const WRITE_FORBIDDEN: u16 = 3;
/// No connection, so nothing was sent.
const CONNECTION_FAILED: u16 = 20010;
/// No address, so nothing was sent.
const DNS_FAILED: u16 = 20012;
/// No common protocol, so nothing was sent.
const HTTP2_INCOMPATIBLE: u16 = 20015;
/// Statuses that the SDK makes up itself begin here.
const OF_CLIENT_MIN: u16 = 20_000;
/// Statuses from here on tell of a failure.
const REFUSED_MIN: u16 = 400;
/// Longest part of a message of the service that is kept.
const MESSAGE_CHARS_MAX: usize = 500;

/// What the service says about a refused request.
#[derive(Deserialize)]
struct Refused {
    message: String,
}

/// The error of a call that the service or the way to it refused.
pub(crate) fn failure(error: &CosmosError, attempted: impl Into<String>, access: Access) -> Error {
    let status = error.status();
    let code = u16::from(status.status_code());
    let sub = status.sub_status().map_or(0, |it| it.value());
    let headers = error.response().map(|it| it.headers());
    let retry_after = headers.and_then(|it| it.retry_after_ms).map(Duration::from_millis);
    let message = message(error);
    let error_of_last = decide(code, sub, attempted, access, retry_after).because(message);
    let is_doubtful = error.diagnostics().is_some_and(|it| was_tried_before(&it));
    if is_doubtful && access == Access::Write {
        return error_of_last.with_unknown_effect();
    }
    error_of_last
}

/// Whether the SDK had sent the request before, and nobody knows what became of that.
///
/// It repeats writes by itself. Then the last answer may be about what an earlier attempt did: an
/// item that exists may be ours.
pub(crate) fn was_tried_before(diagnostics: &DiagnosticsContext) -> bool {
    let requests = diagnostics.requests();
    let lost_on_the_way = |it: &RequestDiagnostics| {
        it.failed_transport_shards().iter().any(|it| it.request_sent().may_have_been_sent())
    };
    let is_open = |it: &RequestDiagnostics| {
        let status = it.status();
        let code = u16::from(status.status_code());
        let sub = status.sub_status().map_or(0, |it| it.value());
        it.request_sent().may_have_been_sent() && REFUSED_MIN <= code && !kind(code, sub).1
    };
    let earlier = requests.split_last().map(|(_, earlier)| earlier).unwrap_or_default();
    diagnostics.retained_request_count() < diagnostics.request_count()
        || requests.iter().any(lost_on_the_way)
        || earlier.iter().any(is_open)
}

/// The error of one operation of a batch, without a cause.
pub(crate) fn refused_operation(
    code: u16,
    sub: u16,
    attempted: impl Into<String>,
    retry_after: Option<Duration>,
) -> Error {
    // A batch that was refused as a whole has changed nothing.
    decide(code, sub, attempted, Access::Read, retry_after)
}

/// An answer that is not what the protocol says.
pub(crate) fn unreadable(
    attempted: impl Into<String>,
    reason: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    access: Access,
) -> Error {
    let error = Error::new(ErrorKind::Unavailable, attempted).because(reason);
    match access {
        Access::Read => error,
        Access::Write => error.with_unknown_effect(),
    }
}

fn decide(
    code: u16,
    sub: u16,
    attempted: impl Into<String>,
    access: Access,
    retry_after: Option<Duration>,
) -> Error {
    let (kind, is_certain) = kind(code, sub);
    let mut error = Error::new(kind, attempted);
    if let Some(wait) = retry_after {
        error = error.with_retry_after(wait);
    }
    if !is_certain && access == Access::Write {
        error = error.with_unknown_effect();
    }
    error
}

/// What the caller can do, and whether it is certain that nothing happened.
fn kind(code: u16, sub: u16) -> (ErrorKind, bool) {
    match (code, sub) {
        (400, CONTAINER_MISMATCH) => (ErrorKind::NotFound, true),
        (403, WRITE_FORBIDDEN) | (404, SESSION_NOT_AVAILABLE) => (ErrorKind::Unavailable, true),
        (404, _) => (ErrorKind::NotFound, true),
        (405 | 501, _) => (ErrorKind::Unsupported, true),
        (409, _) => (ErrorKind::AlreadyExists, true),
        (410, _) => (ErrorKind::RangeMoved, true),
        (412, _) => (ErrorKind::PreconditionFailed, true),
        (413, _) => (ErrorKind::TooLarge, true),
        // 449 says that two writers met: neither too much nor wrong, only to be tried again.
        (429 | 449, _) => (ErrorKind::Overloaded, true),
        (503, CONNECTION_FAILED | DNS_FAILED | HTTP2_INCOMPATIBLE) => {
            (ErrorKind::Unavailable, true)
        }
        (408 | 500..=599, _) => (ErrorKind::Unavailable, false),
        (400..=499, _) => (ErrorKind::Invalid, true),
        _ => (ErrorKind::Unavailable, false),
    }
}

/// What the service said, or else the SDK, in one line.
fn message(error: &CosmosError) -> String {
    let body = error.response().and_then(|it| it.body().clone().single().ok());
    let said = body.and_then(|it| serde_json::from_slice::<Refused>(&it).ok());
    let text = said.map_or_else(|| with_root(error), |it| it.message);
    let mut line: String =
        text.lines().map(str::trim).filter(|it| !it.is_empty()).collect::<Vec<_>>().join(" ");
    if let Some((end, _)) = line.char_indices().nth(MESSAGE_CHARS_MAX) {
        line.truncate(end);
    }
    let status = error.status();
    let code = u16::from(status.status_code());
    match status.sub_status().map(|it| it.value()).filter(|it| *it != 0) {
        Some(sub) if OF_CLIENT_MIN <= sub => format!("{line} (noticed before or on the way)"),
        Some(sub) => format!("{line} (status {code}, sub-status {sub})"),
        None => format!("{line} (status {code})"),
    }
}

/// What the SDK says, and the deepest cause: that a certificate is not trusted is found only there.
fn with_root(error: &CosmosError) -> String {
    let text = error.to_string();
    let mut root = None;
    let mut next = error.source();
    while let Some(cause) = next {
        root = Some(cause.to_string());
        next = cause.source();
    }
    match root.filter(|it| !text.contains(it.as_str())) {
        Some(root) => format!("{text}: {root}"),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use millstream_core::Effect;

    use super::*;

    #[track_caller]
    fn check(code: u16, sub: u16, kind: ErrorKind, effect: Effect) {
        let error = decide(code, sub, "commit", Access::Write, None);
        assert_eq!((error.kind(), error.effect()), (kind, effect), "{code}/{sub}");
        let error = decide(code, sub, "read", Access::Read, None);
        assert_eq!((error.kind(), error.effect()), (kind, Effect::None), "{code}/{sub}");
    }

    #[test]
    fn every_status_has_a_kind_to_act_on() {
        check(400, 0, ErrorKind::Invalid, Effect::None);
        check(400, 1001, ErrorKind::Invalid, Effect::None);
        check(400, CONTAINER_MISMATCH, ErrorKind::NotFound, Effect::None);
        check(401, 0, ErrorKind::Invalid, Effect::None);
        check(403, WRITE_FORBIDDEN, ErrorKind::Unavailable, Effect::None);
        check(404, 0, ErrorKind::NotFound, Effect::None);
        check(404, 1003, ErrorKind::NotFound, Effect::None);
        check(404, SESSION_NOT_AVAILABLE, ErrorKind::Unavailable, Effect::None);
        check(409, 0, ErrorKind::AlreadyExists, Effect::None);
        check(410, 1002, ErrorKind::RangeMoved, Effect::None);
        check(412, 0, ErrorKind::PreconditionFailed, Effect::None);
        check(413, 0, ErrorKind::TooLarge, Effect::None);
        check(429, 3200, ErrorKind::Overloaded, Effect::None);
        check(449, 0, ErrorKind::Overloaded, Effect::None);
        check(501, 0, ErrorKind::Unsupported, Effect::None);
    }

    #[test]
    fn a_call_without_an_answer_may_have_happened() {
        check(408, 20008, ErrorKind::Unavailable, Effect::Unknown);
        check(500, 0, ErrorKind::Unavailable, Effect::Unknown);
        check(503, 20003, ErrorKind::Unavailable, Effect::Unknown);
        check(503, 20011, ErrorKind::Unavailable, Effect::Unknown);
    }

    #[test]
    fn a_call_that_was_never_sent_has_not_happened() {
        for sub in [CONNECTION_FAILED, DNS_FAILED, HTTP2_INCOMPATIBLE] {
            check(503, sub, ErrorKind::Unavailable, Effect::None);
        }
    }

    #[test]
    fn the_time_to_wait_is_passed_on() {
        let wait = Duration::from_millis(7);
        let error = refused_operation(429, 3200, "commit", Some(wait));
        assert_eq!(error.retry_after(), Some(wait));
    }
}
