//! The parts of a delivery world: the stores, and the ways to them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use millstream_core::conformance::block_on;
use millstream_core::memory::Memory;
use millstream_core::{
    Container, ContainerName, ContainerSettings, Containers, PartitionKeyDefinition, Result,
    TimeToLive,
};

use crate::clock::SimClock;
use crate::delivery::oracle::{Oracle, Rules};
use crate::delivery::shape::DeliveryShape;
use crate::executor::NodeId;
use crate::executor::handle::Handle;
use crate::faults::{FaultRates, Link, Listings};
use crate::ids::SimIds;
use crate::rng::Rng;
use crate::truth::Truth;
use crate::watch::{Check, Watch};
use crate::workload::Topology;

/// The topic that relays publish to.
pub(crate) const TOPIC: &str = "events";

/// One true store, what is known about it, and what the seed says.
#[derive(Debug)]
pub(crate) struct Site {
    pub(crate) handle: Handle,
    pub(crate) seed: u64,
    pub(crate) shape: DeliveryShape,
    pub(crate) oracle: Arc<Oracle>,
    store: Memory,
    data: Arc<Watch>,
    leases: Container,
    broker: Container,
    effects: Vec<Arc<Watch>>,
    lease_listings: Arc<Listings>,
    links: Mutex<Vec<Arc<Link>>>,
    /// Work that must end before the world can heal.
    busy: Arc<AtomicU64>,
}

/// What the code of one process is given.
#[derive(Clone, Debug)]
pub(crate) struct Parts {
    pub(crate) id: NodeId,
    pub(crate) clock: Arc<SimClock>,
    pub(crate) ids: Arc<SimIds>,
    pub(crate) rng: Rng,
    /// Its way to the stores.
    pub(crate) store_link: Arc<Link>,
    /// Its way to the broker.
    pub(crate) broker_link: Arc<Link>,
}

impl Site {
    pub(crate) fn new(handle: &Handle, seed: u64, shape: DeliveryShape) -> Result<Self> {
        let store = Memory::new(SimClock::of_world(handle));
        block_on(store.create_database("sim"))?;
        let rules = Rules {
            lock: shape.lock,
            // By a clock that is minutes ahead the window is over, and its ids are forgotten.
            duplicate_window: shape.duplicate_window.filter(|_| !shape.brokers_disagree),
            deliveries_max: shape.deliveries_max,
            broker_schedules: shape.broker_schedules,
        };
        let oracle = Arc::new(Oracle::new(handle, shape.subscriptions, rules));
        let by_key = ContainerSettings::new(PartitionKeyDefinition::hash("/partitionKey")?);
        let expiring = by_key.clone().default_ttl(TimeToLive::Never);
        let data = open(&store, "data", expiring.clone().ranges(shape.ranges))?;
        let check: Check = {
            let oracle = Arc::clone(&oracle);
            Arc::new(move |commit| oracle.committed(commit))
        };
        let data = Arc::new(Watch::new(handle, data, check));
        let mut effects = Vec::new();
        for number in 0..shape.subscriptions {
            let container = open(&store, &format!("effects-{number}"), expiring.clone())?;
            let oracle = Arc::clone(&oracle);
            let check: Check = Arc::new(move |commit| oracle.effect(number, commit));
            effects.push(Arc::new(Watch::new(handle, container, check)));
        }
        Ok(Self {
            handle: handle.clone(),
            seed,
            oracle,
            data,
            leases: open(&store, "leases", by_key.clone())?,
            broker: open(&store, "broker", by_key)?,
            effects,
            store,
            shape,
            lease_listings: Arc::default(),
            links: Mutex::default(),
            busy: Arc::default(),
        })
    }

    /// A process with everything it needs.
    pub(crate) fn add_node(&self, name: &str) -> Parts {
        let id = self.handle.add_node(name);
        let number = u64::try_from(id.number()).expect("a few");
        let stream = |purpose| Rng::stream(self.seed, purpose).fork(number);
        let clock = SimClock::draw(&self.handle, &mut stream("clock"));
        let ids = Arc::new(SimIds::new(clock.clone(), stream("ids")));
        let link = |rates: &FaultRates, purpose| {
            let (rates, end) = (rates.clone(), self.shape.faults_end);
            let link = Link::new(&self.handle, id, rates, end, stream(purpose));
            let mut links = self.links.lock().expect("nothing panics while it holds the lock");
            links.push(Arc::clone(&link));
            link
        };
        Parts {
            id,
            clock,
            ids,
            rng: stream("node"),
            store_link: link(&self.shape.store_rates, "store"),
            broker_link: link(&self.shape.broker_rates, "broker"),
        }
    }

    /// The data container as a process sees it.
    pub(crate) fn data(&self, node: &Parts) -> Container {
        node.store_link.wrap(&self.data.view(node.id), None)
    }

    /// The leases of the relays as a process sees them.
    pub(crate) fn leases(&self, node: &Parts) -> Container {
        node.store_link.wrap(&self.leases, Some(&self.lease_listings))
    }

    /// What the relays have put aside as a process sees it: listings that are right.
    pub(crate) fn letters(&self, node: &Parts) -> Container {
        node.store_link.wrap(&self.leases, None)
    }

    /// The container of the broker as a process sees it.
    pub(crate) fn broker(&self, node: &Parts) -> Container {
        node.store_link.wrap(&self.broker, None)
    }

    /// The effects of a subscription as a process sees them.
    pub(crate) fn effects(&self, node: &Parts, subscription: usize) -> Container {
        node.store_link.wrap(&self.effects[subscription].view(node.id), None)
    }

    /// Splits and merges the ranges of the data container until the faults end.
    pub(crate) fn move_ranges(&self) {
        let (store, data) = (self.store.clone(), self.data.view(NodeId::WORLD));
        let (options, rng) = (self.shape.topology.clone(), Rng::stream(self.seed, "topology"));
        let topology = Topology::new(&self.handle, store, data, Truth::default(), options, rng);
        self.busy(topology.run());
    }

    /// Runs work that must end before the world can heal.
    pub(crate) fn busy(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.begin();
        let busy = Arc::clone(&self.busy);
        let work = async move {
            work.await;
            busy.fetch_sub(1, Ordering::Relaxed);
        };
        self.handle.spawn(NodeId::WORLD, Box::pin(work));
    }

    /// Says that something has begun that must end.
    pub(crate) fn begin(&self) {
        self.busy.fetch_add(1, Ordering::Relaxed);
    }

    /// Says that it has ended.
    pub(crate) fn end(&self) {
        self.busy.fetch_sub(1, Ordering::Relaxed);
    }

    /// Whether all such work has ended.
    pub(crate) fn is_at_rest(&self) -> bool {
        self.busy.load(Ordering::Relaxed) == 0
    }

    /// Whether things may still go wrong.
    pub(crate) fn is_faulty(&self) -> bool {
        self.handle.now() < self.shape.faults_end
    }

    /// How long they may.
    pub(crate) fn faulty_time(&self) -> Duration {
        self.shape.faults_end.saturating_sub(self.handle.now())
    }

    /// Faults on all ways so far.
    pub(crate) fn faults(&self) -> u64 {
        let links = self.links.lock().expect("nothing panics while it holds the lock");
        links.iter().map(|it| it.faults()).sum()
    }
}

/// The path of a subscription.
pub(crate) fn path(subscription: usize) -> String {
    format!("{TOPIC}/subscriptions/{}", name(subscription))
}

/// The name of a subscription.
pub(crate) fn name(subscription: usize) -> String {
    format!("subscription-{subscription}")
}

fn open(store: &Memory, container: &str, settings: ContainerSettings) -> Result<Container> {
    let name = ContainerName::new("sim", container)?;
    block_on(store.create(&name, settings))?;
    block_on(store.open(&name))
}
