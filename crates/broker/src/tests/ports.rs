use std::time::Duration;

use futures_lite::future::zip;
use millstream_core::{ErrorKind, Message, Publisher, Settlement, Subscriber};
use tokio_util::sync::CancellationToken;

use crate::tests::world::{World, ids, messages, take};
use crate::{QueueSettings, SubscriptionSettings, TopicSettings};

const ZERO: Duration = Duration::ZERO;

#[test]
fn a_publisher_and_a_subscriber_keep_sessions_in_order() {
    let world = World::new();
    world.run(async |broker| {
        broker.create_topic("t", TopicSettings::default()).await.unwrap();
        let settings = SubscriptionSettings::with_sessions();
        broker.create_subscription("t", "s", settings).await.unwrap();
        let publisher = broker.publisher("t");
        assert_eq!(publisher.limits().batch_messages_max, 1000);
        let subscriber = broker.subscriber("t/Subscriptions/s");
        assert!(subscriber.accept_session(ZERO).await.unwrap().is_none());
        let waiting = subscriber.accept_session(Duration::from_secs(5));
        let (session, sent) = zip(waiting, publisher.publish(messages("a1 b1 a2"))).await;
        sent.unwrap();
        let session = session.unwrap().unwrap();
        assert_eq!(session.session_id(), "a");
        let deliveries = session.receive(9, ZERO).await.unwrap();
        assert_eq!(deliveries.len(), 2);
        session.renew().await.unwrap();
        session.settle(&deliveries[..1], Settlement::Complete).await.unwrap();
        session.settle(&deliveries[1..], Settlement::Abandon).await.unwrap();
        let again = session.receive(9, ZERO).await.unwrap();
        assert_eq!((again[0].message.id.as_str(), again[0].delivery_count), ("a2", 2));
        let (more, sent) =
            zip(session.receive(9, Duration::from_secs(5)), publisher.publish(messages("a3")))
                .await;
        sent.unwrap();
        assert_eq!(more.unwrap()[0].message.id, "a3");
        world.wait(60);
        let lost = session.settle(&again, Settlement::Complete).await.unwrap_err();
        assert_eq!(lost.kind(), ErrorKind::PreconditionFailed);
        let next = subscriber.accept_session(ZERO).await.unwrap().unwrap();
        assert_eq!(next.session_id(), "b");
        next.close().await.unwrap();
    });
}

#[test]
fn a_receiver_that_waits_hears_of_the_end_of_its_session() {
    let world = World::new();
    world.run(async |broker| {
        broker.create_queue("q", QueueSettings::with_sessions()).await.unwrap();
        let session = broker.accept_session("q", Some("s"), ZERO).await.unwrap().unwrap();
        let waiting =
            session.receive_with(crate::ReceiveMode::PeekLock, 1, Duration::from_secs(600));
        let (lost, ()) = zip(waiting, async {
            futures_lite::future::yield_now().await;
            world.wait(61);
        })
        .await;
        assert_eq!(lost.unwrap_err().kind(), ErrorKind::PreconditionFailed);
    });
}

#[test]
fn waiting_receivers_get_what_comes_one_after_the_other() {
    let world = World::new();
    world.run(async |broker| {
        broker.create_queue("q", QueueSettings::default()).await.unwrap();
        let wait = Duration::from_secs(5);
        let mode = crate::ReceiveMode::PeekLock;
        let receivers = (0..3).map(|_| broker.receive("q", mode, 1, wait));
        let receivers = futures_util::future::join_all(receivers);
        let (received, sent) = zip(receivers, broker.send("q", messages("a1 a2 a3"))).await;
        sent.unwrap();
        let found: Vec<String> = received.into_iter().map(|it| ids(&it.unwrap())).collect();
        assert_eq!(found, ["a1", "a2", "a3"]);
    });
}

#[test]
fn a_shutdown_finishes_what_was_begun_and_refuses_the_rest() {
    let world = World::new();
    let (sent, refused) = futures_lite::future::block_on(async {
        let clock: std::sync::Arc<dyn millstream_core::Clock> = world.clock.clone();
        let ids = std::sync::Arc::new(millstream_core::CountingIds::default());
        let options = world.options.clone();
        let opened = crate::Broker::open(&world.container, options, clock, ids).await;
        let (broker, service) = opened.unwrap();
        let shutdown = CancellationToken::new();
        let work = async {
            broker.create_queue("q", QueueSettings::default()).await.unwrap();
            let (sent, ()) = zip(broker.send("q", messages("a1")), async {
                shutdown.cancel();
            })
            .await;
            (sent, broker.send("q", messages("a2")).await)
        };
        zip(work, service.run(shutdown.clone())).await.0
    });
    sent.unwrap();
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::Unavailable);
    world.run(async |broker| assert_eq!(ids(&take(broker, "q", 9).await), "a1"));
}

#[test]
fn of_two_brokers_only_the_later_one_writes() {
    let world = World::new();
    world.run(async |earlier| {
        earlier.create_queue("q", QueueSettings::default()).await.unwrap();
        earlier.send("q", messages("a1")).await.unwrap();
        world.run(async |later| {
            later.send("q", messages("a2")).await.unwrap();
        });
        let error = earlier.send("q", messages("a3")).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert!(error.report().contains("has taken over"), "{}", error.report());
    });
    world.run(async |broker| assert_eq!(ids(&take(broker, "q", 9).await), "a1 a2"));
}

#[test]
fn a_hundred_thousand_messages_go_through() {
    let world = World::new();
    world.run(async |broker| {
        broker.create_topic("t", TopicSettings::default()).await.unwrap();
        let settings = SubscriptionSettings::default();
        broker.create_subscription("t", "s", settings).await.unwrap();
        for batch in 0..100 {
            let one = |it: u32| Message::new(format!("{batch}-{it}"), "some body");
            broker.send("t", (0..1000).map(one).collect()).await.unwrap();
        }
        let path = "t/Subscriptions/s";
        assert_eq!(broker.counts(path).unwrap().active, 100_000);
        for batch in 0..100_u64 {
            let received = take(broker, path, 1000).await;
            let numbers = received.iter().map(|it| it.delivery.sequence_number);
            assert!(numbers.eq(batch * 1000 + 1..=batch * 1000 + 1000));
            let tokens = crate::tests::world::tokens(&received);
            broker.settle(path, &tokens, &Settlement::Complete).await.unwrap();
        }
    });
    assert_eq!((world.documents("seg-"), world.documents("ack-")), (0, 0));
}
