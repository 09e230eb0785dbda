//! A gateway that lives as long as a run.

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Stdio};

use crate::command::{Command, Failure};

/// The port SDKs expect an emulator at. Some tests look at the address and take another way.
const EMULATOR_PORT: u16 = 8081;

/// A running gateway; ended when this is dropped.
#[derive(Debug)]
pub(crate) struct Gateway {
    process: Child,
    /// Where it listens, with a slash at the end.
    pub(crate) address: String,
}

impl Gateway {
    /// Builds and starts one, on the port of the emulator if that is free, and waits until it says
    /// where it listens.
    ///
    /// # Errors
    ///
    /// It could not be built or started.
    pub(crate) fn start(root: &Path) -> Result<Self, Failure> {
        let port = match TcpListener::bind(("127.0.0.1", EMULATOR_PORT)) {
            Ok(_) => EMULATOR_PORT,
            Err(_) => {
                println!("port {EMULATOR_PORT} is taken: tests for the emulator will be skipped");
                0
            }
        };
        let package = ["run", "--quiet", "--release", "--package", "millstream-gateway"];
        let command = Command::cargo(package).arguments(["--example", "serve", "--"]);
        let command = command.arguments([port.to_string()]);
        println!("conformance: {command}");
        let mut prepared = command.prepared(root);
        // The pipe is its sign that we are gone: it ends when its input does.
        prepared.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = prepared.spawn().map_err(|error| command.not_started(&error))?;
        let mut address = String::new();
        if let Some(output) = process.stdout.take() {
            let read = BufReader::new(output).read_line(&mut address);
            read.map_err(|error| command.not_started(&error))?;
        }
        let address = address.trim().to_owned();
        if !address.starts_with("https://") {
            // It is gone already, or about to go; its own words are above.
            let _ = process.wait();
            return Err(Failure::task(format!("`{command}` did not say where it listens")));
        }
        Ok(Self { process, address })
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        drop(self.process.stdin.take());
        let _ = self.process.wait();
    }
}
