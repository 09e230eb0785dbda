use std::time::Duration;

use millstream_core::{ErrorKind, Message, Settlement};

use crate::tests::world::{World, ids, messages, settle, take};
use crate::{Filter, QueueSettings, ReceiveSettings, Rule, SubscriptionSettings, TopicSettings};

fn only(subject: &str) -> SubscriptionSettings {
    let filter = Filter::sql(&format!("sys.Label = '{subject}'")).unwrap();
    let rules = vec![Rule::new("only", filter)];
    SubscriptionSettings { rules, ..SubscriptionSettings::default() }
}

#[test]
fn a_topic_keeps_a_message_once_and_offers_it_to_every_subscription_that_wants_it() {
    let world = World::new();
    world.run(async |broker| {
        broker.create_topic("T", TopicSettings::default()).await.unwrap();
        assert_eq!(broker.send("t", messages("x0")).await.unwrap().sequence_numbers, [Some(1)]);
        let all = SubscriptionSettings::default();
        broker.create_subscription("t", "All", all).await.unwrap();
        broker.create_subscription("t", "a", only("a")).await.unwrap();
        broker.send("t", messages("a1 b1 a2")).await.unwrap();
        let received = take(broker, "t/subscriptions/a", 9).await;
        assert_eq!(ids(&received), "a1 a2");
        settle(broker, "t/subscriptions/a", &received, Settlement::Complete).await;
    });
    assert_eq!(world.documents("seg-"), 1);
    world.run(async |broker| {
        assert!(take(broker, "T/Subscriptions/A", 9).await.is_empty());
        let received = take(broker, "t/Subscriptions/all", 9).await;
        assert_eq!(ids(&received), "a1 b1 a2");
        settle(broker, "t/Subscriptions/all", &received, Settlement::Complete).await;
        assert_eq!(broker.send("t", messages("x0")).await.unwrap().duplicates, 1);
    });
    assert_eq!((world.documents("seg-"), world.documents("ack-")), (0, 0));
}

#[test]
fn what_is_sent_to_one_subscription_gets_to_no_other_and_keeps_nothing_out() {
    let world = World::new();
    let one = "t/Subscriptions/one";
    world.run(async |broker| {
        broker.create_topic("t", TopicSettings::default()).await.unwrap();
        broker.create_subscription("t", "one", only("a")).await.unwrap();
        let all = SubscriptionSettings::default();
        broker.create_subscription("t", "two", all).await.unwrap();
        broker.send("t", messages("a1")).await.unwrap();
        // One that was sent before, one that was not, and one that the rules keep out.
        let sent = broker.send_to_one(one, messages("a1 a2 b3")).await.unwrap();
        assert_eq!(sent.duplicates, 0);
        for path in ["t", "t/Subscriptions/one/$DeadLetterQueue"] {
            let error = broker.send_to_one(path, messages("a1")).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Invalid);
        }
    });
    world.run(async |broker| {
        assert_eq!(ids(&take(broker, "t/Subscriptions/two", 9).await), "a1");
        assert_eq!(ids(&take(broker, one, 9).await), "a1 a1 a2");
        // The id of what went to one subscription alone is still new to all.
        let sent = broker.send("t", messages("a1 a2 b3")).await.unwrap();
        assert_eq!(sent.duplicates, 1);
        assert_eq!(ids(&take(broker, "t/Subscriptions/two", 9).await), "a2 b3");
    });
}

#[test]
fn what_is_sent_to_one_subscription_that_does_not_want_it_leaves_nothing() {
    let world = World::new();
    world.run(async |broker| {
        broker.create_topic("t", TopicSettings::default()).await.unwrap();
        broker.create_subscription("t", "one", only("a")).await.unwrap();
        broker.send_to_one("t/Subscriptions/one", messages("b1 b2")).await.unwrap();
        assert_eq!(broker.counts("t/Subscriptions/one").unwrap().active, 0);
    });
    assert_eq!((world.documents("seg-"), world.documents("ids-")), (0, 0));
}

#[test]
fn rules_are_added_and_removed() {
    let world = World::new();
    world.run(async |broker| {
        broker.create_topic("t", TopicSettings::default()).await.unwrap();
        broker.create_subscription("t", "s", only("a")).await.unwrap();
        let rule = only("b").rules[0].clone();
        let error = broker.add_rule("t", "s", rule.clone()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AlreadyExists);
        broker.add_rule("t", "s", Rule { name: "b".to_owned(), ..rule }).await.unwrap();
        broker.send("t", messages("a1 b1 c1")).await.unwrap();
        broker.remove_rule("t", "s", "ONLY").await.unwrap();
        let error = broker.remove_rule("t", "s", "only").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
        broker.send("t", messages("a2 b2")).await.unwrap();
        assert_eq!(ids(&take(broker, "t/Subscriptions/s", 9).await), "a1 b1 b2");
    });
    world.run(async |broker| {
        let subscriptions = broker.subscriptions("T").unwrap();
        assert_eq!(subscriptions.len(), 1);
        assert_eq!(subscriptions[0].1.rules.len(), 1);
    });
}

#[test]
fn a_subscription_that_is_removed_holds_nothing_back() {
    let world = World::new();
    world.run(async |broker| {
        broker.create_topic("t", TopicSettings::default()).await.unwrap();
        for name in ["one", "two"] {
            let settings = SubscriptionSettings::with_sessions();
            broker.create_subscription("t", name, settings).await.unwrap();
        }
        broker.send("t", messages("a1 a2")).await.unwrap();
        let path = "t/Subscriptions/one";
        let session = broker.accept_session(path, None, Duration::ZERO).await.unwrap().unwrap();
        session.set_state(Some(b"x")).await.unwrap();
        let received = session.receive_with(crate::ReceiveMode::PeekLock, 1, Duration::ZERO);
        let received = received.await.unwrap();
        settle(broker, path, &received, Settlement::Complete).await;
        assert_eq!((world.documents("ack-"), world.documents("state-")), (1, 1));
        broker.delete_subscription("t", "ONE").await.unwrap();
        let error = broker.counts(path).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
        assert_eq!(broker.counts("t/Subscriptions/two").unwrap().active, 2);
        broker.send("t", messages("a3")).await.unwrap();
    });
    assert_eq!((world.documents("ack-"), world.documents("state-")), (0, 0));
    world.run(async |broker| {
        // The same name again is another subscription.
        broker.create_subscription("t", "one", SubscriptionSettings::default()).await.unwrap();
        assert!(take(broker, "t/Subscriptions/one", 9).await.is_empty());
        broker.delete_subscription("t", "two").await.unwrap();
        broker.send("t", messages("a4")).await.unwrap();
        assert_eq!(ids(&take(broker, "t/Subscriptions/one", 9).await), "a4");
    });
    assert_eq!(world.documents("seg-"), 1);
}

#[test]
fn an_entity_that_is_removed_leaves_nothing_and_its_name_is_free() {
    let world = World::new();
    world.run(async |broker| {
        broker.create_queue("a/Q", QueueSettings::default()).await.unwrap();
        let again = broker.create_topic("A/q", TopicSettings::default()).await.unwrap_err();
        assert_eq!(again.kind(), ErrorKind::AlreadyExists);
        broker.send("a/q", messages("a1")).await.unwrap();
        broker.delete_entity("A/q").await.unwrap();
        let error = broker.send("a/q", messages("a1")).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
        assert_eq!((world.documents("seg-"), world.documents("gone-")), (0, 0));
        broker.create_queue("a/q", QueueSettings::default()).await.unwrap();
        let sent = broker.send("a/q", messages("a1")).await.unwrap();
        assert_eq!(sent.sequence_numbers, [Some(1)]);
    });
    world.run(async |broker| {
        assert_eq!(broker.queues().len(), 1);
        assert_eq!(broker.topics().len(), 0);
        assert_eq!(ids(&take(broker, "a/q", 9).await), "a1");
    });
}

#[test]
fn settings_can_be_changed_except_sessions() {
    let world = World::new();
    world.run(async |broker| {
        broker.create_queue("q", QueueSettings::default()).await.unwrap();
        let error = broker.update_queue("q", QueueSettings::with_sessions()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        let receive = ReceiveSettings { delivery_count_max: 1, ..ReceiveSettings::default() };
        let settings = QueueSettings { receive, duplicate_window: None };
        broker.update_queue("q", settings).await.unwrap();
        assert_eq!(broker.send("q", messages("a1 a1")).await.unwrap().duplicates, 0);
    });
    world.run(async |broker| {
        let received = take(broker, "q", 1).await;
        settle(broker, "q", &received, Settlement::Abandon).await;
        let counts = broker.counts("q").unwrap();
        assert_eq!((counts.active, counts.dead_lettered), (1, 1));
    });
}

#[test]
fn messages_of_a_subscription_that_nobody_reads_go_away_when_their_time_is_over() {
    let world = World::new();
    let with_days = |days: u64| {
        let default_time_to_live = Some(Duration::from_secs(days * 24 * 3600));
        let receive = ReceiveSettings { default_time_to_live, ..ReceiveSettings::with_sessions() };
        SubscriptionSettings { receive, ..SubscriptionSettings::default() }
    };
    world.run(async |broker| {
        broker.create_topic("t", TopicSettings::default()).await.unwrap();
        broker.create_subscription("t", "s", with_days(14)).await.unwrap();
        broker.send("t", messages("a1 b1 a2")).await.unwrap();
        world.wait(14 * 24 * 3600 - 10);
        world.pass(5).await;
        assert_eq!(world.documents("seg-"), 1);
        world.pass(10).await;
        assert_eq!((world.documents("seg-"), world.documents("ack-")), (0, 0));
    });
    // Also those that were there before they had an end.
    world.run(async |broker| {
        let settings = SubscriptionSettings::with_sessions();
        broker.create_subscription("t", "old", settings).await.unwrap();
        broker.delete_subscription("t", "s").await.unwrap();
        broker.send("t", messages("c1 c2")).await.unwrap();
        world.wait(24 * 3600 - 10);
        world.pass(20).await;
        assert_eq!(world.documents("seg-"), 1);
        broker.update_subscription("t", "old", with_days(1)).await.unwrap();
        world.pass(1).await;
        assert_eq!(world.documents("seg-"), 0);
    });
}

#[test]
fn what_does_not_fit_together_is_refused() {
    let world = World::new();
    world.run(async |broker| {
        broker.create_queue("plain", QueueSettings::default()).await.unwrap();
        broker.create_queue("sessions", QueueSettings::with_sessions()).await.unwrap();
        broker.create_topic("t", TopicSettings::default()).await.unwrap();
        let kind = |error: millstream_core::Error| error.kind();
        let mode = crate::ReceiveMode::PeekLock;
        let zero = Duration::ZERO;
        let refused = broker.receive("sessions", mode, 1, zero).await.unwrap_err();
        assert_eq!(kind(refused), ErrorKind::Invalid);
        let refused = broker.accept_session("plain", None, zero).await.unwrap_err();
        assert_eq!(kind(refused), ErrorKind::Invalid);
        assert_eq!(kind(broker.receive("t", mode, 1, zero).await.unwrap_err()), ErrorKind::Invalid);
        let bare = vec![Message::new("m", "")];
        let refused = broker.send("sessions", bare.clone()).await.unwrap_err();
        assert_eq!((refused.kind(), refused.operation()), (ErrorKind::Invalid, Some(0)));
        // A topic cannot know; the subscription puts it among the dead letters.
        let settings = SubscriptionSettings::with_sessions();
        broker.create_subscription("t", "s", settings).await.unwrap();
        broker.send("t", bare).await.unwrap();
        assert_eq!(broker.counts("t/Subscriptions/s").unwrap().dead_lettered, 1);
    });
}
