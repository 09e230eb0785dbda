//! Durable table entries: the queue of commits, the thread that logs them in groups, and the thread
//! that moves them to the tables.

mod crowd;
mod entries;
mod flush;

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, RwLock};
use std::time::Duration;

use event_listener::Event;
use fjall::Slice;
use millstream_core::{Error, ErrorKind, Result};

use crate::buffer::{Buffer, Entry, Key, Layer};
use crate::engine::crowd::Crowd;
use crate::engine::entries::encode_entry;
use crate::flaw::Flaw;
use crate::format::Format;
use crate::keys;
use crate::log::{GROUP_HEADER_BYTES, Log, Recovered};
use crate::options::{Durability, StoreOptions};
use crate::records::RangeRecord;
use crate::tables::{Table, Tables};
use crate::view::{Section, View};

pub(crate) use crate::engine::entries::decode_entries;

/// Called once in commit order: with nothing when the entries are durable and visible, with a
/// reason when they are lost.
pub(crate) type Completion = Box<dyn FnOnce(Result<(), Arc<str>>) + Send>;

pub(crate) struct Engine {
    tables: Tables,
    buffer: RwLock<Buffer>,
    queue: Mutex<Queue>,
    queued: Condvar,
    log: Mutex<Log>,
    flush: Mutex<FlushState>,
    flush_changed: Condvar,
    failure: OnceLock<Arc<str>>,
    /// Wakes those who wait for something that will not come any more.
    pub(crate) failed: Event,
    /// Bytes of recent items that the ranges remember.
    pub(crate) remembered: Arc<AtomicUsize>,
    /// When the log was synced last, by the monotonic clock.
    synced_at: Mutex<Duration>,
    options: StoreOptions,
    counts: Counts,
}

#[derive(Debug, Default)]
struct Counts {
    commits: AtomicU64,
    groups: AtomicU64,
    syncs: AtomicU64,
    logged_bytes: AtomicU64,
    flushes: AtomicU64,
}

/// Entries that were not queued; their completion was not called and is given back.
pub(crate) struct Refused {
    pub(crate) error: Error,
    pub(crate) completion: Completion,
}

impl From<Refused> for Error {
    fn from(refused: Refused) -> Self {
        refused.error
    }
}

/// Commits that wait for the log.
#[derive(Default)]
struct Queue {
    /// Encoded entries, with room for the header of the group.
    bytes: Vec<u8>,
    entries: Vec<Entry>,
    /// The newest number of each range that commits touch, by segment.
    ranges: BTreeMap<u32, RangeRecord>,
    completions: Vec<Completion>,
    /// The thread of the log sleeps until this many commits wait; none while it is awake.
    wanted: Option<usize>,
    is_closed: bool,
}

impl Queue {
    /// Empties it but keeps its memory, unless a burst has made it large.
    fn clear(&mut self) {
        if KEPT_BYTES_MAX < self.bytes.capacity() {
            self.bytes = Vec::new();
        }
        self.bytes.clear();
        self.entries.clear();
        self.ranges.clear();
        self.completions.clear();
    }
}

/// A group that is in the log.
struct Written {
    number: u64,
    is_synced: bool,
    /// Whether the log has grown so long that what it holds should move to the tables.
    is_log_long: bool,
}

#[derive(Default)]
struct FlushState {
    is_wanted: bool,
    is_closed: bool,
}

/// Figures of a store since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreStatistics {
    /// Commits that were acknowledged.
    pub commits: u64,
    /// Groups they were written in.
    pub groups: u64,
    /// Calls of fdatasync for them.
    pub syncs: u64,
    /// Bytes written to the commit log.
    pub logged_bytes: u64,
    /// Times that recent commits moved to the tables.
    pub flushes: u64,
    /// Bytes of recent commits in memory.
    pub buffered_bytes: u64,
    /// Bytes of the tables on disk.
    pub table_bytes: u64,
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine").field("options", &self.options).finish_non_exhaustive()
    }
}

impl Engine {
    /// Opens the log and the tables and replays what the tables do not have yet.
    pub(crate) fn open(directory: &Path, format: Format, options: StoreOptions) -> Result<Self> {
        let tables_directory = directory.join(TABLES_DIRECTORY);
        let tables = Tables::open(&tables_directory, format.lanes(), options.cache_bytes)?;
        let applied = match tables.get(Table::Meta, keys::APPLIED_GROUP)? {
            None => 0,
            Some(bytes) => u64::from_le_bytes(bytes[..].try_into().map_err(|_| {
                Error::new(ErrorKind::Corrupt, "read the number of the applied group")
            })?),
        };
        let segment_bytes =
            u64::try_from(options.write_buffer_bytes / 2).expect("a usize fits into 64 bits");
        let log_directory = directory.join(LOG_DIRECTORY);
        let Recovered { log, groups } =
            Log::open(&options.disk, &log_directory, segment_bytes, applied)?;
        let mut active = if groups.is_empty() { Layer::default() } else { Layer::after_replay() };
        active.apply([], applied);
        for (number, payload) in (applied + 1..).zip(groups) {
            let entries = decode_entries(&payload).ok_or_else(|| {
                Error::new(
                    ErrorKind::Corrupt,
                    format!("understand group {number} of the commit log"),
                )
            })?;
            active.apply(entries, number);
        }
        Ok(Self {
            tables,
            buffer: RwLock::new(Buffer { active, ..Buffer::default() }),
            queue: Mutex::default(),
            queued: Condvar::new(),
            log: Mutex::new(log),
            flush: Mutex::default(),
            flush_changed: Condvar::new(),
            failure: OnceLock::new(),
            failed: Event::new(),
            remembered: Arc::default(),
            synced_at: Mutex::default(),
            options,
            counts: Counts::default(),
        })
    }

    pub(crate) fn options(&self) -> &StoreOptions {
        &self.options
    }

    /// Queues entries that become durable and visible together. Entries queued later never become
    /// durable earlier.
    ///
    /// Records of ranges are given apart: of several in one group the last counts, whatever else is
    /// in it. Nothing at all may be queued too, to learn when everything before is durable.
    pub(crate) fn enqueue(
        &self,
        entries: Vec<Entry>,
        ranges: impl IntoIterator<Item = (u32, RangeRecord)>,
        completion: Completion,
    ) -> Result<(), Refused> {
        if let Err(error) = self.check_running() {
            return Err(Refused { error, completion });
        }
        let mut queue = lock(&self.queue);
        if queue.is_closed {
            return Err(Refused { error: closed(), completion });
        }
        if GROUP_BYTES_MAX < queue.bytes.len() {
            return Err(Refused { error: overloaded("the disk is behind"), completion });
        }
        if queue.bytes.is_empty() {
            queue.bytes.resize(GROUP_HEADER_BYTES, 0);
        }
        for entry in &entries {
            encode_entry(entry, &mut queue.bytes);
        }
        queue.entries.extend(entries);
        queue.ranges.extend(ranges);
        queue.completions.push(completion);
        let count = queue.completions.len();
        // Waking costs a system call, whether it is needed or not.
        let is_enough = queue.wanted.take_if(|it| *it <= count).is_some();
        drop(queue);
        if is_enough {
            self.queued.notify_one();
        }
        Ok(())
    }

    /// Looks a key up.
    pub(crate) fn get(&self, table: Table, key: impl Into<Key>) -> Result<Option<Slice>> {
        let key = key.into();
        let recent = read(&self.buffer).get(table, &key);
        match recent {
            Some(answer) => Ok(answer),
            None => self.tables.get(table, &key),
        }
    }

    /// Looks several keys up.
    pub(crate) fn get_all(&self, table: Table, keys: &[Key]) -> Result<Vec<Option<Slice>>> {
        let buffer = read(&self.buffer);
        let recent: Vec<_> = keys.iter().map(|it| buffer.get(table, it)).collect();
        drop(buffer);
        let answers = recent.into_iter().zip(keys);
        answers
            .map(|(recent, key)| recent.map_or_else(|| self.tables.get(table, key), Ok))
            .collect()
    }

    /// Sections of tables as they are now. `recent_max` says how many entries of the active layer
    /// are worth copying if this is the first of them.
    pub(crate) fn view(
        &self,
        sections: Vec<Section>,
        recent_max: impl Fn(&[u8]) -> usize,
    ) -> View<'_> {
        for section in &sections {
            // Not while the buffer is locked; and if the disk fails, reading the section tells.
            let _ = self.tables.learn_reach(section);
        }
        View::capture(&self.tables, &read(&self.buffer), sections, recent_max)
    }

    /// Why the store takes no writes any more, if it does not.
    pub(crate) fn check_running(&self) -> Result<()> {
        match self.failure.get() {
            None => Ok(()),
            Some(reason) => Err(stopped(reason)),
        }
    }

    pub(crate) fn statistics(&self) -> StoreStatistics {
        let count = |it: &AtomicU64| it.load(Ordering::Relaxed);
        let buffer = read(&self.buffer);
        let frozen = buffer.frozen.as_ref().map_or(0, |it| it.bytes());
        StoreStatistics {
            commits: count(&self.counts.commits),
            groups: count(&self.counts.groups),
            syncs: count(&self.counts.syncs),
            logged_bytes: count(&self.counts.logged_bytes),
            flushes: count(&self.counts.flushes),
            buffered_bytes: u64::try_from(buffer.active.bytes() + frozen).unwrap_or(u64::MAX),
            table_bytes: self.tables.disk_bytes(),
        }
    }

    /// Stops both threads once everything queued is durable.
    pub(crate) fn close(&self) {
        lock(&self.queue).is_closed = true;
        self.queued.notify_all();
        lock(&self.flush).is_closed = true;
        self.flush_changed.notify_all();
    }

    /// The thread that logs commits in groups: everything that has been queued while the last group
    /// was synced.
    pub(crate) fn run_log(&self) {
        let mut unsynced = false;
        let mut group = Queue::default();
        let mut crowd = Crowd::default();
        while self.next_group(&mut group, unsynced, &crowd) {
            if group.completions.is_empty() {
                unsynced = self.sync_log().is_err();
                continue;
            }
            crowd.saw(group.completions.len());
            match self.write_group(&mut group) {
                Ok(written) => {
                    unsynced = !written.is_synced;
                    self.complete(&mut group, &written);
                }
                Err(error) => self.fail(&error.to_string(), group.completions.drain(..).collect()),
            }
            group.clear();
        }
    }

    /// Exchanges the empty `group` for everything that waits; false at the end. An empty one means
    /// that it is time to sync.
    fn next_group(&self, group: &mut Queue, unsynced: bool, crowd: &Crowd) -> bool {
        let mut queue = lock(&self.queue);
        let wanted = crowd.worth_waiting_for(queue.completions.len());
        while queue.completions.is_empty() {
            queue.wanted = Some(1);
            if queue.is_closed {
                drop(queue);
                if unsynced {
                    let _ = self.sync_log();
                }
                return false;
            }
            match (self.options.durability, unsynced) {
                (Durability::Interval(interval), true) => {
                    let waited = self.queued.wait_timeout(queue, interval);
                    queue = waited.expect("no holder of the lock panics").0;
                    if queue.completions.is_empty() {
                        return true;
                    }
                }
                _ => queue = self.queued.wait(queue).expect("no holder of the lock panics"),
            }
        }
        if queue.completions.len() < wanted.commits && !queue.is_closed {
            queue.wanted = Some(wanted.commits);
            let waited = self.queued.wait_timeout(queue, wanted.time_max);
            queue = waited.expect("no holder of the lock panics").0;
        }
        group.is_closed = queue.is_closed;
        std::mem::swap(&mut *queue, group);
        queue.wanted = None;
        true
    }

    fn write_group(&self, group: &mut Queue) -> io::Result<Written> {
        if let Some(reason) = self.failure.get() {
            return Err(io::Error::other(reason.to_string()));
        }
        for (segment, record) in std::mem::take(&mut group.ranges) {
            let entry = Entry::put(Table::Meta, keys::range(segment), record.encode());
            encode_entry(&entry, &mut group.bytes);
            group.entries.push(entry);
        }
        let mut log = lock(&self.log);
        let number = if Flaw::FeedEntryLater.is_planted(self.options.flaw) {
            append_in_two(&mut log, group)?
        } else {
            log.append(&mut group.bytes)?
        };
        let is_synced = match self.options.durability {
            Durability::Always => !Flaw::AcknowledgeBeforeSync.is_planted(self.options.flaw),
            Durability::Interval(interval) => interval <= self.unsynced_for(),
            Durability::Never => false,
        };
        if is_synced {
            log.sync()?;
            self.note_sync();
        }
        let is_log_long = LIVE_SEGMENTS_MAX < log.live_segments();
        drop(log);
        let bytes = u64::try_from(group.bytes.len()).unwrap_or(u64::MAX);
        self.counts.logged_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.counts.groups.fetch_add(1, Ordering::Relaxed);
        Ok(Written { number, is_synced, is_log_long })
    }

    fn sync_log(&self) -> Result<(), ()> {
        let synced = lock(&self.log).sync();
        self.note_sync();
        synced.map_err(|error| self.fail(&error.to_string(), Vec::new()))
    }

    fn note_sync(&self) {
        *lock(&self.synced_at) = self.options.clock.monotonic();
        self.counts.syncs.fetch_add(1, Ordering::Relaxed);
    }

    fn unsynced_for(&self) -> Duration {
        self.options.clock.monotonic().saturating_sub(*lock(&self.synced_at))
    }

    fn complete(&self, group: &mut Queue, written: &Written) {
        self.make_room();
        let mut buffer = write(&self.buffer);
        buffer.active.apply(group.entries.drain(..), written.number);
        // Items that are written again and again fill the log but not the buffer.
        let is_full =
            written.is_log_long || self.options.write_buffer_bytes <= buffer.active.bytes();
        let freezes = is_full && buffer.frozen.is_none();
        if freezes {
            buffer.freeze();
        }
        drop(buffer);
        if freezes {
            self.request_flush();
        }
        let count = u64::try_from(group.completions.len()).unwrap_or(u64::MAX);
        self.counts.commits.fetch_add(count, Ordering::Relaxed);
        for completion in group.completions.drain(..) {
            completion(Ok(()));
        }
    }

    /// Stops taking writes for good: what the disk holds is no longer known. Reopening the store
    /// finds out.
    fn fail(&self, reason: &str, completions: Vec<Completion>) {
        let reason: Arc<str> = reason.into();
        if self.failure.set(Arc::clone(&reason)).is_ok() {
            tracing::error!(%reason, "stopped taking writes");
        }
        self.failed.notify(usize::MAX);
        let waiting = std::mem::take(&mut lock(&self.queue).completions);
        for completion in completions.into_iter().chain(waiting) {
            completion(Err(Arc::clone(&reason)));
        }
    }
}

pub(crate) fn stopped(reason: &str) -> Error {
    Error::new(ErrorKind::Unavailable, "write to the store")
        .because(format!("it stopped taking writes ({reason}); repair the disk and open it again"))
}

pub(crate) fn overloaded(reason: &str) -> Error {
    Error::new(ErrorKind::Overloaded, "take another commit")
        .because(format!("too many are waiting: {reason}"))
        .with_retry_after(RETRY_AFTER)
}

fn closed() -> Error {
    Error::new(ErrorKind::Unavailable, "write to the store").because("it has been closed")
}

/// The planted bug of [`Flaw::FeedEntryLater`]: feed entries reach the log in a second write.
fn append_in_two(log: &mut Log, group: &Queue) -> io::Result<u64> {
    let part = |of_feed: bool| {
        let mut bytes = vec![0; GROUP_HEADER_BYTES];
        for entry in group.entries.iter().filter(|it| (it.table == Table::Feed) == of_feed) {
            encode_entry(entry, &mut bytes);
        }
        bytes
    };
    log.append(&mut part(false))?;
    log.sync()?;
    log.append(&mut part(true))
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no holder of the lock panics")
}

pub(crate) fn read<T>(lock: &RwLock<T>) -> std::sync::RwLockReadGuard<'_, T> {
    lock.read().expect("no holder of the lock panics")
}

pub(crate) fn write<T>(lock: &RwLock<T>) -> std::sync::RwLockWriteGuard<'_, T> {
    lock.write().expect("no holder of the lock panics")
}

pub(crate) const TABLES_DIRECTORY: &str = "tables";
pub(crate) const LOG_DIRECTORY: &str = "log";

/// Memory of a group that is kept for the next one.
const KEPT_BYTES_MAX: usize = 1024 * 1024;
/// Bytes of commits that may wait for the log before more are refused.
const GROUP_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Segments with groups that have not moved to the tables, before that is done whatever they hold.
const LIVE_SEGMENTS_MAX: usize = 6;
const RETRY_AFTER: Duration = Duration::from_millis(20);
