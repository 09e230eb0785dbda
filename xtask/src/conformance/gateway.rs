//! A gateway that lives as long as a run.

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::Path;
use std::process::{self, Child, Stdio};

use crate::command::{Command, Failure};
use crate::conformance::work::target;

/// The port SDKs expect an emulator at. Some tests look at the address and take another way.
pub(crate) const EMULATOR_PORT: u16 = 8081;

/// The key of every emulator, and of a gateway that was given none. No secret.
pub(crate) const PUBLIC_KEY: &str =
    "C2y6yDjf5/R+ob0N8A7Cgv30VRDJIWEHLM+4QDU5DE2nQ9nDuVTqobD4b8mGGyPMbIZnqyMsEcaGQy67XIw/Jw==";

/// A running gateway; ended when this is dropped.
#[derive(Debug)]
pub(crate) struct Gateway {
    process: Child,
    /// Where it listens, with a slash at the end.
    pub(crate) address: String,
}

impl Gateway {
    /// Builds and starts one, on the port of the emulator if that is free, and waits until it says
    /// where it listens. Its answers are delayed by so many milliseconds.
    ///
    /// # Errors
    ///
    /// It could not be built or started.
    pub(crate) fn start(root: &Path, delay_ms: u32) -> Result<Self, Failure> {
        let port = match TcpListener::bind(("127.0.0.1", EMULATOR_PORT)) {
            Ok(_) => EMULATOR_PORT,
            Err(_) => {
                println!("port {EMULATOR_PORT} is taken: tests that look there are skipped");
                0
            }
        };
        // As tests are built, for the whole workspace: that is optimised as well, and alone it
        // would have other features and be built once more.
        let build = Command::cargo(["build", "--locked", "--workspace", "--example", "serve"]);
        println!("conformance: {build}");
        build.run(root)?;
        let program = target(root)?.join("debug/examples/serve");
        let not_started = |error: std::io::Error| {
            Failure::task(format!("could not start {}: {error}", program.display()))
        };
        let mut command = process::Command::new(&program);
        command.args([port.to_string(), delay_ms.to_string()]);
        // The pipe is its sign that we are gone: it ends when its input does.
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn().map_err(not_started)?;
        let mut address = String::new();
        if let Some(output) = process.stdout.take() {
            BufReader::new(output).read_line(&mut address).map_err(not_started)?;
        }
        let address = address.trim().to_owned();
        if !address.starts_with("https://") {
            // It is gone already, or about to go; its own words are above.
            let _ = process.wait();
            let reason = format!("{} did not say where it listens", program.display());
            return Err(Failure::task(reason));
        }
        Ok(Self { process, address })
    }

    /// The port it listens at.
    pub(crate) fn port(&self) -> Option<u16> {
        self.address.trim_end_matches('/').rsplit(':').next()?.parse().ok()
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        drop(self.process.stdin.take());
        let _ = self.process.wait();
    }
}
