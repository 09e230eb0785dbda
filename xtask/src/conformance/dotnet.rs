//! Programs of ours that use the SDK for .NET, in gateway mode.
//!
//! .NET's own registry is not reached from everywhere. The registries of the suites for JavaScript
//! and Python have all of it as well: a runtime with the SDK, a compiler, and a way to start them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::command::Failure;
use crate::conformance::Fetched;
use crate::conformance::gateway::{Gateway, PUBLIC_KEY};
use crate::conformance::summary::Summary;
use crate::conformance::work::Work;

/// Programs that bring what is needed, and their versions: the runtime 9.0.5 with the SDK 3.51.0,
/// for which the tests are written, and the compiler.
const PACKAGES: [(&str, &str); 2] =
    [("@azure/mcp-linux-x64", "0.4.1"), ("@autorest/csharp", "3.0.0-beta.20251203.1")];
/// Starts a runtime of .NET within Python.
const STARTER: &str = "pythonnet==3.2.1";
/// Without one npm would install into a directory above.
const MANIFEST: &str = "{\"name\":\"millstream-conformance\",\"private\":true}\n";
/// Uses all of these.
const HOST: (&str, &str) = ("host.py", include_str!("dotnet_host.py"));

/// The programs, compiled.
pub(crate) struct Dotnet {
    python: PathBuf,
    host: PathBuf,
}

impl Dotnet {
    /// Fetches the runtime, the SDK and the compiler, unless they are there, and compiles the
    /// programs.
    ///
    /// # Errors
    ///
    /// They cannot be fetched, or not for this machine; Python or npm is missing; a program is
    /// wrong.
    pub(crate) fn fetch(sources: &Path, work: &Work) -> Result<Self, Failure> {
        if !cfg!(all(target_os = "linux", target_arch = "x86_64")) {
            return Err(Failure::task("the runtime of .NET is fetched for Linux on x86_64 only"));
        }
        let suite = Self { python: work.path("venv/bin/python"), host: work.path(HOST.0) };
        if !suite.python.exists() {
            work.step(Command::new("python3").args(["-m", "venv", "venv"]))?;
        }
        // Asked every time: it is quick when everything is there, and repairs what is not.
        let install = ["-m", "pip", "--disable-pip-version-check", "--quiet", "install", STARTER];
        work.step(Command::new(&suite.python).args(install))?;
        work.write("package.json", MANIFEST)?;
        if !PACKAGES.into_iter().all(|(name, version)| is_installed(work, name, version)) {
            let mut install = Command::new("npm");
            install.args(["install", "--no-audit", "--no-fund", "--no-save", "--ignore-scripts"]);
            install.arg("--loglevel=error");
            install.args(PACKAGES.map(|(name, version)| format!("{name}@{version}")));
            work.step(&mut install)?;
        }
        work.write(HOST.0, HOST.1)?;
        work.step(suite.command("compile").arg(sources.join("dotnet")))?;
        Ok(suite)
    }

    fn command(&self, verb: &str) -> Command {
        let mut command = Command::new(&self.python);
        command.arg(&self.host).arg(verb);
        // Else it looks for a library of the languages of the world, and ends without it.
        command.env("DOTNET_SYSTEM_GLOBALIZATION_INVARIANT", "1");
        command
    }
}

impl Fetched for Dotnet {
    fn run_file(
        &self,
        work: &Work,
        gateway: &Gateway,
        file: &str,
        _: &[String],
    ) -> Result<Summary, Failure> {
        let mut command = self.command("run");
        command
            .arg(file.trim_end_matches(".cs"))
            .env("ACCOUNT_HOST", &gateway.address)
            .env("ACCOUNT_KEY", PUBLIC_KEY);
        let (output, succeeded) = work.test(file, &mut command)?;
        let mut summary = Summary::default();
        summary.count_tap(&output, succeeded);
        Ok(summary)
    }
}

fn is_installed(work: &Work, name: &str, version: &str) -> bool {
    let manifest = work.path(&format!("node_modules/{name}/package.json"));
    let version = format!("\"version\": \"{version}\"");
    fs::read_to_string(manifest).is_ok_and(|it| it.contains(&version))
}
