use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use futures_lite::future::{block_on, zip};
use millstream_core::memory::Memory;
use millstream_core::{
    Batch, Container, ContainerName, ContainerSettings, Containers, Error, ErrorKind, Message,
    Operation, PartitionKeyDefinition, PublishLimits, Publisher, Result, SystemClock, TimeToLive,
    Timestamp,
};
use millstream_processor::ProcessorOptions;
use millstream_relay::{Relay, RelayOptions, StartedRelay};
use tokio_util::sync::CancellationToken;

/// A publisher that keeps what it takes, and fails as it is told.
pub(crate) struct Scripted {
    pub(crate) taken: Mutex<Vec<Message>>,
    pub(crate) calls: Mutex<usize>,
    /// What the next calls say; after the last they succeed.
    pub(crate) failures: Mutex<VecDeque<Failure>>,
    pub(crate) limits: PublishLimits,
    /// Whether it says that it holds messages back until they are due.
    pub(crate) can_schedule: bool,
    expected: usize,
    pub(crate) done: CancellationToken,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Failure {
    /// Nothing was kept.
    Down,
    /// Everything was kept, but the answer was lost.
    AnswerLost,
    /// Fails for a reason that is neither outage nor refusal.
    Odd,
}

impl Scripted {
    /// Stops the relay once so many messages were taken.
    pub(crate) fn new(expected: usize) -> Self {
        let limits = PublishLimits {
            message_bytes_max: 2_000,
            batch_bytes_max: 10_000,
            batch_messages_max: 10,
        };
        Self {
            taken: Mutex::default(),
            calls: Mutex::default(),
            failures: Mutex::default(),
            limits,
            can_schedule: false,
            expected,
            done: CancellationToken::new(),
        }
    }

    pub(crate) fn failing(self, failures: &[Failure]) -> Self {
        self.failures.lock().unwrap().extend(failures);
        self
    }

    /// The ids of what was taken, in order.
    pub(crate) fn ids(&self) -> Vec<String> {
        self.taken.lock().unwrap().iter().map(|it| it.id.clone()).collect()
    }
}

#[async_trait]
impl Publisher for Scripted {
    fn limits(&self) -> PublishLimits {
        self.limits
    }

    fn can_schedule(&self) -> bool {
        self.can_schedule
    }

    async fn publish(&self, messages: Vec<Message>) -> Result<()> {
        *self.calls.lock().unwrap() += 1;
        let unavailable = || Error::new(ErrorKind::Unavailable, "reach the broker");
        let failure = self.failures.lock().unwrap().pop_front();
        match failure {
            Some(Failure::Down) => return Err(unavailable()),
            Some(Failure::Odd) => return Err(Error::new(ErrorKind::Corrupt, "understand it")),
            Some(Failure::AnswerLost) | None => (),
        }
        let refused = messages.iter().position(|it| it.subject.as_deref() == Some("Refused"));
        if let Some(refused) = refused {
            let error = Error::invalid("send a message", "this kind is not welcome");
            return Err(error.at_operation(refused));
        }
        let failing = messages.iter().position(|it| it.subject.as_deref() == Some("Failing"));
        if let Some(failing) = failing {
            return Err(unavailable().at_operation(failing));
        }
        let mut taken = self.taken.lock().unwrap();
        taken.extend(messages);
        let ids: std::collections::BTreeSet<_> = taken.iter().map(|it| &it.id).collect();
        if self.expected <= ids.len() {
            self.done.cancel();
        }
        if let Some(Failure::AnswerLost) = failure {
            return Err(unavailable().with_unknown_effect());
        }
        Ok(())
    }
}

pub(crate) struct World {
    pub(crate) data: Container,
    pub(crate) leases: Container,
}

impl World {
    pub(crate) fn new() -> Self {
        block_on(async {
            let store = Memory::new(Arc::new(SystemClock::default()));
            store.create_database("app").await.unwrap();
            let by_key = PartitionKeyDefinition::hash("/partitionKey").unwrap();
            let mut settings = ContainerSettings::new(by_key).default_ttl(TimeToLive::Never);
            settings.ranges = 2;
            let mut opened = Vec::new();
            for name in ["data", "leases"] {
                let name = ContainerName::new("app", name).unwrap();
                store.create(&name, settings.clone()).await.unwrap();
                opened.push(store.open(&name).await.unwrap());
            }
            let leases = opened.pop().unwrap();
            Self { data: opened.pop().unwrap(), leases }
        })
    }

    /// Commits an entity and an event of its key together.
    pub(crate) fn commit(&self, key: &str, event: &str, action: &str, padding: usize) {
        self.commit_with(key, event, action, padding, "");
    }

    /// Commits an event that is not to be delivered before.
    pub(crate) fn commit_for(&self, due: Timestamp, key: &str, event: &str, action: &str) {
        let further = format!(r#""deliverAt":"{}","#, due.to_rfc3339());
        self.commit_with(key, event, action, 0, &further);
    }

    fn commit_with(&self, key: &str, event: &str, action: &str, padding: usize, further: &str) {
        let entity = format!(r#"{{"id":"{key}","partitionKey":"{key}","type":"thing"}}"#);
        let event = format!(
            r#"{{"id":"{event}","partitionKey":"{key}","type":"domainEvent","action":"{action}",
            "entityId":"{key}","createdAt":"2026-11-15T10:00:00.000Z","ttl":864000,{further}
            "traceparent":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "baggage":"tenant=7","data":{{"n":1e400,"padding":"{}"}}}}"#,
            "x".repeat(padding),
        );
        let batch = Batch::new(key).with(Operation::upsert(entity)).with(Operation::create(event));
        block_on(self.data.documents.commit(batch)).unwrap();
    }

    pub(crate) fn options() -> RelayOptions {
        let defaults = RelayOptions::default();
        let processor = ProcessorOptions::default()
            .start(millstream_processor::StartPosition::Beginning)
            .backoff(Duration::from_millis(1), Duration::from_millis(5))
            .round_interval(Duration::from_millis(50))
            .batch_items_max(50);
        defaults.processor(processor).source("test")
    }

    pub(crate) fn started(&self, options: RelayOptions, publisher: &Arc<Scripted>) -> StartedRelay {
        let relay = Relay::new(&self.data, &self.leases, "relay").options(options);
        block_on(relay.start(publisher.clone())).unwrap()
    }

    /// Relays until the publisher has what it expects.
    pub(crate) fn relay(&self, publisher: &Arc<Scripted>) {
        let started = self.started(Self::options(), publisher);
        block_on(started.run(publisher.done.clone())).unwrap();
    }

    /// Relays until the publisher has what it expects and so many keys were parked.
    pub(crate) fn relay_until_parked(&self, publisher: &Arc<Scripted>, parked: usize) {
        let mut started = self.started(Self::options(), publisher);
        let mut notifications = started.notifications();
        let stop = CancellationToken::new();
        let watch = async {
            let mut seen = 0;
            while seen < parked {
                let Some(notification) = notifications.next().await else { break };
                let is_parked =
                    matches!(notification, millstream_processor::Notification::Parked { .. });
                seen += usize::from(is_parked);
            }
            publisher.done.cancelled().await;
            stop.cancel();
        };
        let (_, outcome) = block_on(zip(watch, started.run(stop.clone())));
        outcome.unwrap();
    }
}
