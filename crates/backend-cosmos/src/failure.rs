//! Failures of the service in the words of the ports.

use std::error::Error as _;
use std::time::Duration;

use azure_data_cosmos_driver::diagnostics::RequestSentStatus;
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
/// The container is still being created.
const CREATE_IN_PROGRESS: u16 = 1013;
/// What keeps the container has not begun to serve it.
const STORE_NOT_READY: u16 = 1023;
/// Another region takes the writes now.
const WRITE_FORBIDDEN: u16 = 3;
/// The account is not in this region any more.
const ACCOUNT_NOT_FOUND: u16 = 1008;
/// No connection, so nothing was sent.
const CONNECTION_FAILED: u16 = 20010;
/// No address, so nothing was sent.
const DNS_FAILED: u16 = 20012;
/// What an attempt that failed in HTTP/2 itself is called in diagnostics.
const HTTP2_FAILED: &str = "503/20015";
/// What the SDK makes of the last 404/1002, 403/3 or 403/1008.
const SESSION_NOT_REACHED: u16 = 20310;
const NO_WRITE_REGION: u16 = 20311;
const NO_REGION: u16 = 20312;
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
    let (kind, is_certain) = kind(code, sub);
    let error_of_last = refused(kind, attempted, retry_after).because(message(error));
    let is_certain = error.diagnostics().map_or(is_certain, |it| is_without_effect(&history(&it)));
    if !is_certain && access == Access::Write {
        return error_of_last.with_unknown_effect();
    }
    error_of_last
}

/// Whether the SDK had sent the request before, and nobody knows what became of that.
///
/// It repeats writes by itself. Then the last answer may be about what an earlier attempt did: an
/// item that exists may be ours.
pub(crate) fn was_tried_before(diagnostics: &DiagnosticsContext) -> bool {
    is_repeated(&history(diagnostics))
}

/// What the SDK tells of the requests it made for one call.
struct History {
    attempts: Vec<Attempt>,
    /// Whether it left some out.
    has_gaps: bool,
}

/// One request, as far as its end is known.
#[derive(Clone, Copy)]
struct Attempt {
    code: u16,
    sub: u16,
    may_have_been_sent: bool,
    /// Whether it may have been sent before, over a connection that broke.
    was_sent_before: bool,
}

impl Attempt {
    /// Whether it may have changed something.
    fn is_open(self) -> bool {
        let is_certain = kind(self.code, self.sub).1;
        self.was_sent_before || self.may_have_been_sent && !is_certain
    }
}

fn history(diagnostics: &DiagnosticsContext) -> History {
    let attempt = |it: &RequestDiagnostics| {
        let mut broken = it.failed_transport_shards().iter();
        Attempt {
            code: u16::from(it.status().status_code()),
            sub: it.status().sub_status().map_or(0, |it| it.value()),
            may_have_been_sent: may_have_been_sent(it.request_sent(), it.error()),
            was_sent_before: broken
                .any(|it| may_have_been_sent(it.request_sent(), Some(it.error()))),
        }
    };
    let has_gaps = diagnostics.retained_request_count() < diagnostics.request_count();
    History { attempts: diagnostics.requests().iter().map(attempt).collect(), has_gaps }
}

/// Whether the service may have got it.
///
/// The SDK takes an attempt for one that was not sent if HTTP/2 itself failed. But who is at the
/// other end, or in between, may break off that way after it has read the request.
fn may_have_been_sent(sent: RequestSentStatus, error: Option<&str>) -> bool {
    sent.may_have_been_sent() || error.is_some_and(|it| it.starts_with(HTTP2_FAILED))
}

/// Whether nothing of what was sent can have changed anything.
fn is_without_effect(history: &History) -> bool {
    !history.has_gaps && !history.attempts.iter().any(|it| it.is_open())
}

fn is_repeated(history: &History) -> bool {
    let earlier = history.attempts.split_last().map(|(_, earlier)| earlier).unwrap_or_default();
    history.has_gaps
        || history.attempts.iter().any(|it| it.was_sent_before)
        || earlier.iter().any(|it| REFUSED_MIN <= it.code && it.is_open())
}

/// The error of one operation of a batch, without a cause.
pub(crate) fn refused_operation(
    code: u16,
    sub: u16,
    attempted: impl Into<String>,
    retry_after: Option<Duration>,
) -> Error {
    // A batch that was refused as a whole has changed nothing.
    refused(kind(code, sub).0, attempted, retry_after)
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

fn refused(kind: ErrorKind, attempted: impl Into<String>, retry_after: Option<Duration>) -> Error {
    let error = Error::new(kind, attempted);
    match retry_after {
        Some(wait) => error.with_retry_after(wait),
        None => error,
    }
}

/// What the caller can do, and whether it is certain that nothing happened.
fn kind(code: u16, sub: u16) -> (ErrorKind, bool) {
    match (code, sub) {
        (400, CONTAINER_MISMATCH) => (ErrorKind::NotFound, true),
        (403, WRITE_FORBIDDEN | ACCOUNT_NOT_FOUND)
        | (404, SESSION_NOT_AVAILABLE | CREATE_IN_PROGRESS | STORE_NOT_READY) => {
            (ErrorKind::Unavailable, true)
        }
        (404, _) => (ErrorKind::NotFound, true),
        (405 | 501, _) => (ErrorKind::Unsupported, true),
        (409, _) => (ErrorKind::AlreadyExists, true),
        (410, _) => (ErrorKind::RangeMoved, true),
        (412, _) => (ErrorKind::PreconditionFailed, true),
        (413, _) => (ErrorKind::TooLarge, true),
        // 449 says that two writers met: neither too much nor wrong, only to be tried again.
        (429 | 449, _) => (ErrorKind::Overloaded, true),
        (503, CONNECTION_FAILED | DNS_FAILED)
        | (503, SESSION_NOT_REACHED | NO_WRITE_REGION | NO_REGION) => {
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
    fn check(code: u16, sub: u16, expected: ErrorKind, effect: Effect) {
        let (kind, is_certain) = kind(code, sub);
        let found = if is_certain { Effect::None } else { Effect::Unknown };
        assert_eq!((kind, found), (expected, effect), "{code}/{sub}");
    }

    #[test]
    fn every_status_has_a_kind_to_act_on() {
        check(400, 0, ErrorKind::Invalid, Effect::None);
        check(400, 1001, ErrorKind::Invalid, Effect::None);
        check(400, CONTAINER_MISMATCH, ErrorKind::NotFound, Effect::None);
        check(401, 0, ErrorKind::Invalid, Effect::None);
        check(403, 0, ErrorKind::Invalid, Effect::None);
        check(403, WRITE_FORBIDDEN, ErrorKind::Unavailable, Effect::None);
        check(403, ACCOUNT_NOT_FOUND, ErrorKind::Unavailable, Effect::None);
        check(404, 0, ErrorKind::NotFound, Effect::None);
        check(404, 1003, ErrorKind::NotFound, Effect::None);
        check(404, CREATE_IN_PROGRESS, ErrorKind::Unavailable, Effect::None);
        check(404, STORE_NOT_READY, ErrorKind::Unavailable, Effect::None);
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
        check(503, 20015, ErrorKind::Unavailable, Effect::Unknown);
    }

    #[test]
    fn a_call_that_was_never_sent_has_not_happened() {
        for sub in [CONNECTION_FAILED, DNS_FAILED] {
            check(503, sub, ErrorKind::Unavailable, Effect::None);
        }
        for sub in [SESSION_NOT_REACHED, NO_WRITE_REGION, NO_REGION] {
            check(503, sub, ErrorKind::Unavailable, Effect::None);
        }
    }

    #[track_caller]
    fn check_sent(sent: RequestSentStatus, error: Option<&str>, expected: bool) {
        assert_eq!(may_have_been_sent(sent, error), expected);
    }

    #[test]
    fn an_attempt_that_did_not_connect_was_not_sent() {
        let refused = "503/20010: error sending request";
        let reset = "503/20015: error sending request";
        check_sent(RequestSentStatus::NotSent, Some(refused), false);
        check_sent(RequestSentStatus::NotSent, None, false);
        check_sent(RequestSentStatus::NotSent, Some(reset), true);
        check_sent(RequestSentStatus::Unknown, None, true);
        check_sent(RequestSentStatus::Sent, None, true);
    }

    /// `503` is an attempt that was answered so, `-503` one that was surely not sent, `~503` one
    /// that had been sent before over a connection that broke, and `…` one that was left out.
    #[track_caller]
    fn check_history(text: &str, is_repeated_expected: bool, is_without_effect_expected: bool) {
        let mut history = History { attempts: Vec::new(), has_gaps: false };
        for word in text.split_whitespace() {
            if word == "…" {
                history.has_gaps = true;
                continue;
            }
            let status = word.trim_start_matches(['-', '~']);
            let (code, sub) = status.split_once('/').unwrap_or((status, "0"));
            history.attempts.push(Attempt {
                code: code.parse().unwrap(),
                sub: sub.parse().unwrap(),
                may_have_been_sent: !word.starts_with('-'),
                was_sent_before: word.starts_with('~'),
            });
        }
        assert_eq!(is_repeated(&history), is_repeated_expected, "{text}");
        assert_eq!(is_without_effect(&history), is_without_effect_expected, "{text}");
    }

    #[test]
    fn a_call_is_without_effect_if_all_its_attempts_are() {
        check_history("", false, true);
        check_history("-503/20003", false, true);
        check_history("-503/20003 -503/20003 403/3 404/1002 429", false, true);
        check_history("412", false, true);
        check_history("503/20003", false, false);
        check_history("408/20008", false, false);
        check_history("200", false, false);
        check_history("429 0", false, false);
        check_history("429 503", false, false);
        check_history("503 429", true, false);
        check_history("503 409", true, false);
        check_history("~412", true, false);
        check_history("~503/20003", true, false);
        check_history("… 429", true, false);
    }

    #[test]
    fn the_time_to_wait_is_passed_on() {
        let wait = Duration::from_millis(7);
        let error = refused_operation(429, 3200, "commit", Some(wait));
        assert_eq!(error.retry_after(), Some(wait));
    }
}
