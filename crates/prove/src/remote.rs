//! The broker as another process sees it.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use millstream_core::{
    BoxFuture, Delivery, Error, ErrorKind, Message, Result, SessionReceiver, Settlement, Subscriber,
};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::sync::Mutex;

use crate::wire::{Answer, LINE_BYTES_MAX, Request, WireMessage};

/// How long an answer may take beyond what was asked for. A broker that was stopped for longer
/// counts as gone.
const PATIENCE: Duration = Duration::from_secs(2);

/// The file in which the broker says where it listens.
pub(crate) fn address_file(directory: &Path) -> PathBuf {
    directory.join("broker.address")
}

/// What a connection begins with. While a broker is dead, that of another proof may get its port;
/// it hangs up on whoever wants another one.
pub(crate) fn greeting(directory: &Path) -> String {
    format!("{}\n", directory.display())
}

/// The broker of a directory, wherever it listens now. A cheap clone.
#[derive(Clone, Debug)]
pub(crate) struct RemoteBroker {
    directory: Arc<Path>,
}

/// How many messages the broker has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RemoteCounts {
    pub(crate) active: usize,
    pub(crate) dead_lettered: usize,
}

impl RemoteBroker {
    pub(crate) fn new(directory: &Path) -> Self {
        Self { directory: directory.into() }
    }

    /// Publishes; an error that is not a refusal leaves open what was kept.
    pub(crate) async fn publish(&self, messages: &[Message]) -> Result<()> {
        let request = Request::Publish(messages.iter().map(WireMessage::from).collect());
        self.connect().await?.ask(&request, Duration::ZERO).await.map(drop)
    }

    pub(crate) async fn counts(&self) -> Result<RemoteCounts> {
        let answer = self.connect().await?.ask(&Request::Counts, Duration::ZERO).await?;
        let Answer::Counts { active, dead_lettered } = answer else {
            return Err(unexpected(&answer));
        };
        Ok(RemoteCounts { active, dead_lettered })
    }

    async fn connect(&self) -> Result<Connection> {
        let address = tokio::fs::read_to_string(address_file(&self.directory)).await;
        let address = address.map_err(|error| unreachable(&error))?;
        let connecting = TcpStream::connect(address.trim());
        let stream = tokio::time::timeout(PATIENCE, connecting).await;
        let stream = stream.map_err(|error| unreachable(&error))?;
        let stream = stream.map_err(|error| unreachable(&error))?;
        stream.set_nodelay(true).map_err(|error| unreachable(&error))?;
        let mut stream = BufReader::new(stream);
        let greeted = stream.get_mut().write_all(greeting(&self.directory).as_bytes()).await;
        greeted.map_err(|error| unreachable(&error))?;
        Ok(Connection { stream })
    }
}

#[async_trait]
impl Subscriber for RemoteBroker {
    async fn accept_session(&self, wait: Duration) -> Result<Option<Box<dyn SessionReceiver>>> {
        let mut connection = self.connect().await?;
        let request = Request::Accept { wait_millis: millis(wait) };
        let answer = connection.ask(&request, wait).await?;
        let Answer::Session(id) = answer else { return Err(unexpected(&answer)) };
        let Some(id) = id else { return Ok(None) };
        Ok(Some(Box::new(RemoteSession { id, connection: Mutex::new(connection) })))
    }
}

struct RemoteSession {
    id: String,
    connection: Mutex<Connection>,
}

impl RemoteSession {
    async fn ask(&self, request: Request, wait: Duration) -> Result<Answer> {
        self.connection.lock().await.ask(&request, wait).await
    }
}

impl SessionReceiver for RemoteSession {
    fn session_id(&self) -> &str {
        &self.id
    }

    fn receive(&self, messages_max: usize, wait: Duration) -> BoxFuture<'_, Result<Vec<Delivery>>> {
        Box::pin(async move {
            let request = Request::Receive { messages_max, wait_millis: millis(wait) };
            let answer = self.ask(request, wait).await?;
            let Answer::Messages(messages) = answer else { return Err(unexpected(&answer)) };
            Ok(messages.into_iter().map(Into::into).collect())
        })
    }

    fn settle<'a>(
        &'a self,
        deliveries: &'a [Delivery],
        settlement: Settlement,
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            if settlement != Settlement::Complete {
                return Err(Error::invalid("settle", "the proof only completes messages"));
            }
            let tokens = deliveries.iter().map(|it| it.lock_token.clone()).collect();
            self.ask(Request::Complete(tokens), Duration::ZERO).await.map(drop)
        })
    }

    fn renew(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move { self.ask(Request::Renew, Duration::ZERO).await.map(drop) })
    }

    fn close(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move { self.ask(Request::Close, Duration::ZERO).await.map(drop) })
    }
}

struct Connection {
    stream: BufReader<TcpStream>,
}

impl Connection {
    /// Asks one thing; after an error the connection is good for nothing.
    async fn ask(&mut self, request: &Request, wait: Duration) -> Result<Answer> {
        let exchange = async {
            let mut line = serde_json::to_string(request).map_err(|error| unreachable(&error))?;
            line.push('\n');
            let sent = self.stream.get_mut().write_all(line.as_bytes()).await;
            sent.map_err(|error| unreachable(&error))?;
            let mut answer = String::new();
            let read = (&mut self.stream).take(LINE_BYTES_MAX).read_line(&mut answer).await;
            read.map_err(|error| unreachable(&error))?;
            let answer: Answer =
                serde_json::from_str(&answer).map_err(|error| unreachable(&error))?;
            answer.check()
        };
        let late = |error| unreachable(&error);
        tokio::time::timeout(wait + PATIENCE, exchange).await.map_err(late)?
    }
}

/// The broker is gone, or was gone when its answer was due: nobody knows what it did.
fn unreachable(error: &dyn std::error::Error) -> Error {
    let unreachable = Error::new(ErrorKind::Unavailable, "reach the broker");
    unreachable.because(error.to_string()).with_unknown_effect()
}

fn unexpected(answer: &Answer) -> Error {
    Error::new(ErrorKind::Corrupt, "understand the broker").because(format!("it said {answer:?}"))
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
