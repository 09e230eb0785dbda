//! Reads what a broker left in its container.

use std::sync::{Arc, Mutex};

use millstream_core::{
    Batch, Documents, Error, ErrorKind, Item, PageSize, PartitionKey, Result, ScanScope,
};

use crate::entity::Entity;
use crate::flaw::Flaw;
use crate::ledger::{Ledger, LedgerSetup};
use crate::log::{Moment, QUEUE_OUTLET};
use crate::marks::Marks;
use crate::outlet::Outlet;
use crate::shared::{EntityCell, EntityState};
use crate::stored::{self, Definition, DocumentKind, EntityDocument};

/// Documents of a partition are read this many at a time, or 16 MiB.
const PAGE: PageSize = PageSize { items_max: 1000, bytes_max: PageSize::BYTES_MAX };
/// Documents that are removed together.
const REMOVED_TOGETHER: usize = 90;
/// How often something may be gone that was there a moment ago.
const SURPRISES_MAX: u32 = 10;

/// Takes over a queue or topic and brings it into memory.
pub(crate) async fn entity(
    setup: &LedgerSetup,
    document: EntityDocument,
) -> Result<Arc<EntityCell>> {
    let partition = document.partition();
    // First the right to write, so that nobody changes what is read.
    let ledger = Ledger::open(setup, &partition).await?;
    let now = Moment { wall: setup.clock.now(), monotonic: setup.clock.monotonic() };
    let mut entity = empty(&document, ledger.next_sequence());
    entity.plant(setup.flaw);
    let partition = PartitionKey::from(partition);
    let mut any_segment = false;
    let scope = ScanScope::Partition(partition.clone());
    visit(&setup.documents, &scope, |item| {
        let kind = stored::kind_of(item.id.as_str());
        if any_segment && matches!(kind, DocumentKind::Ack(..)) {
            let error = Error::new(ErrorKind::Unsupported, format!("open {:?}", document.name));
            return Err(error.because("the store does not scan in the order of ids"));
        }
        any_segment |= matches!(kind, DocumentKind::Segment(_));
        read(&mut entity, kind, item, now)
    })
    .await?;
    entity.discard_orphans();
    Ok(Arc::new(EntityCell {
        generation: document.generation,
        partition,
        ledger: tokio::sync::Mutex::new(ledger),
        state: Mutex::new(EntityState::new(document, entity)),
    }))
}

/// All entities of the catalog.
pub(crate) async fn catalog(documents: &Arc<dyn Documents>) -> Result<Vec<EntityDocument>> {
    let mut found = Vec::new();
    let scope = ScanScope::Partition(PartitionKey::from(stored::CATALOG));
    visit(documents, &scope, |item| {
        if item.id.as_str() != stored::HEAD {
            found.push(stored::parse(&item.body)?);
        }
        Ok(())
    })
    .await?;
    Ok(found)
}

/// Removes all documents of an entity that is gone.
pub(crate) async fn remove(documents: &Arc<dyn Documents>, partition: &str) -> Result<()> {
    let partition_key = PartitionKey::from(partition);
    let mut surprises = 0;
    loop {
        let scope = ScanScope::Partition(partition_key.clone());
        let page = documents.scan(&scope, None, PageSize::items(REMOVED_TOGETHER)).await?;
        if page.items.is_empty() {
            return Ok(());
        }
        let operations = page.items.iter().map(|it| stored::delete(it.id.as_str())).collect();
        let batch = Batch { partition_key: partition_key.clone(), operations };
        match documents.commit(batch).await {
            // What a dead broker wanted to remove may be removed after its death.
            Err(error) if error.kind() == ErrorKind::NotFound && surprises < SURPRISES_MAX => {
                surprises += 1;
            }
            outcome => {
                outcome?;
            }
        }
    }
}

pub(crate) fn empty(document: &EntityDocument, next_sequence: u64) -> Entity {
    let partition = document.partition();
    match &document.definition {
        Definition::Queue(settings) => {
            let mut entity = Entity::new(partition, next_sequence, settings.duplicate_window);
            let outlet = Outlet::new(QUEUE_OUTLET, settings.receive.clone(), None);
            entity.outlets.insert(QUEUE_OUTLET, outlet);
            entity
        }
        Definition::Topic { settings, subscriptions, .. } => {
            let mut entity = Entity::new(partition, next_sequence, settings.duplicate_window);
            for it in subscriptions {
                let time_to_live = settings.default_time_to_live;
                let outlet = Outlet::new(it.number, it.settings.receive.clone(), time_to_live);
                entity.outlets.insert(it.number, outlet);
            }
            entity
        }
    }
}

pub(crate) fn read(
    entity: &mut Entity,
    kind: DocumentKind,
    item: &Item,
    now: Moment,
) -> Result<()> {
    let id = || item.id.as_str().to_owned();
    match kind {
        DocumentKind::Head | DocumentKind::Unknown => (),
        DocumentKind::Segment(first) => {
            let (bytes, _) = stored::unpack(&item.body)?;
            entity.load_segment(first, &bytes, now)?;
        }
        DocumentKind::Ack(number, first) => {
            let (bytes, _) = stored::unpack(&item.body)?;
            let marks = Marks::decode(&bytes)?;
            match entity.outlets.get_mut(&number) {
                Some(outlet) if outlet.flaw == Some(Flaw::SettlementsForgotten) => (),
                Some(outlet) => {
                    outlet.marks.insert(first, marks);
                }
                None => entity.discard(id()),
            }
        }
        DocumentKind::Ids => {
            let (bytes, at) = stored::unpack(&item.body)?;
            let at = at.unwrap_or_default();
            let hashes = stored::unpack_hashes(&bytes)?.into();
            entity.duplicates.load(&hashes, at, now.wall);
            entity.duplicates.stored(at, id());
        }
        DocumentKind::State(number) => {
            entity.load_state(id());
            if !entity.outlets.contains_key(&number) {
                entity.discard_state(id());
            }
        }
    }
    Ok(())
}

pub(crate) async fn visit(
    documents: &Arc<dyn Documents>,
    scope: &ScanScope,
    mut each: impl FnMut(&Item) -> Result<()>,
) -> Result<()> {
    let mut after = None;
    loop {
        let page = documents.scan(scope, after.as_ref(), PAGE).await?;
        page.items.iter().try_for_each(&mut each)?;
        if page.continuation.is_none() {
            return Ok(());
        }
        after = page.continuation;
    }
}
