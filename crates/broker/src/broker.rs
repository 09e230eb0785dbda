use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use millstream_core::{Clock, Container, Error, ErrorKind, IdSource, Result, TimeToLive};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::cache::Cache;
use crate::ledger::{Ledger, LedgerSetup};
use crate::load;
use crate::log::QUEUE_OUTLET;
use crate::options::BrokerOptions;
use crate::outlet::Outlet;
use crate::path::EntityPath;
use crate::service::BrokerService;
use crate::shared::{Agenda, EntityCell, EntityState, Shared};
use crate::stored::{self, CATALOG, Definition};

/// Queues and topics in a container. A cheap clone.
///
/// Names of queues, topics, subscriptions and rules are the same in upper and lower case. Whatever
/// a method waits for happens only while the [`BrokerService`] runs.
#[derive(Clone, Debug)]
pub struct Broker {
    pub(crate) shared: Arc<Shared>,
}

/// Where messages are received from.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    pub(crate) cell: Arc<EntityCell>,
    pub(crate) outlet: u16,
    pub(crate) dead_letters: bool,
}

impl Broker {
    /// Opens the broker that lives in `container`, or begins one.
    ///
    /// The container is divided by `/partitionKey` and belongs to the broker alone. Only the
    /// broker that was opened last can write to it; an earlier one refuses everything from its
    /// next commit on. Opening reads all messages that are not done.
    ///
    /// # Errors
    ///
    /// `Invalid` if the options are out of bounds or the container lets items expire by itself;
    /// those of the store.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing that the next call would not change.
    pub async fn open(
        container: &Container,
        options: BrokerOptions,
        clock: Arc<dyn Clock>,
        ids: Arc<dyn IdSource>,
    ) -> Result<(Self, BrokerService)> {
        options.check()?;
        if let Some(TimeToLive::Seconds(_)) = container.info.settings.default_ttl {
            let reason = "its container has a default TTL, so messages would go away unseen";
            return Err(Error::invalid("open the broker", reason));
        }
        let owner = ids.next_id().to_string();
        let documents = Arc::clone(&container.documents);
        let patience = options.storage_patience;
        let flaw = options.flaw;
        let setup = LedgerSetup { documents, clock, owner, patience, flaw };
        let mut catalog = Ledger::open(&setup, CATALOG).await?;
        let mut entities = BTreeMap::new();
        let mut agenda = Agenda::default();
        for document in load::catalog(&setup.documents).await? {
            if document.is_gone {
                load::remove(&setup.documents, &document.partition()).await?;
                let next = catalog.next_sequence();
                catalog.commit(vec![stored::delete(&document.id)], next).await?;
                continue;
            }
            let name = document.name.to_ascii_lowercase();
            let cell = load::entity(&setup, document).await?;
            agenda.cells.insert(cell.generation, Arc::clone(&cell));
            entities.insert(name, cell);
        }
        // Meanwhile another broker may have been opened and have changed what the entities are. Who
        // does not have the catalog any more must not work on what it read from it.
        let next = catalog.next_sequence();
        catalog.commit(Vec::new(), next).await?;
        let cells: Vec<_> = agenda.cells.values().cloned().collect();
        let shared = Arc::new(Shared {
            cache: Mutex::new(Cache::new(options.cache_bytes_max)),
            options,
            setup,
            token_prefix: ids.next_id().as_u64_pair().1,
            entities: Mutex::new(entities),
            agenda: Mutex::new(agenda),
            work: Notify::new(),
            stopping: CancellationToken::new(),
            closed: CancellationToken::new(),
            catalog: tokio::sync::Mutex::new(catalog),
        });
        for cell in cells {
            // Puts what is left to do, and when, on the agenda.
            shared.with_any(&cell, |state, _| state.look_at_room(shared.options.messages_max));
        }
        Ok((Self { shared: Arc::clone(&shared) }, BrokerService { shared }))
    }

    /// Finds what a path names.
    pub(crate) fn target(&self, path: &str) -> Result<Target> {
        let parsed: EntityPath = path.parse()?;
        let cell = self.shared.cell(parsed.entity())?;
        let outlet = outlet_number(&cell.state(), &parsed)?;
        Ok(Target { cell, outlet, dead_letters: parsed.is_dead_letters() })
    }

    /// Whether a path names something with sessions; dead letters have none.
    pub(crate) fn has_sessions(target: &Target) -> bool {
        let state = target.cell.state();
        let outlet = state.entity.outlets.get(&target.outlet);
        !target.dead_letters && outlet.is_some_and(|it| it.settings.requires_session)
    }

    /// The name of a lock for the outside.
    pub(crate) fn token(&self, outlet: u16, lock: u64) -> String {
        let low = (u64::from(outlet) << 48) | lock;
        Uuid::from_u64_pair(self.shared.token_prefix, low).to_string()
    }

    /// The lock of that name; none if it is not from this broker and outlet.
    pub(crate) fn lock_of(&self, outlet: u16, token: &str) -> Option<u64> {
        let (high, low) = Uuid::parse_str(token).ok()?.as_u64_pair();
        let is_mine = high == self.shared.token_prefix && low >> 48 == u64::from(outlet);
        is_mine.then_some(low & ((1 << 48) - 1))
    }
}

impl EntityState {
    /// An outlet that is there; it may have been removed in between.
    pub(crate) fn outlet(&mut self, number: u16) -> Result<(&mut Outlet, &mut crate::log::Log)> {
        let name = &self.document.name;
        let entity = &mut self.entity;
        let outlet = entity.outlets.get_mut(&number).ok_or_else(|| {
            let error = Error::new(ErrorKind::NotFound, format!("receive from {name:?}"));
            error.because("the subscription was removed")
        })?;
        Ok((outlet, &mut entity.log))
    }
}

fn outlet_number(state: &EntityState, path: &EntityPath) -> Result<u16> {
    match (&state.document.definition, path.subscription()) {
        (Definition::Queue(_), None) => Ok(QUEUE_OUTLET),
        (Definition::Queue(_), Some(_)) => {
            Err(Error::invalid(format!("find \"{path}\""), "a queue has no subscriptions"))
        }
        (Definition::Topic { .. }, None) => {
            let reason = "messages of a topic are received from its subscriptions";
            Err(Error::invalid(format!("find \"{path}\""), reason))
        }
        (Definition::Topic { subscriptions, .. }, Some(name)) => {
            let found = subscriptions.iter().find(|it| it.name.eq_ignore_ascii_case(name));
            found.map(|it| it.number).ok_or_else(|| {
                let error = Error::new(ErrorKind::NotFound, format!("find \"{path}\""));
                error.because("the topic has no subscription of this name")
            })
        }
    }
}
