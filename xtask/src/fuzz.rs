//! `cargo xtask fuzz`: cargo-fuzz on the nightly toolchain.

use std::path::Path;

use crate::command::{Command, Failure};

/// Fuzzes `target`, or each target in turn, for `seconds` each.
///
/// # Errors
///
/// A tool is missing (the sentence says how to install it), or a target found something.
pub(crate) fn run(root: &Path, target: Option<String>, seconds: u32) -> Result<(), Failure> {
    check_tools(
        root.join("fuzz/Cargo.toml").exists(),
        nightly().arguments(["--version"]).answers(root),
        nightly().arguments(["fuzz", "--version"]).answers(root),
    )?;
    let targets = match target {
        Some(target) => vec![target],
        None => {
            let listed =
                nightly().arguments(["fuzz", "list", "--fuzz-dir", "fuzz"]).output(root)?;
            listed.lines().map(str::to_owned).collect()
        }
    };
    for target in targets {
        let command = fuzzing(&target, seconds);
        println!("fuzz: {command}");
        command.run(root)?;
    }
    Ok(())
}

fn check_tools(has_targets: bool, has_nightly: bool, has_cargo_fuzz: bool) -> Result<(), Failure> {
    let missing = if !has_targets {
        "there are no fuzz targets: fuzz/Cargo.toml does not exist"
    } else if !has_nightly {
        "fuzzing needs the nightly toolchain: install it with `rustup toolchain install nightly`"
    } else if !has_cargo_fuzz {
        "fuzzing needs cargo-fuzz: install it with `cargo install cargo-fuzz`"
    } else {
        return Ok(());
    };
    Err(Failure::task(missing))
}

/// Through rustup, since `cargo +nightly` is unknown to the cargo we run under.
fn nightly() -> Command {
    Command::new("rustup").arguments(["run", "nightly", "cargo"])
}

fn fuzzing(target: &str, seconds: u32) -> Command {
    nightly()
        .arguments(["fuzz", "run", "--fuzz-dir", "fuzz", target, "--"])
        .arguments([format!("-max_total_time={seconds}")])
}

#[cfg(test)]
mod tests {
    use crate::fuzz::{check_tools, fuzzing};

    #[track_caller]
    fn check(has: [bool; 3], word: &str) {
        let failure = check_tools(has[0], has[1], has[2]).expect_err("something is missing");
        assert!(failure.to_string().contains(word), "{failure}");
    }

    #[test]
    fn says_what_is_missing_and_how_to_get_it() {
        check([false, true, true], "fuzz/Cargo.toml");
        check([true, false, false], "rustup toolchain install nightly");
        check([true, true, false], "cargo install cargo-fuzz");
        assert_eq!(check_tools(true, true, true), Ok(()));
    }

    #[test]
    fn the_time_goes_to_the_fuzzer() {
        assert_eq!(
            fuzzing("key", 5).to_string(),
            "rustup run nightly cargo fuzz run --fuzz-dir fuzz key -- -max_total_time=5",
        );
    }
}
