//! The parts of a simulated deployment: one true store, and nodes that see it through faults.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use millstream_core::conformance::block_on;
use millstream_core::memory::Memory;
use millstream_core::{
    Container, ContainerName, ContainerSettings, Containers, FeedMode, PartitionKeyDefinition,
    Result,
};

use crate::clock::SimClock;
use crate::executor::NodeId;
use crate::executor::handle::{Handle, NodeSpawner};
use crate::faults::{Link, Listings};
use crate::ids::SimIds;
use crate::ledger::Ledger;
use crate::properties::Deliveries;
use crate::rng::Rng;
use crate::shape::Shape;
use crate::truth::Truth;
use crate::watch::{Check, Watch};
use crate::workload::{Topology, Workload};

/// How long the all-versions feed reaches back: longer than any run.
const RETENTION: Duration = Duration::from_secs(24 * 3600);

/// One true store with its containers, and everything that is known about it.
#[derive(Debug)]
pub struct Deployment {
    /// Speaks to the executor.
    pub handle: Handle,
    /// What the seed says.
    pub shape: Shape,
    /// What was written.
    pub truth: Truth,
    /// What was delivered.
    pub deliveries: Arc<Deliveries>,
    /// What the leases say, and who is at work.
    pub ledger: Arc<Ledger>,
    /// The store itself, without faults.
    pub store: Memory,
    /// The data container, without faults.
    pub data: Container,
    /// The lease container, with every commit checked.
    pub leases: Arc<Watch>,
    /// The container of what was put aside, with every commit checked; may be that of the leases.
    pub letters: Arc<Watch>,
    seed: u64,
    lease_listings: Arc<Listings>,
    nodes: Mutex<Vec<Arc<NodeParts>>>,
    /// Writers and movers of ranges that are at work.
    busy: Arc<AtomicU64>,
}

/// What the code of one node is given.
#[derive(Clone)]
pub struct NodeParts {
    /// Its number.
    pub id: NodeId,
    /// Its clock, wrong in its own way.
    pub clock: Arc<SimClock>,
    /// Its ids.
    pub ids: Arc<SimIds>,
    /// Starts tasks that die with it.
    pub spawner: NodeSpawner,
    /// The data container as it sees it.
    pub data: Container,
    /// The lease container as it sees it.
    pub leases: Container,
    /// The container of what was put aside as it sees it.
    pub letters: Container,
    /// Its way to the data container.
    pub data_link: Arc<Link>,
    /// Its way to the other containers.
    pub lease_link: Arc<Link>,
    /// Numbers of its own.
    pub rng: Rng,
}

impl std::fmt::Debug for NodeParts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NodeParts").field("id", &self.id).finish_non_exhaustive()
    }
}

impl Deployment {
    /// Creates the store and its containers. It may be told to ignore the etags of the leases.
    ///
    /// # Errors
    ///
    /// Those of the store.
    pub fn new(handle: &Handle, seed: u64, shape: Shape, ignores_etags: bool) -> Result<Self> {
        let store = Memory::new(SimClock::of_world(handle));
        block_on(store.create_database("sim"))?;
        let by_key = PartitionKeyDefinition::hash("/partitionKey")?;
        let settings = ContainerSettings::new(by_key.clone()).ranges(shape.ranges);
        let settings = match shape.mode {
            FeedMode::LatestVersion => settings,
            FeedMode::AllVersions => settings.all_versions_retention(RETENTION),
        };
        let data = open(&store, "data", settings)?;
        let key = if shape.leases_together { by_key } else { PartitionKeyDefinition::hash("/id")? };
        let truth = Truth::default();
        let deliveries = Arc::new(Deliveries::new(truth.clone(), shape.mode));
        let ledger = Arc::new(Ledger::new(handle, Arc::clone(&deliveries), shape.lease));
        let watch = |name: &str| -> Result<Arc<Watch>> {
            let container = open(&store, name, ContainerSettings::new(key.clone()))?;
            let ledger = Arc::clone(&ledger);
            let check: Check = Arc::new(move |commit| ledger.committed(commit));
            let watch = Watch::new(handle, container, check);
            Ok(Arc::new(watch.ignore_etags(ignores_etags)))
        };
        let leases = watch("leases")?;
        let letters = if shape.letters_apart { watch("letters")? } else { Arc::clone(&leases) };
        Ok(Self {
            handle: handle.clone(),
            shape,
            truth,
            deliveries,
            ledger,
            store,
            data,
            leases,
            letters,
            seed,
            lease_listings: Arc::default(),
            nodes: Mutex::default(),
            busy: Arc::default(),
        })
    }

    /// Adds a process with everything it needs.
    pub fn add_node(&self, name: &str) -> Arc<NodeParts> {
        let handle = &self.handle;
        let id = handle.add_node(name);
        let number = u64::try_from(id.number()).expect("a few");
        let stream = |purpose| Rng::stream(self.seed, purpose).fork(number);
        let link = |purpose| {
            let (rates, end) = (self.shape.rates.clone(), self.shape.faults_end);
            Link::new(handle, id, rates, end, stream(purpose))
        };
        let (data_link, lease_link) = (link("data"), link("leases"));
        let clock = SimClock::draw(handle, &mut stream("clock"));
        let ids = Arc::new(SimIds::new(clock.clone(), stream("ids")));
        self.ledger.add_node(id, name, Arc::clone(&ids));
        let node = Arc::new(NodeParts {
            id,
            ids,
            clock,
            spawner: handle.spawner(id),
            data: data_link.wrap(&self.data, None),
            leases: lease_link.wrap(&self.leases.view(id), Some(&self.lease_listings)),
            // What was put aside is found by listings that the contract promises to be right.
            letters: lease_link.wrap(&self.letters.view(id), None),
            data_link,
            lease_link,
            rng: stream("node"),
        });
        self.nodes().push(Arc::clone(&node));
        node
    }

    /// All nodes there ever were.
    pub fn nodes(&self) -> MutexGuard<'_, Vec<Arc<NodeParts>>> {
        self.nodes.lock().expect("nothing panics while it holds the lock")
    }

    /// Starts the writers and the moves of ranges.
    pub fn start_workload(&self) {
        for writer in 0..self.shape.writers {
            let rng = Rng::stream(self.seed, "workload").fork(writer);
            let options = self.shape.workload.clone();
            let (data, truth) = (self.data.clone(), self.truth.clone());
            let workload = Workload::new(&self.handle, data, truth, options, rng);
            self.spawn_busy(workload.run());
        }
        let rng = Rng::stream(self.seed, "topology");
        let (data, truth) = (self.data.clone(), self.truth.clone());
        let options = self.shape.topology.clone();
        let store = self.store.clone();
        let topology = Topology::new(&self.handle, store, data, truth, options, rng);
        self.spawn_busy(topology.run());
    }

    /// Whether nothing is written and no range moves any more.
    pub fn is_at_rest(&self) -> bool {
        self.busy.load(Ordering::Relaxed) == 0
    }

    pub(crate) fn spawn_busy(&self, work: impl Future<Output = ()> + Send + 'static) {
        let busy = Arc::clone(&self.busy);
        busy.fetch_add(1, Ordering::Relaxed);
        let work = async move {
            work.await;
            busy.fetch_sub(1, Ordering::Relaxed);
        };
        self.handle.spawn(NodeId::WORLD, Box::pin(work));
    }

    /// Faults on all ways so far.
    #[must_use]
    pub fn faults(&self) -> u64 {
        self.nodes().iter().map(|it| it.data_link.faults() + it.lease_link.faults()).sum()
    }
}

fn open(store: &Memory, container: &str, settings: ContainerSettings) -> Result<Container> {
    let name = ContainerName::new("sim", container)?;
    block_on(store.create(&name, settings))?;
    block_on(store.open(&name))
}
