//! `export` and `import`: files of JSON lines, with progress for whoever watches.

use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, IsTerminal, Read, Write, stderr, stdin, stdout};
use std::path::{Path, PathBuf};

use crate::admin::{Answer, Request};
use crate::client::{Client, misunderstood};
use crate::config::Config;
use crate::failure::{Failure, Result};

/// Most lines, and bytes, that are imported at once.
const LINES_MAX: usize = 500;
const BYTES_MAX: usize = 4 * 1024 * 1024;

/// Writes the items of a container as lines of JSON to a file, or to standard output.
pub(crate) async fn export(config: &Config, container: &str, file: Option<PathBuf>) -> Result<()> {
    let client = Client::connect(config).await?;
    let outcome = export_with(&client, container, file).await;
    client.close().await;
    outcome
}

/// Writes the lines of a file, or of standard input, into a container.
pub(crate) async fn import(config: &Config, container: &str, file: Option<PathBuf>) -> Result<()> {
    let client = Client::connect(config).await?;
    let outcome = import_with(&client, container, file).await;
    client.close().await;
    outcome
}

async fn export_with(client: &Client, container: &str, file: Option<PathBuf>) -> Result<()> {
    let mut out: Box<dyn Write> = match &file {
        Some(path) => {
            let file = File::create(path).map_err(|error| could_not("write", path, &error))?;
            Box::new(BufWriter::new(file))
        }
        None => Box::new(stdout()),
    };
    let mut progress = Progress::new("exported", None);
    let mut after = None;
    loop {
        let container = container.to_owned();
        let Answer::Lines(page) = client.ask(Request::Export { container, after }).await? else {
            return Err(misunderstood());
        };
        for line in &page.lines {
            writeln!(out, "{line}")?;
        }
        progress.add(page.lines.len(), 0);
        after = page.after;
        if after.is_none() {
            break;
        }
    }
    out.flush()?;
    progress.end();
    Ok(())
}

async fn import_with(client: &Client, container: &str, file: Option<PathBuf>) -> Result<()> {
    let (input, size): (Box<dyn Read>, Option<u64>) = match &file {
        Some(path) => {
            let file = File::open(path).map_err(|error| could_not("read", path, &error))?;
            let size = file.metadata().ok().map(|it| it.len());
            (Box::new(file), size)
        }
        None => (Box::new(stdin()), None),
    };
    let mut progress = Progress::new("imported", size);
    let mut lines = Vec::new();
    let (mut bytes, mut number) = (0, 0);
    for line in BufReader::new(input).lines() {
        let line = line?;
        number += 1;
        if line.trim().is_empty() {
            continue;
        }
        if LINES_MAX <= lines.len() || BYTES_MAX < bytes + line.len() {
            send(client, container, &mut lines, number, &mut progress).await?;
            bytes = 0;
        }
        bytes += line.len();
        lines.push(line);
    }
    send(client, container, &mut lines, number, &mut progress).await?;
    progress.end();
    Ok(())
}

async fn send(
    client: &Client,
    container: &str,
    lines: &mut Vec<String>,
    number: u64,
    progress: &mut Progress,
) -> Result<()> {
    let lines = std::mem::take(lines);
    let bytes = lines.iter().map(|it| it.len() + 1).sum();
    let count = lines.len();
    let request = Request::Import { container: container.to_owned(), lines };
    client.ask(request).await.map_err(|failure| {
        Failure::other(format!(
            "{failure}; this is among the {count} lines up to line {number}, {} were imported",
            progress.items
        ))
    })?;
    progress.add(count, bytes);
    Ok(())
}

/// Tells how far it is, on a terminal again and again, elsewhere at the end.
struct Progress {
    verb: &'static str,
    items: usize,
    bytes: usize,
    size: Option<u64>,
    is_terminal: bool,
}

impl Progress {
    fn new(verb: &'static str, size: Option<u64>) -> Self {
        Self { verb, items: 0, bytes: 0, size, is_terminal: stderr().is_terminal() }
    }

    fn add(&mut self, items: usize, bytes: usize) {
        self.items += items;
        self.bytes += bytes;
        if !self.is_terminal {
            return;
        }
        let bytes = u64::try_from(self.bytes).unwrap_or(u64::MAX);
        match self.size.filter(|it| 0 < *it) {
            Some(size) => {
                let percent = (bytes.saturating_mul(100) / size).min(100);
                let filled = usize::try_from(percent / 5).unwrap_or(20);
                let bar = format!("{}{}", "#".repeat(filled), ".".repeat(20 - filled));
                eprint!("\r\x1b[2K[{bar}] {percent} %  {} items", self.items);
            }
            None => eprint!("\r\x1b[2K{} {} items", self.verb, self.items),
        }
    }

    fn end(&self) {
        let start = if self.is_terminal { "\r\x1b[2K" } else { "" };
        eprintln!("{start}{} {} items", self.verb, self.items);
    }
}

fn could_not(verb: &str, path: &Path, error: &std::io::Error) -> Failure {
    Failure::other(format!("could not {verb} {}: {error}", path.display()))
}
