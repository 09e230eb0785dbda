use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use futures_lite::future::{block_on, or, yield_now};
use millstream_core::memory::Memory;
use millstream_core::{
    Batch, BatchOutcome, Clock, Container, ContainerName, ContainerSettings, Containers,
    CountingIds, Documents, Error, ErrorKind, Item, ItemId, ManualClock, Message, PageSize,
    PartitionKey, PartitionKeyDefinition, Result, ScanContinuation, ScanPage, ScanScope,
    Settlement, Timestamp,
};
use tokio_util::sync::CancellationToken;

use crate::{Broker, BrokerOptions, BrokerService, ReceiveMode, Received};

/// What goes wrong with a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// It happens, but the answer is lost.
    LostReply,
    /// It does not happen, and nobody can tell.
    LostRequest,
    /// It does not happen.
    Refused,
    /// It happens right before the next commit to the same partition, whoever makes that.
    Late,
}

/// Documents some of whose commits go wrong.
pub(super) struct Faulty {
    inner: Arc<dyn Documents>,
    commits: AtomicU64,
    plan: Mutex<FaultPlan>,
    /// What is still on its way.
    late: Mutex<Option<Batch>>,
}

/// Which commits go wrong.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct FaultPlan {
    /// The commit with this number, and what happens to it.
    pub(super) at: Option<(u64, Fault)>,
    /// Everything after it goes wrong, too.
    pub(super) for_ever: bool,
}

#[async_trait]
impl Documents for Faulty {
    async fn read(&self, key: &PartitionKey, id: &ItemId) -> Result<Option<Item>> {
        yield_now().await;
        self.inner.read(key, id).await
    }

    async fn commit(&self, batch: Batch) -> Result<BatchOutcome> {
        yield_now().await;
        let number = self.commits.fetch_add(1, Ordering::SeqCst);
        let plan = *self.plan.lock().unwrap();
        let error = Error::new(ErrorKind::Unavailable, "commit").because("a planned fault");
        let is_same = |it: &mut Batch| it.partition_key == batch.partition_key;
        let late = self.late.lock().unwrap().take_if(is_same);
        if let Some(late) = late {
            // Whoever wanted it does not hear what became of it.
            let _ = self.inner.commit(late).await;
        }
        match plan.at {
            Some((at, Fault::LostReply)) if at == number => {
                self.inner.commit(batch).await?;
                Err(error.with_unknown_effect())
            }
            Some((at, Fault::LostRequest)) if at == number => Err(error.with_unknown_effect()),
            Some((at, Fault::Refused)) if at == number => Err(error),
            Some((at, Fault::Late)) if at == number => {
                *self.late.lock().unwrap() = Some(batch);
                Err(error.with_unknown_effect())
            }
            Some((at, _)) if plan.for_ever && at < number => Err(error),
            _ => self.inner.commit(batch).await,
        }
    }

    async fn scan(
        &self,
        scope: &ScanScope,
        after: Option<&ScanContinuation>,
        size: PageSize,
    ) -> Result<ScanPage> {
        self.inner.scan(scope, after, size).await
    }
}

/// A container that outlives the brokers in it.
pub(super) struct World {
    pub(super) clock: Arc<ManualClock>,
    pub(super) container: Container,
    pub(super) faulty: Arc<Faulty>,
    pub(super) options: BrokerOptions,
    /// Lets time pass while something waits.
    pub(super) ticks: bool,
    ids: Arc<CountingIds>,
}

impl World {
    pub(super) fn new() -> Self {
        let clock = Arc::new(ManualClock::starting_at(Timestamp::from_millis(1_000_000)));
        let memory = Memory::new(clock.clone());
        let container = block_on(async {
            memory.create_database("app").await?;
            let name = ContainerName::new("app", "broker")?;
            let key = PartitionKeyDefinition::hash("/partitionKey")?;
            memory.create(&name, ContainerSettings::new(key)).await?;
            memory.open(&name).await
        });
        let mut container = container.unwrap();
        let inner = Arc::clone(&container.documents);
        let (commits, plan, late) = (AtomicU64::new(0), Mutex::default(), Mutex::default());
        let faulty = Arc::new(Faulty { inner, commits, plan, late });
        container.documents = faulty.clone();
        let options = BrokerOptions::default();
        Self { clock, container, faulty, options, ticks: false, ids: Arc::default() }
    }

    /// Plans faults; commits are counted from now on.
    pub(super) fn plan(&self, plan: FaultPlan) {
        self.faulty.commits.store(0, Ordering::SeqCst);
        *self.faulty.plan.lock().unwrap() = plan;
    }

    pub(super) fn commits(&self) -> u64 {
        self.faulty.commits.load(Ordering::SeqCst)
    }

    pub(super) fn wait(&self, seconds: u64) {
        self.clock.advance(Duration::from_secs(seconds));
    }

    /// Opens the broker, does something with it, and drops everything as a crash does.
    pub(super) fn run<T>(&self, work: impl AsyncFnOnce(&Broker) -> T) -> T {
        let ticking = async {
            if !self.ticks {
                return std::future::pending().await;
            }
            loop {
                self.clock.advance(Duration::from_millis(1));
                yield_now().await;
            }
        };
        let outcome = block_on(or(self.live(work), ticking));
        outcome.expect("the service does not end by itself")
    }

    /// Opens the broker.
    pub(super) async fn open(&self) -> Result<(Broker, BrokerService)> {
        let options = self.options.clone();
        let clock: Arc<dyn Clock> = self.clock.clone();
        Broker::open(&self.container, options, clock, self.ids.clone()).await
    }

    async fn live<T>(&self, work: impl AsyncFnOnce(&Broker) -> T) -> Option<T> {
        let (broker, service) = self.open().await.unwrap();
        let work = async { Some(work(&broker).await) };
        let service = async {
            service.run(CancellationToken::new()).await;
            None
        };
        or(work, service).await
    }

    /// Lets so much time pass, and everybody do what it brings.
    pub(super) async fn pass(&self, seconds: u64) {
        for _ in 0..seconds {
            self.clock.advance(Duration::from_secs(1));
            for _ in 0..50 {
                yield_now().await;
            }
        }
    }

    /// The bytes of all documents whose ids begin like this.
    pub(super) fn bytes(&self, prefix: &str) -> usize {
        let scope = ScanScope::Keys(millstream_core::KeyRange::all());
        let size = PageSize { items_max: PageSize::ITEMS_MAX, bytes_max: PageSize::BYTES_MAX };
        let page = block_on(self.faulty.inner.scan(&scope, None, size)).unwrap();
        let items = page.items.iter().filter(|it| it.id.as_str().starts_with(prefix));
        items.map(|it| it.body.len()).sum()
    }

    /// How many documents there are.
    pub(super) fn documents(&self, prefix: &str) -> usize {
        let scope = ScanScope::Keys(millstream_core::KeyRange::all());
        let size = PageSize { items_max: PageSize::ITEMS_MAX, bytes_max: PageSize::BYTES_MAX };
        let page = block_on(self.faulty.inner.scan(&scope, None, size)).unwrap();
        page.items.iter().filter(|it| it.id.as_str().starts_with(prefix)).count()
    }
}

/// `a1` is a message of session `a` with that subject.
pub(super) fn message(id: &str) -> Message {
    Message::new(id, format!("body of {id}")).session(&id[..1]).subject(&id[..1])
}

pub(super) fn messages(text: &str) -> Vec<Message> {
    text.split_whitespace().map(message).collect()
}

pub(super) fn ids(received: &[Received]) -> String {
    let ids: Vec<&str> = received.iter().map(|it| it.delivery.message.id.as_str()).collect();
    ids.join(" ")
}

pub(super) fn tokens(received: &[Received]) -> Vec<&str> {
    received.iter().map(|it| it.delivery.lock_token.as_str()).collect()
}

/// Receives without waiting.
pub(super) async fn take(broker: &Broker, path: &str, count: usize) -> Vec<Received> {
    broker.receive(path, ReceiveMode::PeekLock, count, Duration::ZERO).await.unwrap()
}

pub(super) async fn settle(
    broker: &Broker,
    path: &str,
    received: &[Received],
    settlement: Settlement,
) {
    broker.settle(path, &tokens(received), &settlement).await.unwrap();
}
