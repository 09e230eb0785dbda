//! Three NATS servers that replicate.

use std::{
    fs,
    net::TcpListener,
    path::Path,
    process::{Child, Command, Stdio},
};

use crate::Result;

/// Running servers; dropping them stops them.
#[derive(Debug)]
pub(super) struct Servers {
    children: Vec<Child>,
    pub(super) url: String,
}

impl Servers {
    /// How many there are, and how many copies of each stream.
    pub(super) const COUNT: usize = 3;

    /// Starts servers with their data in `directory`; none if they are not installed.
    pub(super) fn start(directory: &Path) -> Result<Option<Self>> {
        let directory = fs::canonicalize(directory)?;
        let (clients, routes) = (free_ports()?, free_ports()?);
        let address = |port: &u16| format!("127.0.0.1:{port}");
        let url = clients.iter().map(address).collect::<Vec<_>>().join(",");
        let url = format!("nats://{url}");
        let all = routes.iter().map(|it| format!("\"nats://{}\"", address(it)));
        let all = all.collect::<Vec<_>>().join(", ");
        let mut servers = Self { children: Vec::new(), url };
        let program = std::env::var_os("MILLSTREAM_NATS_SERVER");
        let program = program.unwrap_or_else(|| "nats-server".into());
        for (number, (client, route)) in clients.iter().zip(&routes).enumerate() {
            let home = directory.join(format!("node-{number}"));
            let settings = format!(
                "server_name: node-{number}\nlisten: \"127.0.0.1:{client}\"\nmax_payload: 4MB\n\
                 jetstream {{ store_dir: \"{}\" }}\n\
                 cluster {{ name: bench, listen: \"127.0.0.1:{route}\", routes: [{all}] }}\n",
                home.display(),
            );
            let file = directory.join(format!("node-{number}.conf"));
            fs::write(&file, settings)?;
            let mut command = Command::new(&program);
            command.arg("--config").arg(&file);
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            let Ok(child) = command.spawn() else { return Ok(None) };
            servers.children.push(child);
        }
        Ok(Some(servers))
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        for child in &mut self.children {
            if let Err(error) = child.kill().and_then(|()| child.wait().map(drop)) {
                eprintln!("could not stop a NATS server: {error}");
            }
        }
    }
}

/// Ports that nobody uses now. They are all taken at the same time, so that they differ.
fn free_ports() -> Result<Vec<u16>> {
    let listeners: Vec<TcpListener> = (0..Servers::COUNT)
        .map(|_| TcpListener::bind("127.0.0.1:0"))
        .collect::<std::io::Result<_>>()?;
    let port = |it: &TcpListener| Ok(it.local_addr()?.port());
    listeners.iter().map(port).collect()
}
