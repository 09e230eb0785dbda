//! Handlers that fail, panic, hang or die, and stops in the middle of a batch.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use millstream_core::{Batch, BoxFuture, Operation, PartitionKey};
use millstream_processor::{
    ChangeBatch, Checkpoint, Concurrency, Context, Handler, HandlerError, HandlerResult,
    Notification,
};
use millstream_sim::{Handle, Rng, key_text};

use crate::harness::node::Node;
use crate::harness::recorder::{Failing, HandledBatch};
use crate::harness::{World, ranges};
use crate::harness_more::{LEASE, ROUND, SOON, done_up_to, is_lost, millis, options, secs};

scenarios! {
    scenario_30_a_failed_batch_comes_again_after_growing_pauses: ranges(1);
    scenario_30_attempts_are_remembered_by_the_next_owner: ranges(1);
    scenario_31_an_item_that_always_fails_is_parked_and_can_be_replayed: ranges(1);
    scenario_31_a_handler_that_says_which_item_failed_repeats_nothing_before_it: ranges(1);
    scenario_32_a_panic_is_a_failure_like_any_other: ranges(2);
    scenario_32_an_item_that_always_panics_is_parked: ranges(2);
    scenario_33_an_item_that_cannot_be_parsed_is_parked_with_its_bytes: ranges(1);
    scenario_34_the_next_owner_begins_at_the_last_checkpoint: ranges(1);
    scenario_35_without_acknowledgement_a_new_owner_gets_everything_again: ranges(1);
    scenario_35_without_acknowledgement_children_get_everything_again: ranges(1);
    scenario_36_keyed_batches_keep_the_order_and_the_low_watermark: ranges(2);
    scenario_37_a_stop_lets_a_batch_finish_within_the_grace_time: ranges(1);
    scenario_37_a_stop_cancels_a_batch_after_the_grace_time: ranges(1);
}

/// The attempts of which the instance told that they failed.
fn failures(node: &Node) -> Vec<u32> {
    let attempt = |it| {
        let Notification::HandlerFailed { attempt, .. } = it else { return None };
        Some(attempt)
    };
    node.notifications().into_iter().filter_map(attempt).collect()
}

fn scenario_30_a_failed_batch_comes_again_after_growing_pauses(world: &World) {
    let options = options().batch_items_max(3).attempts_max(5).backoff(secs(1), secs(60));
    let h1 = world.start_owner("h1", &options);
    world.recorder().fail("item-1", 4, Failing::Failed);
    let written = world.write_many(6, 6);
    world.run_until(SOON, || world.batches_of("h1").len() == 3);
    // While it waits, the attempts can be seen in the lease and in the lag.
    world.run(millis(50));
    let failing = world.only_lease().body["failing"][0].clone();
    assert_eq!(failing["attempts"], 3);
    assert_eq!(failing["id"], "item-0", "the first change of the batch that failed");
    assert!(failing["error"].as_str().is_some_and(|it| it.contains("told to fail")));
    assert_eq!(h1.monitor().expect("it runs").lags()[0].attempts, 3);
    assert_eq!(world.estimate().leases[0].attempts, 3);
    world.run_until(SOON, || world.all_handled(&written));
    let batches = world.batches_of("h1");
    let first = ["item-0", "item-1", "item-2"];
    assert!(batches[..5].iter().all(|it| it.ids == first), "{batches:?}");
    let attempts: Vec<u32> = batches.iter().map(|it| it.attempt).collect();
    assert_eq!(attempts, [1, 2, 3, 4, 5, 1]);
    assert_eq!(batches[5].ids, ["item-3", "item-4", "item-5"], "the next batch waited");
    check_pauses(&batches[..5]);
    assert_eq!(failures(&h1), [1, 2, 3, 4]);
    world.run(secs(1));
    assert!(world.only_lease().body.get("failing").is_none());
    assert_eq!(world.letters_parked(), 0);
}

/// Pauses grow to twice the one before; each is between half and all of its nominal length, and
/// they are not all at the same place in between.
#[track_caller]
fn check_pauses(batches: &[HandledBatch]) {
    let mut places = Vec::new();
    let mut nominal = secs(1);
    for pair in batches.windows(2) {
        let (ended, _) = pair[0].ended.expect("it returned");
        let pause = pair[1].started - ended;
        assert!(nominal / 2 <= pause && pause <= nominal + millis(5), "{pause:?} of {nominal:?}");
        places.push(pause.as_micros() * 1_000 / nominal.as_micros());
        nominal *= 2;
    }
    assert!(places.windows(2).any(|it| it[0] != it[1]), "no jitter: {places:?}");
}

fn scenario_30_attempts_are_remembered_by_the_next_owner(world: &World) {
    let options = options().attempts_max(4).backoff(secs(10), secs(10));
    let h1 = world.start_owner("h1", &options);
    world.start("h2", &options);
    world.recorder().fail("item-0", usize::MAX, Failing::Failed);
    world.write_many(1, 1);
    world.run_until(secs(60), || world.batches_of("h1").len() == 3);
    world.run(millis(100));
    h1.kill();
    world.run_until(LEASE + ROUND * 2, || !world.batches_of("h2").is_empty());
    assert_eq!(world.batches_of("h2")[0].attempt, 4, "three were made before");
    world.run(secs(1));
    assert_eq!(world.parked("key-0").expect("it is parked").attempts, 4);
    world.run(secs(60));
    assert_eq!(world.batches_of("h2").len(), 1);
}

fn scenario_31_an_item_that_always_fails_is_parked_and_can_be_replayed(world: &World) {
    let options = options().attempts_max(3);
    let h1 = world.start_owner("h1", &options);
    world.recorder().fail("item-6", usize::MAX, Failing::Failed);
    let written = world.write_many(12, 12);
    let others: Vec<_> = written.iter().filter(|it| it.id != "item-6").cloned().collect();
    world.run_until(SOON, || world.all_handled(&others) && world.parked("key-6").is_some());
    let batches = world.batches_of("h1");
    assert!(batches[..3].iter().all(|it| it.ids.len() == 12), "the whole batch three times");
    for it in &others {
        let content = world.handled_of_key(&it.key);
        assert_eq!(content, [it.id.as_str()], "handled once, not before or after again");
        // Halves are tried after that: those beside the culprit come a few times more.
        let more = world.deliveries_of_item(&it.id).len() - 3;
        assert!((1..=4).contains(&more), "{} came {more} times more", it.id);
    }
    assert!(!batches.last().expect("some").ids.contains(&"item-6".to_owned()));
    let parked = world.parked("key-6").expect("it is parked");
    assert_eq!((parked.parked, parked.attempts, parked.first_id.as_str()), (1, 3, "item-6"));
    assert!(parked.error.contains("told to fail"), "{parked:?}");
    assert_eq!(
        h1.told(|it| matches!(it, Notification::Parked { id, sequence: true, .. }
            if id == "item-6")),
        1
    );
    // The lease goes on, and does not come back to it.
    let later = world.write_many(5, 5);
    world.run_until(SOON, || world.all_handled(&later));
    world.assert_each_once(&later);
    let tried = world.deliveries_of_item("item-6").len();
    world.run(secs(120));
    assert_eq!(world.deliveries_of_item("item-6").len(), tried);
    // The replay delivers it.
    world.recorder().fail("item-6", 0, Failing::Failed);
    world.redrive("key-6");
    world.run_until(SOON, || world.parked("key-6").is_none());
    let last = world.deliveries_of_item("item-6").pop().expect("it came");
    assert!(last.redriven);
    assert_eq!(world.handled_of_key("key-6"), ["item-6"]);
    assert_eq!(h1.told(|it| matches!(it, Notification::Redriven { .. })), 1);
}

fn scenario_31_a_handler_that_says_which_item_failed_repeats_nothing_before_it(world: &World) {
    let options = options().attempts_max(3);
    let h1 = world.start_owner("h1", &options);
    world.recorder().fail("item-6", usize::MAX, Failing::FailedAt);
    let written = world.write_many(12, 12);
    let others: Vec<_> = written.iter().filter(|it| it.id != "item-6").cloned().collect();
    // What came before the culprit was done in the first call, although that failed.
    world.run_until(SOON, || world.all_handled(&others[6..]) && world.parked("key-6").is_some());
    world.assert_each_once(&written[..6]);
    assert_eq!(world.deliveries_of_item("item-6").len(), 3);
    for it in &written[7..] {
        assert_eq!(world.deliveries_of_item(&it.id).len(), 4);
    }
    assert_eq!(failures(&h1), [1, 2, 3]);
    let before = world.recorder().count();
    world.stop(&h1);
    world.start_owner("h2", &options);
    world.run(secs(60));
    assert_eq!(world.recorder().count(), before, "everything was checkpointed");
}

fn scenario_32_a_panic_is_a_failure_like_any_other(world: &World) {
    let h1 = world.start_owner("h1", &options().backoff(secs(5), secs(60)));
    let (left, right) = (world.key_in(0), world.key_in(1));
    world.recorder().fail("bad", 2, Failing::Panic);
    let bad = world.write(&left, "bad");
    world.run_until(SOON, || failures(&h1) == [1]);
    // The other lease goes on meanwhile.
    let good = world.write(&right, "good");
    let took = world.run_until(secs(2), || world.all_handled(std::slice::from_ref(&good)));
    assert!(took < secs(1), "{took:?}");
    world.run_until(SOON, || world.all_handled(std::slice::from_ref(&bad)));
    assert_eq!(failures(&h1), [1, 2]);
    assert_eq!(world.deliveries_of_item("bad").len(), 3);
    assert_eq!(world.deliveries_of_item("good").len(), 1);
    let said = h1.told(|it| {
        matches!(it, Notification::HandlerFailed { error, .. }
        if error.contains("panicked") && error.contains("the test says so"))
    });
    assert_eq!(said, 2);
    assert_eq!((h1.outcome(), h1.told(is_lost)), (None, 0));
}

fn scenario_32_an_item_that_always_panics_is_parked(world: &World) {
    let h1 = world.start_owner("h1", &options().attempts_max(2));
    world.recorder().fail("item-3", usize::MAX, Failing::Panic);
    let written = world.write_many(8, 8);
    let others: Vec<_> = written.iter().filter(|it| it.id != "item-3").cloned().collect();
    world.run_until(SOON, || world.all_handled(&others) && world.parked("key-3").is_some());
    assert!(world.parked("key-3").expect("it is parked").error.contains("panicked"));
    assert_eq!(h1.outcome(), None);
}

/// Refuses items whose version is not a number, and keeps their bytes.
#[derive(Clone, Default)]
struct Parsing {
    refused: Arc<Mutex<Vec<String>>>,
    parsed: Arc<Mutex<Vec<u64>>>,
}

impl Handler for Parsing {
    fn handle(&self, batch: ChangeBatch, _: Context) -> BoxFuture<'_, HandlerResult> {
        Box::pin(async move {
            for (index, change) in batch.iter().enumerate() {
                let body = &change.current.as_ref().expect("nothing is deleted").body;
                let text = String::from_utf8_lossy(body).into_owned();
                let version = text.split_once("\"version\":").map_or("", |(_, it)| it);
                match version.trim_end_matches('}').parse() {
                    Ok(it) => self.parsed.lock().expect("no panics").push(it),
                    Err(error) => {
                        self.refused.lock().expect("no panics").push(text);
                        let error: std::num::ParseIntError = error;
                        return Err(HandlerError::failed(error).at(index));
                    }
                }
            }
            Ok(())
        })
    }
}

fn scenario_33_an_item_that_cannot_be_parsed_is_parked_with_its_bytes(world: &World) {
    let handler = Parsing::default();
    let options = options().attempts_max(2);
    let h1 = world.instance("h1").options(options).handler(handler.clone()).start();
    let body = r#"{"id":"odd",  "partitionKey":"odd", "version":"1e400, or so", "big":1e400}"#;
    world.write("key-0", "before");
    world.commit(Batch::new("odd").with(Operation::create(body)));
    world.write("key-1", "after");
    world.run_until(SOON, || world.parked("odd").is_some());
    world.run(ROUND);
    assert_eq!(*handler.parsed.lock().expect("no panics"), [1, 1], "the others, once each");
    let refused = handler.refused.lock().expect("no panics").clone();
    assert_eq!(refused.len(), 2, "as many as there are attempts");
    let letters = world.letters();
    let sequence = async move { letters.sequence(&PartitionKey::from("odd"), None, 10).await };
    let parked = world.block_on(sequence).expect("the container is there").remove(0);
    let kept = parked.change.current.expect("it was not deleted").body;
    assert_eq!(String::from_utf8_lossy(&kept), refused[0], "byte for byte what the handler got");
    assert!(refused[0].contains(r#""version":"1e400, or so""#) && refused[0].contains("1e400}"));
    assert!(parked.error.expect("it failed").contains("invalid digit"));
    let later = world.write("key-0", "later");
    world.run_until(SOON, || handler.parsed.lock().expect("no panics").len() == 3);
    assert_eq!((later.version, h1.outcome()), (1, None));
}

fn scenario_34_the_next_owner_begins_at_the_last_checkpoint(world: &World) {
    let options = options().batch_items_max(5);
    let h1 = world.start_owner("h1", &options);
    world.start("h2", &options);
    world.run(ROUND * 2);
    world.recorder().take("h1", secs(1));
    let written = world.write_many(20, 7);
    world.run_until_exact(SOON, || world.recorder().count_on("h1") == 15);
    world.run(millis(500));
    let third = world.batches_of("h1")[2].clone();
    assert!(third.is_at_work());
    h1.kill();
    world.run_until(LEASE + ROUND * 2, || world.all_handled(&written));
    let batches = world.batches_of("h2");
    assert_eq!(batches[0].ids, third.ids, "exactly from the last checkpoint");
    world.assert_each_once(&written[..10]);
    for it in &written[10..15] {
        assert_eq!(world.deliveries_of_item(&it.id).len(), 2);
    }
    world.assert_each_once(&written[15..]);
    world.assert_in_order_per_key();
}

fn scenario_35_without_acknowledgement_a_new_owner_gets_everything_again(world: &World) {
    let options = options().checkpoint(Checkpoint::ByHand).batch_items_max(5);
    let h1 = world.start_owner("h1", &options);
    let begin = world.only_lease().position;
    let written = world.write_many(20, 7);
    world.run_until(SOON, || world.recorder().count_on("h1") == 20);
    world.run(secs(120));
    assert_eq!(world.only_lease().position, begin);
    world.stop(&h1);
    assert_eq!(world.only_lease().position, begin, "a stop in order is no acknowledgement");
    world.start("h2", &options);
    world.run_until(SOON, || world.recorder().count_on("h2") == 20);
    for it in &written {
        assert_eq!(world.deliveries_of_item(&it.id).len(), 2);
    }
    assert_eq!(world.only_lease().position, begin);
    world.assert_in_order_per_key();
}

fn scenario_35_without_acknowledgement_children_get_everything_again(world: &World) {
    let options = options().checkpoint(Checkpoint::ByHand).batch_items_max(5);
    world.start_owner("h1", &options);
    let begin = world.only_lease().position;
    let written = world.write_many(20, 7);
    world.run_until(SOON, || world.recorder().count_on("h1") == 20);
    world.split(0);
    world.run_until(SOON, || world.leases().len() == 2);
    assert!(world.leases().iter().all(|it| it.position == begin));
    world.run_until(SOON, || world.recorder().count_on("h1") == 40);
    for it in &written {
        assert_eq!(world.deliveries_of_item(&it.id).len(), 2);
    }
    world.assert_in_order_per_key();
}

/// Takes a drawn time for each batch and notes what is unfinished.
struct Slow {
    handle: Handle,
    state: Arc<Mutex<SlowState>>,
}

#[derive(Default)]
struct SlowState {
    rng: Option<Rng>,
    /// The commits of each key that are with the handler.
    at_work: BTreeMap<String, Vec<u64>>,
    at_work_most: usize,
    /// In the order in which they were finished.
    finished: Vec<(String, String, u64)>,
}

impl Handler for Slow {
    fn handle(&self, batch: ChangeBatch, _: Context) -> BoxFuture<'_, HandlerResult> {
        Box::pin(async move {
            let key = key_text(&batch.get(0).expect("never empty").partition_key);
            let lsns = batch.iter().map(|it| it.lsn.as_u64()).collect();
            let time = {
                let mut state = self.state.lock().expect("no panics");
                let before = state.at_work.insert(key.clone(), lsns);
                assert!(before.is_none(), "two batches of {key} at the same time");
                state.at_work_most = state.at_work_most.max(state.at_work.len());
                let rng = state.rng.as_mut().expect("it was given one");
                rng.duration(Duration::ZERO, millis(400))
            };
            self.handle.sleep(time).await;
            let mut state = self.state.lock().expect("no panics");
            state.at_work.remove(&key);
            for it in batch.iter() {
                assert_eq!(key_text(&it.partition_key), key, "a batch has one key");
                state.finished.push((key.clone(), it.id.to_string(), it.lsn.as_u64()));
            }
            Ok(())
        })
    }
}

fn scenario_36_keyed_batches_keep_the_order_and_the_low_watermark(world: &World) {
    let state = Arc::new(Mutex::new(SlowState::default()));
    state.lock().expect("no panics").rng = Some(Rng::stream(7, "delays"));
    let handler = Slow { handle: world.handle().clone(), state: Arc::clone(&state) };
    let options = options().concurrency(Concurrency::Keyed(16)).batch_items_max(20);
    world.instance("h1").options(options).handler(handler).start();
    world.run_until(SOON, || world.owners().keys().eq(["h1"]));
    let places: BTreeMap<String, usize> = (0..100)
        .map(|it| format!("key-{it}"))
        .map(|key| (key.clone(), usize::from(world.is_in(&key, &world.ranges()[1].keys))))
        .collect();
    let mut positions = crate::harness_more::Positions::default();
    let mut written = 0;
    let finished = || state.lock().expect("no panics").finished.clone();
    while finished().len() < 600 {
        if written < 600 {
            written += world.write_many(60, 100).len();
        }
        world.run(millis(40));
        positions.look(world);
        check_watermark(world, &places, &finished());
        assert!(world.now() < secs(120), "it takes for ever");
    }
    assert!(16 < state.lock().expect("no panics").at_work_most, "two leases work at once");
    let mut last: BTreeMap<String, u64> = BTreeMap::new();
    for (key, id, lsn) in finished() {
        let before = last.insert(key, lsn);
        assert!(before.is_none_or(|it| it < lsn), "{id} is out of order");
    }
}

/// The position of each lease lies before the first change that is not finished.
#[track_caller]
fn check_watermark(
    world: &World,
    places: &BTreeMap<String, usize>,
    finished: &[(String, String, u64)],
) {
    for (place, range) in world.ranges().into_iter().enumerate() {
        let done: std::collections::BTreeSet<&str> =
            finished.iter().map(|(_, id, _)| id.as_str()).collect();
        // Commits of a range are numbered one by one as they are written.
        let own: Vec<_> =
            world.written().into_iter().filter(|it| places[&it.key] == place).collect();
        let open = own.iter().position(|it| !done.contains(it.id.as_str()));
        let lease =
            world.leases().into_iter().find(|it| it.keys == range.keys).expect("it has one");
        let first = finished.iter().filter(|(key, ..)| places[key] == place);
        let Some(base) = first
            .filter_map(|(_, id, lsn)| {
                let at = own.iter().position(|it| it.id == *id)?;
                lsn.checked_sub(u64::try_from(at).expect("a few"))
            })
            .min()
        else {
            continue;
        };
        let Some(open) = open else { continue };
        let lowest = base + u64::try_from(open).expect("a few");
        let position = done_up_to(&lease.position);
        assert!(position < lowest, "{position} is not before {lowest}");
    }
}

fn scenario_37_a_stop_lets_a_batch_finish_within_the_grace_time(world: &World) {
    let options = options().batch_items_max(5);
    let h1 = world.start_owner("h1", &options);
    world.start("h2", &options);
    world.recorder().take("h1", secs(8));
    let written = world.write_many(10, 10);
    world.run_until_exact(SOON, || world.recorder().at_work("h1") == 1);
    h1.stop();
    let took = world.run_until(SOON, || h1.outcome().is_some());
    assert!(secs(7) < took && took < secs(9), "{took:?}");
    assert_eq!(h1.outcome(), Some(Ok(())));
    let own = world.batches_of("h1");
    assert_eq!(own.len(), 1, "no other batch was begun");
    assert!(own[0].ended.is_some_and(|(_, content)| content));
    assert_eq!(h1.told(|it| matches!(it, Notification::Released { .. })), 1);
    assert_eq!(h1.notifications().last(), Some(&Notification::Stopped));
    let took = world.run_until(SOON, || world.all_handled(&written));
    assert!(took <= ROUND + secs(1), "the other one began after {took:?}");
    world.assert_each_once(&written);
    assert_eq!(world.members(), ["h2"]);
}

fn scenario_37_a_stop_cancels_a_batch_after_the_grace_time(world: &World) {
    let options = options().batch_items_max(5).stop_grace(secs(3));
    let h1 = world.start_owner("h1", &options);
    world.start("h2", &options);
    let position = world.only_lease().position;
    world.recorder().close("h1");
    let written = world.write_many(10, 10);
    world.run_until_exact(SOON, || world.recorder().at_work("h1") == 1);
    h1.stop();
    let took = world.run_until(SOON, || h1.outcome().is_some());
    assert!(secs(3) <= took && took < secs(4), "{took:?}");
    assert_eq!(h1.outcome(), Some(Ok(())));
    let own = world.batches_of("h1");
    assert!(own.len() == 1 && own[0].dropped && own[0].cancelled, "{own:?}");
    if let Some(lease) = world.leases().into_iter().find(|it| it.owner.is_none()) {
        assert_eq!(lease.position, position, "nothing was checkpointed");
    }
    let took = world.run_until(SOON, || world.all_handled(&written));
    assert!(took <= ROUND + secs(1), "the other one began after {took:?}");
    assert_eq!(world.batches_of("h2")[0].ids, own[0].ids);
}
