use std::sync::{Arc, Mutex};
use std::time::Duration;

use millstream_core::Clock;

use crate::clock::SimClock;
use crate::executor::handle::{Handle, YieldNow};
use crate::executor::{Budget, Executor, NodeId, Stopped};

const SECOND: Duration = Duration::from_secs(1);

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<String>>>);

impl Log {
    fn add(&self, text: impl Into<String>) {
        self.0.lock().unwrap().push(text.into());
    }

    fn text(&self) -> String {
        self.0.lock().unwrap().join(" ")
    }
}

/// Writes `name` every second, `times` times.
fn tick(handle: &Handle, node: NodeId, log: &Log, name: &'static str, times: u64) {
    let (own, log) = (handle.clone(), log.clone());
    let task = async move {
        for _ in 0..times {
            own.sleep(SECOND).await;
            log.add(format!("{name}{}", own.now().as_secs()));
        }
    };
    handle.spawn(node, Box::pin(task));
}

/// Ten tasks that give way five times each.
fn crowd(seed: u64) -> (String, u64) {
    let mut executor = Executor::new(seed);
    let log = Log::default();
    for number in 0..10 {
        let log = log.clone();
        let task = async move {
            for _ in 0..5 {
                YieldNow::default().await;
                log.add(number.to_string());
            }
        };
        executor.handle().spawn(NodeId::WORLD, Box::pin(task));
    }
    assert_eq!(executor.run_until(SECOND), Stopped::Idle);
    (log.text(), executor.handle().digest())
}

#[test]
fn the_schedule_follows_from_the_seed() {
    assert_eq!(crowd(1), crowd(1));
    let (one, other) = (crowd(1), crowd(2));
    assert_ne!(one.0, other.0);
    assert_ne!(one.1, other.1);
}

#[test]
fn traced_values_are_part_of_the_digest() {
    let digest = |bytes: &[u8]| {
        let executor = Executor::new(1);
        executor.handle().trace(bytes);
        executor.handle().digest()
    };
    assert_eq!(digest(b"a longer text"), digest(b"a longer text"));
    assert_ne!(digest(b"a longer text"), digest(b"a longer test"));
}

#[test]
fn timers_fire_in_the_order_of_time() {
    let mut executor = Executor::new(3);
    let (handle, log) = (executor.handle().clone(), Log::default());
    for seconds in [5, 1, 4, 2, 3] {
        let (log, sleep) = (log.clone(), handle.sleep(SECOND * seconds));
        let task = async move {
            sleep.await;
            log.add(seconds.to_string());
        };
        handle.spawn(NodeId::WORLD, Box::pin(task));
    }
    assert_eq!(executor.run_until(SECOND * 3), Stopped::Time);
    assert_eq!((log.text().as_str(), handle.now()), ("1 2 3", SECOND * 3));
    assert_eq!(executor.run_until(SECOND * 9), Stopped::Idle);
    assert_eq!((log.text().as_str(), handle.now()), ("1 2 3 4 5", SECOND * 9));
}

#[test]
fn a_dropped_sleep_leaves_no_timer() {
    let mut executor = Executor::new(3);
    let handle = executor.handle().clone();
    let task = async move {
        let long = handle.sleep(SECOND * 100);
        futures_util::future::select(long, YieldNow::default()).await;
    };
    executor.handle().spawn(NodeId::WORLD, Box::pin(task));
    assert_eq!(executor.run_until(SECOND), Stopped::Idle);
}

#[test]
fn a_run_ends_when_its_condition_holds() {
    let mut executor = Executor::new(1);
    let (handle, log) = (executor.handle().clone(), Log::default());
    tick(&handle, NodeId::WORLD, &log, "a", 10);
    let stopped = executor.run_until_either(SECOND * 20, || log.text() == "a1 a2");
    assert_eq!((stopped, handle.now()), (Stopped::Done, SECOND * 2));
}

#[test]
fn a_killed_node_drops_its_tasks_and_gets_no_new_ones() {
    let mut executor = Executor::new(1);
    let (handle, log) = (executor.handle().clone(), Log::default());
    let (one, other) = (handle.add_node("one"), handle.add_node("other"));
    tick(&handle, one, &log, "a", 5);
    tick(&handle, other, &log, "b", 3);
    let held = Arc::new(());
    let (own, spawner) = (Arc::clone(&held), handle.spawner(one));
    spawner(Box::pin(async move {
        std::future::pending::<()>().await;
        drop(own);
    }));
    executor.run_until(SECOND);
    assert_eq!(Arc::strong_count(&held), 2);
    handle.kill(one);
    spawner(Box::pin(std::future::ready(())));
    let steps = executor.steps();
    assert_eq!(executor.run_until(SECOND * 9), Stopped::Idle);
    assert_eq!(Arc::strong_count(&held), 1);
    assert!(log.text().ends_with("b2 b3") && !log.text().contains("a2"), "{}", log.text());
    assert_eq!(executor.steps() - steps, 2);
    assert!(!handle.is_alive(one) && handle.is_alive(other));
}

#[test]
fn a_stalled_node_goes_on_as_if_nothing_had_happened() {
    let mut executor = Executor::new(1);
    let (handle, log) = (executor.handle().clone(), Log::default());
    let node = handle.add_node("node");
    let clock = SimClock::with(&handle, 0, Duration::ZERO);
    tick(&handle, node, &log, "a", 3);
    executor.run_until(SECOND);
    handle.stall(node, SECOND * 10);
    handle.stall(node, SECOND * 5);
    executor.run_until(SECOND * 10);
    assert_eq!(log.text(), "a1");
    assert_eq!(clock.monotonic(), SECOND * 10);
    assert_eq!(executor.run_until(SECOND * 30), Stopped::Idle);
    // The second sleep was over long ago, the third begins when the node goes on.
    assert_eq!(log.text(), "a1 a11 a12");
}

#[test]
fn a_stalled_node_can_be_killed() {
    let mut executor = Executor::new(1);
    let (handle, log) = (executor.handle().clone(), Log::default());
    let node = handle.add_node("node");
    tick(&handle, node, &log, "a", 3);
    handle.stall(node, SECOND * 10);
    executor.run_until(SECOND * 2);
    handle.kill(node);
    assert_eq!(executor.run_until(SECOND * 30), Stopped::Idle);
    assert_eq!(log.text(), "");
}

#[test]
fn spinning_is_reported_with_its_node() {
    let budget = Budget { steps_max: 1000, steps_per_instant_max: 100 };
    let mut executor = Executor::new(1).budget(budget);
    let handle = executor.handle().clone();
    let node = handle.add_node("busy");
    let own = handle.clone();
    handle.spawn(
        node,
        Box::pin(async move {
            loop {
                own.sleep(Duration::ZERO).await;
            }
        }),
    );
    let stopped = executor.run_until(SECOND);
    let expected = "101 polls while no time passed, the last of node busy at 0ns";
    assert_eq!(stopped, Stopped::Spinning(expected.to_owned()));
}

#[test]
fn a_failure_ends_the_run_at_once() {
    let mut executor = Executor::new(1);
    let (handle, log) = (executor.handle().clone(), Log::default());
    tick(&handle, NodeId::WORLD, &log, "a", 5);
    let own = handle.clone();
    handle.spawn(
        NodeId::WORLD,
        Box::pin(async move {
            own.sleep(SECOND * 2).await;
            own.fail("first");
            own.fail("second");
        }),
    );
    assert_eq!(executor.run_until(SECOND * 9), Stopped::Failed("first".to_owned()));
    assert_eq!(handle.now(), SECOND * 2);
}

#[test]
fn nothing_outlives_the_executor() {
    let held = Arc::new(());
    let executor = Executor::new(1);
    let handle = executor.handle().clone();
    for _ in 0..2 {
        let (own, inner) = (Arc::clone(&held), handle.clone());
        handle.spawn(
            NodeId::WORLD,
            Box::pin(async move {
                inner.sleep(SECOND).await;
                drop(own);
            }),
        );
    }
    drop(executor);
    assert_eq!(Arc::strong_count(&held), 1);
}

#[test]
fn time_stands_still_while_another_thread_is_busy() {
    let mut executor = Executor::new(1);
    let (handle, log) = (executor.handle().clone(), Log::default());
    tick(&handle, NodeId::WORLD, &log, "tick", 1);
    let (reply, replied) = futures_channel::oneshot::channel();
    let (own, call) = (log.clone(), handle.outside_call());
    let task = async move {
        own.add(replied.await.expect("the thread answers"));
        drop(call);
    };
    handle.spawn(NodeId::WORLD, Box::pin(task));
    let thread = std::thread::spawn(move || reply.send("reply").expect("it is waited for"));
    assert_eq!(executor.run_until(SECOND * 5), Stopped::Idle);
    assert_eq!(log.text(), "reply tick1");
    thread.join().expect("the thread does not panic");
}
