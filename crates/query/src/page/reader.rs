//! The documents of a query, one read of the store after the other.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use millstream_core::{
    Documents, Item, PageSize, PartitionKey, PartitionKeyDefinition, ScanContinuation,
};

use crate::Limits;
use crate::access::Access;
use crate::continuation::Position;
use crate::error::{Error, Result};
use crate::page::identity;

/// Items of one read of the store.
const ITEMS_MAX: usize = 256;

/// Reads the documents in the order of the accesses.
pub(crate) struct Reader<'r> {
    documents: &'r dyn Documents,
    definition: &'r PartitionKeyDefinition,
    accesses: Vec<Access>,
    access: usize,
    scan: Option<ScanContinuation>,
    /// The last item of the next page that was seen before.
    done: Option<(String, String)>,
}

/// Some documents, and the places between them.
pub(crate) struct Batch {
    pub(crate) items: Vec<Item>,
    access: usize,
    start: Option<ScanContinuation>,
    /// The last item before these in the same page of the scan.
    before: Option<(String, String)>,
    /// The place after the last item; none if there is nothing after it.
    end: Option<Position>,
}

impl<'r> Reader<'r> {
    pub(crate) fn new(
        documents: &'r dyn Documents,
        definition: &'r PartitionKeyDefinition,
        accesses: Vec<Access>,
    ) -> Self {
        Self { documents, definition, accesses, access: 0, scan: None, done: None }
    }

    /// Goes on at a place.
    pub(crate) fn seek(&mut self, position: &Position) -> Result<()> {
        if self.accesses.len() < position.access {
            let reason = "the continuation names a read that this query does not make";
            return Err(Error::continuation(reason));
        }
        self.access = position.access;
        self.scan.clone_from(&position.scan);
        self.done.clone_from(&position.done);
        Ok(())
    }

    /// The next documents, at most that many; none at the end.
    pub(crate) async fn next(&mut self, wanted: usize) -> Result<Option<Batch>> {
        let access = self.access;
        let Some(read) = self.accesses.get(access) else { return Ok(None) };
        Pause::default().await;
        let start = self.scan.take();
        let before = self.done.take();
        let (mut items, after) = match read {
            Access::Point(key, id) => {
                let item = self.documents.read(key, id).await?;
                (item.into_iter().collect::<Vec<_>>(), None)
            }
            Access::Scan(scope) => {
                // Those that were seen before come again.
                let items_max = if before.is_some() { ITEMS_MAX } else { wanted.min(ITEMS_MAX) };
                let size = PageSize::items(items_max.max(1));
                let page = self.documents.scan(scope, start.as_ref(), size).await?;
                (page.items, page.continuation)
            }
        };
        if let Some(before) = &before {
            let is_passed = self.skip(&mut items, before)?;
            // So much has been written in between that the place is still to come.
            if !is_passed && after.is_some() {
                self.done = Some(before.clone());
            }
        }
        match after {
            Some(after) => self.scan = Some(after),
            None => self.access += 1,
        }
        let is_end = self.accesses.len() <= self.access;
        let end = (!is_end).then(|| Position {
            access: self.access,
            scan: self.scan.clone(),
            ..Position::default()
        });
        Ok(Some(Batch { items, access, start, before, end }))
    }

    /// Drops the items up to the one that was done; if it is gone, those that sort before it.
    /// Returns whether its place was passed.
    fn skip(&self, items: &mut Vec<Item>, done: &(String, String)) -> Result<bool> {
        if let Some(place) = items.iter().position(|it| identity(it) == *done) {
            items.drain(..=place);
            return Ok(true);
        }
        let foreign = || Error::continuation("the continuation names a key that is none");
        let key: PartitionKey = done.0.parse().map_err(|_| foreign())?;
        let effective = self.definition.effective(&key)?;
        let mut kept = Vec::with_capacity(items.len());
        for item in items.drain(..) {
            let of_item = self.definition.effective(&item.partition_key)?;
            if (effective.as_bytes(), &*done.1) < (of_item.as_bytes(), item.id.as_str()) {
                kept.push(item);
            }
        }
        *items = kept;
        Ok(!items.is_empty())
    }
}

impl Batch {
    /// The place before the item with this number; none if there is nothing behind it.
    pub(crate) fn before(&self, index: usize) -> Option<Position> {
        if self.items.len() <= index {
            return self.end.clone();
        }
        let last = index.checked_sub(1).and_then(|it| self.items.get(it)).map(identity);
        Some(Position {
            access: self.access,
            scan: self.start.clone(),
            done: last.or_else(|| self.before.clone()),
            begun: None,
        })
    }
}

/// Whoever evaluates for a long time lets others have the thread in between.
pub(crate) struct Pace {
    steps_left: u64,
    /// Steps until the next pause.
    steps_max: u64,
}

impl Pace {
    pub(crate) fn new(limits: &Limits) -> Self {
        Self { steps_left: limits.steps_max, steps_max: limits.document_steps_max / 8 }
    }

    /// Pauses if it is time. `steps_left` are those of the page.
    pub(crate) async fn keep(&mut self, steps_left: u64) {
        if self.steps_max < self.steps_left.saturating_sub(steps_left) {
            self.steps_left = steps_left;
            Pause::default().await;
        }
    }
}

/// Gives way once.
#[derive(Default)]
struct Pause {
    is_over: bool,
}

impl Future for Pause {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.is_over {
            return Poll::Ready(());
        }
        self.is_over = true;
        context.waker().wake_by_ref();
        Poll::Pending
    }
}
