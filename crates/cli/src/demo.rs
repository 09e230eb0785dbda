//! The demonstration: a contacts service with a stream of changes, and two consumers.

use std::sync::Arc;

use axum::Router;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use contacts::{
    ContactContainers, ContactService, Generator, GeneratorOptions, GeneratorStatistics,
    ProjectionOptions, ProjectionStatistics, ReceiverStatistics, SearchIndex, SearchProjection,
    Tally, WebhookReceiver,
};
use millstream_core::IdSource;
use millstream_webhook::{Signer, Webhook, WebhookOptions};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::config::{Config, RelayConfig, SubscriptionConfig};
use crate::failure::{Failure, Result};
use crate::messages::{MessageService, Subscription};
use crate::relaying::{self, RelayPlan};
use crate::system::{DEMO_RELAY, DEMO_SOURCE, DEMO_SUBSCRIPTION, DEMO_WEBHOOK, System};

/// Everything of the demonstration, not running yet.
pub(crate) struct Demo {
    /// Its routes.
    pub(crate) router: Router,
    /// Its relays: to the broker and to the webhook.
    pub(crate) relays: Vec<RelayPlan>,
    /// What it counts.
    pub(crate) figures: DemoFigures,
    generator: Generator,
    projection: SearchProjection,
    receiving: MessageService,
}

/// What the parts of the demonstration count.
#[derive(Clone, Debug)]
pub(crate) struct DemoFigures {
    pub(crate) generator: Tally<GeneratorStatistics>,
    pub(crate) projection: Tally<ProjectionStatistics>,
    pub(crate) receiver: Tally<ReceiverStatistics>,
}

impl Demo {
    /// Prepares it on an open system; `address` is where the program itself will answer.
    pub(crate) async fn prepare(
        system: &System,
        config: &Config,
        address: &str,
        per_second: f64,
    ) -> Result<Self> {
        let clock = || Arc::clone(&system.clock);
        let store = &*system.store.containers;
        let mut containers = ContactContainers::prepare(store).await?;
        containers.data = system.traces.container(containers.data);
        let topic = RelayConfig {
            topic: DEMO_RELAY.to_owned(),
            subscriptions: vec![SubscriptionConfig::named(DEMO_SUBSCRIPTION)],
            ..RelayConfig::default()
        };
        system.messages.ensure_topic(&topic).await?;
        let service = ContactService::new(&containers.data, clock(), Arc::clone(&system.ids));
        let service = service.map_err(|error| Failure::other(error.report()))?;
        let index = SearchIndex::new(&containers.search);
        let index = index.map_err(|error| Failure::other(error.report()))?;
        let seed = system.ids.next_id().as_u64_pair().1;
        let options = GeneratorOptions::default().per_second(per_second).seed(seed);
        let generator = Generator::new(service.clone(), clock(), options);
        let path = format!("{DEMO_RELAY}/Subscriptions/{DEMO_SUBSCRIPTION}");
        let Subscription { subscriber, service: receiving } =
            system.messages.subscriber(DEMO_RELAY, DEMO_SUBSCRIPTION).await?;
        let subscriber = system.traces.subscriber(subscriber, &path);
        let options = ProjectionOptions::default();
        let projection = SearchProjection::new(subscriber, index.clone(), clock(), options);
        let signer = Signer::new(&secret(&*system.ids))?;
        let receiver = WebhookReceiver::new(Some(signer.clone()), clock());
        let options = WebhookOptions::default().signer(signer);
        let webhook = Webhook::new(&format!("http://{address}/hook"), options)?.clock(clock());
        let broker = system.messages.publisher(DEMO_RELAY).await?;
        let relay = |name: &str, publisher, options| RelayPlan {
            name: name.to_owned(),
            data: containers.data.clone(),
            publisher,
            options,
        };
        let webhook =
            relay(DEMO_WEBHOOK, Arc::new(webhook), relaying::webhook_options(config, DEMO_SOURCE));
        let broker = relay(DEMO_RELAY, broker, relaying::options(config, DEMO_SOURCE));
        Ok(Self {
            router: contacts::router(service)
                .merge(contacts::search_router(index))
                .merge(receiver.router()),
            relays: vec![broker, webhook],
            figures: DemoFigures {
                generator: generator.statistics(),
                projection: projection.statistics(),
                receiver: receiver.statistics(),
            },
            generator,
            projection,
            receiving,
        })
    }

    /// Starts the changes and the consumer.
    pub(crate) fn start(self, tasks: &mut JoinSet<()>, shutdown: &CancellationToken) {
        tasks.spawn(self.generator.run(shutdown.clone()));
        tasks.spawn(self.projection.run(shutdown.clone()));
        tasks.spawn(self.receiving.run(shutdown.clone()));
    }
}

/// A secret that nobody knows and nothing shows.
pub(crate) fn secret(ids: &dyn IdSource) -> String {
    let mut key = Vec::new();
    for _ in 0..2 {
        key.extend_from_slice(ids.next_id().as_bytes());
    }
    format!("whsec_{}", STANDARD.encode(key))
}
