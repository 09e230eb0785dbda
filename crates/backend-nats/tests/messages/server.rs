//! Real servers, on ports of their own and in a temporary directory, stopped with the test.

use std::env;
use std::time::Duration;

use millstream_backend_nats::{Connection, ConnectionOptions, NatsTopic, TopicOptions};
use millstream_nats_servers::NatsServers;

const ATTEMPTS_MAX: u32 = 300;
const PAUSE: Duration = Duration::from_millis(100);

/// One server, or a cluster.
pub(crate) struct Servers(NatsServers);

impl Servers {
    /// Starts so many servers.
    ///
    /// Where there is no `nats-server` the test fails: what it proves cannot be skipped in silence.
    pub(crate) fn start(count: usize) -> Self {
        Self(NatsServers::start(&env::temp_dir(), count).unwrap())
    }

    /// The address of all of them.
    pub(crate) fn url(&self) -> String {
        let replicas = if self.0.count() < 3 { 1 } else { 3 };
        format!("{}?replicas={replicas}&timeout=2", self.0.url())
    }

    pub(crate) async fn connect(&self) -> Connection {
        let options = ConnectionOptions::parse(&self.url()).unwrap();
        let mut failure = None;
        for _ in 0..ATTEMPTS_MAX {
            match Connection::open(options.clone()).await {
                Ok(connection) => return connection,
                Err(error) => failure = Some(error.report()),
            }
            tokio::time::sleep(PAUSE).await;
        }
        panic!("no server answers: {failure:?}");
    }

    /// A topic, as soon as the servers have found together.
    pub(crate) async fn topic(&self, name: &str, options: &TopicOptions) -> NatsTopic {
        let connection = self.connect().await;
        let mut failure = None;
        for _ in 0..ATTEMPTS_MAX {
            match NatsTopic::open(&connection, name, options).await {
                Ok(topic) => return topic,
                Err(error) => failure = Some(error.report()),
            }
            tokio::time::sleep(PAUSE).await;
        }
        panic!("the servers did not find together: {failure:?}");
    }

    /// Starts a server again.
    pub(crate) fn run(&mut self, index: usize) {
        self.0.restart(index).unwrap();
    }

    /// Kills a server with SIGKILL.
    pub(crate) fn kill(&mut self, index: usize) {
        self.0.kill(index);
    }
}
