use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use millstream_core::conformance::block_on;
use millstream_core::{Batch, Etag, ItemId, Message, Operation, TimeToLive};

use crate::test_world::{World, settings};
use crate::{
    ConflictReason, DuplicateBy, ErrorKind, GapPolicy, HandlerError, Inbox, InboxOptions, Incoming,
    Order, Outcome,
};

const BY_ID: Outcome = Outcome::Duplicate { by: DuplicateBy::Id };

fn handled(order: Order) -> Outcome {
    Outcome::Handled { order }
}

fn message(id: &str, sequence: u64) -> Incoming {
    Incoming::new(id, "a").unwrap().sequence(sequence)
}

/// Adds one row per message, so that a second effect would show.
async fn row(batch: Batch, id: &str) -> Result<Batch, HandlerError> {
    let body = format!(r#"{{"id":"row-{id}","partitionKey":"a"}}"#);
    Ok(batch.with(Operation::upsert(body)))
}

async fn handle(inbox: &Inbox, message: &Incoming) -> crate::Result<Outcome> {
    let id = message.id.clone();
    inbox.handle(message, |batch| async move { row(batch, &id).await }).await
}

async fn rows(world: &World) -> usize {
    world.items("a").await.iter().filter(|it| it.id.as_str().starts_with("row-")).count()
}

#[test]
fn a_duplicate_message_has_one_effect() {
    let world = World::new();
    let inbox = Inbox::new(&world.container, "search").unwrap();
    block_on(async {
        let effects = AtomicUsize::new(0);
        let one = message("m1", 1);
        assert!(!inbox.has_seen(&one).await.unwrap());
        for expected in [handled(Order::First { found: 1 }), BY_ID, BY_ID] {
            let outcome = inbox.handle(&one, |batch| async {
                effects.fetch_add(1, Ordering::Relaxed);
                row(batch, "m1").await
            });
            assert_eq!(outcome.await.unwrap(), expected);
        }
        assert_eq!(effects.load(Ordering::Relaxed), 1);
        assert!(inbox.has_seen(&one).await.unwrap());
        // Another consumer has its own memory.
        let other = Inbox::new(&world.container, "mail").unwrap();
        assert_eq!(handle(&other, &one).await.unwrap(), handled(Order::First { found: 1 }));
    });
}

#[test]
fn documents_of_the_inbox_look_as_promised() {
    let world = World::new();
    let inbox = Inbox::new(&world.container, "search").unwrap();
    block_on(async {
        inbox.handle(&message("m/1%", 3), |batch| row(batch, "x")).await.unwrap();
        let bodies = world.bodies("a").await;
        let expected = serde_json::json!({
            "id": "inbox:search", "partitionKey": "a", "type": "inbox", "consumer": "search",
            "lastSequence": 3, "missing": [[1, 2]], "ttl": -1,
        });
        assert_eq!(bodies[0], expected);
        let expected = serde_json::json!({
            "id": "inbox:search:m%2F1%25", "partitionKey": "a", "type": "inbox",
            "consumer": "search", "messageId": "m/1%", "ttl": 14 * 24 * 3600,
        });
        assert_eq!(bodies[1], expected);
    });
}

#[test]
fn gaps_reorders_and_duplicates_are_reported() {
    let world = World::new();
    let inbox = Inbox::new(&world.container, "search").unwrap();
    block_on(async {
        let gap = handled(Order::Gap { expected: 3, found: 5 });
        for (id, sequence, expected) in [
            ("m1", 1, handled(Order::First { found: 1 })),
            ("m2", 2, handled(Order::InOrder)),
            ("m5", 5, gap),
            ("m5", 5, BY_ID),
            ("m3", 3, handled(Order::Late { last: 5, found: 3 })),
            ("m6", 6, handled(Order::InOrder)),
            ("other", 2, Outcome::Duplicate { by: DuplicateBy::Sequence }),
        ] {
            let outcome = handle(&inbox, &message(id, sequence)).await.unwrap();
            assert_eq!(outcome, expected, "{id}");
        }
        assert_eq!(gap.gap(), Some((3, 5)));
        let unnumbered = Incoming::new("plain", "a").unwrap();
        assert_eq!(handle(&inbox, &unnumbered).await.unwrap(), handled(Order::Unnumbered));
        assert_eq!(rows(&world).await, 6);
    });
}

#[test]
fn a_gap_can_be_refused() {
    let world = World::new();
    let options = InboxOptions::default().gaps(GapPolicy::Refuse);
    let inbox = Inbox::new_with(&world.container, "search", options).unwrap();
    block_on(async {
        handle(&inbox, &message("m1", 1)).await.unwrap();
        let commits = world.faults.commits();
        let third = message("m3", 3);
        let outcome = inbox.handle(&third, |_| async { panic!("the effect was asked") });
        let error = outcome.await.unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::SequenceGap { expected: 2, found: 3 });
        assert_eq!(world.faults.commits(), commits);
        for id in 2..=3 {
            let outcome = handle(&inbox, &message(&format!("m{id}"), id)).await.unwrap();
            assert_eq!(outcome, handled(Order::InOrder));
        }
    });
}

#[test]
fn of_two_consumers_at_once_one_wins_and_the_other_gets_duplicate() {
    let world = World::new();
    let inbox = Inbox::new(&world.container, "search").unwrap();
    block_on(async {
        let one = message("m1", 1);
        let outcome = inbox.handle(&one, |batch| async {
            // While this one works out its effect, another is done.
            assert_eq!(handle(&inbox, &one).await?, handled(Order::First { found: 1 }));
            row(batch, "second effect").await
        });
        assert_eq!(outcome.await.unwrap(), BY_ID);
        assert_eq!(rows(&world).await, 1);
    });
}

#[test]
fn messages_of_one_key_at_once_are_all_handled_and_counted() {
    for stored_before in [false, true] {
        let world = World::new();
        let inbox = Inbox::new(&world.container, "search").unwrap();
        block_on(async {
            if stored_before {
                handle(&inbox, &message("m0", 1)).await.unwrap();
            }
            let first = 1 + u64::from(stored_before);
            let slow = message("slow", first);
            let outcome = inbox.handle(&slow, |batch| async {
                for number in first + 1..=first + 3 {
                    handle(&inbox, &message(&format!("m{number}"), number)).await?;
                }
                row(batch, "slow").await
            });
            let late = Order::Late { last: first + 3, found: first };
            assert_eq!(outcome.await.unwrap(), handled(late));
            assert_eq!(rows(&world).await, 4 + usize::from(stored_before));
            // What the others noted is still there.
            let last = handle(&inbox, &message("last", first + 4)).await.unwrap();
            assert_eq!(last, handled(Order::InOrder));
        });
    }
}

#[test]
fn a_lost_reply_does_not_double_the_effect() {
    for script in ["a", "r", "ra", "d"] {
        let world = World::new();
        let inbox = Inbox::new(&world.container, "search").unwrap();
        block_on(async {
            world.faults.plan(script);
            let one = message("m1", 1);
            let outcome = loop {
                match handle(&inbox, &one).await {
                    Ok(outcome) => break outcome,
                    Err(error) => {
                        let unavailable = millstream_core::ErrorKind::Unavailable;
                        let kinds = [ErrorKind::Unknown, ErrorKind::Store(unavailable)];
                        assert!(kinds.contains(error.kind()), "{}", error.report());
                    }
                }
            };
            let is_repeated = script.contains('a');
            assert_eq!(outcome == BY_ID, is_repeated, "{script}");
            assert_eq!(rows(&world).await, 1);
        });
    }
}

#[test]
fn an_effect_that_fails_leaves_no_trace() {
    let world = World::new();
    let inbox = Inbox::new(&world.container, "search").unwrap();
    block_on(async {
        let one = message("m1", 1);
        let error = inbox.handle(&one, |_| async { Err("no".into()) }).await.unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::Refused);
        assert_eq!(error.report(), "could not handle the message \"m1\" for \"search\": no");

        let error = inbox.handle(&one, |batch| async {
            let id = ItemId::new("row")?;
            let body = r#"{"id":"row","partitionKey":"a"}"#;
            Ok(batch.with(Operation::replace(id, body).if_match(Etag::new("1"))))
        });
        let error = error.await.unwrap_err();
        let conflict = error.conflict().expect("a conflict");
        assert_eq!((conflict.id.as_str(), conflict.reason), ("row", ConflictReason::Gone));

        let error = inbox.handle(&one, |_| async { Ok(Batch::new("b")) }).await.unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::OtherPartition);

        let error = inbox.handle(&one, |batch| async {
            let read = Operation::read(ItemId::new("row")?);
            Ok((0..99).fold(batch, |batch, _| batch.with(read.clone())))
        });
        let kind = ErrorKind::TooManyOperations { operations: 99, operations_max: 98 };
        assert_eq!(*error.await.unwrap_err().kind(), kind);
        assert!(world.items("a").await.is_empty());
        assert_eq!(handle(&inbox, &one).await.unwrap(), handled(Order::First { found: 1 }));
    });
}

#[test]
fn ids_are_forgotten_after_a_while_and_numbers_still_tell() {
    let world = World::new();
    let options = InboxOptions::default().keep(Duration::from_secs(60));
    let inbox = Inbox::new_with(&world.container, "search", options).unwrap();
    block_on(async {
        let (one, plain) = (message("m1", 1), Incoming::new("plain", "a").unwrap());
        handle(&inbox, &one).await.unwrap();
        handle(&inbox, &plain).await.unwrap();
        world.clock.advance(Duration::from_secs(61));
        assert!(!inbox.has_seen(&one).await.unwrap());
        let by_sequence = Outcome::Duplicate { by: DuplicateBy::Sequence };
        assert_eq!(handle(&inbox, &one).await.unwrap(), by_sequence);
        assert_eq!(handle(&inbox, &plain).await.unwrap(), handled(Order::Unnumbered));
        // A producer that counts anew.
        for _ in 0..2 {
            inbox.forget_sequence("a").await.unwrap();
        }
        let again = message("anew", 1);
        assert_eq!(handle(&inbox, &again).await.unwrap(), handled(Order::First { found: 1 }));
    });
}

#[test]
fn a_message_of_a_broker_says_all_that_is_needed() {
    let message = Message::new("m1", "{}").session("contact-17");
    let plain = Incoming::new("m1", "contact-17").unwrap();
    assert_eq!(Incoming::try_from(&message).unwrap(), plain);
    for message in [
        message.clone().property("sequence", 7),
        message.clone().property("cloudEvents:sequence", "7"),
        message.property("cloudEvents_sequence", "7").property("sequence", 8),
    ] {
        assert_eq!(Incoming::try_from(&message).unwrap(), plain.clone().sequence(7));
    }
    assert!(Incoming::try_from(&Message::new("m1", "{}")).is_err());
    assert!(Incoming::try_from(&Message::new("", "{}").session("a")).is_err());
}

#[test]
fn what_cannot_be_an_inbox_is_refused_with_a_reason() {
    let world = World::new();
    for name in ["", "a:b", "a/b", &"x".repeat(129)] {
        assert!(Inbox::new(&world.container, name).is_err(), "{name}");
    }
    let short = InboxOptions::default().keep(Duration::from_millis(10));
    assert!(Inbox::new_with(&world.container, "search", short).is_err());
    let world = World::with(settings("/partitionKey"));
    let report = Inbox::new(&world.container, "search").unwrap_err().report();
    assert!(report.ends_with("create it with the default TTL -1"), "{report}");
    let mut own = settings("/partitionKey").default_ttl(TimeToLive::Never);
    own.event_type = Some("inbox".to_owned());
    assert!(Inbox::new(&World::with(own).container, "search").is_err());
}

#[test]
fn a_message_can_be_handled_in_any_task() {
    let world = World::new();
    let inbox = Inbox::new(&world.container, "search").unwrap();
    let task = std::thread::spawn(move || {
        let future: millstream_core::BoxFuture<'_, _> =
            Box::pin(async move { handle(&inbox, &message("m1", 1)).await });
        block_on(future).unwrap()
    });
    assert_eq!(task.join().unwrap(), handled(Order::First { found: 1 }));
}
