use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use async_nats::HeaderMap;
use async_nats::jetstream::context::ContextBuilder;
use async_nats::jetstream::stream::{Config, DiscardPolicy, RetentionPolicy, StorageType, Stream};
use async_nats::jetstream::{Context, ErrorCode};
use async_nats::{Client, jetstream};
use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt};
use millstream_core::{Clock, Error, ErrorKind, IdSource, Result};

use crate::connection::Connection;
use crate::messages::aside::DeadLetters;
use crate::messages::names::{SubscriptionNames, TopicNames};
use crate::messages::options::{SubscriptionOptions, TopicOptions};
use crate::messages::publisher::NatsPublisher;
use crate::messages::record::{self, About, RECORD_VERSION};
use crate::messages::service::NatsSubscriberService;
use crate::messages::subscriber::{NatsSubscriber, Shared};
use crate::messages::wire::{call_error, newest, put};

/// What the lanes of a topic are stored as; they cannot be changed.
const LANES: &str = "millstream-lanes";
/// What a topic is called.
const NAME: &str = "millstream-topic";
/// Longest time one call to the server may take.
const CALL_MAX: Duration = Duration::from_secs(2);
/// Messages that wait for their answer.
const ANSWERS_MAX: usize = 4096;
/// How often a subscription is looked for that somebody else makes at the same moment, and the
/// pause in between.
const ATTEMPTS_MAX: u32 = 20;
const PAUSE: Duration = Duration::from_millis(100);
/// What the server adds to a message beside its headers and body.
const OVERHEAD: usize = 1024;

/// A topic on JetStream. A cheap clone.
#[derive(Clone, Debug)]
pub struct NatsTopic {
    pub(crate) shared: Arc<TopicShared>,
}

/// What everything that belongs to a topic needs.
#[derive(Debug)]
pub(crate) struct TopicShared {
    pub(crate) name: String,
    pub(crate) names: TopicNames,
    pub(crate) lanes: u32,
    pub(crate) duplicate_window: Duration,
    pub(crate) client: Client,
    pub(crate) context: Context,
    /// The stream of the messages.
    pub(crate) messages: Stream<()>,
    /// The stream of the subscriptions.
    pub(crate) subscriptions: Stream<()>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) ids: Arc<dyn IdSource>,
    bytes_max: usize,
}

impl NatsTopic {
    /// Opens the topic, making it if it does not exist. One that exists keeps its options.
    ///
    /// # Errors
    ///
    /// `Invalid` if the options are out of bounds, or a stream of this name is no topic;
    /// `Unavailable` if the server cannot be reached.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future may leave the topic made or not; call it again.
    pub async fn open(connection: &Connection, name: &str, options: &TopicOptions) -> Result<Self> {
        options.check()?;
        let (client, chosen) = (connection.client(), connection.options());
        let names = TopicNames::new(&chosen.prefix, name)?;
        let replicas = chosen.replicas;
        let context = ContextBuilder::new()
            .timeout(CALL_MAX)
            .max_ack_inflight(ANSWERS_MAX)
            .backpressure_on_inflight(true)
            .build(client.clone());
        let found = ensure(&context, topic_config(name, &names, options, replicas)).await?;
        ensure(&context, subscriptions_config(&names, replicas)).await?;
        let attempted = || format!("open the topic {name:?}");
        let lanes = found.metadata.get(LANES).and_then(|it| it.parse().ok());
        let Some(lanes) = lanes else {
            let reason = format!("the stream {:?} belongs to something else", names.stream);
            return Err(Error::invalid(attempted(), reason));
        };
        let stream = async |name: &str| {
            let stream = context.get_stream_no_info(name).await;
            stream.map_err(|error| call_error(attempted(), error))
        };
        let shared = TopicShared {
            name: name.to_owned(),
            lanes,
            duplicate_window: found.duplicate_window,
            client: client.clone(),
            messages: stream(&names.stream).await?,
            subscriptions: stream(&names.subscriptions).await?,
            context,
            names,
            clock: Arc::clone(&chosen.clock),
            ids: Arc::clone(&chosen.ids),
            bytes_max: options.message_bytes_max,
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// The names of all topics of the connection's prefix.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    pub async fn list(connection: &Connection) -> Result<Vec<String>> {
        let prefix = TopicNames::prefix(&connection.options().prefix);
        let mut found = Vec::new();
        let mut streams = connection.jetstream().streams();
        while let Some(info) = streams.next().await {
            let info = info.map_err(|error| call_error("list the topics", error))?;
            let is_topic = info.config.name.starts_with(&prefix);
            found.extend(info.config.metadata.get(NAME).filter(|_| is_topic).cloned());
        }
        found.sort_unstable();
        Ok(found)
    }

    /// The name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.shared.name
    }

    /// Into how many lanes sessions are divided.
    #[must_use]
    pub fn lanes(&self) -> u32 {
        self.shared.lanes
    }

    /// How long it knows the ids of messages.
    #[must_use]
    pub fn duplicate_window(&self) -> Duration {
        self.shared.duplicate_window
    }

    /// Checks what a topic or subscription is to be called.
    ///
    /// # Errors
    ///
    /// `Invalid` if the name is empty or too long.
    pub fn check_name(name: &str) -> Result<()> {
        TopicNames::new("name", name).map(|_| ())
    }

    /// Sends to the topic.
    #[must_use]
    pub fn publisher(&self) -> NatsPublisher {
        NatsPublisher::new(Arc::clone(&self.shared))
    }

    /// Makes a subscription, unless it exists.
    ///
    /// # Errors
    ///
    /// `Invalid` if the name is empty or too long.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future may leave it made or not; call it again.
    pub async fn create_subscription(&self, name: &str, from_beginning: bool) -> Result<()> {
        let names = self.shared.names.subscription(name)?;
        let attempted = || format!("create the subscription {name:?}");
        for _ in 0..ATTEMPTS_MAX {
            if self.shared.about(&names).await?.is_some() {
                return Ok(());
            }
            let mut stream = self.shared.messages().await?;
            let info = stream.info().await.map_err(|error| call_error(attempted(), error))?;
            let after = if from_beginning {
                info.state.first_sequence.saturating_sub(1)
            } else {
                info.state.last_sequence
            };
            let about = About { version: RECORD_VERSION, name: name.to_owned(), after };
            let body = Bytes::from(record::write("description", &about)?);
            let context = &self.shared.context;
            match put(context, names.about(), HeaderMap::new(), body, Some(0)).await {
                // Somebody else makes it at the same moment, which may still come to nothing.
                Err(error) if error.kind() == ErrorKind::PreconditionFailed => {
                    self.shared.clock.sleep(PAUSE).await;
                }
                Err(error) => return Err(error),
                Ok(_) => return Ok(()),
            }
        }
        let error = Error::new(ErrorKind::Unavailable, attempted()).with_unknown_effect();
        Err(error.because("others try to create it, too, and nobody gets an answer"))
    }

    /// Receives from a subscription, which is made unless it exists. Any number of processes may
    /// do so; they share its lanes. Nothing is received unless the service runs.
    ///
    /// # Errors
    ///
    /// `Invalid` if the options are out of bounds.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future may leave the subscription made or not.
    pub async fn subscribe(
        &self,
        name: &str,
        options: SubscriptionOptions,
    ) -> Result<(NatsSubscriber, NatsSubscriberService)> {
        options.check()?;
        self.create_subscription(name, options.from_beginning).await?;
        let names = self.shared.names.subscription(name)?;
        let shared = Arc::new(Shared::new(Arc::clone(&self.shared), name, names, options));
        Ok((NatsSubscriber::new(Arc::clone(&shared)), NatsSubscriberService::new(shared)))
    }

    /// The messages of a subscription that went aside.
    ///
    /// # Errors
    ///
    /// `Invalid` if the name is empty or too long.
    pub fn dead_letters(&self, subscription: &str) -> Result<DeadLetters> {
        let names = self.shared.names.subscription(subscription)?;
        Ok(DeadLetters::new(Arc::clone(&self.shared), names))
    }

    /// The names of the subscriptions.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    pub async fn subscriptions(&self) -> Result<Vec<String>> {
        let mut found = Vec::new();
        for (_, about) in self.shared.all_subscriptions().await? {
            found.push(about.name);
        }
        found.sort_unstable();
        Ok(found)
    }

    /// Removes a subscription with its dead letters; its messages no longer stay because of it.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future may leave it removed or not; call it again.
    pub async fn delete_subscription(&self, name: &str) -> Result<()> {
        let names = self.shared.names.subscription(name)?;
        let purged = self.shared.subscriptions.purge().filter(names.all()).await;
        purged.map_err(|error| call_error(format!("delete the subscription {name:?}"), error))?;
        Ok(())
    }

    /// Removes the topic with everything in it.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future may leave it removed or not; call it again.
    pub async fn delete(self) -> Result<()> {
        let TopicShared { context, names, name, .. } = &*self.shared;
        for stream in [&names.subscriptions, &names.stream] {
            let deleted = context.delete_stream(stream).await;
            deleted.map_err(|error| call_error(format!("delete the topic {name:?}"), error))?;
        }
        Ok(())
    }
}

impl TopicShared {
    /// The largest message, which the server may bound more tightly than the options.
    pub(crate) fn message_bytes_max(&self) -> usize {
        let server = self.client.server_info().max_payload;
        self.bytes_max.min(server.saturating_sub(OVERHEAD))
    }

    /// The description of a subscription.
    pub(crate) async fn about(&self, names: &SubscriptionNames) -> Result<Option<About>> {
        let Some(message) = newest(&self.subscriptions, &names.about()).await? else {
            return Ok(None);
        };
        record::read("description", &message.payload).map(Some)
    }

    /// Every subscription with its subjects.
    pub(crate) async fn all_subscriptions(&self) -> Result<Vec<(SubscriptionNames, About)>> {
        let mut found = Vec::new();
        for subject in self.subjects(self.names.descriptions()).await? {
            let Some(names) = TopicNames::described(&subject) else { continue };
            if let Some(about) = self.about(&names).await? {
                found.push((names, about));
            }
        }
        Ok(found)
    }

    /// The subjects of subscriptions that match.
    pub(crate) async fn subjects(&self, filter: String) -> Result<Vec<String>> {
        let attempted = || format!("list {filter:?}");
        let found = self.subscriptions.info_builder().subjects(filter.clone()).fetch().await;
        let mut found = found.map_err(|error| call_error(attempted(), error))?;
        let mut subjects = Vec::new();
        while let Some(next) = found.try_next().await.transpose() {
            subjects.push(next.map_err(|error| call_error(attempted(), error))?.0);
        }
        Ok(subjects)
    }

    async fn messages(&self) -> Result<Stream> {
        let attempted = || format!("look at the topic {:?}", self.name);
        let found = self.context.get_stream(&self.names.stream).await;
        found.map_err(|error| call_error(attempted(), error))
    }
}

/// Makes a stream unless it exists, and returns how it is.
async fn ensure(context: &Context, config: Config) -> Result<Config> {
    let attempted = format!("make the stream {:?}", config.name);
    let name = config.name.clone();
    match context.create_stream(config).await {
        Ok(stream) => return Ok(stream.cached_info().config.clone()),
        Err(error) if is_taken(&error) => (),
        Err(error) => return Err(call_error(attempted, error)),
    }
    match context.get_stream(&name).await {
        Ok(stream) => Ok(stream.cached_info().config.clone()),
        Err(error) => Err(call_error(attempted, error)),
    }
}

/// Whether a stream of this name exists with other settings.
fn is_taken(error: &jetstream::context::CreateStreamError) -> bool {
    matches!(
        error.kind(),
        jetstream::context::CreateStreamErrorKind::JetStream(error)
            if error.error_code() == ErrorCode::STREAM_NAME_EXIST
    )
}

fn topic_config(name: &str, names: &TopicNames, options: &TopicOptions, replicas: usize) -> Config {
    let bytes_max = options.bytes_max.and_then(|it| i64::try_from(it).ok());
    Config {
        name: names.stream.clone(),
        subjects: vec![names.messages()],
        retention: RetentionPolicy::Limits,
        storage: StorageType::File,
        num_replicas: replicas,
        duplicate_window: options.duplicate_window,
        max_age: options.age_max.unwrap_or_default(),
        max_bytes: bytes_max.unwrap_or(-1),
        discard: DiscardPolicy::New,
        allow_direct: true,
        allow_message_ttl: true,
        allow_atomic_publish: true,
        metadata: HashMap::from([
            (LANES.to_owned(), options.lanes.to_string()),
            (NAME.to_owned(), name.to_owned()),
        ]),
        ..Config::default()
    }
}

fn subscriptions_config(names: &TopicNames, replicas: usize) -> Config {
    Config {
        name: names.subscriptions.clone(),
        subjects: vec![names.of_subscriptions()],
        retention: RetentionPolicy::Limits,
        storage: StorageType::File,
        num_replicas: replicas,
        max_messages_per_subject: 1,
        allow_message_ttl: true,
        ..Config::default()
    }
}
