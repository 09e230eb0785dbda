//! The service: entities that count, each change an event.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use millstream_crash::{Attempt, Error, Random, Result};
use millstream_outbox::{Error as OutboxError, ErrorKind, Outbox, UnitOfWork};

use crate::account::Account;
use crate::patience::reaching;
use crate::say::say;
use crate::world::ServiceWorld;

/// Keys that commits go to; one of them is poisoned.
pub(crate) const KEYS: u64 = 1000;
/// The keys that get half of the commits, so that a key has many events in a short run.
const KEYS_BUSY: u64 = 20;
/// The key whose events are refused, a busy one.
pub(crate) const POISONED: &str = "key-7";
/// Tasks that commit, each to keys of its own.
const WRITERS: u64 = 8;
/// The longest pause of a writer between two commits.
const PAUSE_MICROS_MAX: u64 = 8_000;
/// How often a commit is begun anew.
const ATTEMPTS_MAX: u32 = 20;
/// Most events in one commit.
const EVENTS_MAX: u64 = 3;

/// Commits to an outbox, and tells what was acknowledged.
#[derive(Clone)]
pub(crate) struct Service {
    outbox: Outbox,
}

impl Service {
    pub(crate) fn new(world: &ServiceWorld) -> Result<Self> {
        let (clock, ids) = (Arc::clone(&world.clock), Arc::clone(&world.ids));
        let outbox = Outbox::new(&world.data, clock, ids).attempt(|| "open the outbox")?;
        Ok(Self { outbox })
    }

    /// Commits for ever.
    pub(crate) async fn run(&self, seed: u64) -> Result<()> {
        let writers = (0..WRITERS).map(|writer| async move {
            let mut random = Random::new(seed ^ (writer << 32));
            loop {
                let keys = if random.one_in(2) { KEYS_BUSY } else { KEYS };
                // Only writer n changes keys n, n + 8 and so on.
                let key = random.below(keys) / WRITERS * WRITERS + writer;
                self.commit(&format!("key-{key}"), 1 + random.below(EVENTS_MAX)).await?;
                let pause = random.below(PAUSE_MICROS_MAX);
                tokio::time::sleep(Duration::from_micros(pause)).await;
            }
        });
        // None of them ends but by an error.
        let outcomes: Vec<Result<()>> = join_all(writers).await;
        outcomes.into_iter().collect()
    }

    /// One commit of an entity with so many events.
    pub(crate) async fn commit(&self, key: &str, events: u64) -> Result<()> {
        for _ in 1..ATTEMPTS_MAX {
            let tried = reaching(async || self.try_commit(key, events).await).await;
            if tried.attempt(|| format!("commit {key}"))? {
                return Ok(());
            }
        }
        Err(Error::new(format!("commit {key}: somebody else changes it all the time")))
    }

    /// Whether it was committed; if not, somebody else has changed the entity. That is a service
    /// that was killed: what it sent over a network may arrive after its death.
    async fn try_commit(&self, key: &str, events: u64) -> Result<bool, OutboxError> {
        let mut unit = self.outbox.unit();
        let found = unit.read::<Account>(key, key).await?;
        let before = found.as_ref().map_or(0, |it| it.entity.version());
        match found {
            Some(mut found) => {
                for _ in 0..events {
                    found.entity.count();
                }
                unit.update(found.entity, found.etag)?;
            }
            None => unit.create(Account::new(key))?,
        }
        let Some(ids) = commit_surely(&mut unit).await? else { return Ok(false) };
        say(format!("ack {key} {} {}", before + 1, ids.join(" ")));
        Ok(true)
    }
}

/// Commits, again while nobody knows whether it happened, and returns the ids of the events; none
/// if the entity has changed since it was read.
async fn commit_surely(unit: &mut UnitOfWork) -> Result<Option<Vec<String>>, OutboxError> {
    loop {
        let error = match unit.commit().await {
            Ok(committed) => {
                let ids = committed.events.iter().map(|it| it.event.id.to_string());
                return Ok(Some(ids.collect()));
            }
            Err(error) => error,
        };
        if matches!(error.kind(), ErrorKind::Conflict(_)) {
            return Ok(None);
        }
        if *error.kind() != ErrorKind::Unknown {
            return Err(error);
        }
    }
}
