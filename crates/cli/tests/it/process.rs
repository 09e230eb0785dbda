use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

/// How often something is looked for before a test gives up, and how long apart.
const TRIES: u32 = 600;
const PAUSE: Duration = Duration::from_millis(100);

/// A running `millstream up`.
pub(crate) struct Up {
    child: Child,
    pub(crate) address: String,
}

/// How a command ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Up {
    /// Starts it on a free port and waits until it says where it is.
    pub(crate) fn start(directory: &Path, arguments: &[&str]) -> Self {
        let mut command = millstream(directory);
        command.args(["up", "--listen", "127.0.0.1:0"]).args(arguments);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let health = lines.by_ref().map(Result::unwrap).find(|it| it.contains("/health"));
        let health = health.expect("it says where it is");
        let (_, rest) = health.split_once("http://").unwrap();
        let address = rest.split('/').next().unwrap().to_owned();
        // It must not block because nobody reads.
        thread::spawn(move || lines.for_each(drop));
        Self { child, address }
    }

    /// The body of an answer, with its status in front.
    pub(crate) fn get(&self, path: &str) -> String {
        self.request(&format!("GET {path} HTTP/1.1\r\nhost: {}\r\n", self.address), "")
    }

    pub(crate) fn post(&self, path: &str, headers: &str, body: &str) -> String {
        let host = &self.address;
        let head = format!("POST {path} HTTP/1.1\r\nhost: {host}\r\n{headers}");
        self.request(&head, body)
    }

    /// The sum of the metrics whose line begins like this.
    pub(crate) fn metric(&self, start: &str) -> f64 {
        let page = self.get("/metrics");
        let lines = page.lines().filter(|it| it.starts_with(start));
        lines.filter_map(|it| it.rsplit(' ').next()?.parse::<f64>().ok()).sum()
    }

    /// Kills it as a machine that breaks does.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Asks it to stop and returns its exit code.
    pub(crate) fn stop(mut self) -> Option<i32> {
        let pid = Pid::from_raw(i32::try_from(self.child.id()).unwrap()).unwrap();
        kill_process(pid, Signal::TERM).unwrap();
        self.child.wait().unwrap().code()
    }

    fn request(&self, head: &str, body: &str) -> String {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        let mut text = head.to_owned();
        write!(text, "content-length: {}\r\nconnection: close\r\n\r\n{body}", body.len()).unwrap();
        stream.write_all(text.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        format!("{} {body}", head.split(' ').nth(1).unwrap())
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        // A test that failed leaves nothing behind; one that stopped it has waited already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs a command to its end.
pub(crate) fn run(directory: &Path, arguments: &[&str]) -> Ended {
    run_with_input(directory, arguments, "")
}

pub(crate) fn run_with_input(directory: &Path, arguments: &[&str], input: &str) -> Ended {
    let mut command = millstream(directory);
    let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = piped.args(arguments).spawn().unwrap();
    // A command that does not read its input may have ended already.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    let Output { status, stdout, stderr } = child.wait_with_output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    Ended { code: status.code(), out: text(stdout), err: text(stderr) }
}

/// Runs a command that must succeed and returns what it wrote.
#[track_caller]
pub(crate) fn succeed(directory: &Path, arguments: &[&str]) -> String {
    let ended = run(directory, arguments);
    assert_eq!(ended.code, Some(0), "{arguments:?}: {ended:?}");
    ended.out
}

/// Looks again and again until it is so.
#[track_caller]
pub(crate) fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    for _ in 0..TRIES {
        if is_so() {
            return;
        }
        thread::sleep(PAUSE);
    }
    panic!("not in time: {what}");
}

fn millstream(directory: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_millstream"));
    command.current_dir(directory).env_clear().env("MILLSTREAM_STORE", "file:data");
    command
}
