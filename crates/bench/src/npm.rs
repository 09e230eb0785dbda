//! Peers that are packages of npm: fetched when they are measured, into a directory that goes.

use std::{
    path::Path,
    process::{Command, Output, Stdio},
    time::Duration,
};

use crate::{Result, measure::Stopwatch};

/// How long fetching may take.
const FETCH_TIME_MAX: Duration = Duration::from_secs(120);
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// Installs a package into `directory`.
pub(crate) async fn fetch(directory: &Path, package: &str) -> Result<()> {
    let mut command = Command::new("npm");
    command.args(["install", "--no-audit", "--no-fund", "--silent", "--prefix", ".", package]);
    let output = run(command.current_dir(directory), FETCH_TIME_MAX).await;
    let output = output.map_err(|error| format!("npm: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let reason = String::from_utf8_lossy(&output.stderr);
    Err(format!("npm could not fetch it: {}", reason.trim()).into())
}

/// Runs a command to its end, which comes in time.
pub(crate) async fn run(command: &mut Command, time_max: Duration) -> Result<Output> {
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
