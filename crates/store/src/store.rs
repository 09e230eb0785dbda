use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, RwLock};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use millstream_core::{ContainerName, Error, ErrorKind, Result, Timestamp};

use crate::catalog::Catalog;
use crate::containers::ChangeLock;
use crate::disk::sync_directory;
use crate::engine::{Engine, LOG_DIRECTORY, StoreStatistics, TABLES_DIRECTORY, lock};
use crate::flaw::Flaw;
use crate::format::Format;
use crate::log::Log;
use crate::maintenance::{self, Pace, Progress};
use crate::options::StoreOptions;

/// Documents and their change feed in one data directory. Clones are handles to the same store.
///
/// The store is closed when the last handle is gone; what was acknowledged needs no closing to
/// survive.
///
/// ```
/// use millstream_core::{Containers, conformance::block_on};
/// use millstream_store::Store;
///
/// let directory = tempfile::tempdir()?;
/// let store = Store::open(directory.path())?;
/// block_on(store.create_database("app"))?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Store {
    pub(crate) inner: Arc<Inner>,
    /// Ends the threads with the last handle.
    _threads: Arc<Threads>,
}

#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) engine: Arc<Engine>,
    pub(crate) catalog: RwLock<Catalog>,
    pub(crate) changes: ChangeLock,
    pub(crate) progress: Progress,
    /// Held while a pass of maintenance runs.
    pass: Mutex<()>,
    is_closing: AtomicBool,
    sleeper: Mutex<()>,
    wake: Condvar,
}

/// How far a reader that holds events is behind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuardLag {
    /// The container of the events.
    pub container: ContainerName,
    /// The name it registered with.
    pub reader: String,
    /// The age of the oldest event it has not passed.
    pub oldest_age: Duration,
    /// How long that event would live if nobody held it.
    pub time_to_live: Duration,
}

#[derive(Debug)]
struct Threads {
    inner: Arc<Inner>,
    handles: Vec<JoinHandle<()>>,
    /// The lock of the directory; released when it is dropped.
    _lock: File,
}

impl Store {
    /// Opens the store in `directory`, creating it if there is none.
    ///
    /// # Errors
    ///
    /// `Locked` if another process has it open, `Unsupported` if a newer version wrote it,
    /// `Corrupt` if acknowledged commits cannot be read back, `Unavailable` if the disk fails.
    pub fn open(directory: impl AsRef<Path>) -> Result<Self> {
        Self::open_with(directory, StoreOptions::default())
    }

    /// Opens the store in `directory` with options of one's own.
    ///
    /// # Errors
    ///
    /// As for [`Store::open`]; `Invalid` if an option is out of bounds.
    pub fn open_with(directory: impl AsRef<Path>, options: StoreOptions) -> Result<Self> {
        options.check()?;
        let directory = directory.as_ref();
        let failed = |error: io::Error| {
            Error::new(ErrorKind::Unavailable, format!("open the store in {}", directory.display()))
                .because(error)
        };
        fs::create_dir_all(directory).map_err(failed)?;
        if let Some(parent) = directory.parent().filter(|it| !it.as_os_str().is_empty()) {
            // Best effort: a parent that may not be read cannot be synced.
            let _ = sync_directory(parent);
        }
        let lock = lock_directory(directory)?;
        let format = Format::check(directory)?;
        if format.is_none() {
            let log = directory.join(LOG_DIRECTORY);
            if Log::has_groups(&*options.disk, &log).map_err(failed)? {
                let attempted = format!("open the store in {}", directory.display());
                return Err(Error::new(ErrorKind::Corrupt, attempted).because(
                    "its log holds commits but format.json is missing; restore it from a copy",
                ));
            }
            check_nobodys(directory)?;
            create_directories(directory).map_err(failed)?;
        }
        let engine = Arc::new(Engine::open(directory, format.unwrap_or(Format::NEW), options)?);
        if format.is_none() {
            // The format file comes last: without it nothing can have been acknowledged, and all is
            // made anew.
            Format::write(directory).and_then(|()| sync_directory(directory)).map_err(failed)?;
            // Best effort: beside a format file it means nothing.
            let _ = fs::remove_file(directory.join(UNFINISHED));
        }
        let catalog = Catalog::load(&engine)?;
        if Flaw::NumberReused.is_planted(engine.options().flaw) {
            forget_numbers(&catalog);
        }
        engine.prepare_segments(0).map_err(failed)?;
        let inner = Arc::new(Inner {
            engine,
            catalog: RwLock::new(catalog),
            changes: ChangeLock::default(),
            progress: Progress::default(),
            pass: Mutex::default(),
            is_closing: AtomicBool::new(false),
            sleeper: Mutex::default(),
            wake: Condvar::new(),
        });
        let handles = start_threads(&inner).map_err(failed)?;
        inner.engine.shorten_log();
        let threads = Threads { inner: Arc::clone(&inner), handles, _lock: lock };
        Ok(Self { inner, _threads: Arc::new(threads) })
    }

    /// Removes what has expired, trims old versions and finishes splits now rather than in the
    /// background.
    ///
    /// # Errors
    ///
    /// `Unavailable` if the store has stopped taking writes.
    pub fn maintain(&self) -> Result<()> {
        let _pass = lock(&self.inner.pass);
        maintenance::run(&self.inner, Pace::Hurry)
    }

    /// Moves recent commits from memory to the tables now rather than when there are enough of
    /// them.
    ///
    /// # Errors
    ///
    /// `Unavailable` if the store has stopped taking writes.
    pub fn flush(&self) -> Result<()> {
        self.inner.engine.flush_now()
    }

    /// Figures since the store was opened.
    #[must_use]
    pub fn statistics(&self) -> StoreStatistics {
        self.inner.engine.statistics()
    }

    /// How far the readers that hold events are behind. When the age of an event exceeds its time
    /// to live, it is there only because it is held.
    ///
    /// # Errors
    ///
    /// Those of reading.
    pub fn guard_lags(&self) -> Result<Vec<GuardLag>> {
        let mut lags = Vec::new();
        for container in maintenance::containers(&self.inner) {
            lags.extend(maintenance::lags(&self.inner, &container)?);
        }
        Ok(lags)
    }
}

impl Inner {
    pub(crate) fn now(&self) -> Timestamp {
        self.engine.options().clock.now()
    }

    pub(crate) fn monotonic(&self) -> Duration {
        self.engine.options().clock.monotonic()
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.is_closing.load(Ordering::Acquire)
    }

    /// Rests in the background; closing ends it.
    pub(crate) fn rest(&self, duration: Duration) {
        let sleeper = lock(&self.sleeper);
        if !self.is_closing() {
            drop(self.wake.wait_timeout(sleeper, duration).expect("no holder of the lock panics"));
        }
    }

    fn run_maintenance(self: &Arc<Self>, interval: Duration) {
        while !self.is_closing() {
            self.rest(interval);
            let _pass = lock(&self.pass);
            if let Err(error) = maintenance::run(self, Pace::Yield) {
                if self.is_closing() || self.engine.check_running().is_err() {
                    return;
                }
                tracing::warn!(error = %error.report(), "maintenance will be tried again");
            }
        }
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.inner.is_closing.store(true, Ordering::Release);
        drop(lock(&self.inner.sleeper));
        self.inner.wake.notify_all();
        self.inner.engine.close();
        for handle in self.handles.drain(..) {
            if handle.join().is_err() {
                tracing::error!("a thread of the store panicked");
            }
        }
    }
}

fn start_threads(inner: &Arc<Inner>) -> io::Result<Vec<JoinHandle<()>>> {
    let spawn = |name: &str, run: Box<dyn FnOnce() + Send>| {
        thread::Builder::new().name(format!("mstream:{name}")).spawn(run)
    };
    let (log, flush) = (Arc::clone(&inner.engine), Arc::clone(&inner.engine));
    let mut handles = vec![
        spawn("log", Box::new(move || log.run_log()))?,
        spawn(
            "flush",
            Box::new(move || {
                give_way();
                flush.run_flush();
            }),
        )?,
    ];
    if let Some(interval) = inner.engine.options().maintenance_interval {
        let inner = Arc::clone(inner);
        let run = Box::new(move || inner.run_maintenance(interval));
        handles.push(spawn("upkeep", run)?);
    }
    Ok(handles)
}

/// Lets threads of users go first. Without it, work in the background delays commits by whole time
/// slices on small machines.
pub(crate) fn give_way() {
    // Best effort: a system that does not allow it has longer delays, nothing else.
    #[cfg(target_os = "linux")]
    let _ = rustix::process::nice(BACKGROUND_NICE);
}

#[cfg(target_os = "linux")]
const BACKGROUND_NICE: i32 = 10;

fn lock_directory(directory: &Path) -> Result<File> {
    let attempted = || format!("lock the store in {}", directory.display());
    let path = directory.join("LOCK");
    let opened = File::options().create(true).truncate(false).write(true).open(path);
    let mut file =
        opened.map_err(|error| Error::new(ErrorKind::Unavailable, attempted()).because(error))?;
    match file.try_lock() {
        Ok(()) => {
            // For people who wonder who holds it; nothing reads this back.
            let _ = file.set_len(0);
            let _ = write!(file, "{}", std::process::id());
            Ok(file)
        }
        Err(fs::TryLockError::WouldBlock) => Err(Error::new(ErrorKind::Locked, attempted())
            .because("another process has it open; stop that one or choose another directory")),
        Err(fs::TryLockError::Error(error)) => {
            Err(Error::new(ErrorKind::Unavailable, attempted()).because(error))
        }
    }
}

/// Refuses a directory that has folders of our names which we did not make: they are somebody's.
fn check_nobodys(directory: &Path) -> Result<()> {
    let is_ours = directory.join(UNFINISHED).exists();
    let taken = [TABLES_DIRECTORY, LOG_DIRECTORY].iter().find(|it| directory.join(it).exists());
    match taken {
        Some(name) if !is_ours => {
            let attempted = format!("create a store in {}", directory.display());
            let reason = format!("it has a {name:?} that is not ours; choose an empty directory");
            Err(Error::invalid(attempted, reason))
        }
        _ => Ok(()),
    }
}

/// Makes the directories of a store, in place of what an interrupted attempt may have left.
fn create_directories(directory: &Path) -> io::Result<()> {
    fs::write(directory.join(UNFINISHED), "a store is being created here")?;
    sync_directory(directory)?;
    for name in [TABLES_DIRECTORY, LOG_DIRECTORY] {
        let path = directory.join(name);
        if path.exists() {
            fs::remove_dir_all(&path)?;
        }
        fs::create_dir(&path)?;
    }
    sync_directory(directory)
}

/// The planted bug of [`Flaw::NumberReused`].
fn forget_numbers(catalog: &Catalog) {
    for container in catalog.containers.values() {
        for range in container.ranges().iter() {
            let mut numbering = lock(&range.numbering);
            numbering.record.newest = numbering.record.newest.saturating_sub(1);
        }
    }
}

/// The file that says that what stands beside it comes from an interrupted creation.
const UNFINISHED: &str = "unfinished";
