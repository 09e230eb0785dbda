//! Where a suite is fetched to and run from, and how its steps are started.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::command::Failure;

/// The directory of one suite: cargo's own place for what can be made again.
#[derive(Debug)]
pub(crate) struct Work {
    directory: PathBuf,
}

impl Work {
    /// Makes the directory.
    ///
    /// # Errors
    ///
    /// It cannot be written.
    pub(crate) fn new(root: &Path, suite: &str) -> Result<Self, Failure> {
        let work = Self { directory: target(root)?.join("conformance").join(suite) };
        create(&work.logs())?;
        Ok(work)
    }

    /// A place within.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// Where the output of tests is kept.
    pub(crate) fn logs(&self) -> PathBuf {
        self.path("logs")
    }

    /// Writes a small file, and the directories above it.
    ///
    /// # Errors
    ///
    /// It cannot be written.
    pub(crate) fn write(&self, name: &str, text: &str) -> Result<(), Failure> {
        let path = self.path(name);
        create(path.parent().unwrap_or(&self.directory))?;
        fs::write(&path, text).map_err(|error| not_written(&path, &error))
    }

    /// Copies the files of a directory, and removes those that were there before.
    ///
    /// # Errors
    ///
    /// One cannot be read or written.
    pub(crate) fn copy(&self, from: &Path, to: &str) -> Result<(), Failure> {
        let to = self.path(to);
        if to.exists() {
            fs::remove_dir_all(&to).map_err(|error| not_written(&to, &error))?;
        }
        create(&to)?;
        let not_read = |error: std::io::Error| {
            Failure::task(format!("could not read {}: {error}", from.display()))
        };
        for entry in fs::read_dir(from).map_err(not_read)? {
            let entry = entry.map_err(not_read)?;
            fs::copy(entry.path(), to.join(entry.file_name())).map_err(not_read)?;
        }
        Ok(())
    }

    /// Runs one step of fetching and gives what it printed; what it complains about is shown only
    /// if it fails.
    ///
    /// # Errors
    ///
    /// It cannot be started, or fails.
    pub(crate) fn step(&self, command: &mut Command) -> Result<String, Failure> {
        let shown = format!("{command:?}");
        let output = command.current_dir(&self.directory).stdin(Stdio::null()).output();
        let output =
            output.map_err(|error| Failure::task(format!("could not start {shown}: {error}")))?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        let said = String::from_utf8_lossy(&output.stderr);
        Err(Failure::task(format!("{shown} failed ({}): {}", output.status, said.trim())))
    }

    /// Runs the tests of a file and gives what they printed, which stays in the logs, and whether
    /// they all passed.
    ///
    /// # Errors
    ///
    /// They cannot be started, or the log cannot be written.
    pub(crate) fn test(
        &self,
        file: &str,
        command: &mut Command,
    ) -> Result<(String, bool), Failure> {
        let path = self.logs().join(format!("{}.log", file.replace('/', ".")));
        let log = File::create(&path).map_err(|error| not_written(&path, &error))?;
        let errors = log.try_clone().map_err(|error| not_written(&path, &error))?;
        let status = command.stdin(Stdio::null()).stdout(log).stderr(errors).status();
        let status = status.map_err(|error| {
            let program = command.get_program().to_string_lossy();
            Failure::task(format!("could not start {program}: {error}"))
        })?;
        let output = fs::read(&path).map_err(|error| not_written(&path, &error))?;
        Ok((String::from_utf8_lossy(&output).into_owned(), status.success()))
    }
}

fn create(path: &Path) -> Result<(), Failure> {
    fs::create_dir_all(path).map_err(|error| not_written(path, &error))
}

/// Cargo's own place for what can be made again.
///
/// # Errors
///
/// The current directory is gone.
pub(crate) fn target(root: &Path) -> Result<PathBuf, Failure> {
    let target = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    let target = target.unwrap_or_else(|| root.join("target"));
    // Steps run elsewhere than we do.
    std::path::absolute(&target).map_err(|error| not_written(&target, &error))
}

fn not_written(path: &Path, error: &std::io::Error) -> Failure {
    Failure::task(format!("could not write {}: {error}", path.display()))
}
