//! A NATS server of our own with one JetStream stream, and just enough of its protocol.

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use crate::Result;

const READY_ATTEMPTS_MAX: u32 = 100;
const READY_INTERVAL: Duration = Duration::from_millis(50);
/// A server that says nothing for so long is stuck.
const SILENCE_MAX: Duration = Duration::from_secs(30);
const STREAM: &str = r#"{"name":"EVENTS","subjects":["events"],"storage":"file","num_replicas":1}"#;

/// A stream.
pub(super) struct Nats {
    server: Child,
    reader: BufReader<TcpStream>,
    writer: TcpStream,
}

impl Nats {
    /// Starts `nats-server` with its data in `directory`; none if it is not installed.
    ///
    /// `durable` means that a message is on disk when it is acknowledged, as with our broker; by
    /// default that takes up to two minutes.
    pub(super) fn start(directory: &Path, durable: bool) -> Result<Option<Self>> {
        let directory = fs::canonicalize(directory)?;
        let sync = if durable { ", sync_interval: always" } else { "" };
        let shown = directory.display();
        let settings = format!(
            "host: \"127.0.0.1\"\nport: -1\nports_file_dir: \"{shown}\"\n\
             jetstream {{ store_dir: \"{shown}/jetstream\"{sync} }}\n"
        );
        let file = directory.join("nats.conf");
        fs::write(&file, settings)?;
        let mut command = Command::new("nats-server");
        command.arg("--config").arg(&file);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let Ok(mut server) = command.spawn() else { return Ok(None) };
        let connected = connect(&directory);
        match connected {
            Ok((reader, writer)) => {
                let mut nats = Self { server, reader, writer };
                nats.begin()?;
                Ok(Some(nats))
            }
            Err(error) => {
                server.kill()?;
                server.wait()?;
                Err(error)
            }
        }
    }

    /// Publishes messages, and returns when all of them are acknowledged.
    pub(super) fn publish(&mut self, messages: &[(i64, String)]) -> Result<()> {
        let mut bytes = Vec::new();
        for (id, body) in messages {
            let header = format!("NATS/1.0\r\nNats-Msg-Id: {id}\r\n\r\n");
            let total = header.len() + body.len();
            write!(bytes, "HPUB events _INBOX.bench.1 {} {total}\r\n{header}", header.len())?;
            bytes.extend_from_slice(body.as_bytes());
            bytes.extend_from_slice(b"\r\n");
        }
        self.writer.write_all(&bytes)?;
        for _ in messages {
            self.answer()?;
        }
        Ok(())
    }

    fn begin(&mut self) -> Result<()> {
        let greeting = "CONNECT {\"verbose\":false,\"headers\":true}\r\nSUB _INBOX.bench.* 1\r\n";
        let create = "PUB $JS.API.STREAM.CREATE.EVENTS _INBOX.bench.0";
        let request = format!("{greeting}{create} {}\r\n{STREAM}\r\n", STREAM.len());
        self.writer.write_all(request.as_bytes())?;
        self.answer()
    }

    /// Waits for the next answer; one that tells of an error is one.
    fn answer(&mut self) -> Result<()> {
        loop {
            let mut line = String::new();
            if self.reader.read_line(&mut line)? == 0 {
                return Err("the NATS server hung up".into());
            }
            let mut words = line.split_whitespace();
            match words.next() {
                Some("PING") => self.writer.write_all(b"PONG\r\n")?,
                Some("MSG" | "HMSG") => {
                    let length: usize = words.next_back().unwrap_or_default().parse()?;
                    let mut payload = vec![0; length + 2];
                    self.reader.read_exact(&mut payload)?;
                    let text = String::from_utf8_lossy(&payload);
                    if !text.starts_with('{') || text.contains("\"error\"") {
                        return Err(format!("NATS refused: {}", text.trim()).into());
                    }
                    return Ok(());
                }
                Some("-ERR") => return Err(format!("NATS refused: {}", line.trim()).into()),
                _ => (),
            }
        }
    }
}

impl Drop for Nats {
    fn drop(&mut self) {
        if let Err(error) = self.server.kill().and_then(|()| self.server.wait().map(drop)) {
            eprintln!("could not stop the NATS server: {error}");
        }
    }
}

/// Connects as soon as the server has written where it listens.
fn connect(directory: &Path) -> Result<(BufReader<TcpStream>, TcpStream)> {
    for _ in 0..READY_ATTEMPTS_MAX {
        thread::sleep(READY_INTERVAL);
        let mut files = fs::read_dir(directory)?.flatten().map(|it| it.path());
        let found = files.find(|it| it.extension().is_some_and(|it| it == "ports"));
        let text = found.and_then(|it| fs::read_to_string(it).ok()).unwrap_or_default();
        let Some((_, rest)) = text.split_once("nats://") else { continue };
        let Some((address, _)) = rest.split_once('"') else { continue };
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(SILENCE_MAX))?;
        return Ok((BufReader::new(stream.try_clone()?), stream));
    }
    Err("the NATS server did not start".into())
}
