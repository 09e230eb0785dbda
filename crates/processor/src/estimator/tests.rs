use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use millstream_core::conformance::block_on;
use millstream_core::{
    ChangeFeed, Container, Continuation, Error as CoreError, ErrorKind as CoreErrorKind, FeedMode,
    FeedPage, KeyRange, Operation, PageSize, RangeInfo, Result as CoreResult, StartFrom,
};

use crate::error::ErrorKind;
use crate::estimator::Estimator;
use crate::lag::Estimate;
use crate::split::complete_split;
use crate::stored::{Failing, Lease};
use crate::test_world::{PROCESSOR, RETENTION, World};

fn estimator(world: &World) -> Estimator {
    estimator_of(world, &world.feed)
}

fn estimator_of(world: &World, feed: &Container) -> Estimator {
    Estimator::new_with(feed, &world.leases, PROCESSOR, world.clock.clone()).unwrap()
}

fn estimate(world: &World) -> Estimate {
    block_on(estimator(world).estimate()).unwrap()
}

/// `commits/items/seconds` of every lease in the order of keys, `?` for what is not known.
fn show(estimate: &Estimate) -> String {
    let number = |it: Option<u64>| it.map_or("?".to_owned(), |it| it.to_string());
    let lag = estimate.leases.iter().map(|it| {
        let seconds = number(it.seconds.map(|it| it.as_secs()));
        let expired = if it.expired { " expired" } else { "" };
        format!("{}/{}/{seconds}{expired}", it.commits, number(it.items))
    });
    lag.collect::<Vec<_>>().join(", ")
}

#[track_caller]
fn check(world: &World, count_max: u64, expected: &str) {
    let estimator = estimator(world).count_items_up_to(count_max);
    assert_eq!(show(&block_on(estimator.estimate()).unwrap()), expected);
}

#[test]
fn lag_is_what_the_workload_left() {
    for path in ["/id", "/partitionKey"] {
        let world = World::started(path, 2);
        let (low, high) = (world.key_in(0), world.key_in(1));
        check(&world, 0, "0/0/0, 0/0/0");
        for _ in 0..3 {
            world.write(&[&low]);
            world.advance(10);
        }
        world.write_batch(&high, 5);
        world.advance(1);
        check(&world, 0, "3/?/31, 1/?/1");
        check(&world, 4, "3/3/31, 1/?/1");
        check(&world, 5, "3/3/31, 1/5/1");
        check(&world, u64::MAX, "3/3/31, 1/5/1");
        let whole = estimate(&world);
        assert_eq!((whole.commits, whole.oldest), (4, Some(Duration::from_secs(31))));

        let lease = world.advance_lease(&world.leases()[0], 1);
        check(&world, 5, "2/2/21, 1/5/1");
        world.catch_up(&lease);
        world.catch_up(&world.leases()[1]);
        check(&world, 0, "0/0/0, 0/0/0");
        assert!(estimate(&world).is_caught_up());
    }
}

#[test]
fn lag_follows_a_reader_commit_by_commit() {
    let world = World::started("/id", 1);
    for count in [1, 3, 2, 1] {
        world.write_batch("a", count);
    }
    for expected in ["4/7/0", "3/6/0", "2/3/0", "1/1/0", "0/0/0", "0/0/0"] {
        check(&world, 100, expected);
        world.advance_lease(&world.leases()[0], 1);
    }
}

#[test]
fn a_tail_of_commits_without_changes_is_no_lag() {
    let world = World::started("/id", 1);
    world.write(&["a"]);
    world.catch_up(&world.leases()[0]);
    let delete = Operation::delete(millstream_core::ItemId::new("0").unwrap());
    let batch = millstream_core::Batch::new("a").with(delete);
    block_on(world.feed.documents.commit(batch)).unwrap();
    check(&world, 0, "0/0/0");
}

#[test]
fn a_lease_tells_its_owner_its_epoch_its_failures_and_the_pause() {
    let world = World::started("/id", 1);
    let mut lease = world.acquire(&world.leases()[0], "a");
    let failing = |attempts| Failing {
        partition_key: "\"a\"".to_owned(),
        id: "1".to_owned(),
        lsn: 1,
        attempts,
        error: "no".to_owned(),
    };
    let failing = vec![failing(3), failing(4)];
    lease = world.replace(&lease, Lease { failing, ..lease.document.clone() });
    let lag = estimate(&world).leases.remove(0);
    assert_eq!((lag.owner.as_deref(), lag.epoch, lag.attempts), (Some("a"), 1, 4));
    assert_eq!(*lag.keys, lease.document.keys);

    assert!(!estimate(&world).paused);
    let control = world.control();
    let mut document = control.document;
    document.paused = true;
    block_on(world.store.replace(document, &control.etag)).unwrap();
    assert!(estimate(&world).paused);
}

#[test]
fn lag_goes_through_a_split_whatever_part_of_it_is_done() {
    for path in ["/id", "/partitionKey"] {
        let world = World::started(path, 1);
        world.split_range(0);
        let (low, high) = (world.key_in(0), world.key_in(1));
        world.write(&[&low, &low, &high]);
        // The lease has not noticed: its ranges are summed.
        check(&world, 5, "3/3/0");
        check(&world, 2, "3/?/0");
        // No child exists.
        let parent = world.begin_split(&world.leases()[0]);
        check(&world, 5, "2/2/0, 1/1/0");
        // The first exists and has gone on.
        let first = parent.document.child(parent.document.children[0].clone());
        let first = block_on(world.store.create(first)).unwrap();
        world.advance_lease(&first, 1);
        check(&world, 5, "1/1/0, 1/1/0");
        // All exist.
        block_on(complete_split(&world.store, &parent)).unwrap();
        check(&world, 5, "1/1/0, 1/1/0");
        // A grandchild, too.
        world.split_range(0);
        world.begin_split(&world.leases()[0]);
        assert_eq!(estimate(&world).leases.len(), 3);
        assert_eq!(estimate(&world).commits, 2);
    }
}

#[test]
fn lag_goes_on_after_a_merge() {
    let world = World::started("/id", 2);
    let (low, high) = (world.key_in(0), world.key_in(1));
    world.write(&[&low, &low, &high]);
    world.catch_up(&world.leases()[1]);
    world.merge_ranges(0);
    world.write(&[&high]);
    // The merged range goes on counting after 2; the commit of the other lease counts for both.
    check(&world, 5, "3/2/0, 1/1/0");
    world.catch_up(&world.leases()[0]);
    world.catch_up(&world.leases()[1]);
    check(&world, 5, "0/0/0, 0/0/0");
}

#[test]
fn an_expired_position_is_told_by_its_lease_alone() {
    let world = World::new("/partitionKey", 2);
    world.start(FeedMode::AllVersions, StartFrom::Now);
    let (low, high) = (world.key_in(0), world.key_in(1));
    world.write(&[&low]);
    check(&world, 5, "1/1/0, 0/0/0");
    world.advance(RETENTION.as_secs() + 1);
    world.write(&[&low, &high]);
    check(&world, 5, "0/?/? expired, 1/1/0");
    assert!(!estimate(&world).is_caught_up());
    assert_eq!(estimate(&world).oldest, Some(Duration::ZERO));
}

#[test]
fn all_versions_count_deletes() {
    let world = World::new("/id", 1);
    world.start(FeedMode::AllVersions, StartFrom::Now);
    world.write(&["a"]);
    let delete = Operation::delete(millstream_core::ItemId::new("0").unwrap());
    let batch = millstream_core::Batch::new("a").with(delete);
    block_on(world.feed.documents.commit(batch)).unwrap();
    check(&world, 5, "2/2/0");
}

#[test]
fn a_lease_that_somebody_deleted_counts_from_where_it_would_be_repaired() {
    let world = World::started("/partitionKey", 2);
    let low = world.key_in(0);
    world.write(&[&low]);
    let lease = world.catch_up(&world.leases()[0]);
    block_on(world.store.delete(&lease)).unwrap();
    check(&world, 5, "1/1/0, 0/0/0");
}

#[test]
fn a_processor_that_never_started_and_a_recreated_container_are_typed_errors() {
    let world = World::new("/id", 1);
    let error = block_on(estimator(&world).estimate()).unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::NotFound);
    assert_eq!(
        error.report(),
        "could not find the processor \"orders\": it has no control document in this container; \
         start an instance of it first",
    );
    world.start(FeedMode::LatestVersion, StartFrom::Now);
    let recreated = world.recreated_feed();
    for feed in [&recreated, &world.feed] {
        let error = block_on(estimator_of(&world, feed).estimate()).unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::ContainerRecreated, "{}", error.report());
    }
    assert!(Estimator::new(&world.feed, &world.leases, "a/b").is_err());
}

/// A feed that is as bothersome as the contract allows.
struct Bothersome {
    feed: Arc<dyn ChangeFeed>,
    /// Empty pages before every read that goes through.
    empty: usize,
    /// Whether the end is never reached.
    endless: bool,
    /// Whether ranges move all the time.
    moving: bool,
}

#[async_trait]
impl ChangeFeed for Bothersome {
    async fn ranges(&self) -> CoreResult<Vec<RangeInfo>> {
        self.feed.ranges().await
    }

    async fn start(
        &self,
        keys: &KeyRange,
        from: StartFrom,
        mode: FeedMode,
    ) -> CoreResult<Continuation> {
        self.feed.start(keys, from, mode).await
    }

    async fn read(
        &self,
        keys: &KeyRange,
        after: &Continuation,
        size: PageSize,
    ) -> CoreResult<FeedPage> {
        if self.moving {
            return Err(CoreError::new(CoreErrorKind::RangeMoved, "read"));
        }
        let (left, text) = after.as_str().split_once('~').unwrap_or(("", after.as_str()));
        let left = left.parse().unwrap_or(self.empty);
        let mut page = self.feed.read(keys, &Continuation::new(text)?, size).await?;
        let next = if 0 < left {
            page.changes.clear();
            format!("{}~{text}", left - 1)
        } else if page.continuation.as_str() == text && !self.endless {
            after.as_str().to_owned()
        } else {
            page.continuation.as_str().to_owned()
        };
        page.continuation = Continuation::new(next)?;
        Ok(page)
    }

    async fn wait(&self, keys: &KeyRange, after: &Continuation) -> CoreResult<()> {
        self.feed.wait(keys, after).await
    }
}

#[test]
fn empty_pages_are_not_the_end_and_do_not_hold_up_for_ever() {
    let world = World::started("/id", 1);
    let with = |empty, endless, moving| {
        let feed = Arc::clone(&world.feed.feed);
        let feed = Arc::new(Bothersome { feed, empty, endless, moving });
        let feed = Container { feed, ..world.feed.clone() };
        block_on(estimator_of(&world, &feed).count_items_up_to(9).estimate())
    };
    assert_eq!(show(&with(3, false, false).unwrap()), "0/0/0");
    assert_eq!(show(&with(3, true, false).unwrap()), "1/?/?");
    world.write(&["a", "b"]);
    assert_eq!(show(&with(3, false, false).unwrap()), "2/2/0");
    assert_eq!(show(&with(3, true, false).unwrap()), "2/?/0");
    let error = with(0, false, true).unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::Conflict);
}

#[test]
fn many_leases_are_looked_at_and_the_future_can_move_between_threads() {
    fn moves<T: Send>(it: T) -> T {
        it
    }
    let world = World::started("/partitionKey", 64);
    let keys: Vec<String> = (0..64).map(|it| world.key_in(it)).collect();
    world.write(&keys.iter().map(String::as_str).collect::<Vec<_>>());
    let estimate = block_on(moves(estimator(&world).estimate())).unwrap();
    assert_eq!((estimate.leases.len(), estimate.commits), (64, 64));
}
