use millstream_core::conformance::block_on;
use millstream_core::{Operation, TimeToLive};
use serde_json::json;

use crate::test_world::{Contact, Journal, World, settings, told};
use crate::{
    ConflictReason, Entity, ErrorKind, Limits, Outbox, OutboxOptions, ReadIfChanged, UnitOfWork,
    Versioned,
};

fn assert_send_sync<T: Send + Sync>(_: &T) {}

#[track_caller]
fn refused<T: std::fmt::Debug>(result: crate::Result<T>, kind: &ErrorKind) -> String {
    let error = result.expect_err("it should be refused");
    assert_eq!(error.kind(), kind, "{}", error.report());
    error.report()
}

async fn read(unit: &UnitOfWork, id: &str) -> Versioned<Contact> {
    unit.read(id.split('-').next().unwrap(), id).await.unwrap().expect("it is stored")
}

#[test]
fn documents_look_as_in_the_sample_service() {
    let world = World::new();
    let outbox = world.outbox();
    block_on(async {
        world.stored(&outbox, "a").await;
        let bodies = world.bodies("a").await;
        let event_id = "00000000-0000-0000-0000-000000000001";
        let (event, contact) = (&bodies[0], &bodies[1]);
        assert_eq!(
            contact,
            &json!({
                "id": "a", "partitionKey": "a", "type": "contact", "ttl": -1,
                "data": {
                    "id": "a", "name": "Ada", "email": "ada@example.com", "visits": 0,
                    "deleted": false,
                },
            })
        );
        assert_eq!(
            event,
            &json!({
                "id": event_id, "partitionKey": "a", "type": "domainEvent", "ttl": 864_000,
                "data": {
                    "text": "Ada", "entityId": "a", "contactId": "a", "id": event_id,
                    "action": "ContactCreated", "createdAt": "2026-02-09T11:07:37.302Z",
                },
                "action": "ContactCreated", "entityId": "a",
                "createdAt": "2026-02-09T11:07:37.302Z",
            })
        );
    });
}

#[test]
fn names_follow_the_container() {
    let mut own = settings("/tenant/name").default_ttl(TimeToLive::Never);
    own.event_type = Some("fact".to_owned());
    let world = World::with(own);
    block_on(async {
        world.stored(&world.outbox(), "a").await;
        for body in world.bodies("a").await {
            assert_eq!(body["tenant"], json!({"name": "a"}));
        }
        let items = world.items("a").await;
        assert_eq!(items[0].sequence, Some(1), "the event is not one to the container");
    });
}

#[test]
fn a_new_entity_raises_only_created_with_its_last_state() {
    let world = World::new();
    let outbox = world.outbox();
    block_on(async {
        let mut unit = outbox.unit();
        let mut contact = Contact::new("a");
        contact.set_name("Grace");
        unit.create(contact).unwrap();
        unit.get_mut::<Contact>("a").unwrap().set_name("Grace Hopper");
        let committed = unit.commit().await.unwrap();
        assert_eq!(committed.events.len(), 1);
        assert_eq!(world.actions("a").await, ["ContactCreated"]);
        assert_eq!(world.bodies("a").await[0]["data"]["text"], "Grace Hopper");
    });
}

#[test]
fn coalescing_replaces_an_event_of_the_same_action_in_place() {
    let world = World::new();
    let outbox = world.outbox();
    block_on(async {
        world.stored(&outbox, "a").await;
        let mut unit = outbox.unit();
        let Versioned { mut entity, etag } = read(&unit, "a").await;
        entity.set_name("B");
        entity.set_email("b@example.com");
        entity.set_name("C");
        assert_eq!(entity.events().actions(), ["ContactNameUpdated", "ContactEmailUpdated"]);
        unit.update(entity, etag).unwrap();
        let committed = unit.commit().await.unwrap();
        assert_eq!(committed.events[0].event.data.as_str(), r#"{"text":"C"}"#);
        assert_eq!(
            world.actions("a").await,
            ["ContactCreated", "ContactNameUpdated", "ContactEmailUpdated"]
        );
    });
}

#[test]
fn coalescing_is_off_for_an_entity_that_keeps_all() {
    let world = World::new();
    let outbox = world.outbox();
    block_on(async {
        let mut unit = outbox.unit();
        unit.create(Journal::new("j")).unwrap();
        let mut committed = unit.commit().await.unwrap();
        assert!(committed.events.is_empty(), "this entity has no created event");
        let mut journal = committed.take::<Journal>("j").unwrap();
        journal.entity.note("one");
        journal.entity.note("two");
        unit.update(journal.entity, journal.etag).unwrap();
        let committed = unit.commit().await.unwrap();
        let told: Vec<_> = committed.events.iter().map(|it| it.event.data.as_str()).collect();
        assert_eq!(told, [r#"{"text":"one"}"#, r#"{"text":"two"}"#]);
    });
}

#[test]
fn an_entity_from_elsewhere_is_coalesced_when_it_is_handed_over() {
    let world = World::new();
    let outbox = world.outbox();
    block_on(async {
        world.stored(&outbox, "a").await;
        let mut unit = outbox.unit();
        let Versioned { entity, etag } = read(&unit, "a").await;
        let text = serde_json::to_string(&entity).unwrap();
        let mut entity: Contact = serde_json::from_str(&text).unwrap();
        entity.set_name("B");
        entity.set_name("C");
        unit.update(entity, etag).unwrap();
        assert_eq!(unit.commit().await.unwrap().events.len(), 1);
    });
}

#[test]
fn every_event_has_a_sequence_number_without_gaps() {
    let world = World::new();
    let outbox = world.outbox();
    block_on(async {
        world.stored(&outbox, "a").await;
        let mut numbers = vec![1];
        for round in 0..5 {
            let mut unit = outbox.unit();
            let Versioned { mut entity, etag } = read(&unit, "a").await;
            let mut late = entity.clone();
            late.set_name("late");
            entity.set_name(&format!("name {round}"));
            entity.set_email(&format!("{round}@example.com"));
            unit.update(entity, etag.clone()).unwrap();
            let committed = unit.commit().await.unwrap();
            numbers.extend(committed.events.iter().map(|it| it.sequence.unwrap()));
            // A commit that is refused uses no number.
            unit.update(late, etag).unwrap();
            unit.commit().await.unwrap_err();
        }
        assert_eq!(numbers, (1..=11).collect::<Vec<_>>());
    });
}

#[test]
fn the_batch_is_each_entity_followed_by_its_events() {
    let world = World::new();
    let outbox = world.outbox();
    block_on(async {
        world.stored(&outbox, "h-1").await;
        let mut unit = outbox.unit();
        let Versioned { mut entity, etag } = read(&unit, "h-1").await;
        entity.set_email("x@example.com");
        entity.set_name("X");
        unit.update(entity, etag).unwrap();
        unit.create(Contact::new("h-2")).unwrap();
        assert_eq!(unit.ids().collect::<Vec<_>>(), ["h-1", "h-2"]);
        let committed = unit.commit().await.unwrap();
        let told: Vec<_> = committed
            .events
            .iter()
            .map(|it| (it.event.entity_id.as_str(), it.event.action.as_str(), it.sequence))
            .collect();
        assert_eq!(
            told,
            [
                ("h-1", "ContactEmailUpdated", Some(2)),
                ("h-1", "ContactNameUpdated", Some(3)),
                ("h-2", "ContactCreated", Some(4)),
            ]
        );
        assert!(unit.is_empty());
        assert_ne!(committed.etag("h-1"), committed.etag("h-2"));
    });
}

#[test]
fn etags_are_copied_back() {
    let world = World::new();
    let outbox = world.outbox();
    block_on(async {
        let mut unit = outbox.unit();
        unit.create(Contact::new("a")).unwrap();
        let mut committed = unit.commit().await.unwrap();
        assert!(committed.lsn.is_some());
        for round in 0..3 {
            let mut contact = committed.take::<Contact>("a").unwrap();
            assert!(!contact.entity.events().is_new());
            assert!(committed.take::<Contact>("a").is_none(), "it was taken already");
            contact.entity.set_name(&format!("name {round}"));
            unit.update(contact.entity, contact.etag).unwrap();
            committed = unit.commit().await.unwrap();
        }
        assert_eq!(committed.etag("a"), Some(&read(&unit, "a").await.etag));
        assert!(committed.take::<Journal>("a").is_none());
    });
}

#[test]
fn an_unmodified_entity_is_not_written() {
    let world = World::new();
    let outbox = world.outbox();
    block_on(async {
        world.stored(&outbox, "h-1").await;
        world.stored(&outbox, "h-2").await;
        let commits = world.faults.commits();
        let mut unit = outbox.unit();
        let (one, mut two) = (read(&unit, "h-1").await, read(&unit, "h-2").await);
        unit.update(one.entity, one.etag.clone()).unwrap();
        let committed = unit.commit().await.unwrap();
        assert_eq!((committed.lsn, world.faults.commits()), (None, commits));
        assert_eq!(committed.etag("h-1"), Some(&one.etag), "the etag stays");

        // A change without an event is a change, and the etags stay with their entities.
        let one = read(&unit, "h-1").await;
        two.entity.visit();
        unit.update(one.entity, one.etag.clone()).unwrap();
        unit.update(two.entity, two.etag.clone()).unwrap();
        let committed = unit.commit().await.unwrap();
        assert_eq!(committed.etag("h-1"), Some(&one.etag));
        assert_ne!(committed.etag("h-2"), Some(&two.etag));
        assert_eq!(read(&unit, "h-2").await.entity.visits, 1);
    });
}

#[test]
fn a_document_that_others_spelled_is_not_written_without_a_change() {
    let world = World::new();
    let outbox = world.outbox();
    block_on(async {
        let body = r#"{ "type": "contact", "id": "a", "partitionKey": "a",
            "data": {"deleted": false, "email": "e", "name": "n", "id": "a"}, "ttl": -1}"#;
        let batch = millstream_core::Batch::new("a").with(Operation::create(body));
        world.container.documents.commit(batch).await.unwrap();
        let mut unit = outbox.unit();
        let Versioned { entity, etag } = read(&unit, "a").await;
        unit.update(entity, etag).unwrap();
        assert_eq!(unit.commit().await.unwrap().lsn, None);
        assert_eq!(world.items("a").await[0].body, body);
    });
}

#[test]
fn adding_an_entity_twice_is_refused() {
    let world = World::new();
    let mut unit = world.outbox().unit();
    unit.create(Contact::new("a")).unwrap();
    let report = refused(unit.create(Contact::new("a")), &ErrorKind::AlreadyTracked);
    assert_eq!(
        report,
        "could not add contact \"a\" to the unit: the unit holds it already; change that one"
    );
    refused(unit.create(Journal::new("a")), &ErrorKind::AlreadyTracked);
}

#[test]
fn entities_of_two_partitions_are_refused_before_anything_is_sent() {
    let world = World::new();
    let outbox = world.outbox();
    block_on(async {
        let mut unit = outbox.unit();
        unit.create(Contact::new("a")).unwrap();
        let report = refused(unit.create(Contact::new("b")), &ErrorKind::OtherPartition);
        assert!(report.ends_with("use a unit for each"), "{report}");
        unit.get_mut::<Contact>("a").unwrap().moved_to = Some("b");
        refused(unit.commit().await, &ErrorKind::Invalid);
        unit.get_mut::<Contact>("a").unwrap().moved_to = None;
        unit.get_mut::<Contact>("a").unwrap().id = "a-2".to_owned();
        refused(unit.commit().await, &ErrorKind::Invalid);
        assert_eq!(world.faults.commits(), 0);
        // Once it is empty it may go elsewhere.
        assert!(unit.release::<Contact>("a").is_some());
        unit.create(Contact::new("b")).unwrap();
        unit.commit().await.unwrap();
    });
}

#[test]
fn an_oversize_batch_is_refused_before_anything_is_sent() {
    let world = World::new();
    let outbox = world.outbox();
    block_on(async {
        // Each has an event: 51 are 102 documents.
        let mut unit = outbox.unit();
        for index in 0..51 {
            unit.create(Contact::new(&format!("h-{index}"))).unwrap();
        }
        let kind = ErrorKind::TooManyOperations { operations: 102, operations_max: 100 };
        let report = refused(unit.commit().await, &kind);
        assert!(report.contains("commit fewer entities at a time"), "{report}");
        unit.release::<Contact>("h-50").unwrap();
        unit.commit().await.unwrap();
        let commits = world.faults.commits();

        let mut contact = Contact::new("b");
        contact.email = "x".repeat(2 * 1024 * 1024);
        unit.create(contact).unwrap();
        let error = unit.commit().await.unwrap_err();
        let ErrorKind::TooLarge { bytes_max: 2_097_152, .. } = error.kind() else {
            panic!("{}", error.report());
        };
        assert!(error.report().contains("keep large content elsewhere"), "{}", error.report());
        unit.reset();

        for index in 0..3 {
            let mut contact = Contact::new(&format!("c-{index}"));
            contact.email = "x".repeat(800 * 1024);
            unit.create(contact).unwrap();
        }
        let report = unit.commit().await.unwrap_err().report();
        assert!(report.contains("one batch takes 2097152"), "{report}");
        assert_eq!(world.faults.commits(), commits, "something was sent");
    });
}

#[test]
fn limits_of_a_backend_count() {
    let world = World::new();
    let limits = Limits { operations_max: 1, ..Limits::default() };
    let mut unit = world.outbox_with(OutboxOptions::default().limits(limits)).unit();
    unit.create(Contact::new("a")).unwrap();
    let kind = ErrorKind::TooManyOperations { operations: 2, operations_max: 1 };
    refused(block_on(unit.commit()), &kind);
}

#[test]
fn a_conflict_names_the_entity_and_leaves_the_unit_reusable() {
    let world = World::new();
    let outbox = world.outbox();
    block_on(async {
        world.stored(&outbox, "h-1").await;
        world.stored(&outbox, "h-2").await;
        let mut unit = outbox.unit();
        for id in ["h-1", "h-2"] {
            let Versioned { mut entity, etag } = read(&unit, id).await;
            entity.set_name("mine");
            unit.update(entity, etag).unwrap();
        }
        let mut other = outbox.unit();
        let Versioned { mut entity, etag } = read(&other, "h-2").await;
        entity.set_name("theirs");
        other.update(entity, etag).unwrap();
        other.commit().await.unwrap();

        for _ in 0..2 {
            let error = unit.commit().await.unwrap_err();
            let conflict = error.conflict().expect("a conflict");
            assert_eq!((conflict.id.as_str(), conflict.reason), ("h-2", ConflictReason::Changed));
        }
        assert_eq!(read(&unit, "h-1").await.entity.name, "Ada", "half of it was written");

        unit.release::<Contact>("h-2").unwrap();
        let Versioned { mut entity, etag } = read(&unit, "h-2").await;
        entity.set_name("mine after all");
        unit.update(entity, etag).unwrap();
        assert_eq!(unit.commit().await.unwrap().events.len(), 2);
    });
}

#[test]
fn creating_what_exists_and_updating_what_is_gone_are_conflicts() {
    let world = World::new();
    let outbox = world.outbox();
    block_on(async {
        world.stored(&outbox, "a").await;
        let mut unit = outbox.unit();
        unit.create(Contact::new("a")).unwrap();
        let error = unit.commit().await.unwrap_err();
        assert_eq!(error.conflict().unwrap().reason, ConflictReason::Exists);
        unit.reset();
        assert!(unit.is_empty());

        let Versioned { mut entity, etag } = read(&unit, "a").await;
        let id = millstream_core::ItemId::new("a").unwrap();
        let batch = millstream_core::Batch::new("a").with(Operation::delete(id));
        world.container.documents.commit(batch).await.unwrap();
        entity.set_name("B");
        unit.update(entity, etag).unwrap();
        let error = unit.commit().await.unwrap_err();
        assert_eq!(error.conflict().unwrap().reason, ConflictReason::Gone);
        assert_eq!(world.actions("a").await, ["ContactCreated"]);
    });
}

#[test]
fn a_second_delete_is_refused_and_raises_no_second_event() {
    let world = World::new();
    let outbox = world.outbox();
    block_on(async {
        world.stored(&outbox, "a").await;
        let mut unit = outbox.unit();
        let Versioned { entity, etag } = read(&unit, "a").await;
        unit.delete(entity, etag).unwrap();
        unit.commit().await.unwrap();
        let Versioned { entity, etag } = read(&unit, "a").await;
        assert!(entity.deleted, "it is kept as a mark");
        let report = refused(unit.delete(entity, etag), &ErrorKind::AlreadyDeleted);
        assert_eq!(report, "could not delete \"a\": it is deleted already");
        assert!(unit.is_empty());
        assert_eq!(world.actions("a").await, ["ContactCreated", "ContactDeleted"]);
    });
}

#[test]
fn an_event_without_its_entity_is_never_written() {
    let world = World::new();
    let outbox = world.outbox();
    block_on(async {
        world.stored(&outbox, "a").await;
        let mut unit = outbox.unit();
        refused(unit.raise("a", told("Alone", "x")), &ErrorKind::NotTracked);
        // An entity that only tells something is written with it.
        let Versioned { mut entity, etag } = read(&unit, "a").await;
        entity.tell(told("Greeted", "x"));
        unit.update(entity, etag.clone()).unwrap();
        let committed = unit.commit().await.unwrap();
        assert_ne!(committed.etag("a"), Some(&etag));
        // A refused entity takes its events with it.
        let Versioned { mut entity, .. } = read(&unit, "a").await;
        entity.set_name("late");
        unit.update(entity, etag).unwrap();
        unit.commit().await.unwrap_err();
        assert_eq!(world.actions("a").await, ["ContactCreated", "Greeted"]);
    });
}

#[test]
fn reading_with_a_known_etag_tells_whether_it_changed() {
    let world = World::new();
    let outbox = world.outbox();
    block_on(async {
        world.stored(&outbox, "a").await;
        let mut unit = outbox.unit();
        let Versioned { mut entity, etag } = read(&unit, "a").await;
        let same = unit.read_if_changed::<Contact>("a", "a", &etag).await.unwrap();
        assert!(matches!(same, ReadIfChanged::NotModified));
        entity.set_name("B");
        unit.update(entity, etag.clone()).unwrap();
        unit.commit().await.unwrap();
        let other = unit.read_if_changed::<Contact>("a", "a", &etag).await.unwrap();
        assert!(matches!(other, ReadIfChanged::Changed(it) if it.entity.name == "B"));
        let none = unit.read_if_changed::<Contact>("a", "none", &etag).await.unwrap();
        assert!(matches!(none, ReadIfChanged::NotFound));
        assert!(unit.read::<Journal>("a", "a").await.unwrap().is_none(), "it is a contact");
        assert!(unit.read::<Contact>("a", "a/b").await.is_err());
    });
}

#[test]
fn all_entities_are_read_by_page_without_events_and_deleted_ones() {
    let world = World::new();
    let outbox = world.outbox();
    block_on(async {
        for index in 0..25 {
            world.stored(&outbox, &format!("contact{index}")).await;
        }
        let mut unit = outbox.unit();
        let Versioned { entity, etag } = read(&unit, "contact7").await;
        unit.delete(entity, etag).unwrap();
        unit.commit().await.unwrap();
        let (mut found, mut continuation) = (Vec::new(), None);
        loop {
            let page = unit.read_all::<Contact>(4, continuation).await.unwrap();
            assert!(page.entities.len() <= 4);
            found.extend(page.entities.into_iter().map(|it| it.entity.id));
            continuation = page.continuation;
            if continuation.is_none() {
                break;
            }
        }
        found.sort();
        found.dedup();
        assert_eq!(found.len(), 24);
        assert!(!found.contains(&"contact7".to_owned()));
    });
}

#[test]
fn what_cannot_be_an_outbox_is_refused_with_a_reason() {
    let check = |settings, expected: &str| {
        let world = World::with(settings);
        let ids = std::sync::Arc::new(millstream_core::CountingIds::default());
        let error = Outbox::new(&world.container, world.clock.clone(), ids).unwrap_err();
        assert!(error.report().contains(expected), "{}", error.report());
    };
    check(settings("/partitionKey"), "create it with the default TTL -1");
    check(settings("/id").default_ttl(TimeToLive::Never), "create it with /partitionKey");
    let mut no_events = settings("/partitionKey").default_ttl(TimeToLive::Never);
    no_events.event_type = None;
    check(no_events, "it has no event type");
}

#[test]
fn a_commit_can_run_in_any_task() {
    let world = World::new();
    let outbox = world.outbox();
    let mut unit = outbox.unit();
    assert_send_sync(&outbox);
    assert_send_sync(&unit);
    unit.create(Contact::new("a")).unwrap();
    let task = std::thread::spawn(move || {
        let future = async move { unit.commit().await.map(|it| it.events.len()) };
        fn send<T: Send>(it: T) -> T {
            it
        }
        block_on(send(future)).unwrap()
    });
    assert_eq!(task.join().unwrap(), 1);
}

#[test]
fn an_update_of_a_new_entity_and_an_unreadable_document_are_refused() {
    let world = World::new();
    let outbox = world.outbox();
    block_on(async {
        let mut unit = outbox.unit();
        let etag = millstream_core::Etag::new("1");
        refused(unit.update(Contact::new("a"), etag), &ErrorKind::Invalid);
        let body = r#"{"id":"a","partitionKey":"a","type":"contact","data":{"id":1}}"#;
        let batch = millstream_core::Batch::new("a").with(Operation::create(body));
        world.container.documents.commit(batch).await.unwrap();
        let report = refused(unit.read::<Contact>("a", "a").await, &ErrorKind::Unreadable);
        assert!(report.starts_with("could not read the stored document \"a\": "), "{report}");
    });
}
