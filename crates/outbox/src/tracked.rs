use std::any::Any;

use bytes::Bytes;
use millstream_core::{Etag, ItemId, PartitionKey};

use crate::document::{Layout, seconds};
use crate::{Entity, Error, Events, NewEvent, Result, Versioned};

/// An entity that a unit of work holds.
pub(crate) struct Tracked {
    /// Its id when it was added; it must stay.
    pub(crate) id: ItemId,
    /// Its etag; none if it is to be created.
    pub(crate) etag: Option<Etag>,
    pub(crate) entity: Box<dyn Erased>,
}

/// An entity of any type.
pub(crate) trait Erased: Send + Sync {
    fn id_property(&self) -> Option<&'static str>;
    fn id(&self) -> &str;
    fn partition_key(&self) -> PartitionKey;
    fn events(&self) -> &Events;
    fn created_event(&self) -> Option<NewEvent>;
    fn document(&self, layout: &Layout) -> Result<Bytes>;
    /// What is stored, spelled as this version of the program spells it.
    fn respelled(&self, stored: &[u8], layout: &Layout) -> Option<Bytes>;
    fn as_any(&self) -> &dyn Any;
    fn as_any_mut(&mut self) -> &mut dyn Any;
    fn into_any(self: Box<Self>) -> Box<dyn Any>;
}

impl Tracked {
    pub(crate) fn new<T: Entity>(entity: T, etag: Option<Etag>) -> Result<Self> {
        let id = ItemId::new(entity.id())
            .map_err(|error| Error::invalid(format!("use a {}", T::TYPE), error))?;
        Ok(Self { id, etag, entity: Box::new(Holder(entity)) })
    }

    pub(crate) fn get<T: Entity>(&self) -> Option<&T> {
        self.entity.as_any().downcast_ref::<Holder<T>>().map(|it| &it.0)
    }

    pub(crate) fn get_mut<T: Entity>(&mut self) -> Option<&mut T> {
        self.entity.as_any_mut().downcast_mut::<Holder<T>>().map(|it| &mut it.0)
    }

    /// The entity; itself back if it is of another type.
    pub(crate) fn into_entity<T: Entity>(self) -> Result<T, Self> {
        if self.get::<T>().is_none() {
            return Err(self);
        }
        let holder = self.entity.into_any().downcast::<Holder<T>>();
        Ok(holder.expect("its type was just looked at").0)
    }

    /// Whether there is nothing to write: it says what is stored, and raised nothing.
    pub(crate) fn is_unchanged(&self, document: &Bytes, layout: &Layout) -> bool {
        let events = self.entity.events();
        let Some(stored) = events.loaded().filter(|_| self.etag.is_some() && events.is_empty())
        else {
            return false;
        };
        stored == *document || self.entity.respelled(&stored, layout).as_ref() == Some(document)
    }

    /// The entity and its version, for the one who committed it.
    pub(crate) fn into_versioned<T: Entity>(self, etag: Etag) -> Result<Versioned<T>, Self> {
        self.into_entity().map(|entity| Versioned { entity, etag })
    }
}

/// Keeps the methods of [`Erased`] apart from those of [`Entity`].
struct Holder<T>(T);

impl<T: Entity> Erased for Holder<T> {
    fn id_property(&self) -> Option<&'static str> {
        T::ID_PROPERTY
    }

    fn id(&self) -> &str {
        self.0.id()
    }

    fn partition_key(&self) -> PartitionKey {
        self.0.partition_key()
    }

    fn events(&self) -> &Events {
        self.0.events()
    }

    fn created_event(&self) -> Option<NewEvent> {
        self.0.created_event()
    }

    fn document(&self, layout: &Layout) -> Result<Bytes> {
        let entity = &self.0;
        let data = serde_json::to_string(entity).map_err(|error| {
            Error::invalid(format!("write the {} {:?} as JSON", T::TYPE, entity.id()), error)
        })?;
        let ttl = seconds(entity.time_to_live()).to_string();
        let further = [("data", data), ("ttl", ttl)];
        layout.document(entity.id(), &entity.partition_key(), T::TYPE, &further)
    }

    fn respelled(&self, stored: &[u8], layout: &Layout) -> Option<Bytes> {
        #[derive(serde::Deserialize)]
        struct Wire<T> {
            data: T,
        }
        let wire: Wire<T> = serde_json::from_slice(stored).ok()?;
        Holder(wire.data).document(layout).ok()
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

impl std::fmt::Debug for Tracked {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tracked").field("id", &self.id).field("etag", &self.etag).finish()
    }
}
