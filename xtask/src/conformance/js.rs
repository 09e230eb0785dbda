//! Tests of ours that use the SDK for JavaScript, on the test runner of Node.js.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::command::Failure;
use crate::conformance::Fetched;
use crate::conformance::gateway::{Gateway, PUBLIC_KEY};
use crate::conformance::summary::Summary;
use crate::conformance::work::Work;

/// The version of the SDK that the tests are written for: the newest that runs on Node.js 20.
const VERSION: &str = "4.9.3";
/// Longest time of one test, in milliseconds; the slowest wait a minute for what has to come.
const TIMEOUT: &str = "--test-timeout=180000";
/// Without one npm would install into a directory above.
const PACKAGE: &str = "{\"name\":\"millstream-conformance\",\"private\":true}\n";

/// The tests, beside the SDK.
pub(crate) struct Js {
    tests: PathBuf,
}

impl Js {
    /// Fetches the SDK, unless it is there, and puts the tests beside it.
    ///
    /// # Errors
    ///
    /// The SDK cannot be fetched; Node.js or npm is missing.
    pub(crate) fn fetch(sources: &Path, work: &Work) -> Result<Self, Failure> {
        work.write("package.json", PACKAGE)?;
        let installed = work.path("node_modules/@azure/cosmos/package.json");
        let version = format!("\"version\": \"{VERSION}\"");
        if !std::fs::read_to_string(installed).is_ok_and(|it| it.contains(&version)) {
            let options = ["--no-audit", "--no-fund", "--no-save", "--loglevel=error"];
            let sdk = format!("@azure/cosmos@{VERSION}");
            work.step(Command::new("npm").arg("install").args(options).arg(sdk))?;
        }
        // A package is looked for above the file that imports it, so tests have to be here.
        work.copy(&sources.join("js"), "tests")?;
        Ok(Self { tests: work.path("tests") })
    }
}

impl Fetched for Js {
    fn run_file(
        &self,
        work: &Work,
        gateway: &Gateway,
        file: &str,
        _: &[String],
    ) -> Result<Summary, Failure> {
        let mut command = Command::new("node");
        command
            .args(["--test", "--test-reporter=tap", TIMEOUT, file])
            .current_dir(&self.tests)
            .env("ACCOUNT_HOST", &gateway.address)
            .env("ACCOUNT_KEY", PUBLIC_KEY)
            // The certificate is of the gateway's own making.
            .env("NODE_TLS_REJECT_UNAUTHORIZED", "0");
        let (output, succeeded) = work.test(file, &mut command)?;
        let mut summary = Summary::default();
        summary.count_tap(&output, succeeded);
        Ok(summary)
    }
}
