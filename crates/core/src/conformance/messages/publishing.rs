use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;

use crate::conformance::MessageSubject;
use crate::conformance::messages::harness::{
    MOMENT, accept, complete, drain, message, messages, must, nothing, of_session, receive,
};
use crate::{ErrorKind, Message, PropertyValue, Timestamp};

pub(super) async fn publisher_1_a_message_comes_as_it_was_sent(subject: &dyn MessageSubject) {
    let mut sent = Message::new("id \u{2603}\"%41", Bytes::from_static(&[0, 255, 13, 10]))
        .session("a session \u{e9}")
        .subject("Contact Created")
        .content_type("application/json; charset=utf-8")
        .property("cloudEvents:id", "1")
        .property("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
        .property("true", true)
        .property("integer", i64::MIN)
        .property("double", 0.1)
        .property("text", " \u{1f600}:\r\n")
        .property("time", Timestamp::from_millis(1_700_000_000_000))
        .property("bytes", PropertyValue::Binary(Bytes::from_static(&[0, 200])));
    sent.correlation_id = Some("correlation".to_owned());
    sent.to = Some("to".to_owned());
    sent.reply_to = Some("reply".to_owned());
    sent.reply_to_session_id = Some("session".to_owned());
    sent.time_to_live = Some(Duration::from_secs(3600));
    let publisher = subject.publisher().await;
    must(publisher.publish(vec![sent.clone()]).await);
    let subscriber = subject.subscriber().await;
    let session = accept(subject, &*subscriber).await;
    assert_eq!(session.session_id(), "a session \u{e9}");
    let received = receive(subject, &*session, 1).await;
    assert_eq!(received[0].message, sent);
    assert_eq!(received[0].delivery_count, 1, "it was given out for the first time");
    complete(&*session, &received).await;
    must(session.close().await);
    nothing(&*subscriber).await;
}

pub(super) async fn publisher_2_a_session_keeps_the_order_of_calls(subject: &dyn MessageSubject) {
    let publisher = subject.publisher().await;
    must(publisher.publish(messages("a1 b1 a2 c1 b2 a3")).await);
    must(publisher.publish(messages("c2 a4")).await);
    must(publisher.publish(messages("b3")).await);
    let subscriber = subject.subscriber().await;
    let found = drain(subject, &*subscriber, 9).await;
    assert_eq!(of_session(&found, 'a'), "a1 a2 a3 a4");
    assert_eq!(of_session(&found, 'b'), "b1 b2 b3");
    assert_eq!(of_session(&found, 'c'), "c1 c2");
    nothing(&*subscriber).await;
}

pub(super) async fn publisher_2_calls_at_the_same_time_keep_their_order(
    subject: &dyn MessageSubject,
) {
    let publisher = subject.publisher().await;
    let senders = ["a", "b", "c", "d"].map(|session| {
        let publisher = &publisher;
        async move {
            for call in 0..10 {
                let ids = (0..5).map(|it| format!("{session}{}", call * 5 + it + 1));
                let messages = ids.map(|it| message(&it)).collect();
                must(publisher.publish(messages).await);
            }
        }
    });
    join_all(senders).await;
    let subscriber = subject.subscriber().await;
    let found = drain(subject, &*subscriber, 200).await;
    for session in ['a', 'b', 'c', 'd'] {
        let expected: Vec<String> = (1..=50).map(|it| format!("{session}{it}")).collect();
        assert_eq!(of_session(&found, session), expected.join(" "));
    }
}

pub(super) async fn publisher_3_the_same_ids_again_are_offered_once(subject: &dyn MessageSubject) {
    let publisher = subject.publisher().await;
    must(publisher.publish(messages("a1 a2 b1")).await);
    // A caller that heard nothing sends the same again, in other portions.
    must(publisher.publish(messages("a1 a2 b1")).await);
    must(publisher.publish(messages("a2 a3 b1 b2")).await);
    must(publisher.publish(messages("a1")).await);
    must(publisher.publish(messages("a3 a4")).await);
    let subscriber = subject.subscriber().await;
    let found = drain(subject, &*subscriber, 6).await;
    assert_eq!(of_session(&found, 'a'), "a1 a2 a3 a4");
    assert_eq!(of_session(&found, 'b'), "b1 b2");
    nothing(&*subscriber).await;
    // Being done with does not make an id new.
    must(publisher.publish(messages("a1 b2")).await);
    nothing(&*subscriber).await;
}

pub(super) async fn publisher_4_what_cannot_be_kept_is_named(subject: &dyn MessageSubject) {
    let publisher = subject.publisher().await;
    let limits = publisher.limits();
    let large = Message::new("a2", vec![b'x'; limits.message_bytes_max + 1]).session("a");
    let cases = [
        (Message::new("", "no id").session("a"), ErrorKind::Invalid),
        (Message::new("x".repeat(129), "a long id").session("a"), ErrorKind::Invalid),
        (large, ErrorKind::TooLarge),
    ];
    for (bad, kind) in cases {
        let call = vec![message("a1"), bad, message("a3")];
        let Err(error) = publisher.publish(call).await else {
            panic!("a message that cannot be kept was taken");
        };
        assert_eq!(error.kind(), kind, "{}", error.report());
        assert_eq!(error.operation(), Some(1), "the message is not named");
    }
    must(publisher.publish(messages("a1")).await);
    let subscriber = subject.subscriber().await;
    assert_eq!(drain(subject, &*subscriber, 1).await, ["a1"]);
    nothing(&*subscriber).await;
    let session = must(subscriber.accept_session(MOMENT).await);
    assert!(session.is_none());
}
