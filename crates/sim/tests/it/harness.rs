//! A world for one scenario: a store, processor instances on nodes of their own, virtual time, and
//! questions about what happened.
//!
//! Read `World` first, then `node` (instances), `port` (faults) and `recorder` (the handler).

pub(crate) mod documents;
pub(crate) mod node;
pub(crate) mod port;
pub(crate) mod recorder;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::future::Future;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use event_listener::Event;
use futures_lite::future::block_on;
use millstream_core::memory::Memory;
use millstream_core::{
    Batch, Clock, Container, ContainerName, ContainerSettings, Containers, ItemId, Operation,
    PartitionKeyDefinition, RangeInfo, Timestamp,
};
use millstream_processor::{Operations, ProcessorOptions};
use millstream_sim::{Budget, Executor, Handle, NodeId, SimClock, Stopped};
use millstream_store::{Durability, Store, StoreOptions};
use tempfile::TempDir;

use crate::harness::node::{Instance, Node};
use crate::harness::port::Port;
use crate::harness::recorder::Recorder;

/// How often a condition is looked at in virtual time.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);
/// Longest virtual time of a single thing the world does.
const ACTION_MAX: Duration = Duration::from_secs(600);

/// Where the containers of a world are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Backend {
    Memory,
    Store,
}

/// What a world is made of.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    /// Ranges of the container of the items.
    pub(crate) ranges: u32,
    /// The partition key of the container of the leases.
    pub(crate) lease_key: &'static str,
    /// How long all versions are kept; zero for none.
    pub(crate) retention: Duration,
}

impl Default for Layout {
    fn default() -> Self {
        Self { ranges: 4, lease_key: "/partitionKey", retention: Duration::ZERO }
    }
}

/// So many ranges, the rest as always.
pub(crate) fn ranges(ranges: u32) -> Layout {
    Layout { ranges, ..Layout::default() }
}

/// Makes two tests of each function, `memory::name` and `store::name`.
macro_rules! scenarios {
    ($($(#[$attribute:meta])* $name:ident: $layout:expr;)*) => {
        mod memory {
            $($(#[$attribute])* #[test] fn $name() {
                for seed in 0..crate::harness::MEMORY_SEEDS {
                    let backend = crate::harness::Backend::Memory;
                    super::$name(&crate::harness::World::new(backend, seed, $layout));
                }
            })*
            #[allow(unused_imports)]
            use super::*;
        }
        mod store {
            $($(#[$attribute])* #[test] fn $name() {
                let backend = crate::harness::Backend::Store;
                super::$name(&crate::harness::World::new(backend, 0, $layout));
            })*
            #[allow(unused_imports)]
            use super::*;
        }
    };
}

/// Schedules in which each scenario runs on the reference. A real store has threads of its own, so
/// one seed there is as good as several.
pub(crate) const MEMORY_SEEDS: u64 = 3;

/// A write that was committed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Written {
    pub(crate) key: String,
    pub(crate) id: String,
    pub(crate) version: u64,
}

/// A store, instances and virtual time. Fields are dropped in this order.
pub(crate) struct World {
    executor: RefCell<Executor>,
    handle: Handle,
    seed: u64,
    layout: Layout,
    backend: Backend,
    containers: Arc<dyn Containers>,
    feed: RefCell<Container>,
    leases: Container,
    feed_nudge: Arc<Event>,
    lease_nudge: Arc<Event>,
    recorder: Arc<Recorder>,
    written: RefCell<Vec<Written>>,
    /// The newest version of each item.
    versions: RefCell<BTreeMap<(String, String), u64>>,
    store: Option<Store>,
    _directory: Option<TempDir>,
}

impl World {
    /// The name of the processor, unless a test gives another.
    pub(crate) const PROCESSOR: &'static str = "mailer";

    pub(crate) fn new(backend: Backend, seed: u64, layout: Layout) -> Self {
        let budget = Budget { steps_max: 50_000_000, steps_per_instant_max: 1_000_000 };
        let executor = Executor::new(seed).budget(budget);
        let handle = executor.handle().clone();
        let clock = SimClock::of_world(&handle);
        let (containers, store, directory): (Arc<dyn Containers>, _, _) = match backend {
            Backend::Memory => (Arc::new(Memory::new(clock)), None, None),
            Backend::Store => {
                let directory = tempfile::tempdir().expect("a directory");
                let options = StoreOptions::default()
                    .durability(Durability::Never)
                    .maintenance_interval(None)
                    .clock(clock);
                let store = Store::open_with(directory.path(), options).expect("a new store");
                (Arc::new(store.clone()), Some(store), Some(directory))
            }
        };
        block_on(containers.create_database("shop")).expect("it is new");
        let settings = feed_settings(&layout);
        let by_key = PartitionKeyDefinition::hash(layout.lease_key).expect("a path");
        let feed = create(&*containers, "orders", settings);
        let leases = create(&*containers, "leases", ContainerSettings::new(by_key));
        let recorder = Recorder::new(&handle);
        Self {
            executor: RefCell::new(executor),
            handle,
            seed,
            layout,
            backend,
            containers,
            feed: RefCell::new(feed),
            leases,
            feed_nudge: Arc::default(),
            lease_nudge: Arc::default(),
            recorder,
            written: RefCell::default(),
            versions: RefCell::default(),
            store,
            _directory: directory,
        }
    }

    // Instances.

    /// Describes an instance.
    pub(crate) fn instance(&self, name: &str) -> Instance<'_> {
        Instance::new(self, name)
    }

    /// Starts an instance with these options and waits until its leases exist.
    #[track_caller]
    pub(crate) fn start(&self, name: &str, options: &ProcessorOptions) -> Node {
        self.instance(name).options(options.clone()).start()
    }

    /// Operations on the processor, as from a machine of their own.
    pub(crate) fn operations(&self) -> Operations {
        let (feed, leases) = self.seen_from_world();
        let clock = SimClock::of_world(&self.handle);
        Operations::new_with(&feed, &leases, Self::PROCESSOR, clock).expect("a fine name")
    }

    // Time.

    /// Virtual time since the start of the world.
    pub(crate) fn now(&self) -> Duration {
        self.handle.now()
    }

    /// The time of day by the clock of the store.
    pub(crate) fn time_of_day(&self) -> Timestamp {
        SimClock::of_world(&self.handle).now()
    }

    /// Lets so much time pass.
    #[track_caller]
    pub(crate) fn run(&self, time: Duration) {
        let until = self.now() + time;
        self.check(&self.executor.borrow_mut().run_until(until));
    }

    /// Runs until the condition holds, and fails if that takes longer than `limit`. The condition
    /// is looked at every tenth of a second; returns how long it took.
    #[track_caller]
    pub(crate) fn run_until(&self, limit: Duration, condition: impl Fn() -> bool) -> Duration {
        let begun = self.now();
        while !condition() {
            assert!(self.now() < begun + limit, "it did not happen within {limit:?}");
            self.run(LOOK_INTERVAL.min(begun + limit - self.now()));
        }
        self.now() - begun
    }

    /// The same, with a look before every step: for conditions that cost little.
    #[track_caller]
    pub(crate) fn run_until_exact(&self, limit: Duration, condition: impl Fn() -> bool) {
        let until = self.now() + limit;
        let stopped = self.executor.borrow_mut().run_until_either(until, &condition);
        self.check(&stopped);
        assert!(condition(), "it did not happen within {limit:?}");
    }

    /// Runs a future as something outside of all instances.
    #[track_caller]
    pub(crate) fn block_on<T: Send + 'static>(
        &self,
        future: impl Future<Output = T> + Send + 'static,
    ) -> T {
        let slot = Arc::new(Mutex::new(None));
        let own = Arc::clone(&slot);
        let task = async move {
            let outcome = future.await;
            *own.lock().expect("nobody panics") = Some(outcome);
        };
        self.handle.spawn(NodeId::WORLD, Box::pin(task));
        self.run_until_exact(ACTION_MAX, || slot.lock().expect("nobody panics").is_some());
        let outcome = slot.lock().expect("nobody panics").take();
        outcome.expect("it was there")
    }

    #[track_caller]
    fn check(&self, stopped: &Stopped) {
        match stopped {
            Stopped::Done | Stopped::Time | Stopped::Idle => (),
            Stopped::Spinning(_) | Stopped::Failed(_) => panic!("seed {}: {stopped:?}", self.seed),
        }
    }

    /// Stops an instance in order and waits until it has ended well.
    #[track_caller]
    pub(crate) fn stop(&self, node: &Node) {
        node.stop();
        self.run_until_exact(ACTION_MAX, || node.outcome().is_some());
        assert_eq!(node.outcome(), Some(Ok(())), "{}", node.name);
    }

    // Items.

    /// Writes the next version of an item; no virtual time passes.
    pub(crate) fn write(&self, key: &str, id: &str) -> Written {
        let version = {
            let mut versions = self.versions.borrow_mut();
            let version = versions.entry((key.to_owned(), id.to_owned())).or_default();
            *version += 1;
            *version
        };
        let body = serde_json::json!({ "id": id, "partitionKey": key, "version": version });
        self.commit(Batch::new(key).with(Operation::upsert(body.to_string())));
        let written = Written { key: key.to_owned(), id: id.to_owned(), version };
        self.written.borrow_mut().push(written.clone());
        written
    }

    /// Writes so many new items, one to a key in turn over all `keys`.
    pub(crate) fn write_many(&self, items: usize, keys: usize) -> Vec<Written> {
        let first = self.written.borrow().len();
        let write = |number: usize| {
            self.write(&format!("key-{}", number % keys), &format!("item-{number}"))
        };
        (first..first + items).map(write).collect()
    }

    /// Removes an item.
    pub(crate) fn delete(&self, key: &str, id: &str) {
        let id = ItemId::new(id).expect("an id");
        self.commit(Batch::new(key).with(Operation::delete(id)));
    }

    /// Commits anything to the container of the items.
    pub(crate) fn commit(&self, batch: Batch) {
        let documents = Arc::clone(&self.feed.borrow().documents);
        let outcome = block_on(documents.commit(batch));
        outcome.unwrap_or_else(|error| panic!("{}", error.report()));
        self.feed_nudge.notify(usize::MAX);
    }

    /// Everything that [`World::write`] wrote.
    pub(crate) fn written(&self) -> Vec<Written> {
        self.written.borrow().clone()
    }

    // Ranges.

    /// The ranges of the container of the items.
    pub(crate) fn ranges(&self) -> Vec<RangeInfo> {
        block_on(self.feed.borrow().feed.ranges()).expect("it exists")
    }

    /// Splits the range at this place of the list near its middle.
    pub(crate) fn split(&self, place: usize) {
        let range = self.ranges()[place].id;
        block_on(self.containers.split(&name("orders"), range, None)).expect("it can be split");
        self.feed_nudge.notify(usize::MAX);
    }

    /// Joins the range at this place of the list with the next.
    pub(crate) fn merge(&self, place: usize) {
        let ranges = self.ranges();
        let (left, right) = (ranges[place].id, ranges[place + 1].id);
        block_on(self.containers.merge(&name("orders"), left, right)).expect("they are neighbours");
        self.feed_nudge.notify(usize::MAX);
    }

    /// Deletes the container of the items and creates an empty one of the same name.
    pub(crate) fn recreate(&self) {
        block_on(self.containers.delete(&name("orders"))).expect("it exists");
        let feed = create(&*self.containers, "orders", feed_settings(&self.layout));
        *self.feed.borrow_mut() = feed;
        self.feed_nudge.notify(usize::MAX);
    }

    /// Lets the store forget what it need not keep; the reference does so at every call.
    pub(crate) fn maintain(&self) {
        if let Some(store) = &self.store {
            store.maintain().expect("nothing is in the way");
        }
    }

    // Parts.

    pub(crate) fn recorder(&self) -> &Arc<Recorder> {
        &self.recorder
    }

    pub(crate) fn backend(&self) -> Backend {
        self.backend
    }

    /// The container of the items, without faults; its calls must not be awaited on the executor.
    pub(crate) fn raw_feed(&self) -> Container {
        self.feed.borrow().clone()
    }

    /// The container of the leases, likewise.
    pub(crate) fn raw_leases(&self) -> &Container {
        &self.leases
    }

    /// Both containers for use in [`World::block_on`].
    pub(crate) fn seen_from_world(&self) -> (Container, Container) {
        let port = || Port::new(&self.handle, NodeId::WORLD);
        self.seen_through(&port(), &port())
    }

    fn seen_through(&self, feed: &Arc<Port>, leases: &Arc<Port>) -> (Container, Container) {
        (
            feed.container(&self.feed.borrow(), &self.feed_nudge),
            leases.container(&self.leases, &self.lease_nudge),
        )
    }

    pub(crate) fn handle(&self) -> &Handle {
        &self.handle
    }

    fn seed(&self) -> u64 {
        self.seed
    }
}

/// Questions about deliveries.
impl World {
    /// Whether each of these was given to some handler and that handler was content.
    pub(crate) fn all_handled(&self, written: &[Written]) -> bool {
        let batches = self.recorder.batches();
        let handled: std::collections::BTreeSet<(String, u64)> = self
            .recorder
            .deliveries()
            .into_iter()
            .filter(|it| batches[it.batch].ended.is_some_and(|(_, content)| content))
            .map(|it| (it.id, it.version))
            .collect();
        written.iter().all(|it| handled.contains(&(it.id.clone(), it.version)))
    }

    /// Fails unless each of these was delivered exactly once.
    #[track_caller]
    pub(crate) fn assert_each_once(&self, written: &[Written]) {
        for (it, times) in self.deliveries_of(written) {
            assert_eq!(times, 1, "deliveries of {it:?}");
        }
    }

    /// Fails unless each of these was delivered.
    #[track_caller]
    pub(crate) fn assert_each_delivered(&self, written: &[Written]) {
        for (it, times) in self.deliveries_of(written) {
            assert!(0 < times, "{it:?} was not delivered");
        }
    }

    /// Fails if some key saw a first delivery before that of an earlier write.
    #[track_caller]
    pub(crate) fn assert_in_order_per_key(&self) {
        let mut last: BTreeMap<String, usize> = BTreeMap::new();
        let mut seen = std::collections::BTreeSet::new();
        let written = self.written.borrow();
        for delivery in self.recorder.deliveries() {
            let place = written.iter().position(|it| {
                (&it.key, &it.id, it.version) == (&delivery.key, &delivery.id, delivery.version)
            });
            let Some(place) = place.filter(|it| seen.insert(*it)) else { continue };
            let before = last.insert(delivery.key.clone(), place);
            assert!(before.is_none_or(|it| it < place), "out of order: {delivery:?}");
        }
    }

    fn deliveries_of(&self, written: &[Written]) -> Vec<(Written, usize)> {
        let mut times: BTreeMap<(String, u64), usize> = BTreeMap::new();
        for it in self.recorder.deliveries() {
            *times.entry((it.id, it.version)).or_default() += 1;
        }
        let count = |it: &Written| times.get(&(it.id.clone(), it.version)).copied().unwrap_or(0);
        written.iter().map(|it| (it.clone(), count(it))).collect()
    }
}

fn create(containers: &dyn Containers, of: &str, settings: ContainerSettings) -> Container {
    block_on(containers.create(&name(of), settings)).expect("it is new");
    block_on(containers.open(&name(of))).expect("it exists")
}

fn feed_settings(layout: &Layout) -> ContainerSettings {
    let by_key = PartitionKeyDefinition::hash("/partitionKey").expect("a path");
    let settings = ContainerSettings::new(by_key).ranges(layout.ranges);
    settings.all_versions_retention(layout.retention)
}

fn name(container: &str) -> ContainerName {
    ContainerName::new("shop", container).expect("a name")
}
