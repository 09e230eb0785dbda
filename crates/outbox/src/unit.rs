#[cfg(test)]
mod lost_replies;
#[cfg(test)]
mod tests;

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use bytes::Bytes;
use millstream_core::{
    Effect, Etag, Item, ItemId, KeyRange, Lsn, Numbers, OperationResult, PageSize, PartitionKey,
    ScanContinuation, ScanScope, says_the_same,
};

use crate::committed::CommittedEvent;
use crate::document::{entity_data, unreadable};
use crate::error::ConflictReason;
use crate::flaw::Flaw;
use crate::plan::{Plan, plan};
use crate::{Changes, Committed, Conflict, Entity, Error, ErrorKind, Outbox, Result, Versioned};

/// Most events that handlers hear of in one commit; more means that one answers itself. A batch
/// takes far fewer.
const EVENTS_HANDLED_MAX: usize = 1000;
/// Most pages one call of [`UnitOfWork::read_all`] looks through for entities.
const SCANS_MAX: usize = 100;

/// Entities that are committed together with the events they raised, whole or not at all.
///
/// All of them live in one logical partition. What is added or changed is in [`Changes`], which a
/// unit derefs to. A failed commit leaves the unit as it is: it can be committed again, mended with
/// [`Changes::release`], or emptied with [`UnitOfWork::reset`].
#[derive(Debug)]
pub struct UnitOfWork {
    outbox: Outbox,
    changes: Changes,
    /// The documents of an earlier attempt that may have committed.
    uncertain: Option<Vec<Bytes>>,
}

/// An answer to a reader who knows a version already.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReadIfChanged<T> {
    /// There is another version.
    Changed(Versioned<T>),
    /// It still has the etag the reader knows.
    NotModified,
    /// There is no such entity.
    NotFound,
}

/// A page of entities.
#[derive(Clone, Debug)]
pub struct EntityPage<T> {
    /// The entities; there may be none though more pages follow.
    pub entities: Vec<Versioned<T>>,
    /// Where to go on; none at the end.
    pub continuation: Option<ScanContinuation>,
}

impl UnitOfWork {
    pub(crate) fn new(outbox: Outbox) -> Self {
        let changes = Changes::new(Arc::clone(&outbox.stamps));
        Self { outbox, changes, uncertain: None }
    }

    /// Returns the entity, a deleted one too; none if there is no document of this id and type.
    ///
    /// It is not part of the unit until it is handed to [`Changes::update`].
    ///
    /// # Errors
    ///
    /// `Unreadable` if the document is not such an entity; those of the store.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    pub async fn read<T: Entity>(
        &self,
        key: impl Into<PartitionKey>,
        id: &str,
    ) -> Result<Option<Versioned<T>>> {
        let item = self.item(&key.into(), id).await?;
        item.map_or(Ok(None), |item| self.entity(&item))
    }

    /// Returns the entity unless it still has this etag.
    ///
    /// # Errors
    ///
    /// As [`UnitOfWork::read`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    pub async fn read_if_changed<T: Entity>(
        &self,
        key: impl Into<PartitionKey>,
        id: &str,
        known: &Etag,
    ) -> Result<ReadIfChanged<T>> {
        let Some(found) = self.read(key, id).await? else {
            return Ok(ReadIfChanged::NotFound);
        };
        if found.etag == *known {
            return Ok(ReadIfChanged::NotModified);
        }
        Ok(ReadIfChanged::Changed(found))
    }

    /// Returns up to `entities_max` entities of a type from all partitions, without deleted ones.
    ///
    /// It looks through the whole container, so a page may hold fewer, or none, before the end.
    /// Each entity that exists throughout is returned once.
    ///
    /// # Errors
    ///
    /// As [`UnitOfWork::read`]; `Store(Invalid)` if the continuation is not one.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    pub async fn read_all<T: Entity>(
        &self,
        entities_max: usize,
        continuation: Option<ScanContinuation>,
    ) -> Result<EntityPage<T>> {
        let scope = ScanScope::Keys(KeyRange::all());
        let entities_max = entities_max.clamp(1, PageSize::ITEMS_MAX);
        let mut page = EntityPage { entities: Vec::new(), continuation };
        for _ in 0..SCANS_MAX {
            let size = PageSize::items(entities_max - page.entities.len());
            let after = page.continuation.as_ref();
            let found = self.outbox.documents.scan(&scope, after, size).await;
            let found =
                found.map_err(|error| Error::store(format!("read every {}", T::TYPE), error))?;
            for item in &found.items {
                let entity = self.entity::<T>(item)?;
                page.entities.extend(entity.filter(|it| !it.entity.is_deleted()));
            }
            page.continuation = found.continuation;
            if page.continuation.is_none() || entities_max <= page.entities.len() {
                break;
            }
        }
        Ok(page)
    }

    /// Commits every entity that changed and every event that was raised, in one batch, and empties
    /// the unit.
    ///
    /// Handlers hear of each event first. The documents of a commit are each entity in the order it
    /// was added, followed by its events in the order they were raised.
    ///
    /// # Errors
    ///
    /// `Refused` and `HandlersNeverEnd` by handlers; `TooManyOperations`, `TooLarge` and `Invalid`
    /// before anything is sent; `Conflict` with the entity somebody else changed. After `Unknown`
    /// call it again: events keep their ids, so that a second attempt commits nothing twice and
    /// recognises the first. In every case the unit still holds its entities.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future may leave the unit committed or not, never half; as after `Unknown`.
    pub async fn commit(&mut self) -> Result<Committed> {
        self.call_handlers().await?;
        let Some(plan) = plan(&self.changes, &self.outbox.form)? else {
            return Ok(self.finish(None, None));
        };
        // Noted before the call, for when its future is dropped.
        let earlier = self.uncertain.replace(plan.bodies());
        let mut batch = plan.batch();
        if self.outbox.flaw == Some(Flaw::EventsApart) {
            let (events, entities) = plan.apart();
            batch = events;
            let _ = self.outbox.documents.commit(entities).await;
        }
        match self.outbox.documents.commit(batch).await {
            Ok(outcome) => {
                let items = outcome.results.into_iter().map(item_of).collect();
                Ok(self.finish(Some((plan, items)), Some(outcome.lsn)))
            }
            Err(error) => self.refused(plan, error, earlier).await,
        }
    }

    /// Forgets every entity and event that was not committed.
    pub fn reset(&mut self) {
        self.changes.take();
        self.uncertain = None;
    }

    async fn call_handlers(&mut self) -> Result<()> {
        let handlers = Arc::clone(&self.outbox.handlers);
        if handlers.is_empty() {
            return Ok(());
        }
        for _ in 0..EVENTS_HANDLED_MAX {
            let Some((event, done)) = self.changes.next_unhandled(handlers.len())? else {
                return Ok(());
            };
            let attempted = || format!("commit {:?} of {:?}", event.action, event.entity_id);
            for (index, handler) in handlers.iter().enumerate().skip(done) {
                handler.handle(&event, &mut self.changes).await.map_err(|reason| {
                    Error::new(ErrorKind::Refused, attempted()).because(reason)
                })?;
                self.changes.mark_handled(event.id, index + 1);
            }
        }
        let error = Error::new(ErrorKind::HandlersNeverEnd, "commit the unit");
        Err(error.because("its handlers raised event after event; one of them answers its own"))
    }

    /// Decides what a failed commit means.
    async fn refused(
        &mut self,
        plan: Plan,
        error: millstream_core::Error,
        earlier: Option<Vec<Bytes>>,
    ) -> Result<Committed> {
        let attempted = format!("commit {} documents to {}", plan.writes.len(), plan.key);
        if error.effect() == Effect::Unknown {
            return Err(Error::new(ErrorKind::Unknown, attempted).because(error));
        }
        let Some(reason) = ConflictReason::of(error.kind()) else {
            // This attempt did nothing, but an earlier one may have.
            self.uncertain = earlier;
            return Err(Error::store(attempted, error));
        };
        let is_repeated = earlier.is_some_and(|bodies| bodies == plan.bodies());
        if is_repeated && let Some(items) = self.own_commit(&plan).await? {
            let lsn = items.iter().flatten().map(|it| it.lsn).min();
            return Ok(self.finish(Some((plan, items)), lsn));
        }
        self.uncertain = None;
        let write = plan.writes.get(error.operation().unwrap_or(0)).or(plan.writes.first());
        let place = write.map_or(0, |it| it.entity);
        let id = self.changes.tracked()[place].id.as_str().to_owned();
        let kind = ErrorKind::Conflict(Conflict { id, reason });
        Err(Error::new(kind, attempted).because(error))
    }

    /// The items of an earlier attempt to commit this very plan, if it succeeded.
    ///
    /// An event with our id that says what we wrote is ours, and it was written together with all
    /// the rest.
    /// An entity may have been changed by others since; one without events is ours if it says what
    /// we wrote.
    async fn own_commit(&self, plan: &Plan) -> Result<Option<Vec<Option<Item>>>> {
        let mut items = Vec::with_capacity(plan.writes.len());
        for write in &plan.writes {
            let item = self.outbox.documents.read(&plan.key, &write.id).await.map_err(|error| {
                let attempted = "find out whether an earlier attempt has committed";
                Error::new(ErrorKind::Unknown, attempted).because(error)
            })?;
            // The store may be a service that keeps numbers as doubles.
            let is_written = |it: &Item| says_the_same(&it.body, &write.body, Numbers::AsDoubles);
            items.push(item.filter(is_written));
        }
        let has_events = plan.writes.iter().any(|it| it.event.is_some());
        let mut counted = plan.writes.iter().zip(&items);
        let is_ours =
            counted.all(|(write, item)| item.is_some() || has_events && write.event.is_none());
        Ok(is_ours.then_some(items))
    }

    /// Empties the unit into what it has become; `items` belong to the writes of the plan.
    fn finish(
        &mut self,
        written: Option<(Plan, Vec<Option<Item>>)>,
        lsn: Option<Lsn>,
    ) -> Committed {
        self.uncertain = None;
        let mut entities: Vec<_> =
            self.changes.take().into_iter().map(|it| (it.etag.clone(), None, it)).collect();
        let mut events = Vec::new();
        let (writes, items) = written.map(|(plan, items)| (plan.writes, items)).unwrap_or_default();
        for (write, item) in writes.into_iter().zip(items) {
            if let Some(event) = write.event {
                let sequence = item.and_then(|it| it.sequence);
                events.push(CommittedEvent { event, sequence });
                continue;
            }
            let (etag, body, _) = &mut entities[write.entity];
            *etag = item.map(|it| it.etag);
            *body = Some(write.body);
        }
        let entities = entities.into_iter().map(|(etag, body, tracked)| {
            tracked.entity.events().saved(body);
            (tracked.id.as_str().to_owned(), (tracked, etag))
        });
        Committed { lsn, events, entities: entities.collect() }
    }

    async fn item(&self, key: &PartitionKey, id: &str) -> Result<Option<Item>> {
        let attempted = format!("read {id:?}");
        let id = ItemId::new(id).map_err(|error| Error::invalid(attempted.as_str(), error))?;
        let item = self.outbox.documents.read(key, &id).await;
        item.map_err(|error| Error::store(attempted, error))
    }

    fn entity<T: Entity>(&self, item: &Item) -> Result<Option<Versioned<T>>> {
        let Some(data) = entity_data(item, T::TYPE)? else {
            return Ok(None);
        };
        let entity: T =
            serde_json::from_str(data).map_err(|error| unreadable(item).because(error))?;
        entity.events().bind(&self.outbox.stamps, T::COALESCING);
        entity.events().set_loaded(item.body.clone());
        Ok(Some(Versioned { entity, etag: item.etag.clone() }))
    }
}

impl Deref for UnitOfWork {
    type Target = Changes;

    fn deref(&self) -> &Changes {
        &self.changes
    }
}

impl DerefMut for UnitOfWork {
    fn deref_mut(&mut self) -> &mut Changes {
        &mut self.changes
    }
}

fn item_of(result: OperationResult) -> Option<Item> {
    match result {
        OperationResult::Created(item)
        | OperationResult::Replaced(item)
        | OperationResult::Read(item) => Some(item),
        OperationResult::Deleted | OperationResult::NotModified => None,
    }
}
