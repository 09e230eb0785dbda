use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::{Request, StatusCode};
use contacts::{ReceiverStatistics, WebhookReceiver};
use millstream_core::{Clock, ManualClock, Timestamp};
use millstream_webhook::Signer;
use tower::ServiceExt;

use crate::world::START;

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const BODY: &str = r#"{"action":"ContactCreated"}"#;

async fn post(receiver: &WebhookReceiver, headers: &[(&str, String)]) -> StatusCode {
    let mut request = Request::builder().method("POST").uri("/hook");
    for (name, value) in headers {
        request = request.header(*name, value);
    }
    let request = request.body(Body::from(BODY)).unwrap();
    receiver.router().oneshot(request).await.unwrap().status()
}

fn signed(id: &str, time: Timestamp) -> Vec<(&'static str, String)> {
    let signer = Signer::new(SECRET).unwrap();
    vec![
        ("webhook-id", id.to_owned()),
        ("webhook-timestamp", (time.as_millis() / 1000).to_string()),
        ("webhook-signature", signer.sign(id, time, BODY.as_bytes())),
    ]
}

fn receiver() -> (WebhookReceiver, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::starting_at(START));
    (WebhookReceiver::new(Some(Signer::new(SECRET).unwrap()), clock.clone()), clock)
}

#[tokio::test]
async fn a_signed_message_is_taken_and_a_duplicate_counted() {
    let (receiver, clock) = receiver();
    for id in ["1", "2", "1"] {
        assert_eq!(post(&receiver, &signed(id, clock.now())).await, 204);
    }
    let expected = ReceiverStatistics { received: 2, duplicates: 1, ..Default::default() };
    assert_eq!(receiver.statistics().get(), expected);
}

#[tokio::test]
async fn a_signature_that_is_missing_wrong_or_old_is_refused() {
    let (receiver, clock) = receiver();
    let now = clock.now();
    let unsigned = &signed("1", now)[..1];
    assert_eq!(post(&receiver, unsigned).await, 401);
    let mut wrong = signed("1", now);
    wrong[0].1 = "2".to_owned();
    assert_eq!(post(&receiver, &wrong).await, 401);
    let old = signed("1", now);
    clock.advance(Duration::from_secs(301));
    assert_eq!(post(&receiver, &old).await, 401);
    let ahead = signed("1", clock.now().plus(Duration::from_secs(302)));
    assert_eq!(post(&receiver, &ahead).await, 401);
    assert_eq!(post(&receiver, &[]).await, 400);
    let expected = ReceiverStatistics { refused: 4, ..Default::default() };
    assert_eq!(receiver.statistics().get(), expected);
}

#[tokio::test]
async fn messages_out_of_order_are_counted() {
    let clock = Arc::new(ManualClock::starting_at(START));
    let receiver = WebhookReceiver::new(None, clock);
    for (id, sequence) in [("1", "1"), ("2", "2"), ("4", "4"), ("3", "3")] {
        let headers = [
            ("webhook-id", id.to_owned()),
            ("ce-partitionkey", "a".to_owned()),
            ("ce-sequence", sequence.to_owned()),
        ];
        assert_eq!(post(&receiver, &headers).await, 204);
    }
    let expected = ReceiverStatistics { received: 4, out_of_order: 2, ..Default::default() };
    assert_eq!(receiver.statistics().get(), expected);
}
