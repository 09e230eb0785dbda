//! One document per instance says that it is alive.

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use serde_json::Map;

use crate::error::{Error, ErrorKind, Result};
use crate::lease_store::Stored;
use crate::notification::Notification;
use crate::shared::Setup;
use crate::stored::schema::Schema;
use crate::stored::{Member, Owner};

/// Tries to remove the member document at the end.
const LEAVE_TRIES_MAX: usize = 3;

/// What an instance says about itself with each sign of life.
#[derive(Debug, Default)]
pub(crate) struct Condition {
    stopping: AtomicBool,
    leases: AtomicUsize,
    /// Thousandths of changes per second.
    load: AtomicU64,
    control_epoch: AtomicU64,
}

impl Condition {
    pub(crate) fn stop(&self) {
        self.stopping.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }

    pub(crate) fn set(&self, leases: usize, load_per_mille: u64) {
        self.leases.store(leases, Ordering::Relaxed);
        self.load.store(load_per_mille, Ordering::Relaxed);
    }

    pub(crate) fn acted_upon(&self, control_epoch: u64) {
        self.control_epoch.store(control_epoch, Ordering::Relaxed);
    }
}

/// The member document of this instance.
#[derive(Debug)]
pub(crate) struct Membership {
    setup: Arc<Setup>,
    condition: Arc<Condition>,
    stored: Stored<Member>,
    /// The last count that was tried; none is used for two signs of life, or a late one would be
    /// taken for a new one.
    counter: u64,
}

impl Membership {
    /// Becomes a member. If the name is in use, waits until it is clear whether its user lives,
    /// unless that is known.
    ///
    /// # Errors
    ///
    /// `InstanceNameTaken` if the other one gives a sign of life.
    pub(crate) async fn join(setup: Arc<Setup>, condition: Arc<Condition>) -> Result<Self> {
        let mut seen: Option<(Owner, u64, std::time::Duration)> = None;
        let pause = setup.options.round_interval / 2;
        loop {
            let sent = setup.clock.monotonic();
            let member = new_member(&setup, &condition);
            let found = match setup.store.read_member(&setup.me.instance).await {
                Ok(found) => found,
                Err(error) => {
                    retry_later(&setup, &error).await?;
                    continue;
                }
            };
            let outcome = match found {
                None => setup.store.create(member).await,
                // The answer to an earlier attempt was lost. Others count from when it was made,
                // so it is made again.
                Some(own) if own.document.owner() == setup.me => {
                    let counter = own.document.counter + 1;
                    setup.store.replace(Member { counter, ..member }, &own.etag).await
                }
                Some(other) if setup.is_dead_predecessor(&other.document.owner()) => {
                    setup.store.replace(member, &other.etag).await
                }
                Some(other) => {
                    let now = setup.clock.monotonic();
                    let (owner, counter) = (other.document.owner(), other.document.counter);
                    match &seen {
                        Some((who, count, _)) if (who, *count) != (&owner, counter) => {
                            return Err(name_taken(&setup.me.instance));
                        }
                        Some((_, _, since)) if setup.options.lease_duration <= now - *since => {
                            setup.store.replace(member, &other.etag).await
                        }
                        Some(_) => {
                            setup.clock.sleep(pause).await;
                            continue;
                        }
                        None => {
                            seen = Some((owner, counter, now));
                            continue;
                        }
                    }
                }
            };
            match outcome {
                Ok(stored) => {
                    let until = sent + setup.options.fence_after();
                    setup.fence.extend(setup.clock.monotonic(), until);
                    let counter = stored.document.counter;
                    return Ok(Self { setup, condition, stored, counter });
                }
                Err(error) => retry_later(&setup, &error).await?,
            }
        }
    }

    /// Gives signs of life for ever.
    ///
    /// # Errors
    ///
    /// `Fenced` if another instance took the name: it found this one silent for a lease duration.
    pub(crate) async fn keep_alive(&mut self) -> Result<()> {
        let interval = self.setup.options.round_interval;
        loop {
            let pause = match self.heartbeat().await {
                Ok(()) => interval,
                Err(error) if *error.kind() == ErrorKind::Fenced => return Err(error),
                Err(error) => {
                    let text = error.report();
                    tracing::warn!(error = text, "could not give a sign of life");
                    self.setup.notifier.tell(Notification::StoreFailed { keys: None, error: text });
                    interval / 4
                }
            };
            self.setup.clock.sleep(pause).await;
        }
    }

    /// Leaves: others need not wait for this instance any more.
    pub(crate) async fn leave(&mut self) -> Result<()> {
        for _ in 1..LEAVE_TRIES_MAX {
            if self.setup.store.delete(&self.stored).await.is_ok() {
                return Ok(());
            }
            // A heartbeat was on its way when the instance ended, or the answer was lost.
            match self.setup.store.read_member(&self.setup.me.instance).await? {
                Some(found) if found.document.owner() == self.setup.me => self.stored = found,
                Some(_) | None => return Ok(()),
            }
        }
        self.setup.store.delete(&self.stored).await
    }

    async fn heartbeat(&mut self) -> Result<()> {
        let sent = self.setup.clock.monotonic();
        self.counter = self.counter.max(self.stored.document.counter) + 1;
        let mut member = new_member(&self.setup, &self.condition);
        member.counter = self.counter;
        member.unknown = self.stored.document.unknown.clone();
        let written = self.setup.store.replace(member.clone(), &self.stored.etag).await;
        let stored = match written {
            Ok(stored) => stored,
            Err(error) => self.after_failure(member, error).await?,
        };
        self.stored = stored;
        let until = sent + self.setup.options.fence_after();
        self.setup.fence.extend(self.setup.clock.monotonic(), until);
        Ok(())
    }

    /// Finds out what became of a heartbeat that failed, or whose answer was lost.
    async fn after_failure(&mut self, member: Member, error: Error) -> Result<Stored<Member>> {
        let Some(found) = self.setup.store.read_member(&member.instance).await? else {
            // Somebody tidied up after a long silence. The leases are gone, the name is free.
            return self.setup.store.create(member).await;
        };
        if found.document.owner() != self.setup.me {
            return Err(Error::new(ErrorKind::Fenced, "give a sign of life").because(format!(
                "another instance took the name \"{}\"; give each instance its own",
                member.instance
            )));
        }
        if found.document.counter == member.counter {
            return Ok(found);
        }
        // An earlier heartbeat arrived late, or this one did not arrive: the next one writes again.
        self.stored = found;
        Err(error)
    }
}

fn new_member(setup: &Setup, condition: &Condition) -> Member {
    let load = condition.load.load(Ordering::Relaxed);
    Member {
        schema: Schema::default(),
        instance: setup.me.instance.clone(),
        incarnation: setup.me.incarnation,
        counter: 1,
        leases_min: setup.options.leases_min,
        leases_max: setup.options.leases_max,
        accepting: !condition.is_stopping(),
        leases: condition.leases.load(Ordering::Relaxed),
        load: f64::from(u32::try_from(load).unwrap_or(u32::MAX)) / 1000.0,
        control_epoch: condition.control_epoch.load(Ordering::Relaxed),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        written_at: setup.clock.now().as_millis(),
        unknown: Map::new(),
    }
}

/// Waits before another attempt, or gives up on a failure that will not go away.
async fn retry_later(setup: &Setup, error: &Error) -> Result<()> {
    if matches!(error.kind(), ErrorKind::NewerSchema | ErrorKind::Invalid) {
        return Err(Error::new(error.kind().clone(), "join the processor").because(error.report()));
    }
    tracing::warn!(error = error.report(), "could not join the processor yet");
    setup.clock.sleep(setup.options.round_interval / 4).await;
    Ok(())
}

fn name_taken(instance: &str) -> Error {
    let attempted = format!("start the instance \"{instance}\"");
    let reason = "another instance of this name is running; give each instance its own name";
    Error::new(ErrorKind::InstanceNameTaken, attempted).because(reason)
}
