//! Lives of an instance that follow each other, with a clock that stands still unless moved.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_lite::future::poll_once;
use millstream_core::conformance::block_on;
use millstream_core::{BoxFuture, Clock};
use tokio_util::sync::CancellationToken;

use crate::batch::ChangeBatch;
use crate::error::Result;
use crate::handler::Context;
use crate::options::{ProcessorOptions, StartPosition};
use crate::processor::Processor;
use crate::test_world::{PROCESSOR, World};

/// More often than anything needs that does not wait for the clock.
const POLLS: usize = 2000;
const LEASE_DURATION: Duration = Duration::from_secs(30);

/// The ids of the changes that were handled, by whichever life.
type Handled = Arc<Mutex<Vec<String>>>;

/// A life of an instance: dropped, it is like a killed process.
struct Life {
    run: BoxFuture<'static, Result<()>>,
    handled: Handled,
}

impl Life {
    fn begin(world: &World, instance: &str, predecessor_is_dead: bool, handled: &Handled) -> Self {
        let options = ProcessorOptions::default()
            .start(StartPosition::Beginning)
            .lease_duration(LEASE_DURATION)
            .round_interval(Duration::from_secs(5));
        let mut processor = Processor::new(&world.feed, &world.leases, PROCESSOR)
            .instance(instance)
            .options(options)
            .clock(world.clock.clone());
        if predecessor_is_dead {
            processor = processor.predecessor_is_dead();
        }
        let seen = Arc::clone(handled);
        let handler = move |batch: ChangeBatch, _: Context| {
            let ids = batch.iter().map(|it| it.id.as_str().to_owned());
            seen.lock().unwrap().extend(ids);
            std::future::ready(Ok(()))
        };
        let started = block_on(processor.start(handler)).unwrap();
        let run = Box::pin(started.run(CancellationToken::new()));
        Self { run, handled: Arc::clone(handled) }
    }

    /// Lets it do whatever it can do now; returns how many changes were handled so far.
    fn work(&mut self) -> usize {
        for _ in 0..POLLS {
            let ended = block_on(poll_once(&mut self.run));
            assert!(ended.is_none(), "the instance ended: {ended:?}");
        }
        self.handled.lock().unwrap().len()
    }
}

/// A world in which `instance` has handled one change and was killed; another change waits.
fn after_a_kill(instance: &str) -> (World, Handled) {
    let (world, handled) = (World::new("/partitionKey", 2), Handled::default());
    world.write(&["ada"]);
    let mut life = Life::begin(&world, instance, false, &handled);
    assert_eq!(life.work(), 1);
    // Its position is written a moment later.
    world.advance(1);
    assert_eq!(life.work(), 1);
    drop(life);
    world.write(&["ada"]);
    (world, handled)
}

#[test]
fn an_instance_whose_predecessor_is_dead_works_at_once() {
    let (world, handled) = after_a_kill("up");
    let mut life = Life::begin(&world, "up", true, &handled);
    assert_eq!(life.work(), 2);
    assert_eq!(world.clock.monotonic(), Duration::from_secs(1));
}

#[test]
fn several_dead_predecessors_are_waited_for_no_longer_than_one() {
    let (world, handled) = after_a_kill("up");
    for _ in 0..3 {
        let life = Life::begin(&world, "up", true, &handled);
        drop(life);
    }
    let mut life = Life::begin(&world, "up", true, &handled);
    assert_eq!(life.work(), 2);
}

#[test]
fn without_the_promise_a_predecessor_is_waited_for() {
    let (world, handled) = after_a_kill("up");
    let mut life = Life::begin(&world, "up", false, &handled);
    assert_eq!(life.work(), 1);
    for _ in 0..60 {
        world.advance(5);
        if life.work() == 2 {
            assert!(LEASE_DURATION <= world.clock.monotonic());
            return;
        }
    }
    panic!("the leases were never taken");
}

#[test]
fn the_promise_says_nothing_of_instances_with_other_names() {
    let (world, handled) = after_a_kill("other");
    let mut life = Life::begin(&world, "up", true, &handled);
    assert_eq!(life.work(), 1);
    world.advance(LEASE_DURATION.as_secs() / 2);
    assert_eq!(life.work(), 1);
}
