//! Services that commit entities together with the events they raise.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use millstream_core::{BoxFuture, Clock, PartitionKey};
use millstream_outbox::{
    Coalescing, DomainEvent, Entity, Error, ErrorKind, Events, Flaw, NewEvent, Outbox, UnitOfWork,
};
use serde::{Deserialize, Serialize};

use crate::clock::SimClock;
use crate::delivery::crew::{Process, Work};
use crate::delivery::site::Site;
use crate::log::log;
use crate::rng::Rng;

/// Attempts to commit one unit, and to begin it anew after a conflict.
const ATTEMPTS_MAX: u32 = 6;

/// A business object.
#[derive(Debug, Serialize, Deserialize)]
struct Account {
    id: String,
    key: String,
    unit: u64,
    #[serde(skip)]
    events: Events,
}

/// Something happened to it: a part of a unit of work, so that each can be told from all others.
#[derive(Serialize)]
struct Changed {
    unit: u64,
    part: u64,
}

impl DomainEvent for Changed {
    fn action(&self) -> &str {
        "AccountChanged"
    }
}

impl Entity for Account {
    const TYPE: &'static str = "account";
    const COALESCING: Coalescing = Coalescing::KeepAll;

    fn id(&self) -> &str {
        &self.id
    }

    fn partition_key(&self) -> PartitionKey {
        self.key.as_str().into()
    }

    fn events(&self) -> &Events {
        &self.events
    }

    fn created_event(&self) -> Option<NewEvent> {
        // No other part of a unit has this number.
        let part = 1000 + self.id.bytes().map(u64::from).sum::<u64>();
        Some(Changed { unit: self.unit, part }.into())
    }
}

/// What writers do. Each role has so many units to commit, whoever does it.
pub(crate) fn work(site: &Arc<Site>, flaw: Option<Flaw>) -> Work {
    let site = Arc::clone(site);
    let roles = usize::try_from(site.shape.writers).expect("a few");
    let done: Arc<Vec<AtomicU64>> = Arc::new((0..roles).map(|_| AtomicU64::new(0)).collect());
    // Each has something to do until all its units are done.
    done.iter().for_each(|_| site.begin());
    Arc::new(move |process| -> BoxFuture<'static, bool> {
        let (site, done) = (Arc::clone(&site), Arc::clone(&done));
        Box::pin(async move {
            let role = usize::try_from(process.role).expect("a few");
            let mut writer = Writer::new(&site, process, flaw);
            while writer.next_unit(&done[role]).await {}
            site.end();
            false
        })
    })
}

struct Writer {
    site: Arc<Site>,
    outbox: Outbox,
    process: Process,
    rng: Rng,
}

impl Writer {
    fn new(site: &Arc<Site>, process: Process, flaw: Option<Flaw>) -> Self {
        let (clock, ids) = (process.parts.clock.clone(), process.parts.ids.clone());
        let outbox = Outbox::new(&site.data(&process.parts), clock, ids);
        let mut outbox = outbox.expect("the container is made for it");
        if let Some(flaw) = flaw {
            outbox = outbox.flaw(flaw);
        }
        let rng = process.parts.rng.fork(1);
        Self { site: Arc::clone(site), outbox, process, rng }
    }

    /// Commits the next unit of the role; whether there was one.
    async fn next_unit(&mut self, done: &AtomicU64) -> bool {
        let shape = &self.site.shape.workload;
        let pause = self.rng.duration(Duration::ZERO, shape.pause_max);
        self.pause(pause).await;
        // It counts before it begins: whoever dies in the middle does not begin it again.
        let number = done.fetch_add(1, Ordering::Relaxed);
        if shape.units <= number {
            return false;
        }
        let unit = self.process.role * 1_000_000 + number;
        let key = format!("key-{}", self.rng.below(shape.keys));
        for _ in 0..ATTEMPTS_MAX {
            let mut work = self.outbox.unit();
            if let Err(error) = self.prepare(&mut work, &key, unit).await {
                self.check(&error);
                self.pause(Duration::from_millis(100)).await;
                continue;
            }
            if self.commit(&mut work).await {
                return true;
            }
        }
        true
    }

    /// Reads entities and changes them.
    async fn prepare(&mut self, work: &mut UnitOfWork, key: &str, unit: u64) -> Result<(), Error> {
        let shape = self.site.shape.workload.clone();
        let first = self.rng.below(shape.entities_per_key);
        let count = self.rng.between(1, shape.entities_per_key - first);
        let mut part = 0;
        for number in first..first + count {
            let id = format!("{key}-account-{number}");
            let Some(mut found) = work.read::<Account>(key, &id).await? else {
                let (key, events) = (key.to_owned(), Events::for_new());
                work.create(Account { id, key, unit, events })?;
                continue;
            };
            found.entity.unit = unit;
            for _ in 0..self.rng.between(1, shape.events_max) {
                let mut event = NewEvent::from(Changed { unit, part });
                part += 1;
                if self.rng.chance(shape.scheduled) {
                    let later = self.rng.duration(Duration::ZERO, shape.schedule_max);
                    let now = SimClock::of_world(&self.site.handle).now();
                    event = event.deliver_not_before(now.plus(later));
                }
                found.entity.events.raise(event);
            }
            work.update(found.entity, found.etag)?;
        }
        Ok(())
    }

    /// Commits until it is known to be done or impossible; false if it must begin anew.
    async fn commit(&mut self, work: &mut UnitOfWork) -> bool {
        for _ in 0..ATTEMPTS_MAX {
            let error = match work.commit().await {
                Ok(committed) => {
                    log(|| format!("committed {} events", committed.events.len()));
                    return true;
                }
                Err(error) => error,
            };
            if let ErrorKind::Conflict(_) = error.kind() {
                return false;
            }
            self.check(&error);
            let pause = self.rng.duration(Duration::ZERO, Duration::from_millis(500));
            self.pause(pause).await;
        }
        // Given up: it may be committed or not, and is not begun again.
        true
    }

    fn check(&self, error: &Error) {
        let kind = error.kind();
        if !matches!(kind, ErrorKind::Unknown | ErrorKind::Store(_)) {
            self.site.handle.fail(format!("a unit of work failed with {kind:?}: {error}"));
        }
    }

    async fn pause(&self, pause: Duration) {
        self.process.parts.clock.sleep(pause).await;
    }
}
