//! The peer: @vercel/cosmosdb-server, fetched when it is measured.

use std::{fs, path::Path, process::Command};

use tempfile::TempDir;

use crate::{Result, gateway::process::Prepared, npm};

const PACKAGE: &str = "@vercel/cosmosdb-server@1.0";
const SHIPPED: &str = "node_modules/@vercel/cosmosdb-server/lib/cli.js";
/// What its command line cannot say.
const KEEPING: &str = "\
const { createHttpServer, createHttpsServer } = require('@vercel/cosmosdb-server');
const create = process.argv[6] === '--no-ssl' ? createHttpServer : createHttpsServer;
create({ keepAlive: true }).listen(Number(process.argv[3]), process.argv[5]);
";

/// How it is started.
#[derive(Clone, Copy, Debug)]
pub(super) struct Manner {
    /// It listens for TLS alone, or not at all.
    pub(super) is_tls: bool,
    /// It keeps connections; otherwise it closes each after its answer.
    pub(super) keeps: bool,
}

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
    /// It needs no place for data.
    pub(super) fn command(&self, manner: Manner) -> Result<Prepared> {
        let mut command = Command::new("node");
        command.arg(if manner.keeps { "keeping.js" } else { SHIPPED }).current_dir(self.0.path());
        let prepared = Prepared::new(command)?;
        let port = prepared.address.port().to_string();
        let prepared = prepared.arguments(&["--port", &port, "--host", "127.0.0.1"]);
        Ok(if manner.is_tls { prepared.tls() } else { prepared.arguments(&["--no-ssl"]) })
    }
}
