//! What is refused, and what is cleaned up.

use std::time::Duration;

use millstream_backend_nats::{SubscriptionOptions, TopicOptions};
use millstream_core::{ErrorKind, Message, Publisher, Settlement, Subscriber, Timestamp};
use tokio_util::sync::CancellationToken;

use crate::conformance::{block_on, options};
use crate::server::Servers;

#[test]
fn what_a_topic_does_not_do_is_a_typed_error() {
    block_on(async {
        let servers = Servers::start(1);
        let topic = servers.topic("t", &TopicOptions::default()).await;
        let publisher = topic.publisher();
        let mut scheduled = Message::new("1", "").session("a");
        scheduled.scheduled_at = Some(Timestamp::from_millis(1));
        let error = publisher.publish(vec![scheduled]).await.unwrap_err();
        assert_eq!((error.kind(), error.operation()), (ErrorKind::Unsupported, Some(0)));
        let error = publisher.publish(vec![Message::new("1", "")]).await.unwrap_err();
        assert_eq!((error.kind(), error.operation()), (ErrorKind::Invalid, Some(0)));
        assert!(error.report().contains("session"), "{}", error.report());
        assert!(topic.subscribe("", SubscriptionOptions::default()).await.is_err());
    });
}

#[test]
fn a_full_topic_refuses_and_recovers() {
    block_on(async {
        let servers = Servers::start(1);
        let options = TopicOptions { bytes_max: Some(50_000), ..TopicOptions::default() };
        let topic = servers.topic("t", &options).await;
        let publisher = topic.publisher();
        let message = |it: u32| Message::new(format!("{it}"), vec![b'x'; 1000]).session("a");
        let mut refused = None;
        for number in 0..100 {
            if let Err(error) = publisher.publish(vec![message(number)]).await {
                refused = Some((number, error));
                break;
            }
        }
        let (number, error) = refused.unwrap();
        assert_eq!(error.kind(), ErrorKind::Overloaded, "{}", error.report());
        assert!(30 < number, "{number}");
    });
}

#[test]
fn options_of_a_topic_stay_what_they_were() {
    block_on(async {
        let servers = Servers::start(1);
        let first = servers.topic("t", &TopicOptions { lanes: 3, ..TopicOptions::default() }).await;
        let again = servers.topic("t", &TopicOptions::default()).await;
        assert_eq!((first.lanes(), again.lanes()), (3, 3));
        first.create_subscription("b", false).await.unwrap();
        first.create_subscription("a", false).await.unwrap();
        first.create_subscription("a", true).await.unwrap();
        assert_eq!(again.subscriptions().await.unwrap(), ["a", "b"]);
        again.delete_subscription("b").await.unwrap();
        assert_eq!(first.subscriptions().await.unwrap(), ["a"]);
        again.delete().await.unwrap();
    });
}

#[test]
fn everybody_who_makes_a_subscription_at_the_same_moment_has_it() {
    block_on(async {
        let servers = Servers::start(3);
        let topic = servers.topic("t", &TopicOptions::default()).await;
        for round in 0..20 {
            let name = format!("s{round}");
            let made = (0..8).map(|_| topic.create_subscription(&name, true));
            for outcome in futures_util::future::join_all(made).await {
                outcome.unwrap();
            }
        }
        assert_eq!(topic.subscriptions().await.unwrap().len(), 20);
    });
}

#[test]
fn a_deferred_message_can_be_asked_for() {
    block_on(async {
        let servers = Servers::start(1);
        let topic = servers.topic("t", &TopicOptions::default()).await;
        let (subscriber, service) = topic.subscribe("s", options()).await.unwrap();
        let running = tokio::spawn(service.run(CancellationToken::new()));
        topic.publisher().publish(vec![Message::new("1", "x").session("a")]).await.unwrap();
        let wait = Duration::from_secs(10);
        let session = subscriber.accept_session(wait).await.unwrap().unwrap();
        let received = session.receive(1, wait).await.unwrap();
        session.settle(&received, Settlement::Defer).await.unwrap();
        let letters = topic.dead_letters("s").unwrap();
        let number = received[0].sequence_number;
        let found = letters.deferred(number).await.unwrap().unwrap();
        assert_eq!((&found.message, found.delivery_count), (&received[0].message, 1));
        letters.remove(number).await.unwrap();
        assert_eq!(letters.deferred(number).await.unwrap(), None);
        running.abort();
    });
}
