//! The command line of the crash tests.
#![allow(clippy::print_stdout, reason = "this is a command line tool")]

mod arguments;

use std::{
    env, fs,
    io::{self, IsTerminal, Write},
    path::Path,
    process::ExitCode,
};

use millstream_crash::{
    Acks, Attempt, Error, KillOptions, KillReport, Load, Moment, PowerOptions, PowerReport, Result,
    Target, Violation, decode, kill, lives, read, record, unplug,
};

use crate::arguments::{Arguments, HELP};

/// More than this is not printed.
const FINDINGS_SHOWN_MAX: usize = 20;

fn main() -> ExitCode {
    match Arguments::parse(env::args_os().skip(1)).and_then(|arguments| run(&arguments)) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            eprintln!("{}", error.report());
            ExitCode::from(2)
        }
    }
}

/// Returns whether all is well.
fn run(arguments: &Arguments) -> Result<bool> {
    let target = target(arguments)?;
    match arguments.command.as_str() {
        "--help" | "help" => {
            print!("{HELP}");
            Ok(true)
        }
        "crash" => {
            println!("seed {}", arguments.seed);
            let killed = run_kill(arguments, target)?;
            print_kill(&killed);
            Ok(killed.violations.is_empty())
        }
        "power" => {
            println!("seed {}", arguments.seed);
            let unplugged = run_power(arguments, target)?;
            print_power(&unplugged);
            Ok(unplugged.violations.is_empty())
        }
        "all" => {
            println!("seed {}", arguments.seed);
            let killed = run_kill(arguments, target.clone())?;
            let unplugged = run_power(arguments, target)?;
            print_kill(&killed);
            print_power(&unplugged);
            Ok(killed.violations.is_empty() && unplugged.violations.is_empty())
        }
        "show" => {
            let file = arguments.replay.as_ref();
            let file = file.ok_or_else(|| Error::new("show a recording: name it with --replay"))?;
            let trace = fs::read(file).attempt(|| format!("read \"{}\"", file.display()))?;
            for (number, record) in (1..).zip(decode(&trace)?) {
                println!("{number} {record}");
            }
            Ok(true)
        }
        "mutants" => run_mutants(arguments, &target),
        // The rest is for children of this program.
        "load" => {
            let acks = Acks::new(Box::new(io::stdout())).exit_after(arguments.exit_after);
            target.open()?.load(&arguments.directory, &load(arguments), &acks)?;
            Ok(true)
        }
        "lives" => {
            let Arguments { directory, marks, deaths, .. } = arguments;
            lives(&target, directory, marks, &load(arguments), *deaths)?;
            Ok(true)
        }
        other => Err(Error::new(format!("find command \"{other}\", see --help"))),
    }
}

fn target(arguments: &Arguments) -> Result<Target> {
    Ok(Target {
        executable: env::current_exe().attempt(|| "find this program")?,
        subject: arguments.subject.clone(),
        mutant: arguments.mutant.clone(),
    })
}

const fn load(arguments: &Arguments) -> Load {
    Load { seed: arguments.seed, writers: arguments.writers, commits: arguments.operations }
}

fn kill_options(arguments: &Arguments, target: Target) -> KillOptions {
    KillOptions {
        target,
        rounds: arguments.rounds,
        seed: arguments.seed,
        writers: arguments.writers,
        scratch: arguments.scratch.clone(),
    }
}

fn power_options(arguments: &Arguments, target: Target) -> PowerOptions {
    PowerOptions {
        target,
        seed: arguments.seed,
        load: load(arguments),
        deaths: arguments.deaths,
        rules: arguments.rules,
        torn_per_moment: arguments.torn,
        scratch: arguments.scratch.clone(),
    }
}

fn run_kill(arguments: &Arguments, target: Target) -> Result<KillReport> {
    let report = kill(&kill_options(arguments, target), |report| {
        let KillReport { rounds, acks, violations } = report;
        let violations = violations.len();
        progress(&format!("kill {rounds}: {acks} commits, {violations} violations"));
        true
    })?;
    progress("");
    let shown = |(round, violation): &(u64, Violation)| {
        (format!("after kill {round}"), violation.to_string())
    };
    print_violations(report.violations.iter().map(shown));
    println!("{} kills, {} commits acknowledged", report.rounds, report.acks);
    Ok(report)
}

fn run_power(arguments: &Arguments, target: Target) -> Result<PowerReport> {
    let options = power_options(arguments, target);
    let trace = match &arguments.replay {
        Some(file) => fs::read(file).attempt(|| format!("read \"{}\"", file.display()))?,
        None => record(&options)?,
    };
    let recorded = read(&trace)?;
    let report = unplug(&options, &recorded, |report| {
        let PowerReport { images, violations, .. } = report;
        let violations = violations.len();
        if images % 16 == 0 {
            progress(&format!("power cut: {images} disks, {violations} violations"));
        }
        true
    })?;
    progress("");
    let shown = |(moment, violation): &(Moment, Violation)| {
        (format!("after step {} ({:?})", moment.prefix, moment.variant), violation.to_string())
    };
    print_violations(report.violations.iter().map(shown));
    if let (Some(file), false) = (&arguments.keep, report.violations.is_empty()) {
        keep(file, &trace)?;
    }
    let (prefixes, images, acks) = (report.prefixes, report.images, recorded.acks.len());
    println!("{prefixes} moments, {images} disks, {acks} commits acknowledged");
    Ok(report)
}

fn run_mutants(arguments: &Arguments, target: &Target) -> Result<bool> {
    // A store that fails without them would make every bug look caught.
    let killed = kill(&kill_options(arguments, target.clone()), |it| it.violations.is_empty())?;
    let options = power_options(arguments, target.clone());
    let unplugged = unplug(&options, &read(&record(&options)?)?, |it| it.violations.is_empty())?;
    if !killed.violations.is_empty() || !unplugged.violations.is_empty() {
        return Err(Error::new("plant bugs: the store fails without them"));
    }
    let mut all_caught = true;
    for name in target.mutants()? {
        let target = Target { mutant: Some(name.clone()), ..target.clone() };
        // The first finding is enough.
        let killed = kill(&kill_options(arguments, target.clone()), |it| it.violations.is_empty())?;
        // A store with a bug may refuse to go on after a death, so it lives but once.
        let options = PowerOptions { deaths: 0, ..power_options(arguments, target) };
        let recorded = read(&record(&options)?)?;
        let unplugged = unplug(&options, &recorded, |it| it.violations.is_empty())?;
        let by_kill =
            killed.violations.first().map(|(_, it)| format!("kill {}: {it}", killed.rounds));
        let by_power = unplugged
            .violations
            .first()
            .map(|(it, found)| format!("power cut at {}: {found}", it.prefix));
        all_caught &= by_kill.is_some() || by_power.is_some();
        println!("{name}");
        println!("  {}", by_kill.as_deref().unwrap_or("not caught by a kill"));
        println!("  {}", by_power.as_deref().unwrap_or("not caught by a power cut"));
    }
    Ok(all_caught)
}

/// Prints what was seen, each finding once with the first place it was seen at.
fn print_violations(violations: impl Iterator<Item = (String, String)>) {
    let mut findings: Vec<(String, String, usize)> = Vec::new();
    for (place, seen) in violations {
        match findings.iter_mut().find(|(_, known, _)| *known == seen) {
            Some((_, _, count)) => *count += 1,
            None => findings.push((place, seen, 1)),
        }
    }
    for (place, seen, count) in findings.iter().take(FINDINGS_SHOWN_MAX) {
        println!("{place}, {count} times: {seen}");
    }
    if FINDINGS_SHOWN_MAX < findings.len() {
        println!("and {} more", findings.len() - FINDINGS_SHOWN_MAX);
    }
}

fn print_kill(report: &KillReport) {
    println!("figure crash.rounds {}", report.rounds);
    println!("figure crash.violations {}", report.violations.len());
}

fn print_power(report: &PowerReport) {
    println!("figure power.prefixes {}", report.prefixes);
    println!("figure power.violations {}", report.violations.len());
}

fn keep(file: &Path, trace: &[u8]) -> Result<()> {
    fs::write(file, trace).attempt(|| format!("keep the recording in \"{}\"", file.display()))?;
    println!("kept the recording: run again with --replay {}", file.display());
    Ok(())
}

/// Overwrites one line; says nothing if nobody watches.
fn progress(text: &str) {
    if io::stderr().is_terminal() {
        eprint!("\r{text}\x1b[K");
        let _ = io::stderr().flush();
    }
}
