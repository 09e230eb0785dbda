//! Makes the target the same as the source, which nobody writes to any more.

use std::collections::BTreeMap;

use futures_util::stream::{self, StreamExt, TryStreamExt};
use millstream_core::{
    Batch, Container, Item, ItemId, KeyRange, Operation, PageSize, PartitionKey, ScanScope,
    says_the_same,
};

use crate::failure::Result;
use crate::migrate::copy::{Copier, patiently};

/// Items looked at together.
const PAGE_ITEMS: usize = 1_000;
/// Items that are looked up beside each other.
const ITEMS_AT_ONCE: usize = 64;

/// In what the sides differed before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Differences {
    /// Items of the source.
    pub(super) items: u64,
    /// Items that only the target had.
    pub(super) removed: u64,
    /// Items that the target did not have, or otherwise.
    pub(super) repaired: u64,
}

impl Differences {
    pub(super) fn add(&mut self, other: &Self) {
        self.items = other.items;
        self.removed += other.removed;
        self.repaired += other.repaired;
    }
}

/// Looks at every item of both sides.
pub(super) async fn compare(copier: &Copier) -> Result<Differences> {
    let mut found = Differences::default();
    let mut pages = Pages::new(&copier.source);
    while let Some(items) = pages.next(copier).await? {
        found.items += u64::try_from(items.len()).unwrap_or(u64::MAX);
        found.repaired += repair(copier, items).await?;
    }
    let mut pages = Pages::new(&copier.target);
    while let Some(items) = pages.next(copier).await? {
        found.removed += remove(copier, items).await?;
    }
    Ok(found)
}

/// The items of a container, a page at a time.
struct Pages<'a> {
    container: &'a Container,
    after: Option<Option<millstream_core::ScanContinuation>>,
}

impl<'a> Pages<'a> {
    fn new(container: &'a Container) -> Self {
        Self { container, after: Some(None) }
    }

    async fn next(&mut self, copier: &Copier) -> Result<Option<Vec<Item>>> {
        let Some(after) = self.after.take() else { return Ok(None) };
        let (scope, size) = (ScanScope::Keys(KeyRange::all()), PageSize::items(PAGE_ITEMS));
        let documents = &self.container.documents;
        let call = || documents.scan(&scope, after.as_ref(), size);
        let page = patiently(&*copier.clock, call).await?;
        self.after = page.continuation.map(Some);
        Ok(Some(page.items))
    }
}

/// What the other side has of an item.
async fn other_side(copier: &Copier, side: &Container, item: &Item) -> Result<Option<Item>> {
    let call = || side.documents.read(&item.partition_key, &item.id);
    Ok(patiently(&*copier.clock, call).await?)
}

async fn repair(copier: &Copier, items: Vec<Item>) -> Result<u64> {
    let differing: Vec<Option<Item>> = stream::iter(items)
        .map(|item| async move {
            let found = other_side(copier, &copier.target, &item).await?;
            // A service may have written it anew in its own way.
            let is_same =
                found.is_some_and(|it| says_the_same(&it.body, &item.body, copier.numbers));
            Ok::<_, crate::failure::Failure>(Some(item).filter(|_| !is_same))
        })
        // In order, as items of a key must be written in theirs.
        .buffered(ITEMS_AT_ONCE)
        .try_collect()
        .await?;
    let mut repaired = 0;
    for item in differing.into_iter().flatten() {
        copier.upsert(&item.partition_key, vec![vec![item.body]]).await?;
        repaired += 1;
    }
    Ok(repaired)
}

async fn remove(copier: &Copier, items: Vec<Item>) -> Result<u64> {
    let extra: Vec<Option<(PartitionKey, ItemId)>> = stream::iter(items)
        .map(|item| async move {
            let found = other_side(copier, &copier.source, &item).await?;
            let extra = found.is_none().then_some((item.partition_key, item.id));
            Ok::<_, crate::failure::Failure>(extra)
        })
        .buffered(ITEMS_AT_ONCE)
        .try_collect()
        .await?;
    let mut keys: BTreeMap<PartitionKey, Vec<ItemId>> = BTreeMap::new();
    for (key, id) in extra.into_iter().flatten() {
        keys.entry(key).or_default().push(id);
    }
    let mut removed = 0;
    for (key, ids) in keys {
        for id in ids {
            let batch = Batch::new(key.clone()).with(Operation::delete(id));
            match copier.target.documents.commit(batch).await {
                Ok(_) => removed += 1,
                // It has expired meanwhile, or a repetition finds it gone.
                Err(error) if error.kind() == millstream_core::ErrorKind::NotFound => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
    Ok(removed)
}
