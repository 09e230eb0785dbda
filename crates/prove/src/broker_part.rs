//! The process of the broker.

use std::path::Path;
use std::time::Duration;

use millstream_broker::{
    Broker, BrokerOptions, BrokerSession, ReceiveMode, ReceiveSettings, SubscriptionSettings,
    TopicSettings,
};
use millstream_core::{Error, ErrorKind, SessionReceiver, Settlement};
use millstream_crash::{Attempt, Result};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

use crate::part::PartOptions;
use crate::patience::reaching;
use crate::remote::{address_file, greeting};
use crate::wire::{Answer, LINE_BYTES_MAX, Request, WireDelivery, WireError};
use crate::world::{BrokerWorld, unless_exists};

const TOPIC: &str = "accounts";
const SUBSCRIPTION: &str = "projection";
const PATH: &str = "accounts/Subscriptions/projection";
/// How long a session stays with a consumer that was killed.
pub(crate) const LOCK_DURATION: Duration = Duration::from_millis(500);
/// A consumer that is killed all the time must not lose a message to the dead letters.
const DELIVERY_COUNT_MAX: u32 = 2000;

/// Serves the broker of a directory until it is killed.
pub(crate) async fn serve(options: &PartOptions) -> Result<()> {
    let world = BrokerWorld::open(&options.directory).await?;
    let open = async || {
        let (clock, ids) = (world.clock.clone(), world.ids.clone());
        Broker::open(&world.messages, BrokerOptions::default(), clock, ids).await
    };
    let (broker, service) = reaching(open).await.attempt(|| "open the broker")?;
    tokio::spawn(service.run(CancellationToken::new()));
    create(&broker, options.detects_duplicates).await?;
    let listener = TcpListener::bind("127.0.0.1:0").await.attempt(|| "listen")?;
    let address = listener.local_addr().attempt(|| "listen")?;
    announce(&options.directory, &address.to_string())?;
    loop {
        let (stream, _) = listener.accept().await.attempt(|| "accept a connection")?;
        let (broker, expected) = (broker.clone(), greeting(&options.directory));
        // A connection ends when the process at its other end does.
        tokio::spawn(async move { drop(talk(stream, &broker, &expected).await) });
    }
}

/// Unless it detects duplicates, whatever a relay repeats gets to the inbox.
async fn create(broker: &Broker, detects_duplicates: bool) -> Result<()> {
    let mut topic = TopicSettings::default();
    if !detects_duplicates {
        topic.duplicate_window = None;
    }
    reaching(async || unless_exists(broker.create_topic(TOPIC, topic.clone()).await))
        .await
        .attempt(|| "create the topic")?;
    let receive = ReceiveSettings {
        lock_duration: LOCK_DURATION,
        delivery_count_max: DELIVERY_COUNT_MAX,
        ..ReceiveSettings::with_sessions()
    };
    let settings = SubscriptionSettings { receive, ..SubscriptionSettings::default() };
    reaching(async || {
        let settings = settings.clone();
        unless_exists(broker.create_subscription(TOPIC, SUBSCRIPTION, settings).await)
    })
    .await
    .attempt(|| "create the subscription")
}

/// Says where it listens, so that nobody reads half of it.
fn announce(directory: &Path, address: &str) -> Result<()> {
    let file = address_file(directory);
    let draft = file.with_extension("draft");
    std::fs::write(&draft, address).attempt(|| "write the address of the broker")?;
    std::fs::rename(&draft, &file).attempt(|| "write the address of the broker")
}

/// Answers one connection, which has at most one session.
async fn talk(stream: TcpStream, broker: &Broker, expected: &str) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut stream = BufReader::new(stream);
    let mut greeting = String::new();
    (&mut stream).take(LINE_BYTES_MAX).read_line(&mut greeting).await?;
    if greeting != expected {
        return Ok(());
    }
    let mut session: Option<BrokerSession> = None;
    loop {
        let mut line = String::new();
        if (&mut stream).take(LINE_BYTES_MAX).read_line(&mut line).await? == 0 {
            return Ok(());
        }
        let request: Request = serde_json::from_str(&line)?;
        let outcome = answer(broker, &mut session, request).await;
        let answer = outcome.unwrap_or_else(|error| Answer::Failed(WireError::from(&error)));
        let mut line = serde_json::to_string(&answer)?;
        line.push('\n');
        stream.get_mut().write_all(line.as_bytes()).await?;
    }
}

async fn answer(
    broker: &Broker,
    session: &mut Option<BrokerSession>,
    request: Request,
) -> millstream_core::Result<Answer> {
    let current = || {
        let error = Error::new(ErrorKind::PreconditionFailed, "use a session");
        session.as_ref().ok_or_else(|| error.because("this connection has none"))
    };
    Ok(match request {
        Request::Publish(messages) => {
            broker.send(TOPIC, messages.into_iter().map(Into::into).collect()).await?;
            Answer::Done
        }
        Request::Accept { wait_millis } => {
            let wait = Duration::from_millis(wait_millis);
            *session = broker.accept_session(PATH, None, wait).await?;
            Answer::Session(session.as_ref().map(|it| it.session_id().to_owned()))
        }
        Request::Receive { messages_max, wait_millis } => {
            let wait = Duration::from_millis(wait_millis);
            let mode = ReceiveMode::PeekLock;
            let received = current()?.receive_with(mode, messages_max, wait).await?;
            Answer::Messages(received.iter().map(|it| WireDelivery::from(&it.delivery)).collect())
        }
        Request::Complete(tokens) => {
            let tokens: Vec<&str> = tokens.iter().map(String::as_str).collect();
            let settled = current()?.settle_each(&tokens, &Settlement::Complete).await?;
            if !settled.iter().all(|it| *it) {
                let error = Error::new(ErrorKind::PreconditionFailed, "complete messages");
                return Err(error.because("a lock is gone"));
            }
            Answer::Done
        }
        Request::Renew => {
            current()?.renew_lock()?;
            Answer::Done
        }
        Request::Close => {
            current()?.close().await?;
            Answer::Done
        }
        Request::Counts => {
            let counts = broker.counts(PATH)?;
            Answer::Counts { active: counts.active, dead_lettered: counts.dead_lettered }
        }
    })
}
