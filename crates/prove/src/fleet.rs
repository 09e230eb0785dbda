//! A fleet on NATS servers: gateways and processors that keep nothing themselves, and of which any
//! two are killed at random moments. Of three servers any one is killed, too.
//!
//! Writers commit entities with their events through the gateways, as clients do over the network:
//! when one dies they go on with another, and repeat what nobody can tell them about. Processors
//! share the feed and count each event once. In the end every acknowledged commit must have been
//! counted, and in order.

pub(crate) mod gateway;
mod judge;
mod members;
pub(crate) mod processor;
mod scene;
mod writers;

use std::path::{Path, PathBuf};
use std::time::Duration;

use millstream_crash::{Attempt, Error, Result};
use tokio::runtime::Runtime;

use crate::fleet::judge::{drain, judge};
use crate::fleet::members::Fleet;
use crate::fleet::scene::Scene;
use crate::fleet::writers::Writers;
use crate::mutant::Mutant;
use crate::nats;

/// Without anything new for so long, something is stuck.
const PATIENCE: Duration = Duration::from_secs(120);

/// How to prove it.
#[derive(Clone, Debug)]
pub struct FleetOptions {
    /// This program, which is also the processes that are killed.
    pub executable: PathBuf,
    /// Kills, two at a time.
    pub rounds: u64,
    /// Go on for so long, whatever `rounds` says.
    pub duration: Option<Duration>,
    /// Moments of the kills; not exact, as they depend on the machine as well.
    pub seed: u64,
    /// The longest time between two kills.
    pub life_max: Duration,
    /// The directory of the servers is made in here.
    pub scratch: PathBuf,
    /// NATS servers.
    pub servers: usize,
    /// Whether servers die as well: of three, one at a time.
    pub kills_servers: bool,
    /// A bug to plant: `AcknowledgeEarly` is the only one that a fleet can have.
    pub mutant: Option<Mutant>,
}

/// A process of the fleet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FleetPart {
    /// Serves clients.
    Gateway,
    /// Follows the feed.
    Processor,
}

/// Everything that was counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FleetReport {
    /// Gateways that were killed.
    pub gateways_killed: u64,
    /// Processors that were killed.
    pub processors_killed: u64,
    /// NATS servers that were killed.
    pub servers_killed: u64,
    /// Commits that were acknowledged.
    pub commits: u64,
    /// Calls that failed without effect, and were repeated.
    pub refused: u64,
    /// Calls whose effect nobody knew, and that were repeated.
    pub doubtful: u64,
    /// Of these, commits that had happened.
    pub happened: u64,
    /// Events that were counted.
    pub delivered: u64,
    /// Events that came again, and were not counted again.
    pub repeated: u64,
    /// Acknowledged events that were not counted.
    pub lost: u64,
    /// Events that came before an earlier one of their key.
    pub reordered: u64,
    /// What is wrong, in sentences.
    pub findings: Vec<String>,
    /// What was done to the processes and what they said last, line by line, if something is wrong.
    pub evidence: Vec<String>,
}

impl FleetReport {
    /// Processes that were killed.
    #[must_use]
    pub fn kills(&self) -> u64 {
        self.gateways_killed + self.processors_killed + self.servers_killed
    }

    /// Whether nothing is wrong.
    #[must_use]
    pub fn is_well(&self) -> bool {
        self.lost == 0 && self.reordered == 0 && self.findings.is_empty()
    }
}

impl FleetPart {
    /// What the command line calls it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Gateway => "gateway",
            Self::Processor => "processor",
        }
    }
}

/// Lives as a process of the fleet until it is killed.
///
/// # Errors
///
/// If something fails that should not.
pub fn run_fleet_part(
    part: FleetPart,
    directory: &Path,
    number: usize,
    mutant: Option<Mutant>,
) -> Result<()> {
    let runtime = Runtime::new().attempt(|| "start the process")?;
    runtime.block_on(async {
        match part {
            FleetPart::Gateway => gateway::serve(directory, number).await,
            FleetPart::Processor => processor::follow(directory, number, mutant).await,
        }
    })
}

/// Kills any two again and again, lets the rest of the work be done, and compares.
///
/// # Errors
///
/// If a process cannot be started, or nothing goes on.
pub fn prove_fleet(options: &FleetOptions) -> Result<FleetReport> {
    if options.mutant.is_some_and(|it| it != Mutant::AcknowledgeEarly) {
        let reason = "a fleet can only acknowledge early";
        return Err(Error::new("plant the bug").because(reason));
    }
    if options.kills_servers && options.servers < 3 {
        let reason = "the others go on only if there are three of them";
        return Err(Error::new("kill NATS servers").because(reason));
    }
    let directory = tempfile::Builder::new()
        .prefix("millstream-fleet-")
        .tempdir_in(&options.scratch)
        .attempt(|| "make a directory for the servers")?;
    let servers = nats::start(directory.path(), options.servers)?;
    let mut fleet = Fleet::new(options, directory.path(), servers);
    let proved = run(&mut fleet);
    // Also after a failure, to know what they said.
    let proved = proved.and(fleet.end_all());
    let report = fleet.report(proved.is_err());
    match proved {
        Ok(()) => Ok(report),
        Err(error) => {
            let reason = format!("{}\n{report:#?}", error.report());
            Err(Error::new("come to an end").because(reason))
        }
    }
}

fn run(fleet: &mut Fleet<'_>) -> Result<()> {
    let runtime = Runtime::new().attempt(|| "start the writers")?;
    let scene = runtime.block_on(Scene::create(fleet.directory))?;
    fleet.start_all()?;
    let writers = runtime.block_on(async { Writers::start(fleet.directory, members::GATEWAYS) });
    fleet.storm(&writers)?;
    let ledger = runtime.block_on(writers.stop())?;
    // What a planted bug has lost never comes.
    let patience = if fleet.options.mutant.is_some() { PATIENCE / 12 } else { PATIENCE };
    runtime.block_on(drain(&scene, &ledger, patience));
    runtime.block_on(judge(&scene, &ledger, &mut fleet.report))
}
