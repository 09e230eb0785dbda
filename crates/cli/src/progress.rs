//! Telling somebody who watches how far something is.

use std::io::{IsTerminal, stderr};

/// How many characters a bar has.
const WIDTH: u64 = 20;
/// How large a thousand bytes are, a million, and so on.
const UNITS: [(&str, u64); 3] = [("GB", 1_000_000_000), ("MB", 1_000_000), ("kB", 1_000)];

/// A line that is written again and again on a terminal, and once at the end elsewhere.
#[derive(Debug)]
pub(crate) struct Progress {
    is_terminal: bool,
    is_shown: bool,
}

impl Progress {
    pub(crate) fn new() -> Self {
        Self { is_terminal: stderr().is_terminal(), is_shown: false }
    }

    /// Writes the line, on a terminal.
    pub(crate) fn show(&mut self, line: &str) {
        if self.is_terminal {
            self.is_shown = true;
            eprint!("\r\x1b[2K{line}");
        }
    }

    /// Takes the line away, so that something else can be written.
    pub(crate) fn clear(&mut self) {
        if std::mem::take(&mut self.is_shown) {
            eprint!("\r\x1b[2K");
        }
    }

    /// Writes the last line.
    pub(crate) fn end(&mut self, line: &str) {
        self.clear();
        eprintln!("{line}");
    }
}

/// A bar of so much of all, with its percentage.
pub(crate) fn bar(done: u64, all: u64) -> String {
    let part = |of: u64| done.min(all).saturating_mul(of).checked_div(all).unwrap_or(of);
    let filled = usize::try_from(part(WIDTH)).unwrap_or_default();
    let empty = usize::try_from(WIDTH).unwrap_or_default().saturating_sub(filled);
    format!("[{}{}] {} %", "#".repeat(filled), ".".repeat(empty), part(100))
}

/// A number of bytes as people read it.
pub(crate) fn size(bytes: u64) -> String {
    match UNITS.iter().find(|(_, unit)| *unit <= bytes) {
        Some((name, unit)) => {
            let tenths = bytes / (unit / 10);
            format!("{}.{} {name}", tenths / 10, tenths % 10)
        }
        None => format!("{bytes} bytes"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_is_as_long_as_what_is_done() {
        assert_eq!(bar(50, 100), "[##########..........] 50 %");
        assert_eq!(bar(0, 0), "[####################] 100 %");
        assert_eq!(bar(7, 3), "[####################] 100 %");
    }

    #[test]
    fn bytes_have_a_unit_of_their_size() {
        let sizes = [999, 1_000, 1_250_000, 7_000_000_000].map(size);
        assert_eq!(sizes, ["999 bytes", "1.0 kB", "1.2 MB", "7.0 GB"]);
    }
}
