//! `cargo xtask test`: every test of the workspace, and one line that sums them up.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::Stdio;

use crate::command::{Command, Failure, timed};

/// Runs every test. `in_ci` refuses a stale lock file and shows every failure, not only the first.
pub(crate) fn run(root: &Path, in_ci: bool, rest: Vec<String>) -> Result<(), Failure> {
    let command = tests(in_ci, rest);
    println!("test: {command}");
    let (outcome, time) = timed(|| run_counting(&command, root));
    let (totals, judged) = outcome?;
    let verdict = if judged.is_ok() { "ok" } else { "FAILED" };
    println!(
        "all tests: {verdict}. {} passed; {} failed; {} ignored, from {} test programs; \
         {:.1} s with building",
        totals.passed,
        totals.failed,
        totals.ignored,
        totals.programs,
        time.as_secs_f64(),
    );
    judged
}

fn tests(in_ci: bool, rest: Vec<String>) -> Command {
    let command = Command::cargo(["test", "--workspace"]);
    let command = if in_ci { command.arguments(["--locked", "--no-fail-fast"]) } else { command };
    command.arguments(rest)
}

/// What the closing lines of all test programs add up to.
#[derive(Debug, Default, PartialEq, Eq)]
struct Totals {
    programs: u64,
    passed: u64,
    failed: u64,
    ignored: u64,
}

impl Totals {
    fn add(&mut self, line: &str) {
        let Some(counts) = line.strip_prefix("test result: ") else { return };
        self.programs += 1;
        self.passed += count(counts, "passed");
        self.failed += count(counts, "failed");
        self.ignored += count(counts, "ignored");
    }
}

fn count(counts: &str, word: &str) -> u64 {
    let words: Vec<&str> = counts.split([' ', ';']).filter(|it| !it.is_empty()).collect();
    let pair = words.windows(2).find(|pair| pair[1] == word);
    pair.and_then(|pair| pair[0].parse().ok()).unwrap_or(0)
}

fn run_counting(command: &Command, root: &Path) -> Result<(Totals, Result<(), Failure>), Failure> {
    let mut child = command
        .prepared(root)
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|it| command.not_started(&it))?;
    let output = child.stdout.take().expect("the output was asked for as a pipe");
    let counted = pass_on(output, &mut io::stdout().lock());
    let status = child.wait().map_err(|it| command.not_started(&it))?;
    let totals =
        counted.map_err(|it| Failure::task(format!("could not show the tests' output: {it}")))?;
    Ok((totals, command.judge(status)))
}

fn pass_on(from: impl Read, to: &mut impl Write) -> io::Result<Totals> {
    let mut from = BufReader::new(from);
    let mut totals = Totals::default();
    // Bytes, not text: a test may print anything.
    let mut line = Vec::new();
    while 0 < from.read_until(b'\n', &mut line)? {
        to.write_all(&line)?;
        to.flush()?;
        totals.add(String::from_utf8_lossy(&line).trim_end());
        line.clear();
    }
    Ok(totals)
}

#[cfg(test)]
mod tests {
    use crate::test::{Totals, pass_on, tests};

    #[track_caller]
    fn check(output: &str, programs: u64, passed: u64, failed: u64, ignored: u64) {
        let mut shown = Vec::new();
        let totals = pass_on(output.as_bytes(), &mut shown).expect("a vector takes everything");
        assert_eq!(totals, Totals { programs, passed, failed, ignored });
        assert_eq!(shown, output.as_bytes(), "the output was changed on its way");
    }

    #[test]
    fn sums_up_all_test_programs() {
        check(
            "running 2 tests\n\
             test result: ok. 2 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out\n\
             \n\
             test result: FAILED. 40 passed; 3 failed; 0 ignored; 0 measured; 0 filtered out",
            2,
            42,
            3,
            1,
        );
    }

    #[test]
    fn other_lines_count_for_nothing() {
        check("test feed::a ... ok\nmy test result: 7 passed\n", 0, 0, 0, 0);
    }

    #[test]
    fn ci_refuses_a_stale_lock_file_and_shows_every_failure() {
        assert_eq!(tests(false, vec![]).to_string(), "cargo test --workspace");
        assert_eq!(
            tests(true, vec!["--".to_owned(), "feed".to_owned()]).to_string(),
            "cargo test --workspace --locked --no-fail-fast -- feed",
        );
    }
}
