use std::sync::Arc;

use millstream_core::{Batch, Operation, PropertyValue};
use millstream_relay::MessageForm;

use crate::harness::{Scripted, World};

fn text(value: Option<&PropertyValue>) -> &str {
    match value {
        Some(PropertyValue::String(text)) => text,
        other => panic!("{other:?} is not text"),
    }
}

#[test]
fn an_event_becomes_a_cloud_event_with_its_trace_baggage_and_sequence() {
    let world = World::new();
    world.commit("k0", "event-1", "ThingCreated", 0);
    let publisher = Arc::new(Scripted::new(1));
    world.relay(&publisher);
    let taken = publisher.taken.lock().unwrap();
    let message = &taken[0];
    assert_eq!(message.id, "event-1");
    assert_eq!(message.session_id.as_deref(), Some("k0"));
    assert_eq!(message.partition_key.as_deref(), Some("k0"));
    assert_eq!(message.subject.as_deref(), Some("ThingCreated"));
    assert_eq!(message.content_type.as_deref(), Some("application/json"));
    assert_eq!(message.body, r#"{"n":1e400,"padding":""}"#);
    let property = |name: &str| message.properties.get(name);
    for (name, expected) in [
        ("cloudEvents:specversion", "1.0"),
        ("cloudEvents:id", "event-1"),
        ("cloudEvents:source", "test"),
        ("cloudEvents:type", "ThingCreated"),
        ("cloudEvents:subject", "k0"),
        ("cloudEvents:time", "2026-11-15T10:00:00.000Z"),
        ("cloudEvents:partitionkey", "k0"),
        ("cloudEvents:sequence", "1"),
        ("baggage", "tenant=7"),
    ] {
        assert_eq!(text(property(name)), expected, "{name}");
    }
    assert!(text(property("traceparent")).starts_with("00-0af7651916cd43dd"));
    assert_eq!(property("sequence"), Some(&PropertyValue::Integer(1)));
}

#[test]
fn raw_messages_have_the_data_and_the_trace_only() {
    let world = World::new();
    world.commit("k0", "event-1", "ThingCreated", 0);
    let publisher = Arc::new(Scripted::new(1));
    let options = World::options().form(MessageForm::Raw);
    let started = world.started(options, &publisher);
    futures_lite::future::block_on(started.run(publisher.done.clone())).unwrap();
    let taken = publisher.taken.lock().unwrap();
    assert!(!taken[0].properties.keys().any(|it| it.starts_with("cloudEvents")));
    assert!(taken[0].properties.contains_key("traceparent"));
}

#[test]
fn all_documents_can_be_published() {
    let world = World::new();
    world.commit("k0", "event-1", "ThingCreated", 0);
    let publisher = Arc::new(Scripted::new(2));
    let started = world.started(World::options().all_documents(), &publisher);
    futures_lite::future::block_on(started.run(publisher.done.clone())).unwrap();
    let taken = publisher.taken.lock().unwrap();
    let mut subjects: Vec<_> = taken.iter().filter_map(|it| it.subject.clone()).collect();
    subjects.sort();
    assert_eq!(subjects, ["ThingCreated", "thing"]);
}

#[test]
fn a_document_whose_id_is_too_long_for_a_message_is_published_under_a_shorter_one() {
    let world = World::new();
    for last in ["a", "b"] {
        let id = "ä".repeat(200) + last;
        let document = format!(r#"{{"id":"{id}","partitionKey":"k0","type":"thing"}}"#);
        let batch = Batch::new("k0").with(Operation::create(document));
        futures_lite::future::block_on(world.data.documents.commit(batch)).unwrap();
    }
    let publisher = Arc::new(Scripted::new(2));
    let started = world.started(World::options().all_documents(), &publisher);
    futures_lite::future::block_on(started.run(publisher.done.clone())).unwrap();
    let ids = publisher.ids();
    assert!(ids.iter().all(|it| it.starts_with("ää") && it.len() <= 128), "{ids:?}");
    let hash = |it: &str| it.split(['~', ':']).nth(1).unwrap().to_owned();
    assert_ne!(hash(&ids[0]), hash(&ids[1]));
}
