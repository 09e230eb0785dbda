use millstream_core::{Etag, PartitionKey, TimeToLive};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::{Coalescing, Events, NewEvent};

/// A business object that is stored as one document together with the events it raised.
///
/// State changes through methods that raise events into a private field of type [`Events`], which
/// serde skips. Nobody else can add to it or take from it.
///
/// ```
/// use millstream_outbox::{DomainEvent, Entity, Events, NewEvent};
/// use serde::{Deserialize, Serialize};
///
/// #[derive(Serialize, Deserialize)]
/// struct Contact {
///     id: String,
///     email: String,
///     #[serde(skip)]
///     events: Events,
/// }
///
/// #[derive(Serialize)]
/// struct EmailUpdated<'a> {
///     email: &'a str,
/// }
///
/// impl DomainEvent for EmailUpdated<'_> {
///     fn action(&self) -> &str {
///         "ContactEmailUpdated"
///     }
/// }
///
/// impl Contact {
///     fn set_email(&mut self, email: &str) {
///         self.email = email.to_owned();
///         self.events.raise(EmailUpdated { email });
///     }
/// }
///
/// impl Entity for Contact {
///     const TYPE: &'static str = "contact";
///     const ID_PROPERTY: Option<&'static str> = Some("contactId");
///
///     fn id(&self) -> &str {
///         &self.id
///     }
///
///     fn events(&self) -> &Events {
///         &self.events
///     }
/// }
///
/// let mut contact: Contact = serde_json::from_str(r#"{"id":"17","email":"old"}"#).unwrap();
/// contact.set_email("new");
/// assert_eq!(contact.events().actions(), ["ContactEmailUpdated"]);
/// ```
pub trait Entity: Serialize + DeserializeOwned + Send + Sync + 'static {
    /// Property `type` of its documents.
    const TYPE: &'static str;

    /// How its own events name it besides `entityId`, such as `contactId`. Default: not at all.
    const ID_PROPERTY: Option<&'static str> = None;

    /// What a second event of the same action does. Default: it takes the place of the first.
    const COALESCING: Coalescing = Coalescing::ReplaceSameAction;

    /// What names it; also the id of its document. It never changes.
    fn id(&self) -> &str;

    /// The logical partition it and its events live in. It never changes. Default: its id.
    fn partition_key(&self) -> PartitionKey {
        self.id().into()
    }

    /// The events it has raised.
    fn events(&self) -> &Events;

    /// The one event of a new entity, as it is when it is committed. Default: none.
    fn created_event(&self) -> Option<NewEvent> {
        None
    }

    /// How long it is kept after it was last written. Default: for ever.
    fn time_to_live(&self) -> TimeToLive {
        TimeToLive::Never
    }

    /// Whether it was deleted and is kept only as a mark. Default: never.
    fn is_deleted(&self) -> bool {
        false
    }
}

/// An entity that can be deleted: it stays as a document that says so.
pub trait SoftDelete: Entity {
    /// Marks it as deleted, so that [`Entity::is_deleted`] is true, and raises the event.
    ///
    /// It is not called for one that is deleted already.
    fn delete(&mut self);
}

/// An entity as it was read or written, and its version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Versioned<T> {
    /// The entity.
    pub entity: T,
    /// The version; hand it back with a change.
    pub etag: Etag,
}
