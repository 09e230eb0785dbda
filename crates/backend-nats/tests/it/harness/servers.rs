//! Real `nats-server` processes on free ports and in temporary directories.

use std::env;
use std::fs;
use std::io::Write;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::LazyLock;
use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// One server, or three that replicate.
pub(crate) struct Servers {
    nodes: Vec<Node>,
    _directory: TempDir,
}

struct Node {
    config: PathBuf,
    process_file: PathBuf,
    log: PathBuf,
    root: PathBuf,
    port: u16,
    /// None while it is stopped.
    guardian: Mutex<Option<Child>>,
}

impl Servers {
    /// The server that the tests of this process share; none if no server is installed.
    pub(crate) fn single() -> Option<&'static Self> {
        static SHARED: LazyLock<Option<Servers>> = LazyLock::new(|| Servers::start(1));
        SHARED.as_ref()
    }

    /// The cluster that the tests of this process share.
    pub(crate) fn cluster() -> Option<&'static Self> {
        static SHARED: LazyLock<Option<Servers>> = LazyLock::new(|| Servers::start(3));
        SHARED.as_ref()
    }

    /// Starts servers of one's own.
    pub(crate) fn start(count: usize) -> Option<Self> {
        Self::start_with(count, "")
    }

    /// Starts servers with more lines in their configuration.
    pub(crate) fn start_with(count: usize, more: &str) -> Option<Self> {
        let program = program()?;
        let directory = tempfile::Builder::new().prefix("nats-").tempdir().unwrap();
        let ports: Vec<(u16, u16)> =
            free_ports(2 * count).chunks(2).map(|it| (it[0], it[1])).collect();
        let routes: Vec<String> =
            ports.iter().map(|(_, port)| format!("\"nats://127.0.0.1:{port}\"")).collect();
        let nodes = ports.iter().enumerate().map(|(number, (port, cluster_port))| {
            let home = directory.path().join(format!("node-{number}"));
            fs::create_dir(&home).unwrap();
            let mut text = format!(
                "server_name: node-{number}\nlisten: \"127.0.0.1:{port}\"\nmax_payload: 4MB\n\
                 jetstream {{ store_dir: \"{}\" }}\n{more}\n",
                home.display(),
            );
            if 1 < count {
                let routes = routes.join(", ");
                text.push_str(&format!(
                    "cluster {{ name: test, listen: \"127.0.0.1:{cluster_port}\", \
                     routes: [{routes}] }}\n",
                ));
            }
            let config = home.join("server.conf");
            fs::write(&config, text).unwrap();
            let (process_file, log) = (home.join("process"), home.join("log"));
            let root = directory.path().to_owned();
            let guardian = Mutex::default();
            Node { config, process_file, log, root, port: *port, guardian }
        });
        let servers = Self { nodes: nodes.collect(), _directory: directory };
        for node in &servers.nodes {
            node.start(&program);
        }
        Some(servers)
    }

    pub(crate) fn url(&self) -> String {
        let hosts = self.nodes.iter().map(|it| format!("127.0.0.1:{}", it.port));
        format!("nats://{}", hosts.collect::<Vec<_>>().join(","))
    }

    pub(crate) fn replicas(&self) -> usize {
        self.nodes.len()
    }

    /// Ends a server at once, as if its machine had lost power.
    pub(crate) fn kill(&self, node: usize) {
        self.nodes[node].signal(Signal::KILL);
        self.nodes[node].wait();
    }

    /// Starts a server again with what it has on disk.
    pub(crate) fn restart(&self, node: usize) {
        self.nodes[node].start(&program().expect("it was there before"));
    }

    /// Cuts a server off: it neither answers nor notices anything.
    pub(crate) fn freeze(&self, node: usize) {
        self.nodes[node].signal(Signal::STOP);
    }

    /// Lets it go on where it was.
    pub(crate) fn thaw(&self, node: usize) {
        self.nodes[node].signal(Signal::CONT);
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        for node in &self.nodes {
            node.signal(Signal::CONT);
            node.signal(Signal::KILL);
            node.wait();
        }
    }
}

impl Node {
    /// Starts it below a shell that ends it when this process ends, however that happens: then
    /// nobody holds the other end of its input any more. It also removes what is on disk, unless it
    /// is told that this is only a restart.
    fn start(&self, program: &Path) {
        let _ = fs::remove_file(&self.process_file);
        // A shell gives what it starts in the background no input, hence the third descriptor.
        let script = "exec 3<&0; \"$1\" -c \"$2\" -P \"$3\" >>\"$4\" 2>&1 3<&- & server=$!; \
                      (read word <&3; kill -CONT $server; kill -9 $server; \
                      [ -n \"$word\" ] || rm -rf \"$5\") 2>/dev/null & wait $server";
        let guardian = Command::new("sh")
            .args(["-c", script, "sh"])
            .args([program, &self.config, &self.process_file, &self.log, &self.root])
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        *self.guardian.lock().unwrap() = Some(guardian);
        for _ in 0..500 {
            if self.process().is_some() {
                return;
            }
            thread::sleep(Duration::from_millis(20));
        }
        let log = fs::read_to_string(&self.log).unwrap_or_default();
        panic!("a NATS server did not start: {log}");
    }

    fn process(&self) -> Option<Pid> {
        let text = fs::read_to_string(&self.process_file).ok()?;
        Pid::from_raw(text.trim().parse().ok()?)
    }

    fn signal(&self, signal: Signal) {
        if self.guardian.lock().unwrap().is_some()
            && let Some(process) = self.process()
        {
            let _ = kill_process(process, signal);
        }
    }

    /// Waits for its end; it must have been killed.
    fn wait(&self) {
        if let Some(mut guardian) = self.guardian.lock().unwrap().take() {
            if let Some(mut input) = guardian.stdin.take() {
                let _ = input.write_all(b"restart\n");
            }
            let _ = guardian.wait();
        }
    }
}

/// Where the server is: named by a variable, or on the path.
fn program() -> Option<PathBuf> {
    let named = env::var_os("MILLSTREAM_NATS_SERVER").map(PathBuf::from);
    let path = env::var_os("PATH").unwrap_or_default();
    let mut on_path = env::split_paths(&path).map(|it| it.join("nats-server"));
    let found = named.or_else(|| on_path.find(|it| it.is_file()));
    if found.is_some() {
        return found;
    }
    let required = env::var("MILLSTREAM_TEST_REQUIRE").unwrap_or_default();
    let is_required = required.split(',').any(|it| it == "nats");
    assert!(!is_required, "nats-server is not on the path, and this run requires it");
    eprintln!(
        "SKIPPED: nats-server is not on the path; install it, or name it in MILLSTREAM_NATS_SERVER"
    );
    None
}

/// Ports that nobody uses now. They are all taken at the same time, so that they differ.
fn free_ports(count: usize) -> Vec<u16> {
    let listeners: Vec<_> =
        (0..count).map(|_| TcpListener::bind("127.0.0.1:0").expect("a free port")).collect();
    listeners.iter().map(|it| it.local_addr().expect("it is bound").port()).collect()
}
