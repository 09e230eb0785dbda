//! Commands that tasks start: how they are shown, run and how they fail.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::Path;
use std::process::{self, ExitCode, Stdio};
use std::time::{Duration, Instant};

/// A command to run in the repository. Shown as one can type it in a shell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Command {
    program: &'static str,
    arguments: Vec<String>,
    variables: Vec<(&'static str, &'static str)>,
}

impl Command {
    pub(crate) fn new(program: &'static str) -> Self {
        Self { program, arguments: Vec::new(), variables: Vec::new() }
    }

    pub(crate) fn cargo<'a>(arguments: impl IntoIterator<Item = &'a str>) -> Self {
        Self::new("cargo").arguments(arguments)
    }

    pub(crate) fn arguments(mut self, more: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.arguments.extend(more.into_iter().map(Into::into));
        self
    }

    pub(crate) fn variable(mut self, name: &'static str, value: &'static str) -> Self {
        self.variables.push((name, value));
        self
    }

    /// Runs it with our own input and output and waits for its end.
    ///
    /// # Errors
    ///
    /// It could not be started, or ended with another status than 0, which becomes ours.
    pub(crate) fn run(&self, root: &Path) -> Result<(), Failure> {
        let status = self.prepared(root).status().map_err(|it| self.not_started(&it))?;
        self.judge(status)
    }

    /// What it prints, without a line feed at the end.
    ///
    /// # Errors
    ///
    /// As `run`; what it wrote to its error output is shown to the user.
    pub(crate) fn output(&self, root: &Path) -> Result<String, Failure> {
        let output = self
            .prepared(root)
            .stderr(Stdio::inherit())
            .output()
            .map_err(|it| self.not_started(&it))?;
        self.judge(output.status)?;
        Ok(String::from_utf8_lossy(&output.stdout).trim_end().to_owned())
    }

    /// Whether it can be started and succeeds; for asking if a tool is installed.
    pub(crate) fn answers(&self, root: &Path) -> bool {
        let mut command = self.prepared(root);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.status().is_ok_and(|it| it.success())
    }

    pub(crate) fn prepared(&self, root: &Path) -> process::Command {
        let mut command = process::Command::new(self.executable());
        for (name, _) in std::env::vars_os().filter(|(name, _)| is_about_our_package(name)) {
            command.env_remove(name);
        }
        command.args(&self.arguments).envs(self.variables.iter().copied()).current_dir(root);
        command
    }

    pub(crate) fn judge(&self, status: process::ExitStatus) -> Result<(), Failure> {
        if status.success() {
            return Ok(());
        }
        // A command ended by a signal has no code of its own.
        let code = status.code().and_then(|it| u8::try_from(it).ok()).unwrap_or(1);
        Err(Failure { message: format!("`{self}` failed ({status})"), code, misused: false })
    }

    pub(crate) fn not_started(&self, cause: &std::io::Error) -> Failure {
        Failure::task(format!("could not start `{self}`: {cause}"))
    }

    /// Cargo tells its children which cargo they run under: the same toolchain goes on.
    fn executable(&self) -> OsString {
        let inherited = if self.program == "cargo" { std::env::var_os("CARGO") } else { None };
        inherited.unwrap_or_else(|| self.program.into())
    }
}

/// Cargo tells a program that it runs about the package of the program. Build scripts of libraries
/// look at the same variables: with ours, everything above them would be built again and again.
fn is_about_our_package(variable: &OsStr) -> bool {
    let name = variable.as_encoded_bytes();
    name.starts_with(b"CARGO_PKG_") || name.starts_with(b"CARGO_MANIFEST_")
}

impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, value) in &self.variables {
            write!(f, "{name}={} ", quoted(value))?;
        }
        write!(f, "{}", self.program)?;
        for argument in &self.arguments {
            write!(f, " {}", quoted(argument))?;
        }
        Ok(())
    }
}

/// Why a task did not succeed, in a sentence for the person who started it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    message: String,
    code: u8,
    misused: bool,
}

impl Failure {
    pub(crate) fn task(message: impl Into<String>) -> Self {
        Self { message: message.into(), code: 1, misused: false }
    }

    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self { message: message.into(), code: 2, misused: true }
    }

    pub(crate) fn exit_code(&self) -> ExitCode {
        ExitCode::from(self.code)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.message)?;
        if self.misused {
            write!(f, "; `cargo xtask --help` lists the tasks")?;
        }
        Ok(())
    }
}

/// Runs `work` and says how long it took.
#[expect(
    clippy::disallowed_methods,
    reason = "a person waits for this and no simulation runs it, so it is the real time that counts"
)]
pub(crate) fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let start = Instant::now();
    let result = work();
    (result, start.elapsed())
}

fn quoted(word: &str) -> String {
    let plain = |it: char| it.is_ascii_alphanumeric() || "-_./=:,+@".contains(it);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::process::Stdio;

    use crate::command::{Command, Failure, quoted};

    #[track_caller]
    fn check(command: &Command, shown: &str) {
        assert_eq!(command.to_string(), shown);
    }

    #[test]
    fn is_shown_as_one_can_type_it() {
        check(&Command::cargo(["fmt", "--check"]), "cargo fmt --check");
        check(
            &Command::cargo(["doc"]).variable("RUSTDOCFLAGS", "-D warnings"),
            "RUSTDOCFLAGS='-D warnings' cargo doc",
        );
    }

    #[test]
    fn what_is_told_about_our_package_is_not_passed_on() {
        let command = Command::cargo(["build"]).prepared(Path::new("."));
        let removed: Vec<_> = command.get_envs().filter(|(_, value)| value.is_none()).collect();
        for name in ["CARGO_MANIFEST_DIR", "CARGO_PKG_NAME"] {
            assert!(removed.iter().any(|(it, _)| *it == name), "{name} is not in {removed:?}");
        }
        assert!(removed.iter().all(|(it, _)| *it != "CARGO"), "{removed:?}");
    }

    #[test]
    fn quotes_what_a_shell_would_take_apart() {
        assert_eq!(quoted("a b"), "'a b'");
        assert_eq!(quoted("it's"), "'it'\\''s'");
        assert_eq!(quoted(""), "''");
        assert_eq!(quoted("-max_total_time=5"), "-max_total_time=5");
    }

    #[test]
    fn a_failed_command_says_which_and_keeps_its_status() {
        let command = Command::cargo(["no-such-subcommand-of-ours"]);
        // Its complaint would look like a failed test in the log.
        let mut quiet = command.prepared(Path::new("."));
        let status = quiet.stderr(Stdio::null()).status().expect("cargo runs these tests");
        let failure = command.judge(status).expect_err("the subcommand does not exist");
        assert!(failure.to_string().starts_with("`cargo no-such-subcommand-of-ours` failed"));
        assert_eq!(failure.code, 101);
    }

    #[test]
    fn a_missing_program_is_a_sentence_and_not_a_panic() {
        let command = Command::new("no-such-program-of-ours");
        assert!(!command.answers(Path::new(".")));
        let failure = command.run(Path::new(".")).expect_err("the program does not exist");
        assert!(failure.to_string().starts_with("could not start `no-such-program-of-ours`: "));
    }

    #[test]
    fn misuse_points_at_the_help() {
        assert_eq!(
            Failure::usage("no task given").to_string(),
            "no task given; `cargo xtask --help` lists the tasks",
        );
    }
}
