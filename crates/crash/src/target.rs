use std::{
    panic::{self, AssertUnwindSafe},
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
};

use millstream_store::{Flaw, Store, StoreOptions};

use crate::{
    check::{Rule, Violation, check},
    error::{Error, Result},
    naive::{Mutant, Naive},
    ports::Ports,
    subject::{Ack, Load, Observed, Subject},
};

/// A store under test by name, so that a child process can be told which.
#[derive(Clone, Debug)]
pub struct Target {
    /// This program; a child of it runs the load.
    pub executable: PathBuf,
    /// `store`, or `naive` to try the machinery itself.
    pub subject: String,
    /// A bug to plant.
    pub mutant: Option<String>,
}

impl Target {
    /// The store.
    ///
    /// # Errors
    ///
    /// If there is none of that name, or no such mutant of it.
    pub fn open(&self) -> Result<Box<dyn Subject>> {
        match (self.subject.as_str(), &self.mutant) {
            ("store", None) => Ok(Box::new(store(None))),
            ("store", Some(mutant)) => Ok(Box::new(store(Some(flaw(mutant)?)))),
            ("naive", None) => Ok(Box::new(Naive::correct())),
            ("naive", Some(mutant)) => Ok(Box::new(Naive::mutated(mutant)?)),
            (other, _) => Err(Error::new(format!("find a store named \"{other}\""))),
        }
    }

    /// Names of the bugs that can be planted into the store.
    ///
    /// # Errors
    ///
    /// If there is no such store.
    pub fn mutants(&self) -> Result<Vec<String>> {
        match self.subject.as_str() {
            "store" => Ok(FLAWS.iter().map(|(name, _)| (*name).to_owned()).collect()),
            "naive" => Ok(Mutant::ALL.iter().map(|(name, _)| (*name).to_owned()).collect()),
            other => Err(Error::new(format!("find a store named \"{other}\""))),
        }
    }

    /// A child process that runs the load and writes acknowledgements to its standard output.
    #[must_use]
    pub fn load_command(&self, directory: &Path, load: &Load) -> Command {
        self.command("load", directory, load)
    }

    /// A child process that runs a hidden command with everything that describes this target and
    /// load.
    pub(crate) fn command(&self, name: &str, directory: &Path, load: &Load) -> Command {
        let mut command = Command::new(&self.executable);
        command.arg(name).arg("--directory").arg(directory);
        command.args(["--subject", &self.subject]);
        if let Some(mutant) = &self.mutant {
            command.args(["--mutant", mutant]);
        }
        command.args(["--seed", &load.seed.to_string()]);
        command.args(["--writers", &load.writers.to_string()]);
        command.args(["--commits", &load.commits.to_string()]);
        command
    }
}

/// Bugs of the embedded store by the name the command line knows them by.
const FLAWS: [(&str, Flaw); 4] = [
    ("acknowledge-before-sync", Flaw::AcknowledgeBeforeSync),
    ("feed-entry-later", Flaw::FeedEntryLater),
    ("number-reused", Flaw::NumberReused),
    ("batch-cut", Flaw::BatchCut),
];

/// The smallest the store allows: commits then move to the tables, and segments are used again,
/// within a short run.
const WRITE_BUFFER_BYTES: usize = 256 * 1024;
/// Thousands of stores are opened one after the other.
const CACHE_BYTES: u64 = 1024 * 1024;

fn store(flaw: Option<Flaw>) -> Ports {
    Ports::new(move |directory| {
        let options = StoreOptions::default()
            .write_buffer_bytes(WRITE_BUFFER_BYTES)
            .cache_bytes(CACHE_BYTES)
            .flaw(flaw);
        Ok(Arc::new(Store::open_with(directory, options)?))
    })
}

fn flaw(name: &str) -> Result<Flaw> {
    let found = FLAWS.iter().find(|(known, _)| *known == name);
    found.map(|(_, flaw)| *flaw).ok_or_else(|| {
        let known = FLAWS.map(|(name, _)| name).join(", ");
        Error::new(format!("find mutant \"{name}\" (there are {known})"))
    })
}

/// Reopens a store and checks it; a store that fails or panics breaks its first promise.
#[must_use]
pub fn reopen(
    subject: &dyn Subject,
    directory: &Path,
    writers: u32,
    acks: &[Ack],
) -> (Observed, Vec<Violation>) {
    let observed = panic::catch_unwind(AssertUnwindSafe(|| subject.observe(directory, writers)));
    let seen = match observed {
        Ok(Ok(observed)) => {
            let violations = check(acks, &observed);
            return (observed, violations);
        }
        Ok(Err(error)) => error.report(),
        Err(payload) => match (payload.downcast_ref::<&str>(), payload.downcast_ref::<String>()) {
            (Some(text), _) => format!("panicked: {text}"),
            (None, Some(text)) => format!("panicked: {text}"),
            (None, None) => "panicked".to_owned(),
        },
    };
    // Each disk is looked at in a directory of its own, which would make equal findings look
    // different.
    let seen = seen.replace(&*directory.to_string_lossy(), "DIRECTORY");
    (Observed::default(), vec![Violation { rule: Rule::Opens, seen }])
}
