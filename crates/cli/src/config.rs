//! What the program is told: a file, then the environment, then the command line; later ones win.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::failure::{Failure, Result};

/// The file that is read when none is named, if it is there.
pub(crate) const DEFAULT_FILE: &str = "millstream.toml";

/// All settings, with their defaults.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Config {
    /// Where everything is kept: `file:` and a directory.
    pub(crate) store: String,
    /// Where health, readiness and metrics are served.
    pub(crate) listen: SocketAddr,
    /// The relay from the data container to the broker.
    pub(crate) relay: RelayConfig,
    /// Further destinations of events.
    pub(crate) webhooks: Vec<WebhookConfig>,
    /// `text` or `json`.
    pub(crate) log_format: LogFormat,
    /// What is logged, such as `info` or `warn,millstream_processor=debug`.
    pub(crate) log: String,
}

/// How events reach the broker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct RelayConfig {
    /// The topic events are sent to.
    pub(crate) topic: String,
    /// The subscriptions that are there from the first start on. Without any, events reach nobody.
    pub(crate) subscriptions: Vec<String>,
    /// The `source` of CloudEvents.
    pub(crate) source: String,
    /// Bodies without CloudEvents attributes.
    pub(crate) raw: bool,
    /// How many leases each range gets.
    pub(crate) leases_per_range: u32,
}

/// A destination of events over HTTP.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct WebhookConfig {
    /// Names its relay.
    pub(crate) name: String,
    /// Where to post.
    pub(crate) url: String,
    /// The name of the environment variable with the secret; secrets do not belong in files.
    #[serde(default)]
    pub(crate) secret_env: Option<String>,
    /// Every document instead of events only.
    #[serde(default)]
    pub(crate) all_documents: bool,
}

/// How log lines look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// For machines.
    Json,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            store: "file:./data".to_owned(),
            listen: SocketAddr::from(([127, 0, 0, 1], 8081)),
            relay: RelayConfig::default(),
            webhooks: Vec::new(),
            log_format: LogFormat::Text,
            log: "warn".to_owned(),
        }
    }
}

impl Default for RelayConfig {
    fn default() -> Self {
        Self {
            topic: "events".to_owned(),
            subscriptions: vec!["default".to_owned()],
            source: "millstream".to_owned(),
            raw: false,
            leases_per_range: 4,
        }
    }
}

/// What the command line says; nothing means that the file or the environment decides.
#[derive(Clone, Debug, Default)]
pub(crate) struct Overrides {
    pub(crate) file: Option<PathBuf>,
    pub(crate) store: Option<String>,
    pub(crate) listen: Option<SocketAddr>,
    pub(crate) log: Option<String>,
}

impl Config {
    /// Reads file, environment and command line, in that order.
    pub(crate) fn load(
        overrides: &Overrides,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Self> {
        let mut config = match Self::file(overrides, &variable) {
            Some(path) => Self::read(&path)?,
            None => Self::default(),
        };
        if let Some(store) = overrides.store.clone().or_else(|| variable("MILLSTREAM_STORE")) {
            config.store = store;
        }
        if let Some(log) = overrides.log.clone().or_else(|| variable("MILLSTREAM_LOG")) {
            config.log = log;
        }
        if let Some(listen) = variable("MILLSTREAM_LISTEN") {
            config.listen = listen.parse().map_err(|_| {
                Failure::usage(format!(
                    "MILLSTREAM_LISTEN is {listen:?}: write an address and a port, such as \
                     127.0.0.1:8081"
                ))
            })?;
        }
        if let Some(listen) = overrides.listen {
            config.listen = listen;
        }
        config.check()?;
        Ok(config)
    }

    /// The directory of the store.
    pub(crate) fn directory(&self) -> Result<PathBuf> {
        match self.store.strip_prefix("file:") {
            Some(path) if !path.is_empty() => Ok(PathBuf::from(path)),
            _ => Err(Failure::usage(format!(
                "store is {:?}: this version keeps everything in a directory; write file: and its \
                 path, such as file:./data",
                self.store
            ))),
        }
    }

    fn file(overrides: &Overrides, variable: &impl Fn(&str) -> Option<String>) -> Option<PathBuf> {
        let named =
            overrides.file.clone().or_else(|| variable("MILLSTREAM_CONFIG").map(PathBuf::from));
        match named {
            Some(path) => Some(path),
            None => Path::new(DEFAULT_FILE).exists().then(|| PathBuf::from(DEFAULT_FILE)),
        }
    }

    fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path).map_err(|error| {
            Failure::usage(format!("could not read {}: {error}", path.display()))
        })?;
        toml::from_str(&text)
            .map_err(|error| Failure::usage(format!("{} is wrong: {error}", path.display())))
    }

    /// Refuses what cannot work, with a sentence that says what to write instead.
    fn check(&self) -> Result<()> {
        self.directory()?;
        if self.relay.topic.is_empty() {
            return Err(Failure::usage("relay.topic is empty: name the topic events go to"));
        }
        if !(1..=64).contains(&self.relay.leases_per_range) {
            return Err(Failure::usage("relay.leases_per_range must be between 1 and 64"));
        }
        let mut names: Vec<&str> = self.webhooks.iter().map(|it| it.name.as_str()).collect();
        names.sort_unstable();
        if let Some(twice) = names.windows(2).find(|it| it[0] == it[1]) {
            let name = twice[0];
            return Err(Failure::usage(format!("two webhooks are called {name:?}: rename one")));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nothing(_: &str) -> Option<String> {
        None
    }

    fn written(text: &str) -> (tempfile::TempDir, Overrides) {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("config.toml");
        std::fs::write(&file, text).unwrap();
        (directory, Overrides { file: Some(file), ..Overrides::default() })
    }

    #[test]
    fn the_command_line_beats_the_environment_beats_the_file() {
        let (_directory, mut overrides) = written("store = \"file:a\"\nlog = \"info\"");
        let config = Config::load(&overrides, nothing).unwrap();
        assert_eq!((config.store.as_str(), config.log.as_str()), ("file:a", "info"));
        let environment = |name: &str| (name == "MILLSTREAM_STORE").then(|| "file:b".to_owned());
        assert_eq!(Config::load(&overrides, environment).unwrap().store, "file:b");
        overrides.store = Some("file:c".to_owned());
        assert_eq!(Config::load(&overrides, environment).unwrap().store, "file:c");
    }

    #[track_caller]
    fn check_refused(text: &str, expected: &str) {
        let (_directory, overrides) = written(text);
        let failure = Config::load(&overrides, nothing).unwrap_err().to_string();
        assert!(failure.contains(expected), "{failure}");
    }

    #[test]
    fn what_cannot_work_is_refused_with_a_sentence() {
        check_refused("store = \"nats://here\"", "write file: and its path");
        check_refused("stroe = \"file:a\"", "unknown field");
        check_refused("[relay]\ntopic = \"\"", "name the topic");
        check_refused("[relay]\nleases_per_range = 0", "between 1 and 64");
        let twice = "[[webhooks]]\nname = \"a\"\nurl = \"http://a\"\n".repeat(2);
        check_refused(&twice, "rename one");
    }
}
