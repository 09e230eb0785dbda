//! Calls to the server, and what their failures mean.

use std::error::Error as StdError;

use async_nats::HeaderMap;
use async_nats::jetstream::context::{PublishError, PublishErrorKind};
use async_nats::jetstream::message::{PublishMessage, StreamMessage};
use async_nats::jetstream::stream::LastRawMessageErrorKind;
use async_nats::jetstream::{self, Context, ErrorCode};
use bytes::Bytes;
use millstream_core::{Error, ErrorKind, Result};

use crate::messages::headers::set;

const EXPECTED_SEQUENCE: &str = "Nats-Expected-Last-Subject-Sequence";

/// What the outcome of a publish means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// Nothing happened; it may work in a moment.
    NotYet,
    /// Nobody knows; the same may be sent again.
    Unknown,
    /// Somebody else has changed the subject.
    Conflict,
    /// A message of the batch is there already, or the server does not do such batches.
    NotAsBatch,
    /// The stream is full.
    Full,
    /// The server takes no message of this size.
    TooLarge,
    /// Anything else; trying again does not help.
    Refused,
}

/// What a failed publish means.
pub(crate) fn failure(error: &PublishError) -> Failure {
    match error.kind() {
        PublishErrorKind::TimedOut | PublishErrorKind::BrokenPipe => Failure::Unknown,
        // While a leader is elected nobody answers.
        PublishErrorKind::StreamNotFound | PublishErrorKind::MaxAckPending => Failure::NotYet,
        PublishErrorKind::WrongLastSequence => Failure::Conflict,
        PublishErrorKind::MaxPayloadExceeded => Failure::TooLarge,
        PublishErrorKind::WrongLastMessageId => Failure::Refused,
        PublishErrorKind::Other => api_error(error).map_or(Failure::Unknown, api_failure),
    }
}

/// The failure as an error of the port.
pub(crate) fn publish_error(attempted: String, error: PublishError) -> Error {
    let kind = match failure(&error) {
        Failure::NotYet => ErrorKind::Unavailable,
        Failure::Unknown => {
            return Error::new(ErrorKind::Unavailable, attempted)
                .because(error)
                .with_unknown_effect();
        }
        Failure::Conflict => ErrorKind::PreconditionFailed,
        Failure::Full => ErrorKind::Overloaded,
        Failure::TooLarge => ErrorKind::TooLarge,
        // What the server refuses for a reason we do not know is its trouble, not the message's:
        // a relay must not park events because of it.
        Failure::NotAsBatch | Failure::Refused => ErrorKind::Unavailable,
    };
    Error::new(kind, attempted).because(error)
}

/// A call about streams that failed: nothing is known but that it may work later.
pub(crate) fn call_error(
    attempted: impl Into<String>,
    error: impl StdError + Send + Sync + 'static,
) -> Error {
    Error::new(ErrorKind::Unavailable, attempted).because(error).with_unknown_effect()
}

/// Stores a message, if the newest one of its subject still is `expected`; its number.
pub(crate) async fn put(
    context: &Context,
    subject: String,
    mut headers: HeaderMap,
    body: Bytes,
    expected: Option<u64>,
) -> Result<u64> {
    let attempted = format!("store {subject:?}");
    if let Some(expected) = expected {
        set(&mut headers, EXPECTED_SEQUENCE, &expected.to_string())?;
    }
    let message = PublishMessage::build().payload(body).headers(headers);
    let sent = match context.send_publish(subject, message).await {
        Ok(sent) => sent.await,
        Err(error) => Err(error),
    };
    match sent {
        Ok(acknowledged) => Ok(acknowledged.sequence),
        Err(error) => Err(publish_error(attempted, error)),
    }
}

/// The newest message of a subject, from the leader of the stream.
pub(crate) async fn newest(
    stream: &jetstream::stream::Stream<()>,
    subject: &str,
) -> Result<Option<StreamMessage>> {
    match stream.get_last_raw_message_by_subject(subject).await {
        Ok(message) => Ok(Some(message)),
        Err(error) if error.kind() == LastRawMessageErrorKind::NoMessageFound => Ok(None),
        Err(error) => Err(call_error(format!("read {subject:?}"), error)),
    }
}

fn api_error(error: &PublishError) -> Option<&jetstream::Error> {
    error.source()?.downcast_ref()
}

fn api_failure(error: &jetstream::Error) -> Failure {
    match error.error_code() {
        ErrorCode::STREAM_DUPLICATE_MESSAGE_CONFLICT
        | ErrorCode::ATOMIC_PUBLISH_INCOMPLETE_BATCH
        | ErrorCode::ATOMIC_PUBLISH_TOO_MANY_INFLIGHT => Failure::NotYet,
        ErrorCode::ATOMIC_PUBLISH_CONTAINS_DUPLICATE_MESSAGE
        | ErrorCode::ATOMIC_PUBLISH_DISABLED
        | ErrorCode::ATOMIC_PUBLISH_UNSUPPORTED_HEADER
        | ErrorCode::ATOMIC_PUBLISH_TOO_LARGE_BATCH => Failure::NotAsBatch,
        // What is not as expected may also be a write of somebody else that is under way.
        ErrorCode::STREAM_WRONG_LAST_SEQUENCE_CONSTANT => Failure::Conflict,
        ErrorCode::STREAM_STORE_FAILED => Failure::Full,
        ErrorCode::STREAM_MESSAGE_EXCEEDS_MAXIMUM => Failure::TooLarge,
        _ if error.code() == 503 => Failure::NotYet,
        _ if error.code() == 408 => Failure::Unknown,
        _ => Failure::Refused,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(status: u64, code: u64, expected: Failure) {
        let text = format!(r#"{{"code":{status},"err_code":{code},"description":"x"}}"#);
        let error: jetstream::Error = serde_json::from_str(&text).unwrap();
        assert_eq!(api_failure(&error), expected, "{text}");
    }

    #[test]
    fn an_error_of_the_server_says_whether_to_try_again() {
        check(400, 10164, Failure::Conflict);
        check(409, 10158, Failure::NotYet);
        check(400, 10201, Failure::NotAsBatch);
        check(503, 10077, Failure::Full);
        check(503, 10008, Failure::NotYet);
        check(408, 0, Failure::Unknown);
        check(400, 10003, Failure::Refused);
    }
}
