//! The broker of a system: the one in its store, or topics on NATS.

use std::sync::Arc;

use millstream_backend_nats::{
    Connection, NatsSubscriberService, NatsTopic, SubscriptionOptions, TopicOptions,
};
use millstream_broker::{Broker, BrokerService, SubscriptionSettings, TopicSettings};
use millstream_core::{ErrorKind, Publisher, Subscriber};
use tokio_util::sync::CancellationToken;

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
    /// Makes sure that a topic and its subscriptions exist.
    pub(crate) async fn ensure_topic(&self, topic: &str, subscriptions: &[String]) -> Result<()> {
        match self {
            Self::Own(broker) => {
                unless_exists(broker.create_topic(topic, TopicSettings::default()).await)?;
                for name in subscriptions {
                    let settings = SubscriptionSettings::with_sessions();
                    unless_exists(broker.create_subscription(topic, name, settings).await)?;
                }
            }
            Self::Nats(connection) => {
                let topic = open(connection, topic).await?;
                for name in subscriptions {
                    topic.create_subscription(name, false).await?;
                }
            }
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

fn unless_exists<T>(outcome: millstream_core::Result<T>) -> Result<()> {
    match outcome {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(error.into()),
        Ok(_) | Err(_) => Ok(()),
    }
}
