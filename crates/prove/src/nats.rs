//! NATS servers of a directory: the stores of the processes, if they are not in it themselves.

use std::fs;
use std::path::{Path, PathBuf};

use millstream_backend_nats::{Connection, ConnectionOptions, NatsStore};
use millstream_crash::{Attempt, Result};
use millstream_nats_servers::NatsServers;

use crate::patience::patiently;

/// Starts servers with their data in `directory`, and notes there where they are.
pub(crate) fn start(directory: &Path, count: usize) -> Result<NatsServers> {
    let servers = NatsServers::start(directory, count).attempt(|| "start the NATS servers")?;
    let replicas = if count < 3 { 1 } else { 3 };
    let url = format!("{}?replicas={replicas}", servers.url());
    fs::write(note(directory), url).attempt(|| "note where the NATS servers are")?;
    Ok(servers)
}

/// What the servers said last.
pub(crate) fn logs(servers: &NatsServers) -> Vec<String> {
    let mut lines = Vec::new();
    for number in 0..servers.count() {
        let log = servers.log_end(number);
        lines.extend(log.lines().map(|it| format!("{}: {it}", servers.name(number))));
    }
    lines
}

/// The store of a part on the servers of the directory; none if there are no servers.
pub(crate) async fn store(directory: &Path, part: &str) -> Result<Option<NatsStore>> {
    let Ok(url) = fs::read_to_string(note(directory)) else { return Ok(None) };
    let attempted = || format!("open the store \"{part}\" on NATS");
    let options = ConnectionOptions::parse(&url).attempt(attempted)?.prefix(part);
    let open = async || {
        let connection = Connection::open(options.clone()).await?;
        NatsStore::open(connection).await
    };
    patiently(open).await.attempt(attempted).map(Some)
}

fn note(directory: &Path) -> PathBuf {
    directory.join("nats.url")
}
