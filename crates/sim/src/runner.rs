//! Runs many seeds on all cores; each seed is one thread's from its first step to its last.

use std::any::Any;
use std::cell::RefCell;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use crate::world::{Mutant, Outcome, Statistics, World, run_seed};

thread_local! {
    /// Where the last panic of this thread was, for the message of a seed that panics.
    static PANICKED_AT: RefCell<String> = const { RefCell::new(String::new()) };
}

/// The seeds that once failed, from `regressions.txt`.
const REGRESSIONS: &str = include_str!("../regressions.txt");

/// A seed whose world went wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// What was simulated.
    pub world: World,
    /// The seed.
    pub seed: u64,
    /// The planted bug, if there was one.
    pub mutant: Option<Mutant>,
    /// What was wrong.
    pub violation: String,
}

/// What came of many seeds.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// Seeds that were run to their end.
    pub seeds: u64,
    /// Those that failed, smallest first. After the first one no new seed is begun.
    pub failures: Vec<Failure>,
    /// What happened in all of them.
    pub statistics: Statistics,
}

impl Failure {
    /// The command that repeats it.
    #[must_use]
    pub fn command(&self) -> String {
        let mutant = self.mutant.map(|it| format!(" --mutant {}", it.name())).unwrap_or_default();
        format!("cargo xtask sim --world {} --seed {}{mutant}", self.world.name(), self.seed)
    }
}

/// The seeds of a world that once failed.
///
/// # Panics
///
/// If a line of the list does not begin with a world and a number.
#[must_use]
pub fn regressions(world: World) -> Vec<u64> {
    let lines = REGRESSIONS.lines().filter(|it| !it.is_empty() && !it.starts_with('#'));
    let parsed = |line: &str| {
        let mut words = line.split_whitespace();
        let world = words.next().and_then(World::named)?;
        Some((world, words.next()?.parse().ok()?))
    };
    let all = lines.map(|it| parsed(it).expect("a line begins with a world and a seed"));
    all.filter(|(of, _)| *of == world).map(|(_, seed)| seed).collect()
}

/// Runs the world of a seed; a panic in it is a violation.
#[must_use]
pub fn run_caught(world: World, seed: u64, mutant: Option<Mutant>) -> Outcome {
    let result = panic::catch_unwind(AssertUnwindSafe(|| run_seed(world, seed, mutant)));
    result.unwrap_or_else(|payload| Outcome {
        digest: 0,
        violation: Some(format!(
            "panicked at {}: {}",
            PANICKED_AT.with_borrow(Clone::clone),
            message(&*payload),
        )),
        statistics: Statistics::default(),
    })
}

/// Keeps panics quiet: some worlds plant them by the thousand, and one that matters is told with
/// its seed.
pub fn silence_panics() {
    panic::set_hook(Box::new(|info| {
        let place = info.location().map(ToString::to_string).unwrap_or_default();
        PANICKED_AT.with_borrow_mut(|it| *it = place);
    }));
}

/// Runs seeds until `next` has no more or one fails. `watch` is called after each with the number
/// of seeds so far.
pub fn run_many(
    world: World,
    mutant: Option<Mutant>,
    next: impl Fn() -> Option<u64> + Sync,
    watch: impl Fn(u64) + Sync,
) -> Summary {
    let (summary, stop, done) = (Mutex::default(), AtomicBool::new(false), AtomicU64::new(0));
    let work = || {
        let mut own = Summary::default();
        while !stop.load(Ordering::Relaxed) {
            let Some(seed) = next() else { break };
            let outcome = run_caught(world, seed, mutant);
            own.seeds += 1;
            own.statistics.add(&outcome.statistics);
            if let Some(violation) = outcome.violation {
                stop.store(true, Ordering::Relaxed);
                own.failures.push(Failure { world, seed, mutant, violation });
            }
            watch(done.fetch_add(1, Ordering::Relaxed) + 1);
        }
        join(&summary, own);
    };
    thread::scope(|scope| {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        for _ in 0..cores {
            scope.spawn(work);
        }
    });
    let mut summary = summary.into_inner().expect("nothing panics while it holds the lock");
    summary.failures.sort_by_key(|it: &Failure| it.seed);
    summary
}

fn join(all: &Mutex<Summary>, own: Summary) {
    let mut all = all.lock().expect("nothing panics while it holds the lock");
    all.seeds += own.seeds;
    all.statistics.add(&own.statistics);
    all.failures.extend(own.failures);
}

fn message(payload: &(dyn Any + Send)) -> &str {
    let text = payload.downcast_ref::<&str>().copied();
    text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}

#[cfg(test)]
mod tests {
    use millstream_processor::Flaw;

    use super::*;

    #[test]
    fn many_seeds_are_run_once_each() {
        let next = AtomicU64::new(0);
        let take = || Some(next.fetch_add(1, Ordering::Relaxed)).filter(|it| *it < 20);
        let summary = run_many(World::Processor, None, take, |_| ());
        assert_eq!((summary.seeds, summary.failures), (20, vec![]));
        let steps = |seed| run_caught(World::Processor, seed, None).statistics.steps;
        let alone: u64 = (0..20).map(steps).sum();
        assert_eq!(summary.statistics.steps, alone);
    }

    #[test]
    fn a_failure_says_how_to_repeat_it() {
        let mutant = Some(Mutant::Processor(Flaw::AcknowledgeBeforeHandling));
        let next = AtomicU64::new(0);
        let take = || Some(next.fetch_add(1, Ordering::Relaxed));
        let summary = run_many(World::Processor, mutant, take, |_| ());
        let failure = &summary.failures[0];
        let again = run_caught(failure.world, failure.seed, mutant);
        assert_eq!(again.violation.as_ref(), Some(&failure.violation));
        let command = format!(
            "cargo xtask sim --world processor --seed {} --mutant acknowledge-before-handling",
            failure.seed,
        );
        assert_eq!(failure.command(), command);
        let plain = Failure { mutant: None, world: World::Delivery, seed: 7, ..failure.clone() };
        assert_eq!(plain.command(), "cargo xtask sim --world delivery --seed 7");
    }

    #[test]
    fn seeds_that_once_failed_pass() {
        for world in World::ALL {
            for seed in regressions(*world) {
                let violation = run_caught(*world, seed, None).violation;
                assert_eq!(violation, None, "seed {seed} of {}", world.name());
            }
        }
    }
}
