use futures_lite::future::block_on;
use millstream_core::{Batch, ItemId, Operation, PartitionKey, Settlement};

use crate::stored::{self, CATALOG, Definition, EntityDocument};
use crate::tests::world::{World, messages, settle, take};
use crate::{Inspection, QueueSettings, SubscriptionSettings, TopicSettings, inspect};

fn inspected(world: &World) -> Inspection {
    block_on(inspect(&world.container, &*world.clock)).unwrap()
}

/// A broker with a queue, of whose messages one is done, and a topic.
fn used() -> World {
    let world = World::new();
    world.run(async |broker| {
        broker.create_queue("Q", QueueSettings::default()).await.unwrap();
        broker.create_topic("t", TopicSettings::default()).await.unwrap();
        let settings = SubscriptionSettings::default();
        broker.create_subscription("t", "s", settings).await.unwrap();
        broker.send("t", messages("a1")).await.unwrap();
        broker.send("q", messages("a1 a2")).await.unwrap();
        broker.send("q", messages("a3")).await.unwrap();
        let received = take(broker, "q", 1).await;
        settle(broker, "q", &received, Settlement::Complete).await;
    });
    world
}

fn change(world: &World, partition: &str, operation: Operation) {
    let batch = Batch::new(PartitionKey::from(partition)).with(operation);
    block_on(world.container.documents.commit(batch)).unwrap();
}

#[track_caller]
fn check_problem(world: &World, expected: &str) {
    let found = inspected(world).problems;
    assert!(found.len() == 1 && found[0].contains(expected), "{found:?}");
}

#[test]
fn what_a_broker_wrote_is_in_order_and_stays_as_it_is() {
    assert_eq!(inspected(&World::new()), Inspection::default());
    let world = used();
    let before = world.bytes("");
    let sound = Inspection { entities: 2, messages: 4, problems: Vec::new() };
    assert_eq!(inspected(&world), sound);
    assert_eq!(world.bytes(""), before);
    world.run(async |broker| broker.delete_entity("q").await.unwrap());
    assert_eq!(inspected(&world).problems, Vec::<String>::new());
}

#[test]
fn an_entity_that_was_just_made_when_the_broker_died_is_in_order() {
    let world = used();
    let definition = Definition::Queue(QueueSettings::default());
    let document = EntityDocument::new("new", 2, definition);
    change(&world, CATALOG, Operation::upsert(stored::document(&document)));
    let inspection = inspected(&world);
    assert_eq!((inspection.entities, inspection.problems), (3, Vec::new()));
}

#[test]
fn bytes_that_mean_nothing_are_a_problem() {
    let world = used();
    let document = stored::segment_document("q@1", 1, &[9, 9, 9]);
    change(&world, "q@1", Operation::upsert(document));
    check_problem(&world, "\"Q\", document \"seg-00000000000000000001\": could not read segment 1");
}

#[test]
fn documents_that_belong_to_nothing_are_a_problem() {
    let world = used();
    let document = stored::segment_document("lost@7", 1, &[]);
    change(&world, "lost@7", Operation::upsert(document));
    check_problem(&world, "1 documents of [\"lost@7\"] belong to no queue or topic");
}

#[test]
fn a_queue_without_its_head_or_with_an_old_one_is_a_problem() {
    let world = used();
    change(&world, "q@1", Operation::delete(ItemId::new("head").unwrap()));
    check_problem(&world, "up to number 3, but would give 1 to the next");
    let head = stored::Head::new("q@1", "nobody", 1, 2);
    change(&world, "q@1", Operation::upsert(stored::document(&head)));
    check_problem(&world, "up to number 3, but would give 2 to the next");
}
