//! Three NATS servers that replicate.

use std::{
    fs,
    net::TcpListener,
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

use async_nats::jetstream;
use futures_util::TryStreamExt;

use crate::Result;

/// How often a stream is asked to move before that counts as impossible.
const MOVES_MAX: u32 = 40;
const MOVE_INTERVAL: Duration = Duration::from_millis(250);

/// Running servers; dropping them stops them.
#[derive(Debug)]
pub(super) struct Servers {
    children: Vec<Child>,
    /// The first server. Everyone is connected to it, and to no other.
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
        let url = format!("nats://{}", clients.first().map(address).unwrap_or_default());
        let all = routes.iter().map(|it| format!("\"nats://{}\"", address(it)));
        let all = all.collect::<Vec<_>>().join(", ");
        let mut servers = Self { children: Vec::new(), url };
        let program = std::env::var_os("MILLSTREAM_NATS_SERVER");
        let program = program.unwrap_or_else(|| "nats-server".into());
        for (number, (client, route)) in clients.iter().zip(&routes).enumerate() {
            let name = name(number);
            let home = directory.join(&name);
            let settings = format!(
                "server_name: {name}\nlisten: \"127.0.0.1:{client}\"\nmax_payload: 4MB\n\
                 jetstream {{ store_dir: \"{}\" }}\n\
                 cluster {{ name: bench, listen: \"127.0.0.1:{route}\", routes: [{all}] }}\n",
                home.display(),
            );
            let file = directory.join(format!("{name}.conf"));
            fs::write(&file, settings)?;
            let mut command = Command::new(&program);
            command.arg("--config").arg(&file);
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            let Ok(child) = command.spawn() else { return Ok(None) };
            servers.children.push(child);
        }
        Ok(Some(servers))
    }

    /// Makes the first server the leader of every stream.
    ///
    /// A request to a stream whose leader is elsewhere takes one hop more. Where leaders stand is
    /// chance, so without this the one who is luckier would look quicker.
    pub(super) async fn lead_with_first(&self) -> Result<()> {
        let client = async_nats::connect(&self.url).await?;
        let context = jetstream::new(client.clone());
        let streams: Vec<String> = context.stream_names().try_collect().await?;
        let first = name(0);
        let request = format!(r#"{{"placement":{{"preferred":"{first}"}}}}"#);
        for stream in streams {
            let mut moves = 0;
            loop {
                let info = context.get_stream(&stream).await?;
                let cluster = info.cached_info().cluster.as_ref();
                if cluster.and_then(|it| it.leader.as_ref()) == Some(&first) {
                    break;
                }
                moves += 1;
                if MOVES_MAX < moves {
                    return Err(format!("stream {stream:?} does not move to {first}").into());
                }
                let address = format!("$JS.API.STREAM.LEADER.STEPDOWN.{stream}");
                client.request(address, request.clone().into()).await?;
                tokio::time::sleep(MOVE_INTERVAL).await;
            }
        }
        Ok(())
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

fn name(number: usize) -> String {
    format!("node-{number}")
}

/// Ports that nobody uses now. They are all taken at the same time, so that they differ.
fn free_ports() -> Result<Vec<u16>> {
    let listeners: Vec<TcpListener> = (0..Servers::COUNT)
        .map(|_| TcpListener::bind("127.0.0.1:0"))
        .collect::<std::io::Result<_>>()?;
    let port = |it: &TcpListener| Ok(it.local_addr()?.port());
    listeners.iter().map(port).collect()
}
