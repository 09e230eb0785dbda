use std::collections::BTreeMap;
use std::time::Duration;

use axum::body::Body;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;

use crate::http::set;
use crate::{Error, ErrorKind, Invalid};

/// How long to wait when the store does not say.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// What is wrong, as `application/problem+json` (RFC 9457).
#[derive(Debug)]
pub(crate) struct Problem {
    status: StatusCode,
    detail: String,
    errors: BTreeMap<&'static str, Vec<String>>,
    retry_after: Option<Duration>,
}

#[derive(Serialize)]
struct ProblemView<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    title: &'a str,
    status: u16,
    detail: &'a str,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    errors: &'a BTreeMap<&'static str, Vec<String>>,
}

impl Problem {
    /// A problem; the sentence says what the caller can do.
    pub(crate) fn new(status: StatusCode, detail: impl Into<String>) -> Self {
        Self { status, detail: detail.into(), errors: BTreeMap::new(), retry_after: None }
    }

    pub(crate) fn bad_request(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, detail)
    }

    pub(crate) fn no_contact() -> Self {
        Self::new(StatusCode::NOT_FOUND, "there is no contact with this id, or it is deleted")
    }

    pub(crate) fn invalid(invalid: &Invalid) -> Self {
        let problem = Self::bad_request("some fields are wrong; each is named in errors");
        Self { errors: invalid.fields().clone(), ..problem }
    }

    /// Something the caller cannot mend; the cause is logged, not told.
    pub(crate) fn failed(cause: &str) -> Self {
        tracing::error!(cause, "request failed");
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "the service failed; its log says why")
    }

    pub(crate) fn later(status: StatusCode, detail: &str, wait: Option<Duration>) -> Self {
        Self { retry_after: Some(wait.unwrap_or(RETRY_AFTER)), ..Self::new(status, detail) }
    }
}

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        let wait = error.retry_after();
        match error.kind() {
            ErrorKind::Invalid(invalid) => Self::invalid(invalid),
            ErrorKind::NotFound => Self::no_contact(),
            ErrorKind::Changed => Self::new(
                StatusCode::PRECONDITION_FAILED,
                "the contact has another etag by now; read it again and decide anew",
            ),
            ErrorKind::Conflict => Self::new(
                StatusCode::CONFLICT,
                "somebody else changed the contact at the same moment; try again",
            ),
            ErrorKind::Overloaded => {
                let detail = "too many changes are waiting; nothing was changed, try again later";
                Self::later(StatusCode::TOO_MANY_REQUESTS, detail, wait)
            }
            ErrorKind::Unavailable => {
                let detail = "the store cannot be reached; nothing was changed, try again later";
                Self::later(StatusCode::SERVICE_UNAVAILABLE, detail, wait)
            }
            ErrorKind::Unknown => {
                let detail = "the store did not answer; the change may have been made, read before \
                              trying again";
                Self::later(StatusCode::SERVICE_UNAVAILABLE, detail, wait)
            }
            ErrorKind::Failed => Self::failed(&error.report()),
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let view = ProblemView {
            kind: "about:blank",
            title: self.status.canonical_reason().unwrap_or("Problem"),
            status: self.status.as_u16(),
            detail: &self.detail,
            errors: &self.errors,
        };
        // It is made of text and numbers only, which can always be written.
        let body = serde_json::to_vec(&view).unwrap_or_default();
        let mut response = Response::new(Body::from(body));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        set(headers, header::CONTENT_TYPE, "application/problem+json");
        if let Some(wait) = self.retry_after {
            let seconds = wait.as_secs() + u64::from(0 < wait.subsec_nanos());
            set(headers, header::RETRY_AFTER, &seconds.max(1).to_string());
        }
        response
    }
}
