use std::time::Duration;

use futures_util::future::{join, join_all};

use crate::conformance::MessageSubject;
use crate::conformance::messages::harness::{
    Begun, MANY, MOMENT, accept, begin, complete, drain, ids, message, messages, must, nothing,
    receive, refused,
};
use crate::{ErrorKind, Settlement};

pub(super) async fn subscriber_1_a_session_has_one_receiver(subject: &dyn MessageSubject) {
    let publisher = subject.publisher().await;
    must(publisher.publish(messages("a1 b1 a2")).await);
    let subscriber = subject.subscriber().await;
    let first = accept(subject, &*subscriber).await;
    let second = accept(subject, &*subscriber).await;
    assert_ne!(first.session_id(), second.session_id(), "a session has two receivers");
    // Messages that come while it has a receiver are for that receiver.
    must(publisher.publish(messages("a3 b2")).await);
    let third = must(subscriber.accept_session(MOMENT).await);
    assert!(third.is_none(), "a session has two receivers");
    let (a, b) = if first.session_id() == "a" { (first, second) } else { (second, first) };
    assert_eq!(ids(&receive(subject, &*a, 3).await), "a1 a2 a3");
    assert_eq!(ids(&receive(subject, &*b, 2).await), "b1 b2");
}

pub(super) async fn subscriber_1_subscribers_share_without_breaking_the_order(
    subject: &dyn MessageSubject,
) {
    const SESSIONS: usize = 20;
    const OF_EACH: usize = 10;
    let publisher = subject.publisher().await;
    let subscribers = [subject.subscriber().await, subject.subscriber().await];
    let sending = async {
        for number in 1..=OF_EACH {
            let sessions = (0..SESSIONS).map(|it| {
                let id = format!("s{it}-{number}");
                message(&id).session(format!("s{it}"))
            });
            must(publisher.publish(sessions.collect()).await);
        }
    };
    let done = std::sync::Mutex::new(Vec::new());
    let count = || done.lock().map(|it| it.len()).unwrap_or_default();
    let receiving = subscribers.iter().map(|subscriber| {
        let done = &done;
        async move {
            let mut idle = 0;
            while count() < SESSIONS * OF_EACH {
                let Some(session) = must(subscriber.accept_session(MOMENT).await) else {
                    idle += 1;
                    let waited = MOMENT * idle;
                    assert!(waited < subject.patience() * 3, "{} messages came", count());
                    continue;
                };
                let received = must(session.receive(3, Duration::ZERO).await);
                match session.settle(&received, Settlement::Complete).await {
                    Ok(()) => {
                        let found = received.iter().map(|it| it.message.id.clone());
                        done.lock().expect("nobody panics with it").extend(found);
                    }
                    // It was taken away while lanes were shared out anew; it comes again.
                    Err(error) => assert_eq!(error.kind(), ErrorKind::PreconditionFailed),
                }
                let _ = session.close().await;
            }
        }
    });
    join(sending, join_all(receiving)).await;
    let done = done.into_inner().expect("nobody panics with it");
    assert_eq!(done.len(), SESSIONS * OF_EACH, "a message came twice");
    for session in 0..SESSIONS {
        let prefix = format!("s{session}-");
        let found: Vec<&String> = done.iter().filter(|it| it.starts_with(&prefix)).collect();
        let expected: Vec<String> = (1..=OF_EACH).map(|it| format!("{prefix}{it}")).collect();
        assert_eq!(found, expected.iter().collect::<Vec<_>>());
    }
}

pub(super) async fn subscriber_1_a_receiver_waits_for_messages(subject: &dyn MessageSubject) {
    let publisher = subject.publisher().await;
    let subscriber = subject.subscriber().await;
    let waiting = accept(subject, &*subscriber);
    let (session, ()) =
        join(waiting, async { must(publisher.publish(messages("a1")).await) }).await;
    complete(&*session, &receive(subject, &*session, 1).await).await;
    let waiting = receive(subject, &*session, 1);
    let (received, ()) =
        join(waiting, async { must(publisher.publish(messages("a2")).await) }).await;
    assert_eq!(ids(&received), "a2");
    complete(&*session, &received).await;
    assert!(must(session.receive(MANY, MOMENT).await).is_empty());
}

pub(super) async fn subscriber_2_an_abandoned_message_comes_again_first(
    subject: &dyn MessageSubject,
) {
    let Begun { subscriber, session, received, .. } = begin(subject, "a1 a2 a3", 1).await;
    must(session.settle(&received, Settlement::Abandon).await);
    let late = session.settle(&received, Settlement::Complete).await;
    refused(late, "a delivery that is over was settled");
    let again = receive(subject, &*session, 3).await;
    assert_eq!(ids(&again), "a1 a2 a3");
    assert_eq!((again[0].delivery_count, again[1].delivery_count), (2, 1));
    complete(&*session, &again).await;
    must(session.close().await);
    nothing(&*subscriber).await;
}

pub(super) async fn subscriber_2_a_closed_session_goes_on_where_it_was(
    subject: &dyn MessageSubject,
) {
    let Begun { subscriber, session, received, .. } = begin(subject, "a1 a2 a3 a4", 3).await;
    complete(&*session, &received[..1]).await;
    must(session.close().await);
    let late = session.settle(&received[1..], Settlement::Complete).await;
    refused(late, "a session that was closed settles");
    assert_eq!(drain(subject, &*subscriber, 3).await, ["a2", "a3", "a4"]);
}

pub(super) async fn subscriber_2_a_deferred_message_steps_aside(subject: &dyn MessageSubject) {
    let Begun { subscriber, session, received, .. } = begin(subject, "a1 a2", 1).await;
    must(session.settle(&received, Settlement::Defer).await);
    let next = receive(subject, &*session, 1).await;
    assert_eq!(ids(&next), "a2");
    complete(&*session, &next).await;
    must(session.close().await);
    nothing(&*subscriber).await;
    assert!(subject.dead_letters().await.is_empty(), "a deferred message is no dead letter");
}

pub(super) async fn subscriber_3_a_completed_message_does_not_come_again(
    subject: &dyn MessageSubject,
) {
    let publisher = subject.publisher().await;
    must(publisher.publish(messages("a1 b1 a2 b2 a3")).await);
    let subscriber = subject.subscriber().await;
    let first = accept(subject, &*subscriber).await;
    let count = if first.session_id() == "a" { 2 } else { 1 };
    let received = receive(subject, &*first, count).await;
    complete(&*first, &received).await;
    drop(first);
    subject.crash().await;
    let subscriber = subject.subscriber().await;
    let mut found = drain(subject, &*subscriber, 5 - count).await;
    found.extend(received.iter().map(|it| it.message.id.clone()));
    found.sort_unstable();
    assert_eq!(found, ["a1", "a2", "a3", "b1", "b2"]);
    nothing(&*subscriber).await;
}
