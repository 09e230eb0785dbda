//! `cargo xtask ci`: everything a change must pass. What the steps are is data; running them has no
//! opinions.

use std::path::Path;

use crate::command::{Command, Failure, timed};

struct Step {
    name: &'static str,
    command: Command,
    /// A tool that a machine may lack; without it the step is skipped.
    needs: Option<Tool>,
}

struct Tool {
    asked: Command,
    missing: &'static str,
}

/// Runs the steps in order and stops at the first that fails.
///
/// # Errors
///
/// Names the failed step and the command that repeats it alone.
pub(crate) fn run(root: &Path) -> Result<(), Failure> {
    let steps = steps();
    let count = steps.len();
    let (result, time) = timed(|| {
        for (index, step) in steps.iter().enumerate() {
            println!("\n==> {}/{count} {}: {}", index + 1, step.name, step.command);
            run_step(root, step)?;
        }
        Ok(())
    });
    result?;
    println!("\n==> ci passed in {:.1} s", time.as_secs_f64());
    Ok(())
}

fn run_step(root: &Path, step: &Step) -> Result<(), Failure> {
    if let Some(tool) = &step.needs
        && !tool.asked.answers(root)
    {
        println!("==> {} skipped: {}", step.name, tool.missing);
        return Ok(());
    }
    let (result, time) = timed(|| step.command.run(root));
    let seconds = time.as_secs_f64();
    match result {
        Ok(()) => {
            println!("==> {} passed in {seconds:.1} s", step.name);
            Ok(())
        }
        Err(failure) => Err(Failure::task(format!(
            "ci stopped at {} after {seconds:.1} s: {failure}; repeat it with: {}",
            step.name, step.command,
        ))),
    }
}

/// Cheapest first, so that a slip is told in seconds. The tests come last: their closing lines are
/// what one looks for at the end of a log.
fn steps() -> Vec<Step> {
    let step = |name, command| Step { name, command, needs: None };
    vec![
        step("fmt", Command::cargo(["fmt", "--all", "--check"])),
        step("tidy", Command::cargo(["xtask", "tidy"])),
        step(
            "clippy",
            Command::cargo(["clippy", "--workspace", "--all-targets", "--locked"])
                .arguments(["--", "-D", "warnings"]),
        ),
        step(
            "docs",
            Command::cargo(["doc", "--no-deps", "--workspace", "--locked"])
                .variable("RUSTDOCFLAGS", "-D warnings"),
        ),
        // Built for release: thousands of seeds then take seconds.
        step("sim", Command::cargo(["xtask", "sim", "--seeds", "0..2000", "--mutants"])),
        Step {
            name: "deny",
            // Not advisories: they need the network and fail without a change of ours.
            command: Command::cargo(["deny", "check", "licenses", "bans", "sources"]),
            needs: Some(Tool {
                asked: Command::cargo(["deny", "--version"]),
                missing: "cargo-deny is not installed; get it with `cargo install cargo-deny`",
            }),
        },
        // Skipped, loudly, where its tests cannot be fetched.
        step("python", Command::cargo(["xtask", "conformance", "python", "--ci"])),
        step("crash", Command::cargo(["xtask", "crash", "--rounds", "20"])),
        step("power", Command::cargo(["xtask", "power"])),
        step("test", Command::cargo(["xtask", "test"])),
    ]
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use crate::ci::{Step, Tool, run_step, steps};
    use crate::command::Command;

    fn failing() -> Command {
        Command::new("no-such-program-of-ours")
    }

    #[test]
    fn the_tests_come_last() {
        let steps = steps();
        let last = steps.last().expect("there are steps");
        assert_eq!(last.command.to_string(), "cargo xtask test");
    }

    #[test]
    fn a_failed_step_says_how_to_repeat_it() {
        let step = Step { name: "docs", command: failing().arguments(["a b"]), needs: None };
        let failure = run_step(Path::new("."), &step).expect_err("the program does not exist");
        let text = failure.to_string();
        assert!(text.starts_with("ci stopped at docs after "), "{text}");
        assert!(text.ends_with("; repeat it with: no-such-program-of-ours 'a b'"), "{text}");
    }

    #[test]
    fn a_step_whose_tool_is_missing_is_skipped() {
        let tool = Tool { asked: failing(), missing: "it is not installed" };
        let step = Step { name: "deny", command: failing(), needs: Some(tool) };
        assert_eq!(run_step(Path::new("."), &step), Ok(()));
    }
}
