use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use millstream_core::{
    BoxFuture, Clock, Container, Continuation, IdSource, RandomIds, SystemClock,
};
use tokio_util::sync::CancellationToken;

use crate::agenda::Agenda;
use crate::bootstrap::{bootstrap, bounded};
use crate::breaker::Breaker;
use crate::dead_letters::DeadLetters;
use crate::error::{Error, Result};
use crate::fence::Fence;
use crate::flaw::Flaw;
use crate::handler::Handler;
use crate::instance::{Instance, Statuses, lags};
use crate::lag::LeaseLag;
use crate::lease_store::{LeaseStore, check_name};
use crate::metrics::{Metrics, NoMetrics, SafeMetrics};
use crate::notification::{Notifications, Notifier};
use crate::options::ProcessorOptions;
use crate::shared::Setup;
use crate::stored::{Control, Owner};
use crate::tasks::{Spawner, TaskSet};

/// One instance of a processor: reads the change feed of a container and gives the changes to a
/// handler, sharing the work with the other instances of the same processor.
///
/// Instances find each other through documents in the container of the leases. A processor is known
/// by its name there; any number of processors, each at its own position, can work on the same
/// container and keep their leases in the same place.
///
/// ```
/// use std::sync::Arc;
/// use millstream_core::{
///     Batch, ContainerName, ContainerSettings, Containers, Operation, PartitionKeyDefinition,
///     SystemClock, memory::Memory,
/// };
/// use millstream_processor::{ChangeBatch, Context, Processor};
/// use tokio_util::sync::CancellationToken;
///
/// # futures_lite::future::block_on(async {
/// let store = Memory::new(Arc::new(SystemClock::default()));
/// store.create_database("app").await?;
/// let by_key = ContainerSettings::new(PartitionKeyDefinition::hash("/partitionKey")?);
/// for name in ["orders", "leases"] {
///     store.create(&ContainerName::new("app", name)?, by_key.clone()).await?;
/// }
/// let orders = store.open(&ContainerName::new("app", "orders")?).await?;
/// let leases = store.open(&ContainerName::new("app", "leases")?).await?;
///
/// let shutdown = CancellationToken::new();
/// let stop = shutdown.clone();
/// let started = Processor::new(&orders, &leases, "mailer")
///     .instance("worker-1")
///     .start(move |batch: ChangeBatch, _: Context| {
///         let stop = stop.clone();
///         async move {
///             for change in batch.iter() {
///                 assert_eq!(change.id.as_str(), "17");
///             }
///             stop.cancel();
///             Ok(())
///         }
///     })
///     .await?;
/// // Everything committed from now on is delivered.
/// let order = r#"{"id": "17", "partitionKey": "ada"}"#;
/// orders.documents.commit(Batch::new("ada").with(Operation::create(order))).await?;
/// started.run(shutdown).await?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
#[derive(Clone)]
pub struct Processor {
    feed: Container,
    leases: Container,
    dead_letters: Option<Container>,
    name: String,
    instance: Option<String>,
    options: ProcessorOptions,
    clock: Arc<dyn Clock>,
    ids: Option<Arc<dyn IdSource>>,
    metrics: Arc<dyn Metrics>,
    spawner: Option<Spawner>,
    is_guarding: bool,
    predecessor_is_dead: bool,
    flaw: Option<Flaw>,
}

impl Processor {
    /// An instance of the processor `name` for the feed of one container, with leases in another.
    ///
    /// The container of the leases is partitioned by `/id` or, so that one query lists the leases,
    /// by another property such as `/partitionKey`.
    #[must_use]
    pub fn new(feed: &Container, leases: &Container, name: &str) -> Self {
        Self {
            feed: feed.clone(),
            leases: leases.clone(),
            dead_letters: None,
            name: name.to_owned(),
            instance: None,
            options: ProcessorOptions::default(),
            clock: Arc::new(SystemClock::default()),
            ids: None,
            metrics: Arc::new(NoMetrics),
            spawner: None,
            is_guarding: false,
            predecessor_is_dead: false,
            flaw: None,
        }
    }

    /// The name of this instance, different for each. Default: a random one. A name that stays the
    /// same over restarts keeps the list of members short.
    #[must_use]
    pub fn instance(mut self, name: &str) -> Self {
        self.instance = Some(name.to_owned());
        self
    }

    /// Promises that no earlier life of this instance, known by its name, works any more: its name
    /// and its leases are then taken at once, and not after a lease duration of silence.
    ///
    /// Only somebody who knows may promise it, such as the process that holds the exclusive lock of
    /// the data directory in which everything is: nobody else can be at work there. It is not
    /// enough that an orchestrator calls the earlier process dead. If it lives after all, both work
    /// on the same leases until it tries to give its next sign of life; writes of positions still
    /// exclude each other, but changes can be handled twice and out of order. Leases of instances
    /// with other names are waited for as always. Default: no promise.
    #[must_use]
    pub fn predecessor_is_dead(mut self) -> Self {
        self.predecessor_is_dead = true;
        self
    }

    /// The settings. Default: [`ProcessorOptions::default`].
    #[must_use]
    pub fn options(mut self, options: ProcessorOptions) -> Self {
        self.options = options;
        self
    }

    /// Where changes go that the handler could not handle. Default: the container of the leases.
    #[must_use]
    pub fn dead_letters(mut self, container: &Container) -> Self {
        self.dead_letters = Some(container.clone());
        self
    }

    /// Keeps events that this processor has not passed from expiring, whatever their time to live.
    /// It stays registered under its name until [`millstream_core::RetentionGuards::release`] is
    /// called, also while no instance runs. Default: off.
    #[must_use]
    pub fn hold_events(mut self) -> Self {
        self.is_guarding = true;
        self
    }

    /// Where the time comes from. Default: the clock of the machine.
    #[must_use]
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Where ids and randomness come from. Default: the operating system.
    #[must_use]
    pub fn ids(mut self, ids: Arc<dyn IdSource>) -> Self {
        self.ids = Some(ids);
        self
    }

    /// Where numbers about the work go. Default: nowhere.
    #[must_use]
    pub fn metrics(mut self, metrics: Arc<dyn Metrics>) -> Self {
        self.metrics = metrics;
        self
    }

    /// Runs the work on each lease as a task of its own, on several cores if the runtime has them:
    /// `.spawn_with(|task| drop(tokio::spawn(task)))`. Default: everything runs inside the future
    /// of [`Started::run`].
    #[must_use]
    pub fn spawn_with(
        mut self,
        spawn: impl Fn(BoxFuture<'static, ()>) + Send + Sync + 'static,
    ) -> Self {
        self.spawner = Some(Arc::new(spawn));
        self
    }

    /// Plants a bug, so that a simulation can show that it would find it.
    #[cfg(feature = "planted-flaws")]
    #[must_use]
    pub fn flaw(mut self, flaw: Flaw) -> Self {
        self.flaw = Some(flaw);
        self
    }

    /// Makes sure that there is a lease for every range, with its position pinned: every change
    /// committed after this returns is delivered, whatever happens to this instance.
    ///
    /// # Errors
    ///
    /// `Invalid` if a name or an option is wrong; `ModeMismatch`, `NewerSchema` or
    /// `ContainerRecreated` if the leases that exist do not fit; `Store` if a container cannot be
    /// used even after some attempts.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future may leave some of the leases made; the next start completes them.
    pub async fn start(self, handler: impl Handler + 'static) -> Result<Started> {
        self.options.check()?;
        let ids = self.ids.unwrap_or_else(|| Arc::new(RandomIds::new(Arc::clone(&self.clock))));
        let incarnation = ids.next_id();
        let instance = self.instance.unwrap_or_else(|| incarnation.simple().to_string());
        check_name("instance", &instance)?;
        if self.is_guarding && self.feed.guards.is_none() {
            let reason = "its backend has no retention guards; see Capabilities";
            return Err(Error::invalid(format!("hold events of {}", self.feed.info.name), reason));
        }
        let timeout = self.options.request_timeout();
        let store = LeaseStore::new(&self.leases, &self.name, Arc::clone(&self.clock), timeout)?;
        let dead_letters = self.dead_letters.as_ref().unwrap_or(&self.leases);
        let clock = Arc::clone(&self.clock);
        let dead_letters = DeadLetters::new(dead_letters, &self.name, clock, timeout)?;
        let setup = Arc::new(Setup {
            feed: self.feed,
            store,
            dead_letters,
            breaker: Mutex::new(Breaker::new(self.options.pauses())),
            agenda: Agenda::default(),
            options: self.options,
            handler: Arc::new(handler),
            clock: self.clock,
            ids,
            notifier: Notifier::new(),
            metrics: SafeMetrics::new(self.metrics, &self.name),
            fence: Fence::new(),
            me: Owner { instance, incarnation },
            is_guarding: self.is_guarding,
            predecessor_is_dead: self.predecessor_is_dead,
            flaw: self.flaw,
        });
        // Listening begins before anything can happen.
        let notifications = setup.notifier.subscribe();
        let control = bootstrap(&setup).await?;
        hold_from_the_start(&setup, &control.document).await?;
        let statuses = Arc::new(Mutex::new(BTreeMap::new()));
        Ok(Started { setup, spawner: self.spawner, statuses, notifications: Some(notifications) })
    }
}

impl std::fmt::Debug for Processor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut it = f.debug_struct("Processor");
        it.field("name", &self.name).field("instance", &self.instance).finish_non_exhaustive()
    }
}

/// Registers the processor as a reader that has passed nothing but what the leases began with.
async fn hold_from_the_start(setup: &Setup, control: &Control) -> Result<()> {
    let Some(guards) = setup.feed.guards.as_ref().filter(|_| setup.is_guarding) else {
        return Ok(());
    };
    for root in &control.roots {
        let failed = |error| Error::store("hold the events of the container", error);
        let position = Continuation::new(root.position.as_str()).map_err(failed)?;
        let hold = guards.hold(setup.store.name(), &root.keys, &position);
        bounded(setup, hold).await.map_err(failed)?;
    }
    Ok(())
}

/// An instance whose leases exist.
pub struct Started {
    setup: Arc<Setup>,
    spawner: Option<Spawner>,
    statuses: Statuses,
    notifications: Option<Notifications>,
}

impl Started {
    /// The name of the instance.
    #[must_use]
    pub fn instance(&self) -> &str {
        &self.setup.me.instance
    }

    /// What happens to the instance. The first call gets everything from the start on, later ones
    /// what happens from then on.
    pub fn notifications(&mut self) -> Notifications {
        self.notifications.take().unwrap_or_else(|| self.setup.notifier.subscribe())
    }

    /// Tells how far the leases of this instance are, also while it runs.
    #[must_use]
    pub fn monitor(&self) -> Monitor {
        Monitor { statuses: Arc::clone(&self.statuses), clock: Arc::clone(&self.setup.clock) }
    }

    /// Processes changes until `shutdown` is cancelled. Then batches at hand are finished within
    /// the grace time, positions are written, and the leases are free for the others at once.
    ///
    /// # Errors
    ///
    /// `InstanceNameTaken` if an instance of this name is alive; `Fenced` if one took the name
    /// later; `ContainerRecreated`, `PositionExpired` or `HandlerFailed` if the policy is to stop.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future is like killing the process: nothing is lost, others take over after the
    /// lease duration, and what was not checkpointed is delivered again.
    pub async fn run(self, shutdown: CancellationToken) -> Result<()> {
        let (tasks, driver) = TaskSet::new(self.spawner);
        drop(self.notifications);
        Instance::new(self.setup, tasks, self.statuses).run(driver, shutdown).await
    }
}

impl std::fmt::Debug for Started {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Started").field("me", &self.setup.me).finish_non_exhaustive()
    }
}

/// What an instance knows about its own leases without reading anything.
#[derive(Clone)]
pub struct Monitor {
    statuses: Statuses,
    clock: Arc<dyn Clock>,
}

impl Monitor {
    /// How far behind each lease of the instance is.
    #[must_use]
    pub fn lags(&self) -> Vec<LeaseLag> {
        lags(&self.statuses, self.clock.now())
    }
}

impl std::fmt::Debug for Monitor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.lags()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_send<T: Send>(_: T) {}

    #[expect(dead_code, reason = "that it compiles is the test")]
    fn an_instance_can_be_spawned(processor: Processor, handler: Arc<dyn Handler>) {
        is_send(processor.start(move |batch, context| {
            let handler = Arc::clone(&handler);
            async move { handler.handle(batch, context).await }
        }));
    }

    #[expect(dead_code, reason = "that it compiles is the test")]
    fn a_started_instance_can_be_spawned(started: Started) {
        is_send(started.run(CancellationToken::new()));
    }
}
