use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use millstream_core::{
    BoxFuture, Clock, Container, ContainerSettings, IdSource, Publisher, SystemClock,
};
use millstream_processor::{LeaseLag, Metrics, Monitor, Notifications, Processor, Result, Started};
use tokio_util::sync::CancellationToken;

use crate::flaw::Flaw;
use crate::handler::{Mapping, PublishingHandler};
use crate::observer::RelayObserver;
use crate::options::RelayOptions;

/// Publishes the events of a container, shared out among any number of instances.
///
/// A relay is a processor with a handler of its own: leases, balancing, retries, parking and lag
/// are those of `millstream-processor`, under the name of the relay.
#[derive(Clone)]
pub struct Relay {
    processor: Processor,
    settings: ContainerSettings,
    can_hold: bool,
    options: RelayOptions,
    observer: Option<Arc<dyn RelayObserver>>,
    clock: Arc<dyn Clock>,
    flaw: Option<Flaw>,
}

impl Relay {
    /// An instance of the relay `name` for the events in `data`, with its leases in `leases`.
    #[must_use]
    pub fn new(data: &Container, leases: &Container, name: &str) -> Self {
        Self {
            processor: Processor::new(data, leases, name),
            settings: data.info.settings.clone(),
            can_hold: data.guards.is_some(),
            options: RelayOptions::default(),
            observer: None,
            clock: Arc::new(SystemClock::default()),
            flaw: None,
        }
    }

    /// The settings. Default: [`RelayOptions::default`].
    #[must_use]
    pub fn options(mut self, options: RelayOptions) -> Self {
        self.options = options;
        self
    }

    /// The name of this instance, different for each. Default: a random one.
    #[must_use]
    pub fn instance(mut self, name: &str) -> Self {
        self.processor = self.processor.instance(name);
        self
    }

    /// Promises that no earlier life of this instance works any more, so that it need not be waited
    /// for; see [`Processor::predecessor_is_dead`] for who may promise that.
    #[must_use]
    pub fn predecessor_is_dead(mut self) -> Self {
        self.processor = self.processor.predecessor_is_dead();
        self
    }

    /// Where events go that the publisher refuses. Default: the container of the leases.
    #[must_use]
    pub fn dead_letters(mut self, container: &Container) -> Self {
        self.processor = self.processor.dead_letters(container);
        self
    }

    /// Where the time comes from. Default: the clock of the machine.
    #[must_use]
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.processor = self.processor.clock(Arc::clone(&clock));
        self.clock = clock;
        self
    }

    /// Where ids and randomness come from. Default: the operating system.
    #[must_use]
    pub fn ids(mut self, ids: Arc<dyn IdSource>) -> Self {
        self.processor = self.processor.ids(ids);
        self
    }

    /// Where numbers about the work go. Default: nowhere.
    #[must_use]
    pub fn metrics(mut self, metrics: Arc<dyn Metrics>) -> Self {
        self.processor = self.processor.metrics(metrics);
        self
    }

    /// Who hears of every message that was published. Default: nobody.
    #[must_use]
    pub fn observer(mut self, observer: Arc<dyn RelayObserver>) -> Self {
        self.observer = Some(observer);
        self
    }

    /// Runs the work on each lease as a task of its own; see [`Processor::spawn_with`].
    #[must_use]
    pub fn spawn_with(
        mut self,
        spawn: impl Fn(BoxFuture<'static, ()>) + Send + Sync + 'static,
    ) -> Self {
        self.processor = self.processor.spawn_with(spawn);
        self
    }

    /// Plants a bug, so that a simulation can show that it would find it.
    #[cfg(feature = "planted-flaws")]
    #[must_use]
    pub fn flaw(mut self, flaw: Flaw) -> Self {
        self.flaw = Some(flaw);
        self
    }

    /// Makes sure that the leases exist and that unsent events are held, so that nothing committed
    /// from now on can be missed.
    ///
    /// # Errors
    ///
    /// Those of [`Processor::start`].
    ///
    /// # Cancel safety
    ///
    /// As for [`Processor::start`].
    pub async fn start(self, publisher: Arc<dyn Publisher>) -> Result<StartedRelay> {
        let Self { mut processor, settings, can_hold, options, observer, clock, flaw } = self;
        if options.hold_events && can_hold {
            processor = processor.hold_events();
        }
        let monitor = RelayMonitor::default();
        let default_type = ContainerSettings::EVENT_TYPE.to_owned();
        let mapping = Mapping {
            form: options.form,
            source: options.source,
            event_type: settings.event_type.unwrap_or(default_type),
            all_documents: options.all_documents,
        };
        let monitored = monitor.clone();
        let handler = PublishingHandler {
            publisher,
            mapping,
            monitor: monitored,
            observer,
            clock,
            flaw,
            attempts: AtomicU64::new(0),
        };
        let started = processor.options(options.processor).start(handler).await?;
        Ok(StartedRelay { started, monitor })
    }
}

impl std::fmt::Debug for Relay {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Relay").field("processor", &self.processor).finish_non_exhaustive()
    }
}

/// A relay whose leases exist.
#[derive(Debug)]
pub struct StartedRelay {
    started: Started,
    monitor: RelayMonitor,
}

impl StartedRelay {
    /// What happens to the instance: leases, failures, parked keys, the circuit breaker.
    pub fn notifications(&mut self) -> Notifications {
        self.started.notifications()
    }

    /// How much was published, also while it runs.
    #[must_use]
    pub fn monitor(&self) -> RelayMonitor {
        RelayMonitor { leases: Some(self.started.monitor()), ..self.monitor.clone() }
    }

    /// Publishes until `shutdown` is cancelled, then finishes what is at hand.
    ///
    /// # Errors
    ///
    /// Those of [`Started::run`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing; some messages may be published again, with the same ids.
    pub async fn run(self, shutdown: CancellationToken) -> Result<()> {
        self.started.run(shutdown).await
    }
}

/// How far a relay is.
#[derive(Clone, Debug, Default)]
pub struct RelayMonitor {
    published: Arc<AtomicU64>,
    leases: Option<Monitor>,
}

impl RelayMonitor {
    /// Messages that the publisher took, repetitions included.
    #[must_use]
    pub fn messages_published(&self) -> u64 {
        self.published.load(Ordering::Relaxed)
    }

    /// How far behind each lease of this instance is.
    #[must_use]
    pub fn lags(&self) -> Vec<LeaseLag> {
        self.leases.as_ref().map(Monitor::lags).unwrap_or_default()
    }

    pub(crate) fn published(&self, messages: usize) {
        self.published.fetch_add(u64::try_from(messages).unwrap_or(u64::MAX), Ordering::Relaxed);
    }
}
