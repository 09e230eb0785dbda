//! The command line of the proof from end to end.
#![allow(clippy::print_stdout, reason = "this is a command line tool")]

mod arguments;

use std::env;
use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;

use millstream_crash::{Attempt, Error, Result};
use millstream_prove::{
    FleetOptions, FleetReport, PartOptions, ProveOptions, Report, StoreKind, prove, prove_fleet,
    run_fleet_part, run_part,
};

use crate::arguments::{Arguments, Command, HELP};

fn main() -> ExitCode {
    match Arguments::parse(env::args().skip(1)).and_then(run) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            eprintln!("{}", error.report());
            ExitCode::from(2)
        }
    }
}

/// Returns whether all is well.
fn run(arguments: Arguments) -> Result<bool> {
    match arguments.command {
        Command::Help => {
            print!("{HELP}");
            Ok(true)
        }
        Command::Part(part) => {
            let Arguments { directory, seed, phase, detects_duplicates, mutant, .. } = arguments;
            run_part(part, &PartOptions { directory, seed, phase, detects_duplicates, mutant })?;
            Ok(true)
        }
        Command::FleetPart(part) => {
            let Arguments { directory, number, mutant, .. } = arguments;
            run_fleet_part(part, &directory, number, mutant)?;
            Ok(true)
        }
        Command::Fleet => {
            println!("seed {}", arguments.seed);
            let report = prove_fleet(&fleet_options(arguments)?)?;
            print_fleet(&report);
            Ok(report.is_well())
        }
        Command::Prove => {
            println!("seed {}", arguments.seed);
            let options = ProveOptions {
                executable: env::current_exe().attempt(|| "find this program")?,
                rounds: arguments.rounds,
                duration: arguments.duration,
                seed: arguments.seed,
                life_max: arguments.life_max,
                scratch: arguments.scratch,
                mutant: arguments.mutant,
                store: arguments.store,
            };
            let report = prove(&options, |report| {
                progress(report);
                true
            })?;
            print(&report);
            Ok(report.is_well())
        }
    }
}

fn fleet_options(arguments: Arguments) -> Result<FleetOptions> {
    let StoreKind::Nats { servers } = arguments.store else {
        let reason = "gateways and processors can only share what is on NATS servers";
        return Err(Error::new("start a fleet").because(reason));
    };
    Ok(FleetOptions {
        executable: env::current_exe().attempt(|| "find this program")?,
        rounds: arguments.rounds,
        duration: arguments.duration,
        seed: arguments.seed,
        life_max: arguments.life_max,
        scratch: arguments.scratch,
        servers,
        kills_servers: arguments.kills_servers.unwrap_or(3 <= servers),
        mutant: arguments.mutant,
    })
}

fn print_fleet(report: &FleetReport) {
    let FleetReport { gateways_killed, processors_killed, servers_killed, .. } = report;
    let kills = report.kills();
    println!();
    println!(
        "killed with SIGKILL     {kills} processes, two at a time: {gateways_killed} gateways,"
    );
    println!("                        {processors_killed} processors, {servers_killed} servers");
    println!("commits acknowledged    {}", report.commits);
    println!(
        "calls repeated          {} without effect, {} with an unknown one",
        report.refused, report.doubtful
    );
    println!("  had happened          {}", report.happened);
    println!("events counted          {}", report.delivered);
    println!("events that came again  {}", report.repeated);
    println!("lost                    {}", report.lost);
    println!("out of order per key    {}", report.reordered);
    print_findings(&report.findings, report.is_well(), &report.evidence);
    println!("figure fleet.kills {kills}");
    println!("figure fleet.commits {}", report.commits);
    println!("figure fleet.lost {}", report.lost);
    println!("figure fleet.reordered {}", report.reordered);
}

fn print(report: &Report) {
    let Report { kills, services_killed, consumers_killed, brokers_killed, .. } = report;
    println!();
    println!("killed with SIGKILL     {kills} processes: {services_killed} services with relay,");
    println!("                        {brokers_killed} brokers, {consumers_killed} consumers");
    println!("killed alone            {} relays, inside their process", report.relays_killed);
    println!("outages of the broker   {}", report.outages);
    println!("commits acknowledged    {} with {} events", report.commits, report.events);
    println!("committed unheard of    {} events", report.events_unacknowledged);
    println!("events with effect      {}", report.delivered);
    println!("lost                    {}", report.lost);
    println!("out of order per key    {}", report.reordered);
    println!("duplicates seen         {}", report.duplicates_absorbed + report.repeated);
    println!("  absorbed by the inbox {}", report.duplicates_absorbed);
    println!("  with effect again     {}", report.repeated);
    let (keys, changes) = (report.parked_keys, report.parked_changes);
    println!("parked                  {keys} keys with {changes} changes");
    println!("  redriven in order     {} keys", report.redriven_in_order);
    print_findings(&report.findings, report.is_well(), &report.evidence);
    println!("figure prove.rounds {kills}");
    println!("figure prove.lost {}", report.lost);
    println!("figure prove.reordered {}", report.reordered);
    println!("figure prove.duplicates_absorbed {}", report.duplicates_absorbed);
}

/// What was found, and what helps to understand it.
fn print_findings(findings: &[String], is_well: bool, evidence: &[String]) {
    for finding in findings {
        println!("FOUND: {finding}");
    }
    for line in evidence.iter().filter(|_| !is_well) {
        println!("  {line}");
    }
}

/// Overwrites one line; says nothing if nobody watches.
fn progress(report: &Report) {
    if io::stderr().is_terminal() {
        let Report { kills, commits, findings, .. } = report;
        eprint!("\r{kills} kills, {commits} commits, {} findings\x1b[K", findings.len());
        let _ = io::stderr().flush();
    }
}
