//! Work in the background: expired items, old versions, remains of splits and of deleted
//! containers.
//!
//! Everything is done in small steps that are commits like any other, and a step rests longer than
//! it worked, so that commits of users hardly notice.

mod expiry;
mod history;
mod remains;
mod settle;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use millstream_core::Result;

pub(crate) use crate::maintenance::expiry::lags;
use crate::maintenance::settle::Sweep;

use crate::buffer::Entry;
use crate::engine::{Completion, lock, read, stopped};
use crate::records::RangeRecord;
use crate::state::{ContainerState, Latest, Numbering, RangeState};
use crate::store::Inner;
use crate::view::Section;

/// Entries a step looks at.
const STEP_ENTRIES_MAX: usize = 256;
/// Bytes after which a step looks at no more entries.
const STEP_BYTES_MAX: usize = 4 * 1024 * 1024;

/// What maintenance remembers from one pass to the next.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// Nothing is left among the expiries before this key.
    pub(crate) expiries_done: Mutex<Vec<u8>>,
    /// How long the oldest item that was purged last had been due.
    pub(crate) expiry_lag_ms: AtomicU64,
    /// Where settling goes on, by the segments of the range and of its source.
    pub(crate) sweeps: Mutex<BTreeMap<(u32, u32), Sweep>>,
    passes: AtomicU64,
}

/// How a pass behaves between its steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pace {
    /// As fast as it can.
    Hurry,
    /// Rests after each step for a multiple of what it took.
    Yield,
}

/// What a step found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StepOutcome {
    /// There may be more.
    More,
    Done,
}

/// Does everything that is due.
pub(crate) fn run(inner: &Arc<Inner>, pace: Pace) -> Result<()> {
    let pass = inner.progress.passes.fetch_add(1, Ordering::Relaxed);
    // A clock that was set back may have left expiries behind; look at all of them now and then.
    if pass.is_multiple_of(PASSES_PER_FULL_LOOK) {
        lock(&inner.progress.expiries_done).clear();
    }
    repeat(inner, pace, || remains::apply_changed_expiry(inner))?;
    repeat(inner, pace, || expiry::purge_step(inner))?;
    repeat(inner, pace, || remains::remove_dropped(inner))?;
    for container in containers(inner) {
        if container.check_exists().is_err() {
            continue;
        }
        repeat(inner, pace, || settle::settle_step(inner, &container))?;
        for range in container.ranges().iter() {
            repeat(inner, pace, || history::trim_step(inner, &container, range))?;
        }
        if pass.is_multiple_of(PASSES_PER_WARNING) {
            expiry::warn_about_lag(inner, &container)?;
        }
        settle::split_large(inner, &container)?;
    }
    Ok(())
}

fn repeat(inner: &Inner, pace: Pace, mut step: impl FnMut() -> Result<StepOutcome>) -> Result<()> {
    loop {
        if inner.is_closing() {
            return Ok(());
        }
        let started = inner.monotonic();
        let outcome = step()?;
        if outcome == StepOutcome::Done {
            return Ok(());
        }
        if pace == Pace::Yield {
            let worked = inner.monotonic().saturating_sub(started);
            inner.rest((worked * rest_per_work(inner)).min(REST_MAX));
        }
    }
}

/// The further purging is behind, the less it rests: what expires faster than it is purged would
/// fill the disk.
fn rest_per_work(inner: &Inner) -> u32 {
    match Duration::from_millis(inner.progress.expiry_lag_ms.load(Ordering::Relaxed)) {
        lag if lag < LAG_TO_HURRY => 5,
        lag if lag < LAG_TO_RUN => 2,
        _ => 0,
    }
}

pub(crate) fn containers(inner: &Inner) -> Vec<Arc<ContainerState>> {
    read(&inner.catalog).containers.values().cloned().collect()
}

/// Entries of a section, at most a step's worth, and where the next step goes on.
pub(crate) struct Look {
    pub(crate) entries: Vec<(fjall::Slice, fjall::Slice)>,
    pub(crate) next: Option<Vec<u8>>,
}

pub(crate) fn look(inner: &Inner, section: Section) -> Result<Look> {
    look_at(inner, section, STEP_ENTRIES_MAX)
}

pub(crate) fn look_at(inner: &Inner, mut section: Section, entries_max: usize) -> Result<Look> {
    loop {
        let view = inner.engine.view(vec![section.clone()], |_| 4 * entries_max);
        let mut entries = Vec::new();
        let mut bytes = 0;
        for entry in view.entries(0) {
            let (key, value) = entry?;
            if entries.len() == entries_max || STEP_BYTES_MAX < bytes {
                return Ok(Look { entries, next: Some(key.to_vec()) });
            }
            bytes += value.len();
            entries.push((key, value));
        }
        match view.cut_at(0) {
            // Only removed entries so far: what is wanted comes behind them.
            Some(cut) if entries.is_empty() => section.from = cut.to_vec(),
            cut => {
                let next = cut.map(<[u8]>::to_vec);
                return Ok(Look { entries, next });
            }
        }
    }
}

/// Makes entries durable and waits for it. The thread of the log must never call this.
pub(crate) fn write_and_wait(inner: &Inner, entries: Vec<Entry>) -> Result<()> {
    let (waiter, completion) = Waiter::new(|| {});
    inner.engine.enqueue(entries, [], completion)?;
    waiter.wait()
}

/// Waits for a completion on a thread of its own.
pub(crate) struct Waiter(mpsc::Receiver<Result<(), Arc<str>>>);

impl Waiter {
    pub(crate) fn new(on_success: impl FnOnce() + Send + 'static) -> (Self, Completion) {
        let (sender, receiver) = mpsc::channel();
        let completion = Box::new(move |outcome: Result<(), Arc<str>>| {
            if outcome.is_ok() {
                on_success();
            }
            let _ = sender.send(outcome);
        });
        (Self(receiver), completion)
    }

    pub(crate) fn wait(self) -> Result<()> {
        match self.0.recv() {
            Ok(Ok(())) => Ok(()),
            Ok(Err(reason)) => Err(stopped(&reason).with_unknown_effect()),
            Err(mpsc::RecvError) => Err(stopped("it was closed").with_unknown_effect()),
        }
    }
}

/// Queues an internal commit of a range while its numbering is locked.
pub(crate) fn enqueue_for_range(
    inner: &Inner,
    range: &Arc<RangeState>,
    numbering: &mut Numbering,
    entries: Vec<Entry>,
    record: RangeRecord,
    items: Vec<(fjall::Slice, Latest)>,
) -> Result<Waiter> {
    let completed = Arc::clone(range);
    let (waiter, completion) = Waiter::new(move || completed.advance(record.newest));
    inner.engine.enqueue(entries, [(range.segment, record)], completion)?;
    numbering.note(record, items, range.newest());
    Ok(waiter)
}

const PASSES_PER_WARNING: u64 = 60;
const PASSES_PER_FULL_LOOK: u64 = 600;
const LAG_TO_HURRY: Duration = Duration::from_secs(180);
const LAG_TO_RUN: Duration = Duration::from_secs(600);
const REST_MAX: Duration = Duration::from_millis(200);
