use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use millstream_crash::{Error, Random, Result};
use millstream_prove::{FleetPart, Mutant, Part, Phase, StoreKind};

pub(crate) const HELP: &str = "\
Kills a service with its relay, a broker and a consumer over and over, and counts what arrives.

usage: millstream-prove [fleet] [OPTION VALUE]...

With `fleet` it is another proof: two gateways that clients write through and four processors, all
on NATS servers (nats-cluster unless --store says nats), of which any two are killed at a time.
Every second time one of the two is one of three servers.

  --rounds N     kills with SIGKILL (default 60); a few more, to bring a directory to its end
  --minutes M    go on for so long instead
  --seed N       same choices again (default: a fresh one, printed)
  --life MILLIS  longest time between two kills (default 800; 4000 in a fleet)
  --mutant NAME  plant a bug: acknowledge-early, no-inbox, reversed, settle-first
  --store KIND   directory (default), nats (one server) or nats-cluster (three), which it starts
  --servers HOW  die or live: whether a fleet kills servers, too (default: if there are three)
  --scratch DIR  where stores live (default: memory, if the system offers a directory there)

A run that finds something says so and ends with 1.
";

/// A lease of a processor has to end before another one takes over.
const FLEET_LIFE_MAX: Duration = Duration::from_secs(4);

/// Everything the command line can say.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Arguments {
    pub(crate) command: Command,
    pub(crate) rounds: u64,
    pub(crate) duration: Option<Duration>,
    pub(crate) seed: u64,
    pub(crate) life_max: Duration,
    pub(crate) mutant: Option<Mutant>,
    pub(crate) scratch: PathBuf,
    pub(crate) store: StoreKind,
    pub(crate) kills_servers: Option<bool>,
    // What only a process is told that is to be killed.
    pub(crate) directory: PathBuf,
    pub(crate) phase: Phase,
    pub(crate) detects_duplicates: bool,
    pub(crate) number: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Command {
    Help,
    Prove,
    Part(Part),
    Fleet,
    FleetPart(FleetPart),
}

impl Arguments {
    pub(crate) fn parse(words: impl IntoIterator<Item = String>) -> Result<Self> {
        let memory = PathBuf::from("/dev/shm");
        let mut parsed = Self {
            command: Command::Prove,
            rounds: 60,
            duration: None,
            seed: Random::fresh_seed(),
            life_max: Duration::from_millis(800),
            mutant: None,
            scratch: if memory.is_dir() { memory } else { std::env::temp_dir() },
            store: StoreKind::Directory,
            kills_servers: None,
            directory: PathBuf::new(),
            phase: Phase::Storm,
            detects_duplicates: false,
            number: 0,
        };
        let mut words = words.into_iter();
        while let Some(name) = words.next() {
            match name.as_str() {
                "help" | "--help" | "-h" => {
                    parsed.command = Command::Help;
                    return Ok(parsed);
                }
                "service" => parsed.command = Command::Part(Part::Service),
                "broker" => parsed.command = Command::Part(Part::Broker),
                "consumer" => parsed.command = Command::Part(Part::Consumer),
                "fleet" => {
                    parsed.command = Command::Fleet;
                    parsed.store = StoreKind::Nats { servers: 3 };
                    parsed.life_max = FLEET_LIFE_MAX;
                }
                "gateway" => parsed.command = Command::FleetPart(FleetPart::Gateway),
                "processor" => parsed.command = Command::FleetPart(FleetPart::Processor),
                "tell" => parsed.command = Command::Part(Part::Teller),
                _ => {
                    let value = words.next();
                    let value = value.ok_or_else(|| misused(format!("{name} needs a value")))?;
                    parsed.set(&name, &value)?;
                }
            }
        }
        Ok(parsed)
    }

    fn set(&mut self, name: &str, value: &str) -> Result<()> {
        match name {
            "--rounds" => self.rounds = number(name, value)?,
            "--minutes" => {
                let minutes: f64 = number(name, value)?;
                let duration = Duration::try_from_secs_f64(minutes * 60.0);
                self.duration = Some(duration.map_err(|_| no_number(name, value))?);
            }
            "--seed" => self.seed = number(name, value)?,
            "--life" => self.life_max = Duration::from_millis(number(name, value)?),
            "--mutant" => self.mutant = Some(value.parse()?),
            "--store" => {
                self.store = match value {
                    "directory" => StoreKind::Directory,
                    "nats" => StoreKind::Nats { servers: 1 },
                    "nats-cluster" => StoreKind::Nats { servers: 3 },
                    _ => return Err(misused(format!("there is no store {value:?}"))),
                };
            }
            "--servers" => {
                self.kills_servers = match value {
                    "die" => Some(true),
                    "live" => Some(false),
                    _ => {
                        return Err(misused(format!("servers die or live, they do not {value:?}")));
                    }
                };
            }
            "--scratch" => self.scratch = PathBuf::from(value),
            "--directory" => self.directory = PathBuf::from(value),
            "--phase" => {
                self.phase = match value {
                    "storm" => Phase::Storm,
                    "calm" => Phase::Calm,
                    _ => return Err(misused(format!("there is no phase {value:?}"))),
                };
            }
            "--number" => self.number = number(name, value)?,
            "--detects-duplicates" => self.detects_duplicates = value == "yes",
            _ => return Err(misused(format!("there is no option {name}"))),
        }
        Ok(())
    }
}

fn number<T: FromStr>(name: &str, value: &str) -> Result<T> {
    value.parse().map_err(|_| no_number(name, value))
}

fn no_number(name: &str, value: &str) -> Error {
    misused(format!("{name} needs a number, not {value:?}"))
}

fn misused(reason: String) -> Error {
    Error::new("read the arguments").because(reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Arguments> {
        Arguments::parse(line.split_whitespace().map(str::to_owned))
    }

    #[track_caller]
    fn check_refused(line: &str, reason: &str) {
        let report = parse(line).unwrap_err().report();
        assert_eq!(report, format!("could not read the arguments: {reason}"));
    }

    #[test]
    fn options_are_read_in_any_order() {
        let parsed = parse("--mutant reversed --minutes 0.5 --seed 7").unwrap();
        assert_eq!(parsed.mutant, Some(Mutant::Reversed));
        assert_eq!(parsed.duration, Some(Duration::from_secs(30)));
        assert_eq!((parsed.command, parsed.seed, parsed.rounds), (Command::Prove, 7, 60));
        assert_eq!(parse("--rounds 3 --help").unwrap().command, Command::Help);
        let parsed = parse("fleet --minutes 3 --servers live").unwrap();
        assert_eq!(parsed.kills_servers, Some(false));
        assert_eq!(parsed.command, Command::Fleet);
        assert_eq!(parsed.store, StoreKind::Nats { servers: 3 });
    }

    #[test]
    fn misuse_is_refused_with_a_sentence() {
        check_refused("--rounds", "--rounds needs a value");
        check_refused("--rounds x", "--rounds needs a number, not \"x\"");
        check_refused("--minutes -1", "--minutes needs a number, not \"-1\"");
        check_refused("--servers x", "servers die or live, they do not \"x\"");
        check_refused("--fast 1", "there is no option --fast");
    }
}
