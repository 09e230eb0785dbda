//! Real `nats-server` processes on ports of their own and in temporary directories.

use std::env;
use std::fs;
use std::io::Write;
use std::net::{Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::LazyLock;
use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::harness::ports::Port;
use crate::harness::proxies::Proxy;

/// How often a server that was started is looked for; more than any machine needs.
const LOOKS_MAX: u32 = 1500;
const PAUSE: Duration = Duration::from_millis(40);

/// One server, or three that replicate.
pub(crate) struct Servers {
    nodes: Vec<Node>,
    /// What lies between them, if that can be cut.
    network: Option<Network>,
    _directory: TempDir,
}

struct Node {
    config: PathBuf,
    process_file: PathBuf,
    log: PathBuf,
    root: PathBuf,
    clients: Port,
    routes: Port,
    /// None while it is stopped.
    guardian: Mutex<Option<Child>>,
}

/// A way to each server for clients, and one from each server to each other.
struct Network {
    clients: Vec<Proxy>,
    routes: Vec<(usize, usize, Proxy)>,
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
        Self::run(count, more, false)
    }

    /// Starts three servers with a network that can be cut.
    pub(crate) fn start_apart() -> Option<Self> {
        Self::run(3, "", true)
    }

    fn run(count: usize, more: &str, apart: bool) -> Option<Self> {
        let program = program()?;
        let directory = tempfile::Builder::new().prefix("nats-").tempdir().unwrap();
        let nodes: Vec<Node> = (0..count).map(|it| Node::new(directory.path(), it)).collect();
        let network = apart.then(|| Network::between(&nodes));
        for (number, node) in nodes.iter().enumerate() {
            let mut text = node.settings(number, more);
            if 1 < count {
                text += &node.cluster(&ways_from(number, &nodes, network.as_ref()), apart);
            }
            fs::write(&node.config, text).unwrap();
        }
        let servers = Self { nodes, network, _directory: directory };
        for node in &servers.nodes {
            node.start(&program);
        }
        Some(servers)
    }

    pub(crate) fn url(&self) -> String {
        let ports: Vec<u16> = match &self.network {
            Some(network) => network.clients.iter().map(|it| it.port.number).collect(),
            None => self.nodes.iter().map(|it| it.clients.number).collect(),
        };
        let hosts: Vec<String> = ports.iter().map(|it| format!("127.0.0.1:{it}")).collect();
        format!("nats://{}", hosts.join(","))
    }

    pub(crate) fn replicas(&self) -> usize {
        self.nodes.len()
    }

    /// The number of the server of this name.
    pub(crate) fn number(&self, name: &str) -> usize {
        (0..self.nodes.len()).find(|it| server_name(*it) == name).expect("it is one of ours")
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

    /// Stops a server: it neither answers nor notices anything.
    pub(crate) fn freeze(&self, node: usize) {
        self.nodes[node].signal(Signal::STOP);
    }

    /// Lets it go on where it was.
    pub(crate) fn thaw(&self, node: usize) {
        self.nodes[node].signal(Signal::CONT);
    }

    /// Cuts a server off from the others and from clients; it goes on by itself.
    pub(crate) fn cut(&self, node: usize) {
        self.cut_routes(node);
        self.network().clients[node].cut();
    }

    /// Cuts a server off from the others, but not from its clients.
    pub(crate) fn cut_routes(&self, node: usize) {
        self.network().of(node).for_each(Proxy::cut);
    }

    /// Mends every way to a server.
    pub(crate) fn mend(&self, node: usize) {
        self.network().of(node).for_each(Proxy::mend);
        self.network().clients[node].mend();
    }

    fn network(&self) -> &Network {
        self.network.as_ref().expect("they were started apart")
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

impl Network {
    fn between(nodes: &[Node]) -> Self {
        let clients = nodes.iter().map(|it| Proxy::to(it.clients.number)).collect();
        let pairs = (0..nodes.len()).flat_map(|from| (0..nodes.len()).map(move |to| (from, to)));
        let routes = pairs
            .filter(|(from, to)| from != to)
            .map(|(from, to)| (from, to, Proxy::to(nodes[to].routes.number)))
            .collect();
        Self { clients, routes }
    }

    /// The ways between a server and the others.
    fn of(&self, node: usize) -> impl Iterator<Item = &Proxy> {
        let routes = self.routes.iter();
        routes.filter(move |(from, to, _)| *from == node || *to == node).map(|(_, _, it)| it)
    }
}

/// The ports under which a server finds the others.
fn ways_from(number: usize, nodes: &[Node], network: Option<&Network>) -> Vec<u16> {
    match network {
        Some(network) => {
            let own = network.routes.iter().filter(|(from, _, _)| *from == number);
            own.map(|(_, _, proxy)| proxy.port.number).collect()
        }
        None => nodes.iter().map(|it| it.routes.number).collect(),
    }
}

fn server_name(number: usize) -> String {
    format!("node-{number}")
}

impl Node {
    fn new(root: &Path, number: usize) -> Self {
        let home = root.join(server_name(number));
        fs::create_dir(&home).unwrap();
        Self {
            config: home.join("server.conf"),
            process_file: home.join("process"),
            log: home.join("log"),
            root: root.to_owned(),
            clients: Port::free(),
            routes: Port::free(),
            guardian: Mutex::default(),
        }
    }

    fn settings(&self, number: usize, more: &str) -> String {
        format!(
            "server_name: {}\nlisten: \"127.0.0.1:{}\"\nmax_payload: 4MB\n\
             jetstream {{ store_dir: \"{}\" }}\n{more}\n",
            server_name(number),
            self.clients.number,
            self.root.join(server_name(number)).display(),
        )
    }

    /// What servers tell each other and clients about their ports would lead around a network that
    /// can be cut.
    fn cluster(&self, ways: &[u16], apart: bool) -> String {
        let routes: Vec<String> =
            ways.iter().map(|it| format!("\"nats://127.0.0.1:{it}\"")).collect();
        format!(
            "cluster {{ name: test, listen: \"127.0.0.1:{}\", {} routes: [{}] }}\n",
            self.routes.number,
            if apart { "advertise: \"127.0.0.1:9\", no_advertise: true," } else { "" },
            routes.join(", "),
        )
    }

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
            // It would say each time that its server was killed.
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        *self.guardian.lock().unwrap() = Some(guardian);
        for _ in 0..LOOKS_MAX {
            let address = (Ipv4Addr::LOCALHOST, self.clients.number);
            if self.process().is_some() && TcpStream::connect(address).is_ok() {
                return;
            }
            thread::sleep(PAUSE);
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
