use std::time::Duration;

use millstream_core::{ErrorKind, Message, Settlement, Timestamp};

use crate::tests::world::{World, ids, messages, settle, take};
use crate::{QueueSettings, ReceiveMode, SubscriptionSettings, TopicSettings};

#[test]
fn what_waits_is_thrown_away_and_what_somebody_has_or_put_aside_stays() {
    let world = World::new();
    world.run(async |broker| {
        broker.create_queue("q", QueueSettings::default()).await.unwrap();
        broker.send("q", messages("a1 a2 a3 a4 a5 a6")).await.unwrap();
        let late = vec![Message::new("late", "")];
        broker.schedule("q", late, Timestamp::from_millis(2_000_000)).await.unwrap();
        let received = take(broker, "q", 3).await;
        settle(broker, "q", &received[..1], Settlement::Defer).await;
        let reason = ("Wrong".to_owned(), "it is wrong".to_owned());
        let dead = Settlement::DeadLetter { reason: reason.0, description: reason.1 };
        settle(broker, "q", &received[1..2], dead).await;
        let waiting = broker.waiting("q").unwrap();
        assert_eq!((waiting.messages, waiting.newest), (3, 7));
        broker.send("q", messages("a7")).await.unwrap();
        assert_eq!(broker.purge("q", waiting.newest, 2).await.unwrap(), 2);
        assert_eq!(broker.purge("q", waiting.newest, 9).await.unwrap(), 1);
        assert_eq!(broker.purge("q", waiting.newest, 9).await.unwrap(), 0);
        let counts = broker.counts("q").unwrap();
        assert_eq!((counts.active, counts.locked, counts.dead_lettered), (2, 1, 1));
        assert_eq!((counts.deferred, counts.scheduled), (1, 1));

        let dead = "q/$DeadLetterQueue";
        assert_eq!(broker.waiting(dead).unwrap().messages, 1);
        assert_eq!(broker.purge(dead, u64::MAX, 9).await.unwrap(), 1);
        assert_eq!(broker.counts("q").unwrap().dead_lettered, 0);
        let error = broker.purge("nobody", u64::MAX, 9).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
    });
    world.run(async |broker| {
        // What a receiver had comes again after a restart; what was thrown away does not.
        assert_eq!(ids(&take(broker, "q", 9).await), "a3 a7");
    });
}

#[test]
fn sessions_are_emptied_also_those_that_somebody_has_and_others_keep_their_messages() {
    let world = World::new();
    world.run(async |broker| {
        broker.create_topic("t", TopicSettings::default()).await.unwrap();
        for name in ["one", "two"] {
            let settings = SubscriptionSettings::with_sessions();
            broker.create_subscription("t", name, settings).await.unwrap();
        }
        broker.send("t", messages("a1 b1 a2")).await.unwrap();
        let path = "t/Subscriptions/one";
        let session =
            broker.accept_session(path, Some("a"), Duration::ZERO).await.unwrap().unwrap();
        let mode = ReceiveMode::PeekLock;
        let first = session.receive_with(mode, 1, Duration::ZERO).await.unwrap();
        assert_eq!(ids(&first), "a1");
        assert_eq!(broker.purge(path, u64::MAX, 9).await.unwrap(), 2);
        assert!(session.receive_with(mode, 9, Duration::ZERO).await.unwrap().is_empty());
        settle(broker, path, &first, Settlement::Complete).await;
        assert_eq!(broker.counts(path).unwrap().active, 0);
        assert_eq!(broker.counts("t/Subscriptions/two").unwrap().active, 3);
    });
    assert_eq!(world.documents("seg-"), 1);
}
