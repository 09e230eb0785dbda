//! A process that was started, and what it says.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use millstream_crash::{Attempt, Error, Result};
use rustix::process::{Pid, Signal, kill_process};

/// A process that says nothing for so long is stuck.
const SILENCE_MAX: Duration = Duration::from_secs(90);
/// Most lines of what a process complained about that are kept.
const COMPLAINTS_MAX: usize = 20;

/// A process.
pub(crate) struct Process {
    name: &'static str,
    child: Child,
    lines: mpsc::Receiver<String>,
    text: Option<JoinHandle<String>>,
    complaint: Option<JoinHandle<String>>,
}

/// What a process said until its end.
pub(crate) struct Said {
    pub(crate) text: String,
    pub(crate) complaint: String,
}

impl Process {
    pub(crate) fn start(name: &'static str, command: &mut Command) -> Result<Self> {
        let attempted = || format!("start the {name}");
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .attempt(attempted)?;
        let unheard = || Error::new(format!("listen to the {name}"));
        let output = child.stdout.take().ok_or_else(unheard)?;
        let complaints = child.stderr.take().ok_or_else(unheard)?;
        let (tell, lines) = mpsc::channel();
        let text = Some(thread::spawn(move || listen(output, &tell)));
        let complaint = Some(thread::spawn(move || last_of(complaints)));
        Ok(Self { name, child, lines, text, complaint })
    }

    /// Waits for a line that begins with `word`.
    pub(crate) fn wait_for(&self, word: &str) -> Result<()> {
        loop {
            match self.lines.recv_timeout(SILENCE_MAX) {
                Ok(line) if line.split_whitespace().next() == Some(word) => return Ok(()),
                Ok(_) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(Error::new(format!("go on: the {} gave up", self.name)));
                }
                Err(RecvTimeoutError::Timeout) => {
                    return Err(Error::new(format!("go on: the {} is stuck", self.name)));
                }
            }
        }
    }

    /// Lets it do nothing for a while; to others it is as if it were gone.
    pub(crate) fn suspend(&self, duration: Duration) -> Result<()> {
        self.signal(Signal::STOP)?;
        thread::sleep(duration);
        self.signal(Signal::CONT)
    }

    /// How it has ended by itself, if it has.
    pub(crate) fn ended(&mut self) -> Result<Option<ExitStatus>> {
        self.child.try_wait().attempt(|| format!("look after the {}", self.name))
    }

    /// Kills it, or waits for its end, and returns all it said.
    pub(crate) fn end(mut self, kills: bool) -> Result<Said> {
        if kills {
            self.child.kill().attempt(|| format!("kill the {}", self.name))?;
        }
        self.child.wait().attempt(|| format!("wait for the {}", self.name))?;
        let joined = |handle: Option<JoinHandle<String>>| {
            let said = handle.and_then(|it| it.join().ok());
            said.ok_or_else(|| Error::new(format!("listen to the {}", self.name)))
        };
        Ok(Said { text: joined(self.text.take())?, complaint: joined(self.complaint.take())? })
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        let attempted = || format!("send a signal to the {}", self.name);
        let id = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        let id = id.ok_or_else(|| Error::new(attempted()))?;
        kill_process(id, signal).attempt(attempted)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // A run that fails leaves nothing behind; one that ended it has waited already.
        let _ = self.child.kill();
        let _ = self.child.wait();
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

/// The last lines; what the parts of a system complain about all the time is expected.
fn last_of(complaints: impl Read) -> String {
    let mut last = VecDeque::new();
    for line in BufReader::new(complaints).lines().map_while(std::result::Result::ok) {
        if last.len() == COMPLAINTS_MAX {
            last.pop_front();
        }
        last.push_back(line);
    }
    Vec::from(last).join("\n")
}
