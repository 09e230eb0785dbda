//! The other peer: graphile-worker, a queue of jobs in PostgreSQL, with its queue in memory and
//! jobs completed in batches, which is its fastest way. It is fetched when it is measured.

use std::{
    fs,
    path::Path,
    process::{Command, Output, Stdio},
    time::Duration,
};

use crate::{Result, measure::Stopwatch, postgres, postgres_server::Server, workload::EVENT_BYTES};

const PACKAGE: &str = "graphile-worker@0.18";
/// How long fetching, and how long measuring may take.
const FETCH_TIME_MAX: Duration = Duration::from_secs(120);
const RUN_TIME_MAX: Duration = Duration::from_secs(180);
const LOOK_INTERVAL: Duration = Duration::from_millis(50);
const SCRIPT: &str = include_str!("graphile.js");

/// Jobs per second; none, with a sentence why, where something is missing.
pub(super) async fn measure(directory: &Path, jobs: u64) -> Result<Option<f64>> {
    let own = tempfile::tempdir_in(directory)?;
    if let Err(reason) = fetch(own.path()).await {
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
    let output = run(&mut command, RUN_TIME_MAX).await?;
    let text = String::from_utf8_lossy(&output.stdout);
    let rate = text.lines().find_map(|it| it.strip_prefix("rate ")?.trim().parse().ok());
    if rate.is_none() {
        let reason = String::from_utf8_lossy(&output.stderr);
        eprintln!("graphile-worker is left out: {}", reason.lines().next().unwrap_or_default());
    }
    Ok(rate)
}

async fn fetch(directory: &Path) -> Result<()> {
    let mut command = Command::new("npm");
    command.args(["install", "--no-audit", "--no-fund", "--silent", "--prefix", ".", PACKAGE]);
    let output = run(command.current_dir(directory), FETCH_TIME_MAX).await;
    let output = output.map_err(|error| format!("npm: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let reason = String::from_utf8_lossy(&output.stderr);
    Err(format!("npm could not fetch it: {}", reason.trim()).into())
}

/// Runs a command to its end, which comes in time.
async fn run(command: &mut Command, time_max: Duration) -> Result<Output> {
    let piped = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = piped.spawn()?;
    let stopwatch = Stopwatch::start();
    while child.try_wait()?.is_none() {
        if time_max < stopwatch.elapsed() {
            child.kill()?;
            child.wait()?;
            return Err(format!("it took more than {} s", time_max.as_secs()).into());
        }
        tokio::time::sleep(LOOK_INTERVAL).await;
    }
    Ok(child.wait_with_output()?)
}
