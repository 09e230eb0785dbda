//! What the ports for messages promise, on one server.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use millstream_backend_nats::{NatsTopic, SubscriptionOptions, TopicOptions};
use millstream_core::conformance::MessageSubject;
use millstream_core::{Publisher, Subscriber};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::server::Servers;

const SUBSCRIPTION: &str = "search";
/// More than any promise takes, crash and all, on a machine that has other things to do.
const TEST_MAX: Duration = Duration::from_secs(300);

pub(crate) struct Topic {
    pub(crate) topic: NatsTopic,
    services: Mutex<Vec<JoinHandle<()>>>,
    _servers: Servers,
}

/// Longer than a machine that has other things to do keeps anybody waiting: a lane that is lost in
/// the middle of a promise would look like a broken one.
pub(crate) fn options() -> SubscriptionOptions {
    SubscriptionOptions {
        lock_duration: Duration::from_secs(3),
        delivery_count_max: 3,
        backoff_first: Duration::from_millis(20),
        lease_duration: Duration::from_secs(4),
        ..SubscriptionOptions::default()
    }
}

impl Topic {
    pub(crate) async fn new(servers: Servers) -> Self {
        let options = TopicOptions { lanes: 4, ..TopicOptions::default() };
        let topic = servers.topic("contacts", &options).await;
        topic.create_subscription(SUBSCRIPTION, true).await.unwrap();
        Self { topic, services: Mutex::default(), _servers: servers }
    }
}

#[async_trait]
impl MessageSubject for Topic {
    async fn publisher(&self) -> Arc<dyn Publisher> {
        Arc::new(self.topic.publisher())
    }

    async fn subscriber(&self) -> Arc<dyn Subscriber> {
        let (subscriber, service) = self.topic.subscribe(SUBSCRIPTION, options()).await.unwrap();
        let running = tokio::spawn(service.run(CancellationToken::new()));
        self.services.lock().unwrap().push(running);
        Arc::new(subscriber)
    }

    async fn crash(&self) {
        for service in self.services.lock().unwrap().drain(..) {
            service.abort();
        }
    }

    fn lock_duration(&self) -> Duration {
        options().lock_duration
    }

    fn delivery_count_max(&self) -> u32 {
        options().delivery_count_max
    }

    fn patience(&self) -> Duration {
        Duration::from_secs(60)
    }

    async fn dead_letters(&self) -> Vec<(String, String)> {
        let letters = self.topic.dead_letters(SUBSCRIPTION).unwrap();
        let found = letters.list(0, 100).await.unwrap();
        found.into_iter().map(|it| (it.message.id, it.reason)).collect()
    }
}

async fn make() -> Topic {
    Topic::new(Servers::start(1)).await
}

pub(crate) fn block_on(future: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        tokio::time::timeout(TEST_MAX, future).await.expect("it takes too long")
    });
}

millstream_core::message_conformance_tests!(make, block_on);

/// The same on a cluster of three.
mod on_a_cluster {
    use crate::conformance::{Topic, block_on};
    use crate::server::Servers;

    async fn make() -> Topic {
        Topic::new(Servers::start(3)).await
    }

    millstream_core::message_conformance_tests!(make, block_on);
}
