//! The other peer: graphile-worker, a queue of jobs in PostgreSQL, with its queue in memory and
//! jobs completed in batches, which is its fastest way. It is fetched when it is measured.

use std::{fs, path::Path, process::Command, time::Duration};

use crate::{Result, npm, postgres, postgres_server::Server, workload::EVENT_BYTES};

const PACKAGE: &str = "graphile-worker@0.18";
/// How long measuring may take.
const RUN_TIME_MAX: Duration = Duration::from_secs(180);
const SCRIPT: &str = include_str!("graphile.js");

/// Jobs per second; none, with a sentence why, where something is missing.
pub(super) async fn measure(directory: &Path, jobs: u64) -> Result<Option<f64>> {
    let own = tempfile::tempdir_in(directory)?;
    if let Err(reason) = npm::fetch(own.path(), PACKAGE).await {
        eprintln!("graphile-worker is left out: {reason}");
        return Ok(None);
    }
    let Some(mut server) = Server::start(directory)? else {
        eprintln!("graphile-worker is left out: PostgreSQL is not installed");
        return Ok(None);
    };
    drop(postgres::ready(&mut server).await?);
    fs::write(own.path().join("bench.js"), SCRIPT)?;
    let mut command = Command::new("node");
    command.arg("bench.js").arg(jobs.to_string()).arg(EVENT_BYTES.to_string());
    command.arg(server.sockets()).arg(server.user()).current_dir(own.path());
    let output = npm::run(&mut command, RUN_TIME_MAX).await?;
    let text = String::from_utf8_lossy(&output.stdout);
    let rate = text.lines().find_map(|it| it.strip_prefix("rate ")?.trim().parse().ok());
    if rate.is_none() {
        let reason = String::from_utf8_lossy(&output.stderr);
        eprintln!("graphile-worker is left out: {}", reason.lines().next().unwrap_or_default());
    }
    Ok(rate)
}
