//! The tests of the SDK for Python, which its source distribution contains.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process;

use crate::command::{Failure, timed};
use crate::conformance::gateway::Gateway;
use crate::conformance::scope::{self, OutOfScope};
use crate::conformance::summary::Summary;
use crate::conformance::{directory, report};

/// The version whose tests are run. Another one has other tests, and the lists have to follow.
const VERSION: &str = "4.17.1";
/// What the tests need beside the SDK.
const PACKAGES: [&str; 5] = ["aiohttp", "pytest", "pytest-asyncio", "pytest-timeout", "requests"];
/// Longest time of one test; the slowest wait for items to expire.
const TEST_SECONDS_MAX: u32 = 180;

/// Stands for a package of the SDK's own repository: nothing of it is needed with a key.
const STUBS: [(&str, &str); 3] = [
    ("__init__.py", ""),
    ("azure_recorded_testcase.py", "def get_credential(**kwargs):\n    return None\n"),
    ("helpers.py", "def is_live():\n    return True\n"),
];

/// Runs the files, or all that are listed.
///
/// # Errors
///
/// Something could not be fetched or started. Failed tests are no error here.
pub(crate) fn run(root: &Path, files: &[String]) -> Result<Vec<Summary>, Failure> {
    let out_of_scope = OutOfScope::read(&root.join("conformance/python-out-of-scope.txt"))?;
    let files = match files {
        [] => scope::files(&root.join("conformance/python-files.txt"))?,
        named => named.to_vec(),
    };
    let suite = Fetched::new(root)?;
    let gateway = Gateway::start(root)?;
    let mut summaries = Vec::new();
    for file in files.iter().filter(|file| !out_of_scope.has_file(file)) {
        let summary = suite.run_file(&gateway, file, &out_of_scope.tests_of(file))?;
        report(&summary);
        summaries.push(summary);
    }
    Ok(summaries)
}

/// The suite on this machine.
struct Fetched {
    work: PathBuf,
}

impl Fetched {
    /// Fetches what is not there yet.
    fn new(root: &Path) -> Result<Self, Failure> {
        let fetched = Self { work: directory(root).join("python") };
        create(&fetched.work.join("logs"))?;
        let stubs = fetched.work.join("stubs/devtools_testutils");
        create(&stubs)?;
        for (name, text) in STUBS {
            let path = stubs.join(name);
            fs::write(&path, text).map_err(|error| not_written(&path, &error))?;
        }
        if !fetched.python().exists() {
            let mut make = process::Command::new("python3");
            fetched.step(make.args(["-m", "venv", "venv"]))?;
        }
        // Asked every time: it is quick when everything is there, and repairs what is not.
        let sdk = format!("azure-cosmos=={VERSION}");
        fetched.step(fetched.pip("install").arg(&sdk).args(PACKAGES))?;
        if !fetched.tests().exists() {
            let options = ["--no-deps", "--no-binary", "azure-cosmos", "--dest", "source"];
            fetched.step(fetched.pip("download").args(options).arg(&sdk))?;
            let archive = format!("source/azure_cosmos-{VERSION}.tar.gz");
            let mut unpack = process::Command::new(fetched.python());
            fetched.step(unpack.args(["-m", "tarfile", "-e", &archive, "source"]))?;
        }
        Ok(fetched)
    }

    fn run_file(
        &self,
        gateway: &Gateway,
        file: &str,
        deselected: &[String],
    ) -> Result<Summary, Failure> {
        let log_path = self.work.join("logs").join(format!("{file}.log"));
        let log = File::create(&log_path).map_err(|error| not_written(&log_path, &error))?;
        let errors = log.try_clone().map_err(|error| not_written(&log_path, &error))?;
        let mut command = process::Command::new(self.python());
        command
            .args(["-m", "pytest", "-q", "-rA", "--tb=short", "-p", "no:cacheprovider"])
            // Tests are named from here, and the lists name them so.
            .arg("--rootdir=.")
            .arg(format!("--timeout={TEST_SECONDS_MAX}"))
            .arg(file)
            .current_dir(self.tests())
            .env("ACCOUNT_HOST", &gateway.address)
            .env("PYTHONPATH", self.work.join("stubs"))
            .env("PYTHONWARNINGS", "ignore")
            .stdin(process::Stdio::null())
            .stdout(log)
            .stderr(errors);
        for test in deselected {
            command.args(["--deselect", test]);
        }
        let (status, time) = timed(|| command.status());
        let status = status.map_err(|error| {
            Failure::task(format!("could not start {}: {error}", self.python().display()))
        })?;
        let output = fs::read(&log_path).map_err(|error| not_written(&log_path, &error))?;
        let output = String::from_utf8_lossy(&output);
        let mut summary = Summary::of_pytest(file, &output, status.success());
        summary.out_of_scope = deselected.len();
        println!("{file}: {} s", time.as_secs());
        Ok(summary)
    }

    /// Runs one step of fetching; what it says is shown only if it fails.
    fn step(&self, command: &mut process::Command) -> Result<(), Failure> {
        let shown = format!("{command:?}");
        let output = command.current_dir(&self.work).output();
        let output =
            output.map_err(|error| Failure::task(format!("could not start {shown}: {error}")))?;
        if output.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&output.stderr);
        Err(Failure::task(format!("{shown} failed ({}): {}", output.status, said.trim())))
    }

    fn pip(&self, verb: &str) -> process::Command {
        let mut command = process::Command::new(self.python());
        command.args(["-m", "pip", "--disable-pip-version-check", "--quiet", verb]);
        command
    }

    fn python(&self) -> PathBuf {
        self.work.join("venv/bin/python")
    }

    fn tests(&self) -> PathBuf {
        self.work.join(format!("source/azure_cosmos-{VERSION}/tests"))
    }
}

fn create(path: &Path) -> Result<(), Failure> {
    fs::create_dir_all(path).map_err(|error| not_written(path, &error))
}

fn not_written(path: &Path, error: &std::io::Error) -> Failure {
    Failure::task(format!("could not write {}: {error}", path.display()))
}
