//! What the servers send back.

use async_nats::{HeaderMap, HeaderValue, Message};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde::Deserialize;

use crate::wire::{Answered, Failure};

/// What the names of our headers begin with; the others are the server's business.
const OURS: &str = "Millstream";

/// A message of a stream.
#[derive(Clone, Debug)]
pub(crate) struct StoredMessage {
    pub(crate) subject: String,
    pub(crate) sequence: u64,
    headers: HeaderMap,
    pub(crate) payload: Bytes,
}

impl StoredMessage {
    pub(super) fn new(subject: String, sequence: u64, headers: HeaderMap, payload: Bytes) -> Self {
        Self { subject, sequence, headers, payload }
    }

    /// The first of this name. The names are few, so looking at all is quicker than making a key.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut headers = self.headers.iter();
        let (_, values) = headers.find(|(it, _)| {
            let it: &str = it.as_ref();
            it == name
        })?;
        values.first().map(HeaderValue::as_str)
    }
}

/// An error in the JSON of an answer.
#[derive(Debug, Deserialize)]
pub(super) struct ApiError {
    #[serde(default)]
    code: u64,
    #[serde(default)]
    pub(super) err_code: u64,
    #[serde(default)]
    description: String,
}

impl ApiError {
    const STREAM_NOT_FOUND: u64 = 10059;
    const NO_MESSAGE: u64 = 10037;

    /// The error in an answer, if it has one.
    pub(super) fn find(payload: &[u8]) -> Option<Self> {
        #[derive(Deserialize)]
        struct Answer {
            error: Option<ApiError>,
        }
        serde_json::from_slice::<Answer>(payload).ok()?.error
    }

    pub(super) fn check(payload: &[u8]) -> Answered<()> {
        Self::find(payload).map_or(Ok(()), |error| Err(error.failure()))
    }

    pub(super) fn failure(self) -> Failure {
        match (self.err_code, self.code) {
            (Self::STREAM_NOT_FOUND, _) => Failure::Missing,
            // 429, and everything that is the fault of the server.
            (_, 429 | 500..) => Failure::Unavailable(self.description),
            _ => Failure::Refused(self.description),
        }
    }
}

/// The answer of any replica: the message itself, with its place in headers.
pub(super) fn decode_direct(message: Message) -> Answered<Option<StoredMessage>> {
    match message.status.map(|it| it.as_u16()) {
        None => {}
        Some(404) => return Ok(None),
        Some(503) => return Err(Failure::NoResponders),
        Some(code) => {
            let text = message.description.unwrap_or_default();
            return Err(Failure::Unreachable(format!("status {code} {text}")));
        }
    }
    let headers = message.headers.unwrap_or_default();
    let strange = || Failure::Unreachable("a message does not say where it stands".to_owned());
    // Ours come first; what the server adds stands at the end, where nobody else can.
    let last = |name: &str| headers.get_all(name).last().map(ToString::to_string);
    let subject = last("Nats-Subject").ok_or_else(strange)?;
    let sequence = last("Nats-Sequence").and_then(|it| it.parse().ok()).ok_or_else(strange)?;
    Ok(Some(StoredMessage { subject, sequence, headers, payload: message.payload }))
}

/// The answer of the leader: JSON with the message in base64.
pub(super) fn decode_leader(payload: &[u8]) -> Answered<Option<StoredMessage>> {
    #[derive(Deserialize)]
    struct Answer {
        error: Option<ApiError>,
        message: Option<Message>,
    }
    #[derive(Deserialize)]
    struct Message {
        subject: String,
        seq: u64,
        #[serde(default)]
        hdrs: String,
        #[serde(default)]
        data: String,
    }
    let strange = |error: &dyn std::fmt::Display| Failure::Unreachable(error.to_string());
    let answer: Answer = serde_json::from_slice(payload).map_err(|it| strange(&it))?;
    if let Some(error) = answer.error {
        if error.err_code == ApiError::NO_MESSAGE {
            return Ok(None);
        }
        return Err(error.failure());
    }
    let message = answer.message.ok_or_else(|| strange(&"the answer has no message"))?;
    let headers = STANDARD.decode(message.hdrs).map_err(|it| strange(&it))?;
    let payload = STANDARD.decode(message.data).map_err(|it| strange(&it))?;
    Ok(Some(StoredMessage {
        subject: message.subject,
        sequence: message.seq,
        headers: headers_of(&String::from_utf8_lossy(&headers)),
        payload: payload.into(),
    }))
}

/// `NATS/1.0`, then a line for each header.
fn headers_of(text: &str) -> HeaderMap {
    let lines = text.lines().skip(1);
    let pairs = lines.filter_map(|line| line.split_once(':'));
    let mut headers = HeaderMap::new();
    for (name, value) in pairs.filter(|(name, _)| name.starts_with(OURS)) {
        headers.append(name, value.trim());
    }
    headers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answer_of_a_leader_is_read() {
        let hdrs = STANDARD.encode("NATS/1.0\r\nMillstream: 1 w\r\n\r\n");
        let text =
            format!(r#"{{"message":{{"subject":"a.b","seq":7,"hdrs":"{hdrs}","data":"e30="}}}}"#);
        let message = decode_leader(text.as_bytes()).unwrap().unwrap();
        assert_eq!((message.subject.as_str(), message.sequence), ("a.b", 7));
        assert_eq!(message.header("Millstream"), Some("1 w"));
        assert_eq!(message.payload, "{}");
    }

    #[test]
    fn nothing_found_is_no_error() {
        let text = r#"{"error":{"code":404,"err_code":10037,"description":"no message found"}}"#;
        assert!(decode_leader(text.as_bytes()).unwrap().is_none());
    }

    #[test]
    fn errors_and_garbage_are_told_apart() {
        let text = r#"{"error":{"code":404,"err_code":10059,"description":"x"}}"#;
        assert!(matches!(decode_leader(text.as_bytes()), Err(Failure::Missing)));
        let text = r#"{"error":{"code":503,"err_code":10008,"description":"x"}}"#;
        assert!(matches!(decode_leader(text.as_bytes()), Err(Failure::Unavailable(_))));
        for garbage in ["", "{}", "[]", r#"{"message":{"subject":"a","seq":1,"data":"%"}}"#] {
            assert!(matches!(decode_leader(garbage.as_bytes()), Err(Failure::Unreachable(_))));
        }
    }
}
