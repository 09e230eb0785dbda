use std::{
    env, fs,
    io::ErrorKind,
    path::{Path, PathBuf},
    process::{Command, ExitStatus},
};

use tempfile::TempDir;

use crate::error::{Attempt, Error, Result};

const SOURCES: [(&str, &str); 2] = [
    ("record.c", include_str!("../shim/record.c")),
    ("observe.h", include_str!("../shim/observe.h")),
];

/// Runs commands and records what they do to the files of a directory.
#[derive(Debug)]
pub struct Recorder {
    program: PathBuf,
    _directory: TempDir,
}

/// Where one recording goes.
#[derive(Clone, Debug)]
pub struct Recording {
    /// Everything below this is recorded.
    pub directory: PathBuf,
    /// The trace is written here.
    pub trace: PathBuf,
    /// What the command writes to this file becomes marks.
    pub marks: PathBuf,
}

impl Recorder {
    /// Compiles the recorder into a temporary directory.
    ///
    /// # Errors
    ///
    /// If there is no C compiler or this is not Linux.
    pub fn build() -> Result<Self> {
        if !cfg!(target_os = "linux") {
            return Err(Error::new("record file operations: this needs ptrace as Linux has it"));
        }
        let directory = tempfile::tempdir().attempt(|| "make a directory for the recorder")?;
        for (name, source) in SOURCES {
            fs::write(directory.path().join(name), source).attempt(|| format!("write {name}"))?;
        }
        let program = directory.path().join("record");
        let compiler = env::var("CC").unwrap_or_else(|_| "cc".to_owned());
        let output = Command::new(&compiler)
            .args(["-O2", "-o"])
            .arg(&program)
            .arg(directory.path().join("record.c"))
            .output();
        match output {
            Ok(output) if output.status.success() => Ok(Self { program, _directory: directory }),
            Ok(output) => Err(Error::new("compile the recorder")
                .because(String::from_utf8_lossy(&output.stderr).into_owned())),
            Err(error) if error.kind() == ErrorKind::NotFound => Err(Error::new(format!(
                "compile the recorder: there is no C compiler \"{compiler}\"; install one or \
                 name it in CC"
            ))),
            Err(error) => Err(Error::new("start the C compiler").because(error)),
        }
    }

    /// Runs a command to its end, with everything it starts.
    ///
    /// # Errors
    ///
    /// If the recorder cannot run.
    pub fn run(&self, recording: &Recording, command: &Command) -> Result<ExitStatus> {
        let mut recorder = Command::new(&self.program);
        recorder
            .arg(command.get_program())
            .args(command.get_args())
            .env("MILLSTREAM_RECORD_DIR", absolute(&recording.directory)?)
            .env("MILLSTREAM_RECORD_TRACE", absolute(&recording.trace)?)
            .env("MILLSTREAM_RECORD_MARKS", absolute(&recording.marks)?);
        let status = recorder.status().attempt(|| "start the recorder")?;
        // The recorder itself says so on stderr.
        if status.code() == Some(125) {
            return Err(Error::new("record the run"));
        }
        Ok(status)
    }
}

fn absolute(path: &Path) -> Result<PathBuf> {
    std::path::absolute(path).attempt(|| format!("resolve \"{}\"", path.display()))
}
