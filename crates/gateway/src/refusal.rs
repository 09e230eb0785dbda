//! What a request that cannot be served is answered with.

use std::{error::Error as StdError, fmt, time::Duration};

use http::{HeaderName, HeaderValue, StatusCode};
use millstream_core::{Error, ErrorKind, NotUnique};

use crate::headers;

/// A request that was not served: a status, what tells it from others of that status, and a
/// sentence.
///
/// The body that goes out is `{"code":"NotFound","message":"…"}`, with `additionalErrorInfo` where
/// there is more to say to a program.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{message}")]
pub(crate) struct Refusal {
    pub(crate) status: StatusCode,
    pub(crate) sub_status: Option<u32>,
    pub(crate) message: String,
    /// Few; a map would make every `Result` large.
    pub(crate) headers: Vec<(HeaderName, HeaderValue)>,
    /// What a program needs to go on.
    additional: Option<Box<str>>,
    /// The container is gone, or another one has its name: what is known about it is forgotten, and
    /// the request is looked at once more.
    pub(crate) is_container_gone: bool,
}

/// Sub-statuses that clients act on.
pub(crate) mod sub_status {
    /// 400: the partition key of the header is not that of the body.
    pub(crate) const KEY_MISMATCH: u32 = 1001;
    /// 400: the results of several ranges have to be merged by the client.
    pub(crate) const MERGED_BY_CLIENT: u32 = 1004;
    /// 400: the container has another resource id than the client believes.
    pub(crate) const CONTAINER_MISMATCH: u32 = 1024;
    /// 404: the range has not seen yet what the session token says.
    pub(crate) const SESSION_NOT_AVAILABLE: u32 = 1002;
    /// 404: the database or container above does not exist.
    pub(crate) const OWNER_NOT_FOUND: u32 = 1003;
    /// 410: the range was split or merged.
    pub(crate) const RANGE_GONE: u32 = 1002;
    /// 403: writes are not allowed with this key.
    pub(crate) const WRITE_FORBIDDEN: u32 = 3;
    /// 413: what was sent is in order, but the answer would be too large.
    pub(crate) const ANSWER_TOO_LARGE: u32 = 3402;
    /// 429: more was asked than is provisioned.
    pub(crate) const TOO_MANY_REQUESTS: u32 = 3200;
}

impl Refusal {
    /// A refusal with this status; the message is a sentence for people.
    pub(crate) fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Self {
            status,
            sub_status: None,
            message: message.into(),
            headers: Vec::new(),
            additional: None,
            is_container_gone: false,
        }
    }

    /// 400.
    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, message)
    }

    /// 404, of anything but an item.
    pub(crate) fn not_found(message: impl fmt::Display) -> Self {
        Self::new(StatusCode::NOT_FOUND, format!("{NO_RESOURCE}: {message}"))
    }

    /// 404, of an item that is to be read.
    pub(crate) fn no_item() -> Self {
        let message = "could not read the item: there is no item with this id";
        Self::new(StatusCode::NOT_FOUND, format!("{NO_ITEM}: {message}"))
    }

    /// 405.
    pub(crate) fn method_not_allowed() -> Self {
        let message = "this resource does not know the method of the request";
        Self::new(StatusCode::METHOD_NOT_ALLOWED, message)
    }

    /// 501: what Cosmos DB can do and this gateway does not; see docs/compatibility.md.
    pub(crate) fn unsupported(what: &str) -> Self {
        let message = format!("{what} are not supported; docs/compatibility.md lists what is");
        Self::new(StatusCode::NOT_IMPLEMENTED, message)
    }

    /// Tells it from others of its status.
    pub(crate) fn sub_status(mut self, value: u32) -> Self {
        self.sub_status = Some(value);
        self
    }

    /// Adds a header; a value that no header can have is left out.
    pub(crate) fn header(mut self, name: HeaderName, value: &str) -> Self {
        if let Ok(value) = HeaderValue::from_str(value) {
            self.headers.push((name, value));
        }
        self
    }

    /// Adds what a program needs to go on.
    pub(crate) fn additional(mut self, text: &str) -> Self {
        self.additional = Some(text.into());
        self
    }

    /// Says how long to wait before trying again.
    pub(crate) fn retry_after(self, wait: Duration) -> Self {
        self.header(headers::RETRY_AFTER_MS, &wait.as_millis().max(1).to_string())
    }

    /// The word of Cosmos DB for the status.
    pub(crate) fn code(&self) -> &'static str {
        code(self.status)
    }

    /// The body: `{"code":"…","message":"…"}`.
    pub(crate) fn body(&self) -> Vec<u8> {
        let mut body = serde_json::json!({ "code": self.code(), "message": self.message });
        if let Some(additional) = &self.additional {
            body["additionalErrorInfo"] = serde_json::Value::from(&**additional);
        }
        body.to_string().into_bytes()
    }
}

/// The status, and sub-status if any, a failure of a backend is answered with; batches use this for
/// each of their operations.
pub(crate) fn status_of(error: &Error) -> (StatusCode, Option<u32>) {
    match error.kind() {
        ErrorKind::Invalid | ErrorKind::PositionExpired => (StatusCode::BAD_REQUEST, None),
        ErrorKind::NotFound => (StatusCode::NOT_FOUND, None),
        ErrorKind::AlreadyExists => (StatusCode::CONFLICT, None),
        ErrorKind::PreconditionFailed => (StatusCode::PRECONDITION_FAILED, None),
        ErrorKind::TooLarge => (StatusCode::PAYLOAD_TOO_LARGE, None),
        ErrorKind::RangeMoved => (StatusCode::GONE, Some(sub_status::RANGE_GONE)),
        ErrorKind::ContainerRecreated => {
            (StatusCode::BAD_REQUEST, Some(sub_status::CONTAINER_MISMATCH))
        }
        ErrorKind::Overloaded => {
            (StatusCode::TOO_MANY_REQUESTS, Some(sub_status::TOO_MANY_REQUESTS))
        }
        ErrorKind::Unsupported => (StatusCode::NOT_IMPLEMENTED, None),
        ErrorKind::Unavailable | ErrorKind::Locked => (StatusCode::SERVICE_UNAVAILABLE, None),
        ErrorKind::Corrupt => (StatusCode::INTERNAL_SERVER_ERROR, None),
        // Whatever a later version may fail with.
        _ => (StatusCode::INTERNAL_SERVER_ERROR, None),
    }
}

/// The words of Cosmos DB with which a message begins, because programs look for them.
fn words_of(error: &Error) -> Option<&'static str> {
    let is_unique_key = || error.source().is_some_and(<dyn StdError>::is::<NotUnique>);
    // Commits name the operation; without one it is a database or a container.
    match (error.kind(), error.operation()) {
        (ErrorKind::NotFound, Some(_)) => Some(NO_ITEM),
        (ErrorKind::NotFound, None) => Some(NO_RESOURCE),
        (ErrorKind::AlreadyExists, Some(_)) if is_unique_key() => {
            Some("Unique index constraint violation")
        }
        (ErrorKind::AlreadyExists, Some(_)) => {
            Some("Entity with the specified id already exists in the system")
        }
        (ErrorKind::AlreadyExists, None) => {
            Some("Resource with specified id or name already exists")
        }
        (ErrorKind::PreconditionFailed, _) => Some("One of the specified pre-condition is not met"),
        _ => None,
    }
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        Self::from(&error)
    }
}

impl From<&Error> for Refusal {
    fn from(error: &Error) -> Self {
        let (status, sub_status) = status_of(error);
        let message = match words_of(error) {
            Some(words) => format!("{words}: {}", error.report()),
            None => error.report(),
        };
        let mut refusal = Self::new(status, message);
        refusal.sub_status = sub_status;
        // Reads return none for an item that is not there, and commits name the operation.
        refusal.is_container_gone =
            error.kind() == ErrorKind::NotFound && error.operation().is_none();
        if status == StatusCode::TOO_MANY_REQUESTS {
            refusal = refusal.retry_after(error.retry_after().unwrap_or(RETRY_AFTER_DEFAULT));
        }
        refusal
    }
}

impl From<millstream_query::Error> for Refusal {
    fn from(error: millstream_query::Error) -> Self {
        match error.store() {
            Some(store) => Self::from(store),
            None => Self::bad_request(error.report()),
        }
    }
}

/// What Cosmos DB says of a database, a container and the like that is not there.
const NO_RESOURCE: &str = "Resource Not Found";
/// What it says of an item.
const NO_ITEM: &str = "Entity with the specified id does not exist in the system";
/// How long to wait when the backend does not say.
pub(crate) const RETRY_AFTER_DEFAULT: Duration = Duration::from_millis(50);

/// The word of Cosmos DB for a status.
pub(crate) fn code(status: StatusCode) -> &'static str {
    match status.as_u16() {
        400 => "BadRequest",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "NotFound",
        405 => "MethodNotAllowed",
        408 => "RequestTimeout",
        409 => "Conflict",
        410 => "Gone",
        412 => "PreconditionFailed",
        413 => "RequestEntityTooLarge",
        414 => "RequestUriTooLong",
        424 => "FailedDependency",
        429 => "TooManyRequests",
        431 => "RequestHeaderFieldsTooLarge",
        449 => "RetryWith",
        501 => "NotImplemented",
        503 => "ServiceUnavailable",
        _ => "InternalServerError",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_of_an_item_does_not_mean_that_the_container_is_gone() {
        let of_item = Error::new(ErrorKind::NotFound, "delete").at_operation(0);
        assert!(!Refusal::from(of_item).is_container_gone);
        assert!(Refusal::from(Error::new(ErrorKind::NotFound, "find")).is_container_gone);
    }

    #[test]
    fn an_overloaded_backend_says_when_to_come_again() {
        let error = Error::new(ErrorKind::Overloaded, "commit");
        let refusal = Refusal::from(error.with_retry_after(Duration::from_millis(7)));
        assert_eq!((refusal.status.as_u16(), refusal.sub_status), (429, Some(3200)));
        let wait = refusal.headers.iter().find(|(name, _)| *name == headers::RETRY_AFTER_MS);
        assert_eq!(wait.map(|(_, value)| value.as_bytes()), Some(&b"7"[..]));
    }
}
