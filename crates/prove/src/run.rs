use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

use millstream_core::{Clock, SystemClock};
use millstream_crash::{Attempt, Error, Random, Result};

use crate::evidence::Evidence;
use crate::mutant::Mutant;
use crate::nats;
use crate::part::Part;
use crate::process::Process;
use crate::truth::{Report, Truth};

/// A directory sees so many kills in the storm, then a fresh one is used; the last check of a
/// directory takes longer the more there is in it.
const KILLS_PER_DIRECTORY: u64 = 18;
/// One broker in so many is not killed but stopped for a while.
const SUSPENSIONS: u64 = 3;
const SUSPENSION_MILLIS_MAX: u64 = 400;

/// How to prove it.
#[derive(Clone, Debug)]
pub struct ProveOptions {
    /// This program, which is also the processes that are killed.
    pub executable: PathBuf,
    /// Kills; it may be a few more, because a directory is brought to its end.
    pub rounds: u64,
    /// Go on for so long, whatever `rounds` says.
    pub duration: Option<Duration>,
    /// Moments of the kills; not exact, as they depend on the machine as well.
    pub seed: u64,
    /// The longest time between two kills.
    pub life_max: Duration,
    /// Directories are made in here.
    pub scratch: PathBuf,
    /// A bug to plant.
    pub mutant: Option<Mutant>,
    /// What the stores are.
    pub store: StoreKind,
}

/// What the stores of the processes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreKind {
    /// Directories.
    Directory,
    /// So many NATS servers, fresh ones for each directory.
    Nats {
        /// How many.
        servers: usize,
    },
}

/// Kills processes again and again, lets each directory settle down at the end, and compares.
///
/// `progress` is called after each directory; it ends the run by returning false.
///
/// # Errors
///
/// If a process cannot be started, or gets stuck.
pub fn prove(options: &ProveOptions, mut progress: impl FnMut(&Report) -> bool) -> Result<Report> {
    let clock = SystemClock::default();
    let mut random = Random::new(options.seed);
    let mut report = Report::default();
    let mut detects_duplicates = false;
    loop {
        let goes_on = match options.duration {
            Some(duration) => clock.monotonic() < duration,
            None => report.kills < options.rounds,
        };
        if !goes_on {
            return Ok(report);
        }
        let left = match options.duration {
            Some(_) => KILLS_PER_DIRECTORY,
            None => options.rounds - report.kills,
        };
        let directory = tempfile::Builder::new()
            .prefix("millstream-prove-")
            .tempdir_in(&options.scratch)
            .attempt(|| "make a directory for the stores")?;
        let servers = match options.store {
            StoreKind::Directory => None,
            StoreKind::Nats { servers } => Some(nats::start(directory.path(), servers)?),
        };
        let mut fleet = Fleet {
            options,
            directory: directory.path(),
            detects_duplicates,
            running: BTreeMap::new(),
            truth: Truth::default(),
            evidence: Evidence::default(),
        };
        let kills = left.clamp(1, KILLS_PER_DIRECTORY);
        let ended = fleet.storm(kills, &mut random).and_then(|()| fleet.calm(&mut random));
        if ended.is_err() {
            fleet.end_all();
        }
        let mut found = fleet.truth.judge();
        if ended.is_err() || !found.is_well() {
            found.evidence = fleet.evidence.lines();
            found.evidence.extend(servers.iter().flat_map(nats::logs));
        }
        report.add(found);
        if let Err(error) = ended {
            let reason = format!("{}\n{report:#?}", error.report());
            return Err(Error::new("come to an end").because(reason));
        }
        detects_duplicates = !detects_duplicates;
        if !progress(&report) {
            return Ok(report);
        }
    }
}

/// The processes of one directory.
struct Fleet<'a> {
    options: &'a ProveOptions,
    directory: &'a Path,
    detects_duplicates: bool,
    running: BTreeMap<Part, Process>,
    truth: Truth,
    evidence: Evidence,
}

impl Fleet<'_> {
    /// Everything goes wrong.
    fn storm(&mut self, kills: u64, random: &mut Random) -> Result<()> {
        for part in Part::RUNNING {
            self.start(part, "storm", random)?;
        }
        self.wait_for(Part::Service, "ack")?;
        let mut killed = 0;
        while killed < kills {
            let millis = u64::try_from(self.options.life_max.as_millis()).unwrap_or(u64::MAX);
            thread::sleep(Duration::from_millis(random.below(millis.max(1))));
            let part = [Part::Service, Part::Service, Part::Consumer, Part::Broker];
            let part = part[usize::try_from(random.below(4)).unwrap_or_default()];
            if part == Part::Broker && random.one_in(SUSPENSIONS) {
                let millis = random.below(SUSPENSION_MILLIS_MAX);
                self.process(part)?.suspend(Duration::from_millis(millis))?;
                self.truth.suspended();
                self.evidence.note(format!("{} stopped for {millis} ms", part.name()));
                continue;
            }
            self.kill(part)?;
            killed += 1;
            self.start(part, "storm", random)?;
        }
        Part::RUNNING.into_iter().try_for_each(|it| self.kill(it))
    }

    /// Nothing goes wrong, except that one more process is killed while all recovers.
    fn calm(&mut self, random: &mut Random) -> Result<()> {
        for part in Part::RUNNING {
            self.start(part, "calm", random)?;
        }
        self.wait_for(Part::Service, "calm")?;
        thread::sleep(Duration::from_millis(random.below(1000)));
        let part = Part::RUNNING[usize::try_from(random.below(3)).unwrap_or_default()];
        // The service may have come to its end already.
        self.kill(part)?;
        self.start(part, "calm", random)?;
        self.wait_for(Part::Service, "drained")?;
        self.end(Part::Service, false)?;
        self.kill(Part::Consumer)?;
        self.kill(Part::Broker)?;
        self.start(Part::Teller, "calm", random)?;
        self.wait_for(Part::Teller, "end")?;
        self.end(Part::Teller, false)
    }

    fn start(&mut self, part: Part, phase: &str, random: &mut Random) -> Result<()> {
        let mut command = Command::new(&self.options.executable);
        command.arg(part.name()).arg("--directory").arg(self.directory);
        command.args(["--phase", phase, "--seed", &random.next().to_string()]);
        if self.detects_duplicates {
            command.args(["--detects-duplicates", "yes"]);
        }
        if let Some(mutant) = self.options.mutant {
            command.args(["--mutant", mutant.name()]);
        }
        self.running.insert(part, Process::start(part.name(), &mut command)?);
        self.evidence.note(format!("{} started, {phase}", part.name()));
        Ok(())
    }

    fn kill(&mut self, part: Part) -> Result<()> {
        self.truth.killed(part);
        self.evidence.note(format!("{} killed", part.name()));
        self.end(part, true)
    }

    /// Ends a process, or waits for its end, and takes in what it said.
    fn end(&mut self, part: Part, kills: bool) -> Result<()> {
        let Some(mut process) = self.running.remove(&part) else { return Ok(()) };
        let ended = process.ended()?;
        let said = process.end(kills)?;
        self.evidence.keep(part.name(), &said);
        if let Some(status) = ended.filter(|it| !it.success()) {
            let complaint = &said.complaint;
            let finding = format!("the {} ended by itself, {status}: {complaint}", part.name());
            self.truth.found(finding);
        }
        self.truth.hear(&said.text)
    }

    /// Ends what is left after a failure, to know what it said.
    fn end_all(&mut self) {
        for part in [Part::Broker, Part::Consumer, Part::Service, Part::Teller] {
            if let Err(error) = self.end(part, true) {
                self.evidence.note(error.report());
            }
        }
    }

    fn wait_for(&self, part: Part, word: &str) -> Result<()> {
        self.process(part)?.wait_for(word)
    }

    fn process(&self, part: Part) -> Result<&Process> {
        let found = self.running.get(&part);
        found.ok_or_else(|| Error::new(format!("find the {}", part.name())))
    }
}
