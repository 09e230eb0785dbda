use std::{
    fs,
    io::{BufRead, BufReader, Read},
    path::PathBuf,
    process::Stdio,
    sync::mpsc::{self, RecvTimeoutError},
    thread,
    time::Duration,
};

use crate::{
    check::{Rule, Violation},
    error::{Attempt, Error, Result},
    random::Random,
    subject::{Ack, Load, Subject},
    target::{Target, reopen},
};

/// A directory is used this often, then a fresh one is; reading it all after each kill would take
/// ever longer.
const ROUNDS_PER_DIRECTORY: u64 = 10;
/// Most acknowledgements to wait for before a kill.
const ACKS_BEFORE_KILL_MAX: u64 = 150;
/// A child that says nothing for so long is stuck.
const SILENCE_MAX: Duration = Duration::from_secs(60);

/// What to kill, and how often.
#[derive(Clone, Debug)]
pub struct KillOptions {
    /// The store.
    pub target: Target,
    /// Kills.
    pub rounds: u64,
    /// Moments of the kills; not exact, as they depend on the machine as well.
    pub seed: u64,
    /// Writers at the same time.
    pub writers: u32,
    /// Directories are made in here.
    pub scratch: PathBuf,
}

/// What came of it.
#[derive(Clone, Debug, Default)]
pub struct KillReport {
    /// Kills so far.
    pub rounds: u64,
    /// Commits that were acknowledged.
    pub acks: usize,
    /// Broken promises, with the round.
    pub violations: Vec<(u64, Violation)>,
}

/// Kills a loaded process again and again, and looks at what is left each time.
///
/// `progress` is called after each round; it ends the run by returning false.
///
/// # Errors
///
/// If a child cannot be started, or gets stuck.
pub fn kill(
    options: &KillOptions,
    mut progress: impl FnMut(&KillReport) -> bool,
) -> Result<KillReport> {
    let subject = options.target.open()?;
    let mut random = Random::new(options.seed);
    let mut report = KillReport::default();
    while report.rounds < options.rounds {
        let directory = tempfile::Builder::new()
            .prefix("millstream-crash-")
            .tempdir_in(&options.scratch)
            .attempt(|| "make a directory for the store")?;
        let data = directory.path().join("data");
        fs::create_dir(&data).attempt(|| "make a directory for the store")?;
        let mut life = Life { options, subject: &*subject, data, acks: Vec::new() };
        for _ in 0..ROUNDS_PER_DIRECTORY.min(options.rounds - report.rounds) {
            life.round(&mut random, &mut report)?;
            if !progress(&report) {
                return Ok(report);
            }
        }
    }
    Ok(report)
}

/// One directory that lives through several kills.
struct Life<'a> {
    options: &'a KillOptions,
    subject: &'a dyn Subject,
    data: PathBuf,
    acks: Vec<Ack>,
}

impl Life<'_> {
    fn round(&mut self, random: &mut Random, report: &mut KillReport) -> Result<()> {
        report.rounds += 1;
        let (acks, complaint) = self.load_and_kill(random)?;
        report.acks += acks.len();
        self.acks.extend(acks);
        let (observed, mut violations) =
            reopen(self.subject, &self.data, self.options.writers, &self.acks);
        self.acks.extend(observed.next);
        if let Some(seen) = complaint {
            violations.push(Violation { rule: Rule::Opens, seen });
        }
        report.violations.extend(violations.into_iter().map(|it| (report.rounds, it)));
        Ok(())
    }

    /// Returns what was acknowledged, and what the child said if it ended before it was killed.
    fn load_and_kill(&self, random: &mut Random) -> Result<(Vec<Ack>, Option<String>)> {
        let load = Load { seed: random.next(), writers: self.options.writers, commits: u64::MAX };
        let mut child = self
            .options
            .target
            .load_command(&self.data, &load)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .attempt(|| "start the child")?;
        let output = child.stdout.take().ok_or_else(|| Error::new("listen to the child"))?;
        let mut complaints =
            child.stderr.take().ok_or_else(|| Error::new("listen to the child"))?;
        let (heard, hear) = mpsc::channel();
        let listener = thread::spawn(move || listen(output, &heard));
        let complaints = thread::spawn(move || {
            let mut text = String::new();
            // Best effort: it only explains a failure that is found in any case.
            let _ = complaints.read_to_string(&mut text);
            text
        });

        // Some kills come while the store opens, more so if it is being created; the others
        // anywhere in a commit.
        let is_new = self.acks.is_empty();
        let opening = random.one_in(if is_new { 2 } else { 5 });
        let acks_before = if opening { 0 } else { 1 + random.below(ACKS_BEFORE_KILL_MAX) };
        let ended = wait(&hear, acks_before);
        thread::sleep(Duration::from_micros(random.below(if acks_before == 0 {
            20_000
        } else {
            3_000
        })));
        child.kill().attempt(|| "kill the child")?;
        child.wait().attempt(|| "wait for the child")?;
        let bytes = listener.join().map_err(|_| Error::new("listen to the child"))?;
        let complaint = complaints.join().map_err(|_| Error::new("listen to the child"))?;
        match ended {
            Waited::Enough => Ok((Ack::parse_lines(&bytes)?, None)),
            Waited::Ended => Ok((
                Ack::parse_lines(&bytes)?,
                Some(format!("the child gave up: {}", complaint.trim())),
            )),
            Waited::Stuck => {
                Err(Error::new("wait for the child: it has said nothing for a minute"))
            }
        }
    }
}

enum Waited {
    Enough,
    Ended,
    Stuck,
}

fn wait(hear: &mpsc::Receiver<()>, acks: u64) -> Waited {
    for _ in 0..acks {
        match hear.recv_timeout(SILENCE_MAX) {
            Ok(()) => {}
            Err(RecvTimeoutError::Disconnected) => return Waited::Ended,
            Err(RecvTimeoutError::Timeout) => return Waited::Stuck,
        }
    }
    Waited::Enough
}

fn listen(output: impl Read, heard: &mpsc::Sender<()>) -> Vec<u8> {
    let mut output = BufReader::new(output);
    let mut bytes = Vec::new();
    // Reads on when nobody waits any more: what is in the pipe was acknowledged.
    while let Ok(1..) = output.read_until(b'\n', &mut bytes) {
        let _ = heard.send(());
    }
    bytes
}
