//! The peer: @vercel/cosmosdb-server, fetched when it is measured.

use std::{fs, path::Path, process::Command};

use tempfile::TempDir;

use crate::{Result, gateway::process::Prepared, npm};

const PACKAGE: &str = "@vercel/cosmosdb-server@1.0";
const SHIPPED: &str = "node_modules/@vercel/cosmosdb-server/lib/cli.js";
/// What its command line cannot say.
const KEEPING: &str = "\
const { createHttpServer } = require('@vercel/cosmosdb-server');
createHttpServer({ keepAlive: true }).listen(Number(process.argv[3]), process.argv[5]);
";

/// Where it was put.
#[derive(Debug)]
pub(super) struct Peer(TempDir);

/// Fetches it; none, with a sentence why, where something is missing.
pub(super) async fn fetch(directory: &Path) -> Result<Option<Peer>> {
    let own = tempfile::tempdir_in(directory)?;
    if let Err(reason) = npm::fetch(own.path(), PACKAGE).await {
        eprintln!("cosmosdb-server is left out: {reason}");
        return Ok(None);
    }
    fs::write(own.path().join("keeping.js"), KEEPING)?;
    Ok(Some(Peer(own)))
}

impl Peer {
    /// Starts it, as from a shell or so that it keeps connections. It needs no place for data.
    pub(super) fn command(&self, _: &Path, keeps: bool) -> Result<Prepared> {
        let mut command = Command::new("node");
        command.arg(if keeps { "keeping.js" } else { SHIPPED }).current_dir(self.0.path());
        let prepared = Prepared::new(command)?;
        let port = prepared.address.port().to_string();
        Ok(prepared.arguments(&["--port", &port, "--host", "127.0.0.1", "--no-ssl"]))
    }
}
