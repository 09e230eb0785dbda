use futures_util::future::join;

use crate::Settlement;
use crate::conformance::MessageSubject;
use crate::conformance::messages::harness::{
    Begun, MANY, accept, begin, complete, drain, ids, messages, must, nothing, receive, refused,
};

pub(super) async fn subscriber_4_a_lock_that_is_not_renewed_ends(subject: &dyn MessageSubject) {
    let Begun { subscriber, session, received, .. } = begin(subject, "a1 a2", 2).await;
    complete(&*session, &received[..1]).await;
    // The session is offered again, which is how everybody hears that the lock has ended.
    let next = accept(subject, &*subscriber).await;
    let late = session.settle(&received[1..], Settlement::Complete).await;
    refused(late, "a message was settled after its lock had ended");
    refused(session.renew().await, "a lock that has ended was renewed");
    let again = receive(subject, &*next, 1).await;
    assert_eq!((ids(&again), again[0].delivery_count), ("a2".to_owned(), 2));
    complete(&*next, &again).await;
    must(next.close().await);
    nothing(&*subscriber).await;
}

pub(super) async fn subscriber_4_a_renewed_lock_stays(subject: &dyn MessageSubject) {
    let Begun { subscriber, session, received, .. } = begin(subject, "a1", 1).await;
    let pause = subject.lock_duration() / 3;
    let holding = async {
        for _ in 0..6 {
            // Nothing else comes in this session, so this waits.
            assert!(must(session.receive(MANY, pause).await).is_empty());
            must(session.renew().await);
        }
    };
    let (other, ()) = join(subscriber.accept_session(pause * 6), holding).await;
    assert!(must(other).is_none(), "a session whose lock was renewed has two receivers");
    complete(&*session, &received).await;
}

pub(super) async fn subscriber_4_what_a_dead_receiver_had_comes_again_in_order(
    subject: &dyn MessageSubject,
) {
    let Begun { publisher, subscriber, session, received } = begin(subject, "a1 a2 a3 a4", 3).await;
    complete(&*session, &received[..1]).await;
    subject.crash().await;
    drop((session, subscriber));
    must(publisher.publish(messages("a5")).await);
    let subscriber = subject.subscriber().await;
    assert_eq!(drain(subject, &*subscriber, 4).await, ["a2", "a3", "a4", "a5"]);
    nothing(&*subscriber).await;
}

pub(super) async fn subscriber_4_a_late_settlement_is_refused(subject: &dyn MessageSubject) {
    let Begun { subscriber: _first, session, received, .. } = begin(subject, "a1 a2", 1).await;
    subject.crash().await;
    let other = subject.subscriber().await;
    let next = accept(subject, &*other).await;
    let again = receive(subject, &*next, 1).await;
    assert_eq!(ids(&again), "a1");
    // The first receiver does not know that it is dead.
    let late = session.settle(&received, Settlement::Complete).await;
    refused(late, "a message was settled that somebody else has");
    must(next.settle(&again, Settlement::Abandon).await);
    let again = receive(subject, &*next, 2).await;
    assert_eq!(ids(&again), "a1 a2");
    complete(&*next, &again).await;
}

pub(super) async fn subscriber_5_a_dead_letter_keeps_its_reason(subject: &dyn MessageSubject) {
    let Begun { subscriber, session, received, .. } = begin(subject, "a1 a2", 1).await;
    let (reason, description) = ("Unknown \u{e9}".to_owned(), "cannot be read".to_owned());
    must(session.settle(&received, Settlement::DeadLetter { reason, description }).await);
    let next = receive(subject, &*session, 1).await;
    assert_eq!(ids(&next), "a2");
    complete(&*session, &next).await;
    must(session.close().await);
    nothing(&*subscriber).await;
    let expected = [("a1".to_owned(), "Unknown \u{e9}".to_owned())];
    assert_eq!(subject.dead_letters().await, expected);
}

pub(super) async fn subscriber_5_what_fails_too_often_is_a_dead_letter(
    subject: &dyn MessageSubject,
) {
    let publisher = subject.publisher().await;
    must(publisher.publish(messages("a1 a2")).await);
    let subscriber = subject.subscriber().await;
    let session = accept(subject, &*subscriber).await;
    for count in 1..=subject.delivery_count_max() {
        must(session.renew().await);
        let received = receive(subject, &*session, 1).await;
        assert_eq!((ids(&received), received[0].delivery_count), ("a1".to_owned(), count));
        must(session.settle(&received, Settlement::Abandon).await);
    }
    let next = receive(subject, &*session, 1).await;
    assert_eq!(ids(&next), "a2");
    complete(&*session, &next).await;
    let found = subject.dead_letters().await;
    let expected = [("a1".to_owned(), "MaxDeliveryCountExceeded".to_owned())];
    assert_eq!(found, expected);
}
