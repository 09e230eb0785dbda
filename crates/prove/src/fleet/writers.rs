//! Clients that write through the gateways, and remember what was acknowledged.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use millstream_backend_cosmos::{Address, Cosmos, CosmosOptions};
use millstream_core::{
    Batch, Clock, Container, Containers, Effect, ErrorKind, Operation, SystemClock,
};
use millstream_crash::{Attempt, Error, Random, Result};
use tokio::task::JoinHandle;

use crate::fleet::gateway;
use crate::fleet::scene::{ENTITY, EVENT, data_name};

const WRITERS: usize = 8;
const KEYS_PER_WRITER: usize = 8;
/// The longest pause between two commits of a writer: processors have to keep up.
const PAUSE_MILLIS_MAX: u64 = 60;
/// The pause after a failure.
const PAUSE: Duration = Duration::from_millis(50);
/// A gateway that was killed says nothing more.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);

/// Writers at work.
pub(crate) struct Writers {
    tasks: Vec<JoinHandle<Result<Ledger>>>,
    shared: Arc<Shared>,
}

/// What writers know in the end.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    /// The last commit of each key that was acknowledged.
    pub(crate) acknowledged: BTreeMap<String, u64>,
    pub(crate) refused: u64,
    pub(crate) doubtful: u64,
    pub(crate) happened: u64,
    pub(crate) findings: Vec<String>,
}

struct Shared {
    directory: PathBuf,
    gateways: usize,
    clock: Arc<dyn Clock>,
    commits: AtomicU64,
    stop: AtomicBool,
}

impl Writers {
    /// Starts them; the gateways have to be there.
    pub(crate) fn start(directory: &Path, gateways: usize) -> Self {
        let shared = Arc::new(Shared {
            directory: directory.to_owned(),
            gateways,
            clock: Arc::new(SystemClock::default()),
            commits: AtomicU64::new(0),
            stop: AtomicBool::new(false),
        });
        let tasks = (0..WRITERS).map(|number| {
            let client = Client { shared: Arc::clone(&shared), gateway: number, container: None };
            tokio::spawn(Writer { number, client, ledger: Ledger::default() }.run())
        });
        Self { tasks: tasks.collect(), shared }
    }

    /// How many commits were acknowledged.
    pub(crate) fn commits(&self) -> u64 {
        self.shared.commits.load(Ordering::Relaxed)
    }

    /// Fails if one of them has given up.
    pub(crate) fn check(&self) -> Result<()> {
        if self.tasks.iter().any(JoinHandle::is_finished) {
            return Err(Error::new("go on: a writer gave up"));
        }
        Ok(())
    }

    /// Lets each end with what it does, and returns what all of them know.
    pub(crate) async fn stop(self) -> Result<Ledger> {
        self.shared.stop.store(true, Ordering::Relaxed);
        let mut all = Ledger::default();
        for task in self.tasks {
            let ledger = task.await.attempt(|| "wait for a writer")??;
            all.acknowledged.extend(ledger.acknowledged);
            all.findings.extend(ledger.findings);
            all.refused += ledger.refused;
            all.doubtful += ledger.doubtful;
            all.happened += ledger.happened;
        }
        Ok(all)
    }
}

/// One client with keys of its own.
struct Writer {
    number: usize,
    client: Client,
    ledger: Ledger,
}

impl Writer {
    async fn run(mut self) -> Result<Ledger> {
        let mut random = Random::new(u64::try_from(self.number).unwrap_or_default());
        let keys = u64::try_from(KEYS_PER_WRITER).unwrap_or(1);
        while !self.client.shared.stop.load(Ordering::Relaxed) {
            let key = format!("key-{}-{}", self.number, random.below(keys));
            let number = self.ledger.acknowledged.get(&key).copied().unwrap_or(0) + 1;
            self.commit(&key, number).await?;
            self.ledger.acknowledged.insert(key, number);
            self.client.shared.commits.fetch_add(1, Ordering::Relaxed);
            let pause = random.below(PAUSE_MILLIS_MAX);
            tokio::time::sleep(Duration::from_millis(pause)).await;
        }
        Ok(self.ledger)
    }

    /// Commits until somebody says that it has happened.
    async fn commit(&mut self, key: &str, number: u64) -> Result<()> {
        let mut is_doubtful = false;
        loop {
            let Some(container) = self.client.container().await? else {
                tokio::time::sleep(PAUSE).await;
                continue;
            };
            let Err(error) = container.documents.commit(batch(key, number)).await else {
                return Ok(());
            };
            if error.kind() == ErrorKind::AlreadyExists {
                self.ledger.happened += 1;
                if !is_doubtful && error.effect() == Effect::None {
                    let report = error.report();
                    let finding = format!("{key} has number {number}, which was denied: {report}");
                    self.ledger.findings.push(finding);
                }
                return Ok(());
            }
            if error.effect() == Effect::None {
                self.ledger.refused += 1;
            } else {
                self.ledger.doubtful += 1;
                is_doubtful = true;
            }
            if error.kind() == ErrorKind::Invalid {
                return Err(Error::new(format!("commit to {key}")).because(error));
            }
            self.client.fail_over();
            tokio::time::sleep(PAUSE).await;
        }
    }
}

/// An entity and its event; the id of the event tells whether it has happened.
fn batch(key: &str, number: u64) -> Batch {
    let item = |id: &str| format!(r#"{{"id":"{id}","partitionKey":"{key}","number":{number}}}"#);
    Batch::new(key)
        .with(Operation::upsert(item(ENTITY)))
        .with(Operation::create(item(&format!("{EVENT}{number}"))))
}

/// A connection to one of the gateways.
struct Client {
    shared: Arc<Shared>,
    gateway: usize,
    container: Option<Container>,
}

impl Client {
    /// The container, through a gateway that is alive; none if the next one has to be tried.
    async fn container(&mut self) -> Result<Option<Container>> {
        if self.container.is_none() {
            let Shared { directory, gateways, clock, .. } = &*self.shared;
            let address = gateway::address(directory, self.gateway % gateways)?;
            let address = Address::parse(&address, None).attempt(|| "read an address")?;
            let options = CosmosOptions::default().call_timeout(CALL_TIMEOUT);
            let opened = match Cosmos::connect(&address, Arc::clone(clock), options).await {
                Ok(cosmos) => cosmos.open(&data_name(directory)?).await,
                Err(error) => Err(error),
            };
            match opened {
                Ok(container) => self.container = Some(container),
                Err(_) => self.fail_over(),
            }
        }
        Ok(self.container.clone())
    }

    fn fail_over(&mut self) {
        self.container = None;
        self.gateway += 1;
    }
}
