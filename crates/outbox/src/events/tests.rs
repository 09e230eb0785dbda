use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use millstream_core::conformance::block_on;
use millstream_core::{Clock, Timestamp};
use serde::Serialize;

use crate::test_world::{Contact, World, told};
use crate::{DomainEvent, ErrorKind, NewEvent, OutboxOptions, StoredEvent, TraceContext};

const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

/// Commits one event of a stored contact and reads it back.
async fn committed(world: &World, options: OutboxOptions, event: NewEvent) -> StoredEvent {
    let outbox = world.outbox_with(options);
    world.stored(&outbox, "a").await;
    let mut unit = outbox.unit();
    let mut contact = unit.read::<Contact>("a", "a").await.unwrap().unwrap();
    contact.entity.tell(event);
    unit.update(contact.entity, contact.etag).unwrap();
    let id = unit.commit().await.unwrap().events[0].event.id;
    let items = world.items("a").await;
    let item = items.iter().find(|it| it.id.as_str() == id.to_string()).unwrap();
    StoredEvent::read(item).unwrap()
}

#[test]
fn trace_context_and_baggage_travel_with_the_event() {
    let world = World::new();
    let options = OutboxOptions::default().trace(|| {
        TraceContext::from_headers(Some(PARENT), Some("vendor=1"), Some("tenant=blue,user=7"))
    });
    let event = block_on(committed(&world, options, told("Greeted", "x").into()));
    assert_eq!(event.trace.traceparent(), Some(PARENT));
    assert_eq!(event.trace.tracestate(), Some("vendor=1"));
    assert_eq!(event.trace.baggage(), Some("tenant=blue,user=7"));
    assert_eq!(event.sequence, Some(2));
}

#[test]
fn trace_and_time_are_those_of_the_moment_an_event_is_raised() {
    let world = World::new();
    let asked = std::sync::Arc::new(AtomicUsize::new(0));
    let counter = std::sync::Arc::clone(&asked);
    let outbox = world.outbox_with(OutboxOptions::default().trace(move || {
        let number = counter.fetch_add(1, Ordering::Relaxed);
        TraceContext::default().with_baggage(&format!("call={number}")).unwrap()
    }));
    block_on(async {
        world.stored(&outbox, "a").await;
        let mut unit = outbox.unit();
        let mut contact = unit.read::<Contact>("a", "a").await.unwrap().unwrap();
        let raised_at = world.clock.now();
        contact.entity.set_name("B");
        assert_eq!(asked.load(Ordering::Relaxed), 2);
        world.clock.advance(Duration::from_secs(9));
        unit.update(contact.entity, contact.etag).unwrap();
        let committed = unit.commit().await.unwrap();
        let event = &committed.events[0].event;
        assert_eq!((event.created_at, event.trace.baggage()), (raised_at, Some("call=1")));
        assert_eq!(asked.load(Ordering::Relaxed), 2);
    });
}

#[test]
fn a_scheduled_event_says_when_and_lives_until_then() {
    let world = World::new();
    let start = world.clock.now();
    let deliver_at = start.plus(Duration::from_secs(30 * 24 * 3600));
    let event = NewEvent::from(told("TrialEnds", "x")).deliver_not_before(deliver_at);
    block_on(async {
        let stored = committed(&world, OutboxOptions::default(), event).await;
        assert_eq!(stored.deliver_not_before, Some(deliver_at));
        let bodies = world.bodies("a").await;
        let body = bodies.iter().find(|it| it["action"] == "TrialEnds").unwrap();
        assert_eq!(body["ttl"], 40 * 24 * 3600);
        assert_eq!(body["deliverAt"], "2026-03-11T11:07:37.302Z");
        // The others are gone by then.
        world.clock.advance(Duration::from_secs(31 * 24 * 3600));
        assert_eq!(world.actions("a").await, ["TrialEnds"]);
    });
}

#[test]
fn a_time_in_the_past_does_not_shorten_the_life_of_an_event() {
    let world = World::new();
    let event = NewEvent::from(told("Late", "x")).deliver_not_before(Timestamp::EPOCH);
    block_on(async {
        committed(&world, OutboxOptions::default(), event).await;
        let bodies = world.bodies("a").await;
        let body = bodies.iter().find(|it| it["action"] == "Late").unwrap();
        assert_eq!(body["ttl"], 864_000);
    });
}

#[derive(Serialize)]
struct Odd<T: Serialize>(T);

impl<T: Serialize> DomainEvent for Odd<T> {
    fn action(&self) -> &str {
        "Odd"
    }
}

#[track_caller]
fn check(event: impl Serialize, expected: &str) {
    let world = World::new();
    let outbox = world.outbox();
    let report = block_on(async {
        world.stored(&outbox, "a").await;
        let mut unit = outbox.unit();
        let mut contact = unit.read::<Contact>("a", "a").await.unwrap().unwrap();
        contact.entity.tell(Odd(event));
        unit.update(contact.entity, contact.etag).unwrap();
        let commits = world.faults.commits();
        match unit.commit().await {
            Ok(_) => "fine".to_owned(),
            Err(error) => {
                assert_eq!(*error.kind(), ErrorKind::Invalid);
                assert_eq!(world.faults.commits(), commits, "something was sent");
                error.report()
            }
        }
    });
    assert!(report.ends_with(expected), "{report}");
}

#[test]
fn an_event_that_is_no_object_or_has_our_names_is_refused() {
    check((), "fine");
    check(serde_json::json!({"a": 1}), "fine");
    check("text", "raise the event \"Odd\" of \"a\": its data is not a JSON object");
    check(vec![1], "its data is not a JSON object");
    check(serde_json::json!({"id": 1}), "a property \"id\", which every event has already");
    check(serde_json::json!({"contactId": 1}), "which every event has already");
    let keys = std::collections::BTreeMap::from([((1, 2), 3)]);
    check(keys, "key must be a string");
}
