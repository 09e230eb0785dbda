//! The processes of a fleet, and who of them dies when.

use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

use millstream_core::{Clock, SystemClock};
use millstream_crash::{Attempt, Error, Random, Result};
use millstream_nats_servers::NatsServers;

use crate::evidence::Evidence;
use crate::fleet::writers::Writers;
use crate::fleet::{FleetOptions, FleetPart, FleetReport, PATIENCE};
use crate::nats;
use crate::process::Process;

pub(crate) const GATEWAYS: usize = 2;
const PROCESSORS: usize = 4;
/// The longest time the victims stay dead.
const DEAD_MILLIS_MAX: u64 = 1500;
/// Commits before the first of them dies.
const COMMITS_BEFORE: u64 = 200;
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// The processes.
pub(crate) struct Fleet<'a> {
    pub(crate) options: &'a FleetOptions,
    pub(crate) directory: &'a Path,
    pub(crate) report: FleetReport,
    servers: NatsServers,
    members: Vec<Member>,
    evidence: Evidence,
}

struct Member {
    part: FleetPart,
    number: usize,
    /// None while it is dead.
    process: Option<Process>,
}

/// Who dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Victim {
    /// A gateway or a processor.
    Member(usize),
    /// A NATS server.
    Server(usize),
}

impl<'a> Fleet<'a> {
    pub(crate) fn new(
        options: &'a FleetOptions,
        directory: &'a Path,
        servers: NatsServers,
    ) -> Self {
        let (members, report) = (Vec::new(), FleetReport::default());
        Self { options, directory, report, servers, members, evidence: Evidence::default() }
    }

    pub(crate) fn start_all(&mut self) -> Result<()> {
        let gateways = (0..GATEWAYS).map(|it| (FleetPart::Gateway, it));
        let processors = (0..PROCESSORS).map(|it| (FleetPart::Processor, it));
        for (part, number) in gateways.chain(processors) {
            self.members.push(Member { part, number, process: None });
            self.start_member(self.members.len() - 1)?;
        }
        for member in &self.members {
            if let Some(process) = &member.process {
                process.wait_for("ready")?;
            }
        }
        Ok(())
    }

    /// Everything goes on while any two die and come back.
    pub(crate) fn storm(&mut self, writers: &Writers) -> Result<()> {
        let clock = SystemClock::default();
        let mut random = Random::new(self.options.seed);
        wait_for_commits(writers, COMMITS_BEFORE)?;
        let millis = u64::try_from(self.options.life_max.as_millis()).unwrap_or(u64::MAX).max(1);
        let mut kills_server = false;
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
            let victims = self.choose(&mut random, kills_server);
            kills_server = self.options.kills_servers && !kills_server;
            for victim in victims {
                self.kill(victim)?;
            }
            thread::sleep(Duration::from_millis(random.below(DEAD_MILLIS_MAX)));
            for victim in victims {
                self.start(victim)?;
            }
            writers.check()?;
        }
    }

    /// Ends all gateways and processors.
    pub(crate) fn end_all(&mut self) -> Result<()> {
        (0..self.members.len()).try_for_each(|it| self.end(it))
    }

    /// What was counted, with all that helps to understand it if it is not well.
    pub(crate) fn report(&mut self, has_failed: bool) -> FleetReport {
        for number in 0..self.servers.count() {
            if self.servers.has_ended(number) {
                let name = self.servers.name(number);
                self.report.findings.push(format!("the NATS server {name} ended by itself"));
            }
        }
        if has_failed || !self.report.is_well() {
            self.report.evidence = self.evidence.lines();
            self.report.evidence.extend(nats::logs(&self.servers));
        }
        self.report.clone()
    }

    /// Any two; one of them is a server if that is wanted, so that the other servers go on.
    fn choose(&self, random: &mut Random, kills_server: bool) -> [Victim; 2] {
        let mut any = |count: usize| {
            let count = u64::try_from(count).unwrap_or(1);
            usize::try_from(random.below(count)).unwrap_or_default()
        };
        let first = any(self.members.len());
        if kills_server {
            return [Victim::Server(any(self.servers.count())), Victim::Member(first)];
        }
        let second = (first + 1 + any(self.members.len() - 1)) % self.members.len();
        [Victim::Member(first), Victim::Member(second)]
    }

    fn kill(&mut self, victim: Victim) -> Result<()> {
        let place = match victim {
            Victim::Member(place) => place,
            Victim::Server(number) => {
                self.report.servers_killed += 1;
                self.evidence.note(format!("NATS server {number} killed"));
                self.servers.kill(number);
                return Ok(());
            }
        };
        let Member { part, number, .. } = self.members[place];
        self.evidence.note(format!("{} {number} killed", part.name()));
        match part {
            FleetPart::Gateway => self.report.gateways_killed += 1,
            FleetPart::Processor => self.report.processors_killed += 1,
        }
        self.end(place)
    }

    fn start(&mut self, victim: Victim) -> Result<()> {
        match victim {
            Victim::Member(place) => self.start_member(place),
            Victim::Server(number) => {
                self.servers.restart(number).attempt(|| "start a NATS server again")?;
                self.evidence.note(format!("NATS server {number} started"));
                Ok(())
            }
        }
    }

    fn start_member(&mut self, place: usize) -> Result<()> {
        let member = &mut self.members[place];
        let mut command = Command::new(&self.options.executable);
        command.arg(member.part.name()).arg("--directory").arg(self.directory);
        command.args(["--number", &member.number.to_string()]);
        if let Some(mutant) = self.options.mutant {
            command.args(["--mutant", mutant.name()]);
        }
        member.process = Some(Process::start(member.part.name(), &mut command)?);
        self.evidence.note(format!("{} {} started", member.part.name(), member.number));
        Ok(())
    }

    /// Ends a process, which must have been alive until then, and takes in what it said.
    fn end(&mut self, place: usize) -> Result<()> {
        let Member { part, number, process } = &mut self.members[place];
        let Some(mut process) = process.take() else { return Ok(()) };
        let ended = process.ended()?;
        let said = process.end(true)?;
        self.evidence.keep(&format!("{} {number}", part.name()), &said);
        if let Some(status) = ended {
            let complaint = said.complaint;
            let finding =
                format!("{} {number} ended by itself, {status}: {complaint}", part.name());
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
