//! What the ports for messages promise.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use async_trait::async_trait;
use futures_lite::future::block_on;
use millstream_core::conformance::MessageSubject;
use millstream_core::memory::Memory;
use millstream_core::{
    Clock, ContainerName, ContainerSettings, Containers, PartitionKeyDefinition, PropertyValue,
    Publisher, RandomIds, Subscriber, SystemClock,
};
use tokio_util::sync::CancellationToken;

use crate::{Broker, BrokerOptions, QueueSettings, ReceiveMode, ReceiveSettings};

const QUEUE: &str = "q";
const LOCK_DURATION: Duration = Duration::from_millis(500);

/// A queue in memory whose service has a thread of its own.
struct Queue {
    broker: Broker,
    shutdown: CancellationToken,
}

impl Drop for Queue {
    fn drop(&mut self) {
        self.shutdown.cancel();
    }
}

async fn make() -> Queue {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::default());
    let memory = Memory::new(Arc::clone(&clock));
    memory.create_database("app").await.unwrap();
    let name = ContainerName::new("app", "broker").unwrap();
    let key = PartitionKeyDefinition::hash("/partitionKey").unwrap();
    memory.create(&name, ContainerSettings::new(key)).await.unwrap();
    let container = memory.open(&name).await.unwrap();
    let ids = Arc::new(RandomIds::new(Arc::clone(&clock)));
    let options = BrokerOptions::default();
    let (broker, service) = Broker::open(&container, options, clock, ids).await.unwrap();
    let shutdown = CancellationToken::new();
    let stop = shutdown.clone();
    thread::spawn(move || block_on(service.run(stop)));
    let receive = ReceiveSettings {
        lock_duration: LOCK_DURATION,
        delivery_count_max: 3,
        ..ReceiveSettings::with_sessions()
    };
    let settings = QueueSettings { receive, ..QueueSettings::default() };
    broker.create_queue(QUEUE, settings).await.unwrap();
    Queue { broker, shutdown }
}

#[async_trait]
impl MessageSubject for Queue {
    async fn publisher(&self) -> Arc<dyn Publisher> {
        Arc::new(self.broker.publisher(QUEUE))
    }

    async fn subscriber(&self) -> Arc<dyn Subscriber> {
        Arc::new(self.broker.subscriber(QUEUE))
    }

    /// The broker is in one process with its receivers; what is left of one that died is its lock.
    async fn crash(&self) {}

    fn lock_duration(&self) -> Duration {
        LOCK_DURATION
    }

    fn delivery_count_max(&self) -> u32 {
        3
    }

    fn patience(&self) -> Duration {
        Duration::from_secs(10)
    }

    async fn dead_letters(&self) -> Vec<(String, String)> {
        let path = format!("{QUEUE}/$DeadLetterQueue");
        let mode = ReceiveMode::PeekLock;
        let received = self.broker.receive(&path, mode, 100, Duration::ZERO).await.unwrap();
        let reason =
            |it: &crate::Received| match it.delivery.message.properties.get("DeadLetterReason") {
                Some(PropertyValue::String(reason)) => reason.clone(),
                other => panic!("{other:?} is no reason"),
            };
        received.iter().map(|it| (it.delivery.message.id.clone(), reason(it))).collect()
    }
}

millstream_core::message_conformance_tests!(make, block_on);
