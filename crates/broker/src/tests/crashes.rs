//! Lost replies, lost requests, and crashes at every commit.

use std::time::Duration;

use futures_lite::future::{block_on, or, poll_once, yield_now};
use millstream_core::{ErrorKind, Settlement};
use tokio_util::sync::CancellationToken;

use crate::tests::world::{Fault, FaultPlan, World, ids, messages, settle, take};
use crate::{QueueSettings, SubscriptionSettings, TopicSettings};

const FAULTS: [Fault; 4] = [Fault::LostReply, Fault::LostRequest, Fault::Refused, Fault::Late];

#[test]
fn a_fault_that_goes_away_is_not_noticed() {
    for fault in FAULTS {
        for at in 0..12 {
            let mut world = World::new();
            world.ticks = true;
            world.run(async |broker| {
                broker.create_queue("q", QueueSettings::default()).await.unwrap();
            });
            world.plan(FaultPlan { at: Some((at, fault)), for_ever: false });
            world.run(async |broker| {
                for text in ["a1", "a2 a3", "a4"] {
                    assert_eq!(broker.send("q", messages(text)).await.unwrap().duplicates, 0);
                }
                let received = take(broker, "q", 9).await;
                assert_eq!(ids(&received), "a1 a2 a3 a4", "{fault:?} at {at}");
                settle(broker, "q", &received[..1], Settlement::Complete).await;
                settle(broker, "q", &received[1..2], Settlement::Complete).await;
                settle(broker, "q", &received[2..3], Settlement::Abandon).await;
            });
            world.run(async |broker| {
                assert_eq!(ids(&take(broker, "q", 9).await), "a3 a4", "{fault:?} at {at}");
            });
        }
    }
}

/// A store on the network may hear from a process that is dead already.
#[test]
fn what_a_dead_broker_had_under_way_may_arrive_while_the_next_one_takes_over() {
    let world = World::new();
    world.run(async |broker| {
        broker.create_queue("q", QueueSettings::default()).await.unwrap();
        broker.send("q", messages("a1")).await.unwrap();
        world.plan(FaultPlan { at: Some((0, Fault::Late)), for_ever: false });
        let sending = async { Some(broker.send("q", messages("a2")).await) };
        let dying = async {
            for _ in 0..50 {
                yield_now().await;
            }
            None
        };
        assert!(or(sending, dying).await.is_none(), "nobody knows what became of it");
    });
    world.run(async |broker| {
        assert_eq!(ids(&take(broker, "q", 9).await), "a1 a2");
        broker.send("q", messages("a3")).await.unwrap();
    });
}

#[test]
fn a_store_that_stays_away_makes_the_entity_refuse_until_it_is_opened_again() {
    let mut world = World::new();
    world.options = world.options.storage_patience(Duration::ZERO);
    world.run(async |broker| {
        broker.create_queue("q", QueueSettings::default()).await.unwrap();
        broker.create_queue("other", QueueSettings::default()).await.unwrap();
        broker.send("q", messages("a1")).await.unwrap();
        world.plan(FaultPlan { at: Some((0, Fault::Refused)), for_ever: false });
        let error = broker.send("q", messages("a2")).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        let error = broker.send("q", messages("a3")).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert!(error.report().contains("open again"), "{}", error.report());
        let receive = broker.receive("q", crate::ReceiveMode::PeekLock, 1, Duration::ZERO).await;
        assert_eq!(receive.unwrap_err().kind(), ErrorKind::Unavailable);
        broker.send("other", messages("a1")).await.unwrap();
    });
    world.run(async |broker| {
        assert_eq!(broker.send("q", messages("a2")).await.unwrap().duplicates, 0);
        assert_eq!(ids(&take(broker, "q", 9).await), "a1 a2");
    });
}

#[test]
fn a_crash_while_an_entity_is_made_or_removed_leaves_it_whole_or_gone() {
    for fault in FAULTS {
        for at in 0..12 {
            let mut world = World::new();
            world.options = world.options.storage_patience(Duration::ZERO);
            world.run(async |broker| {
                world.plan(FaultPlan { at: Some((at, fault)), for_ever: true });
                let _ = broker.create_queue("q", QueueSettings::default()).await;
                let _ = broker.send("q", messages("a1")).await;
                let _ = broker.delete_entity("q").await;
            });
            world.plan(FaultPlan::default());
            world.run(async |broker| {
                if broker.queues().is_empty() {
                    broker.create_queue("q", QueueSettings::default()).await.unwrap();
                    assert!(take(broker, "q", 9).await.is_empty(), "{fault:?} at {at}");
                }
                broker.send("q", messages("a2")).await.unwrap();
                broker.delete_entity("q").await.unwrap();
            });
            assert_eq!(world.documents("seg-"), 0, "{fault:?} at {at}");
            assert_eq!(world.documents("entity-"), 0, "{fault:?} at {at}");
            assert_eq!(world.documents("gone-"), 0, "{fault:?} at {at}");
        }
    }
}

/// What a later broker does while an earlier one is still about to begin.
fn subscribe_and_send(world: &World) {
    world.run(async |broker| {
        if broker.topics().is_empty() {
            broker.create_topic("t", TopicSettings::default()).await.unwrap();
        }
        let settings = SubscriptionSettings::default();
        broker.create_subscription("t", "s", settings).await.unwrap();
        broker.send("t", messages("a1")).await.unwrap();
    });
}

#[track_caller]
fn check_is_kept(world: &World, polls: usize) {
    world.run(async |broker| {
        assert_eq!(ids(&take(broker, "t/subscriptions/s", 9).await), "a1", "after {polls} polls");
    });
}

#[test]
fn a_broker_that_is_slow_to_open_does_not_undo_what_a_later_one_has_done() {
    for polls in 0.. {
        let world = World::new();
        world.run(async |broker| {
            broker.create_topic("t", TopicSettings::default()).await.unwrap();
        });
        let was_slow = block_on(async {
            let mut open = std::pin::pin!(world.open());
            for _ in 0..polls {
                if poll_once(&mut open).await.is_some() {
                    return false;
                }
            }
            subscribe_and_send(&world);
            if let Ok((_, service)) = open.await {
                let a_while = async {
                    for _ in 0..100 {
                        yield_now().await;
                    }
                };
                or(service.run(CancellationToken::new()), a_while).await;
            }
            true
        });
        if !was_slow {
            assert!(3 < polls, "it was never slow");
            return;
        }
        check_is_kept(&world, polls);
    }
}

#[test]
fn a_broker_that_is_slow_to_create_does_not_undo_what_a_later_one_has_done() {
    for polls in 0.. {
        let world = World::new();
        let was_slow = world.run(async |broker| {
            let mut create = std::pin::pin!(broker.create_topic("t", TopicSettings::default()));
            for _ in 0..polls {
                if poll_once(&mut create).await.is_some() {
                    return false;
                }
            }
            subscribe_and_send(&world);
            // Whether the entity is there for it or not: it must not do harm.
            let _ = create.await;
            let _ = broker.send("t", messages("b1")).await;
            true
        });
        if !was_slow {
            assert!(3 < polls, "it was never slow");
            return;
        }
        check_is_kept(&world, polls);
    }
}
