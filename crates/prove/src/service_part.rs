//! The process of the service and of its relay: a store belongs to one process, and the relay reads
//! the feed of what the service commits.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use millstream_core::Publisher;
use millstream_crash::{Attempt, Error, Random, Result};
use millstream_processor::{Concurrency, ProcessorOptions, StartPosition};
use millstream_relay::{Relay, RelayOptions};
use tokio_util::sync::CancellationToken;

use crate::calm::settle_down;
use crate::part::{PartOptions, Phase};
use crate::publisher::{UnreliablePublisher, Weather};
use crate::remote::RemoteBroker;
use crate::say::say;
use crate::service::Service;
use crate::world::ServiceWorld;

/// The name of the relay.
pub(crate) const RELAY: &str = "relay";

/// What runs in the process.
pub(crate) struct ServicePart {
    pub(crate) world: Arc<ServiceWorld>,
    pub(crate) broker: RemoteBroker,
    pub(crate) weather: Arc<Weather>,
    pub(crate) service: Service,
    publisher: Arc<UnreliablePublisher>,
}

/// Commits and relays.
pub(crate) async fn live(options: &PartOptions) -> Result<()> {
    let mut random = Random::new(options.seed);
    let stormy = options.phase == Phase::Storm;
    let world = Arc::new(ServiceWorld::open(&options.directory).await?);
    let broker = RemoteBroker::new(&options.directory);
    let weather = Arc::new(Weather::new(stormy, random.next()));
    let publisher = Arc::new(UnreliablePublisher {
        broker: broker.clone(),
        weather: Arc::clone(&weather),
        mutant: options.mutant,
    });
    let service = Service::new(&world)?;
    let part = ServicePart { world, broker, weather, service, publisher };
    if stormy { part.storm(&mut random).await } else { part.calm().await }
}

impl ServicePart {
    async fn storm(&self, random: &mut Random) -> Result<()> {
        let relay = kill_now_and_then(random.next(), || self.relay());
        let trouble = trouble(&self.weather, random.next());
        let seed = random.next();
        tokio::select! {
            biased;
            ended = self.service.run(seed) => ended,
            () = trouble => Ok(()),
            () = relay => Ok(()),
        }
    }

    async fn calm(&self) -> Result<()> {
        let relay = tokio::spawn(self.relay());
        let outcome = settle_down(self).await;
        relay.abort();
        outcome
    }

    /// Relays until it is dropped, starting again when it fails.
    fn relay(&self) -> impl Future<Output = ()> + Send + 'static + use<> {
        let (world, publisher) = (Arc::clone(&self.world), Arc::clone(&self.publisher));
        async move {
            loop {
                if let Err(error) = relay_once(&world, publisher.clone()).await {
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

async fn relay_once(world: &ServiceWorld, publisher: Arc<dyn Publisher>) -> Result<()> {
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
        .instance("relay")
        // The store is this process's alone, and a relay that is dropped is gone with all it did.
        .predecessor_is_dead();
    let started = relay.start(publisher).await.attempt(|| "start the relay")?;
    started.run(CancellationToken::new()).await.attempt(|| "relay")?;
    Err(Error::new("relay: it ended by itself"))
}

/// Runs the relay again and again, dropping its future at random moments.
async fn kill_now_and_then<F>(seed: u64, mut relay: impl FnMut() -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    let mut random = Random::new(seed);
    loop {
        let task = tokio::spawn(relay());
        pause(&mut random, 50, 600).await;
        task.abort();
        // It ends by being aborted, which is what was asked for.
        let _ = task.await;
        say("killed relay".to_owned());
    }
}

/// Makes the way to the broker fail for a while.
async fn trouble(weather: &Weather, seed: u64) {
    let mut random = Random::new(seed);
    loop {
        pause(&mut random, 50, 700).await;
        weather.outage.store(true, Ordering::Relaxed);
        say("outage".to_owned());
        pause(&mut random, 20, 300).await;
        weather.outage.store(false, Ordering::Relaxed);
    }
}

async fn pause(random: &mut Random, millis_min: u64, millis_max: u64) {
    let millis = millis_min + random.below(millis_max - millis_min);
    tokio::time::sleep(Duration::from_millis(millis)).await;
}
