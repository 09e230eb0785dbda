use std::ops::Range;
use std::time::Duration;

use millstream_sim::{Mutant, World};

pub(crate) const HELP: &str = "\
Runs simulated deployments under faults and checks them at every step.

usage: cargo xtask sim [--world W] [--seed N | --seeds A..B | --minutes M]
                       [--mutant NAME | --mutants]

  --world W        processor: instances of the processor; delivery: units of work, relays, a
                   broker and consumers (default: both, with --mutant the one it is for)
  --seed N         one seed, twice, and what happened in it
  --seeds A..B     the seeds from A up to B (default 0..1000)
  --minutes M      fresh seeds for that long, in each world
  --mutant NAME    with a bug planted
  --mutants        then each known bug, until it is caught
  --log            with --seed: what happens, line by line

Seeds that once failed run first. Exit status: 0 passed, 1 something was found or a bug was not
caught, 2 misused.
";

/// One run of this program.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Arguments {
    pub(crate) world: Option<World>,
    pub(crate) seeds: Seeds,
    pub(crate) mutant: Option<Mutant>,
    pub(crate) all_mutants: bool,
    pub(crate) log: bool,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Seeds {
    Help,
    One(u64),
    Span(Range<u64>),
    Fresh(Duration),
}

impl Arguments {
    /// What the words ask for, or a sentence about what is wrong with them.
    pub(crate) fn parse(words: &[String]) -> Result<Self, String> {
        let mut parsed = Self {
            world: None,
            seeds: Seeds::Span(0..1000),
            mutant: None,
            all_mutants: false,
            log: false,
        };
        let mut words = words.iter().map(String::as_str);
        while let Some(name) = words.next() {
            let mut value = || words.next().ok_or_else(|| format!("{name} needs a value"));
            match name {
                "--help" | "-h" | "help" => parsed.seeds = Seeds::Help,
                "--world" => {
                    let name = value()?;
                    let found = World::named(name);
                    parsed.world = Some(found.ok_or_else(|| unknown_world(name))?);
                }
                "--seed" => parsed.seeds = Seeds::One(number(name, value()?)?),
                "--seeds" => parsed.seeds = Seeds::Span(span(value()?)?),
                "--minutes" => {
                    let minutes = number(name, value()?)?;
                    parsed.seeds = Seeds::Fresh(Duration::from_secs(minutes.saturating_mul(60)));
                }
                "--mutant" => {
                    let name = value()?;
                    let found = Mutant::named(name);
                    parsed.mutant = Some(found.ok_or_else(|| unknown_mutant(name))?);
                }
                "--log" => parsed.log = true,
                "--mutants" => parsed.all_mutants = true,
                _ => return Err(format!("{name:?} is unknown, see --help")),
            }
        }
        let wanted = parsed.mutant.map(Mutant::world);
        if wanted.is_some() && parsed.world.is_some() && wanted != parsed.world {
            return Err("the mutant is for the other world".to_owned());
        }
        Ok(parsed)
    }

    /// The worlds that are to be simulated.
    pub(crate) fn worlds(&self) -> Vec<World> {
        let one = self.world.or(self.mutant.map(Mutant::world));
        one.map_or_else(|| World::ALL.to_vec(), |it| vec![it])
    }
}

fn number(name: &str, value: &str) -> Result<u64, String> {
    value.parse().map_err(|_| format!("{name} needs a number, not {value:?}"))
}

fn span(value: &str) -> Result<Range<u64>, String> {
    let refused = || format!("--seeds needs A..B, not {value:?}");
    let (from, to) = value.split_once("..").ok_or_else(refused)?;
    let (from, to) = (from.parse().map_err(|_| refused())?, to.parse().map_err(|_| refused())?);
    if from < to { Ok(from..to) } else { Err(refused()) }
}

fn unknown_world(name: &str) -> String {
    let names: Vec<&str> = World::ALL.iter().map(|it| it.name()).collect();
    format!("there is no world {name:?}, only {}", names.join(", "))
}

fn unknown_mutant(name: &str) -> String {
    let names: Vec<&str> = Mutant::ALL.iter().map(|it| it.name()).collect();
    format!("there is no mutant {name:?}, only {}", names.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Arguments, String> {
        Arguments::parse(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[track_caller]
    fn check(line: &str, seeds: Seeds, mutant: Option<Mutant>, all_mutants: bool) {
        let expected = Arguments { world: None, seeds, mutant, all_mutants, log: false };
        assert_eq!(parse(line), Ok(expected));
    }

    #[track_caller]
    fn check_refused(line: &str, part: &str) {
        let sentence = parse(line).expect_err("this should be refused");
        assert!(sentence.contains(part), "{sentence}");
    }

    #[test]
    fn reads_what_the_help_names() {
        check("", Seeds::Span(0..1000), None, false);
        check("--seed 7", Seeds::One(7), None, false);
        check("--seeds 3..9 --mutants", Seeds::Span(3..9), None, true);
        check("--minutes 2", Seeds::Fresh(Duration::from_secs(120)), None, false);
        let mutant = Some(Mutant::StoreIgnoresEtag);
        check("--seed 7 --mutant store-ignores-etag", Seeds::One(7), mutant, false);
        check("--help", Seeds::Help, None, false);
    }

    #[test]
    fn without_a_world_all_are_simulated() {
        let worlds = |line| parse(line).map(|it| it.worlds());
        assert_eq!(worlds("--seed 7"), Ok(World::ALL.to_vec()));
        assert_eq!(worlds("--world delivery"), Ok(vec![World::Delivery]));
        assert_eq!(worlds("--mutant id-per-attempt"), Ok(vec![World::Delivery]));
    }

    #[test]
    fn refuses_what_it_does_not_know() {
        check_refused("--seed", "--seed needs a value");
        check_refused("--seed x", "not \"x\"");
        check_refused("--seeds 9..3", "A..B");
        check_refused("--mutant none", "there is no mutant \"none\"");
        check_refused("--world none", "there is no world \"none\"");
        check_refused("--world delivery --mutant store-ignores-etag", "the other world");
        check_refused("--fast", "\"--fast\" is unknown");
    }
}
