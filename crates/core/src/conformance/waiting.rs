//! Obligation 14: a waiting reader is woken by a commit.

use std::pin::pin;
use std::sync::Arc;

use futures_util::future::{Either, join, join_all, select};

use crate::conformance::Subject;
use crate::conformance::harness::{LATEST, Scene, must, settings, soon, yield_now};
use crate::{Continuation, ErrorKind, KeyRange, PageSize, StartFrom};

pub(super) async fn obligation_14_a_commit_wakes_a_waiting_reader(subject: &mut dyn Subject) {
    let scene = Scene::plain(subject).await;
    let (keys, feed) = (KeyRange::all(), Arc::clone(&scene.container.feed));
    for round in 0..5 {
        let now = scene.start(&keys, StartFrom::Now, LATEST).await;
        // A wake-up without reason is allowed, but not always.
        let mut waiting = None;
        for _ in 0..10 {
            let mut wait = feed.wait(&keys, &now);
            let pause = async {
                for _ in 0..20 {
                    yield_now().await;
                }
            };
            match select(&mut wait, pin!(pause)).await {
                Either::Left((woken, _)) => must(woken),
                Either::Right(_) => {
                    waiting = Some(wait);
                    break;
                }
            }
        }
        let waiting = waiting.unwrap_or_else(|| panic!("a reader never waits"));
        scene.create("k", &format!("item-{round}")).await;
        must(soon("waking a reader after a commit", waiting).await);
        let (changes, _) = scene.drain_from(&keys, &now, PageSize::default()).await;
        assert_eq!(changes.len(), 1, "a reader was woken and sees no commit");
    }
}

pub(super) async fn obligation_14_a_reader_that_is_behind_does_not_wait(subject: &mut dyn Subject) {
    let scene = Scene::plain(subject).await;
    let (keys, feed) = (KeyRange::all(), &scene.container.feed);
    let before = scene.start(&keys, StartFrom::Now, LATEST).await;
    scene.create("k", "1").await;
    scene.create("k", "2").await;
    must(soon("waiting where something is there", feed.wait(&keys, &before)).await);
    must(soon("waiting there again", feed.wait(&keys, &before)).await);
    let page = must(feed.read(&keys, &before, PageSize::items(1)).await);
    must(soon("waiting in the middle", feed.wait(&keys, &page.continuation)).await);
}

pub(super) async fn obligation_14_every_waiting_reader_is_woken(subject: &mut dyn Subject) {
    let scene = Scene::new(subject, settings().ranges(2)).await;
    let other = must(scene.store.open(&scene.name).await);
    for range in scene.ranges().await {
        let key = scene.keys_in(&range.keys, 1).remove(0);
        let now = scene.start(&range.keys, StartFrom::Now, LATEST).await;
        let readers = (0..20).map(|number| {
            let container = if number % 2 == 0 { &scene.container } else { &other };
            wait_and_read(container, &range.keys, &now)
        });
        let readers = soon("waking twenty readers", join_all(readers));
        let writer = async {
            yield_now().await;
            scene.create(&key, "1").await;
        };
        let (seen, ()) = join(readers, writer).await;
        assert_eq!(seen, [1; 20], "a reader was woken and sees another number of commits");
    }
}

async fn wait_and_read(
    container: &crate::Container,
    keys: &KeyRange,
    after: &Continuation,
) -> usize {
    loop {
        must(container.feed.wait(keys, after).await);
        let page = must(container.feed.read(keys, after, PageSize::default()).await);
        if !page.changes.is_empty() {
            return page.changes.len();
        }
        yield_now().await;
    }
}

pub(super) async fn obligation_14_no_commit_falls_between_reading_and_waiting(
    subject: &mut dyn Subject,
) {
    let scene = Scene::plain(subject).await;
    let keys = KeyRange::all();
    let mut after = scene.start(&keys, StartFrom::Now, LATEST).await;
    // Reader and writer meet at every step of each other.
    for round in 0..60 {
        let reader = async {
            for _ in 0..round % 6 {
                yield_now().await;
            }
            wait_and_read(&scene.container, &keys, &after).await
        };
        let writer = async {
            for _ in 0..round / 6 {
                yield_now().await;
            }
            scene.create("k", &format!("item-{round}")).await;
        };
        let (seen, ()) = join(soon("seeing a commit", reader), writer).await;
        assert_eq!(seen, 1, "round {round}");
        after = scene.start(&keys, StartFrom::Now, LATEST).await;
    }
}

pub(super) async fn obligation_14_a_split_wakes_a_waiting_reader(subject: &mut dyn Subject) {
    let scene = Scene::plain(subject).await;
    if !scene.store.capabilities().split {
        return;
    }
    let keys = KeyRange::all();
    let now = scene.start(&keys, StartFrom::Now, LATEST).await;
    let range = scene.ranges().await.remove(0);
    let reader = async {
        loop {
            let waited = scene.container.feed.wait(&keys, &now).await;
            let read = scene.container.feed.read(&keys, &now, PageSize::default()).await;
            match (waited, read) {
                (_, Err(error)) => return error,
                (Err(error), Ok(_)) => return error,
                (Ok(()), Ok(_)) => yield_now().await,
            }
        }
    };
    let split = async {
        yield_now().await;
        must(scene.store.split(&scene.name, range.id, None).await);
    };
    let (error, ()) = join(soon("waking a reader after a split", reader), split).await;
    assert_eq!(error.kind(), ErrorKind::RangeMoved, "{}", error.report());
}

pub(super) async fn obligation_14_deleting_the_container_wakes_a_waiting_reader(
    subject: &mut dyn Subject,
) {
    let scene = Scene::plain(subject).await;
    let keys = KeyRange::all();
    let now = scene.start(&keys, StartFrom::Now, LATEST).await;
    let reader = async {
        loop {
            match scene.container.feed.wait(&keys, &now).await {
                Ok(()) => yield_now().await,
                Err(error) => return error,
            }
        }
    };
    let delete = async {
        yield_now().await;
        must(scene.store.delete(&scene.name).await);
    };
    let (error, ()) = join(soon("waking a reader of a deleted container", reader), delete).await;
    assert_eq!(error.kind(), ErrorKind::NotFound, "{}", error.report());
}
