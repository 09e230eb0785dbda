//! `millstream up`: store, broker and relays in one process, until somebody stops it.

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use millstream_backend_nats::NatsStore;
use millstream_core::{Clock, Error, Publisher};
use millstream_webhook::{Signer, Webhook, WebhookOptions};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::{JoinHandle, JoinSet};
use tokio_util::sync::CancellationToken;

use crate::admin::strangers;
use crate::client::Address;
use crate::config::{Config, WebhookConfig};
use crate::demo::{self, Demo};
use crate::entrance::Entrance;
use crate::failure::{Failure, Result};
use crate::figures::Figures;
use crate::http::{self, Service};
use crate::live::Live;
use crate::output::say;
use crate::places::Place;
use crate::relaying::{self, Board, RelayPlan, keep_running};
use crate::retention;
use crate::system::{self, RELAY, RelayName, System, webhook_relay};

/// How often a store on NATS is rid of what has expired.
const MAINTENANCE_INTERVAL: Duration = Duration::from_secs(60);

/// What was asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UpOptions {
    /// Runs the contacts service with its consumers.
    pub(crate) demo: bool,
    /// Changes a second in the demonstration.
    pub(crate) per_second: f64,
}

/// Runs until a signal.
pub(crate) async fn up(config: &Config, options: UpOptions) -> Result<()> {
    allow_descriptors();
    let mut signals = Signals::new()?;
    let entrance = Entrance::prepare(config, |name| std::env::var(name).ok())?;
    let listener = TcpListener::bind(config.listen).await.map_err(|error| {
        let listen = config.listen;
        Failure::other(format!(
            "could not listen on {listen}: {error}; choose another address with --listen"
        ))
    })?;
    let address = reachable(listener.local_addr()?);
    let (system, service, exporter) = System::open_with(config, &config.traces).await?;
    let exporter = exporter.map(|it| Stoppable::start(|shutdown| it.run(shutdown)));
    let broker = Stoppable::start(|shutdown| service.run(shutdown));
    let plan = Plan::prepare(&system, config, options, address).await?;
    let figures = plan.demo.as_ref().map(|it| it.figures.clone());
    let board = Arc::new(Board::default());
    let running = plan.start(&system, &board, broker, &entrance, listener).await?;
    let running = Running { exporter, ..running };
    announce(config, &entrance, address, options.demo);
    for stranger in strangers(&system).await? {
        let RelayName { name, data } = stranger;
        tracing::warn!(
            reader = name,
            container = %data,
            "a reader that is no relay of the settings holds unsent events; if it is gone for \
             good, `millstream forget` lets go of them"
        );
    }

    let mut live = Live::new(system.clone(), board, figures);
    tokio::select! {
        biased;
        () = signals.next() => (),
        () = live.run() => (),
    }
    say(&live.end("stopping"));
    tokio::select! {
        biased;
        () = running.stop() => (),
        () = signals.next() => {
            return Err(Failure::other("stopped at once; whatever was acknowledged is safe"));
        }
    }
    say("stopped\n");
    Ok(())
}

/// Takes all the descriptors it may have. Many systems begin with 1024, which as many connections
/// would use up, and the store could open no file any more.
fn allow_descriptors() {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, ..limit };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        tracing::warn!(%error, "could not raise the limit of open files");
    }
}

/// What is to run.
struct Plan {
    relays: Vec<RelayPlan>,
    demo: Option<Demo>,
    address: Address,
    /// Where commands on this machine find it; on NATS they need nobody.
    address_file: Option<PathBuf>,
}

/// What runs.
struct Running {
    work: JoinSet<()>,
    stop_work: CancellationToken,
    server: Stoppable,
    broker: Stoppable,
    exporter: Option<Stoppable>,
    /// Goes away with the process it tells of.
    _note: Option<AddressNote>,
}

/// A task that can be told to end.
struct Stoppable {
    task: JoinHandle<()>,
    shutdown: CancellationToken,
}

impl Plan {
    async fn prepare(
        system: &System,
        config: &Config,
        options: UpOptions,
        address: SocketAddr,
    ) -> Result<Self> {
        let mut relays = vec![events_relay(system, config).await?];
        for webhook in &config.webhooks {
            relays.push(webhook_plan(system, config, webhook).await?);
        }
        let mut demo = None;
        if options.demo {
            let own = address.to_string();
            let mut prepared = Demo::prepare(system, config, &own, options.per_second).await?;
            relays.append(&mut prepared.relays);
            demo = Some(prepared);
        }
        let address_file = config.directory()?.map(|it| Address::file(&it));
        let address = Address { address, token: demo::secret(&*system.ids) };
        Ok(Self { relays, demo, address, address_file })
    }

    async fn start(
        self,
        system: &System,
        board: &Arc<Board>,
        broker: Stoppable,
        entrance: &Entrance,
        listener: TcpListener,
    ) -> Result<Running> {
        let figures = Arc::new(Figures::default());
        let service = Service {
            system: system.clone(),
            board: Arc::clone(board),
            figures: Arc::clone(&figures),
            demo: self.demo.as_ref().map(|it| it.figures.clone()),
            broker: broker.task.abort_handle(),
            token: self.address.token.clone(),
        };
        let mut router = http::router(Arc::new(service));
        let (mut work, stop_work) = (JoinSet::new(), CancellationToken::new());
        if let Some(demo) = self.demo {
            router = router.merge(demo.router.clone());
            demo.start(&mut work, &stop_work);
        }
        if let Some(store) = system.store.nats.clone() {
            work.spawn(maintain(store, Arc::clone(&system.clock), stop_work.clone()));
        }
        if system.store.directory.is_none() {
            work.spawn(retention::watch(system.clone(), stop_work.clone()));
        }
        let server = entrance.server(system, listener, router).await?;
        let server = Stoppable::start(|shutdown| server.run(shutdown));
        for plan in self.relays {
            let (board, figures) = (Arc::clone(board), Arc::clone(&figures));
            work.spawn(keep_running(system.clone(), plan, board, figures, stop_work.clone()));
        }
        let note = self.address_file.map(|it| AddressNote::write(it, &self.address)).transpose()?;
        Ok(Running { work, stop_work, server, broker, exporter: None, _note: note })
    }
}

impl Running {
    /// Ends everything: those who send before those who take.
    async fn stop(mut self) {
        self.stop_work.cancel();
        while self.work.join_next().await.is_some() {}
        // Requests that take longer than the server's grace are cut off.
        self.server.stop().await;
        self.broker.stop().await;
        if let Some(exporter) = self.exporter {
            exporter.stop().await;
        }
    }
}

impl Stoppable {
    fn start<F: Future<Output = ()> + Send + 'static>(
        work: impl FnOnce(CancellationToken) -> F,
    ) -> Self {
        let shutdown = CancellationToken::new();
        Self { task: tokio::spawn(work(shutdown.clone())), shutdown }
    }

    async fn stop(self) {
        self.shutdown.cancel();
        if let Err(error) = self.task.await {
            tracing::error!(%error, "a part of the program panicked");
        }
    }
}

/// SIGINT and SIGTERM.
struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    fn new() -> Result<Self> {
        let interrupt = signal(SignalKind::interrupt())?;
        Ok(Self { interrupt, terminate: signal(SignalKind::terminate())? })
    }

    async fn next(&mut self) {
        tokio::select! {
            biased;
            _ = self.interrupt.recv() => (),
            _ = self.terminate.recv() => (),
        }
    }
}

/// The file that tells commands where this process answers; gone when it is dropped.
struct AddressNote(PathBuf);

impl AddressNote {
    fn write(path: PathBuf, address: &Address) -> Result<Self> {
        address.write(&path)?;
        Ok(Self(path))
    }
}

impl Drop for AddressNote {
    fn drop(&mut self) {
        // Best effort: commands that find it without a process say so.
        let _ = fs::remove_file(&self.0);
    }
}

async fn events_relay(system: &System, config: &Config) -> Result<RelayPlan> {
    system.messages.ensure_topic(&config.relay).await?;
    Ok(RelayPlan {
        name: RELAY.to_owned(),
        data: system.container(&system::data_name()?.to_string()).await?,
        publisher: system.messages.publisher(&config.relay.topic).await?,
        options: relaying::options(config, &config.relay.source),
    })
}

/// What posts to a webhook.
///
/// # Errors
///
/// A sentence if its address or its secret cannot be used.
pub(crate) fn webhook_publisher(webhook: &WebhookConfig) -> Result<Webhook> {
    let name = &webhook.name;
    let mut options = WebhookOptions::default();
    if let Some(variable) = &webhook.secret_env {
        let secret = std::env::var(variable).map_err(|_| {
            Failure::usage(format!(
                "the webhook {name:?} takes its secret from {variable}, which is not set"
            ))
        })?;
        let refused = |error: Error| {
            Failure::usage(format!("the webhook {name:?}, with {variable}: {}", error.report()))
        };
        options = options.signer(Signer::new(&secret).map_err(refused)?);
    }
    Webhook::new(&webhook.url, options)
        .map_err(|error| Failure::usage(format!("the webhook {name:?}: {}", error.report())))
}

async fn webhook_plan(
    system: &System,
    config: &Config,
    webhook: &WebhookConfig,
) -> Result<RelayPlan> {
    let publisher: Arc<dyn Publisher> =
        Arc::new(webhook_publisher(webhook)?.clock(Arc::clone(&system.clock)));
    let mut options = relaying::webhook_options(config, &config.relay.source);
    if webhook.all_documents {
        options = options.all_documents();
    }
    let data = system.container(&system::data_name()?.to_string()).await?;
    Ok(RelayPlan { name: webhook_relay(&webhook.name), data, publisher, options })
}

/// Removes what has expired, until `shutdown`. Any number of processes may do so.
async fn maintain(store: NatsStore, clock: Arc<dyn Clock>, shutdown: CancellationToken) {
    loop {
        if let Err(error) = store.maintain().await {
            tracing::warn!(error = error.report(), "could not remove what has expired");
        }
        tokio::select! {
            biased;
            () = shutdown.cancelled() => return,
            () = clock.sleep(MAINTENANCE_INTERVAL) => (),
        }
    }
}

/// Where this machine reaches a listener that may listen everywhere.
fn reachable(address: SocketAddr) -> SocketAddr {
    match address {
        SocketAddr::V4(it) if it.ip().is_unspecified() => ([127, 0, 0, 1], it.port()).into(),
        SocketAddr::V6(it) if it.ip().is_unspecified() => {
            (std::net::Ipv6Addr::LOCALHOST, it.port()).into()
        }
        SocketAddr::V4(_) | SocketAddr::V6(_) => address,
    }
}

/// Where everything is, without secrets.
fn places(config: &Config) -> String {
    let store = config.store_place().map(|it| it.shown()).unwrap_or_default();
    match Place::parse("broker", &config.broker) {
        Ok(broker) => format!("{store}, messages in {}", broker.shown()),
        Err(_) => store,
    }
}

fn announce(config: &Config, entrance: &Entrance, address: SocketAddr, has_demo: bool) {
    let topic = &config.relay.topic;
    let mut text = format!(
        "millstream is up\n\
         \x20 data       {}\n\
         {}\
         \x20 relay      app/data -> topic {topic}\n\
         \x20 health     http://{address}/health, /ready\n\
         \x20 metrics    http://{address}/metrics\n",
        places(config),
        entrance.describe(address),
    );
    for webhook in &config.webhooks {
        text += &format!("  webhook    app/data -> {}\n", webhook.name);
    }
    if let Some(endpoint) = &config.traces.endpoint {
        text += &format!("  traces     {endpoint}\n");
    }
    if has_demo {
        text += &format!(
            "  contacts   http://{address}/api/contacts, described in /openapi.json\n\
             \x20 consumers  http://{address}/api/search?text=ada, and a webhook\n"
        );
    }
    say(&format!("{text}Ctrl-C stops it.\n\n"));
}
