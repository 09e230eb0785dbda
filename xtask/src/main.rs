//! Tasks of the repository, run as `cargo xtask <task>`.
//!
//! Not here: what a benchmark, a crash run or a simulation does; those are programs of their own
//! that a task starts. Read `arguments` first (what can be asked for), then `ci` (the steps as
//! data) and `tidy` (the rules).

#![expect(clippy::print_stdout, reason = "a task talks to the person who started it")]

mod arguments;
mod ci;
mod command;
mod conformance;
mod fuzz;
mod test;
mod tidy;

use std::env;
use std::path::PathBuf;
use std::process::ExitCode;

use crate::arguments::{HELP, Task};
use crate::command::{Command, Failure};

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let result = arguments::parse(&arguments).map_err(Failure::usage).and_then(run);
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("error: {failure}");
            failure.exit_code()
        }
    }
}

fn run(task: Task) -> Result<(), Failure> {
    let root = repository_root()?;
    let in_ci = env::var("CI").is_ok_and(|it| it == "true");
    match task {
        Task::Help => {
            print!("{HELP}");
            Ok(())
        }
        Task::Test(rest) => test::run(&root, in_ci, rest),
        Task::Tidy => tidy::run(&root),
        Task::Bench(rest) => program("dist", "millstream-bench", rest).run(&root),
        Task::Crash(rest) => {
            program("release", "millstream-crash", with_first("crash", rest)).run(&root)
        }
        Task::Power(rest) => {
            program("release", "millstream-crash", with_first("power", rest)).run(&root)
        }
        Task::Prove(rest) => program("release", "millstream-prove", rest).run(&root),
        Task::Sim(rest) => program("release", "millstream-sim", rest).run(&root),
        Task::Fuzz { target, seconds } => fuzz::run(&root, target, seconds),
        Task::Conformance { suite, wanted } => conformance::run(&root, suite, &wanted),
        Task::Ci => ci::run(&root),
    }
}

/// A program of the workspace, built for speed because what it measures or provokes depends on it.
fn program(profile: &str, package: &str, rest: Vec<String>) -> Command {
    let command = ["run", "--quiet", "--profile", profile, "--package", package, "--"];
    Command::cargo(command).arguments(rest)
}

fn with_first(first: &str, rest: Vec<String>) -> Vec<String> {
    [vec![first.to_owned()], rest].concat()
}

/// Cargo says where this crate is when it runs it. The path is not compiled in, so a program built
/// in one checkout does not inspect another.
fn repository_root() -> Result<PathBuf, Failure> {
    let own = env::var_os("CARGO_MANIFEST_DIR").ok_or_else(|| {
        Failure::task("could not find the repository: start me with `cargo xtask`")
    })?;
    let own = PathBuf::from(own);
    own.parent()
        .map(PathBuf::from)
        .ok_or_else(|| Failure::task(format!("could not find the parent of {}", own.display())))
}
