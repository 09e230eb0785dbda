//! A single-threaded executor whose schedule is drawn from a seed and whose time is virtual.
//!
//! Tasks belong to nodes. Of the tasks that are ready one is picked at random; time moves only when
//! none is ready, to the next timer. Every decision goes into a digest, so two runs of one seed can
//! be compared by a number.

pub(crate) mod handle;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use millstream_core::BoxFuture;

use crate::executor::handle::{Command, Handle, Shared, TaskId, Woken};
use crate::log;
use crate::rng::Rng;

/// A process of the simulated deployment. A restarted process is another node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub(crate) usize);

impl NodeId {
    /// The world outside of all processes: writers, the network, the store. Never dies or stalls.
    pub const WORLD: Self = Self(0);

    /// Its number, counted from 0 in the order of creation.
    #[must_use]
    pub fn number(self) -> usize {
        self.0
    }
}

/// How much a run may do before it counts as spinning.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    /// Polls in the whole run.
    pub steps_max: u64,
    /// Polls without time moving on.
    pub steps_per_instant_max: u64,
}

impl Default for Budget {
    /// Two million polls, 50 000 of them at one instant.
    fn default() -> Self {
        Self { steps_max: 2_000_000, steps_per_instant_max: 50_000 }
    }
}

/// Why a run came to an end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stopped {
    /// The condition held.
    Done,
    /// The time was reached.
    Time,
    /// Nothing is ready and no timer is set: nothing would ever happen again.
    Idle,
    /// The step budget is spent; the text says where.
    Spinning(String),
    /// [`Handle::fail`] was called with this text.
    Failed(String),
}

/// Runs the tasks of all nodes.
///
/// ```
/// use std::time::Duration;
/// use millstream_core::Clock;
/// use millstream_sim::{Executor, NodeId, SimClock, Stopped};
///
/// let mut executor = Executor::new(7);
/// let clock = SimClock::of_world(executor.handle());
/// let sleeping = clock.sleep(Duration::from_secs(3600));
/// executor.handle().spawn(NodeId::WORLD, Box::pin(sleeping));
/// assert_eq!(executor.run_until(Duration::from_secs(7200)), Stopped::Idle);
/// assert_eq!(executor.steps(), 2);
/// ```
#[derive(Debug)]
pub struct Executor {
    handle: Handle,
    tasks: Vec<Option<Task>>,
    nodes: Vec<Node>,
    ready: Vec<TaskId>,
    /// Kept between steps to save allocations.
    woken: Vec<TaskId>,
    due: Vec<Waker>,
    schedule: Rng,
    budget: Budget,
    steps: u64,
    steps_at_instant: u64,
}

struct Task {
    node: NodeId,
    future: BoxFuture<'static, ()>,
    wake: Arc<WakeTask>,
    waker: Waker,
}

impl std::fmt::Debug for Task {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Task").field("node", &self.node).finish_non_exhaustive()
    }
}

#[derive(Debug, Default)]
struct Node {
    stalled_until: Option<u64>,
    /// Tasks that were woken during the stall.
    held: Vec<TaskId>,
}

/// Holds nothing but the queue: a waker may lie in a timer or in the store, and must not keep those
/// alive in turn.
struct WakeTask {
    id: TaskId,
    is_queued: AtomicBool,
    woken: Arc<Woken>,
}

impl Wake for WakeTask {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // The waker may be another thread; what it did before must be seen by the poll.
        if !self.is_queued.swap(true, Ordering::AcqRel) {
            self.woken.push(self.id);
        }
    }
}

impl Executor {
    /// An executor at time zero with the node [`NodeId::WORLD`].
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let handle = Handle::new(Arc::new(Shared::default()));
        handle.add_node("world");
        Self {
            handle,
            tasks: Vec::new(),
            nodes: Vec::new(),
            ready: Vec::new(),
            woken: Vec::new(),
            due: Vec::new(),
            schedule: Rng::stream(seed, "schedule"),
            budget: Budget::default(),
            steps: 0,
            steps_at_instant: 0,
        }
    }

    /// Sets how much the run may do. Default: [`Budget::default`].
    #[must_use]
    pub fn budget(mut self, value: Budget) -> Self {
        self.budget = value;
        self
    }

    /// What tasks use to speak to the executor.
    #[must_use]
    pub fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Polls so far.
    #[must_use]
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// Runs until this time since the start, with everything that is due at that very time.
    pub fn run_until(&mut self, time: Duration) -> Stopped {
        self.run(time, || false)
    }

    /// Runs until the condition holds or the time is reached, whichever is first. The condition is
    /// looked at before every poll.
    pub fn run_until_either(&mut self, time: Duration, done: impl FnMut() -> bool) -> Stopped {
        self.run(time, done)
    }

    fn run(&mut self, until: Duration, mut done: impl FnMut() -> bool) -> Stopped {
        let until = handle::nanos(until);
        loop {
            self.obey();
            if let Some(failure) = self.handle.failure() {
                return Stopped::Failed(failure);
            }
            if done() {
                return Stopped::Done;
            }
            self.gather();
            if let Some(node) = self.poll_one() {
                if let Some(spinning) = self.over_budget(node) {
                    return Stopped::Spinning(spinning);
                }
                continue;
            }
            if self.handle.shared.woken.wait() {
                continue;
            }
            match self.next_event() {
                Some(at) if at <= until => self.move_to(at),
                Some(_) => {
                    self.handle.shared.set_now(until);
                    return Stopped::Time;
                }
                None => {
                    self.handle.shared.set_now(until);
                    return Stopped::Idle;
                }
            }
        }
    }

    /// Does what tasks have asked for since the last step. Dropping tasks may ask for more.
    fn obey(&mut self) {
        loop {
            let commands = self.handle.shared.take_commands();
            if commands.is_empty() {
                return;
            }
            for command in commands {
                match command {
                    Command::Spawn(node, future) => self.spawn(node, future),
                    Command::Kill(node) => self.kill(node),
                    Command::Stall(node, until) => self.stall(node, until),
                }
            }
        }
    }

    fn spawn(&mut self, node: NodeId, future: BoxFuture<'static, ()>) {
        // The node may have been killed after it asked.
        if !self.handle.is_alive(node) {
            return;
        }
        let id = self.tasks.len();
        let woken = Arc::clone(&self.handle.shared.woken);
        let wake = Arc::new(WakeTask { id, is_queued: AtomicBool::new(false), woken });
        wake.wake_by_ref();
        let waker = Waker::from(Arc::clone(&wake));
        self.tasks.push(Some(Task { node, future, wake, waker }));
    }

    fn kill(&mut self, node: NodeId) {
        self.handle.trace_number(1 << 32 | handle::wide(node.0));
        let tasks =
            self.tasks.iter_mut().filter(|it| it.as_ref().is_some_and(|it| it.node == node));
        let dropped: Vec<Option<Task>> = tasks.map(Option::take).collect();
        drop(dropped);
        let state = self.node(node);
        *state = Node::default();
    }

    fn stall(&mut self, node: NodeId, until: u64) {
        assert!(node != NodeId::WORLD, "the world cannot be stalled");
        self.handle.trace_number(2 << 32 | handle::wide(node.0));
        let state = self.node(node);
        state.stalled_until = state.stalled_until.max(Some(until));
        let tasks = &self.tasks;
        let is_held = |id: &mut TaskId| tasks[*id].as_ref().is_some_and(|task| task.node == node);
        let held: Vec<TaskId> = self.ready.extract_if(.., is_held).collect();
        self.node(node).held.extend(held);
    }

    fn node(&mut self, node: NodeId) -> &mut Node {
        if self.nodes.len() <= node.0 {
            self.nodes.resize_with(node.0 + 1, Node::default);
        }
        &mut self.nodes[node.0]
    }

    /// Moves woken tasks to the ready ones.
    fn gather(&mut self) {
        let mut woken = std::mem::take(&mut self.woken);
        self.handle.shared.woken.take(&mut woken);
        for id in woken.drain(..) {
            let Some(task) = &self.tasks[id] else { continue };
            match self.nodes.get_mut(task.node.0) {
                Some(node) if node.stalled_until.is_some() => node.held.push(id),
                _ => self.ready.push(id),
            }
        }
        self.woken = woken;
    }

    /// Polls a random ready task; returns its node.
    fn poll_one(&mut self) -> Option<NodeId> {
        loop {
            if self.ready.is_empty() {
                return None;
            }
            let place = self.schedule.index(self.ready.len());
            let id = self.ready.swap_remove(place);
            // Killed since it was woken.
            let Some(mut task) = self.tasks[id].take() else { continue };
            self.handle.trace_number(handle::wide(id));
            let node = task.node;
            log::at(self.handle.now(), || self.handle.node_name(node));
            task.wake.is_queued.swap(false, Ordering::AcqRel);
            let polled = task.future.as_mut().poll(&mut Context::from_waker(&task.waker));
            match polled {
                Poll::Ready(()) => drop(task),
                Poll::Pending => self.tasks[id] = Some(task),
            }
            self.steps += 1;
            self.steps_at_instant += 1;
            return Some(node);
        }
    }

    fn over_budget(&self, node: NodeId) -> Option<String> {
        let polls = if self.budget.steps_max < self.steps {
            format!("{} polls", self.steps)
        } else if self.budget.steps_per_instant_max < self.steps_at_instant {
            format!("{} polls while no time passed", self.steps_at_instant)
        } else {
            return None;
        };
        let (name, at) = (self.handle.node_name(node), self.handle.now());
        Some(format!("{polls}, the last of node {name} at {at:?}"))
    }

    /// The time of the next timer or end of a stall.
    fn next_event(&self) -> Option<u64> {
        let stalls = self.nodes.iter().filter_map(|it| it.stalled_until);
        self.handle.shared.next_timer().into_iter().chain(stalls).min()
    }

    fn move_to(&mut self, at: u64) {
        let now = at.max(self.handle.shared.now());
        if self.handle.shared.now() < now {
            self.steps_at_instant = 0;
        }
        self.handle.shared.set_now(now);
        self.handle.trace_number(now);
        for node in &mut self.nodes {
            if node.stalled_until.is_some_and(|it| it <= now) {
                node.stalled_until = None;
                self.ready.append(&mut node.held);
            }
        }
        self.handle.shared.take_due(now, &mut self.due);
        for waker in self.due.drain(..) {
            waker.wake();
        }
    }
}

impl Drop for Executor {
    /// Tasks hold handles and handles may hold tasks that were not started yet, so neither would go
    /// by itself.
    fn drop(&mut self) {
        self.handle.shared.close();
        self.tasks.clear();
        while !self.handle.shared.take_commands().is_empty() {}
    }
}
