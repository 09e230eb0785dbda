use std::time::Duration;

use millstream_core::{Message, Settlement};

use crate::tests::world::{Fault, FaultPlan, World, ids, settle, take};
use crate::{Broker, QueueSettings, ReceiveMode, SubscriptionSettings, TopicSettings};

/// Longer than two looks at sparse segments.
const A_WHILE: u64 = 45;

fn large(number: usize) -> Message {
    Message::new(format!("m{number}"), "x".repeat(1000)).session("s")
}

/// Sends a hundred messages and completes all but the last.
async fn all_but_one(broker: &Broker, entity: &str, path: &str) {
    broker.send(entity, (0..100).map(large).collect()).await.unwrap();
    let received = take(broker, path, 99).await;
    assert_eq!(received.len(), 99);
    settle(broker, path, &received, Settlement::Complete).await;
}

#[test]
fn one_message_that_nobody_takes_does_not_keep_the_others() {
    let world = World::new();
    world.run(async |broker| {
        broker.create_queue("q", QueueSettings::default()).await.unwrap();
        all_but_one(broker, "q", "q").await;
        assert!(100_000 < world.bytes("seg-"));
        world.pass(A_WHILE).await;
        // The message itself, and the ids that count for ten minutes.
        assert!(world.bytes("seg-") < 6_000, "{}", world.bytes("seg-"));
        let again = broker.send("q", vec![large(5), large(99)]).await.unwrap();
        assert_eq!(again.duplicates, 2);
        assert_eq!(broker.counts("q").unwrap().active, 1);
    });
    world.run(async |broker| {
        let again = broker.send("q", vec![large(5), large(99)]).await.unwrap();
        assert_eq!(again.duplicates, 2, "also after it was opened again");
        let received = take(broker, "q", 9).await;
        assert_eq!(ids(&received), "m99");
        assert_eq!(received[0].delivery.message.body.len(), 1000);
        assert_eq!(received[0].delivery.sequence_number, 100);
        settle(broker, "q", &received, Settlement::Complete).await;
        let sent = broker.send("q", vec![large(200)]).await.unwrap();
        assert_eq!(sent.sequence_numbers, [Some(101)]);
    });
    assert_eq!((world.documents("seg-"), world.documents("ack-")), (1, 0));
}

#[test]
fn a_message_is_received_and_settled_while_its_segment_is_written_again() {
    let world = World::new();
    world.run(async |broker| {
        broker.create_queue("q", QueueSettings::default()).await.unwrap();
        all_but_one(broker, "q", "q").await;
        let held = take(broker, "q", 1).await;
        world.pass(A_WHILE).await;
        assert!(world.bytes("seg-") < 6_000);
        settle(broker, "q", &held, Settlement::Abandon).await;
        let mode = ReceiveMode::ReceiveAndDelete;
        let received = broker.receive("q", mode, 9, Duration::ZERO).await.unwrap();
        assert_eq!(ids(&received), "m99");
    });
    assert_eq!(world.documents("seg-"), 0);
}

#[test]
fn what_another_subscription_wants_is_kept() {
    let world = World::new();
    world.run(async |broker| {
        broker.create_topic("t", TopicSettings::default()).await.unwrap();
        for name in ["one", "two"] {
            let settings = SubscriptionSettings::default();
            broker.create_subscription("t", name, settings).await.unwrap();
        }
        all_but_one(broker, "t", "t/Subscriptions/one").await;
        world.pass(A_WHILE).await;
        assert!(100_000 < world.bytes("seg-"));
        broker.delete_subscription("t", "two").await.unwrap();
        world.pass(A_WHILE).await;
        assert!(world.bytes("seg-") < 6_000, "{}", world.bytes("seg-"));
        assert_eq!(ids(&take(broker, "t/Subscriptions/one", 9).await), "m99");
    });
}

#[test]
fn a_broker_that_stops_while_it_writes_a_segment_again_loses_nothing() {
    for at in 0..4 {
        for fault in [Fault::LostReply, Fault::Refused] {
            let world = World::new();
            world.run(async |broker| {
                broker.create_queue("q", QueueSettings::default()).await.unwrap();
                all_but_one(broker, "q", "q").await;
                world.plan(FaultPlan { at: Some((at, fault)), for_ever: true });
                world.pass(A_WHILE).await;
            });
            world.plan(FaultPlan::default());
            world.run(async |broker| {
                world.pass(A_WHILE).await;
                assert_eq!(ids(&take(broker, "q", 9).await), "m99", "{at} {fault:?}");
            });
        }
    }
}
