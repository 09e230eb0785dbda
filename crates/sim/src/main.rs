//! The command line of the simulation.
#![allow(clippy::print_stdout, reason = "this is a command line tool")]

mod arguments;
mod report;

use std::env;
use std::hash::{BuildHasher, RandomState};
use std::ops::Range;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use millstream_sim::{
    Failure, Mutant, Summary, World, logged, regressions, run_caught, run_many, silence_panics,
};

use crate::arguments::{Arguments, HELP, Seeds};
use crate::report::{Progress, print_failure, print_figures, print_mutant, print_summary};

/// Seeds that a planted bug is tried with before it counts as not caught.
const MUTANT_SEEDS_MAX: u64 = 20_000;

fn main() -> ExitCode {
    let words: Vec<String> = env::args().skip(1).collect();
    let arguments = match Arguments::parse(&words) {
        Ok(arguments) => arguments,
        Err(sentence) => {
            eprintln!("error: {sentence}");
            return ExitCode::from(2);
        }
    };
    if arguments.seeds == Seeds::Help {
        print!("{HELP}");
        return ExitCode::SUCCESS;
    }
    silence_panics();
    if run(&arguments) { ExitCode::SUCCESS } else { ExitCode::from(1) }
}

/// Returns whether all is well.
fn run(arguments: &Arguments) -> bool {
    let (mut seeds, mut failed) = (0, 0);
    for world in arguments.worlds() {
        let summary = run_world(world, arguments);
        seeds += summary.seeds;
        failed += summary.failures.len();
        if let Some(failure) = summary.failures.first() {
            print_failure(failure);
        }
    }
    let mut caught = 0;
    let mut all_caught = true;
    // Code that fails without a planted bug would make every bug look caught.
    if arguments.all_mutants && failed == 0 {
        let worlds = arguments.worlds();
        for mutant in Mutant::ALL.iter().filter(|it| worlds.contains(&it.world())) {
            let span = 0..MUTANT_SEEDS_MAX;
            let tried = run_span(mutant.world(), &span, Some(*mutant), mutant.name());
            print_mutant(*mutant, &tried);
            caught += usize::from(!tried.failures.is_empty());
            all_caught &= !tried.failures.is_empty();
        }
    }
    print_figures(seeds, failed, caught);
    failed == 0 && all_caught
}

fn run_world(world: World, arguments: &Arguments) -> Summary {
    let mutant = arguments.mutant;
    match &arguments.seeds {
        Seeds::Help => Summary::default(),
        Seeds::One(seed) if arguments.log => logged(|| run_one(world, *seed, mutant)),
        Seeds::One(seed) => run_one(world, *seed, mutant),
        Seeds::Span(span) => run_span(world, span, mutant, world.name()),
        Seeds::Fresh(time) => run_fresh(world, *time, mutant),
    }
}

/// One seed, twice: what it does must follow from it alone.
fn run_one(world: World, seed: u64, mutant: Option<Mutant>) -> Summary {
    let (outcome, again) = (run_caught(world, seed, mutant), run_caught(world, seed, mutant));
    println!("{} seed {seed}: {}", world.name(), outcome.statistics);
    println!("digest {:016x}", outcome.digest);
    let differs = || {
        let other = again.digest;
        format!("two runs differ: the digest of the other one is {other:016x}")
    };
    let is_same = outcome.digest == again.digest;
    let violation = outcome.violation.or_else(|| (!is_same).then(differs));
    let failures = violation.map(|violation| Failure { world, seed, mutant, violation });
    let failures = failures.into_iter().collect();
    Summary { seeds: 1, failures, statistics: outcome.statistics }
}

fn run_span(world: World, span: &Range<u64>, mutant: Option<Mutant>, what: &str) -> Summary {
    let first = regressions(world);
    let progress = Progress::new(what);
    let taken = AtomicU64::new(0);
    let next = || {
        let number = taken.fetch_add(1, Ordering::Relaxed);
        seed_at(&first, number, span.start).filter(|it| {
            let is_regression = usize::try_from(number).is_ok_and(|it| it < first.len());
            is_regression || *it < span.end
        })
    };
    let summary = run_many(world, mutant, next, |count| progress.seeds(count));
    progress.end();
    if mutant.is_none() {
        print_summary(world, &summary, progress.elapsed());
    }
    summary
}

fn run_fresh(world: World, time: Duration, mutant: Option<Mutant>) -> Summary {
    // Short enough to type again.
    let start = RandomState::new().hash_one(0_u8) % 1_000_000_000;
    println!("{}: fresh seeds from {start}", world.name());
    let first = regressions(world);
    let progress = Progress::new(world.name());
    let taken = AtomicU64::new(0);
    let next = || {
        if time <= progress.elapsed() {
            return None;
        }
        seed_at(&first, taken.fetch_add(1, Ordering::Relaxed), start)
    };
    let summary = run_many(world, mutant, next, |count| progress.seeds(count));
    progress.end();
    print_summary(world, &summary, progress.elapsed());
    summary
}

/// The `number`th seed: those that once failed, then from `start` on.
fn seed_at(first: &[u64], number: u64, start: u64) -> Option<u64> {
    let count = u64::try_from(first.len()).ok()?;
    match number.checked_sub(count) {
        Some(further) => start.checked_add(further),
        None => first.get(usize::try_from(number).ok()?).copied(),
    }
}
