use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use millstream_core::{Clock, SystemClock};
use millstream_crash::{Attempt, Error, Random, Result};

use crate::mutant::Mutant;
use crate::truth::{Report, Truth};

/// A directory sees so many kills in the storm and one in the calm, then a fresh one is used; the
/// last check of a directory takes longer the more there is in it.
const STORMS_PER_DIRECTORY: u64 = 6;
/// One kill in so many comes while the node starts.
const EARLY_KILLS: u64 = 6;
/// A node that says nothing for so long is stuck.
const SILENCE_MAX: Duration = Duration::from_secs(90);

/// How to prove it.
#[derive(Clone, Debug)]
pub struct ProveOptions {
    /// This program, which is also the node.
    pub executable: PathBuf,
    /// Kills; it may be a few more, because a directory is brought to its end.
    pub rounds: u64,
    /// Go on for so long, whatever `rounds` says.
    pub duration: Option<Duration>,
    /// Moments of the kills; not exact, as they depend on the machine as well.
    pub seed: u64,
    /// The longest time between the start of a node and its death.
    pub life_max: Duration,
    /// Directories are made in here.
    pub scratch: PathBuf,
    /// A bug to plant.
    pub mutant: Option<Mutant>,
}

/// Kills nodes again and again, lets each directory settle down at the end, and compares.
///
/// `progress` is called after each directory; it ends the run by returning false.
///
/// # Errors
///
/// If a node cannot be started, or gets stuck.
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
            Some(_) => STORMS_PER_DIRECTORY,
            None => (options.rounds - report.kills).saturating_sub(1),
        };
        let directory = tempfile::Builder::new()
            .prefix("millstream-prove-")
            .tempdir_in(&options.scratch)
            .attempt(|| "make a directory for the node")?;
        let mut lives = Lives {
            options,
            directory: directory.path(),
            detects_duplicates,
            truth: Truth::default(),
        };
        for _ in 0..left.clamp(1, STORMS_PER_DIRECTORY) {
            lives.storm(&mut random)?;
        }
        lives.calm(&mut random)?;
        report.add(lives.truth.judge());
        detects_duplicates = !detects_duplicates;
        if !progress(&report) {
            return Ok(report);
        }
    }
}

/// The nodes of one directory, one after the other.
struct Lives<'a> {
    options: &'a ProveOptions,
    directory: &'a Path,
    detects_duplicates: bool,
    truth: Truth,
}

impl Lives<'_> {
    /// A node that is killed while everything goes wrong.
    fn storm(&mut self, random: &mut Random) -> Result<()> {
        let node = Node::start(self, "storm", random.next())?;
        let heard = if random.one_in(EARLY_KILLS) {
            thread::sleep(Duration::from_micros(random.below(100_000)));
            Ok(())
        } else {
            let heard = node.wait_for("ack");
            let millis = u64::try_from(self.options.life_max.as_millis()).unwrap_or(u64::MAX);
            thread::sleep(Duration::from_millis(random.below(millis.max(1))));
            heard
        };
        self.kill(node, heard)
    }

    /// A node that is killed while it recovers, then one that comes to its end.
    fn calm(&mut self, random: &mut Random) -> Result<()> {
        let node = Node::start(self, "calm", random.next())?;
        let heard = node.wait_for("calm");
        thread::sleep(Duration::from_millis(random.below(1000)));
        self.kill(node, heard)?;
        let node = Node::start(self, "calm", random.next())?;
        let heard = node.wait_for("end");
        let said = node.end(false)?;
        self.truth.hear(&said.text)?;
        heard.map_err(|error| error.because(said.complaint))
    }

    fn kill(&mut self, node: Node, heard: Result<()>) -> Result<()> {
        let said = node.end(true)?;
        self.truth.killed();
        self.truth.hear(&said.text)?;
        heard.map_err(|error| error.because(said.complaint))
    }
}

/// A process.
struct Node {
    child: Child,
    lines: mpsc::Receiver<String>,
    text: JoinHandle<String>,
    complaint: JoinHandle<String>,
}

/// What a process said until its end.
struct Said {
    text: String,
    complaint: String,
}

impl Node {
    fn start(lives: &Lives<'_>, phase: &str, seed: u64) -> Result<Self> {
        let options = lives.options;
        let mut command = Command::new(&options.executable);
        command.arg("node").arg("--directory").arg(lives.directory);
        command.args(["--phase", phase, "--seed", &seed.to_string()]);
        if lives.detects_duplicates {
            command.args(["--detects-duplicates", "yes"]);
        }
        if let Some(mutant) = options.mutant {
            command.args(["--mutant", mutant.name()]);
        }
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .attempt(|| "start the node")?;
        let unheard = || Error::new("listen to the node");
        let output = child.stdout.take().ok_or_else(unheard)?;
        let complaints = child.stderr.take().ok_or_else(unheard)?;
        let (tell, lines) = mpsc::channel();
        let text = thread::spawn(move || listen(output, &tell));
        let complaint = thread::spawn(move || last_of(complaints));
        Ok(Self { child, lines, text, complaint })
    }

    /// Waits for a line that begins with `word`.
    fn wait_for(&self, word: &str) -> Result<()> {
        loop {
            match self.lines.recv_timeout(SILENCE_MAX) {
                Ok(line) if line.split_whitespace().next() == Some(word) => return Ok(()),
                Ok(_) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(Error::new("go on: the node gave up"));
                }
                Err(RecvTimeoutError::Timeout) => {
                    return Err(Error::new("go on: the node is stuck"));
                }
            }
        }
    }

    /// Kills it, or waits for its end, and returns all it said.
    fn end(mut self, kills: bool) -> Result<Said> {
        if kills {
            self.child.kill().attempt(|| "kill the node")?;
        }
        self.child.wait().attempt(|| "wait for the node")?;
        let joined = |handle: JoinHandle<String>| {
            handle.join().map_err(|_| Error::new("listen to the node"))
        };
        Ok(Said { text: joined(self.text)?, complaint: joined(self.complaint)? })
    }
}

fn listen(output: impl Read, tell: &mpsc::Sender<String>) -> String {
    let mut output = BufReader::new(output);
    let mut text = String::new();
    let mut begin = 0;
    // Reads on when nobody waits any more: what is in the pipe was acknowledged.
    while let Ok(1..) = output.read_line(&mut text) {
        let _ = tell.send(text[begin..].to_owned());
        begin = text.len();
    }
    text
}

/// The last lines; what the parts of a node complain about all the time is expected.
fn last_of(complaints: impl Read) -> String {
    let mut last = String::new();
    for line in BufReader::new(complaints).lines().map_while(std::result::Result::ok) {
        last = line;
    }
    last
}
