use std::time::Duration;

use futures_lite::future::zip;
use millstream_core::{ErrorKind, Message, PropertyValue, SessionReceiver, Settlement, Timestamp};

use crate::tests::world::{World, ids, message, messages, settle, take, tokens};
use crate::{BrokerOptions, DeadLetters, MessageState, QueueSettings, ReceiveMode};

#[test]
fn what_was_acknowledged_survives_and_what_was_completed_does_not_come_again() {
    let world = World::new();
    world.run(async |broker| {
        broker.create_queue("Q", QueueSettings::default()).await.unwrap();
        let sent = broker.send("q", messages("a1 a2 a3")).await.unwrap();
        assert_eq!(sent.sequence_numbers, [Some(1), Some(2), Some(3)]);
        let received = take(broker, "q", 2).await;
        settle(broker, "q", &received[1..], Settlement::Complete).await;
    });
    world.run(async |broker| {
        let received = take(broker, "q", 9).await;
        assert_eq!(ids(&received), "a1 a3");
        assert_eq!(received[0].delivery.message, message("a1"));
        settle(broker, "q", &received, Settlement::Complete).await;
        let sent = broker.send("q", messages("a4")).await.unwrap();
        assert_eq!(sent.sequence_numbers, [Some(4)]);
    });
    assert_eq!((world.documents("seg-"), world.documents("ack-")), (1, 0));
}

#[test]
fn many_sends_at_once_are_one_commit() {
    let world = World::new();
    world.run(async |broker| {
        broker.create_queue("q", QueueSettings::default()).await.unwrap();
        let before = world.commits();
        let sends = (0..50).map(|it| {
            let broker = broker.clone();
            async move { broker.send("q", vec![Message::new(it.to_string(), "x")]).await }
        });
        let outcomes = futures_util::future::join_all(sends).await;
        for (number, outcome) in (1..).zip(outcomes) {
            assert_eq!(outcome.unwrap().sequence_numbers, [Some(number)]);
        }
        assert!(world.commits() <= before + 2, "{}", world.commits() - before);
        let received = take(broker, "q", 100).await;
        let before = world.commits();
        let lists: Vec<Vec<&str>> = tokens(&received).into_iter().map(|it| vec![it]).collect();
        let settles = lists.iter().map(|it| broker.settle("q", it, &Settlement::Complete));
        futures_util::future::join_all(settles).await;
        assert!(world.commits() <= before + 2, "{}", world.commits() - before);
    });
}

#[test]
fn duplicates_are_known_after_a_restart_until_the_window_ends() {
    let world = World::new();
    world.run(async |broker| {
        broker.create_queue("q", QueueSettings::default()).await.unwrap();
        broker.send("q", messages("a1 a2 a3")).await.unwrap();
        let received = take(broker, "q", 2).await;
        settle(broker, "q", &received, Settlement::Complete).await;
    });
    world.run(async |broker| {
        let sent = broker.send("q", messages("a1 a3 a4")).await.unwrap();
        assert_eq!((sent.duplicates, sent.sequence_numbers), (2, vec![None, None, Some(4)]));
        let received = take(broker, "q", 9).await;
        assert_eq!(ids(&received), "a3 a4");
        settle(broker, "q", &received, Settlement::Complete).await;
    });
    assert_eq!((world.documents("seg-"), world.documents("ids-")), (0, 1));
    world.wait(599);
    world.run(async |broker| {
        assert_eq!(broker.send("q", messages("a1 a2 a3 a4")).await.unwrap().duplicates, 4);
        world.wait(1);
        let sent = broker.send("q", messages("a1 a4 a1")).await.unwrap();
        assert_eq!(sent.sequence_numbers, [Some(5), Some(6), None]);
    });
    assert_eq!(world.documents("ids-"), 0);
}

#[test]
fn deferred_and_dead_letters_and_delivery_counts_survive() {
    let world = World::new();
    world.run(async |broker| {
        broker.create_queue("q", QueueSettings::default()).await.unwrap();
        broker.send("q", messages("a1 a2 a3")).await.unwrap();
        let received = take(broker, "q", 9).await;
        settle(broker, "q", &received[..1], Settlement::Defer).await;
        let (reason, description) = ("Bad".to_owned(), "so bad".to_owned());
        let dead = Settlement::DeadLetter { reason, description };
        settle(broker, "q", &received[1..2], dead).await;
        settle(broker, "q", &received[2..], Settlement::Abandon).await;
    });
    world.run(async |broker| {
        let received = take(broker, "q", 9).await;
        assert_eq!((ids(&received).as_str(), received[0].delivery.delivery_count), ("a3", 2));
        let mode = ReceiveMode::PeekLock;
        let deferred = broker.receive_deferred("q", mode, &[1]).await.unwrap();
        assert_eq!(ids(&deferred), "a1");
        let missing = broker.receive_deferred("q", mode, &[3]).await.unwrap_err();
        assert_eq!(missing.kind(), ErrorKind::NotFound);
        let dead = take(broker, "Q/$deadletterqueue", 9).await;
        assert_eq!(ids(&dead), "a2");
        let reason = dead[0].delivery.message.properties.get("DeadLetterReason");
        assert_eq!(reason, Some(&PropertyValue::String("Bad".to_owned())));
        let counts = broker.counts("q").unwrap();
        assert_eq!((counts.active, counts.deferred, counts.dead_lettered), (1, 1, 1));
        broker.release("q/$DeadLetterQueue", &tokens(&dead)).unwrap();
        let which = DeadLetters::First(9);
        let back = broker.resubmit_dead_letters("q/$DeadLetterQueue", &which).await.unwrap();
        assert_eq!(back, 1);
    });
    world.run(async |broker| {
        let received = take(broker, "q", 9).await;
        assert_eq!(ids(&received), "a2 a3");
        assert_eq!(received[0].delivery.delivery_count, 1);
        assert!(received[0].delivery.message.properties.is_empty());
    });
}

#[test]
fn scheduled_messages_survive_and_wake_a_receiver() {
    let world = World::new();
    let at = Timestamp::from_millis(1_010_000);
    world.run(async |broker| {
        broker.create_queue("q", QueueSettings::default()).await.unwrap();
        let numbers = broker.schedule("q", messages("a1 a2"), at).await.unwrap();
        assert_eq!(numbers, [Some(1), Some(2)]);
        broker.cancel_scheduled("q", &[1]).await.unwrap();
        let error = broker.cancel_scheduled("q", &[1]).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
    });
    world.run(async |broker| {
        assert!(take(broker, "q", 9).await.is_empty());
        let peeked = broker.peek("q", 0, 9, None).await.unwrap();
        assert_eq!(peeked.len(), 1);
        assert_eq!(peeked[0].state, MessageState::Scheduled);
        let wait = Duration::from_secs(60);
        let receive = broker.receive("q", ReceiveMode::ReceiveAndDelete, 9, wait);
        let (received, ()) = zip(receive, async {
            futures_lite::future::yield_now().await;
            world.wait(10);
        })
        .await;
        assert_eq!(ids(&received.unwrap()), "a2");
    });
    world.run(async |broker| assert!(take(broker, "q", 9).await.is_empty()));
}

#[test]
fn the_state_of_a_session_survives_until_it_is_removed() {
    let world = World::new();
    let accept = async |broker: &crate::Broker| {
        broker.accept_session("q", Some("s"), Duration::ZERO).await.unwrap().unwrap()
    };
    world.run(async |broker| {
        broker.create_queue("q", QueueSettings::with_sessions()).await.unwrap();
        let session = accept(broker).await;
        assert_eq!(session.state().await.unwrap(), None);
        session.set_state(Some(b"one")).await.unwrap();
        session.set_state(Some(b"two")).await.unwrap();
        let again = broker.accept_session("q", Some("s"), Duration::ZERO).await;
        assert_eq!(again.unwrap_err().kind(), ErrorKind::Locked);
        session.close().await.unwrap();
        let error = session.set_state(None).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::PreconditionFailed);
    });
    world.run(async |broker| {
        let session = accept(broker).await;
        assert_eq!(session.state().await.unwrap().as_deref(), Some(&b"two"[..]));
        let (first, second) = zip(session.set_state(None), session.set_state(None)).await;
        assert!(first.is_ok() && second.is_ok());
        session.set_state(None).await.unwrap();
        assert_eq!(session.state().await.unwrap(), None);
    });
    assert_eq!(world.documents("state-"), 0);
}

#[test]
fn large_batches_are_split_in_order_and_limits_are_errors() {
    let mut world = World::new();
    world.options = BrokerOptions::default().messages_max(2600).cache_bytes_max(0);
    world.run(async |broker| {
        broker.create_queue("q", QueueSettings::default()).await.unwrap();
        let large = |it: u32| Message::new(it.to_string(), vec![0; 1000]);
        let sent = broker.send("q", (0..2500).map(large).collect()).await.unwrap();
        assert_eq!(sent.sequence_numbers.last(), Some(&Some(2500)));
        let received = take(broker, "q", 9999).await;
        assert_eq!(received.len(), 2500);
        assert!(received.is_sorted_by_key(|it| it.delivery.sequence_number));
        let error = broker.send("q", (3000..3101).map(large).collect()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Overloaded);
        let report = "could not send to \"q\": it keeps 2500 messages of at most 2600";
        assert_eq!(error.report(), report);

        let too_large = vec![Message::new("x", ""), Message::new("y", vec![0; 1024 * 1024])];
        let error = broker.send("q", too_large).await.unwrap_err();
        assert_eq!((error.kind(), error.operation()), (ErrorKind::TooLarge, Some(1)));
        let error = broker.send("nowhere", vec![]).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
        let biggest = Message::new("z", vec![0; 1024 * 1024 - 65]);
        broker.send("q", vec![biggest.clone(), Message::new("zz", "")]).await.unwrap();
    });
    assert!(world.documents("seg-") == 4, "{}", world.documents("seg-"));
}

#[test]
fn peeking_changes_nothing() {
    let world = World::new();
    world.run(async |broker| {
        broker.create_queue("q", QueueSettings::with_sessions()).await.unwrap();
        broker.send("q", messages("a1 b1 a2 b2")).await.unwrap();
        let session = broker.accept_session("q", None, Duration::ZERO).await.unwrap().unwrap();
        assert_eq!(session.session_id(), "a");
        session.receive(1, Duration::ZERO).await.unwrap();
        let all = broker.peek("q", 2, 2, None).await.unwrap();
        let numbers: Vec<u64> = all.iter().map(|it| it.sequence_number).collect();
        assert_eq!(numbers, [2, 3]);
        let mine = broker.peek("q", 0, 9, Some("a")).await.unwrap();
        let found: Vec<&str> = mine.iter().map(|it| it.message.id.as_str()).collect();
        assert_eq!(found, ["a1", "a2"]);
        assert_eq!(broker.session_ids("q", 0, 9).unwrap(), ["a", "b"]);
    });
}

#[test]
fn a_queue_is_nearly_full_from_four_fifths_of_its_limit_until_there_is_room() {
    let mut world = World::new();
    world.options = BrokerOptions::default().messages_max(10);
    world.run(async |broker| {
        broker.create_queue("Q", QueueSettings::default()).await.unwrap();
        for (ids, is_nearly_full) in [("a1 a2 a3 a4 a5 a6 a7", false), ("a8", true), ("a9", true)] {
            broker.send("q", messages(ids)).await.unwrap();
            assert_eq!(broker.fill("q").unwrap().is_nearly_full, is_nearly_full, "{ids}");
        }
        let fill = broker.fill("Q").unwrap();
        assert_eq!((fill.messages, fill.messages_max), (9, 10));
    });
    world.run(async |broker| {
        assert!(broker.fill("q").unwrap().is_nearly_full, "also after a restart");
        let received = take(broker, "q", 8).await;
        settle(broker, "q", &received, Settlement::Complete).await;
        assert!(!broker.fill("q").unwrap().is_nearly_full);
        assert_eq!(broker.fill("nobody").unwrap_err().kind(), ErrorKind::NotFound);
    });
}
