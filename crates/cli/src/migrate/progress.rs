//! Tells how far a migration is.

use std::io::{IsTerminal, stderr};
use std::sync::Arc;
use std::time::Duration;

use millstream_core::Clock;

use crate::progress::bar;

/// How often a terminal is told.
const INTERVAL: Duration = Duration::from_millis(100);

/// The progress of one container, on a terminal.
pub(super) struct Progress {
    name: String,
    clock: Arc<dyn Clock>,
    is_terminal: bool,
    shown: Option<Duration>,
}

impl Progress {
    pub(super) fn new(name: String, clock: Arc<dyn Clock>) -> Self {
        Self { name, clock, is_terminal: stderr().is_terminal(), shown: None }
    }

    /// Shows that commit `done` of `newest` of a range is copied.
    pub(super) fn show(&mut self, copied: u64, done: u64, newest: u64) {
        let now = self.clock.monotonic();
        let is_soon = self.shown.is_some_and(|it| now < it + INTERVAL);
        if !self.is_terminal || is_soon {
            return;
        }
        self.shown = Some(now);
        eprint!("\r\x1b[2K{}", line(&self.name, copied, done, newest));
    }

    /// Leaves the line.
    pub(super) fn end(&mut self) {
        if self.shown.take().is_some() {
            eprintln!();
        }
    }
}

fn line(name: &str, copied: u64, done: u64, newest: u64) -> String {
    let (bar, behind) = (bar(done, newest), newest.saturating_sub(done));
    format!("{name}  {bar}  {copied} changes, {behind} commits behind")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_tells_how_far_it_is() {
        let half = "a/b  [##########..........] 50 %  7 changes, 50 commits behind";
        assert_eq!(line("a/b", 7, 50, 100), half);
        assert!(line("a/b", 0, 0, 0).contains("100 %"));
    }
}
