//! The tests of the SDK for Python, which its source distribution contains.

use std::path::PathBuf;
use std::process::Command;

use crate::command::Failure;
use crate::conformance::Fetched;
use crate::conformance::gateway::Gateway;
use crate::conformance::summary::Summary;
use crate::conformance::work::Work;

/// The version whose tests are run. Another one has other tests, and the lists have to follow.
const VERSION: &str = "4.17.1";
/// What the tests need beside the SDK.
const PACKAGES: [&str; 5] = ["aiohttp", "pytest", "pytest-asyncio", "pytest-timeout", "requests"];
/// Longest time of one test; the slowest wait for items to expire.
const TEST_SECONDS_MAX: u32 = 180;

/// What the tests import beside the SDK.
const STUBS: [(&str, &str); 4] = [
    // Stands for a package of the SDK's own repository: nothing of it is needed with a key.
    ("devtools_testutils/__init__.py", ""),
    (
        "devtools_testutils/azure_recorded_testcase.py",
        "def get_credential(**kwargs):\n    return None\n",
    ),
    ("devtools_testutils/helpers.py", "def is_live():\n    return True\n"),
    ("millstream_scope.py", include_str!("python_scope.py")),
];

/// The suite, in an environment of its own.
pub(crate) struct Python {
    python: PathBuf,
    tests: PathBuf,
}

impl Python {
    /// Fetches what is not there yet.
    ///
    /// # Errors
    ///
    /// Something cannot be fetched.
    pub(crate) fn fetch(work: &Work) -> Result<Self, Failure> {
        let suite = Self {
            python: work.path("venv/bin/python"),
            tests: work.path(&format!("source/azure_cosmos-{VERSION}/tests")),
        };
        for (name, text) in STUBS {
            work.write(&format!("stubs/{name}"), text)?;
        }
        if !suite.python.exists() {
            work.step(Command::new("python3").args(["-m", "venv", "venv"]))?;
        }
        // Asked every time: it is quick when everything is there, and repairs what is not.
        let sdk = format!("azure-cosmos=={VERSION}");
        work.step(suite.pip("install").arg(&sdk).args(PACKAGES))?;
        if !suite.tests.exists() {
            let options = ["--no-deps", "--no-binary", "azure-cosmos", "--dest", "source"];
            work.step(suite.pip("download").args(options).arg(&sdk))?;
            let archive = format!("source/azure_cosmos-{VERSION}.tar.gz");
            let mut unpack = Command::new(&suite.python);
            work.step(unpack.args(["-m", "tarfile", "-e", &archive, "source"]))?;
        }
        Ok(suite)
    }

    fn pip(&self, verb: &str) -> Command {
        let mut command = Command::new(&self.python);
        command.args(["-m", "pip", "--disable-pip-version-check", "--quiet", verb]);
        command
    }
}

impl Fetched for Python {
    fn run_file(
        &self,
        work: &Work,
        gateway: &Gateway,
        file: &str,
        out_of_scope: &[String],
    ) -> Result<Summary, Failure> {
        let left_out = format!("logs/{file}.out-of-scope");
        work.write(&left_out, &out_of_scope.join("\n"))?;
        let mut command = Command::new(&self.python);
        command
            .args(["-m", "pytest", "-q", "-rA", "--tb=short", "-p", "no:cacheprovider"])
            // Tests are named from here, and the lists name them so.
            .arg("--rootdir=.")
            .args(["-p", "millstream_scope"])
            .arg(format!("--timeout={TEST_SECONDS_MAX}"))
            .arg(file)
            .current_dir(&self.tests)
            .env("ACCOUNT_HOST", &gateway.address)
            .env("PYTHONPATH", work.path("stubs"))
            .env("PYTHONWARNINGS", "ignore")
            .env("MILLSTREAM_OUT_OF_SCOPE", work.path(&left_out));
        let (output, succeeded) = work.test(file, &mut command)?;
        let mut summary = Summary { out_of_scope: out_of_scope.len(), ..Summary::default() };
        summary.count_pytest(&output, succeeded);
        Ok(summary)
    }
}
