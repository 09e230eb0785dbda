//! Small helpers of the suite for messages.

use std::sync::Arc;
use std::time::Duration;

use crate::conformance::MessageSubject;
use crate::{
    Delivery, ErrorKind, Message, Publisher, Result, SessionReceiver, Settlement, Subscriber,
};

/// Most messages received at once.
pub(super) const MANY: usize = 100;
/// For so long nothing must come to be believed that nothing does.
pub(super) const MOMENT: Duration = Duration::from_millis(300);

/// `"a1 b1"` are messages of the sessions `a` and `b` with these ids.
pub(super) fn messages(text: &str) -> Vec<Message> {
    text.split_whitespace().map(message).collect()
}

pub(super) fn message(id: &str) -> Message {
    let session: String = id.chars().take(1).collect();
    Message::new(id, format!("body of {id}")).session(session)
}

#[track_caller]
pub(super) fn must<T>(outcome: Result<T>) -> T {
    outcome.unwrap_or_else(|error| panic!("{}", error.report()))
}

/// It must have been refused because the lock is gone; if not, `otherwise` says what is wrong.
#[track_caller]
pub(super) fn refused<T>(outcome: Result<T>, otherwise: &str) {
    let Err(error) = outcome else { panic!("{otherwise}") };
    assert_eq!(error.kind(), ErrorKind::PreconditionFailed, "{}", error.report());
}

/// A subscriber with a session and its first messages.
pub(super) struct Begun {
    pub(super) publisher: Arc<dyn Publisher>,
    pub(super) subscriber: Arc<dyn Subscriber>,
    pub(super) session: Box<dyn SessionReceiver>,
    pub(super) received: Vec<Delivery>,
}

/// Sends messages, and receives the first `count` of the session that is offered.
pub(super) async fn begin(subject: &dyn MessageSubject, sent: &str, count: usize) -> Begun {
    let publisher = subject.publisher().await;
    must(publisher.publish(messages(sent)).await);
    let subscriber = subject.subscriber().await;
    let session = accept(subject, &*subscriber).await;
    let received = receive(subject, &*session, count).await;
    Begun { publisher, subscriber, session, received }
}

/// The next session; there must be one.
pub(super) async fn accept(
    subject: &dyn MessageSubject,
    subscriber: &dyn Subscriber,
) -> Box<dyn SessionReceiver> {
    let accepted = must(subscriber.accept_session(subject.patience()).await);
    accepted.expect("a session with messages was not offered in time")
}

/// Messages of a session until there are `count`.
pub(super) async fn receive(
    subject: &dyn MessageSubject,
    session: &dyn SessionReceiver,
    count: usize,
) -> Vec<Delivery> {
    let mut received = Vec::new();
    while received.len() < count {
        let some = must(session.receive(count - received.len(), subject.patience()).await);
        let found = ids(&received);
        assert!(!some.is_empty(), "{count} messages were sent, {found:?} came in time");
        received.extend(some);
    }
    received
}

pub(super) async fn complete(session: &dyn SessionReceiver, deliveries: &[Delivery]) {
    must(session.settle(deliveries, Settlement::Complete).await);
}

pub(super) fn ids(deliveries: &[Delivery]) -> String {
    let ids: Vec<&str> = deliveries.iter().map(|it| it.message.id.as_str()).collect();
    ids.join(" ")
}

/// Receives and completes until `count` messages are done; their ids as they came.
pub(super) async fn drain(
    subject: &dyn MessageSubject,
    subscriber: &dyn Subscriber,
    count: usize,
) -> Vec<String> {
    let mut found = Vec::new();
    while found.len() < count {
        let session = accept(subject, subscriber).await;
        let received = must(session.receive(MANY, MOMENT).await);
        found.extend(received.iter().map(|it| it.message.id.clone()));
        complete(&*session, &received).await;
        must(session.close().await);
    }
    found
}

/// Nothing comes.
pub(super) async fn nothing(subscriber: &dyn Subscriber) {
    if let Some(session) = must(subscriber.accept_session(MOMENT).await) {
        let received = must(session.receive(MANY, MOMENT).await);
        panic!("{:?} came although everything was done", ids(&received));
    }
}

/// The ids of one session, in the order they came.
pub(super) fn of_session(found: &[String], session: char) -> String {
    let of_it: Vec<&str> =
        found.iter().filter(|it| it.starts_with(session)).map(String::as_str).collect();
    of_it.join(" ")
}
