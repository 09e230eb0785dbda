//! The second half of the way: from the buffer to the tables, and what happens when that is slower
//! than commits.

use std::io;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use millstream_core::{Error, ErrorKind, Result};

use crate::engine::{Engine, LIVE_SEGMENTS_MAX, lock, read, write};
use crate::options::Durability;

impl Engine {
    /// The thread that moves frozen layers to the tables.
    pub(crate) fn run_flush(&self) {
        loop {
            let mut state = lock(&self.flush);
            while !state.is_wanted && !state.is_closed {
                state = self.flush_changed.wait(state).expect("no holder of the lock panics");
            }
            if !state.is_wanted || self.failure.get().is_some() {
                return;
            }
            state.is_wanted = false;
            drop(state);
            if let Err(error) = self.flush_frozen() {
                self.fail(&error.report(), Vec::new());
                self.flush_changed.notify_all();
                return;
            }
        }
    }

    /// Moves everything that is in memory to the tables, for tests and before a backup.
    pub(crate) fn flush_now(&self) -> Result<()> {
        loop {
            self.check_running()?;
            let mut buffer = write(&self.buffer);
            let is_empty = buffer.active.bytes() == 0;
            if buffer.frozen.is_none() && is_empty {
                return Ok(());
            }
            if buffer.frozen.is_none() {
                buffer.freeze();
            }
            drop(buffer);
            self.request_flush();
            self.wait_for_thaw();
        }
    }

    /// After many crashes in a row the log has many segments with little in each; then what was
    /// replayed moves to the tables.
    pub(crate) fn shorten_log(&self) {
        if lock(&self.log).live_segments() <= LIVE_SEGMENTS_MAX {
            return;
        }
        let mut buffer = write(&self.buffer);
        if buffer.frozen.is_none() {
            buffer.freeze();
        }
        drop(buffer);
        self.request_flush();
    }

    /// Slows commits down as the buffer fills faster than it moves to the tables, and holds them
    /// when it is full: a little delay for each rather than a long one for some.
    pub(super) fn make_room(&self) {
        let limit = self.options.write_buffer_bytes;
        let (is_moving, bytes) = {
            let buffer = read(&self.buffer);
            (buffer.frozen.is_some(), buffer.active.bytes())
        };
        if !is_moving || bytes <= limit / 2 {
            return;
        }
        if bytes < limit {
            let over = u32::try_from((bytes - limit / 2) / 1024).unwrap_or(u32::MAX);
            let span = u32::try_from(limit / 2048).unwrap_or(u32::MAX);
            thread::sleep(SLOWDOWN_MAX * over / span.max(1));
            return;
        }
        self.wait_for_thaw();
    }

    pub(super) fn wait_for_thaw(&self) {
        let mut state = lock(&self.flush);
        while read(&self.buffer).frozen.is_some() && self.failure.get().is_none() {
            let waited = self.flush_changed.wait_timeout(state, THAW_POLL);
            state = waited.expect("no holder of the lock panics").0;
        }
    }

    pub(super) fn request_flush(&self) {
        lock(&self.flush).is_wanted = true;
        self.flush_changed.notify_all();
    }

    fn flush_frozen(&self) -> Result<()> {
        let Some(frozen) = read(&self.buffer).frozen.clone() else {
            return Ok(());
        };
        self.wait_for_compaction()?;
        let failed = |error: io::Error| {
            Error::new(ErrorKind::Unavailable, "move commits to the tables").because(error)
        };
        self.options.disk.before_flush().map_err(failed)?;
        // The tables must not hold what the log could still lose, for they take over one by one.
        if self.options.durability != Durability::Always {
            lock(&self.log).sync().map_err(failed)?;
        }
        self.tables.take_over(&frozen)?;
        let applied = frozen.through_group();
        // Others may still look at the layer; whoever is last frees its many entries, which must
        // not happen under the lock.
        let superfluous = write(&self.buffer).thaw();
        drop((frozen, superfluous));
        self.counts.flushes.fetch_add(1, Ordering::Relaxed);
        let _state = lock(&self.flush);
        self.flush_changed.notify_all();
        drop(_state);
        self.prepare_segments(applied).map_err(failed)
    }

    /// Frees the segments of the log that the tables have made superfluous, and sees to it that a
    /// spare one is there.
    pub(crate) fn prepare_segments(&self, applied: u64) -> io::Result<()> {
        let mut log = lock(&self.log);
        log.release_through(applied);
        if !log.needs_spare() {
            return Ok(());
        }
        let plan = log.plan_spare();
        drop(log);
        let spare = plan.make()?;
        lock(&self.log).add_spare(spare);
        Ok(())
    }

    fn wait_for_compaction(&self) -> Result<()> {
        self.tables.nudge_compaction()?;
        while BACKLOG_MAX < self.tables.backlog() && !lock(&self.flush).is_closed {
            thread::sleep(COMPACTION_POLL);
            self.tables.check_alive()?;
            self.tables.nudge_compaction()?;
        }
        Ok(())
    }
}

/// Tables of the newest level that may wait for compaction before commits are slowed down.
const BACKLOG_MAX: usize = 24;
const SLOWDOWN_MAX: Duration = Duration::from_millis(8);
const THAW_POLL: Duration = Duration::from_millis(50);
const COMPACTION_POLL: Duration = Duration::from_millis(5);
