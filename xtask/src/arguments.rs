//! What can be asked for on the command line.

use crate::conformance::{Suite, Wanted};

/// Printed for `--help`, and named by every usage error.
pub(crate) const HELP: &str = "\
Tasks of the Millstream repository.

usage: cargo xtask <task> [arguments]

  test [arguments]                 every test: unit, integration and documentation examples;
                                   arguments go to `cargo test`
  tidy                             the rules a compiler does not know: who may depend on whom,
                                   sizes, licences, leftovers, paths of one machine
  bench [name] [arguments]         one benchmark, build of dist: commit, feed, ttl, start,
                                   processor, relay, nats, gateway
  crash [arguments]                kill the store at random moments and check what it kept
  power [arguments]                the same with loss of power, which drops unsynced writes
  prove [arguments]                kill service, relay, broker and consumer at random moments, and
                                   count what arrives: --minutes M | --rounds N, --seed N
  sim [arguments]                  simulate deployments under faults, each drawn from a seed:
                                   --seed N | --seeds A..B | --minutes M, --mutants
  fuzz [target] [--seconds N]      one fuzz target or each in turn, 60 seconds unless told
                                   otherwise; needs nightly and cargo-fuzz
  conformance <suite> [file ...]   an official SDK against a gateway; suites: python (needs
                                   python3), rust and go (needs Go), with the SDK's own tests; js
                                   (needs node and npm), java (needs a JDK and mvn) and dotnet
                                   (needs npm and Python 3.11, on x86_64 Linux), with ours.
                                   All need the network at the first time; without files all that
                                   count, with --ci those that every change has to pass
  ci                               everything a change must pass, cheapest first, tests last

Exit status: 0 passed, 1 failed (bench, crash, power, prove and sim: what the
program returned), 2 misused.
";

const FUZZ_SECONDS_DEFAULT: u32 = 60;

/// One run of this program.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Task {
    Help,
    Test(Vec<String>),
    Tidy,
    Bench(Vec<String>),
    Crash(Vec<String>),
    Power(Vec<String>),
    Prove(Vec<String>),
    Sim(Vec<String>),
    Fuzz { target: Option<String>, seconds: u32 },
    Conformance { suite: Suite, wanted: Wanted },
    Ci,
}

/// The task that `arguments` ask for, or a sentence about what is wrong with them.
pub(crate) fn parse(arguments: &[String]) -> Result<Task, String> {
    let Some((task, rest)) = arguments.split_first() else {
        return Err("no task given".to_owned());
    };
    match task.as_str() {
        "help" | "--help" | "-h" => Ok(Task::Help),
        "test" => Ok(Task::Test(rest.to_vec())),
        "tidy" => nothing_more(task, rest, Task::Tidy),
        "bench" => Ok(Task::Bench(rest.to_vec())),
        "crash" => Ok(Task::Crash(rest.to_vec())),
        "power" => Ok(Task::Power(rest.to_vec())),
        "prove" => Ok(Task::Prove(rest.to_vec())),
        "sim" => Ok(Task::Sim(rest.to_vec())),
        "fuzz" => fuzz(rest),
        "conformance" => conformance(rest),
        "ci" => nothing_more(task, rest, Task::Ci),
        unknown => Err(format!("there is no task {unknown:?}")),
    }
}

fn nothing_more(name: &str, rest: &[String], task: Task) -> Result<Task, String> {
    match rest.first().map(String::as_str) {
        None => Ok(task),
        Some("--help" | "-h") => Ok(Task::Help),
        Some(extra) => Err(format!("{name} takes no arguments, but {extra:?} was given")),
    }
}

fn fuzz(rest: &[String]) -> Result<Task, String> {
    let mut target = None;
    let mut seconds = FUZZ_SECONDS_DEFAULT;
    let mut rest = rest.iter();
    while let Some(argument) = rest.next() {
        match argument.as_str() {
            "--help" | "-h" => return Ok(Task::Help),
            "--seconds" => {
                let value = rest.next().ok_or("--seconds needs a number")?;
                seconds = positive(value)?;
            }
            option if option.starts_with('-') => {
                return Err(format!("fuzz has no option {option:?}"));
            }
            name if target.is_none() => target = Some(name.to_owned()),
            extra => return Err(format!("fuzz takes one target, but {extra:?} was also given")),
        }
    }
    Ok(Task::Fuzz { target, seconds })
}

fn conformance(rest: &[String]) -> Result<Task, String> {
    let Some((suite, files)) = rest.split_first() else {
        let names = Suite::ALL.map(Suite::name).join(", ");
        return Err(format!("conformance needs the name of a suite: {names}"));
    };
    if suite == "--help" || suite == "-h" {
        return Ok(Task::Help);
    }
    let Some(suite) = Suite::ALL.into_iter().find(|it| it.name() == suite) else {
        return Err(format!("there is no suite {suite:?}"));
    };
    Ok(Task::Conformance { suite, wanted: wanted(files)? })
}

fn wanted(files: &[String]) -> Result<Wanted, String> {
    match files {
        [] => return Ok(Wanted::All),
        [only] if only == "--ci" => return Ok(Wanted::Ci),
        _ => (),
    }
    match files.iter().find(|it| it.starts_with('-')) {
        None => Ok(Wanted::Files(files.to_vec())),
        Some(option) if option == "--ci" => Err("--ci stands alone".to_owned()),
        Some(option) => Err(format!("conformance has no option {option:?}")),
    }
}

/// Zero is refused because libFuzzer takes it as "for ever".
fn positive(value: &str) -> Result<u32, String> {
    match value.parse() {
        Ok(number) if 0 < number => Ok(number),
        _ => Err(format!("--seconds needs a positive number, not {value:?}")),
    }
}

#[cfg(test)]
mod tests {
    use crate::arguments::{Task, parse};
    use crate::conformance::{Suite, Wanted};

    fn words(line: &str) -> Vec<String> {
        line.split_whitespace().map(str::to_owned).collect()
    }

    #[track_caller]
    fn check(line: &str, expected: Task) {
        assert_eq!(parse(&words(line)), Ok(expected));
    }

    #[track_caller]
    fn check_refused(line: &str, sentence: &str) {
        assert_eq!(parse(&words(line)), Err(sentence.to_owned()));
    }

    #[test]
    fn each_task_has_a_name() {
        check("--help", Task::Help);
        check("tidy", Task::Tidy);
        check("ci", Task::Ci);
        check("test", Task::Test(vec![]));
    }

    #[test]
    fn arguments_of_programs_pass_through() {
        check("test -- feed", Task::Test(words("-- feed")));
        check("bench commit --help", Task::Bench(words("commit --help")));
        check("crash --rounds 20", Task::Crash(words("--rounds 20")));
        check("power --seed 7", Task::Power(words("--seed 7")));
        check("prove --rounds 9", Task::Prove(words("--rounds 9")));
        check("sim --seeds 0..9", Task::Sim(words("--seeds 0..9")));
    }

    #[test]
    fn fuzz_takes_a_target_and_a_time() {
        check("fuzz", Task::Fuzz { target: None, seconds: 60 });
        check("fuzz key", Task::Fuzz { target: Some("key".to_owned()), seconds: 60 });
        check("fuzz --seconds 5 key", Task::Fuzz { target: Some("key".to_owned()), seconds: 5 });
    }

    #[test]
    fn conformance_takes_a_suite_and_files() {
        let suite = Suite::Python;
        check("conformance python", Task::Conformance { suite, wanted: Wanted::All });
        check("conformance python --ci", Task::Conformance { suite, wanted: Wanted::Ci });
        let wanted = Wanted::Files(words("test_ttl.py"));
        check("conformance python test_ttl.py", Task::Conformance { suite, wanted });
        let suite = Suite::Rust;
        check("conformance rust", Task::Conformance { suite, wanted: Wanted::All });
        check_refused("conformance python --ci test_ttl.py", "--ci stands alone");
        let suite = Suite::Js;
        check("conformance js", Task::Conformance { suite, wanted: Wanted::All });
        let sentence = "conformance needs the name of a suite: python, rust, go, js, java, dotnet";
        check_refused("conformance", sentence);
        check_refused("conformance cobol", "there is no suite \"cobol\"");
        check_refused("conformance python -v", "conformance has no option \"-v\"");
    }

    #[test]
    fn help_is_given_after_a_task_too() {
        check("tidy --help", Task::Help);
        check("fuzz key -h", Task::Help);
    }

    #[test]
    fn misuse_is_refused_with_a_sentence() {
        check_refused("", "no task given");
        check_refused("nonsense", "there is no task \"nonsense\"");
        check_refused("tidy fast", "tidy takes no arguments, but \"fast\" was given");
        check_refused("fuzz --seconds", "--seconds needs a number");
        check_refused("fuzz --seconds 0", "--seconds needs a positive number, not \"0\"");
        check_refused("fuzz --seconds x", "--seconds needs a positive number, not \"x\"");
        check_refused("fuzz --fast", "fuzz has no option \"--fast\"");
        check_refused("fuzz a b", "fuzz takes one target, but \"b\" was also given");
    }
}
