use std::collections::BTreeMap;

use millstream_core::{Etag, Lsn};

use crate::tracked::Tracked;
use crate::{Entity, RaisedEvent, Versioned};

/// What a commit has written.
#[derive(Debug)]
pub struct Committed {
    /// The number of the commit; none if there was nothing to write.
    pub lsn: Option<Lsn>,
    /// The events, in the order they were written.
    pub events: Vec<CommittedEvent>,
    pub(crate) entities: BTreeMap<String, (Tracked, Option<Etag>)>,
}

/// An event that is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommittedEvent {
    /// The event.
    pub event: RaisedEvent,
    /// Its place among the events of the partition key, where the backend numbers them.
    pub sequence: Option<u64>,
}

impl Committed {
    /// The etag of an entity after the commit.
    ///
    /// None if the unit did not hold it, or if a lost reply hid the etag and somebody has changed
    /// the entity since.
    #[must_use]
    pub fn etag(&self, id: &str) -> Option<&Etag> {
        self.entities.get(id)?.1.as_ref()
    }

    /// Takes an entity out, to be changed and updated again.
    ///
    /// None where [`Committed::etag`] is none, if it is of another type, or was taken already.
    pub fn take<T: Entity>(&mut self, id: &str) -> Option<Versioned<T>> {
        let (tracked, etag) = self.entities.get(id)?;
        tracked.get::<T>()?;
        let etag = etag.clone()?;
        let (tracked, _) = self.entities.remove(id)?;
        tracked.into_versioned(etag).ok()
    }
}
