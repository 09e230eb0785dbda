//! One processor instance on a node of its own.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use millstream_core::BoxFuture;
use millstream_core::Clock;
use millstream_processor::{
    ChangeBatch, Context, Error, ErrorKind, Handler, HandlerResult, Monitor, Notification,
    Notifications, Processor, ProcessorOptions,
};
use millstream_sim::{Handle, NodeId, Rng, SimClock, SimIds};
use tokio_util::sync::CancellationToken;

use crate::harness::World;
use crate::harness::port::Port;

/// How long a start may take in virtual time.
const START_MAX: Duration = Duration::from_secs(120);

/// An instance that is being described; [`Instance::start`] starts it.
pub(crate) struct Instance<'a> {
    world: &'a World,
    name: String,
    processor: String,
    options: ProcessorOptions,
    skew_millis: Option<i64>,
    handler: Option<Arc<dyn Handler>>,
}

impl<'a> Instance<'a> {
    pub(super) fn new(world: &'a World, name: &str) -> Self {
        Self {
            world,
            name: name.to_owned(),
            processor: World::PROCESSOR.to_owned(),
            options: ProcessorOptions::default(),
            skew_millis: None,
            handler: None,
        }
    }

    /// Its options. Default: those of the processor.
    pub(crate) fn options(mut self, options: ProcessorOptions) -> Self {
        self.options = options;
        self
    }

    /// The name of the processor. Default: [`World::PROCESSOR`].
    pub(crate) fn processor(mut self, name: &str) -> Self {
        name.clone_into(&mut self.processor);
        self
    }

    /// How far its clock is ahead. Default: drawn from the seed, up to minutes.
    pub(crate) fn skew_millis(mut self, skew: i64) -> Self {
        self.skew_millis = Some(skew);
        self
    }

    /// Another handler than the recorder of the world.
    pub(crate) fn handler(mut self, handler: impl Handler + 'static) -> Self {
        self.handler = Some(Arc::new(handler));
        self
    }

    /// Starts it without waiting: it gets to work when the world runs.
    pub(crate) fn launch(self) -> Node {
        let world = self.world;
        let handle = world.handle();
        let id = handle.add_node(&self.name);
        let number = u64::try_from(id.number()).expect("a few");
        let mut rng = Rng::stream(world.seed(), "nodes").fork(number);
        let clock = match self.skew_millis {
            None => SimClock::draw(handle, &mut rng),
            Some(skew) => SimClock::with(handle, skew, Duration::from_secs(3600 * (1 + number))),
        };
        let own: Arc<dyn Clock> = clock.clone();
        let ids = SimIds::new(own, rng.fork(1));
        let (feed, leases) = (Port::new(handle, id), Port::new(handle, id));
        let containers = world.seen_through(&feed, &leases);
        let processor = Processor::new(&containers.0, &containers.1, &self.processor)
            .instance(&self.name)
            .options(self.options)
            .clock(clock.clone())
            .ids(Arc::new(ids))
            .spawn_with({
                let spawner = handle.spawner(id);
                move |task| spawner(task)
            });
        let handler = match self.handler {
            Some(handler) => handler,
            None => Arc::new(world.recorder().handler(&self.name)),
        };
        let node = Node {
            id,
            name: self.name,
            clock,
            feed,
            leases,
            shutdown: CancellationToken::new(),
            handle: handle.clone(),
            state: Arc::default(),
        };
        handle.spawn(id, Box::pin(node.clone().work(processor, handler)));
        node
    }

    /// Starts it and waits until its leases exist.
    #[track_caller]
    pub(crate) fn start(self) -> Node {
        let world = self.world;
        let node = self.launch();
        world.run_until_exact(START_MAX, || node.has_started() || node.refusal().is_some());
        assert!(node.has_started(), "{} did not start: {:?}", node.name, node.refusal());
        node
    }

    /// Tries to start it, and returns why that failed.
    #[track_caller]
    pub(crate) fn start_refused(self) -> ErrorKind {
        let world = self.world;
        let node = self.launch();
        world.run_until_exact(START_MAX, || node.has_started() || node.refusal().is_some());
        node.refusal().unwrap_or_else(|| panic!("{} was not refused", node.name))
    }
}

/// An instance. Clones are the same.
#[derive(Clone)]
pub(crate) struct Node {
    pub(crate) id: NodeId,
    pub(crate) name: String,
    pub(crate) clock: Arc<SimClock>,
    /// Its way to the container of the items.
    pub(crate) feed: Arc<Port>,
    /// Its way to the container of the leases.
    pub(crate) leases: Arc<Port>,
    /// Cancelled to stop it in order.
    pub(crate) shutdown: CancellationToken,
    handle: Handle,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    started: Option<Monitor>,
    refusal: Option<ErrorKind>,
    outcome: Option<Result<(), ErrorKind>>,
    notifications: Vec<(Duration, Notification)>,
}

impl Node {
    /// Drops everything it does, as a crash would.
    pub(crate) fn kill(&self) {
        self.handle.kill(self.id);
    }

    /// Stops it for a while without its knowing.
    pub(crate) fn stall(&self, time: Duration) {
        self.handle.stall(self.id, time);
    }

    /// Asks it to stop in order; [`Node::outcome`] says when it has.
    pub(crate) fn stop(&self) {
        self.shutdown.cancel();
    }

    /// Whether its leases exist.
    pub(crate) fn has_started(&self) -> bool {
        self.lock().started.is_some()
    }

    /// Why it did not start.
    pub(crate) fn refusal(&self) -> Option<ErrorKind> {
        self.lock().refusal.clone()
    }

    /// How it ended; none while it runs.
    pub(crate) fn outcome(&self) -> Option<Result<(), ErrorKind>> {
        self.lock().outcome.clone()
    }

    /// What it knows about its lag.
    pub(crate) fn monitor(&self) -> Option<Monitor> {
        self.lock().started.clone()
    }

    /// What it told so far.
    pub(crate) fn notifications(&self) -> Vec<Notification> {
        self.lock().notifications.iter().map(|(_, it)| it.clone()).collect()
    }

    /// The same with the time of each.
    pub(crate) fn timed_notifications(&self) -> Vec<(Duration, Notification)> {
        self.lock().notifications.clone()
    }

    /// How many notifications so far are like this.
    pub(crate) fn told(&self, like: impl Fn(&Notification) -> bool) -> usize {
        self.lock().notifications.iter().filter(|(_, it)| like(it)).count()
    }

    async fn work(self, processor: Processor, handler: Arc<dyn Handler>) {
        let mut started = match processor.start(Shared(handler)).await {
            Ok(started) => started,
            Err(error) => {
                self.lock().refusal = Some(refusal(&error));
                return;
            }
        };
        let notifications = started.notifications();
        self.handle.spawn(NodeId::WORLD, Box::pin(self.clone().listen(notifications)));
        self.lock().started = Some(started.monitor());
        let outcome = Box::pin(started.run(self.shutdown.clone())).await;
        self.lock().outcome = Some(outcome.map_err(|error| refusal(&error)));
    }

    async fn listen(self, mut notifications: Notifications) {
        while let Some(notification) = notifications.next().await {
            let at = self.handle.now();
            self.lock().notifications.push((at, notification));
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().expect("nothing panics while it holds the lock")
    }
}

fn refusal(error: &Error) -> ErrorKind {
    error.kind().clone()
}

/// A handler that others hold too.
struct Shared(Arc<dyn Handler>);

impl Handler for Shared {
    fn handle(&self, batch: ChangeBatch, context: Context) -> BoxFuture<'_, HandlerResult> {
        self.0.handle(batch, context)
    }
}
