use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use millstream_core::{Change, Continuation};
use tokio::sync::Notify;

/// A page of the feed in memory, with a note of which changes are done.
pub(crate) struct Page {
    pub(crate) changes: Vec<Change>,
    done: Vec<AtomicBool>,
    open: AtomicUsize,
    /// Larger for later pages of the same worker.
    pub(crate) number: u64,
    /// Where the page was read from.
    pub(crate) start: Continuation,
    /// Where reading goes on after it.
    pub(crate) end: Continuation,
    /// Told when a change is acknowledged by the handler.
    acknowledged: Arc<Notify>,
}

/// Changes that stand next to each other in a page.
#[derive(Clone)]
pub(crate) struct Segment {
    pub(crate) page: Arc<Page>,
    pub(crate) range: Range<usize>,
}

/// Changes for a handler, in commit order. Clones are the same batch.
#[derive(Clone)]
pub struct ChangeBatch {
    segments: Arc<[Segment]>,
}

impl ChangeBatch {
    pub(crate) fn new(segments: Vec<Segment>) -> Self {
        Self { segments: segments.into() }
    }

    /// How many changes there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.segments.iter().map(|it| it.range.len()).sum()
    }

    /// Whether there is none; a handler never gets such a batch.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.segments.iter().all(|it| it.range.is_empty())
    }

    /// The changes in commit order.
    pub fn iter(&self) -> impl Iterator<Item = &Change> {
        self.segments.iter().flat_map(|it| &it.page.changes[it.range.clone()])
    }

    /// The change at this place, counted from 0.
    #[must_use]
    pub fn get(&self, index: usize) -> Option<&Change> {
        self.iter().nth(index)
    }

    /// Says that a change is done, counted from 0. It is not delivered again if the rest of the
    /// batch fails, and the position moves past it once everything before it is done.
    ///
    /// With [`crate::Checkpoint::ByHand`] this is what moves the position; it may be called long
    /// after the handler returned, on any thread. More than once does no harm.
    pub fn acknowledge(&self, index: usize) {
        let mut left = index;
        for segment in self.segments.iter() {
            if left < segment.range.len() {
                segment.page.finish(segment.range.start + left);
                segment.page.acknowledged.notify_one();
                return;
            }
            left -= segment.range.len();
        }
    }

    /// Says that all changes are done.
    pub fn acknowledge_all(&self) {
        self.finish();
        if let Some(segment) = self.segments.first() {
            segment.page.acknowledged.notify_one();
        }
    }

    pub(crate) fn finish(&self) {
        for segment in self.segments.iter() {
            for index in segment.range.clone() {
                segment.page.finish(index);
            }
        }
    }

    /// What has not been acknowledged, in order.
    pub(crate) fn open(&self) -> Vec<Segment> {
        let mut open: Vec<Segment> = Vec::new();
        for segment in self.segments.iter() {
            for index in segment.range.clone().filter(|it| !segment.page.is_done(*it)) {
                push(&mut open, &segment.page, index);
            }
        }
        open
    }
}

impl fmt::Debug for ChangeBatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter().map(|it| (it.lsn, &it.id))).finish()
    }
}

impl Page {
    pub(crate) fn new(
        number: u64,
        changes: Vec<Change>,
        start: Continuation,
        end: Continuation,
        acknowledged: Arc<Notify>,
    ) -> Arc<Self> {
        let done = changes.iter().map(|_| AtomicBool::new(false)).collect();
        let open = AtomicUsize::new(changes.len());
        Arc::new(Self { changes, done, open, number, start, end, acknowledged })
    }

    /// Whether every change is done.
    pub(crate) fn is_finished(&self) -> bool {
        self.open.load(Ordering::Acquire) == 0
    }

    pub(crate) fn is_done(&self, index: usize) -> bool {
        self.done[index].load(Ordering::Acquire)
    }

    pub(crate) fn finish(&self, index: usize) {
        if !self.done[index].swap(true, Ordering::AcqRel) {
            self.open.fetch_sub(1, Ordering::AcqRel);
        }
    }

    /// How many changes from the first on are done.
    pub(crate) fn done_prefix(&self) -> usize {
        (0..self.changes.len()).take_while(|it| self.is_done(*it)).count()
    }
}

/// Adds a change behind the others, to the last segment where it fits.
pub(crate) fn push(segments: &mut Vec<Segment>, page: &Arc<Page>, index: usize) {
    if let Some(last) = segments.last_mut()
        && Arc::ptr_eq(&last.page, page)
        && last.range.end == index
    {
        last.range.end += 1;
        return;
    }
    segments.push(Segment { page: Arc::clone(page), range: index..index + 1 });
}
