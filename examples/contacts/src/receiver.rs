use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use millstream_core::{Clock, Timestamp};
use millstream_webhook::Signer;

use crate::Tally;
use crate::http::problem::Problem;

/// Most ids, and most keys, that are remembered.
const REMEMBERED_MAX: usize = 100_000;
/// Largest body.
const BODY_BYTES_MAX: usize = 1024 * 1024;
/// How far the clocks of sender and receiver may be apart.
const TOLERANCE: Duration = Duration::from_secs(5 * 60);

/// Receives what a webhook posts to `/hook`: checks the signature and remembers ids, so that a
/// repeated message counts once. Clones share what they remember.
///
/// It stands for a function that somebody else runs. What it remembers is gone when it stops; a
/// consumer that must not repeat an effect keeps an inbox as [`crate::SearchProjection`] does.
#[derive(Clone, Debug)]
pub struct WebhookReceiver {
    signer: Option<Signer>,
    clock: Arc<dyn Clock>,
    seen: Arc<Mutex<Seen>>,
    tally: Tally<ReceiverStatistics>,
}

/// What a receiver has received so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReceiverStatistics {
    /// Messages, each counted once.
    pub received: u64,
    /// Messages that came again.
    pub duplicates: u64,
    /// Messages that came after a later one of the same key, or with others missing before them.
    pub out_of_order: u64,
    /// Posts without a valid signature.
    pub refused: u64,
}

#[derive(Debug, Default)]
struct Seen {
    ids: BTreeSet<String>,
    /// The same ids, the oldest first.
    order: VecDeque<String>,
    /// The last number of each key.
    sequences: BTreeMap<String, u64>,
}

impl WebhookReceiver {
    /// A receiver that takes posts signed by `signer`, or all posts without one.
    #[must_use]
    pub fn new(signer: Option<Signer>, clock: Arc<dyn Clock>) -> Self {
        Self { signer, clock, seen: Arc::default(), tally: Tally::default() }
    }

    /// The route `POST /hook`.
    pub fn router(&self) -> Router {
        Router::new()
            .route("/hook", post(hook))
            .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
            .with_state(self.clone())
    }

    /// What it has received.
    #[must_use]
    pub fn statistics(&self) -> Tally<ReceiverStatistics> {
        self.tally.clone()
    }

    fn take(&self, headers: &HeaderMap, body: &[u8]) -> Result<(), Problem> {
        let Some(id) = text(headers, "webhook-id").filter(|it| !it.is_empty()) else {
            return Err(Problem::bad_request("the header webhook-id is missing"));
        };
        if !self.is_signed(headers, id, body) {
            self.tally.count(|it| it.refused += 1);
            let sentence = "the signature is missing or wrong, or the clocks are apart";
            return Err(Problem::new(StatusCode::UNAUTHORIZED, sentence));
        }
        let key = text(headers, "ce-partitionkey");
        let sequence = text(headers, "ce-sequence").and_then(|it| it.parse().ok());
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if !seen.is_new(id) {
            self.tally.count(|it| it.duplicates += 1);
            return Ok(());
        }
        let in_order = key.zip(sequence).is_none_or(|(key, number)| seen.follows(key, number));
        drop(seen);
        self.tally.count(|it| {
            it.received += 1;
            it.out_of_order += u64::from(!in_order);
        });
        Ok(())
    }

    fn is_signed(&self, headers: &HeaderMap, id: &str, body: &[u8]) -> bool {
        let Some(signer) = &self.signer else {
            return true;
        };
        let seconds = text(headers, "webhook-timestamp").and_then(|it| it.parse::<u64>().ok());
        let (Some(signature), Some(seconds)) = (text(headers, "webhook-signature"), seconds) else {
            return false;
        };
        let time = Timestamp::from_millis(seconds.saturating_mul(1000));
        let now = self.clock.now();
        let apart = now.since(time).max(time.since(now));
        apart <= TOLERANCE && signer.verify(signature, id, time, body)
    }
}

impl Seen {
    /// Whether the id was not seen before; it is from now on.
    fn is_new(&mut self, id: &str) -> bool {
        if !self.ids.insert(id.to_owned()) {
            return false;
        }
        self.order.push_back(id.to_owned());
        if REMEMBERED_MAX < self.order.len()
            && let Some(oldest) = self.order.pop_front()
        {
            self.ids.remove(&oldest);
        }
        true
    }

    /// Whether a number is the one after the last of its key, or the first that is seen.
    fn follows(&mut self, key: &str, number: u64) -> bool {
        let last = self.sequences.get(key).copied();
        if last.is_none() && REMEMBERED_MAX <= self.sequences.len() {
            self.sequences.pop_first();
        }
        self.sequences.insert(key.to_owned(), last.map_or(number, |it| it.max(number)));
        last.is_none_or(|it| number == it + 1)
    }
}

async fn hook(
    State(receiver): State<WebhookReceiver>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    match receiver.take(&headers, &body) {
        Ok(()) => StatusCode::NO_CONTENT.into_response(),
        Err(problem) => problem.into_response(),
    }
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name).and_then(|it| it.to_str().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_so_many_ids_are_remembered() {
        let mut seen = Seen::default();
        for number in 0..=REMEMBERED_MAX {
            assert!(seen.is_new(&number.to_string()));
        }
        assert_eq!(seen.ids.len(), REMEMBERED_MAX);
        assert!(!seen.is_new("1"), "it is remembered");
        assert!(seen.is_new("0"), "it is forgotten");
    }

    #[test]
    fn numbers_follow_each_other_per_key() {
        let mut seen = Seen::default();
        for (key, number, expected) in
            [("a", 1, true), ("b", 7, true), ("a", 2, true), ("a", 4, false), ("a", 3, false)]
        {
            assert_eq!(seen.follows(key, number), expected, "{key} {number}");
        }
        assert!(seen.follows("a", 5));
    }
}
