//! A process of the system, as the killer starts it.

use std::path::PathBuf;

use millstream_crash::{Attempt, Result};

use crate::broker_part;
use crate::consumer;
use crate::mutant::Mutant;
use crate::service_part;

const WORKER_THREADS: usize = 2;

/// Which process it is. Each has a store of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// Commits entities with their events, and relays these.
    Service,
    /// Keeps messages.
    Broker,
    /// Gives each message its effect, once.
    Consumer,
    /// Says what effects there are.
    Teller,
}

/// How it lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The service commits, everything fails now and then; until somebody kills it.
    Storm,
    /// Nothing fails; the service ends when all is delivered, and says what there is.
    Calm,
}

/// What a process is told.
#[derive(Clone, Debug)]
pub struct PartOptions {
    /// Where the stores are.
    pub directory: PathBuf,
    /// Moments of what goes wrong; not exact, as they depend on the machine as well.
    pub seed: u64,
    /// How it lives.
    pub phase: Phase,
    /// Whether the broker detects duplicates; if not, it is left to the inbox.
    pub detects_duplicates: bool,
    /// A bug to plant.
    pub mutant: Option<Mutant>,
}

impl Part {
    /// All that run beside each other.
    pub const RUNNING: [Self; 3] = [Self::Broker, Self::Consumer, Self::Service];

    /// What the command line calls it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Service => "service",
            Self::Broker => "broker",
            Self::Consumer => "consumer",
            Self::Teller => "tell",
        }
    }
}

/// Lives as a part, and tells standard output.
///
/// # Errors
///
/// If something fails that should not.
pub fn run_part(part: Part, options: &PartOptions) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(WORKER_THREADS)
        .enable_all()
        .build()
        .attempt(|| "start the process")?;
    runtime.block_on(async {
        match part {
            Part::Service => service_part::live(options).await,
            Part::Broker => broker_part::serve(options).await,
            Part::Consumer => consumer::live(options).await,
            Part::Teller => consumer::tell(options).await,
        }
    })
}
