//! `cargo xtask tidy`: the rules of the code base that neither compiler nor clippy knows.
//!
//! Each rule is a pure function from what is in the repository to sentences about what is wrong.
//! Read `repository` first, then the rules in the order of `RULES`.

mod dependencies;
mod leaks;
mod leftovers;
mod manifests;
mod obligations;
mod repository;
mod sizes;

use std::path::Path;

use crate::command::Failure;
use crate::tidy::repository::Repository;

type Rule = fn(&Repository) -> Vec<String>;

const RULES: &[(&str, Rule)] = &[
    ("dependencies between our crates", dependencies::check),
    ("manifests", manifests::check),
    ("sizes", sizes::check),
    ("leftovers", leftovers::check),
    ("paths and hosts of one machine", leaks::check),
    ("obligations and their tests", obligations::check),
];

/// Checks every rule and shows every finding before failing.
pub(crate) fn run(root: &Path) -> Result<(), Failure> {
    let repository = repository::read(root)?;
    let mut count = 0;
    for (name, rule) in RULES {
        let findings = rule(&repository);
        for finding in &findings {
            println!("tidy: {finding}");
        }
        println!("tidy: {name}: {}", verdict(findings.len()));
        count += findings.len();
    }
    let warnings = sizes::long_functions(&repository);
    for warning in &warnings {
        println!("tidy: warning: {warning}");
    }
    if count == 0 {
        return Ok(());
    }
    Err(Failure::task(format!("tidy found {count} things to mend, listed above")))
}

fn verdict(findings: usize) -> String {
    if findings == 0 { "ok".to_owned() } else { format!("{findings} found") }
}
