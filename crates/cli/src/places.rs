//! Where a store and a broker are: chosen by URL.

use std::path::PathBuf;
use std::sync::Arc;

use millstream_backend_cosmos::{Address, Cosmos, CosmosOptions};
use millstream_backend_nats::{Connection, ConnectionOptions, NatsStore};
use millstream_core::{Containers, SystemClock};
use millstream_store::Store;

use crate::failure::{Failure, Result};

/// The key of an account whose address has none.
const COSMOS_KEY: &str = "MILLSTREAM_COSMOS_KEY";

/// A place where things are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// A directory of this machine, for one process at a time.
    Directory(PathBuf),
    /// NATS servers, for any number of processes.
    Nats(String),
    /// An account of Azure Cosmos DB, or another Millstream.
    Cosmos(Address),
}

/// An open store.
#[derive(Clone)]
pub(crate) struct OpenStore {
    pub(crate) containers: Arc<dyn Containers>,
    /// Where it is in a directory: this process is the only one that has it, and it has figures.
    pub(crate) directory: Option<Store>,
    /// Where it is on NATS: it needs somebody who removes what has expired.
    pub(crate) nats: Option<NatsStore>,
}

impl Place {
    /// Reads `file:./data`, `nats://…` or `cosmos+https://…`; `what` is what the person calls it.
    pub(crate) fn parse(what: &str, text: &str) -> Result<Self> {
        if let Some(path) = text.strip_prefix("file:").filter(|it| !it.is_empty()) {
            return Ok(Self::Directory(PathBuf::from(path)));
        }
        if is_nats(text) {
            ConnectionOptions::parse(text)
                .map_err(|error| Failure::usage(format!("{what} is wrong: {}", error.report())))?;
            return Ok(Self::Nats(text.to_owned()));
        }
        if text.starts_with("cosmos+") {
            let key = std::env::var(COSMOS_KEY).ok().filter(|it| !it.is_empty());
            let address = Address::parse(text, key.as_deref())
                .map_err(|error| Failure::usage(format!("{what} is wrong: {}", error.report())))?;
            return Ok(Self::Cosmos(address));
        }
        Err(Failure::usage(format!(
            "{what} is {text:?}: write file: and a directory, such as file:./data, NATS servers, \
             such as nats://localhost:4222, or an account of Cosmos DB, such as \
             cosmos+http://localhost:8081"
        )))
    }

    /// The place without anything secret.
    pub(crate) fn shown(&self) -> String {
        match self {
            Self::Directory(path) => format!("file:{}", path.display()),
            Self::Nats(url) => match ConnectionOptions::parse(url) {
                Ok(options) => options.to_string(),
                Err(_) => "nats://".to_owned(),
            },
            Self::Cosmos(address) => format!("cosmos+{}", address.endpoint()),
        }
    }

    /// Opens the store there.
    pub(crate) async fn open(&self) -> Result<OpenStore> {
        match self {
            Self::Directory(path) => {
                let store = Store::open(path)?;
                let containers = Arc::new(store.clone());
                Ok(OpenStore { containers, directory: Some(store), nats: None })
            }
            Self::Nats(url) => {
                let store = NatsStore::open(connect(url).await?).await?;
                let containers = Arc::new(store.clone());
                Ok(OpenStore { containers, directory: None, nats: Some(store) })
            }
            Self::Cosmos(address) => {
                let clock = Arc::new(SystemClock::default());
                let store = Cosmos::connect(address, clock, CosmosOptions::default()).await?;
                Ok(OpenStore { containers: Arc::new(store), directory: None, nats: None })
            }
        }
    }
}

/// Whether the text names NATS servers.
pub(crate) fn is_nats(text: &str) -> bool {
    ["nats://", "tls://"].iter().any(|it| text.starts_with(it))
}

/// Connects to NATS servers.
pub(crate) async fn connect(url: &str) -> Result<Connection> {
    let options = ConnectionOptions::parse(url).map_err(|error| Failure::usage(error.report()))?;
    Ok(Connection::open(options).await?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_shows_no_secret() {
        let place = Place::parse("store", "nats://ada:secret@one:4222,two:4222").unwrap();
        assert_eq!(place.shown(), "nats://one:4222,two:4222");
        assert_eq!(Place::parse("store", "file:./d").unwrap().shown(), "file:./d");
        let place = Place::parse("store", "cosmos+https://:secret@localhost:8081").unwrap();
        assert_eq!(place.shown(), "cosmos+https://localhost:8081/");
    }

    #[test]
    fn what_is_no_place_is_refused_with_a_sentence() {
        for text in ["", "data", "file:", "redis://here", "nats://"] {
            let failure = Place::parse("store", text).unwrap_err();
            assert_eq!(failure.code(), 2, "{text}: {failure}");
        }
    }
}
