//! Servers with a network between them that can be cut.

use std::env;
use std::sync::{LazyLock, Mutex};

use millstream_nats_servers::{NatsServers, Plan, is_installed_for_tests};

use crate::harness::proxies::Proxy;

/// One server, or three that replicate.
pub(crate) struct Servers {
    servers: Mutex<NatsServers>,
    url: String,
    count: usize,
    /// What lies between them, if that can be cut.
    network: Option<Network>,
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
        if !is_installed_for_tests() {
            return None;
        }
        let mut plan = Plan::new(&env::temp_dir(), count).unwrap().more(more);
        let network = apart.then(|| Network::between(&plan));
        if let Some(network) = &network {
            plan = plan.ways((0..count).map(|it| network.ways_from(it)).collect());
        }
        let servers = plan.start().unwrap();
        let url = network.as_ref().map_or_else(|| servers.url(), Network::url);
        Some(Self { servers: Mutex::new(servers), url, count, network })
    }

    pub(crate) fn url(&self) -> String {
        self.url.clone()
    }

    pub(crate) fn replicas(&self) -> usize {
        self.count
    }

    /// The number of the server of this name.
    pub(crate) fn number(&self, name: &str) -> usize {
        self.servers.lock().unwrap().number(name).expect("it is one of ours")
    }

    /// Ends a server at once, as if its machine had lost power.
    pub(crate) fn kill(&self, node: usize) {
        self.servers.lock().unwrap().kill(node);
    }

    /// Starts a server again with what it has on disk.
    pub(crate) fn restart(&self, node: usize) {
        self.servers.lock().unwrap().restart(node).unwrap();
    }

    /// Stops a server: it neither answers nor notices anything.
    pub(crate) fn freeze(&self, node: usize) {
        self.servers.lock().unwrap().freeze(node);
    }

    /// Lets it go on where it was.
    pub(crate) fn thaw(&self, node: usize) {
        self.servers.lock().unwrap().thaw(node);
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

impl Network {
    fn between(plan: &Plan) -> Self {
        let clients = plan.client_ports().into_iter().map(Proxy::to).collect();
        let ports = plan.route_ports();
        let pairs = (0..ports.len()).flat_map(|from| (0..ports.len()).map(move |to| (from, to)));
        let routes = pairs
            .filter(|(from, to)| from != to)
            .map(|(from, to)| (from, to, Proxy::to(ports[to])))
            .collect();
        Self { clients, routes }
    }

    /// Where clients find the servers.
    fn url(&self) -> String {
        let hosts: Vec<String> =
            self.clients.iter().map(|it| format!("127.0.0.1:{}", it.port.number())).collect();
        format!("nats://{}", hosts.join(","))
    }

    /// The ports under which a server finds the others.
    fn ways_from(&self, node: usize) -> Vec<u16> {
        let own = self.routes.iter().filter(|(from, _, _)| *from == node);
        own.map(|(_, _, proxy)| proxy.port.number()).collect()
    }

    /// The ways between a server and the others.
    fn of(&self, node: usize) -> impl Iterator<Item = &Proxy> {
        let routes = self.routes.iter();
        routes.filter(move |(from, to, _)| *from == node || *to == node).map(|(_, _, it)| it)
    }
}
