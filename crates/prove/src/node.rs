use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use millstream_core::Publisher;
use millstream_crash::{Attempt, Error, Random, Result};
use millstream_processor::{Concurrency, ProcessorOptions, StartPosition};
use millstream_relay::{Relay, RelayMonitor, RelayOptions};
use tokio_util::sync::CancellationToken;

use crate::calm::settle_down;
use crate::consumer::Consumer;
use crate::current::Current;
use crate::mutant::Mutant;
use crate::publisher::{UnreliablePublisher, Weather};
use crate::service::Service;
use crate::storm::{kill_now_and_then, trouble};
use crate::world::World;

/// The name of the relay.
pub(crate) const RELAY: &str = "relay";
const WORKER_THREADS: usize = 2;

/// How a node lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The service commits, everything else fails now and then; until somebody kills it.
    Storm,
    /// Nothing fails; it ends when all is delivered, and says what there is.
    Calm,
}

/// What a node is told.
#[derive(Clone, Debug)]
pub struct NodeOptions {
    /// Where its stores are.
    pub directory: PathBuf,
    /// Moments of what goes wrong; not exact, as they depend on the machine as well.
    pub seed: u64,
    /// How it lives.
    pub phase: Phase,
    /// Whether the broker detects duplicates; if not, it is left to the inbox.
    pub detects_duplicates: bool,
    /// A bug to plant.
    pub mutant: Option<Mutant>,
}

/// The parts of a node.
pub(crate) struct Node {
    pub(crate) world: Arc<World>,
    pub(crate) current: Arc<Current>,
    pub(crate) weather: Arc<Weather>,
    pub(crate) service: Service,
    /// The relay that was started last.
    pub(crate) monitor: Arc<Mutex<RelayMonitor>>,
    publisher: Arc<UnreliablePublisher>,
    consumer: Consumer,
}

/// Lives as a node, and tells standard output.
///
/// # Errors
///
/// If a part of it fails that should not.
pub fn run_node(options: &NodeOptions) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(WORKER_THREADS)
        .enable_all()
        .build()
        .attempt(|| "start the node")?;
    runtime.block_on(live(options))
}

async fn live(options: &NodeOptions) -> Result<()> {
    let mut random = Random::new(options.seed);
    let stormy = options.phase == Phase::Storm;
    let world = Arc::new(World::open(&options.directory).await?);
    let current = Arc::new(Current::open(&world, options.detects_duplicates).await?);
    let weather = Arc::new(Weather::new(stormy, random.next()));
    let publisher = Arc::new(UnreliablePublisher {
        current: Arc::clone(&current),
        weather: Arc::clone(&weather),
        mutant: options.mutant,
    });
    let node = Node {
        service: Service::new(&world)?,
        consumer: Consumer::new(&world, &current, stormy, options.mutant)?,
        monitor: Arc::default(),
        world,
        current,
        weather,
        publisher,
    };
    if stormy { node.storm(&mut random).await } else { node.calm(&mut random).await }
}

impl Node {
    async fn storm(&self, random: &mut Random) -> Result<()> {
        let relay = kill_now_and_then("relay", random.next(), |_| self.relay());
        let consumer =
            kill_now_and_then("consumer", random.next(), |seed| self.consumer.clone().run(seed));
        let trouble = trouble(Arc::clone(&self.current), Arc::clone(&self.weather), random.next());
        let seed = random.next();
        tokio::select! {
            biased;
            ended = self.service.run(seed) => ended,
            ended = trouble => ended,
            () = relay => Ok(()),
            () = consumer => Ok(()),
        }
    }

    async fn calm(&self, random: &mut Random) -> Result<()> {
        let relay = tokio::spawn(self.relay());
        let consumer = tokio::spawn(self.consumer.clone().run(random.next()));
        let outcome = settle_down(self).await;
        relay.abort();
        consumer.abort();
        outcome
    }

    /// Relays until it is dropped, starting again when it fails.
    fn relay(&self) -> impl Future<Output = ()> + Send + 'static + use<> {
        let (world, monitor) = (Arc::clone(&self.world), Arc::clone(&self.monitor));
        let publisher = Arc::clone(&self.publisher);
        async move {
            loop {
                if let Err(error) = relay_once(&world, &monitor, publisher.clone()).await {
                    eprintln!("relay: {}", error.report());
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }

    /// Lets the poisoned key through.
    pub(crate) fn accept_poisoned(&self) {
        self.weather.poisoned.store(false, Ordering::Relaxed);
    }
}

async fn relay_once(
    world: &World,
    monitor: &Mutex<RelayMonitor>,
    publisher: Arc<dyn Publisher>,
) -> Result<()> {
    let processor = ProcessorOptions::default()
        .start(StartPosition::Beginning)
        .lease_duration(Duration::from_millis(1000))
        .round_interval(Duration::from_millis(200))
        .poll_interval(Duration::from_millis(200))
        .backoff(Duration::from_millis(5), Duration::from_millis(100))
        .concurrency(Concurrency::Keyed(4))
        .batch_items_max(100);
    let relay = Relay::new(&world.data, &world.leases, RELAY)
        .options(RelayOptions::default().processor(processor))
        .instance("node");
    let started = relay.start(publisher).await.attempt(|| "start the relay")?;
    *monitor.lock().unwrap_or_else(PoisonError::into_inner) = started.monitor();
    started.run(CancellationToken::new()).await.attempt(|| "relay")?;
    Err(Error::new("relay: it ended by itself"))
}
