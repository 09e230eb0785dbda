//! What the command line says.

use std::{
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt,
    path::PathBuf,
    time::Duration,
};

use tempfile::TempDir;

use crate::Result;

/// How long, how often and where to measure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Options {
    pub(crate) seconds: u64,
    pub(crate) rounds: usize,
    pub(crate) writers: Vec<usize>,
    pub(crate) long_seconds: u64,
    pub(crate) directory: PathBuf,
    pub(crate) postgres: bool,
    pub(crate) overwrite_floor: bool,
    pub(crate) percent: u64,
    items: Option<u64>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            seconds: 5,
            rounds: 3,
            writers: vec![1, 8, 64],
            long_seconds: 120,
            // On the disk of the project: a system's temporary directory is often in memory.
            directory: PathBuf::from("target/bench"),
            postgres: true,
            overwrite_floor: false,
            percent: 100,
            items: None,
        }
    }
}

impl Options {
    pub(crate) fn parse(arguments: impl IntoIterator<Item = String>) -> Result<Self> {
        let mut options = Self::default();
        let mut arguments = arguments.into_iter();
        while let Some(name) = arguments.next() {
            match name.as_str() {
                "--no-postgres" => {
                    options.postgres = false;
                    continue;
                }
                "--overwrite-floor" => {
                    options.overwrite_floor = true;
                    continue;
                }
                _ => (),
            }
            let value = arguments.next().ok_or_else(|| format!("{name} needs a value"))?;
            match name.as_str() {
                "--seconds" => options.seconds = number(&name, &value)?,
                "--rounds" => options.rounds = number(&name, &value)?,
                "--writers" => {
                    let counts = value.split(',').map(|it| number(&name, it));
                    options.writers = counts.collect::<Result<_>>()?;
                }
                "--long-seconds" => options.long_seconds = number(&name, &value)?,
                "--percent" => options.percent = number(&name, &value)?,
                "--items" => options.items = Some(number(&name, &value)?),
                "--directory" => options.directory = PathBuf::from(value),
                _ => return Err(format!("there is no option {name:?}").into()),
            }
        }
        if options.seconds == 0 || options.rounds == 0 || options.writers.contains(&0) {
            return Err("seconds, rounds and writers must be at least 1".into());
        }
        if options.items == Some(0) {
            return Err("there must be at least 1 item".into());
        }
        Ok(options)
    }

    /// The length of one round.
    pub(crate) fn duration(&self) -> Duration {
        Duration::from_secs(self.seconds)
    }

    /// How many items or events there are, unless told otherwise `default`.
    pub(crate) fn items_or(&self, default: u64) -> u64 {
        self.items.unwrap_or(default)
    }

    /// The part of `count` that was asked for, at least one.
    pub(crate) fn scaled(&self, count: u64) -> u64 {
        (count * self.percent / 100).max(1)
    }

    /// A new directory that is removed when dropped.
    pub(crate) fn fresh_directory(&self) -> Result<TempDir> {
        fs::create_dir_all(&self.directory)
            .map_err(|error| format!("could not create {:?}: {error}", self.directory))?;
        // The database server may run as another user and must be able to reach its part.
        let directory = tempfile::Builder::new()
            .prefix("run-")
            .permissions(Permissions::from_mode(0o755))
            .tempdir_in(&self.directory)?;
        Ok(directory)
    }
}

fn number<T: std::str::FromStr>(name: &str, value: &str) -> Result<T> {
    value.parse().map_err(|_| format!("{name} needs a number, not {value:?}").into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(line: &str, expected: std::result::Result<Options, &str>) {
        let parsed = Options::parse(line.split_whitespace().map(str::to_owned));
        assert_eq!(parsed.map_err(|it| it.to_string()), expected.map_err(str::to_owned));
    }

    #[test]
    fn options_are_read_in_any_order() {
        let default = Options::default();
        check("", Ok(default.clone()));
        check(
            "--writers 2,4 --no-postgres --seconds 1",
            Ok(Options { writers: vec![2, 4], postgres: false, seconds: 1, ..default }),
        );
        check("--seconds", Err("--seconds needs a value"));
        check("--seconds x", Err("--seconds needs a number, not \"x\""));
        check("--rounds 0", Err("seconds, rounds and writers must be at least 1"));
        check("--items 0", Err("there must be at least 1 item"));
        check("--fast 1", Err("there is no option \"--fast\""));
    }
}
