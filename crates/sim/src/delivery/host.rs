//! The process of the broker: opened from its documents, killed, replaced, opened again.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use futures_util::future::{Either, select};
use millstream_broker::{
    Broker, BrokerOptions, BrokerService, Flaw, ReceiveSettings, SubscriptionSettings,
    TopicSettings,
};
use millstream_core::{Container, ErrorKind, Result};
use tokio_util::sync::CancellationToken;

use crate::clock::SimClock;
use crate::delivery::site::{Parts, Site, TOPIC, name, path};
use crate::executor::NodeId;
use crate::log::log;
use crate::rng::Rng;

/// Runs one broker after the other on the same documents.
#[derive(Debug)]
pub(crate) struct Host {
    pub(crate) site: Arc<Site>,
    flaw: Option<Flaw>,
    current: Mutex<Current>,
    opened: AtomicU64,
    rng: Mutex<Rng>,
}

#[derive(Debug, Default)]
struct Current {
    /// The process that is meant to be the broker, and its way to its documents.
    process: Option<Parts>,
    /// The broker that takes requests.
    serving: Option<Arc<Serving>>,
}

/// A broker that was opened and takes requests.
#[derive(Debug)]
pub(crate) struct Serving {
    /// Larger for later ones.
    pub(crate) number: u64,
    pub(crate) node: NodeId,
    pub(crate) broker: Broker,
    pub(crate) clock: Arc<SimClock>,
}

impl Host {
    pub(crate) fn start(site: &Arc<Site>, flaw: Option<Flaw>) -> Arc<Self> {
        let host = Arc::new(Self {
            site: Arc::clone(site),
            flaw,
            current: Mutex::default(),
            opened: AtomicU64::new(0),
            rng: Mutex::new(Rng::stream(site.seed, "host")),
        });
        host.start_process();
        host
    }

    /// The broker that takes requests, if one does.
    pub(crate) fn serving(&self) -> Option<Arc<Serving>> {
        self.current().serving.clone()
    }

    /// The process of the broker.
    pub(crate) fn process(&self) -> Option<Parts> {
        self.current().process.clone()
    }

    /// Ends the broker at once; another is started after a while.
    pub(crate) fn kill(self: &Arc<Self>) {
        let Some(process) = self.take() else { return };
        self.site.handle.kill(process.id);
        self.start_later();
    }

    /// Starts another broker although this one is there; it is left to find out.
    pub(crate) fn replace(self: &Arc<Self>) {
        if self.take().is_some() {
            self.start_process();
        }
    }

    fn take(&self) -> Option<Parts> {
        let Current { process, .. } = std::mem::take(&mut *self.current());
        process
    }

    fn start_later(self: &Arc<Self>) {
        let longest = self.site.shape.lock;
        let mut rng = self.rng.lock().expect("nothing panics while it holds the lock");
        let pause = rng.duration(Duration::ZERO, longest).min(self.site.faulty_time());
        let (host, sleep) = (Arc::clone(self), self.site.handle.sleep(pause));
        let start = async move {
            sleep.await;
            host.start_process();
        };
        self.site.handle.spawn(NodeId::WORLD, Box::pin(start));
    }

    fn start_process(self: &Arc<Self>) {
        let parts = self.site.add_node("broker");
        self.current().process = Some(parts.clone());
        let (host, node) = (Arc::clone(self), parts.id);
        let process = async move {
            let container = host.site.broker(&parts);
            loop {
                let outcome = host.serve(&parts, &container).await;
                log(|| format!("the broker ended with {outcome:?}"));
                // One that another has replaced is stopped by whoever looks after processes.
                if !host.is_current(node) {
                    return;
                }
                host.current().serving = None;
                host.site.handle.sleep(Duration::from_millis(50)).await;
            }
        };
        self.site.handle.spawn(node, Box::pin(process));
    }

    /// Opens the broker and serves until it fails.
    async fn serve(&self, parts: &Parts, container: &Container) -> Result<()> {
        let shape = &self.site.shape;
        let mut options = BrokerOptions::default()
            .storage_patience(shape.patience)
            .cache_bytes_max(shape.cache_bytes);
        if let Some(flaw) = self.flaw {
            options = options.flaw(flaw);
        }
        let clock = if shape.brokers_disagree {
            Arc::clone(&parts.clock)
        } else {
            let uptime = Duration::from_secs(parts.rng.clone().below(1000));
            SimClock::with(&self.site.handle, 0, uptime)
        };
        let opened = Broker::open(container, options, clock.clone(), parts.ids.clone()).await;
        let (broker, service) = opened?;
        let number = self.opened.fetch_add(1, Ordering::Relaxed) + 1;
        self.site.oracle.opened(number);
        log(|| format!("broker {number} is open"));
        self.run(Serving { number, node: parts.id, broker, clock }, service).await
    }

    async fn run(&self, serving: Serving, service: BrokerService) -> Result<()> {
        let watched = async {
            self.create_entities(&serving.broker).await?;
            let (node, broker) = (serving.node, serving.broker.clone());
            // Another may have been started since; it will take over when it is open.
            if !self.is_current(node) {
                return Ok(());
            }
            self.current().serving = Some(Arc::new(serving));
            loop {
                self.site.handle.sleep(self.site.shape.lock / 4).await;
                broker.counts(&path(0))?;
            }
        };
        let run = Box::pin(service.run(CancellationToken::new()));
        match select(Box::pin(watched), run).await {
            Either::Left((outcome, _)) => outcome,
            Either::Right(((), _)) => Ok(()),
        }
    }

    async fn create_entities(&self, broker: &Broker) -> Result<()> {
        let shape = &self.site.shape;
        let settings =
            TopicSettings { duplicate_window: shape.duplicate_window, ..TopicSettings::default() };
        unless_there(broker.create_topic(TOPIC, settings).await)?;
        for number in 0..shape.subscriptions {
            let receive = ReceiveSettings {
                lock_duration: shape.lock,
                delivery_count_max: shape.deliveries_max,
                ..ReceiveSettings::with_sessions()
            };
            let settings = SubscriptionSettings { receive, ..SubscriptionSettings::default() };
            unless_there(broker.create_subscription(TOPIC, &name(number), settings).await)?;
        }
        Ok(())
    }

    fn is_current(&self, node: NodeId) -> bool {
        self.current().process.as_ref().is_some_and(|it| it.id == node)
    }

    fn current(&self) -> MutexGuard<'_, Current> {
        self.current.lock().expect("nothing panics while it holds the lock")
    }
}

fn unless_there(outcome: Result<()>) -> Result<()> {
    match outcome {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
        outcome => outcome,
    }
}
