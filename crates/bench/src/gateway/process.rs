//! Servers that are processes: started, waited for, watched and ended.

use std::{
    env, fs,
    net::{Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use millstream_nats_servers::Port;
use tempfile::TempDir;

use crate::{
    Result,
    gateway::{
        http::{Connection, Signer},
        wire::Endpoint,
    },
    measure::{Stopwatch, Usage, resident_mib_of},
};

/// A server that does not answer by then does not start.
const START_TIME_MAX: Duration = Duration::from_secs(30);
const LOOK_INTERVAL: Duration = Duration::from_millis(1);
/// After this much rest a server is idle.
const REST: Duration = Duration::from_millis(500);

/// A command that will listen at an address.
#[derive(Debug)]
pub(super) struct Prepared {
    command: Command,
    pub(super) address: SocketAddr,
    port: Port,
    is_tls: bool,
}

/// How a start went.
#[derive(Clone, Copy, Debug)]
pub(super) struct Start {
    /// Until a request was answered.
    pub(super) milliseconds: f64,
    /// Once it had nothing to do.
    pub(super) resident_mib: f64,
}

/// A server that ends when this is dropped.
#[derive(Debug)]
pub(super) struct ServerProcess {
    child: Child,
    address: SocketAddr,
    endpoint: Endpoint,
    _port: Port,
    _place: TempDir,
}

/// Builds the program that users start, as this one was built, and says where it is.
pub(super) fn build() -> Result<PathBuf> {
    let own = env::current_exe()?;
    let directory = own.parent().ok_or("this program is in no directory")?;
    // Cargo names the directory after the profile, except for that of development.
    let profile = match directory.file_name().and_then(|it| it.to_str()) {
        None | Some("debug") => "dev",
        Some(name) => name,
    };
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let arguments = ["build", "--quiet", "--profile", profile, "--package", "millstream-cli"];
    let program = directory.join("millstream");
    let mut command = Command::new(cargo);
    // What it tells about the package of this program would make it build libraries again.
    for (name, _) in env::vars_os() {
        let bytes = name.as_encoded_bytes();
        if bytes.starts_with(b"CARGO_PKG_") || bytes.starts_with(b"CARGO_MANIFEST_") {
            command.env_remove(name);
        }
    }
    if command.args(arguments).status()?.success() && program.exists() {
        return Ok(program);
    }
    Err("could not build the program beside this one; start me with `cargo xtask bench`".into())
}

/// The program with its data in `place`.
pub(super) fn millstream(program: &Path, place: &Path) -> Result<Prepared> {
    let mut command = Command::new(program);
    let data = place.join("data");
    command.arg("up").arg("--store").arg(format!("file:{}", data.display()));
    let prepared = Prepared::new(command)?;
    let address = prepared.address.to_string();
    Ok(prepared.arguments(&["--listen", &address, "--log", "error"]))
}

impl Prepared {
    /// Finds a port that is free, and stays so until the server has ended.
    pub(super) fn new(command: Command) -> Result<Self> {
        let port = Port::free()?;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port.number()));
        Ok(Self { command, address, port, is_tls: false })
    }

    /// It listens for TLS alone.
    pub(super) fn tls(mut self) -> Self {
        self.is_tls = true;
        self
    }

    pub(super) fn arguments(mut self, arguments: &[&str]) -> Self {
        self.command.args(arguments);
        self
    }
}

impl ServerProcess {
    /// Starts a server and waits until it has answered a request.
    pub(super) async fn start(mut prepared: Prepared, place: TempDir) -> Result<(Self, Start)> {
        let errors_path = place.path().join("errors");
        let errors = fs::File::create(&errors_path)?;
        let request = Signer::new().request("GET", "/", &[], "")?;
        let command = prepared.command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(errors);
        let endpoint = match prepared.is_tls {
            true => Endpoint::tls(prepared.address)?,
            false => Endpoint::plain(prepared.address),
        };
        let stopwatch = Stopwatch::start();
        let child = command.spawn()?;
        let (address, _port) = (prepared.address, prepared.port);
        let mut server = Self { child, address, endpoint: endpoint.clone(), _port, _place: place };
        let mut connection = Connection::new(endpoint);
        while connection.exchange(&request).is_err() {
            let has_ended = server.child.try_wait()?.is_some();
            if has_ended || START_TIME_MAX < stopwatch.elapsed() {
                let errors = fs::read_to_string(&errors_path).unwrap_or_default();
                return Err(format!("a server did not start: {}", errors.trim()).into());
            }
            tokio::time::sleep(LOOK_INTERVAL).await;
        }
        let milliseconds = stopwatch.elapsed().as_secs_f64() * 1e3;
        tokio::time::sleep(REST).await;
        let resident_mib = server.resident_mib()?;
        Ok((server, Start { milliseconds, resident_mib }))
    }

    /// Where it is, as it listens.
    pub(super) fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Where it is for those who speak TLS.
    pub(super) fn tls_endpoint(&self) -> Result<Endpoint> {
        Endpoint::tls(self.address)
    }

    pub(super) fn usage(&self) -> Result<Usage> {
        Ok(Usage::of_family(self.child.id())?)
    }

    pub(super) fn resident_mib(&self) -> Result<f64> {
        Ok(resident_mib_of(&self.child.id().to_string())?)
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        // Its data goes away with it.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
