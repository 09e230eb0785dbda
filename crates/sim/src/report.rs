use std::io::{self, IsTerminal, Write};
use std::sync::Mutex;
use std::time::Duration;

use millstream_core::{Clock, SystemClock};
use millstream_sim::{Failure, Mutant, Summary, World};

/// How often somebody who watches is told, and how often a log is.
const TERMINAL_INTERVAL: Duration = Duration::from_millis(200);
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// Says how far a long run has come.
pub(crate) struct Progress {
    clock: SystemClock,
    what: String,
    is_terminal: bool,
    last: Mutex<Duration>,
}

impl Progress {
    pub(crate) fn new(what: impl Into<String>) -> Self {
        let (clock, what) = (SystemClock::default(), what.into());
        Self { clock, what, is_terminal: io::stderr().is_terminal(), last: Mutex::default() }
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.clock.monotonic()
    }

    pub(crate) fn seeds(&self, count: u64) {
        let interval = if self.is_terminal { TERMINAL_INTERVAL } else { LOG_INTERVAL };
        let now = self.elapsed();
        // Whoever else is about to tell does it in our place.
        let Ok(mut last) = self.last.try_lock() else { return };
        if now < *last + interval {
            return;
        }
        *last = now;
        let text = format!("{}: {count} seeds in {:.0} s", self.what, now.as_secs_f64());
        if self.is_terminal {
            eprint!("\r{text}\x1b[K");
            let _ = io::stderr().flush();
        } else {
            eprintln!("{text}");
        }
    }

    pub(crate) fn end(&self) {
        if self.is_terminal {
            eprint!("\r\x1b[K");
        }
    }
}

/// Prints a violation and the one line that repeats it.
pub(crate) fn print_failure(failure: &Failure) {
    println!("{} seed {}: {}", failure.world.name(), failure.seed, failure.violation);
    println!("{}", failure.command());
}

pub(crate) fn print_summary(world: World, summary: &Summary, elapsed: Duration) {
    let seconds = elapsed.as_secs_f64();
    let (world, seeds) = (world.name(), summary.seeds);
    println!("{world}: {seeds} seeds in {seconds:.1} s: {}", summary.statistics);
}

pub(crate) fn print_mutant(mutant: Mutant, summary: &Summary) {
    let name = mutant.name();
    match summary.failures.first() {
        Some(it) => println!("mutant {name} caught by seed {}: {}", it.seed, it.violation),
        None => println!("mutant {name} not caught by {} seeds", summary.seeds),
    }
}

pub(crate) fn print_figures(seeds: u64, violations: usize, mutants_caught: usize) {
    println!("figure sim.seeds {seeds}");
    println!("figure sim.violations {violations}");
    println!("figure sim.mutants_caught {mutants_caught}");
}
