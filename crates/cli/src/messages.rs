//! The broker of a system: the one in its store, or topics on NATS.

use std::sync::Arc;
use std::time::Duration;

use millstream_backend_nats::{
    Connection, NatsSubscriberService, NatsTopic, SubscriptionOptions, TopicOptions,
};
use millstream_broker::{Broker, BrokerService, TopicSettings};
use millstream_core::{ErrorKind, Publisher, Subscriber};
use tokio_util::sync::CancellationToken;

use crate::config::{RelayConfig, SubscriptionConfig, differences};
use crate::failure::{Failure, Result};

/// Where messages are.
#[derive(Clone, Debug)]
pub(crate) enum Messages {
    /// In a container of the store; only this process can use them.
    Own(Broker),
    /// On NATS; any number of processes can.
    Nats(Arc<Connection>),
}

/// What has to run for messages to go through.
pub(crate) enum MessageService {
    Own(BrokerService),
    /// Somebody else does it.
    Nothing,
    Receiving(NatsSubscriberService),
}

/// A subscription and what has to run for it.
pub(crate) struct Subscription {
    pub(crate) subscriber: Arc<dyn Subscriber>,
    pub(crate) service: MessageService,
}

impl Messages {
    /// Makes sure that a topic and its subscriptions exist, as the settings say.
    pub(crate) async fn ensure_topic(&self, relay: &RelayConfig) -> Result<()> {
        match self {
            Self::Own(broker) => {
                ensure_own_topic(broker, relay).await?;
                for subscription in &relay.subscriptions {
                    ensure_own_subscription(broker, &relay.topic, subscription).await?;
                }
            }
            Self::Nats(connection) => ensure_nats_topic(connection, relay).await?,
        }
        Ok(())
    }

    /// Sends to a topic.
    pub(crate) async fn publisher(&self, topic: &str) -> Result<Arc<dyn Publisher>> {
        Ok(match self {
            Self::Own(broker) => Arc::new(broker.publisher(topic)),
            Self::Nats(connection) => Arc::new(open(connection, topic).await?.publisher()),
        })
    }

    /// Sends to one subscription of a topic alone.
    pub(crate) fn publisher_to_one(
        &self,
        topic: &str,
        subscription: &str,
    ) -> Result<Arc<dyn Publisher>> {
        match self {
            Self::Own(broker) => {
                let path = format!("{topic}/Subscriptions/{subscription}");
                // Without events nothing would be sent that could show that the name is wrong.
                broker.counts(&path)?;
                Ok(Arc::new(broker.publisher_to_one(path)))
            }
            Self::Nats(_) => Err(Failure::usage(
                "topics on NATS have no messages for one subscription alone: replay to the topic",
            )),
        }
    }

    /// Receives from a subscription.
    pub(crate) async fn subscriber(&self, topic: &str, name: &str) -> Result<Subscription> {
        Ok(match self {
            Self::Own(broker) => Subscription {
                subscriber: Arc::new(broker.subscriber(format!("{topic}/Subscriptions/{name}"))),
                service: MessageService::Nothing,
            },
            Self::Nats(connection) => {
                let topic = open(connection, topic).await?;
                let (subscriber, service) =
                    topic.subscribe(name, SubscriptionOptions::default()).await?;
                let service = MessageService::Receiving(service);
                Subscription { subscriber: Arc::new(subscriber), service }
            }
        })
    }
}

impl MessageService {
    /// Runs until `shutdown`.
    pub(crate) async fn run(self, shutdown: CancellationToken) {
        match self {
            Self::Own(service) => service.run(shutdown).await,
            Self::Nothing => shutdown.cancelled().await,
            Self::Receiving(service) => service.run(shutdown).await,
        }
    }
}

/// Opens a topic with the options that all processes of the program agree on.
pub(crate) async fn open(connection: &Connection, topic: &str) -> Result<NatsTopic> {
    Ok(NatsTopic::open(connection, topic, &TopicOptions::default()).await?)
}

async fn ensure_own_topic(broker: &Broker, relay: &RelayConfig) -> Result<()> {
    let topic = relay.topic.as_str();
    let new = relay.topic_over(&TopicSettings::default());
    if was_made(broker.create_topic(topic, new).await)? {
        return Ok(());
    }
    let found = broker.topics().into_iter().find(|(name, _)| name.eq_ignore_ascii_case(topic));
    let Some((_, current)) = found else {
        let sentence = format!("relay.topic is {topic:?}, which is a queue: name another topic");
        return Err(Failure::usage(sentence));
    };
    let wanted = relay.topic_over(&current);
    if wanted != current {
        broker.update_topic(topic, wanted).await?;
        tracing::info!(topic, changed = "duplicate_window_seconds", "topic changed");
    }
    Ok(())
}

async fn ensure_own_subscription(
    broker: &Broker,
    topic: &str,
    config: &SubscriptionConfig,
) -> Result<()> {
    let name = config.name.as_str();
    if was_made(broker.create_subscription(topic, name, config.settings()?).await)? {
        return Ok(());
    }
    let all = broker.subscriptions(topic)?;
    let found = all.into_iter().find(|(it, _)| it.eq_ignore_ascii_case(name));
    let Some((_, current)) = found else { return Ok(()) };
    let mut wanted = config.over(&current)?;
    if wanted.receive.requires_session != current.receive.requires_session {
        tracing::warn!(
            topic,
            subscription = name,
            sessions = current.receive.requires_session,
            "whether a subscription has sessions cannot be changed; make another one, or remove \
             this one first"
        );
        wanted.receive.requires_session = current.receive.requires_session;
    }
    if wanted != current {
        let changed = differences(&current, &wanted);
        broker.update_subscription(topic, name, wanted).await?;
        tracing::info!(topic, subscription = name, changed, "subscription changed");
    }
    Ok(())
}

async fn ensure_nats_topic(connection: &Connection, relay: &RelayConfig) -> Result<()> {
    let mut options = TopicOptions::default();
    let window = relay.duplicate_window_seconds.map(Duration::from_secs);
    options.duplicate_window = window.unwrap_or(options.duplicate_window);
    let topic = NatsTopic::open(connection, &relay.topic, &options).await?;
    if window.is_some_and(|it| it != topic.duplicate_window()) {
        tracing::warn!(
            topic = relay.topic,
            duplicate_window_seconds = topic.duplicate_window().as_secs(),
            "the topic exists and keeps its duplicate window, which is not that of the settings"
        );
    }
    for subscription in &relay.subscriptions {
        topic.create_subscription(&subscription.name, false).await?;
    }
    Ok(())
}

/// Whether it was made; it may have been there.
fn was_made(outcome: millstream_core::Result<()>) -> Result<bool> {
    match outcome {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(false),
        Err(error) => Err(error.into()),
    }
}
