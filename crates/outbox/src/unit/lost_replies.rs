//! Commits whose outcome the caller did not hear.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::atomic::Ordering;
use std::task::Poll;

use millstream_core::conformance::block_on;

use crate::test_world::{Contact, World};
use crate::{ConflictReason, ErrorKind, Outbox, UnitOfWork};

/// A unit that renames a stored contact.
async fn renaming(outbox: &Outbox, name: &str) -> UnitOfWork {
    let mut unit = outbox.unit();
    let mut contact = unit.read::<Contact>("a", "a").await.unwrap().unwrap();
    contact.entity.set_name(name);
    unit.update(contact.entity, contact.etag).unwrap();
    unit
}

#[track_caller]
fn must_be_unknown<T: std::fmt::Debug>(result: crate::Result<T>) {
    assert_eq!(*result.unwrap_err().kind(), ErrorKind::Unknown);
}

#[test]
fn a_repeated_commit_recognises_its_own_earlier_one() {
    for script in ["a", "r", "ra", "ar", "da", "ad", "aad"] {
        let world = World::new();
        let outbox = world.outbox();
        block_on(async {
            world.stored(&outbox, "a").await;
            let mut unit = renaming(&outbox, "B").await;
            world.faults.plan(script);
            let mut committed = loop {
                match unit.commit().await {
                    Ok(committed) => break committed,
                    Err(error) => assert_eq!(error.conflict(), None, "{}", error.report()),
                }
            };
            assert_eq!(committed.events[0].sequence, Some(2), "{script}");
            assert_eq!(committed.lsn.unwrap().as_u64(), 2, "{script}");
            assert_eq!(world.actions("a").await, ["ContactCreated", "ContactNameUpdated"]);
            world.faults.plan("");
            // The etag is good for the next change.
            let mut contact = committed.take::<Contact>("a").unwrap();
            contact.entity.set_name("C");
            unit.update(contact.entity, contact.etag).unwrap();
            unit.commit().await.unwrap();
        });
    }
}

#[test]
fn a_commit_that_was_dropped_halfway_can_be_repeated() {
    let world = World::new();
    let outbox = world.outbox();
    block_on(async {
        world.stored(&outbox, "a").await;
        let mut unit = renaming(&outbox, "B").await;
        world.faults.plan("h");
        {
            let mut commit = pin!(unit.commit());
            let polled = poll_fn(|context| Poll::Ready(commit.as_mut().poll(context).is_ready()));
            assert!(!polled.await, "the answer never comes");
        }
        assert_eq!(unit.commit().await.unwrap().events[0].sequence, Some(2));
        assert_eq!(world.actions("a").await, ["ContactCreated", "ContactNameUpdated"]);
    });
}

#[test]
fn a_repeated_create_recognises_its_own_earlier_one() {
    let world = World::new();
    let outbox = world.outbox();
    block_on(async {
        let mut unit = outbox.unit();
        unit.create(Contact::new("a")).unwrap();
        world.faults.plan("a");
        must_be_unknown(unit.commit().await);
        world.clock.advance(std::time::Duration::from_secs(5));
        assert_eq!(unit.commit().await.unwrap().events[0].sequence, Some(1));
        assert_eq!(world.actions("a").await, ["ContactCreated"]);
    });
}

#[test]
fn an_own_commit_is_recognised_though_others_went_on() {
    let world = World::new();
    let outbox = world.outbox();
    block_on(async {
        world.stored(&outbox, "a").await;
        let mut unit = renaming(&outbox, "mine").await;
        world.faults.plan("a");
        must_be_unknown(unit.commit().await);
        renaming(&outbox, "theirs").await.commit().await.unwrap();
        let mut committed = unit.commit().await.unwrap();
        assert_eq!(committed.events[0].sequence, Some(2));
        assert_eq!(committed.etag("a"), None, "nobody knows the etag that was current then");
        assert!(committed.take::<Contact>("a").is_none());
    });
}

#[test]
fn the_commit_of_somebody_else_is_not_taken_for_an_own_one() {
    let world = World::new();
    let outbox = world.outbox();
    block_on(async {
        world.stored(&outbox, "a").await;
        let mut unit = renaming(&outbox, "same").await;
        world.faults.plan("r");
        must_be_unknown(unit.commit().await);
        renaming(&outbox, "same").await.commit().await.unwrap();
        let error = unit.commit().await.unwrap_err();
        assert_eq!(error.conflict().unwrap().reason, ConflictReason::Changed);
    });
}

#[test]
fn a_change_made_after_a_lost_reply_is_not_taken_for_committed() {
    let world = World::new();
    let outbox = world.outbox();
    block_on(async {
        world.stored(&outbox, "a").await;
        let mut unit = renaming(&outbox, "B").await;
        world.faults.plan("a");
        must_be_unknown(unit.commit().await);
        unit.get_mut::<Contact>("a").unwrap().visit();
        let error = unit.commit().await.unwrap_err();
        assert!(error.conflict().is_some(), "{}", error.report());
        let stored = unit.read::<Contact>("a", "a").await.unwrap().unwrap().entity;
        assert_eq!((stored.name.as_str(), stored.visits), ("B", 0));
    });
}

#[test]
fn a_change_without_events_is_recognised_by_what_it_says() {
    let world = World::new();
    let outbox = world.outbox();
    block_on(async {
        world.stored(&outbox, "a").await;
        let mut unit = outbox.unit();
        let mut contact = unit.read::<Contact>("a", "a").await.unwrap().unwrap();
        contact.entity.visit();
        unit.update(contact.entity, contact.etag).unwrap();
        world.faults.plan("a");
        must_be_unknown(unit.commit().await);
        let committed = unit.commit().await.unwrap();
        let stored = unit.read::<Contact>("a", "a").await.unwrap().unwrap();
        assert_eq!(committed.etag("a"), Some(&stored.etag));
        assert_eq!(stored.entity.visits, 1);
    });
}

#[test]
fn an_own_commit_is_recognised_though_the_store_spells_it_in_its_own_way() {
    let world = World::new();
    let outbox = world.outbox();
    block_on(async {
        world.stored(&outbox, "a").await;
        let repeat = async |unit: &mut UnitOfWork| {
            world.faults.plan("a");
            must_be_unknown(unit.commit().await);
            world.faults.respells.store(true, Ordering::Relaxed);
            unit.commit().await.unwrap();
            world.faults.respells.store(false, Ordering::Relaxed);
        };
        let mut unit = renaming(&outbox, "B").await;
        repeat(&mut unit).await;
        // The same without events, and with a number that no double holds.
        let mut contact = unit.read::<Contact>("a", "a").await.unwrap().unwrap();
        contact.entity.visits = u64::MAX;
        unit.update(contact.entity, contact.etag).unwrap();
        repeat(&mut unit).await;
        assert_eq!(world.actions("a").await, ["ContactCreated", "ContactNameUpdated"]);
    });
}

#[test]
fn a_store_that_is_down_says_so_and_the_unit_waits() {
    let world = World::new();
    let outbox = world.outbox();
    block_on(async {
        let mut unit = outbox.unit();
        unit.create(Contact::new("a")).unwrap();
        world.faults.plan("d");
        let error = unit.commit().await.unwrap_err();
        let unavailable = millstream_core::ErrorKind::Unavailable;
        assert_eq!(*error.kind(), ErrorKind::Store(unavailable));
        assert_eq!(error.store_error().unwrap().kind(), unavailable);
        unit.commit().await.unwrap();
    });
}
