//! What operators do and see while instances run, and when positions are written.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use millstream_core::{BoxFuture, Clock};
use millstream_processor::{
    ChangeBatch, Checkpoint, Concurrency, Context, Handler, HandlerResult, Notification,
    Operations, Snapshot, StartPosition,
};
use millstream_sim::{Handle, SimClock, key_text};

use crate::harness::node::Node;
use crate::harness::port::{Call, Fault, Rule};
use crate::harness::recorder::Failing;
use crate::harness::{World, ranges};
use crate::harness_more::{
    LEASE, Positions, ROUND, SOON, done_up_to, is_acquired, is_lost, millis, options, secs,
};

scenarios! {
    a_pause_stops_deliveries_and_a_resume_goes_on: ranges(4);
    a_pause_lets_a_batch_finish_and_holds_newcomers: ranges(2);
    a_reset_is_fenced_against_the_old_owner: ranges(1);
    a_reset_to_a_time_or_to_now_goes_there: ranges(2);
    a_snapshot_is_restored_also_after_a_split: ranges(2);
    every_step_of_a_life_is_told: ranges(2);
    the_lag_is_known_during_load_and_splits: ranges(1);
    by_hand_only_what_is_acknowledged_is_passed: ranges(1);
    positions_are_written_every_so_many_items_or_seconds: ranges(1);
    two_processors_share_a_lease_container: ranges(2);
    a_slow_key_holds_up_no_other: ranges(1);
}

fn acknowledged(world: &World) -> bool {
    world.operate(|it| async move { it.acknowledged().await })
}

fn a_pause_stops_deliveries_and_a_resume_goes_on(world: &World) {
    let nodes = ["h1", "h2"].map(|it| world.start(it, &options()));
    world.run_until(SOON, || world.owners().values().eq([&2, &2]));
    let before = world.write_many(20, 20);
    world.run_until(SOON, || world.all_handled(&before));
    world.operate(|it| async move { it.pause().await });
    world.operate(|it| async move { it.pause().await });
    world.run_until(ROUND * 3, || acknowledged(world));
    let (count, epochs) = (world.recorder().count(), world.epochs());
    let held = world.write_many(20, 20);
    world.run(LEASE * 3);
    assert_eq!(world.recorder().count(), count, "nothing is delivered");
    assert_eq!(world.epochs(), epochs, "the leases are kept");
    let estimate = world.estimate();
    assert!(estimate.paused);
    let items: u64 = estimate.leases.iter().filter_map(|it| it.items).sum();
    assert_eq!(items, 20);
    let status = world.operate(|it| async move { it.status().await });
    assert!(status.paused && status.members.len() == 2 && status.leases.len() == 4);
    world.operate(|it| async move { it.resume().await });
    world.run_until(ROUND * 3, || world.all_handled(&held));
    world.assert_each_once(&world.written());
    for node in &nodes {
        assert_eq!(node.told(|it| *it == Notification::Paused(true)), 1);
        assert_eq!(node.told(|it| *it == Notification::Paused(false)), 1);
    }
}

fn a_pause_lets_a_batch_finish_and_holds_newcomers(world: &World) {
    let options = options().batch_items_max(5);
    let h1 = world.start_owner("h1", &options);
    world.recorder().close("h1");
    let written = world.write_many(40, 10);
    world.run_until(SOON, || world.recorder().at_work("h1") == 2);
    world.operate(|it| async move { it.pause().await });
    world.run_until(ROUND * 3, || h1.told(|it| *it == Notification::Paused(true)) == 1);
    world.recorder().open("h1");
    world.run(secs(1));
    let batches = world.batches_of("h1");
    assert_eq!(batches.len(), 2, "the two at work end, and no other begins");
    assert!(batches.iter().all(|it| it.ended.is_some_and(|(_, content)| content)));
    // They were checkpointed: whoever is next does not get them again.
    h1.kill();
    world.start("h2", &options);
    world.run_until(LEASE + ROUND * 3, || world.owners().keys().eq(["h2"]));
    world.run(LEASE);
    assert_eq!(world.recorder().count_on("h2"), 0, "a newcomer is paused too");
    world.operate(|it| async move { it.resume().await });
    world.run_until(ROUND * 3, || world.all_handled(&written));
    world.assert_each_once(&written);
}

fn a_reset_is_fenced_against_the_old_owner(world: &World) {
    let options = options().batch_items_max(5);
    let h1 = world.start_owner("h1", &options);
    world.recorder().close("h1");
    let written = world.write_many(10, 10);
    world.run_until_exact(SOON, || world.recorder().at_work("h1") == 1);
    let before = world.only_lease();
    world.operate(|it| async move { it.reset(StartPosition::Beginning).await });
    let moved = world.only_lease();
    assert!(before.epoch < moved.epoch && moved.owner.is_none());
    // Before the owner has looked, its handler returns and it wants to checkpoint.
    world.recorder().open("h1");
    world.run(millis(20));
    assert_eq!(world.only_lease().body, moved.body, "the old owner cannot checkpoint");
    assert_eq!(h1.told(is_lost), 1);
    // Everything comes again with the new epoch, from the beginning.
    let again = |id: &str| world.deliveries_of_item(id).iter().any(|it| moved.epoch < it.epoch);
    world.run_until(ROUND * 3, || written.iter().all(|it| again(&it.id)));
    world.run_until(SOON, || world.all_handled(&written));
    assert_eq!(h1.told(is_acquired), 2);
    // The same while it cannot even read that it lost the lease.
    world.run(ROUND);
    world.recorder().close("h1");
    world.write_many(5, 5);
    world.run_until_exact(SOON, || world.recorder().at_work("h1") == 1);
    h1.leases.add(Rule::new(Call::Read, Fault::Hang).touching(":lease:").times(1));
    world.operate(|it| async move { it.reset(StartPosition::Now).await });
    let moved = world.only_lease();
    world.recorder().open("h1");
    world.run(secs(1));
    assert_eq!(world.only_lease().position, moved.position);
    world.run(ROUND * 3);
    assert_eq!(h1.told(is_lost), 2);
    let last = world.write_many(5, 5);
    world.run_until(SOON, || world.all_handled(&last));
}

fn a_reset_to_a_time_or_to_now_goes_there(world: &World) {
    let h1 = world.start_owner("h1", &options());
    world.write_many(10, 10);
    world.run(secs(10));
    let time = SimClock::of_world(world.handle()).now();
    world.run(secs(10));
    let second = world.write_many(10, 10);
    world.run_until(SOON, || world.all_handled(&world.written()));
    world.run(ROUND);
    let count = world.recorder().count();
    world.operate(move |it| async move { it.reset(StartPosition::Time(time)).await });
    world.run_until(ROUND * 3, || world.recorder().count() == count + 10);
    world.run(ROUND * 2);
    assert!(second.iter().all(|it| world.deliveries_of_item(&it.id).len() == 2));
    assert_eq!(world.recorder().count(), count + 10);
    // Now leaves out what was written while nobody delivered.
    world.operate(|it| async move { it.pause().await });
    world.run_until(ROUND * 3, || acknowledged(world));
    let left_out = world.write_many(10, 10);
    world.operate(|it| async move { it.reset(StartPosition::Now).await });
    world.operate(|it| async move { it.resume().await });
    let after = world.write_many(10, 10);
    world.run_until(ROUND * 4, || world.all_handled(&after));
    assert!(left_out.iter().all(|it| world.deliveries_of_item(&it.id).is_empty()));
    world.assert_each_once(&after);
    // One range alone.
    let keys = world.ranges()[0].keys.clone();
    let inside = world.written().into_iter().filter(|it| world.is_in(&it.key, &keys)).count();
    let count = world.recorder().count();
    world.operate(move |it| async move { it.reset_range(&keys, StartPosition::Beginning).await });
    world.run_until(ROUND * 3, || world.recorder().count() == count + inside);
    world.run(ROUND * 2);
    assert_eq!((world.recorder().count(), h1.outcome()), (count + inside, None));
}

fn a_snapshot_is_restored_also_after_a_split(world: &World) {
    world.start_owner("h1", &options());
    let first = world.write_many(10, 10);
    world.run_until(SOON, || world.all_handled(&first));
    world.run(ROUND);
    let snapshot = world.operate(|it| async move { it.snapshot().await });
    // It is kept as JSON.
    let text = serde_json::to_string(&snapshot).expect("it can be written");
    let snapshot: Snapshot = serde_json::from_str(&text).expect("it can be read");
    assert_eq!(snapshot.positions.len(), 2);
    let second = world.write_many(10, 10);
    world.run_until(SOON, || world.all_handled(&second));
    world.split(0);
    let third = world.write_many(10, 10);
    world.run_until(SOON, || world.all_handled(&third) && world.leases().len() == 3);
    world.run(ROUND);
    world.operate(move |it| async move { it.restore(&snapshot).await });
    let all_again = || third.iter().all(|it| world.deliveries_of_item(&it.id).len() == 2);
    world.run_until(ROUND * 3, all_again);
    world.run(ROUND * 2);
    world.assert_each_once(&first);
    for it in second.iter().chain(&third) {
        assert_eq!(world.deliveries_of_item(&it.id).len(), 2, "{it:?}");
    }
    assert!(world.leases_are_whole());
}

fn every_step_of_a_life_is_told(world: &World) {
    let options = options().attempts_max(2);
    let h1 = world.start_owner("h1", &options);
    world.run(ROUND);
    let told = |node: &Node, like: fn(&Notification) -> bool| node.told(like);
    assert_eq!(told(&h1, is_acquired), 2);
    assert_eq!(told(&h1, is_caught_up), 2, "each lease once, although there was nothing");
    let h2 = world.start("h2", &options.start(StartPosition::Now));
    world.run_until(SOON, || world.owners().values().eq([&1, &1]));
    world.run(ROUND);
    assert_eq!(
        told(&h2, |it| matches!(it, Notification::StartIgnored { stored }
        if stored == "beginning")),
        1
    );
    assert_eq!(
        told(&h1, |it| matches!(it, Notification::Released { to: Some(to), .. }
        if to == "h2")),
        1
    );
    let (left, right) = (world.key_in(0), world.key_in(1));
    world.recorder().fail("bad", 2, Failing::Failed);
    let caught_up = told(&h1, is_caught_up) + told(&h2, is_caught_up);
    world.write(&left, "bad");
    world.write(&right, "good");
    world.run_until(SOON, || world.parked(&left).is_some());
    world.run(ROUND);
    let both = |like: fn(&Notification) -> bool| told(&h1, like) + told(&h2, like);
    assert_eq!(both(|it| matches!(it, Notification::HandlerFailed { .. })), 2);
    assert_eq!(both(|it| matches!(it, Notification::Parked { id, .. } if id == "bad")), 1);
    assert_eq!(both(is_caught_up), caught_up + 2, "once after each backlog");
    world.redrive(&left);
    world.run_until(SOON, || world.parked(&left).is_none());
    world.split(0);
    world.run_until(SOON, || world.leases().len() == 3);
    world.run(ROUND * 2);
    assert_eq!(both(|it| matches!(it, Notification::Redriven { .. })), 1);
    assert_eq!(
        both(|it| matches!(it, Notification::Split { children, .. }
        if children.len() == 2)),
        1
    );
    h1.feed.fail_next(Call::FeedRead, 1, Fault::Throttled);
    h2.feed.fail_next(Call::FeedRead, 1, Fault::Throttled);
    world.write_many(6, 6);
    world.run(ROUND);
    assert!(both(|it| matches!(it, Notification::StoreFailed { keys: Some(_), .. })) != 0);
    h2.stall(LEASE * 2);
    world.run(LEASE * 3);
    assert!(told(&h2, is_lost) != 0);
    world.stop(&h1);
    world.stop(&h2);
    world.run(secs(1));
    for node in [&h1, &h2] {
        let notifications = node.notifications();
        assert_eq!(notifications.last(), Some(&Notification::Stopped));
        let ends = notifications.iter().filter(|it| **it == Notification::Stopped).count();
        assert_eq!(ends, 1);
        // What was acquired was given up in some way.
        let begun = node.told(is_acquired);
        let ended = node.told(|it| {
            matches!(
                it,
                Notification::Released { .. }
                    | Notification::Lost { .. }
                    | Notification::Split { .. }
            )
        });
        assert_eq!(begun, ended, "{notifications:?}");
    }
}

fn is_caught_up(it: &Notification) -> bool {
    matches!(it, Notification::CaughtUp { .. })
}

fn the_lag_is_known_during_load_and_splits(world: &World) {
    let h1 = world.start_owner("h1", &options().batch_items_max(10).in_flight_items_max(10));
    assert!(world.estimate().is_caught_up());
    world.recorder().close("h1");
    world.write_many(50, 10);
    world.run(secs(7));
    let lags = |node: &Node| node.monitor().expect("it runs").lags();
    let (estimate, lag) = (world.estimate(), lags(&h1));
    assert_eq!((estimate.commits, estimate.leases[0].items), (50, Some(50)));
    assert_eq!((lag.len(), lag[0].commits), (1, 50), "the owner knows it for nothing");
    let age = estimate.oldest.expect("it is known");
    assert!(secs(7) <= age && age < secs(8), "{age:?}");
    assert_eq!(estimate.leases[0].owner.as_deref(), Some("h1"));
    // One batch is done, then the range is split; children are slow to come.
    let slow = Rule::new(Call::Commit, Fault::Delay(secs(3))).touching("create mailer:lease:");
    h1.leases.add(slow);
    world.split(0);
    world.write_many(10, 10);
    world.recorder().take("h1", secs(1));
    world.recorder().open("h1");
    let mut least = u64::MAX;
    let until = world.now() + secs(40);
    while world.now() < until {
        world.run(millis(500));
        let estimate = world.estimate();
        let handled = world.recorder().batches();
        let handled = handled.iter().filter(|it| it.ended.is_some()).map(|it| it.ids.len());
        let left = 60 - u64::try_from(handled.sum::<usize>()).expect("a few");
        let items: u64 = estimate.leases.iter().filter_map(|it| it.items).sum();
        assert!(left <= items, "{items} are too few: {left} are not handled");
        assert!(items <= left + 20, "{items} are too many: {left} are not handled");
        assert!(items <= least.max(60), "it does not grow while nothing is written");
        least = least.min(items);
    }
    world.run_until(SOON, || world.all_handled(&world.written()));
    world.run(ROUND);
    let estimate = world.estimate();
    assert!(estimate.is_caught_up() && estimate.leases.len() == 2, "{estimate:?}");
    assert!(lags(&h1).iter().all(|it| it.commits == 0 && it.seconds == Some(Duration::ZERO)));
}

/// Keeps its batches, so that a test acknowledges them.
#[derive(Clone, Default)]
struct Keeping {
    batches: Arc<Mutex<Vec<ChangeBatch>>>,
}

impl Keeping {
    fn ids(&self) -> Vec<String> {
        let batches = self.batches.lock().expect("no panics");
        batches.iter().flat_map(|it| it.iter().map(|it| it.id.to_string())).collect()
    }

    fn batch(&self, number: usize) -> ChangeBatch {
        self.batches.lock().expect("no panics")[number].clone()
    }
}

impl Handler for Keeping {
    fn handle(&self, batch: ChangeBatch, _: Context) -> BoxFuture<'_, HandlerResult> {
        self.batches.lock().expect("no panics").push(batch);
        Box::pin(async { Ok(()) })
    }
}

fn by_hand_only_what_is_acknowledged_is_passed(world: &World) {
    let options = options().checkpoint(Checkpoint::ByHand).batch_items_max(5);
    let kept = Keeping::default();
    let h1 = world.instance("h1").options(options.clone()).handler(kept.clone()).start();
    world.write_many(15, 15);
    world.run_until(SOON, || kept.ids().len() == 15);
    let begin = done_up_to(&world.only_lease().position);
    let position = || done_up_to(&world.only_lease().position) - begin;
    let mut positions = Positions::default();
    // Out of order: nothing moves before what comes first is done.
    kept.batch(1).acknowledge_all();
    world.run_watching(secs(5), &mut positions);
    assert_eq!(position(), 0);
    for index in [4, 0, 2, 1, 3, 3] {
        kept.batch(0).acknowledge(index);
    }
    world.run_watching(secs(5), &mut positions);
    assert_eq!(position(), 10);
    // Of the third batch two are done in front, and one behind a gap.
    for index in [0, 1, 3] {
        kept.batch(2).acknowledge(index);
    }
    world.stop(&h1);
    assert_eq!(position(), 12, "up to the gap");
    let again = Keeping::default();
    world.instance("h2").options(options).handler(again.clone()).start();
    world.run_until(SOON, || again.ids().len() == 3);
    world.run(ROUND);
    assert_eq!(again.ids(), ["item-12", "item-13", "item-14"]);
}

fn positions_are_written_every_so_many_items_or_seconds(world: &World) {
    let every = Checkpoint::Every { items: 10, interval: secs(30) };
    let h1 = world.start_owner("h1", &options().batch_items_max(5).checkpoint(every));
    let writes = |since: Duration| {
        let log = h1.leases.log();
        let own = |it: &&crate::harness::port::Logged| {
            it.call == Call::Commit && since <= it.at && it.what.contains("replace mailer:lease:")
        };
        log.iter().filter(own).count()
    };
    world.run(secs(65));
    let begun = world.now();
    let begin = done_up_to(&world.only_lease().position);
    let position = || done_up_to(&world.only_lease().position) - begin;
    world.write_many(5, 5);
    world.run(secs(5));
    assert_eq!((writes(begun), position()), (1, 5), "the interval was over long ago");
    let begun = world.now();
    world.write_many(5, 5);
    world.run(secs(5));
    assert_eq!((writes(begun), position()), (0, 5), "neither many nor late");
    world.write_many(5, 5);
    world.run(secs(5));
    assert_eq!((writes(begun), position()), (1, 15), "ten since the last one");
    world.write_many(5, 5);
    world.run(secs(20));
    assert_eq!((writes(begun), position()), (1, 15));
    world.run(secs(10));
    assert_eq!((writes(begun), position()), (2, 20), "thirty seconds after the last one");
    // A stop in order writes what is left.
    world.write_many(3, 3);
    world.run(secs(5));
    world.stop(&h1);
    assert_eq!(position(), 23);
}

fn two_processors_share_a_lease_container(world: &World) {
    let start = |name: &str, processor: &str| {
        world.instance(name).options(options()).processor(processor).start()
    };
    let nodes = [
        start("mail-1", World::PROCESSOR),
        start("mail-2", World::PROCESSOR),
        start("stock-1", "stock"),
    ];
    let count = |prefix: &str| {
        let deliveries = world.recorder().deliveries();
        deliveries.iter().filter(|it| it.node.starts_with(prefix)).count()
    };
    world.run_until(SOON, || world.owners().values().eq([&1, &1]));
    world.write_many(20, 10);
    world.run_until(SOON, || count("mail") == 20 && count("stock") == 20);
    // What is done to one does not touch the other.
    let (feed, leases) = world.seen_from_world();
    let clock = SimClock::of_world(world.handle());
    let stock = Operations::new_with(&feed, &leases, "stock", clock).expect("a fine name");
    let other = stock.clone();
    let paused = world.block_on(async move { other.pause().await });
    paused.expect("it is there");
    world.run(ROUND * 2);
    world.write_many(20, 10);
    world.run_until(SOON, || count("mail") == 40);
    world.run(LEASE);
    assert_eq!(count("stock"), 20);
    let epochs = world.epochs();
    let reset = async move {
        stock.reset(StartPosition::Beginning).await?;
        stock.resume().await
    };
    world.block_on(reset).expect("it is there");
    world.run_until(SOON, || count("stock") == 60);
    world.run(LEASE);
    assert_eq!((count("mail"), count("stock"), world.epochs()), (40, 60, epochs));
    // An instance of one that dies is no matter of the other.
    nodes[2].kill();
    world.run(LEASE * 2);
    assert!(nodes[..2].iter().all(|it| it.told(is_lost) == 0 && it.told(is_acquired) <= 2));
    assert_eq!(world.members(), ["mail-1", "mail-2"]);
}

/// One key takes a minute, the others no time.
struct OneSlow {
    handle: Handle,
    finished: Arc<Mutex<Vec<String>>>,
}

impl Handler for OneSlow {
    fn handle(&self, batch: ChangeBatch, _: Context) -> BoxFuture<'_, HandlerResult> {
        Box::pin(async move {
            if key_text(&batch.get(0).expect("never empty").partition_key) == "slow" {
                self.handle.sleep(secs(60)).await;
            }
            let ids = batch.iter().map(|it| it.id.to_string());
            self.finished.lock().expect("no panics").extend(ids);
            Ok(())
        })
    }
}

fn a_slow_key_holds_up_no_other(world: &World) {
    let finished = Arc::new(Mutex::new(Vec::new()));
    let handler = || OneSlow { handle: world.handle().clone(), finished: Arc::clone(&finished) };
    let count = || finished.lock().expect("no panics").len();
    let options = options().concurrency(Concurrency::Keyed(4)).batch_items_max(10);
    let h1 = world.instance("h1").options(options.clone()).handler(handler()).start();
    world.run_until(SOON, || world.owners().keys().eq(["h1"]));
    world.write("slow", "slow-0");
    world.write_many(50, 10);
    let took = world.run_until(secs(60), || count() == 50);
    assert!(took < secs(2), "{took:?}");
    world.run(secs(1));
    let low = done_up_to(&world.only_lease().position);
    // It dies: everything after the slow one comes again, and nothing is lost.
    h1.kill();
    world.instance("h2").options(options).handler(handler()).start();
    world.run_until(LEASE + ROUND * 3 + secs(70), || count() == 101);
    world.run(secs(1));
    let slow = finished.lock().expect("no panics").iter().filter(|it| *it == "slow-0").count();
    assert_eq!(slow, 1);
    assert!(low < done_up_to(&world.only_lease().position), "now it passes all of them");
}
