//! A fleet on NATS servers: gateways and processors that keep nothing themselves, and of which any
//! two are killed at random moments.
//!
//! Writers commit entities with their events through the gateways, as clients do over the network:
//! when one dies they go on with another, and repeat what nobody can tell them about. Processors
//! share the feed and count each event once. In the end every acknowledged commit must have been
//! counted, and in order.

pub(crate) mod gateway;
pub(crate) mod processor;
mod scene;
mod writers;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use millstream_core::{Clock, SystemClock};
use millstream_crash::{Attempt, Error, Random, Result};
use tokio::runtime::Runtime;

use crate::fleet::scene::Scene;
use crate::fleet::writers::{Ledger, Writers};
use crate::mutant::Mutant;
use crate::nats::NatsServers;
use crate::process::Process;

const GATEWAYS: usize = 2;
const PROCESSORS: usize = 4;
/// How many die at the same moment.
const VICTIMS: usize = 2;
/// The longest time they stay dead.
const DEAD_MILLIS_MAX: u64 = 1500;
/// Commits before the first of them dies.
const COMMITS_BEFORE: u64 = 200;
const LOOK_INTERVAL: Duration = Duration::from_millis(100);
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
}

impl FleetReport {
    /// Processes that were killed.
    #[must_use]
    pub fn kills(&self) -> u64 {
        self.gateways_killed + self.processors_killed
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
    let directory = tempfile::Builder::new()
        .prefix("millstream-fleet-")
        .tempdir_in(&options.scratch)
        .attempt(|| "make a directory for the servers")?;
    let _servers = NatsServers::start(directory.path(), options.servers)?;
    let runtime = Runtime::new().attempt(|| "start the writers")?;
    let scene = runtime.block_on(Scene::create(directory.path()))?;
    let mut fleet =
        Fleet { options, directory: directory.path(), members: Vec::new(), report: <_>::default() };
    fleet.start_all()?;
    let writers = runtime.block_on(async { Writers::start(directory.path(), GATEWAYS) });
    fleet.storm(&writers)?;
    let ledger = runtime.block_on(writers.stop())?;
    // What a planted bug has lost never comes.
    let patience = if options.mutant.is_some() { PATIENCE / 12 } else { PATIENCE };
    runtime.block_on(drain(&scene, &ledger, patience))?;
    fleet.end_all()?;
    runtime.block_on(judge(&scene, &ledger, &mut fleet.report))?;
    Ok(fleet.report)
}

/// The processes.
struct Fleet<'a> {
    options: &'a FleetOptions,
    directory: &'a Path,
    members: Vec<Member>,
    report: FleetReport,
}

struct Member {
    part: FleetPart,
    number: usize,
    /// None while it is dead.
    process: Option<Process>,
}

impl Fleet<'_> {
    fn start_all(&mut self) -> Result<()> {
        let gateways = (0..GATEWAYS).map(|it| (FleetPart::Gateway, it));
        let processors = (0..PROCESSORS).map(|it| (FleetPart::Processor, it));
        for (part, number) in gateways.chain(processors) {
            self.members.push(Member { part, number, process: None });
            self.start(self.members.len() - 1)?;
        }
        for member in &self.members {
            if let Some(process) = &member.process {
                process.wait_for("ready")?;
            }
        }
        Ok(())
    }

    /// Everything goes on while any two die and come back.
    fn storm(&mut self, writers: &Writers) -> Result<()> {
        let clock = SystemClock::default();
        let mut random = Random::new(self.options.seed);
        wait_for_commits(writers, COMMITS_BEFORE)?;
        let millis = u64::try_from(self.options.life_max.as_millis()).unwrap_or(u64::MAX).max(1);
        loop {
            let goes_on = match self.options.duration {
                Some(duration) => clock.monotonic() < duration,
                None => self.report.kills() < self.options.rounds,
            };
            if !goes_on {
                // It must go on by itself after the last of them, too.
                return wait_for_commits(writers, writers.commits() + COMMITS_BEFORE);
            }
            thread::sleep(Duration::from_millis(random.below(millis)));
            let victims = self.choose(&mut random);
            for victim in &victims {
                self.kill(*victim)?;
            }
            thread::sleep(Duration::from_millis(random.below(DEAD_MILLIS_MAX)));
            for victim in victims {
                self.start(victim)?;
            }
            writers.check()?;
        }
    }

    /// Any two.
    fn choose(&self, random: &mut Random) -> Vec<usize> {
        let mut places: Vec<usize> = (0..self.members.len()).collect();
        let mut victims = Vec::new();
        while victims.len() < VICTIMS {
            let count = u64::try_from(places.len()).unwrap_or(1);
            let place = usize::try_from(random.below(count)).unwrap_or_default();
            victims.push(places.swap_remove(place));
        }
        victims
    }

    fn start(&mut self, place: usize) -> Result<()> {
        let member = &mut self.members[place];
        let mut command = Command::new(&self.options.executable);
        command.arg(member.part.name()).arg("--directory").arg(self.directory);
        command.args(["--number", &member.number.to_string()]);
        if let Some(mutant) = self.options.mutant {
            command.args(["--mutant", mutant.name()]);
        }
        member.process = Some(Process::start(member.part.name(), &mut command)?);
        Ok(())
    }

    fn kill(&mut self, place: usize) -> Result<()> {
        match self.members[place].part {
            FleetPart::Gateway => self.report.gateways_killed += 1,
            FleetPart::Processor => self.report.processors_killed += 1,
        }
        self.end(place)
    }

    fn end_all(&mut self) -> Result<()> {
        (0..self.members.len()).try_for_each(|it| self.end(it))
    }

    /// Ends a process, which must have been alive until then, and takes in what it said.
    fn end(&mut self, place: usize) -> Result<()> {
        let Member { part, number, process } = &mut self.members[place];
        let Some(mut process) = process.take() else { return Ok(()) };
        let has_ended = process.has_ended()?;
        let said = process.end(true)?;
        if has_ended {
            let complaint = said.complaint;
            let finding = format!("{} {number} ended by itself: {complaint}", part.name());
            self.report.findings.push(finding);
        }
        let repeated = said.text.lines().filter(|it| *it == "repeated").count();
        self.report.repeated += u64::try_from(repeated).unwrap_or(u64::MAX);
        Ok(())
    }
}

fn wait_for_commits(writers: &Writers, count: u64) -> Result<()> {
    let clock = SystemClock::default();
    let (mut before, mut since) = (0, clock.monotonic());
    while writers.commits() < count {
        thread::sleep(LOOK_INTERVAL);
        writers.check()?;
        let commits = writers.commits();
        if before < commits {
            (before, since) = (commits, clock.monotonic());
        }
        if since + PATIENCE < clock.monotonic() {
            return Err(Error::new(format!("go on: no commit after {commits} of them")));
        }
    }
    Ok(())
}

/// Waits until everything that was acknowledged is counted, or nothing comes any more.
async fn drain(scene: &Scene, ledger: &Ledger, patience: Duration) -> Result<()> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::default());
    let (mut before, mut since) = (None, clock.monotonic());
    loop {
        let mut missing = 0;
        for (key, acknowledged) in &ledger.acknowledged {
            missing += acknowledged.saturating_sub(scene.count(key).await?.last);
        }
        if missing == 0 {
            return Ok(());
        }
        if before != Some(missing) {
            (before, since) = (Some(missing), clock.monotonic());
        }
        if since + patience < clock.monotonic() {
            // The comparison tells what is missing.
            return Ok(());
        }
        tokio::time::sleep(LOOK_INTERVAL).await;
    }
}

/// Compares what was acknowledged with what is stored and what was counted.
async fn judge(scene: &Scene, ledger: &Ledger, report: &mut FleetReport) -> Result<()> {
    let Ledger { refused, doubtful, happened, .. } = *ledger;
    (report.refused, report.doubtful, report.happened) = (refused, doubtful, happened);
    report.findings.extend(ledger.findings.iter().cloned());
    for (key, acknowledged) in &ledger.acknowledged {
        let stored = scene.entity(key).await?;
        let count = scene.count(key).await?;
        report.commits += acknowledged;
        report.delivered += count.last;
        report.lost += acknowledged.saturating_sub(count.last);
        report.reordered += count.gaps;
        if stored != *acknowledged {
            let finding = format!("{key} has {stored} commits, {acknowledged} were acknowledged");
            report.findings.push(finding);
        }
        if stored < count.last {
            let finding = format!("{key} has {stored} commits, {} were counted", count.last);
            report.findings.push(finding);
        }
    }
    Ok(())
}
