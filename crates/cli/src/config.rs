//! What the program is told: a file, then the environment, then the command line; later ones win.

mod relay;
mod subscriptions;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

pub(crate) use crate::config::relay::RelayConfig;
pub(crate) use crate::config::subscriptions::{SubscriptionConfig, differences};
use crate::failure::{Failure, Result};
use crate::places::Place;
use crate::traces;

/// Most webhooks: sixteen readers can hold the events of a container, and one is the relay.
const WEBHOOKS_MAX: usize = 15;

/// The file that is read when none is named, if it is there.
pub(crate) const DEFAULT_FILE: &str = "millstream.toml";

/// All settings, with their defaults.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Config {
    /// Where everything is kept: `file:` and a directory, or NATS servers.
    pub(crate) store: String,
    /// Where messages are: NATS servers; where the store is, if it is empty.
    pub(crate) broker: String,
    /// How many ranges a new data container has. A store on NATS keeps them for ever.
    pub(crate) ranges: u32,
    /// Where everything is served: the Cosmos DB protocol, health, readiness and metrics.
    pub(crate) listen: SocketAddr,
    /// The Cosmos DB protocol.
    pub(crate) gateway: GatewayConfig,
    /// The relay from the data container to the broker.
    pub(crate) relay: RelayConfig,
    /// Further destinations of events.
    pub(crate) webhooks: Vec<WebhookConfig>,
    /// Where traces go.
    pub(crate) traces: TracesConfig,
    /// `text` or `json`.
    pub(crate) log_format: LogFormat,
    /// What is logged, such as `info` or `warn,millstream_processor=debug`.
    pub(crate) log: String,
}

/// How the Cosmos DB protocol is served.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct GatewayConfig {
    /// The name of the environment variable with the account key in base64; where it is not set,
    /// the public key of the emulators holds. Secrets do not belong in files.
    pub(crate) key_env: String,
    /// The same for a key that may only read; where it is not set, there is none.
    pub(crate) read_only_key_env: String,
    /// Speaks TLS, too, on the same port.
    pub(crate) tls: bool,
    /// A certificate chain in PEM; without it one is made at the first start and kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) certificate: Option<PathBuf>,
    /// The key of that certificate in PEM.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) certificate_key: Option<PathBuf>,
    /// Names of this machine, besides localhost: in the certificate that is made, and by which
    /// requests with the public key may call it.
    pub(crate) names: Vec<String>,
    /// Refuses requests beyond the throughput of a container with 429.
    pub(crate) enforce_throughput: bool,
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

/// Where traces go, if anywhere.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct TracesConfig {
    /// The address of a collector for OTLP over HTTP, such as `http://127.0.0.1:4318`. Without one
    /// nothing is traced.
    pub(crate) endpoint: Option<String>,
    /// What the collector knows this program as.
    pub(crate) service: String,
    /// Further headers of each request, `name=value` and commas between. Only from the environment:
    /// secrets do not belong in files.
    #[serde(skip)]
    pub(crate) headers: String,
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
            broker: String::new(),
            ranges: 1,
            listen: SocketAddr::from(([127, 0, 0, 1], 8081)),
            gateway: GatewayConfig::default(),
            relay: RelayConfig::default(),
            webhooks: Vec::new(),
            traces: TracesConfig::default(),
            log_format: LogFormat::Text,
            log: "warn".to_owned(),
        }
    }
}

impl Default for GatewayConfig {
    fn default() -> Self {
        Self {
            key_env: "MILLSTREAM_ACCOUNT_KEY".to_owned(),
            read_only_key_env: "MILLSTREAM_READ_ONLY_KEY".to_owned(),
            tls: true,
            certificate: None,
            certificate_key: None,
            names: Vec::new(),
            enforce_throughput: false,
        }
    }
}

impl Default for TracesConfig {
    fn default() -> Self {
        Self { endpoint: None, service: "millstream".to_owned(), headers: String::new() }
    }
}

impl TracesConfig {
    /// Takes over what the variables say that every program with OpenTelemetry knows.
    fn take_environment(&mut self, variable: &impl Fn(&str) -> Option<String>) {
        let variable = |name: &str| variable(name).filter(|it| !it.is_empty());
        let endpoint = variable("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
            .or_else(|| variable("OTEL_EXPORTER_OTLP_ENDPOINT"));
        self.endpoint = endpoint.or(self.endpoint.take()).filter(|it| !it.is_empty());
        if let Some(service) = variable("OTEL_SERVICE_NAME") {
            self.service = service;
        }
        let headers = variable("OTEL_EXPORTER_OTLP_TRACES_HEADERS")
            .or_else(|| variable("OTEL_EXPORTER_OTLP_HEADERS"));
        self.headers = headers.unwrap_or_default();
    }
}

/// What the command line says; nothing means that the file or the environment decides.
#[derive(Clone, Debug, Default)]
pub(crate) struct Overrides {
    pub(crate) file: Option<PathBuf>,
    pub(crate) store: Option<String>,
    pub(crate) broker: Option<String>,
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
        if let Some(broker) = overrides.broker.clone().or_else(|| variable("MILLSTREAM_BROKER")) {
            config.broker = broker;
        }
        if let Some(log) = overrides.log.clone().or_else(|| variable("MILLSTREAM_LOG")) {
            config.log = log;
        }
        config.traces.take_environment(&variable);
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

    /// Where the store is.
    pub(crate) fn store_place(&self) -> Result<Place> {
        Place::parse("store", &self.store)
    }

    /// The NATS servers of the broker; none if messages are in the store itself.
    pub(crate) fn broker_url(&self) -> Result<Option<String>> {
        if self.broker.is_empty() {
            return match self.store_place()? {
                Place::Directory(_) => Ok(None),
                Place::Nats(url) => Ok(Some(url)),
                Place::Cosmos(_) => Err(Failure::usage(
                    "broker is missing: messages cannot be kept in an account of Cosmos DB, so \
                     name NATS servers, such as nats://localhost:4222",
                )),
            };
        }
        match Place::parse("broker", &self.broker)? {
            Place::Nats(url) => Ok(Some(url)),
            Place::Directory(_) => Err(Failure::usage(
                "broker is a directory: messages are in the store unless NATS servers are named, \
                 so leave it out",
            )),
            Place::Cosmos(_) => Err(Failure::usage(
                "broker is an account of Cosmos DB, which takes no messages: name NATS servers, \
                 such as nats://localhost:4222",
            )),
        }
    }

    /// The directory of the store; there is none on a network.
    pub(crate) fn directory(&self) -> Result<Option<PathBuf>> {
        Ok(match self.store_place()? {
            Place::Directory(path) => Some(path),
            Place::Nats(_) | Place::Cosmos(_) => None,
        })
    }

    /// The same with what was left out. On NATS receivers choose most of it.
    pub(crate) fn filled(&self) -> Result<Self> {
        let mut config = self.clone();
        config.store = self.store_place()?.shown();
        if !self.broker.is_empty() {
            config.broker = Place::parse("broker", &self.broker)?.shown();
        }
        for webhook in &mut config.webhooks {
            webhook.url = without_secrets(&webhook.url);
        }
        config.traces.endpoint = config.traces.endpoint.as_deref().map(without_secrets);
        if self.broker_url()?.is_none() {
            config.relay = self.relay.filled()?;
        } else {
            let sessions = Some(true);
            let names = config.relay.subscriptions.iter().map(|it| it.name.as_str());
            config.relay.subscriptions = names
                .map(|it| SubscriptionConfig { sessions, ..SubscriptionConfig::named(it) })
                .collect();
        }
        Ok(config)
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
        let is_on_nats = self.broker_url()?.is_some();
        if !(1..=1024).contains(&self.ranges) {
            return Err(Failure::usage("ranges must be between 1 and 1024"));
        }
        self.relay.check(is_on_nats)?;
        if self.gateway.certificate.is_some() != self.gateway.certificate_key.is_some() {
            return Err(Failure::usage(
                "gateway.certificate and gateway.certificate_key belong together: set both, or \
                 neither to have a certificate made",
            ));
        }
        traces::check(&self.traces)?;
        self.check_webhooks()
    }

    fn check_webhooks(&self) -> Result<()> {
        if WEBHOOKS_MAX < self.webhooks.len() {
            return Err(Failure::usage(format!("there are more than {WEBHOOKS_MAX} webhooks")));
        }
        let is_plain = |it: char| it.is_ascii_alphanumeric() || ['-', '_', '.'].contains(&it);
        for WebhookConfig { name, .. } in &self.webhooks {
            if !(1..=64).contains(&name.len()) || !name.chars().all(is_plain) {
                return Err(Failure::usage(format!(
                    "a webhook is called {name:?}: write 1 to 64 letters, digits, '-', '_' or '.'"
                )));
            }
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

/// An address without user, password and query, which may be secret.
fn without_secrets(url: &str) -> String {
    let shown = url.split_once('?').map_or(url, |(before, _)| before);
    let Some((scheme, rest)) = shown.split_once("://") else { return shown.to_owned() };
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    format!("{scheme}://{host}{path}")
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

    #[test]
    fn what_topics_on_nats_do_not_have_is_refused_there_with_a_sentence() {
        let on_nats = |text: &str| format!("broker = \"nats://localhost\"\n{text}");
        let table = |line: &str| on_nats(&format!("[[relay.subscriptions]]\nname = \"a\"\n{line}"));
        let (_directory, overrides) = written(&table("sessions = true"));
        Config::load(&overrides, nothing).unwrap();
        let expected = "the subscription \"a\" has filter and ttl_seconds, which topics on NATS do \
                        not know: leave it out";
        check_refused(&table("filter = \"TRUE\"\nttl_seconds = 5"), expected);
        check_refused(&table("sessions = false"), "has sessions = false");
        check_refused(&on_nats("[relay]\nduplicate_window_seconds = 0"), "write at least 1");
        let long = "a".repeat(51);
        check_refused(&on_nats(&format!("[relay]\nsubscriptions = [{long:?}]")), "than 50 bytes");
    }

    #[test]
    fn traces_are_off_unless_the_file_or_the_environment_names_an_endpoint() {
        let config = Config::load(&written("").1, nothing).unwrap();
        assert_eq!(config.traces, TracesConfig::default());
        let (_directory, overrides) = written("[traces]\nendpoint = \"http://file\"");
        let found = Config::load(&overrides, nothing).unwrap().traces.endpoint;
        assert_eq!(found.as_deref(), Some("http://file"));
        let environment = |name: &str| match name {
            "OTEL_EXPORTER_OTLP_ENDPOINT" => Some("http://here".to_owned()),
            "OTEL_SERVICE_NAME" => Some("shop".to_owned()),
            "OTEL_EXPORTER_OTLP_HEADERS" => Some("a=b".to_owned()),
            _ => None,
        };
        let traces = Config::load(&overrides, environment).unwrap().traces;
        assert_eq!(traces.endpoint.as_deref(), Some("http://here"));
        assert_eq!((traces.service.as_str(), traces.headers.as_str()), ("shop", "a=b"));
    }

    #[test]
    fn settings_are_shown_without_secrets() {
        let text = "store = \"nats://ada:secret@here:4222\"\nbroker = \"nats://t0ken@there\"";
        let shown = Config::load(&written(text).1, nothing).unwrap().filled().unwrap();
        assert_eq!(shown.store, "nats://here:4222");
        assert!(!shown.broker.contains("t0ken"), "{}", shown.broker);
        for (url, expected) in [
            ("https://ada:secret@here:8443/hook?key=secret", "https://here:8443/hook"),
            ("http://here", "http://here"),
            ("http://here/a@b", "http://here/a@b"),
        ] {
            assert_eq!(without_secrets(url), expected);
        }
    }

    #[track_caller]
    fn check_refused(text: &str, expected: &str) {
        let (_directory, overrides) = written(text);
        let failure = Config::load(&overrides, nothing).unwrap_err().to_string();
        assert!(failure.contains(expected), "{failure}");
    }

    #[test]
    fn what_cannot_work_is_refused_with_a_sentence() {
        check_refused("store = \"redis://here\"", "write file: and a directory");
        check_refused("store = \"nats://\"", "store is wrong");
        check_refused("store = \"cosmos+http://localhost/db\"", "store is wrong");
        check_refused("store = \"cosmos+http://localhost\"", "broker is missing");
        check_refused("broker = \"cosmos+http://localhost\"", "takes no messages");
        check_refused("broker = \"file:a\"", "leave it out");
        check_refused("ranges = 0", "between 1 and 1024");
        check_refused("[[webhooks]]\nname = \"a:b\"\nurl = \"http://a\"", "1 to 64 letters");
        let many: String = (0..16)
            .map(|it| format!("[[webhooks]]\nname = \"a{it}\"\nurl = \"http://a\"\n"))
            .collect();
        check_refused(&many, "more than 15 webhooks");
        check_refused("stroe = \"file:a\"", "unknown field");
        check_refused("[relay]\ntopic = \"\"", "name the topic");
        check_refused("[traces]\nendpoint = \"here\"", "the address of a collector");
        check_refused("[relay]\nleases_per_range = 0", "between 1 and 64");
        check_refused("[relay]\ntopic = \"a b\"", "it must consist of letters");
        check_refused("[relay]\nsubscriptions = [\"a\", \"A\"]", "rename one");
        check_refused("[relay]\nsubscriptions = [\"a b\"]", "the subscription \"a b\"");
        check_refused("[relay]\nsubscriptions = [7]", "the name of a subscription, or a table");
        check_refused("[relay]\nsubscriptions = [{ filter = \"TRUE\" }]", "missing field `name`");
        check_refused("[[relay.subscriptions]]\nname = \"a\"\nfiler = \"x\"", "unknown field");
        let table = |line: &str| format!("[[relay.subscriptions]]\nname = \"a\"\n{line}");
        check_refused(&table("filter = \"a =\""), "expected a value at column 4");
        check_refused(&table("filter = \"sys.Lable = 'x'\""), "the subscription \"a\"");
        check_refused(&table("lock_seconds = 301"), "at most 5 minutes");
        check_refused(&table("deliveries_max = 0"), "between 1 and 2000");
        check_refused("[relay]\nduplicate_window_seconds = 604801", "at most 7 days");
        check_refused("[gateway]\ncertificate = \"a.pem\"", "belong together");
        let twice = "[[webhooks]]\nname = \"a\"\nurl = \"http://a\"\n".repeat(2);
        check_refused(&twice, "rename one");
    }
}
