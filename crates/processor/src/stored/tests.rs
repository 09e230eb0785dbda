use millstream_core::conformance::block_on;
use millstream_core::{Batch, ItemId, Operation, PartitionKey, ResourceId};
use serde_json::json;

use super::*;
use crate::batch::ChangeBatch;
use crate::error::ErrorKind;
use crate::handler::Context;
use crate::lease_store::{LeaseStore, Stored};
use crate::operations::Operations;
use crate::processor::Processor;
use crate::stored::schema::parse;
use crate::test_world::{PROCESSOR, World};

fn lease(container: u64) -> Lease {
    Lease::new(container, Mode::LatestVersion, KeyRange::all(), "1".to_owned())
}

/// What comes back from a service that keeps every number as a double.
fn with_doubles(value: Value) -> Value {
    match value {
        Value::Number(number) => Value::from(number.as_f64()),
        Value::Array(items) => items.into_iter().map(with_doubles).collect(),
        Value::Object(properties) => {
            properties.into_iter().map(|(name, it)| (name, with_doubles(it))).collect()
        }
        other @ (Value::Null | Value::Bool(_) | Value::String(_)) => other,
    }
}

/// As such a service writes it: whole numbers without a fraction, while they have few digits.
fn text(value: &Value) -> String {
    serde_json::to_string(value).unwrap().replace(".0,", ",").replace(".0}", "}")
}

#[test]
fn a_container_keeps_its_number_where_numbers_are_doubles() {
    // The numbers of containers on Azure Cosmos DB are random ones.
    for container in [7, 1 << 53, (1 << 53) + 1, 13_680_254_516_820_180_993, u64::MAX] {
        let stored = with_doubles(serde_json::to_value(lease(container)).unwrap());
        let found: Lease = parse("1", text(&stored).as_bytes()).unwrap();
        assert_eq!(found, lease(container));
    }
}

#[test]
fn a_large_number_that_an_earlier_version_wrote_is_read() {
    let text = serde_json::to_string(&lease(u64::MAX)).unwrap();
    let earlier = text.replace(&format!("\"{}\"", u64::MAX), &u64::MAX.to_string());
    assert_ne!(earlier, text);
    assert_eq!(parse::<Lease>("1", earlier.as_bytes()).unwrap(), lease(u64::MAX));
}

/// What an earlier version wrote, with the number of the container as `number`.
fn earlier<T: Document>(document: &T, number: &str) -> String {
    let mut fields = serde_json::to_value(document).unwrap();
    fields["schema"] = json!({ "writtenBy": 1, "minReader": 1 });
    fields["container"] = json!("NUMBER");
    fields.to_string().replace("\"NUMBER\"", number)
}

fn id_of(lease: &Lease) -> String {
    format!("{PROCESSOR}:{}", lease.local_id())
}

#[test]
fn small_numbers_may_be_spelled_as_doubles() {
    for (number, expected) in [("7.0", 7), ("1e3", 1000), ("9007199254740992.0", 1 << 53)] {
        let found: Lease = parse("1", earlier(&lease(7), number).as_bytes()).unwrap();
        assert_eq!(found.container, expected);
    }
    for number in ["-7", "-7.0", "1.5", "\"x\"", "\"-1\"", "null", "-1e30"] {
        let error = parse::<Lease>("1", earlier(&lease(7), number).as_bytes()).unwrap_err();
        assert!(error.report().contains("a whole number"), "{number}: {}", error.report());
    }
}

#[test]
fn a_number_that_a_store_has_rounded_is_refused_with_what_to_do() {
    let container = 13_680_254_516_820_180_993;
    let lease = lease(container);
    let id = id_of(&lease);
    let refused = |number: &str| {
        let error = parse::<Lease>(&id, earlier(&lease, number).as_bytes()).unwrap_err();
        let corrupt = millstream_core::ErrorKind::Corrupt;
        assert_eq!(*error.kind(), ErrorKind::Store(corrupt), "{}", error.report());
        let report = error.report();
        for part in ["could not read the lease", "has rounded it to 1", "stop every instance"] {
            assert!(report.contains(part), "{report}");
        }
    };
    for number in ["1.368025451682018E+19", "13680254516820181000", "13680254516820180992"] {
        refused(number);
    }
    parse::<Lease>(&id, earlier(&lease, "13680254516820180993").as_bytes()).unwrap();
    // What the sentence says to do.
    parse::<Lease>(&id, earlier(&lease, "\"13680254516820180993\"").as_bytes()).unwrap();
    // Another container is no rounded one.
    parse::<Lease>(&id, earlier(&lease, "13680254516820190000").as_bytes()).unwrap();
}

#[test]
fn a_rounded_control_document_is_not_taken_for_that_of_another_container() {
    let world = World::started("/id", 1);
    let mut feed = world.feed.clone();
    feed.info.resource_id = ResourceId { database: 3_185_182_209, container: 1_047_001_601 };
    let (exact, other) = (feed.info.resource_id.incarnation(), 7);
    let rounded = exact / 1000 * 1000;
    for (container, expected) in [(rounded, "stop every instance"), (other, "container")] {
        let is_set =
            |it: &mut Control| std::mem::replace(&mut it.container, container) != container;
        block_on(world.store.update_control(is_set)).unwrap();
        let clock = world.clock.clone();
        let operations =
            Operations::new_with(&feed, &world.leases, PROCESSOR, clock.clone()).unwrap();
        let looked = block_on(operations.snapshot()).map(|_| ());
        let processor = Processor::new(&feed, &world.leases, PROCESSOR).clock(clock);
        let handler = |_: ChangeBatch, _: Context| std::future::ready(Ok(()));
        let started = block_on(processor.start(handler)).map(|_| ());
        for outcome in [looked, started] {
            let error = outcome.unwrap_err();
            assert!(error.report().contains(expected), "{}", error.report());
            let is_recreated = *error.kind() == ErrorKind::ContainerRecreated;
            assert_eq!(is_recreated, container == other, "{}", error.report());
        }
    }
}

/// The body of a document as it is stored.
fn stored(world: &World, id: &str) -> Value {
    let (key, id) = (PartitionKey::from(id), ItemId::new(id).unwrap());
    let item = block_on(world.leases.documents.read(&key, &id)).unwrap().unwrap();
    serde_json::from_slice(&item.body).unwrap()
}

#[test]
fn only_a_document_with_a_string_is_refused_by_version_1() {
    let world = World::new("/id", 1);
    for (container, min_reader) in [(7, 1), (1 << 53, 1), ((1 << 53) + 1, 2), (u64::MAX, 2)] {
        let lease = lease(container);
        let id = id_of(&lease);
        let created = block_on(world.store.create(lease)).unwrap();
        let body = stored(&world, &id);
        assert_eq!(body["container"].is_string(), min_reader == 2, "{body}");
        assert_eq!(body["schema"], json!({ "writtenBy": 2, "minReader": min_reader }));
        assert_eq!(created.document.schema.min_reader, min_reader);
    }
}

#[test]
fn what_an_earlier_version_wrote_says_so_when_it_gets_a_string() {
    let world = World::new("/id", 1);
    let lease = lease(u64::MAX);
    let id = id_of(&lease);
    let mut body: Value = serde_json::from_str(&earlier(&lease, &u64::MAX.to_string())).unwrap();
    body["id"] = json!(id);
    let batch = Batch::new(id.as_str()).with(Operation::create(body.to_string()));
    block_on(world.leases.documents.commit(batch)).unwrap();
    let store: &LeaseStore = &world.store;
    let keys = KeyRange::all();
    let found: Stored<Lease> = block_on(store.read_lease(u64::MAX, &keys)).unwrap().unwrap();
    assert_eq!(found.document.schema, Schema { written_by: 1, min_reader: 1 });
    block_on(store.replace(found.document, &found.etag)).unwrap();
    let body = stored(&world, &id);
    assert_eq!(body["container"], json!(u64::MAX.to_string()));
    assert_eq!(body["schema"], json!({ "writtenBy": 2, "minReader": 2 }));
}

#[test]
fn a_newer_document_is_refused_before_it_is_understood() {
    let newer = r#"{"schema":{"writtenBy":3,"minReader":3},"container":{"of":"another shape"}}"#;
    let error = parse::<Lease>("1", newer.as_bytes()).unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::NewerSchema);
    assert!(error.report().contains("schema 3, this is 2"), "{}", error.report());
}
