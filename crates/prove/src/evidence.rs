//! What is shown beside a finding, so that it can be understood: what was done and when, and what
//! everybody said last.

use std::collections::BTreeMap;
use std::fmt::Display;

use millstream_core::{Clock, SystemClock};

use crate::process::Said;

/// Most lives of a process whose end is kept.
const LIVES_MAX: usize = 3;
/// Most lines of what a process told.
const LINES_MAX: usize = 5;

/// What happened.
#[derive(Debug, Default)]
pub(crate) struct Evidence {
    clock: SystemClock,
    history: Vec<String>,
    /// The ends of the last lives of each process.
    ends: BTreeMap<String, Vec<Vec<String>>>,
}

impl Evidence {
    /// Notes what was done to the processes.
    pub(crate) fn note(&mut self, done: impl Display) {
        let line = format!("{:.2} s: {done}", self.clock.monotonic().as_secs_f64());
        self.history.push(line);
    }

    /// Keeps what a process said last.
    pub(crate) fn keep(&mut self, process: &str, said: &Said) {
        let ended = self.clock.monotonic().as_secs_f64();
        let told: Vec<&str> = said.text.lines().collect();
        let told = told[told.len().saturating_sub(LINES_MAX)..].iter();
        let mut lines = vec![format!("{process}, until {ended:.2} s:")];
        lines.extend(told.map(|it| format!("  told: {it}")));
        lines.extend(said.complaint.lines().map(|it| format!("  complained: {it}")));
        let lives = self.ends.entry(process.to_owned()).or_default();
        if lives.len() == LIVES_MAX {
            lives.remove(0);
        }
        lives.push(lines);
    }

    /// All of it, line by line.
    pub(crate) fn lines(&self) -> Vec<String> {
        let ends = self.ends.values().flatten().flatten();
        self.history.iter().chain(ends).cloned().collect()
    }
}
