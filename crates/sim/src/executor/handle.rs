use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use millstream_core::BoxFuture;

use crate::executor::NodeId;
use crate::rng::mixed;

/// The place of a task in the list of the executor; never used again.
pub(crate) type TaskId = usize;

/// Starts tasks that belong to one node and die with it.
pub type NodeSpawner = Arc<dyn Fn(BoxFuture<'static, ()>) + Send + Sync>;

/// What tasks use to speak to their executor. Clones are the same.
///
/// What is asked for here happens before the next poll of any task.
#[derive(Clone, Debug)]
pub struct Handle {
    pub(crate) shared: Arc<Shared>,
}

/// Waits for a virtual time. Always yields once, so that a loop of empty sleeps is seen.
#[derive(Debug)]
pub struct Sleep {
    shared: Arc<Shared>,
    deadline: u64,
    /// Its place among the timers of the same time, once it was polled.
    timer: Option<u64>,
}

/// Gives way once to whatever else is ready.
#[derive(Debug, Default)]
pub struct YieldNow {
    has_yielded: bool,
}

pub(crate) enum Command {
    Spawn(NodeId, BoxFuture<'static, ()>),
    Kill(NodeId),
    Stall(NodeId, u64),
}

#[derive(Debug, Default)]
pub(crate) struct Shared {
    /// Nanoseconds since the start.
    now: AtomicU64,
    pub(crate) woken: Arc<Woken>,
    /// Spares a lock in most steps.
    has_news: AtomicBool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    timers: BTreeMap<(u64, u64), Waker>,
    timers_made: u64,
    commands: Vec<Command>,
    nodes: Vec<NodeState>,
    digest: u64,
    failure: Option<String>,
    is_closed: bool,
}

struct NodeState {
    name: String,
    is_alive: bool,
}

/// The tasks that were woken since the executor looked, and the calls that other threads are busy
/// with.
#[derive(Debug, Default)]
pub(crate) struct Woken {
    state: Mutex<WokenState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct WokenState {
    tasks: Vec<TaskId>,
    outside_calls: usize,
}

/// A call that another thread completes. Virtual time stands still until it is dropped.
#[derive(Debug)]
pub struct OutsideCall {
    woken: Arc<Woken>,
}

impl Handle {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self { shared }
    }

    /// Adds a process. The name is for messages.
    pub fn add_node(&self, name: &str) -> NodeId {
        let mut state = self.shared.lock();
        state.nodes.push(NodeState { name: name.to_owned(), is_alive: true });
        NodeId(state.nodes.len() - 1)
    }

    /// The name given to [`Handle::add_node`].
    #[must_use]
    pub fn node_name(&self, node: NodeId) -> String {
        self.shared.lock().nodes[node.0].name.clone()
    }

    /// Whether the node has not been killed.
    #[must_use]
    pub fn is_alive(&self, node: NodeId) -> bool {
        self.shared.lock().nodes[node.0].is_alive
    }

    /// Time since the start of the simulation.
    #[must_use]
    pub fn now(&self) -> Duration {
        Duration::from_nanos(self.shared.now())
    }

    /// Starts a task of a node; does nothing if the node is dead.
    pub fn spawn(&self, node: NodeId, future: BoxFuture<'static, ()>) {
        let mut state = self.shared.lock();
        if state.is_closed || !state.nodes[node.0].is_alive {
            drop(state);
            drop(future);
            return;
        }
        state.commands.push(Command::Spawn(node, future));
        self.shared.has_news.store(true, Ordering::Relaxed);
    }

    /// What the code of a node is given to start tasks.
    #[must_use]
    pub fn spawner(&self, node: NodeId) -> NodeSpawner {
        let handle = self.clone();
        Arc::new(move |future| handle.spawn(node, future))
    }

    /// Drops all tasks of a node, now and for ever.
    pub fn kill(&self, node: NodeId) {
        assert!(node != NodeId::WORLD, "the world cannot be killed");
        let mut state = self.shared.lock();
        state.nodes[node.0].is_alive = false;
        state.commands.push(Command::Kill(node));
        self.shared.has_news.store(true, Ordering::Relaxed);
    }

    /// Stops a node for a while: none of its tasks is polled, then all go on as if nothing had
    /// happened. Its clocks go on meanwhile.
    pub fn stall(&self, node: NodeId, duration: Duration) {
        let until = self.shared.now().saturating_add(nanos(duration));
        self.shared.lock().commands.push(Command::Stall(node, until));
        self.shared.has_news.store(true, Ordering::Relaxed);
    }

    /// Resolves after `duration`. A sleep that is dropped leaves no timer behind.
    #[must_use]
    pub fn sleep(&self, duration: Duration) -> Sleep {
        let deadline = self.shared.now().saturating_add(nanos(duration));
        Sleep { shared: Arc::clone(&self.shared), deadline, timer: None }
    }

    /// Says that a real thread is busy for the simulation: while nothing else is ready the executor
    /// waits for it instead of moving the time. What such threads do is not part of the schedule,
    /// so a run with them is not repeatable step by step.
    #[must_use]
    pub fn outside_call(&self) -> OutsideCall {
        let woken = Arc::clone(&self.shared.woken);
        woken.lock().outside_calls += 1;
        OutsideCall { woken }
    }

    /// Ends the run with a violation; the first one counts.
    pub fn fail(&self, violation: impl Into<String>) {
        self.shared.lock().failure.get_or_insert_with(|| violation.into());
        self.shared.has_news.store(true, Ordering::Relaxed);
    }

    /// The violation that ends the run, if there is one.
    #[must_use]
    pub fn failure(&self) -> Option<String> {
        if !self.shared.has_news.load(Ordering::Relaxed) {
            return None;
        }
        let state = self.shared.lock();
        let is_news = state.failure.is_some() || !state.commands.is_empty();
        self.shared.has_news.store(is_news, Ordering::Relaxed);
        state.failure.clone()
    }

    /// Adds bytes to the digest. Ports call this with what they feed in, so that a run that depends
    /// on anything but its seed is found out.
    pub fn trace(&self, bytes: &[u8]) {
        let mut state = self.shared.lock();
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            state.digest = mixed(state.digest ^ u64::from_le_bytes(word));
        }
    }

    /// Adds a number to the digest.
    pub fn trace_number(&self, number: u64) {
        let mut state = self.shared.lock();
        state.digest = mixed(state.digest ^ number);
    }

    /// A number made from every decision and every traced value so far.
    #[must_use]
    pub fn digest(&self) -> u64 {
        self.shared.lock().digest
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let is_due = self.deadline <= self.shared.now();
        let mut state = self.shared.lock();
        match self.timer {
            Some(_) if is_due => {
                drop(state);
                return Poll::Ready(());
            }
            Some(timer) => {
                let waker = state.timers.get_mut(&(self.deadline, timer));
                let old = waker.map(|it| std::mem::replace(it, context.waker().clone()));
                // What a waker drops is not ours, so no lock is held meanwhile.
                drop(state);
                drop(old);
            }
            None => {
                let timer = state.timers_made;
                state.timers_made += 1;
                state.timers.insert((self.deadline, timer), context.waker().clone());
                drop(state);
                self.timer = Some(timer);
            }
        }
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        let Some(timer) = self.timer else { return };
        let waker = self.shared.lock().timers.remove(&(self.deadline, timer));
        drop(waker);
    }
}

impl Future for YieldNow {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.has_yielded {
            return Poll::Ready(());
        }
        self.has_yielded = true;
        context.waker().wake_by_ref();
        Poll::Pending
    }
}

impl Shared {
    pub(crate) fn now(&self) -> u64 {
        self.now.load(Ordering::Relaxed)
    }

    pub(crate) fn set_now(&self, now: u64) {
        self.now.store(now, Ordering::Relaxed);
    }

    pub(crate) fn take_commands(&self) -> Vec<Command> {
        if !self.has_news.load(Ordering::Relaxed) {
            return Vec::new();
        }
        std::mem::take(&mut self.lock().commands)
    }

    /// Refuses tasks from now on.
    pub(crate) fn close(&self) {
        self.lock().is_closed = true;
    }

    pub(crate) fn next_timer(&self) -> Option<u64> {
        self.lock().timers.first_key_value().map(|((at, _), _)| *at)
    }

    pub(crate) fn take_due(&self, now: u64, due: &mut Vec<Waker>) {
        let mut state = self.lock();
        while let Some(entry) = state.timers.first_entry() {
            if now < entry.key().0 {
                return;
            }
            due.push(entry.remove());
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nothing panics while it holds the lock")
    }
}

impl Woken {
    pub(crate) fn push(&self, id: TaskId) {
        let mut state = self.lock();
        state.tasks.push(id);
        if 0 < state.outside_calls {
            self.changed.notify_one();
        }
    }

    pub(crate) fn take(&self, into: &mut Vec<TaskId>) {
        std::mem::swap(&mut self.lock().tasks, into);
    }

    /// Waits until a task is woken, as long as another thread may still wake one. Returns whether
    /// one was.
    pub(crate) fn wait(&self) -> bool {
        let mut state = self.lock();
        while state.tasks.is_empty() && 0 < state.outside_calls {
            state = self.changed.wait(state).expect("nothing panics while it holds the lock");
        }
        !state.tasks.is_empty()
    }

    fn lock(&self) -> MutexGuard<'_, WokenState> {
        self.state.lock().expect("nothing panics while it holds the lock")
    }
}

impl Drop for OutsideCall {
    fn drop(&mut self) {
        self.woken.lock().outside_calls -= 1;
        self.woken.changed.notify_one();
    }
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("State").field("digest", &self.digest).finish_non_exhaustive()
    }
}

pub(crate) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

pub(crate) fn wide(number: usize) -> u64 {
    u64::try_from(number).expect("lists are shorter than 2^64")
}
