//! What published samples of this pattern do wrong, one test each: here it is absent.
//!
//! The parts are put together as in a program: outbox, feed, relay, broker, inbox.
#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod world;

use std::time::Duration;

use async_trait::async_trait;
use millstream_broker::{ReceiveMode, SubscriptionSettings, TopicSettings};
use millstream_core::{Batch, Message, Operation, PropertyValue, Settlement};
use millstream_outbox::{
    Changes, ErrorKind, EventHandler, HandlerError, Inbox, Incoming, Order, Outcome, RaisedEvent,
    TraceContext,
};

use crate::world::{Limited, World};

const PATH: &str = "things/Subscriptions/all";

/// Takes its time, then objects.
struct Slow;

#[async_trait]
impl EventHandler for Slow {
    async fn handle(&self, _: &RaisedEvent, _: &mut Changes) -> Result<(), HandlerError> {
        tokio::task::yield_now().await;
        Err("it is full".into())
    }
}

#[tokio::test]
async fn weakness_event_handlers_that_nobody_awaits() {
    let world = World::new().await;
    let outbox = world.outbox(None).on_event(Slow);
    let mut unit = outbox.unit();
    unit.create(world.thing("a")).unwrap();
    let error = unit.commit().await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::Refused, "{}", error.report());
    assert_eq!(world.documents("a").await, 0, "a commit waits for its handlers");
}

#[tokio::test]
async fn weakness_duplicate_detection_that_is_off() {
    let world = World::new().await;
    assert_eq!(TopicSettings::default().duplicate_window, Some(Duration::from_secs(600)));
    world
        .with_broker(async |broker| {
            broker.create_topic("things", TopicSettings::default()).await.unwrap();
            let settings = SubscriptionSettings::default();
            broker.create_subscription("things", "all", settings).await.unwrap();
            let message = || vec![Message::new("1", "hello")];
            broker.send("things", message()).await.unwrap();
            assert_eq!(broker.send("things", message()).await.unwrap().duplicates, 1);
            assert_eq!(broker.counts(PATH).unwrap().active, 1);
        })
        .await;
}

#[tokio::test]
async fn weakness_an_oversize_batch_that_is_retried_for_ever() {
    let world = World::new().await;
    world.commit("large", &"x".repeat(5_000), None).await;
    world.commit("small", "", None).await;
    let publisher = Limited::new(1_000, 1);
    world.relay(&publisher, 1).await;
    let subjects: Vec<_> = publisher.taken().iter().map(|it| it.session_id.clone()).collect();
    assert_eq!(subjects, [Some("small".to_owned())]);
    assert_eq!(publisher.refusals(), 0, "the limit is known before anything is sent");
    let parked = world.letters().list_parked(None, 10).await.unwrap().sequences;
    assert_eq!(parked.len(), 1);
    assert_eq!(parked[0].partition_key.to_string(), "[\"large\"]");

    // Nor are many sent in one call that are too large only together, or too many.
    for (text, key) in (0..12).map(|it| ("x".repeat(it % 2 * 400), format!("{it}"))) {
        world.commit(&key, &text, None).await;
    }
    let publisher = Limited::new(1_000, 12);
    world.relay(&publisher, 0).await;
    assert_eq!((publisher.taken().len(), publisher.refusals()), (12, 0));

    // Nor does a commit that no store could take leave the unit.
    let outbox = world.outbox(None);
    let mut unit = outbox.unit();
    let mut thing = world.thing("b");
    thing.text = "x".repeat(2 * 1024 * 1024);
    unit.create(thing).unwrap();
    let error = unit.commit().await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::TooLarge { .. }), "{}", error.report());
}

#[tokio::test]
async fn weakness_a_time_to_live_that_deletes_unsent_events() {
    let world = World::new().await;
    let publisher = Limited::new(10_000, 1);
    // A relay that was started once, and then never got to anything.
    drop(world.started(&publisher).await);
    world.commit("a", "", None).await;
    world.clock.advance(Duration::from_secs(365 * 24 * 3600));
    world.relay(&publisher, 0).await;
    assert_eq!(publisher.taken().len(), 1);
}

#[tokio::test]
async fn weakness_no_dead_letter() {
    let world = World::new().await;
    world
        .with_broker(async |broker| {
            broker.create_topic("things", TopicSettings::default()).await.unwrap();
            let settings = SubscriptionSettings::default();
            let attempts = settings.receive.delivery_count_max;
            broker.create_subscription("things", "all", settings).await.unwrap();
            broker.send("things", vec![Message::new("1", "poison")]).await.unwrap();
            for _ in 0..attempts {
                let mode = ReceiveMode::PeekLock;
                let received = broker.receive(PATH, mode, 1, Duration::ZERO).await.unwrap();
                let token = received[0].delivery.lock_token.as_str();
                broker.settle(PATH, &[token], &Settlement::Abandon).await.unwrap();
            }
            let dead = format!("{PATH}/$DeadLetterQueue");
            let mode = ReceiveMode::PeekLock;
            let received = broker.receive(&dead, mode, 1, Duration::ZERO).await.unwrap();
            let reason = received[0].delivery.message.properties.get("DeadLetterReason");
            assert_eq!(reason, Some(&PropertyValue::from("MaxDeliveryCountExceeded")));
        })
        .await;
}

#[tokio::test]
async fn weakness_no_inbox() {
    let world = World::new().await;
    let message = Incoming::new("message-1", "a").unwrap();
    let inbox = Inbox::new(&world.effects, "search").unwrap();
    let mut outcomes = Vec::new();
    for _ in 0..2 {
        let effect = async |batch: Batch| {
            Ok(batch.with(Operation::upsert(r#"{"id":"effect","partitionKey":"a"}"#)))
        };
        outcomes.push(inbox.handle(&message, effect).await.unwrap());
    }
    assert!(matches!(outcomes[0], Outcome::Handled { .. }), "{outcomes:?}");
    assert!(matches!(outcomes[1], Outcome::Duplicate { .. }), "{outcomes:?}");
}

#[tokio::test]
async fn weakness_no_trace() {
    const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let world = World::new().await;
    let trace = TraceContext::new(PARENT).unwrap().with_baggage("tenant=blue").unwrap();
    world.commit("a", "", Some(trace)).await;
    let publisher = Limited::new(10_000, 1);
    world.relay(&publisher, 0).await;
    let taken = publisher.taken();
    let property = |name: &str| taken[0].properties.get(name).cloned();
    assert_eq!(property("traceparent"), Some(PropertyValue::from(PARENT)));
    assert_eq!(property("baggage"), Some(PropertyValue::from("tenant=blue")));
    assert_eq!(property("cloudEvents:traceparent"), Some(PropertyValue::from(PARENT)));
}

#[tokio::test]
async fn weakness_no_sequence_number() {
    let world = World::new().await;
    for text in ["one", "two", "three"] {
        world.commit("a", text, None).await;
    }
    let publisher = Limited::new(10_000, 3);
    world.relay(&publisher, 0).await;
    let taken = publisher.taken();
    let number = |it: &Message| it.properties.get("sequence").cloned();
    let numbers: Vec<_> = taken.iter().map(number).collect();
    assert_eq!(numbers, [1, 2, 3].map(|it| Some(PropertyValue::Integer(it))));
    // A consumer that misses one is told.
    let inbox = Inbox::new(&world.effects, "search").unwrap();
    let mut orders = Vec::new();
    for message in [&taken[0], &taken[2]] {
        let incoming = Incoming::try_from(message).unwrap();
        match inbox.handle(&incoming, async |batch| Ok(batch)).await.unwrap() {
            Outcome::Handled { order } => orders.push(order),
            Outcome::Duplicate { .. } => panic!("it is new"),
        }
    }
    assert_eq!(orders, [Order::First { found: 1 }, Order::Gap { expected: 2, found: 3 }]);
}
