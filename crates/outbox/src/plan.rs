//! From entities to one batch, or to the reason why there cannot be one. Nothing is sent here.

use bytes::Bytes;
use millstream_core::{Batch, ItemId, Operation, PartitionKey, TimeToLive};

use crate::changes::Changes;
use crate::document::Layout;
use crate::tracked::Tracked;
use crate::{Error, ErrorKind, Limits, RaisedEvent, Result};

/// What is needed to make documents.
#[derive(Clone, Debug)]
pub(crate) struct Form {
    pub(crate) layout: Layout,
    pub(crate) event_type: String,
    pub(crate) event_ttl: TimeToLive,
    pub(crate) limits: Limits,
}

/// A batch, and what each of its operations is about.
pub(crate) struct Plan {
    pub(crate) key: PartitionKey,
    pub(crate) writes: Vec<Write>,
}

/// One operation: an entity, or an event of it.
pub(crate) struct Write {
    /// The place of the entity in the unit.
    pub(crate) entity: usize,
    pub(crate) event: Option<RaisedEvent>,
    pub(crate) id: ItemId,
    pub(crate) body: Bytes,
    operation: Operation,
}

impl Plan {
    pub(crate) fn batch(&self) -> Batch {
        let operations = self.writes.iter().map(|it| it.operation.clone()).collect();
        Batch { partition_key: self.key.clone(), operations }
    }

    /// The events and the entities in batches of their own; only a planted bug asks for them.
    pub(crate) fn apart(&self) -> (Batch, Batch) {
        let (mut events, mut entities) = (self.batch(), self.batch());
        events.operations.clear();
        entities.operations.clear();
        for write in &self.writes {
            let batch = if write.event.is_some() { &mut events } else { &mut entities };
            batch.operations.push(write.operation.clone());
        }
        (events, entities)
    }

    /// What it writes; two plans with the same bodies are the same plan.
    pub(crate) fn bodies(&self) -> Vec<Bytes> {
        self.writes.iter().map(|it| it.body.clone()).collect()
    }
}

/// Each entity that changed, followed by its events in the order they were raised; none if nothing
/// changed.
pub(crate) fn plan(changes: &Changes, form: &Form) -> Result<Option<Plan>> {
    changes.refresh_created();
    let Some(key) = changes.key() else {
        return Ok(None);
    };
    let mut writes = Vec::new();
    for (place, tracked) in changes.tracked().iter().enumerate() {
        check_identity(tracked, key)?;
        writes.extend(writes_of(place, tracked, key, form)?);
    }
    check_limits(&writes, form.limits)?;
    Ok((!writes.is_empty()).then(|| Plan { key: key.clone(), writes }))
}

/// An entity may have been changed since it was added, but not its name.
fn check_identity(tracked: &Tracked, key: &PartitionKey) -> Result<()> {
    let entity = &tracked.entity;
    if entity.id() == tracked.id.as_str() && entity.partition_key() == *key {
        return Ok(());
    }
    let reason = "its id or partition key has changed since it was added";
    Err(Error::invalid(format!("commit {:?}", tracked.id.as_str()), reason))
}

fn writes_of(
    place: usize,
    tracked: &Tracked,
    key: &PartitionKey,
    form: &Form,
) -> Result<Vec<Write>> {
    let body = tracked.entity.document(&form.layout)?;
    if tracked.is_unchanged(&body, &form.layout) {
        return Ok(Vec::new());
    }
    let operation = match &tracked.etag {
        None => Operation::create(body.clone()),
        Some(etag) => Operation::replace(tracked.id.clone(), body.clone()).if_match(etag.clone()),
    };
    let mut writes =
        vec![Write { entity: place, event: None, id: tracked.id.clone(), body, operation }];
    for event in tracked.entity.events().stamped(tracked.id.as_str())? {
        let id_property = tracked.entity.id_property();
        let body = form.layout.event(&event, key, &form.event_type, id_property, form.event_ttl)?;
        let id = ItemId::new(&event.id.to_string()).expect("a UUID can be the id of an item");
        let operation = Operation::create(body.clone());
        writes.push(Write { entity: place, event: Some(event), id, body, operation });
    }
    Ok(writes)
}

fn check_limits(writes: &[Write], limits: Limits) -> Result<()> {
    let operations = writes.len();
    let events = writes.iter().filter(|it| it.event.is_some()).count();
    let attempted = || format!("commit {} entities with {events} events", operations - events);
    if limits.operations_max < operations {
        let operations_max = limits.operations_max;
        let kind = ErrorKind::TooManyOperations { operations, operations_max };
        let reason = format!(
            "these are {operations} documents and one batch takes {operations_max}; commit fewer \
             entities at a time, or raise fewer events"
        );
        return Err(Error::new(kind, attempted()).because(reason));
    }
    if let Some(large) = writes.iter().find(|it| limits.item_bytes_max < it.body.len()) {
        let (bytes, bytes_max) = (large.body.len(), limits.item_bytes_max);
        let reason = format!(
            "document {:?} has {bytes} bytes and may have {bytes_max}; keep large content \
             elsewhere and store where it is",
            large.id.as_str()
        );
        return Err(
            Error::new(ErrorKind::TooLarge { bytes, bytes_max }, attempted()).because(reason)
        );
    }
    let bytes: usize = writes.iter().map(|it| it.body.len()).sum();
    if limits.batch_bytes_max < bytes {
        let bytes_max = limits.batch_bytes_max;
        let reason = format!(
            "these are {bytes} bytes and one batch takes {bytes_max}; commit fewer entities at a \
             time, or let events tell only what changed"
        );
        return Err(
            Error::new(ErrorKind::TooLarge { bytes, bytes_max }, attempted()).because(reason)
        );
    }
    Ok(())
}
