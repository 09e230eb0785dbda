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
    pub(crate) fn count_pytest(&mut self, output: &str, succeeded: bool) {
        let start = output.rfind(HEADING).unwrap_or(output.len());
        for line in output[start..].lines() {
            let word = line.split(' ').next().unwrap_or_default();
            match word {
                "PASSED" | "XPASS" => self.passed += 1,
                "FAILED" | "ERROR" => self.failed += 1,
                "SKIPPED" => self.skipped += skipped(line),
                "XFAIL" => self.skipped += 1,
                _ => {}
            }
        }
        self.judge(succeeded);
    }

    /// Counts the lines of Rust's test harness, `test NAME ... RESULT`, one for each test. A test
    /// that has only said that it skips itself counts as skipped.
    ///
    /// A run that died counts as a failed test, too.
    pub(crate) fn count_libtest(&mut self, output: &str, succeeded: bool) {
        let skipped = self_skipped(output).len();
        for line in output.lines() {
            let Some(line) = line.strip_prefix("test ") else { continue };
            let Some((_, result)) = line.split_once(" ... ") else { continue };
            match result {
                "ok" => self.passed += 1,
                "FAILED" => self.failed += 1,
                ignored if ignored.starts_with("ignored") => self.skipped += 1,
                _ => {}
            }
        }
        self.passed = self.passed.saturating_sub(skipped);
        self.skipped += skipped;
        self.judge(succeeded);
    }

    /// Counts the lines of the Test Anything Protocol, `ok` or `not ok` and a name, one for each
    /// test. A run that died counts as a failed test, too.
    pub(crate) fn count_tap(&mut self, output: &str, succeeded: bool) {
        for line in output.lines() {
            let is_skipped = line.contains("# SKIP");
            match line.split_once(' ') {
                Some(("ok", _)) if is_skipped => self.skipped += 1,
                Some(("ok", _)) => self.passed += 1,
                Some(("not", rest)) if rest.starts_with("ok ") => self.failed += 1,
                Some(_) | None => {}
            }
        }
        self.judge(succeeded);
    }

    /// Counts the lines of Go's tests, `--- PASS: NAME`; those of parts of a test are indented. A
    /// run that died counts as a failed test, too.
    pub(crate) fn count_go(&mut self, output: &str, succeeded: bool) {
        for line in output.lines() {
            match line.strip_prefix("--- ").and_then(|it| it.split(':').next()) {
                Some("PASS") => self.passed += 1,
                Some("FAIL") => self.failed += 1,
                Some("SKIP") => self.skipped += 1,
                Some(_) | None => {}
            }
        }
        self.judge(succeeded);
    }

    /// `suite NAME FILE PASSED FAILED SKIPPED`.
    pub(crate) fn line(&self) -> String {
        let Self { suite, file, passed, failed, skipped, .. } = self;
        format!("suite {suite} {file} {passed} {failed} {skipped}")
    }

    fn judge(&mut self, succeeded: bool) {
        if !succeeded && self.failed == 0 {
            self.failed = 1;
        }
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

/// The tests that passed because they skipped themselves: the first line that they printed says so.
/// The harness shows what passed tests print if it is told to, under `successes:`.
pub(crate) fn self_skipped(output: &str) -> Vec<&str> {
    let mut names = Vec::new();
    let mut lines = output.lines().skip_while(|it| *it != "successes:");
    while let Some(line) = lines.next().filter(|it| *it != "failures:") {
        let name = line.strip_prefix("---- ").and_then(|it| it.strip_suffix(" stdout ----"));
        let Some(name) = name else { continue };
        let printed = lines.next().unwrap_or_default();
        if printed.get(..8).is_some_and(|it| it.eq_ignore_ascii_case("skipping")) {
            names.push(name);
        }
    }
    names
}

/// `SKIPPED [3] file:12: reason` stands for three tests.
fn skipped(line: &str) -> usize {
    let count = line.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
    count.and_then(|(count, _)| count.parse().ok()).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The output of a run that did not succeed, and the line it gives.
    #[track_caller]
    fn check(count: fn(&mut Summary, &str, bool), output: &str, line: &str) {
        let mut summary = Summary { suite: "a", file: "b".to_owned(), ..Summary::default() };
        count(&mut summary, output, false);
        assert_eq!(summary.line(), line);
    }

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
        check(Summary::count_pytest, output, "suite a b 1 2 4");
    }

    #[test]
    fn the_rust_harness_is_understood_too() {
        let output = "\
running 4 tests
test emulator_tests::cosmos_batch::a ... ok
test emulator_tests::cosmos_batch::b - should panic ... ok
test emulator_tests::cosmos_batch::e ... ok
test emulator_tests::cosmos_batch::c ... FAILED
test emulator_tests::cosmos_batch::d ... ignored, requires a live account

successes:

---- emulator_tests::cosmos_batch::a stdout ----
not skipping anything
---- emulator_tests::cosmos_batch::e stdout ----
Skipping it: not here

failures:

---- emulator_tests::cosmos_batch::c stdout ----
skipping forward
test of something else
test result: FAILED. 3 passed; 1 failed; 1 ignored; 0 measured; 0 filtered out
";
        check(Summary::count_libtest, output, "suite a b 2 1 2");
        assert_eq!(self_skipped(output), ["emulator_tests::cosmos_batch::e"]);
    }

    #[test]
    fn the_test_anything_protocol_is_understood() {
        let output = "\
TAP version 13
# Subtest: a
ok 1 - a
  ---
  ok: not this one
not ok 2 - b
ok - c # SKIP not here
nothing else
1..3
";
        check(Summary::count_tap, output, "suite a b 1 1 1");
    }

    #[test]
    fn the_tests_of_go_are_counted_without_their_parts() {
        let output = "\
=== RUN   TestA
=== RUN   TestA/part
--- PASS: TestA (0.10s)
    --- PASS: TestA/part (0.05s)
--- FAIL: TestB (0.00s)
    --- FAIL: TestB/part (0.00s)
--- SKIP: TestC (0.00s)
FAIL
";
        check(Summary::count_go, output, "suite a b 1 1 1");
    }

    #[test]
    fn a_run_that_died_has_failed() {
        check(Summary::count_pytest, "", "suite a b 0 1 0");
        check(Summary::count_tap, "TAP version 13", "suite a b 0 1 0");
        check(Summary::count_libtest, "test a ... ", "suite a b 0 1 0");
        check(Summary::count_go, "=== RUN   TestA\npanic: test timed out", "suite a b 0 1 0");
    }

    #[test]
    fn the_table_ends_with_the_sum() {
        let one = Summary { file: "a.py".to_owned(), passed: 2, skipped: 1, ..Summary::default() };
        let table = table(&[one.clone(), one]);
        let last = table.lines().last().expect("it has lines");
        assert_eq!(last.split_whitespace().collect::<Vec<_>>(), ["total", "4", "0", "2", "0"]);
    }
}
