//! Which changes wait for the handler, and what was tried already. No I/O, no clock.
//!
//! A lane is a sequence of changes of which one batch at a time is with the handler: all changes of
//! the lease when they are handled serially, those of one partition key otherwise.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use millstream_core::PartitionKey;
use rustc_hash::FxHashMap;

use crate::batch::{Page, Segment, push};

/// Names a lane.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum LaneKey {
    /// The only one.
    All,
    /// That of a partition key, which is shared because a lane is named often.
    Of(Arc<PartitionKey>),
}

/// The lanes of a lease.
pub(crate) struct Lanes {
    keyed: bool,
    batch_items_max: usize,
    lanes: FxHashMap<LaneKey, Lane>,
    ready: VecDeque<LaneKey>,
    /// Lanes that wait, by when they go on. The number tells apart those of the same time.
    waiting: BTreeMap<(Duration, u64), LaneKey>,
    waits: u64,
}

#[derive(Default)]
struct Lane {
    queue: VecDeque<Segment>,
    /// Failed attempts at what is first in the queue.
    attempts: u32,
    /// While the failing change is looked for: how many changes are suspected, and how many are
    /// tried at once.
    suspects: usize,
    chunk: usize,
    busy: bool,
}

/// What to try next after a failure.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The same changes, after a pause.
    Retry {
        /// Failed attempts so far.
        attempts: u32,
    },
    /// Fewer changes, at once, to find the one that fails.
    Narrow,
    /// The first change failed as often as it may.
    GiveUp {
        /// Failed attempts.
        attempts: u32,
    },
}

/// How a batch failed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Failure {
    /// Some changes of the batch were done.
    pub(crate) progressed: bool,
    /// The first change that is not done is the one that failed.
    pub(crate) is_first: bool,
    /// There is no point in trying again.
    pub(crate) permanent: bool,
}

impl Lanes {
    pub(crate) fn new(keyed: bool, batch_items_max: usize) -> Self {
        Self {
            keyed,
            batch_items_max,
            lanes: FxHashMap::default(),
            ready: VecDeque::new(),
            waiting: BTreeMap::new(),
            waits: 0,
        }
    }

    /// Adds the changes of a page behind the others.
    pub(crate) fn add(&mut self, page: &Arc<Page>) {
        if !self.keyed {
            let segment = Segment { page: Arc::clone(page), range: 0..page.changes.len() };
            self.append(LaneKey::All, segment);
            return;
        }
        let mut start = 0;
        // A commit has one partition key, so changes of the same key often stand together.
        for run in page.changes.chunk_by(|one, next| one.partition_key == next.partition_key) {
            let end = start + run.len();
            let segment = Segment { page: Arc::clone(page), range: start..end };
            self.append(LaneKey::Of(Arc::new(run[0].partition_key.clone())), segment);
            start = end;
        }
    }

    /// Takes the next batch of a lane that has none with the handler, from pages up to `page_max`.
    pub(crate) fn take(&mut self, page_max: u64) -> Option<(LaneKey, Vec<Segment>, u32)> {
        for _ in 0..self.ready.len() {
            let key = self.ready.pop_front()?;
            let Some(lane) = self.lanes.get_mut(&key) else { continue };
            if lane.queue.front().is_none_or(|it| page_max < it.page.number) {
                self.ready.push_back(key);
                continue;
            }
            lane.busy = true;
            let batch = lane.pop(self.keyed, self.batch_items_max, page_max);
            return Some((key, batch, lane.attempts));
        }
        None
    }

    /// Whether changes of the key may be with the handler.
    pub(crate) fn is_busy_with(&self, key: &PartitionKey) -> bool {
        let name = match self.keyed {
            true => LaneKey::Of(Arc::new(key.clone())),
            false => LaneKey::All,
        };
        self.lanes.get(&name).is_some_and(|it| it.busy)
    }

    /// Whether [`Lanes::take`] would return something.
    pub(crate) fn has_ready(&self, page_max: u64) -> bool {
        self.ready.iter().any(|key| {
            let first = self.lanes.get(key).and_then(|it| it.queue.front());
            first.is_some_and(|it| it.page.number <= page_max)
        })
    }

    /// The batch of a lane is done; `items` changes of it.
    pub(crate) fn succeeded(&mut self, key: &LaneKey, items: usize) {
        let Some(lane) = self.lanes.get_mut(key) else { return };
        lane.suspects = lane.suspects.saturating_sub(items);
        if lane.suspects == 0 {
            lane.attempts = 0;
        }
        self.go_on(key);
    }

    /// The batch of a lane failed; `rest` is what is not done of it. The lane stays busy until
    /// [`Lanes::wait_until`] or [`Lanes::go_on`]; `GiveUp` leaves out the first change, which the
    /// caller has to put aside.
    pub(crate) fn failed(
        &mut self,
        key: &LaneKey,
        mut rest: Vec<Segment>,
        failure: Failure,
        attempts_max: u32,
    ) -> (Verdict, Option<Segment>) {
        let lane = self.lanes.get_mut(key).expect("a lane stays while its batch is handled");
        if failure.progressed {
            lane.attempts = 0;
            lane.suspects = 0;
        }
        let items = count(&rest);
        let searching = 0 < lane.suspects;
        if !searching {
            lane.attempts = if failure.permanent { attempts_max } else { lane.attempts + 1 };
            if lane.attempts < attempts_max {
                let attempts = lane.attempts;
                lane.put_back(rest);
                return (Verdict::Retry { attempts }, None);
            }
        }
        if items == 1 || failure.is_first {
            let attempts = lane.attempts;
            let first = split_first(&mut rest);
            lane.suspects = lane.suspects.saturating_sub(1);
            if lane.suspects == 0 {
                lane.attempts = 0;
            }
            lane.put_back(rest);
            return (Verdict::GiveUp { attempts }, first);
        }
        if !searching {
            lane.suspects = items;
        }
        lane.chunk = items.div_ceil(2);
        lane.put_back(rest);
        (Verdict::Narrow, None)
    }

    /// So many changes of the lane went another way, and are not suspected of failing any more.
    pub(crate) fn acquit(&mut self, key: &LaneKey, items: usize) {
        let Some(lane) = self.lanes.get_mut(key) else { return };
        if 0 < lane.suspects {
            lane.suspects = lane.suspects.saturating_sub(items);
            if lane.suspects == 0 {
                lane.attempts = 0;
            }
        }
    }

    /// Puts changes back to the front of a lane that keeps its attempts.
    pub(crate) fn put_back(&mut self, key: &LaneKey, rest: Vec<Segment>) {
        if let Some(lane) = self.lanes.get_mut(key) {
            lane.put_back(rest);
        }
    }

    /// Attempts of an earlier owner at what is first in the lane.
    pub(crate) fn remember_attempts(&mut self, key: &LaneKey, attempts: u32) {
        if let Some(lane) = self.lanes.get_mut(key) {
            lane.attempts = lane.attempts.max(attempts);
        }
    }

    /// The lane has no batch with the handler any more.
    pub(crate) fn go_on(&mut self, key: &LaneKey) {
        let Some(lane) = self.lanes.get_mut(key) else { return };
        lane.busy = false;
        if lane.queue.is_empty() {
            self.lanes.remove(key);
        } else {
            self.ready.push_back(key.clone());
        }
    }

    /// The lane goes on at that time.
    pub(crate) fn wait_until(&mut self, key: &LaneKey, time: Duration) {
        self.waits += 1;
        self.waiting.insert((time, self.waits), key.clone());
    }

    /// Lets lanes go on whose time has come, and returns when the next one will.
    pub(crate) fn release_due(&mut self, now: Duration) -> Option<Duration> {
        loop {
            let (&(time, _), _) = self.waiting.first_key_value()?;
            if now < time {
                return Some(time);
            }
            if let Some((_, key)) = self.waiting.pop_first() {
                self.go_on(&key);
            }
        }
    }

    fn append(&mut self, key: LaneKey, segment: Segment) {
        let lane = self.lanes.entry(key.clone()).or_default();
        if lane.queue.is_empty() && !lane.busy {
            self.ready.push_back(key);
        }
        match lane.queue.back_mut() {
            Some(last)
                if Arc::ptr_eq(&last.page, &segment.page)
                    && last.range.end == segment.range.start =>
            {
                last.range.end = segment.range.end;
            }
            _ => lane.queue.push_back(segment),
        }
    }
}

impl Lane {
    /// The next changes: whole pages when handled serially, so that a lease can be handed over
    /// between any two batches, and as many as a batch may have, so that small pages that came
    /// while the handler was busy do not take a call each; fewer while a failing one is looked for.
    fn pop(&mut self, keyed: bool, items_max: usize, page_max: u64) -> Vec<Segment> {
        let limit = match (0 < self.suspects, keyed) {
            (true, _) => self.chunk.min(self.suspects),
            (false, true) => items_max,
            (false, false) => self.whole_pages(items_max, page_max),
        };
        let mut batch = Vec::new();
        let mut left = limit;
        while 0 < left
            && let Some(segment) = self.queue.front_mut()
            && segment.page.number <= page_max
        {
            let taken = left.min(segment.range.len());
            let cut = segment.range.start + taken;
            batch
                .push(Segment { page: Arc::clone(&segment.page), range: segment.range.start..cut });
            segment.range.start = cut;
            left -= taken;
            if segment.range.is_empty() {
                self.queue.pop_front();
            }
        }
        batch
    }

    /// How many changes the first pages have that fit into a batch, at least those of one.
    fn whole_pages(&self, items_max: usize, page_max: u64) -> usize {
        let mut items = 0;
        for segment in self.queue.iter().take_while(|it| it.page.number <= page_max) {
            let more = items + segment.range.len();
            if 0 < items && items_max < more {
                break;
            }
            items = more;
        }
        items
    }

    fn put_back(&mut self, rest: Vec<Segment>) {
        for segment in rest.into_iter().rev() {
            match self.queue.front_mut() {
                Some(first)
                    if Arc::ptr_eq(&first.page, &segment.page)
                        && segment.range.end == first.range.start =>
                {
                    first.range.start = segment.range.start;
                }
                _ => self.queue.push_front(segment),
            }
        }
    }
}

/// How many changes the segments have.
pub(crate) fn count(segments: &[Segment]) -> usize {
    segments.iter().map(|it| it.range.len()).sum()
}

/// Cuts off the first change.
pub(crate) fn split_first(segments: &mut Vec<Segment>) -> Option<Segment> {
    let segment = segments.first_mut()?;
    let index = segment.range.start;
    segment.range.start += 1;
    let page = Arc::clone(&segment.page);
    if segment.range.is_empty() {
        segments.remove(0);
    }
    let mut first = Vec::new();
    push(&mut first, &page, index);
    first.pop()
}

/// The pages that were read and are not done, and how far everything is.
#[derive(Default)]
pub(crate) struct Progress {
    pages: VecDeque<Arc<Page>>,
    items: usize,
}

impl Progress {
    pub(crate) fn add(&mut self, page: Arc<Page>) {
        self.items += page.changes.len();
        self.pages.push_back(page);
    }

    /// Changes in memory.
    pub(crate) fn items(&self) -> usize {
        self.items
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.pages.is_empty()
    }

    /// Forgets pages that are done as long as everything before them is. Returns the last one, and
    /// how many changes they had.
    pub(crate) fn advance(&mut self) -> Option<(Arc<Page>, usize)> {
        let before = self.items;
        let mut last = None;
        while self.pages.front().is_some_and(|it| it.is_finished())
            && let Some(page) = self.pages.pop_front()
        {
            self.items -= page.changes.len();
            last = Some(page);
        }
        last.map(|it| (it, before - self.items))
    }

    /// The first page that is partly done: where it begins, and how many of its changes are done
    /// from the first on.
    pub(crate) fn partly_done(&self) -> Option<(&Arc<Page>, usize)> {
        let page = self.pages.front()?;
        let done = page.done_prefix();
        (0 < done).then_some((page, done))
    }
}
