use std::collections::BTreeMap;
use std::sync::Arc;

use millstream_core::{Etag, PartitionKey};
use uuid::Uuid;

use crate::event::Stamps;
use crate::tracked::Tracked;
use crate::{Entity, Error, ErrorKind, NewEvent, RaisedEvent, Result, SoftDelete};

/// What a unit of work is going to write: its entities and the events they raised.
///
/// Event handlers get it before the commit, to look at entities, change them, or add some.
#[derive(Debug)]
pub struct Changes {
    stamps: Arc<Stamps>,
    /// In the order they were added.
    tracked: Vec<Tracked>,
    /// The one logical partition; none before the first entity.
    key: Option<PartitionKey>,
    /// By event, how many of the handlers are done with it.
    handled: BTreeMap<Uuid, usize>,
}

impl Changes {
    pub(crate) fn new(stamps: Arc<Stamps>) -> Self {
        Self { stamps, tracked: Vec::new(), key: None, handled: BTreeMap::new() }
    }

    /// Adds a new entity. Whatever it raised is covered by its created event.
    ///
    /// # Errors
    ///
    /// `AlreadyTracked`, `OtherPartition`, or `Invalid` if the id cannot be one.
    pub fn create<T: Entity>(&mut self, entity: T) -> Result<()> {
        let tracked = self.admitted(entity, None)?;
        let created = tracked.entity.created_event();
        tracked.entity.events().begin(&self.stamps, T::COALESCING, created);
        self.add(tracked);
        Ok(())
    }

    /// Adds an entity that was read with this etag and may have changed since. One that did not is
    /// not written.
    ///
    /// # Errors
    ///
    /// `AlreadyTracked`, `OtherPartition`, or `Invalid` if the entity is new.
    pub fn update<T: Entity>(&mut self, entity: T, etag: Etag) -> Result<()> {
        let tracked = self.admitted(entity, Some(etag))?;
        let events = tracked.entity.events();
        if events.is_new() {
            let reason = "it was never stored; create it";
            return Err(Error::invalid(format!("update {:?}", tracked.id.as_str()), reason));
        }
        events.bind(&self.stamps, T::COALESCING);
        self.add(tracked);
        Ok(())
    }

    /// Deletes an entity that was read with this etag: its document stays and says so.
    ///
    /// # Errors
    ///
    /// `AlreadyDeleted` if it is deleted already, so that nobody hears of it twice; else as
    /// [`Changes::update`].
    pub fn delete<T: SoftDelete>(&mut self, mut entity: T, etag: Etag) -> Result<()> {
        let attempted = format!("delete {:?}", entity.id());
        if entity.is_deleted() {
            let error = Error::new(ErrorKind::AlreadyDeleted, attempted);
            return Err(error.because("it is deleted already"));
        }
        entity.events().bind(&self.stamps, T::COALESCING);
        entity.delete();
        if !entity.is_deleted() {
            let reason = "its type does not mark it as deleted";
            return Err(Error::invalid(attempted, reason));
        }
        self.update(entity, etag)
    }

    /// The entity of this type and id, if the unit holds it.
    #[must_use]
    pub fn get<T: Entity>(&self, id: &str) -> Option<&T> {
        self.tracked.iter().find(|it| it.id.as_str() == id)?.get()
    }

    /// The entity of this type and id to be changed, if the unit holds it.
    #[must_use]
    pub fn get_mut<T: Entity>(&mut self, id: &str) -> Option<&mut T> {
        self.tracked.iter_mut().find(|it| it.id.as_str() == id)?.get_mut()
    }

    /// Gives an entity back and forgets it, for example to read it again after a conflict.
    pub fn release<T: Entity>(&mut self, id: &str) -> Option<T> {
        let place = self.tracked.iter().position(|it| it.id.as_str() == id)?;
        self.tracked[place].get::<T>()?;
        let released = self.tracked.remove(place);
        if self.tracked.is_empty() {
            self.key = None;
        }
        released.into_entity().ok()
    }

    /// Raises an event for an entity that the unit holds, after those it raised itself.
    ///
    /// # Errors
    ///
    /// `NotTracked`: an event is never written without its entity.
    pub fn raise(&mut self, entity_id: &str, event: impl Into<NewEvent>) -> Result<()> {
        let event = event.into();
        let tracked = self.tracked.iter().find(|it| it.id.as_str() == entity_id);
        let Some(tracked) = tracked else {
            let attempted = format!("raise the event {:?} of {entity_id:?}", event.action());
            let error = Error::new(ErrorKind::NotTracked, attempted);
            return Err(error.because("the unit does not hold this entity"));
        };
        tracked.entity.events().append(event);
        Ok(())
    }

    /// The ids of the entities, in the order they will be written.
    pub fn ids(&self) -> impl Iterator<Item = &str> {
        self.tracked.iter().map(|it| it.id.as_str())
    }

    /// Whether there are no entities.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.tracked.is_empty()
    }

    pub(crate) fn key(&self) -> Option<&PartitionKey> {
        self.key.as_ref()
    }

    pub(crate) fn tracked(&self) -> &[Tracked] {
        &self.tracked
    }

    /// Everything, leaving nothing behind.
    pub(crate) fn take(&mut self) -> Vec<Tracked> {
        self.key = None;
        self.handled.clear();
        std::mem::take(&mut self.tracked)
    }

    /// Asks new entities what their created events tell by now.
    pub(crate) fn refresh_created(&self) {
        for tracked in self.tracked.iter().filter(|it| it.etag.is_none()) {
            let created = tracked.entity.created_event();
            tracked.entity.events().refresh_created(created);
        }
    }

    /// The first event that not all handlers have seen, and how many have.
    pub(crate) fn next_unhandled(&self, handlers: usize) -> Result<Option<(RaisedEvent, usize)>> {
        self.refresh_created();
        for tracked in &self.tracked {
            for event in tracked.entity.events().stamped(tracked.id.as_str())? {
                let done = self.handled.get(&event.id).copied().unwrap_or(0);
                if done < handlers {
                    return Ok(Some((event, done)));
                }
            }
        }
        Ok(None)
    }

    pub(crate) fn mark_handled(&mut self, event: Uuid, handlers: usize) {
        self.handled.insert(event, handlers);
    }

    fn admitted<T: Entity>(&self, entity: T, etag: Option<Etag>) -> Result<Tracked> {
        let tracked = Tracked::new(entity, etag)?;
        let attempted = || format!("add {} {:?} to the unit", T::TYPE, tracked.id.as_str());
        if self.tracked.iter().any(|it| it.id == tracked.id) {
            let error = Error::new(ErrorKind::AlreadyTracked, attempted());
            return Err(error.because("the unit holds it already; change that one"));
        }
        let key = tracked.entity.partition_key();
        if let Some(own) = self.key.as_ref().filter(|own| **own != key) {
            let reason = format!(
                "it lives in partition {key} and the unit commits to {own}; use a unit for each"
            );
            return Err(Error::new(ErrorKind::OtherPartition, attempted()).because(reason));
        }
        Ok(tracked)
    }

    fn add(&mut self, tracked: Tracked) {
        self.key.get_or_insert_with(|| tracked.entity.partition_key());
        self.tracked.push(tracked);
    }
}
