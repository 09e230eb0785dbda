//! Processes of one kind: who starts them, who kills them, and who starts them again.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use millstream_core::BoxFuture;
use tokio_util::sync::CancellationToken;

use crate::delivery::site::{Parts, Site};
use crate::executor::NodeId;
use crate::log::log;
use crate::rng::Rng;

/// What a process does; it returns whether it is to be started again.
pub(crate) type Work = Arc<dyn Fn(Process) -> BoxFuture<'static, bool> + Send + Sync>;

/// Processes that do the same work.
pub(crate) struct Crew {
    site: Arc<Site>,
    work: Work,
    running: Mutex<Vec<Process>>,
    starts: AtomicU64,
    rng: Mutex<Rng>,
}

/// One process from its start to its end.
#[derive(Clone)]
pub(crate) struct Process {
    pub(crate) parts: Parts,
    /// What it is, whoever does it.
    pub(crate) role: u64,
    /// Different for each start.
    pub(crate) name: String,
    pub(crate) shutdown: CancellationToken,
}

impl Crew {
    /// Starts a process for each role, from 0 on.
    pub(crate) fn assemble(site: &Arc<Site>, kind: &str, roles: u64, work: Work) -> Arc<Self> {
        let crew = Arc::new(Self {
            site: Arc::clone(site),
            work,
            running: Mutex::default(),
            starts: AtomicU64::new(0),
            rng: Mutex::new(Rng::stream(site.seed, kind)),
        });
        for role in 0..roles {
            crew.start(kind, role);
        }
        crew
    }

    /// How many were ever started.
    pub(crate) fn starts(&self) -> u64 {
        self.starts.load(Ordering::Relaxed)
    }

    /// One of those that run.
    pub(crate) fn any(&self) -> Option<Process> {
        let running = self.running();
        let place = |rng: &mut Rng| rng.index(running.len());
        (!running.is_empty()).then(|| running[self.draw(place)].clone())
    }

    /// Ends a process at once; it is started again after a while.
    pub(crate) fn kill(self: &Arc<Self>, node: NodeId) {
        let mut running = self.running();
        let Some(place) = running.iter().position(|it| it.parts.id == node) else { return };
        let killed = running.remove(place);
        drop(running);
        self.site.handle.kill(node);
        self.start_later(killed.role);
    }

    fn start(self: &Arc<Self>, kind: &str, role: u64) {
        let start = self.starts.fetch_add(1, Ordering::Relaxed);
        let name = format!("{kind}-{role}-{start}");
        let parts = self.site.add_node(&name);
        let shutdown = CancellationToken::new();
        let process = Process { parts, role, name, shutdown };
        self.running().push(process.clone());
        let (crew, node) = (Arc::clone(self), process.parts.id);
        let work = (self.work)(process);
        self.site.handle.spawn(
            node,
            Box::pin(async move {
                let comes_back = work.await;
                log(|| format!("ended, comes back: {comes_back}"));
                crew.running().retain(|it| it.parts.id != node);
                crew.site.handle.kill(node);
                if comes_back {
                    crew.start_later(role);
                }
            }),
        );
    }

    fn start_later(self: &Arc<Self>, role: u64) {
        let pause = self.draw(|rng| rng.duration(Duration::ZERO, self.site.shape.lease));
        let pause = pause.min(self.site.faulty_time()).max(Duration::from_millis(1));
        let (crew, sleep) = (Arc::clone(self), self.site.handle.sleep(pause));
        let start = async move {
            sleep.await;
            crew.start("again", role);
        };
        self.site.handle.spawn(NodeId::WORLD, Box::pin(start));
    }

    fn running(&self) -> MutexGuard<'_, Vec<Process>> {
        self.running.lock().expect("nothing panics while it holds the lock")
    }

    fn draw<T>(&self, draw: impl FnOnce(&mut Rng) -> T) -> T {
        draw(&mut self.rng.lock().expect("nothing panics while it holds the lock"))
    }
}

impl fmt::Debug for Crew {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Crew").field("starts", &self.starts).finish_non_exhaustive()
    }
}
