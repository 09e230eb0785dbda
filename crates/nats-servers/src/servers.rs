//! One server, or some that replicate.

use std::fs;
use std::path::Path;

use rustix::process::Signal;
use tempfile::TempDir;

use crate::error::Error;
use crate::node::Node;

/// Servers that are not started yet, whose ports are known.
#[derive(Debug)]
pub struct Plan {
    nodes: Vec<Node>,
    directory: TempDir,
    more: String,
    /// For each server the ports under which it finds the others, if those are not their own.
    ways: Option<Vec<Vec<u16>>>,
}

/// Servers that end with this value.
#[derive(Debug)]
pub struct NatsServers {
    nodes: Vec<Node>,
    _directory: TempDir,
}

impl Plan {
    /// Servers with their data below `scratch`; more than one replicate.
    ///
    /// # Errors
    ///
    /// If there is no free port, or no directory can be made.
    pub fn new(scratch: &Path, count: usize) -> Result<Self, Error> {
        let failed = |error| Error::new("make a directory for NATS servers").because(error);
        // Whoever starts the server may be somewhere else.
        let scratch = fs::canonicalize(scratch).map_err(failed)?;
        let directory = tempfile::Builder::new().prefix("nats-").tempdir_in(scratch);
        let directory = directory.map_err(failed)?;
        let nodes = (0..count).map(|it| Node::new(directory.path(), it));
        let nodes = nodes.collect::<Result<Vec<Node>, Error>>()?;
        Ok(Self { nodes, directory, more: String::new(), ways: None })
    }

    /// More lines of the configuration of each. Default: none.
    #[must_use]
    pub fn more(mut self, lines: &str) -> Self {
        lines.clone_into(&mut self.more);
        self
    }

    /// Lets each server find the others at the ports that `ways` has for it, and nowhere else; what
    /// servers tell each other and clients about ports would lead around. Default: their own ports.
    #[must_use]
    pub fn ways(mut self, ways: Vec<Vec<u16>>) -> Self {
        self.ways = Some(ways);
        self
    }

    /// The ports of each server for clients.
    #[must_use]
    pub fn client_ports(&self) -> Vec<u16> {
        self.nodes.iter().map(|it| it.clients.number()).collect()
    }

    /// The ports of each server for the others.
    #[must_use]
    pub fn route_ports(&self) -> Vec<u16> {
        self.nodes.iter().map(|it| it.routes.number()).collect()
    }

    /// Starts them; each has answered when this returns, but they may not have found together.
    ///
    /// # Errors
    ///
    /// If one does not start, or another server answers in its place.
    pub fn start(self) -> Result<NatsServers, Error> {
        for (number, node) in self.nodes.iter().enumerate() {
            node.configure(&format!("{}\n{}", self.more, self.cluster(number)))?;
        }
        let mut servers = NatsServers { nodes: self.nodes, _directory: self.directory };
        servers.nodes.iter_mut().try_for_each(Node::start)?;
        Ok(servers)
    }

    /// The part of the configuration about the others.
    fn cluster(&self, number: usize) -> String {
        let [first, _, ..] = self.nodes.as_slice() else { return String::new() };
        let own_ports = self.route_ports();
        let ways = self.ways.as_ref().map_or(&own_ports, |it| &it[number]);
        let ways: Vec<String> =
            ways.iter().map(|it| format!("\"nats://127.0.0.1:{it}\"")).collect();
        let apart = "advertise: \"127.0.0.1:9\", no_advertise: true,";
        // Servers refuse one that calls the cluster by another name.
        format!(
            "cluster {{ name: \"of-{}\", listen: \"127.0.0.1:{}\", {} routes: [{}] }}",
            first.name,
            self.nodes[number].routes.number(),
            if self.ways.is_some() { apart } else { "" },
            ways.join(", "),
        )
    }
}

impl NatsServers {
    /// Starts servers with their data below `scratch`.
    ///
    /// # Errors
    ///
    /// If one does not start, or another server answers in its place.
    pub fn start(scratch: &Path, count: usize) -> Result<Self, Error> {
        Plan::new(scratch, count)?.start()
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.nodes.len()
    }

    /// The address of all of them, without options.
    #[must_use]
    pub fn url(&self) -> String {
        let hosts: Vec<String> =
            self.nodes.iter().map(|it| format!("127.0.0.1:{}", it.clients.number())).collect();
        format!("nats://{}", hosts.join(","))
    }

    /// The address of one of them.
    #[must_use]
    pub fn url_of(&self, number: usize) -> String {
        format!("nats://127.0.0.1:{}", self.nodes[number].clients.number())
    }

    /// What a server calls itself.
    #[must_use]
    pub fn name(&self, number: usize) -> &str {
        &self.nodes[number].name
    }

    /// The number of the server of this name, if it is one of these.
    #[must_use]
    pub fn number(&self, name: &str) -> Option<usize> {
        self.nodes.iter().position(|it| it.name == name)
    }

    /// Ends a server at once, as if its machine had lost power.
    pub fn kill(&mut self, number: usize) {
        self.nodes[number].kill();
    }

    /// Starts a server again with what it has on disk.
    ///
    /// # Errors
    ///
    /// If it does not start, or another server answers in its place.
    pub fn restart(&mut self, number: usize) -> Result<(), Error> {
        self.nodes[number].start()
    }

    /// Stops a server: it neither answers nor notices anything.
    pub fn freeze(&self, number: usize) {
        self.nodes[number].signal(Signal::STOP);
    }

    /// Lets it go on where it was.
    pub fn thaw(&self, number: usize) {
        self.nodes[number].signal(Signal::CONT);
    }

    /// Whether a server has ended without being killed.
    pub fn has_ended(&mut self, number: usize) -> bool {
        self.nodes[number].has_ended()
    }

    /// The last lines of the log of a server.
    #[must_use]
    pub fn log_end(&self, number: usize) -> String {
        self.nodes[number].log_end()
    }
}

impl Drop for NatsServers {
    fn drop(&mut self) {
        for node in &mut self.nodes {
            node.kill();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::error::Error as _;
    use std::io::Write;
    use std::net::{Ipv4Addr, TcpListener};
    use std::{env, thread};

    use crate::program::is_installed_for_tests;
    use crate::servers::{NatsServers, Plan};

    #[test]
    fn a_server_comes_back_under_its_name_and_port() {
        if !is_installed_for_tests() {
            return;
        }
        let mut servers = NatsServers::start(&env::temp_dir(), 2).unwrap();
        let (url, name) = (servers.url(), servers.name(1).to_owned());
        servers.kill(1);
        servers.restart(1).unwrap();
        assert_eq!((servers.url(), servers.number(&name)), (url, Some(1)));
        assert!(!servers.has_ended(1));
        assert!(servers.log_end(1).contains("Server is ready"), "{}", servers.log_end(1));
    }

    #[test]
    fn another_server_at_the_port_is_noticed() {
        if !is_installed_for_tests() {
            return;
        }
        let plan = Plan::new(&env::temp_dir(), 1).unwrap();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, plan.client_ports()[0])).unwrap();
        thread::spawn(move || {
            for stream in listener.incoming() {
                let _ = stream.unwrap().write_all(b"INFO {\"server_name\":\"other\"}\r\n");
            }
        });
        let error = plan.start().unwrap_err();
        let reason = error.source().unwrap().to_string();
        // Whichever is noticed first.
        let noticed = ["it ended at once", "another server answers"];
        assert!(noticed.iter().any(|it| reason.starts_with(it)), "{reason}");
    }
}
