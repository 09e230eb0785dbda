//! Publishing several messages whole or not at all.

use async_nats::HeaderMap;
use async_nats::client::Request;
use bytes::Bytes;
use serde::Deserialize;

use crate::wire::answers::ApiError;
use crate::wire::{Failure, Wire, failure, set};

/// A message on its way.
#[derive(Clone, Debug)]
pub(crate) struct Outgoing {
    pub(crate) subject: String,
    pub(crate) headers: HeaderMap,
    pub(crate) payload: Bytes,
}

impl Outgoing {
    /// Makes it conditional on the sequence of the newest message of its subject; 0 if there must
    /// be none.
    pub(crate) fn expecting(mut self, sequence: u64) -> Self {
        set(&mut self.headers, "Nats-Expected-Last-Subject-Sequence", sequence.to_string());
        self
    }

    /// Makes it conditional on the newest message of another subject.
    pub(crate) fn expecting_of(mut self, subject: &str, sequence: u64) -> Self {
        set(&mut self.headers, "Nats-Expected-Last-Subject-Sequence-Subject", subject);
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
        let mut last = last.clone();
        if !others.is_empty() {
            for (place, message) in others.iter().enumerate() {
                let Outgoing { subject, mut headers, payload } = message.clone();
                set(&mut headers, "Nats-Batch-Id", attempt);
                set(&mut headers, "Nats-Batch-Sequence", (place + 1).to_string());
                let sent = self.client().publish_with_headers(subject, headers, payload).await;
                if let Err(error) = sent {
                    // Without the last one nothing is stored.
                    return Published::NotNow(error.to_string());
                }
            }
            set(&mut last.headers, "Nats-Batch-Id", attempt);
            set(&mut last.headers, "Nats-Batch-Sequence", messages.len().to_string());
            set(&mut last.headers, "Nats-Batch-Commit", "1");
        }
        let request = Request::new().headers(last.headers).payload(last.payload);
        match self.client().send_request(last.subject, request).await.map_err(|it| failure(&it)) {
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
