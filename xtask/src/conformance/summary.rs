//! What a run of one file said.

use std::fmt::Write;

/// What pytest writes above its short summary.
const HEADING: &str = "short test summary info";

/// How the tests of a file ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Summary {
    pub(crate) suite: &'static str,
    pub(crate) file: String,
    pub(crate) passed: usize,
    pub(crate) failed: usize,
    pub(crate) skipped: usize,
    /// Tests that were not run because they are out of scope.
    pub(crate) out_of_scope: usize,
}

impl Summary {
    /// Counts the lines of pytest's short summary, one for each test. What stands before it are
    /// outputs of tests, which may look the same.
    ///
    /// A run that died has no such lines, so a run that failed without a failed test counts as one.
    pub(crate) fn of_pytest(file: &str, output: &str, succeeded: bool) -> Self {
        let mut summary = Self { suite: "python", file: file.to_owned(), ..Self::default() };
        let start = output.rfind(HEADING).unwrap_or(output.len());
        for line in output[start..].lines() {
            let word = line.split(' ').next().unwrap_or_default();
            match word {
                "PASSED" | "XPASS" => summary.passed += 1,
                "FAILED" | "ERROR" => summary.failed += 1,
                "SKIPPED" => summary.skipped += skipped(line),
                "XFAIL" => summary.skipped += 1,
                _ => {}
            }
        }
        if !succeeded && summary.failed == 0 {
            summary.failed = 1;
        }
        summary
    }

    /// `suite NAME FILE PASSED FAILED SKIPPED`.
    pub(crate) fn line(&self) -> String {
        let Self { suite, file, passed, failed, skipped, .. } = self;
        format!("suite {suite} {file} {passed} {failed} {skipped}")
    }
}

/// All of them side by side, with their sum.
pub(crate) fn table(summaries: &[Summary]) -> String {
    let width = summaries.iter().map(|it| it.file.len()).max().unwrap_or(0).max(5);
    let mut text = format!(
        "{:width$} {:>7} {:>7} {:>8} {:>13}\n",
        "file", "passed", "failed", "skipped", "out of scope"
    );
    let mut sum = Summary { file: "total".to_owned(), ..Summary::default() };
    for one in summaries {
        push_row(&mut text, one, width);
        sum.passed += one.passed;
        sum.failed += one.failed;
        sum.skipped += one.skipped;
        sum.out_of_scope += one.out_of_scope;
    }
    push_row(&mut text, &sum, width);
    text
}

fn push_row(text: &mut String, row: &Summary, width: usize) {
    let Summary { file, passed, failed, skipped, out_of_scope, .. } = row;
    let written =
        writeln!(text, "{file:width$} {passed:>7} {failed:>7} {skipped:>8} {out_of_scope:>13}");
    written.expect("a string takes everything");
}

/// `SKIPPED [3] file:12: reason` stands for three tests.
fn skipped(line: &str) -> usize {
    let count = line.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
    count.and_then(|(count, _)| count.parse().ok()).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_test_is_counted_once() {
        let output = "\
ERROR    azure.cosmos: something that a test provoked
==== short test summary info ====
PASSED test_ttl.py::Test_ttl::test_a
FAILED test_ttl.py::Test_ttl::test_b - AssertionError
ERROR test_ttl.py::Test_ttl::test_c - Exception
SKIPPED [3] test_ttl.py:12: not here
XFAIL test_ttl.py::Test_ttl::test_d
== 1 failed, 1 passed ==
";
        let summary = Summary::of_pytest("test_ttl.py", output, false);
        assert_eq!(summary.line(), "suite python test_ttl.py 1 2 4");
    }

    #[test]
    fn a_run_that_died_has_failed() {
        assert_eq!(Summary::of_pytest("a.py", "", false).failed, 1);
        assert_eq!(Summary::of_pytest("a.py", "", true).failed, 0);
    }

    #[test]
    fn the_table_ends_with_the_sum() {
        let one = Summary { file: "a.py".to_owned(), passed: 2, skipped: 1, ..Summary::default() };
        let table = table(&[one.clone(), one]);
        let last = table.lines().last().expect("it has lines");
        assert_eq!(last.split_whitespace().collect::<Vec<_>>(), ["total", "4", "0", "2", "0"]);
    }
}
