#[cfg(test)]
mod tests;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

use crate::event::{Stamp, Stamps};
use crate::{Error, NewEvent, RaisedEvent, Result};

/// What a second event of the same action does before the first is committed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Coalescing {
    /// It takes the place of the first: subscribers hear the last state once.
    #[default]
    ReplaceSameAction,
    /// Both are kept, in order: subscribers hear every step.
    KeepAll,
}

/// The events an entity has raised and not committed yet. An entity owns one as a private field
/// that serde skips.
///
/// Only who can change the field can raise an event; a unit of work reads them, and clears them
/// once they are committed. [`Events::default`] belongs to an entity that was stored before,
/// [`Events::for_new`] to one that was not.
#[derive(Debug, Default)]
pub struct Events {
    // A unit of work marks what it has stored without being able to raise: it has the entity's
    // events by shared reference only.
    inner: Mutex<Inner>,
}

#[derive(Clone, Debug, Default)]
struct Inner {
    is_new: bool,
    /// Until a unit of work knows the entity, everything is kept as it is raised.
    coalescing: Option<Coalescing>,
    raised: Vec<Raised>,
    stamps: Option<Arc<Stamps>>,
    loaded: Option<Bytes>,
}

#[derive(Clone, Debug)]
struct Raised {
    event: NewEvent,
    stamp: Option<Stamp>,
    is_created: bool,
}

impl Events {
    /// The events of an entity that was never stored: it raises none but
    /// [`crate::Entity::created_event`], which covers every change made until then.
    #[must_use]
    pub fn for_new() -> Self {
        Self { inner: Mutex::new(Inner { is_new: true, ..Inner::default() }) }
    }

    /// Raises an event, unless the entity is new.
    ///
    /// Id, time and trace are taken now if the entity was read through a unit of work, else when it
    /// is handed to one. An event that cannot be written as a JSON object makes the commit fail.
    pub fn raise(&mut self, event: impl Into<NewEvent>) {
        let inner = self.inner.get_mut().unwrap_or_else(PoisonError::into_inner);
        if !inner.is_new {
            inner.push(event.into());
        }
    }

    /// Whether the entity was never stored.
    #[must_use]
    pub fn is_new(&self) -> bool {
        self.lock().is_new
    }

    /// The actions of the events that were raised and not committed yet, in order.
    #[must_use]
    pub fn actions(&self) -> Vec<String> {
        self.lock().raised.iter().map(|it| it.event.action().to_owned()).collect()
    }

    /// Begins a new entity: whatever it raised before is covered by `created`.
    pub(crate) fn begin(
        &self,
        stamps: &Arc<Stamps>,
        coalescing: Coalescing,
        created: Option<NewEvent>,
    ) {
        let mut inner = self.lock();
        *inner = Inner { is_new: true, ..Inner::default() };
        inner.bind(stamps, coalescing);
        if let Some(event) = created {
            inner.place(Raised { event, stamp: None, is_created: true });
        }
    }

    /// Says what the created event of a new entity tells by now; its stamp stays.
    pub(crate) fn refresh_created(&self, created: Option<NewEvent>) {
        let mut inner = self.lock();
        let place = inner.raised.iter().position(|it| it.is_created);
        if let (Some(place), Some(event)) = (place, created) {
            inner.raised[place].event = event;
        }
    }

    /// Binds an entity that is stored already to where its stamps come from.
    pub(crate) fn bind(&self, stamps: &Arc<Stamps>, coalescing: Coalescing) {
        self.lock().bind(stamps, coalescing);
    }

    /// Notes what is stored, so that an entity that did not change is not written.
    pub(crate) fn set_loaded(&self, body: Bytes) {
        self.lock().loaded = Some(body);
    }

    pub(crate) fn loaded(&self) -> Option<Bytes> {
        self.lock().loaded.clone()
    }

    /// Raises an event from outside the entity; also for a new one.
    pub(crate) fn append(&self, event: NewEvent) {
        self.lock().push(event);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.lock().raised.is_empty()
    }

    /// The events as they will be stored.
    pub(crate) fn stamped(&self, entity_id: &str) -> Result<Vec<RaisedEvent>> {
        let inner = self.lock();
        let mut events = Vec::with_capacity(inner.raised.len());
        for raised in &inner.raised {
            let stamp = raised.stamp.as_ref().expect("a unit stamps what it is handed");
            let event = raised.event.stamped(entity_id, stamp).map_err(|reason| {
                let action = raised.event.action();
                Error::invalid(format!("raise the event {action:?} of {entity_id:?}"), reason)
            })?;
            events.push(event);
        }
        Ok(events)
    }

    /// Forgets what is committed.
    pub(crate) fn saved(&self, body: Option<Bytes>) {
        let mut inner = self.lock();
        inner.is_new = false;
        inner.raised.clear();
        inner.loaded = body.or_else(|| inner.loaded.take());
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Clone for Events {
    fn clone(&self) -> Self {
        Self { inner: Mutex::new(self.lock().clone()) }
    }
}

impl Inner {
    fn bind(&mut self, stamps: &Arc<Stamps>, coalescing: Coalescing) {
        self.stamps = Some(Arc::clone(stamps));
        self.coalescing = Some(coalescing);
        for raised in std::mem::take(&mut self.raised) {
            self.place(raised);
        }
    }

    fn push(&mut self, event: NewEvent) {
        self.place(Raised { event, stamp: None, is_created: false });
    }

    fn place(&mut self, mut raised: Raised) {
        if raised.stamp.is_none() {
            raised.stamp = self.stamps.as_ref().map(|it| it.next());
        }
        let replaces = self.coalescing == Some(Coalescing::ReplaceSameAction) && !raised.is_created;
        let action = raised.event.action();
        let same = |it: &Raised| !it.is_created && it.event.action() == action;
        match self.raised.iter().position(same).filter(|_| replaces) {
            Some(place) => self.raised[place] = raised,
            None => self.raised.push(raised),
        }
    }
}
