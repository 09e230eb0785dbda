use std::{ffi::OsString, path::PathBuf, str::FromStr};

use millstream_crash::{Error, Random, Result, Rules};

pub(crate) const HELP: &str = "\
Kills a store under load and cuts its power, and checks what is left.

usage: millstream-crash COMMAND [OPTION VALUE]...

commands
  crash     kill a loaded process with SIGKILL at random moments, reopen, check
  power     record a load, cut the power at every moment of it, reopen, check
  all       both, with the four figures at the end
  show      print the steps of a recording that was kept
  mutants   plant each known bug and fail unless it is caught

options
  --rounds N        kills (default 100)
  --operations N    commits of the recorded load (default 200)
  --deaths N        how often the recorded process dies on the way (default 2)
  --torn N          random choices of what survives, per moment (default 2)
  --rules NAME      strict: POSIX (default); journaled: as ext4 and xfs keep names
  --writers N       writers at the same time (default 4)
  --seed N          same choices again (default: a fresh one, printed)
  --subject NAME    store (default), or naive to try the machinery itself
  --mutant NAME     plant a bug
  --keep FILE       power: keep the recording here if something is found
  --replay FILE     power: use a kept recording instead of a new one
  --scratch DIR     where stores live (default: memory, if the system offers a directory there)

A run that finds something says so and ends with 1.
";

/// Everything the command line can say.
#[derive(Debug)]
pub(crate) struct Arguments {
    pub(crate) command: String,
    pub(crate) rounds: u64,
    pub(crate) operations: u64,
    pub(crate) deaths: u32,
    pub(crate) torn: u32,
    pub(crate) rules: Rules,
    pub(crate) writers: u32,
    pub(crate) seed: u64,
    pub(crate) subject: String,
    pub(crate) mutant: Option<String>,
    pub(crate) keep: Option<PathBuf>,
    pub(crate) replay: Option<PathBuf>,
    pub(crate) scratch: PathBuf,
    // What only a child of this program is told.
    pub(crate) directory: PathBuf,
    pub(crate) marks: PathBuf,
    pub(crate) exit_after: Option<u64>,
}

impl Arguments {
    pub(crate) fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Self> {
        let mut words = arguments.into_iter().map(|it| {
            it.into_string().map_err(|_| Error::new("read the arguments: one is not text"))
        });
        let memory = PathBuf::from("/dev/shm");
        let mut parsed = Self {
            command: words.next().transpose()?.unwrap_or_else(|| "--help".to_owned()),
            rounds: 100,
            operations: 200,
            deaths: 2,
            torn: 2,
            rules: Rules::Strict,
            writers: 4,
            seed: Random::fresh_seed(),
            subject: "store".to_owned(),
            mutant: None,
            keep: None,
            replay: None,
            scratch: if memory.is_dir() { memory } else { std::env::temp_dir() },
            directory: PathBuf::new(),
            marks: PathBuf::new(),
            exit_after: None,
        };
        while let Some(name) = words.next().transpose()? {
            if name == "--help" {
                parsed.command = name;
                return Ok(parsed);
            }
            let value = words
                .next()
                .transpose()?
                .ok_or_else(|| Error::new(format!("read the arguments: {name} needs a value")))?;
            parsed.set(&name, value)?;
        }
        Ok(parsed)
    }

    fn set(&mut self, name: &str, value: String) -> Result<()> {
        match name {
            "--rounds" => self.rounds = number(name, &value)?,
            "--operations" | "--commits" => self.operations = number(name, &value)?,
            "--deaths" => self.deaths = number(name, &value)?,
            "--torn" => self.torn = number(name, &value)?,
            "--rules" => {
                self.rules = match value.as_str() {
                    "strict" => Rules::Strict,
                    "journaled" => Rules::Journaled,
                    other => return Err(Error::new(format!("find rules \"{other}\""))),
                };
            }
            "--writers" => self.writers = number(name, &value)?,
            "--seed" => self.seed = number(name, &value)?,
            "--subject" => self.subject = value,
            "--mutant" => self.mutant = Some(value),
            "--keep" => self.keep = Some(value.into()),
            "--replay" => self.replay = Some(value.into()),
            "--scratch" => self.scratch = value.into(),
            "--directory" => self.directory = value.into(),
            "--marks" => self.marks = value.into(),
            "--exit-after" => self.exit_after = Some(number(name, &value)?),
            _ => {
                return Err(Error::new(format!(
                    "read the arguments: {name} is unknown, see --help"
                )));
            }
        }
        Ok(())
    }
}

fn number<N: FromStr>(name: &str, value: &str) -> Result<N> {
    value.parse().map_err(|_| {
        Error::new(format!("read the arguments: {name} needs a number, not \"{value}\""))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Arguments> {
        Arguments::parse(line.split_whitespace().map(OsString::from))
    }

    #[track_caller]
    fn check_refused(line: &str, part: &str) {
        let error = parse(line).expect_err("this should be refused");
        assert!(error.report().contains(part), "{}", error.report());
    }

    #[test]
    fn reads_what_the_help_names() {
        let parsed = parse("power --seed 7 --operations 30 --rules journaled --mutant x").unwrap();
        assert_eq!((parsed.seed, parsed.operations, parsed.rules), (7, 30, Rules::Journaled));
        assert_eq!(parsed.mutant.as_deref(), Some("x"));
        assert_eq!(parse("").unwrap().command, "--help");
        assert_eq!(parse("crash --help").unwrap().command, "--help");
        for word in HELP.split_whitespace().filter(|it| it.starts_with("--") && it.len() < 14) {
            let word = word.trim_end_matches(';');
            assert!(
                parse(&format!("power {word} strict")).is_ok()
                    || parse(&format!("power {word} 1")).is_ok(),
                "{word}"
            );
        }
    }

    #[test]
    fn refuses_what_it_does_not_know() {
        check_refused("crash --rounds", "--rounds needs a value");
        check_refused("crash --rounds many", "not \"many\"");
        check_refused("crash --round 1", "--round is unknown");
        check_refused("power --rules none", "find rules \"none\"");
    }
}
