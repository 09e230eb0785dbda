//! `cargo xtask conformance`: the official SDKs against a freshly started gateway.
//!
//! Those for Python, Rust and Go are tried by their own tests. These are fetched when they are run,
//! because they are not ours to keep. The others are published without theirs, and are tried by
//! tests of ours in `conformance/`; only the SDK is fetched. Which files count, and which of their
//! tests do not and why, is in `conformance/` too. Read `scope` for the lists, `summary` for what a
//! run said, `gateway` for the server, `work` for what suites share, and then `python`, `rust`,
//! `go`, `js`, `java` and `dotnet` for the suites.

mod dotnet;
mod gateway;
mod go;
mod java;
mod js;
mod python;
mod rust;
mod scope;
mod summary;
mod work;

use std::path::Path;

use crate::command::{Failure, timed};
use crate::conformance::dotnet::Dotnet;
use crate::conformance::gateway::Gateway;
use crate::conformance::go::Go;
use crate::conformance::java::Java;
use crate::conformance::js::Js;
use crate::conformance::python::Python;
use crate::conformance::rust::Rust;
use crate::conformance::scope::{Listed, OutOfScope};
use crate::conformance::summary::Summary;
use crate::conformance::work::Work;

/// What the answers to tests of timeouts are delayed by: more than a client waits that was told to
/// wait no time at all.
const DELAY_MS: u32 = 5;

/// Whose tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Suite {
    Python,
    Rust,
    Go,
    Js,
    Java,
    Dotnet,
}

/// A suite on this machine.
trait Fetched {
    /// Runs the tests of one file but for those that are out of scope, given as `file::test`.
    /// Failed tests are no error.
    fn run_file(
        &self,
        work: &Work,
        gateway: &Gateway,
        file: &str,
        out_of_scope: &[String],
    ) -> Result<Summary, Failure>;
}

/// Which files of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// All that are listed.
    All,
    /// Those that every change has to pass; skipped where the suite cannot be fetched.
    Ci,
    /// These.
    Files(Vec<String>),
}

impl Wanted {
    /// The wanted files, with what is listed about them.
    fn of(&self, listed: &[Listed]) -> Vec<Listed> {
        let find = |name: &String| listed.iter().find(|it| it.name == *name).cloned();
        let new = |name: &String| Listed { name: name.clone(), ..Listed::default() };
        match self {
            Self::All => listed.to_vec(),
            Self::Ci => listed.iter().filter(|it| it.is_in_ci).cloned().collect(),
            Self::Files(names) => {
                names.iter().map(|name| find(name).unwrap_or_else(|| new(name))).collect()
            }
        }
    }
}

impl Suite {
    /// All of them, for help and errors.
    pub(crate) const ALL: [Self; 6] =
        [Self::Python, Self::Rust, Self::Go, Self::Js, Self::Java, Self::Dotnet];

    /// What it is called on the command line, in results and in the names of its lists.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Python => "python",
            Self::Rust => "rust",
            Self::Go => "go",
            Self::Js => "js",
            Self::Java => "java",
            Self::Dotnet => "dotnet",
        }
    }

    /// Fetches it to this machine; `sources` has the tests that are ours.
    fn fetch(self, sources: &Path, work: &Work) -> Result<Box<dyn Fetched>, Failure> {
        Ok(match self {
            Self::Python => Box::new(Python::fetch(work)?),
            Self::Rust => Box::new(Rust::fetch(work)?),
            Self::Go => Box::new(Go::fetch(work)?),
            Self::Js => Box::new(Js::fetch(sources, work)?),
            Self::Java => Box::new(Java::fetch(sources, work)?),
            Self::Dotnet => Box::new(Dotnet::fetch(sources, work)?),
        })
    }
}

/// Runs files of a suite.
///
/// # Errors
///
/// Something could not be fetched or started, or a test that is in scope failed.
pub(crate) fn run(root: &Path, suite: Suite, wanted: &Wanted) -> Result<(), Failure> {
    let name = suite.name();
    let lists = root.join("conformance");
    let out_of_scope = OutOfScope::read(&lists.join(format!("{name}-out-of-scope.txt")))?;
    let files = wanted.of(&scope::files(&lists.join(format!("{name}-files.txt")))?);
    let work = Work::new(root, name)?;
    let fetched = match suite.fetch(&lists, &work) {
        Ok(fetched) => fetched,
        Err(failure) if *wanted == Wanted::Ci && !is_required(suite) => {
            println!("WARNING: the tests of the SDK for {name} are SKIPPED: {failure}");
            return Ok(());
        }
        Err(failure) => return Err(failure),
    };
    let mut summaries = Vec::new();
    for (is_delayed, delay_ms) in [(false, 0), (true, DELAY_MS)] {
        let files = files.iter().filter(|it| it.is_delayed == is_delayed);
        let files: Vec<&Listed> = files.filter(|it| !out_of_scope.has_file(&it.name)).collect();
        if files.is_empty() {
            continue;
        }
        let gateway = Gateway::start(root, delay_ms)?;
        for Listed { name: file, .. } in files {
            let left_out = out_of_scope.tests_of(file);
            let (ran, time) = timed(|| fetched.run_file(&work, &gateway, file, &left_out));
            let summary = Summary { suite: name, file: file.clone(), ..ran? };
            println!("{file}: {} s\n{}", time.as_secs(), summary.line());
            summaries.push(summary);
        }
    }
    println!("\n{}", summary::table(&summaries));
    let failed: usize = summaries.iter().map(|it| it.failed).sum();
    if 0 < failed {
        let message =
            format!("{failed} tests failed; their output is in {}", work.logs().display());
        return Err(Failure::task(message));
    }
    Ok(())
}

/// Whether it is a failure that the suite cannot be had.
fn is_required(suite: Suite) -> bool {
    let required = std::env::var("MILLSTREAM_TEST_REQUIRE").unwrap_or_default();
    required.split(',').any(|it| it.trim() == suite.name())
}
