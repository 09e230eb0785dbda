//! The entity of the proofs.

use millstream_outbox::{Coalescing, DomainEvent, Entity, Events, NewEvent};
use serde::{Deserialize, Serialize};

/// An entity that counts the events it raised.
#[derive(Debug, Serialize, Deserialize)]
pub struct Account {
    id: String,
    version: u64,
    #[serde(skip)]
    events: Events,
}

/// What an [`Account`] raises: its count at that time.
#[derive(Debug, Serialize, Deserialize)]
pub struct Counted {
    /// How many events there are with this one.
    pub version: u64,
}

impl Account {
    /// A new one, whose creation is its first event.
    #[must_use]
    pub fn new(id: &str) -> Self {
        Self { id: id.to_owned(), version: 1, events: Events::for_new() }
    }

    /// Raises one more event.
    pub fn count(&mut self) {
        self.version += 1;
        self.events.raise(Counted { version: self.version });
    }

    /// How many events it has raised.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.version
    }
}

impl DomainEvent for Counted {
    fn action(&self) -> &'static str {
        "Counted"
    }
}

impl Entity for Account {
    const TYPE: &'static str = "account";
    const COALESCING: Coalescing = Coalescing::KeepAll;

    fn id(&self) -> &str {
        &self.id
    }

    fn events(&self) -> &Events {
        &self.events
    }

    fn created_event(&self) -> Option<NewEvent> {
        Some(Counted { version: self.version }.into())
    }
}
