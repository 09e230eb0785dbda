//! `cargo xtask conformance`: the official SDKs' own tests against a freshly started gateway.
//!
//! A suite is fetched when it is run, because its tests are not ours to keep. Which files count,
//! and which of their tests do not and why, is in `conformance/`. Read `scope` for the lists,
//! `summary` for what a run said, `gateway` for the server, and `python` for the suite.

mod gateway;
mod python;
mod scope;
mod summary;

use std::path::{Path, PathBuf};

use crate::command::Failure;
use crate::conformance::summary::Summary;

/// Whose tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Suite {
    Python,
}

/// Runs the files of a suite, or those that are named.
///
/// # Errors
///
/// Something could not be fetched or started, or a test that is in scope failed.
pub(crate) fn run(root: &Path, suite: Suite, files: &[String]) -> Result<(), Failure> {
    let Suite::Python = suite;
    let summaries = python::run(root, files)?;
    println!("\n{}", summary::table(&summaries));
    let failed: usize = summaries.iter().map(|it| it.failed).sum();
    if 0 < failed {
        let work = directory(root).join("python/logs");
        let message = format!("{failed} tests failed; their output is in {}", work.display());
        return Err(Failure::task(message));
    }
    Ok(())
}

/// Where suites are fetched to; cargo's own place for what can be made again.
fn directory(root: &Path) -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    target.unwrap_or_else(|| root.join("target")).join("conformance")
}

/// Prints the result of one file as it is known.
fn report(summary: &Summary) {
    println!("{}", summary.line());
}
