//! Publishing several messages whole or not at all.

use async_nats::client::Request;
use async_nats::{HeaderMap, HeaderName};
use bytes::Bytes;
use serde::Deserialize;

use crate::wire::answers::ApiError;
use crate::wire::{Failure, Wire, failure};

/// The headers of a message on its way, each once. They hold nothing that would need escaping.
#[derive(Clone, Debug, Default)]
pub(crate) struct Headers(Vec<(&'static str, String)>);

impl Headers {
    pub(crate) fn set(&mut self, name: &'static str, value: impl Into<String>) {
        self.0.push((name, value.into()));
    }

    #[cfg(test)]
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(it, _)| *it == name).map(|(_, value)| value.as_str())
    }

    /// As the client wants them, which takes much more time to make, to copy and to drop.
    fn to_map(&self) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in &self.0 {
            map.insert(HeaderName::from_static(name), value.as_str());
        }
        map
    }
}

/// A message on its way.
#[derive(Clone, Debug)]
pub(crate) struct Outgoing {
    pub(crate) subject: String,
    pub(crate) headers: Headers,
    pub(crate) payload: Bytes,
}

impl Outgoing {
    /// Makes it conditional on the sequence of the newest message of its subject; 0 if there must
    /// be none.
    pub(crate) fn expecting(mut self, sequence: u64) -> Self {
        self.headers.set("Nats-Expected-Last-Subject-Sequence", sequence.to_string());
        self
    }

    /// Makes it conditional on the newest message of another subject.
    pub(crate) fn expecting_of(mut self, subject: &str, sequence: u64) -> Self {
        self.headers.set("Nats-Expected-Last-Subject-Sequence-Subject", subject);
        self.expecting(sequence)
    }
}

/// What became of an attempt.
#[derive(Debug)]
pub(crate) enum Published {
    /// Stored; the sequence of the last message.
    Stored(u64),
    /// Something else was stored there in the meantime. Nothing happened.
    Conflict,
    /// The server has too much to do, or no leader, or lost part of the batch. Nothing happened.
    NotNow(String),
    /// The stream does not exist, or nobody listens for it now. Nothing happened.
    Nobody,
    /// The server will never take it. Nothing happened.
    Refused(String),
    /// It may have happened.
    Unknown(String),
}

/// Codes of the server: of one message, and within a batch.
const WRONG_LAST_SEQUENCE: [u64; 2] = [10071, 10164];
/// Part of the batch did not arrive at this leader, or there were too many batches at a time.
const NOT_NOW: [u64; 2] = [10176, 10210];

impl Wire {
    /// Publishes one message, or several in one atomic batch called `attempt`.
    ///
    /// All but the last go out without waiting for an answer: a server that misses one of them
    /// refuses the last.
    pub(crate) async fn publish(&self, attempt: &str, messages: &[Outgoing]) -> Published {
        let Some((last, others)) = messages.split_last() else {
            return Published::Refused("a batch holds no message".to_owned());
        };
        let headers_at = |message: &Outgoing, place: usize| {
            let mut headers = message.headers.to_map();
            if !others.is_empty() {
                headers.insert(HeaderName::from_static("Nats-Batch-Id"), attempt);
                let place = place.to_string();
                headers.insert(HeaderName::from_static("Nats-Batch-Sequence"), place);
            }
            headers
        };
        for (index, message) in others.iter().enumerate() {
            let (subject, payload) = (message.subject.clone(), message.payload.clone());
            let headers = headers_at(message, index + 1);
            let sent = self.client().publish_with_headers(subject, headers, payload).await;
            if let Err(error) = sent {
                // Without the last one nothing is stored.
                return Published::NotNow(error.to_string());
            }
        }
        let mut headers = headers_at(last, messages.len());
        if !others.is_empty() {
            headers.insert(HeaderName::from_static("Nats-Batch-Commit"), "1");
        }
        let request = Request::new().headers(headers).payload(last.payload.clone());
        let answer = self.client().send_request(last.subject.clone(), request).await;
        match answer.map_err(|it| failure(&it)) {
            Ok(answer) => published(&answer.payload),
            Err(Failure::NoResponders) => Published::Nobody,
            Err(
                Failure::Missing
                | Failure::Unreachable(_)
                | Failure::Unavailable(_)
                | Failure::Refused(_),
            ) => Published::Unknown("no answer came in time".to_owned()),
        }
    }
}

fn published(payload: &[u8]) -> Published {
    #[derive(Deserialize)]
    struct Stored {
        seq: u64,
    }
    if let Some(error) = ApiError::find(payload) {
        if WRONG_LAST_SEQUENCE.contains(&error.err_code) {
            return Published::Conflict;
        }
        if NOT_NOW.contains(&error.err_code) {
            return Published::NotNow("the server lost or refused part of the batch".to_owned());
        }
        return match error.failure() {
            Failure::Missing | Failure::NoResponders => Published::Nobody,
            Failure::Refused(reason) => Published::Refused(reason),
            // A server that is out of order may have passed the batch on.
            Failure::Unreachable(reason) | Failure::Unavailable(reason) => {
                Published::Unknown(reason)
            }
        };
    }
    match serde_json::from_slice::<Stored>(payload) {
        Ok(stored) => Published::Stored(stored.seq),
        Err(error) => Published::Unknown(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(answer: &str, expected: &str) {
        assert_eq!(format!("{:?}", published(answer.as_bytes())), expected, "{answer}");
    }

    #[test]
    fn an_answer_says_what_became_of_a_batch() {
        check(r#"{"stream":"s","seq":9,"batch":"b","count":2}"#, "Stored(9)");
        let error = |code: u64, status: u64| {
            format!(r#"{{"error":{{"code":{status},"err_code":{code},"description":"x"}}}}"#)
        };
        check(&error(10071, 400), "Conflict");
        check(&error(10164, 400), "Conflict");
        let lost = "NotNow(\"the server lost or refused part of the batch\")";
        check(&error(10176, 400), lost);
        check(&error(10210, 429), lost);
        check(&error(10059, 404), "Nobody");
        check(&error(10054, 400), "Refused(\"x\")");
        check(&error(10008, 503), "Unknown(\"x\")");
    }
}
