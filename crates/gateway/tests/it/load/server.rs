//! The server of the load test: this program once more.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use millstream_core::{Clock, RandomIds, SystemClock};
use millstream_gateway::{Gateway, GatewayOptions, Server, ServerLimits, Tls};
use millstream_store::Store;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// Names the directory of the data; without it the server's test does nothing.
const DIRECTORY: &str = "MILLSTREAM_LOAD_DIRECTORY";
const SAYS: &str = "listening on ";
/// How long the server waits for who says nothing, or too little. No client of the test that means
/// well is silent for so long, however busy the machine is.
pub(super) const IDLE_MAX: Duration = Duration::from_secs(20);
/// How long to wait for what comes soon.
const WAIT_MAX: Duration = Duration::from_secs(60);
const WAIT_STEP: Duration = Duration::from_millis(50);

/// A gateway in a process of its own.
pub(super) struct ServerProcess {
    process: Child,
    /// It ends when its input does.
    input: Option<ChildStdin>,
    /// Somebody has to listen until then.
    _output: BufReader<ChildStdout>,
    address: SocketAddr,
    directory: tempfile::TempDir,
}

impl ServerProcess {
    pub(super) fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let errors = fs::File::create(directory.path().join("errors")).unwrap();
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "load::server::the_server_of_the_load_test", "--nocapture"])
            .env(DIRECTORY, directory.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(errors)
            .spawn()
            .unwrap();
        let input = process.stdin.take();
        let mut output = BufReader::new(process.stdout.take().unwrap());
        let said = output.by_ref().lines().map(Result::unwrap);
        let said = said.filter_map(|it| Some(it.split_once(SAYS)?.1.to_owned())).next();
        let address = said.expect("the server says where it listens").parse().unwrap();
        Self { process, input, _output: output, address, directory }
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// The certificate that clients are to trust.
    pub(super) fn certificate(&self) -> Vec<u8> {
        let path = fs::read_to_string(self.directory.path().join("certificate")).unwrap();
        fs::read(path).unwrap()
    }

    /// Open sockets.
    pub(super) fn sockets(&self) -> usize {
        self.descriptors().iter().filter(|it| it.starts_with("socket:")).count()
    }

    /// Open descriptors that are no sockets.
    pub(super) fn files(&self) -> usize {
        self.descriptors().len() - self.sockets()
    }

    /// Memory in use.
    pub(super) fn resident_kib(&self) -> u64 {
        let status = fs::read_to_string(self.place("status")).unwrap();
        let line = status.lines().find_map(|it| it.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches("kB").trim().parse().unwrap()
    }

    /// Waits until no more than these sockets are open.
    pub(super) async fn wait_for_sockets(&self, expected: usize) {
        let mut rounds = WAIT_MAX.as_millis() / WAIT_STEP.as_millis();
        while expected < self.sockets() {
            assert!(0 < rounds, "{} sockets are open, {expected} were", self.sockets());
            rounds -= 1;
            tokio::time::sleep(WAIT_STEP).await;
        }
    }

    /// Stops the server, which has nothing to complain of.
    pub(super) fn stop(mut self) {
        drop(self.input.take());
        let status = self.process.wait().unwrap();
        let errors = fs::read_to_string(self.directory.path().join("errors")).unwrap();
        assert!(!errors.contains("panicked"), "{errors}");
        assert!(status.success(), "{status}: {errors}");
    }

    fn descriptors(&self) -> Vec<String> {
        // One that is closed meanwhile leads nowhere.
        let entries = fs::read_dir(self.place("fd")).unwrap();
        let links = entries.filter_map(|it| fs::read_link(it.ok()?.path()).ok());
        links.map(|it| it.to_string_lossy().into_owned()).collect()
    }

    fn place(&self, name: &str) -> PathBuf {
        PathBuf::from(format!("/proc/{}/{name}", self.process.id()))
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        // After a failure; one that was stopped is gone already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Not a test of its own: what the load test starts.
#[test]
fn the_server_of_the_load_test() {
    let Ok(directory) = std::env::var(DIRECTORY) else { return };
    let directory = PathBuf::from(directory);
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::default());
        let ids = Arc::new(RandomIds::new(Arc::clone(&clock)));
        let store = Arc::new(Store::open(directory.join("data")).unwrap());
        let mut options = GatewayOptions::default();
        options.body_timeout = IDLE_MAX;
        let gateway = Gateway::open(store, clock, ids, options).await.unwrap();
        let tls = Tls::self_signed(&directory.join("tls"), &["localhost".to_owned()]).unwrap();
        let certificate = tls.certificate().to_str().unwrap().to_owned();
        fs::write(directory.join("certificate"), certificate).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut limits = ServerLimits::default();
        limits.handshake_timeout = IDLE_MAX;
        limits.idle_timeout = IDLE_MAX;
        limits.write_timeout = IDLE_MAX;
        let shutdown = CancellationToken::new();
        let input = tokio::task::spawn_blocking({
            let shutdown = shutdown.clone();
            move || {
                let _ = std::io::stdin().read_to_end(&mut Vec::new());
                shutdown.cancel();
            }
        });
        writeln!(std::io::stdout(), "{SAYS}{address}").unwrap();
        let server = Server::new(listener, gateway.router()).gateway(gateway);
        server.limits(limits).tls(tls).run(shutdown).await;
        input.await.unwrap();
    });
}
