//! The other peer: graphile-worker, a queue of jobs in PostgreSQL, with its queue in memory and
//! jobs completed in batches, which is its fastest way. It is fetched when it is measured.

use std::{
    fs,
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use tempfile::TempDir;

use crate::{Result, npm, postgres, postgres_server::Server, workload::EVENT_BYTES};

const PACKAGE: &str = "graphile-worker@0.18";
/// How long measuring may take.
const RUN_TIME_MAX: Duration = Duration::from_secs(180);
const SCRIPT: &str = include_str!("graphile.js");

/// Jobs per second; none, with a sentence why, where something is missing.
pub(super) async fn measure(directory: &Path, jobs: u64) -> Result<Option<f64>> {
    let Some(package) = fetch(directory).await? else { return Ok(None) };
    let Some(mut server) = Server::start(directory)? else {
        eprintln!("graphile-worker is left out: PostgreSQL is not installed");
        return Ok(None);
    };
    drop(postgres::ready(&mut server).await?);
    let mut command = command(&package, "drain", &server);
    command.arg(jobs.to_string()).arg(EVENT_BYTES.to_string());
    let output = match npm::run(&mut command, RUN_TIME_MAX).await {
        Ok(output) => output,
        Err(reason) => {
            eprintln!("graphile-worker is left out: {reason}");
            return Ok(None);
        }
    };
    let text = String::from_utf8_lossy(&output.stdout);
    let rate = text.lines().find_map(|it| it.strip_prefix("rate ")?.trim().parse().ok());
    if rate.is_none() {
        let reason = String::from_utf8_lossy(&output.stderr);
        eprintln!("graphile-worker is left out: {}", reason.lines().next().unwrap_or_default());
    }
    Ok(rate)
}

/// A worker that does what others add; ends when dropped.
pub(super) struct Follower {
    process: Child,
    done: Arc<AtomicU64>,
    _package: TempDir,
}

impl Follower {
    /// Starts it and waits until jobs can be added; none, with a sentence why, where something is
    /// missing.
    pub(super) async fn start(directory: &Path, server: &Server) -> Result<Option<Self>> {
        let Some(package) = fetch(directory).await? else { return Ok(None) };
        let mut command = command(&package, "follow", server);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        let mut process = command.spawn()?;
        let output = process.stdout.take().ok_or("its output is not there")?;
        let mut lines = BufReader::new(output).lines();
        let done = Arc::new(AtomicU64::new(0));
        // The first line says that the tables are there.
        let Some(Ok(_)) = tokio::task::block_in_place(|| lines.next()) else {
            process.wait()?;
            eprintln!("graphile-worker is left out: it ended at once");
            return Ok(None);
        };
        let counted = Arc::clone(&done);
        thread::spawn(move || {
            for line in lines.map_while(|it| it.ok()) {
                let count = line.strip_prefix("done ").and_then(|it| it.parse().ok());
                counted.fetch_max(count.unwrap_or(0), Ordering::Relaxed);
            }
        });
        Ok(Some(Self { process, done, _package: package }))
    }

    /// Jobs that it has done so far.
    pub(super) fn done(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        // It ends when its input does.
        drop(self.process.stdin.take());
        if let Err(error) = self.process.wait() {
            eprintln!("could not wait for graphile-worker: {error}");
        }
    }
}

fn command(package: &TempDir, mode: &str, server: &Server) -> Command {
    let mut command = Command::new("node");
    command.args(["bench.js", mode]).arg(server.sockets()).arg(server.user());
    command.current_dir(package.path());
    command
}

async fn fetch(directory: &Path) -> Result<Option<TempDir>> {
    let own = tempfile::tempdir_in(directory)?;
    if let Err(reason) = npm::fetch(own.path(), PACKAGE).await {
        eprintln!("graphile-worker is left out: {reason}");
        return Ok(None);
    }
    fs::write(own.path().join("bench.js"), SCRIPT)?;
    Ok(Some(own))
}
