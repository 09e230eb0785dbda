use std::fmt;
use std::sync::Arc;

use millstream_core::{Clock, IdSource, RawJson, Timestamp};
use serde::Serialize;
use uuid::Uuid;

use crate::{TraceContext, TraceSource};

/// Something that happened to an entity. Its fields are what the event tells.
///
/// It serializes to a JSON object, or to nothing for a struct without fields. The names `id`,
/// `action`, `entityId`, `createdAt` and the entity's own name for its id are taken.
pub trait DomainEvent: Serialize {
    /// What happened, such as `ContactNameUpdated`; the subject of its message.
    fn action(&self) -> &str;
}

impl<E: DomainEvent> DomainEvent for &E {
    fn action(&self) -> &str {
        (*self).action()
    }
}

/// An event on its way into an entity. Every [`DomainEvent`] becomes one.
///
/// ```
/// use millstream_core::Timestamp;
/// use millstream_outbox::{DomainEvent, NewEvent};
/// # #[derive(serde::Serialize)]
/// # struct TrialEnds;
/// # impl DomainEvent for TrialEnds {
/// #     fn action(&self) -> &str { "TrialEnds" }
/// # }
///
/// let event = NewEvent::from(TrialEnds).deliver_not_before(Timestamp::from_millis(17_000));
/// assert_eq!(event.action(), "TrialEnds");
/// ```
#[derive(Clone, Debug)]
pub struct NewEvent {
    action: String,
    /// Whether the data can be written is known here and told when the unit is committed, so that
    /// raising an event needs no error path.
    data: Result<RawJson, String>,
    deliver_not_before: Option<Timestamp>,
}

impl NewEvent {
    /// Holds its message back until this time. Later events of the same entity overtake it.
    #[must_use]
    pub fn deliver_not_before(mut self, time: Timestamp) -> Self {
        self.deliver_not_before = Some(time);
        self
    }

    /// What happened.
    #[must_use]
    pub fn action(&self) -> &str {
        &self.action
    }

    pub(crate) fn stamped(&self, entity_id: &str, stamp: &Stamp) -> Result<RaisedEvent, String> {
        if self.action.is_empty() {
            return Err("it has no action".to_owned());
        }
        Ok(RaisedEvent {
            id: stamp.id,
            action: self.action.clone(),
            entity_id: entity_id.to_owned(),
            created_at: stamp.created_at,
            data: self.data.clone()?,
            trace: stamp.trace.clone(),
            deliver_not_before: self.deliver_not_before,
        })
    }
}

impl<E: DomainEvent> From<E> for NewEvent {
    fn from(event: E) -> Self {
        Self {
            action: event.action().to_owned(),
            data: RawJson::of(&event).map_err(|error| error.report()),
            deliver_not_before: None,
        }
    }
}

/// An event that an entity has raised.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RaisedEvent {
    /// Its name for ever: of its document, and of its message on every attempt to send it.
    pub id: Uuid,
    /// What happened.
    pub action: String,
    /// To which entity.
    pub entity_id: String,
    /// When it was raised.
    pub created_at: Timestamp,
    /// What the event tells, without the fields above.
    pub data: RawJson,
    /// The trace it was raised in.
    pub trace: TraceContext,
    /// Its message is held back until then.
    pub deliver_not_before: Option<Timestamp>,
}

/// What an event gets when it is raised.
#[derive(Clone, Debug)]
pub(crate) struct Stamp {
    pub(crate) id: Uuid,
    created_at: Timestamp,
    trace: TraceContext,
}

/// Where stamps come from.
pub(crate) struct Stamps {
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) ids: Arc<dyn IdSource>,
    pub(crate) trace: Option<Arc<dyn TraceSource>>,
}

impl Stamps {
    pub(crate) fn next(&self) -> Stamp {
        Stamp {
            id: self.ids.next_id(),
            created_at: self.clock.now(),
            trace: self.trace.as_ref().map(|it| it.current()).unwrap_or_default(),
        }
    }
}

impl fmt::Debug for Stamps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stamps").field("clock", &self.clock).finish_non_exhaustive()
    }
}
