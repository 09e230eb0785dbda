//! The instances: who starts them, who stops them, and who starts them again.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use millstream_processor::{ErrorKind, Flaw, Processor};
use tokio_util::sync::CancellationToken;

use crate::deployment::{Deployment, NodeParts};
use crate::executor::NodeId;
use crate::handler::{Failures, SimHandler};
use crate::log::log;
use crate::rng::Rng;

/// The name of the processor.
pub(crate) const PROCESSOR: &str = "sim";

/// All instances of the processor.
pub(crate) struct Fleet {
    pub(crate) deployment: Arc<Deployment>,
    flaw: Option<Flaw>,
    failures: Failures,
    salt: u64,
    running: Mutex<Vec<Running>>,
    /// Instances that will be started.
    awaited: AtomicU64,
    rng: Mutex<Rng>,
    pub(crate) starts: AtomicU64,
}

/// An instance that was started and has not ended.
#[derive(Clone)]
pub(crate) struct Running {
    pub(crate) node: Arc<NodeParts>,
    pub(crate) name: String,
    shutdown: CancellationToken,
    /// Whether it was told to stop and shall not come back.
    leaves: bool,
}

impl Fleet {
    pub(crate) fn new(deployment: Arc<Deployment>, seed: u64, flaw: Option<Flaw>) -> Arc<Self> {
        let mut rng = Rng::stream(seed, "fleet");
        Arc::new(Self {
            deployment,
            flaw,
            failures: Failures::default(),
            salt: rng.next_number(),
            running: Mutex::default(),
            awaited: AtomicU64::new(0),
            rng: Mutex::new(rng),
            starts: AtomicU64::new(0),
        })
    }

    /// Lets all instances join, each in its time.
    pub(crate) fn assemble(self: &Arc<Self>) {
        let shape = &self.deployment.shape;
        for number in 0..shape.instances {
            let late = number != 0 || shape.starts_late;
            let longest = if late { shape.join_max } else { Duration::ZERO };
            let pause = self.draw(|rng| rng.duration(Duration::ZERO, longest));
            self.start_after(pause, format!("worker-{number}"));
        }
    }

    /// The instances that run.
    pub(crate) fn running(&self) -> MutexGuard<'_, Vec<Running>> {
        self.running.lock().expect("nothing panics while it holds the lock")
    }

    /// Their nodes.
    pub(crate) fn nodes(&self) -> Vec<NodeId> {
        self.running().iter().map(|it| it.node.id).collect()
    }

    /// Whether everybody who will come has come.
    pub(crate) fn is_assembled(&self) -> bool {
        self.awaited.load(Ordering::Relaxed) == 0
    }

    /// Whether somebody is about to stop.
    pub(crate) fn is_leaving(&self) -> bool {
        self.running().iter().any(|it| it.shutdown.is_cancelled())
    }

    /// Starts an instance of this name now.
    pub(crate) fn start(self: &Arc<Self>, name: &str) {
        self.starts.fetch_add(1, Ordering::Relaxed);
        let node = self.deployment.add_node(name);
        let shutdown = CancellationToken::new();
        let (id, fleet) = (node.id, Arc::clone(self));
        self.running().push(Running {
            node: Arc::clone(&node),
            name: name.to_owned(),
            shutdown: shutdown.clone(),
            leaves: false,
        });
        let name = name.to_owned();
        let process = async move {
            let outcome = fleet.run(&node, &name, shutdown).await;
            fleet.ended(node.id, &outcome);
        };
        self.deployment.handle.spawn(id, Box::pin(process));
    }

    /// Kills a process, which is started again after a while or not.
    pub(crate) fn kill(self: &Arc<Self>, node: NodeId) {
        self.deployment.handle.kill(node);
        if let Some(killed) = self.remove(node) {
            self.come_back(&killed.name);
        }
    }

    /// Asks an instance to stop in order.
    pub(crate) fn stop(&self, node: NodeId) {
        let leaves = self.draw(|rng| rng.chance(400));
        if let Some(running) = self.running().iter_mut().find(|it| it.node.id == node) {
            running.leaves |= leaves;
            running.shutdown.cancel();
        }
    }

    /// Makes sure that there is somebody when the faults end.
    pub(crate) fn ensure_one(self: &Arc<Self>) {
        let stays = |it: &Running| !it.shutdown.is_cancelled();
        let is_deserted = !self.running().iter().any(stays) && self.is_assembled();
        if is_deserted {
            self.start("last");
        }
    }

    async fn run(
        &self,
        node: &Arc<NodeParts>,
        name: &str,
        shutdown: CancellationToken,
    ) -> Result<(), ErrorKind> {
        let shape = &self.deployment.shape;
        let mut processor = Processor::new(&node.data, &node.leases, PROCESSOR)
            .instance(name)
            .options(shape.processor_options())
            .dead_letters(&node.letters)
            .clock(node.clock.clone())
            .ids(node.ids.clone());
        if shape.spawns {
            let spawner = Arc::clone(&node.spawner);
            processor = processor.spawn_with(move |task| spawner(task));
        }
        if let Some(flaw) = self.flaw {
            processor = processor.flaw(flaw);
        }
        let deployment = Arc::clone(&self.deployment);
        let failures = Arc::clone(&self.failures);
        let handler = SimHandler::new(deployment, Arc::clone(node), failures, self.salt);
        let started = processor.start(handler).await.map_err(|it| it.kind().clone())?;
        self.deployment.deliveries.started();
        started.run(shutdown).await.map_err(|it| it.kind().clone())
    }

    fn ended(self: &Arc<Self>, node: NodeId, outcome: &Result<(), ErrorKind>) {
        log(|| format!("ended with {outcome:?}"));
        let handle = &self.deployment.handle;
        let Some(ended) = self.remove(node) else { return };
        handle.kill(node);
        let is_allowed = match outcome {
            Ok(()) => ended.shutdown.is_cancelled(),
            Err(ErrorKind::Store(_) | ErrorKind::Conflict | ErrorKind::NotFound) => true,
            Err(ErrorKind::InstanceNameTaken | ErrorKind::Fenced) => true,
            Err(_) => false,
        };
        if !is_allowed {
            handle.fail(format!("{} ended with {outcome:?}", ended.name));
        }
        // Of two with one name, one has to go; a supervisor would be told.
        let is_taken = self.running().iter().any(|it| it.name == ended.name);
        if !ended.leaves && !is_taken {
            self.come_back(&ended.name);
        }
        // The last that stayed may give up after the faults ended, while its twin is stopping.
        if self.faulty_time_left().is_zero() {
            self.ensure_one();
        }
    }

    /// Starts an instance again after a while, with the same name or another; some never.
    fn come_back(self: &Arc<Self>, name: &str) {
        let shape = &self.deployment.shape;
        let left = self.faulty_time_left();
        let (never, renamed) = self.draw(|rng| (rng.chance(250), rng.chance(300)));
        if never && !left.is_zero() {
            return;
        }
        let pause = self.draw(|rng| rng.duration(Duration::ZERO, shape.lease)).min(left);
        let starts = self.starts.load(Ordering::Relaxed);
        let name = if renamed { format!("other-{starts}") } else { name.to_owned() };
        self.start_after(pause.max(Duration::from_millis(1)), name);
    }

    fn start_after(self: &Arc<Self>, pause: Duration, name: String) {
        self.awaited.fetch_add(1, Ordering::Relaxed);
        let fleet = Arc::clone(self);
        let sleep = self.deployment.handle.sleep(pause);
        let start = async move {
            sleep.await;
            fleet.awaited.fetch_sub(1, Ordering::Relaxed);
            fleet.start(&name);
        };
        self.deployment.handle.spawn(NodeId::WORLD, Box::pin(start));
    }

    fn faulty_time_left(&self) -> Duration {
        let deployment = &self.deployment;
        deployment.shape.faults_end.saturating_sub(deployment.handle.now())
    }

    fn remove(&self, node: NodeId) -> Option<Running> {
        let mut running = self.running();
        let place = running.iter().position(|it| it.node.id == node)?;
        Some(running.remove(place))
    }

    fn draw<T>(&self, draw: impl FnOnce(&mut Rng) -> T) -> T {
        draw(&mut self.rng.lock().expect("nothing panics while it holds the lock"))
    }
}
