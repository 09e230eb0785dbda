//! `export` and `import`: files of JSON lines, with progress for whoever watches.

use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Read, Write, stdin, stdout};
use std::path::{Path, PathBuf};

use crate::admin::{Answer, Request};
use crate::client::{Client, misunderstood};
use crate::config::Config;
use crate::failure::{Failure, Result};
use crate::progress::{Progress, bar, size};

/// The parts of the key space in which an export counts.
const PARTS: u64 = 65_536;
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
    let mut tally = Tally::new("exported", None);
    let mut after = None;
    loop {
        let container = container.to_owned();
        let Answer::Lines(page) = client.ask(Request::Export { container, after }).await? else {
            return Err(misunderstood());
        };
        for line in &page.lines {
            writeln!(out, "{line}")?;
        }
        tally.count(page.lines.len(), bytes_of(&page.lines));
        let (done, items, bytes) = (bar(page.passed, PARTS), tally.items, size(tally.bytes));
        tally.progress.show(&format!("{done}  {items} items, {bytes}"));
        after = page.after;
        if after.is_none() {
            break;
        }
    }
    out.flush()?;
    tally.end();
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
    let mut tally = Tally::new("imported", size);
    let mut lines = Vec::new();
    let (mut bytes, mut number) = (0, 0);
    for line in BufReader::new(input).lines() {
        let line = line?;
        number += 1;
        if line.trim().is_empty() {
            continue;
        }
        if LINES_MAX <= lines.len() || BYTES_MAX < bytes + line.len() {
            send(client, container, &mut lines, number, &mut tally).await?;
            bytes = 0;
        }
        bytes += line.len();
        lines.push(line);
    }
    send(client, container, &mut lines, number, &mut tally).await?;
    tally.end();
    Ok(())
}

async fn send(
    client: &Client,
    container: &str,
    lines: &mut Vec<String>,
    number: u64,
    tally: &mut Tally,
) -> Result<()> {
    let lines = std::mem::take(lines);
    let (count, bytes) = (lines.len(), bytes_of(&lines));
    let request = Request::Import { container: container.to_owned(), lines };
    client.ask(request).await.map_err(|failure| {
        Failure::other(format!(
            "{failure}; this is among the {count} lines up to line {number}, {} were imported",
            tally.items
        ))
    })?;
    tally.add(count, bytes);
    Ok(())
}

/// What was done, and how to tell of it.
struct Tally {
    verb: &'static str,
    items: u64,
    bytes: u64,
    /// How many bytes there are, where that is known.
    size: Option<u64>,
    progress: Progress,
}

impl Tally {
    fn new(verb: &'static str, size: Option<u64>) -> Self {
        Self { verb, items: 0, bytes: 0, size, progress: Progress::new() }
    }

    fn count(&mut self, items: usize, bytes: usize) {
        self.items += u64::try_from(items).unwrap_or(u64::MAX);
        self.bytes += u64::try_from(bytes).unwrap_or(u64::MAX);
    }

    fn add(&mut self, items: usize, bytes: usize) {
        self.count(items, bytes);
        self.progress.show(&line(self.verb, self.items, self.bytes, self.size));
    }

    fn end(&mut self) {
        self.progress.end(&format!("{} {} items", self.verb, self.items));
    }
}

/// The bytes of lines, each with its end.
fn bytes_of(lines: &[String]) -> usize {
    lines.iter().map(|it| it.len() + 1).sum()
}

/// How far it is: a bar where the end is known, otherwise how much was done.
fn line(verb: &str, items: u64, bytes: u64, size_max: Option<u64>) -> String {
    match size_max.filter(|it| 0 < *it) {
        Some(all) => format!("{}  {items} items", bar(bytes, all)),
        None => format!("{verb} {items} items, {}", size(bytes)),
    }
}

fn could_not(verb: &str, path: &Path, error: &std::io::Error) -> Failure {
    Failure::other(format!("could not {verb} {}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_is_a_bar_where_the_end_is_known() {
        let known = line("imported", 7, 50, Some(100));
        assert_eq!(known, "[##########..........] 50 %  7 items");
        assert_eq!(line("exported", 7, 2_500, None), "exported 7 items, 2.5 kB");
    }
}
