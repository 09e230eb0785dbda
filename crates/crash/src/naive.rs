//! The smallest store that keeps the promises, and ways to break it on purpose.
//!
//! Proves the machinery of this crate: the correct one must pass, each mutant must be caught.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, File, OpenOptions},
    io::{self, Write},
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    thread,
};

use crate::{
    error::{Attempt, Error, Result},
    subject::{Ack, Acks, FeedItem, ItemName, Load, Observed, Page, Subject, Version},
};

/// A log in segments, one record per batch.
#[derive(Clone, Copy, Debug)]
pub struct Naive {
    mutant: Option<Mutant>,
}

/// A bug planted into [`Naive`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutant {
    /// Says "committed" before the sync.
    AcknowledgeBeforeSync,
    /// Writes the feed entry on its own, after the batch.
    FeedInSecondBatch,
    /// Starts again with the last commit number after a reopen.
    NumberReused,
    /// Ends a page of the feed inside a batch.
    BatchCut,
    /// Does not sync the directory after making a file.
    DirectoryNotSynced,
    /// Takes whatever it finds in the log.
    NoChecksum,
    /// Goes on in a new file after a reopen, without a sync of what it found in the old one.
    RecoveredNotSynced,
}

impl Mutant {
    /// Every mutant by the name the command line knows it by.
    pub const ALL: [(&'static str, Self); 7] = [
        ("acknowledge-before-sync", Self::AcknowledgeBeforeSync),
        ("feed-in-second-batch", Self::FeedInSecondBatch),
        ("number-reused", Self::NumberReused),
        ("batch-cut", Self::BatchCut),
        ("directory-not-synced", Self::DirectoryNotSynced),
        ("no-checksum", Self::NoChecksum),
        ("recovered-not-synced", Self::RecoveredNotSynced),
    ];
}

/// A record fills no whole number of sectors, so that a cut goes through it.
const RECORD_BYTES: usize = 1000;
const EVENT_AT: usize = 500;
const SEGMENT_RECORDS: u64 = 32;
const PAGE_ITEMS: usize = 3;

impl Naive {
    /// The correct store.
    #[must_use]
    pub const fn correct() -> Self {
        Self { mutant: None }
    }

    /// With a bug.
    ///
    /// # Errors
    ///
    /// If there is no mutant of that name.
    pub fn mutated(name: &str) -> Result<Self> {
        let found = Mutant::ALL.iter().find(|(known, _)| *known == name);
        let (_, mutant) = found.ok_or_else(|| {
            let known = Mutant::ALL.map(|(name, _)| name).join(", ");
            Error::new(format!("find mutant \"{name}\" (there are {known})"))
        })?;
        Ok(Self { mutant: Some(*mutant) })
    }

    fn is(self, mutant: Mutant) -> bool {
        self.mutant == Some(mutant)
    }
}

impl Subject for Naive {
    fn load(&self, directory: &Path, load: &Load, acks: &Acks) -> Result<()> {
        let log = Mutex::new(Log::open(*self, directory).attempt(|| "open the log")?);
        let left = AtomicU64::new(load.commits);
        let take = || {
            left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |it| it.checked_sub(1)).is_ok()
        };
        thread::scope(|scope| {
            let writers: Vec<_> = (1..=load.writers)
                .map(|writer| {
                    let log = &log;
                    scope.spawn(move || {
                        while take() {
                            Log::commit(log, writer, |ack| acks.send(ack))?;
                        }
                        Ok(())
                    })
                })
                .collect();
            writers.into_iter().try_for_each(|it| it.join().expect("a writer does not panic"))
        })
    }

    fn observe(&self, directory: &Path, writers: u32) -> Result<Observed> {
        let log = Log::open(*self, directory).attempt(|| "open the log")?;
        let mut observed = log.observed();
        let log = Mutex::new(log);
        for writer in 1..=writers {
            Log::commit(&log, writer, |ack| {
                observed.next.push(ack.clone());
                Ok(())
            })?;
        }
        Ok(observed)
    }
}

struct Log {
    kind: Naive,
    directory: PathBuf,
    segment: u64,
    records: u64,
    file: Arc<File>,
    lsn_next: u64,
    counters: BTreeMap<u32, u64>,
    batches: Vec<Batch>,
    feed: BTreeSet<u64>,
}

/// What a record says; each half is the writer and its counter.
#[derive(Clone, Copy)]
struct Batch {
    lsn: u64,
    entity: (u32, u64),
    event: (u32, u64),
}

impl Log {
    fn open(kind: Naive, directory: &Path) -> io::Result<Self> {
        let mut segments = BTreeMap::new();
        for entry in fs::read_dir(directory)? {
            let path = entry?.path();
            let name = path.file_name().and_then(|it| it.to_str()).unwrap_or_default();
            if let Some(Ok(number)) = name.strip_prefix("log-").map(str::parse::<u64>) {
                segments.insert(number, path);
            }
        }
        let mut batches = Vec::new();
        for path in segments.values() {
            let bytes = fs::read(path)?;
            let found: Vec<Batch> = bytes
                .chunks(RECORD_BYTES)
                .map_while(|it| Batch::decode(it, !kind.is(Mutant::NoChecksum)))
                .collect();
            let file = OpenOptions::new().write(true).open(path)?;
            file.set_len(u64::try_from(found.len() * RECORD_BYTES).map_err(io::Error::other)?)?;
            if !kind.is(Mutant::RecoveredNotSynced) {
                file.sync_all()?;
            }
            batches.extend(found);
        }
        let feed = match fs::read(directory.join("feed")) {
            Ok(bytes) => bytes.chunks_exact(8).map(|it| read_u64(it, 0)).collect(),
            Err(_) => BTreeSet::new(),
        };
        let lsn_last = batches.last().map_or(0, |it: &Batch| it.lsn);
        let skip = u64::from(!kind.is(Mutant::NumberReused) || lsn_last == 0);
        let segment = segments.last_key_value().map_or(1, |(number, _)| number + 1);
        let mut log = Self {
            kind,
            directory: directory.to_owned(),
            segment,
            records: 0,
            file: Arc::new(Self::create(kind, directory, segment)?),
            lsn_next: lsn_last + skip,
            counters: BTreeMap::new(),
            batches: Vec::new(),
            feed,
        };
        for batch in batches {
            log.remember(batch);
        }
        Ok(log)
    }

    fn create(kind: Naive, directory: &Path, segment: u64) -> io::Result<File> {
        let file = File::create_new(directory.join(format!("log-{segment:06}")))?;
        if !kind.is(Mutant::DirectoryNotSynced) {
            File::open(directory)?.sync_all()?;
        }
        Ok(file)
    }

    fn remember(&mut self, batch: Batch) {
        if batch.entity.1 != 0 {
            self.counters.insert(batch.entity.0, batch.entity.1);
        }
        self.batches.push(batch);
    }

    /// Writes under the lock and syncs outside of it, so that writers share syncs.
    fn commit(
        log: &Mutex<Self>,
        writer: u32,
        mut acknowledge: impl FnMut(&Ack) -> Result<()>,
    ) -> Result<()> {
        let (kind, directory, file, batch) = {
            let mut log = log.lock().unwrap_or_else(PoisonError::into_inner);
            let batch = log.append(writer).attempt(|| "write to the log")?;
            (log.kind, log.directory.clone(), Arc::clone(&log.file), batch)
        };
        let ack = Ack {
            writer,
            number: batch.entity.1,
            range: 0,
            lsn: batch.lsn,
            entity_etag: etag(ItemName::Entity, batch.lsn),
            event_etag: etag(ItemName::Event(batch.event.1), batch.lsn),
        };
        if kind.is(Mutant::AcknowledgeBeforeSync) {
            acknowledge(&ack)?;
        }
        file.sync_data().attempt(|| "sync the log")?;
        if kind.is(Mutant::FeedInSecondBatch) {
            append_to_feed(&directory, batch.lsn).attempt(|| "write the feed")?;
        }
        if !kind.is(Mutant::AcknowledgeBeforeSync) {
            acknowledge(&ack)?;
        }
        Ok(())
    }

    fn append(&mut self, writer: u32) -> io::Result<Batch> {
        if self.records == SEGMENT_RECORDS {
            self.file.sync_data()?;
            self.segment += 1;
            self.records = 0;
            self.file = Arc::new(Self::create(self.kind, &self.directory, self.segment)?);
        }
        let number = self.counters.get(&writer).map_or(1, |it| it + 1);
        let batch = Batch { lsn: self.lsn_next, entity: (writer, number), event: (writer, number) };
        (&*self.file).write_all(&batch.encode())?;
        self.lsn_next += 1;
        self.records += 1;
        self.remember(batch);
        Ok(batch)
    }

    fn observed(&self) -> Observed {
        let mut observed = Observed::default();
        for Batch { lsn, entity, event } in &self.batches {
            let version = |name| Version { lsn: *lsn, etag: etag(name, *lsn) };
            if entity.1 != 0 {
                let partition = observed.writers.entry(entity.0).or_default();
                partition.entity = Some((entity.1, version(ItemName::Entity)));
            }
            if event.1 != 0 {
                let partition = observed.writers.entry(event.0).or_default();
                partition.events.insert(event.1, version(ItemName::Event(event.1)));
            }
        }
        let mut page = Page::default();
        for Batch { lsn, entity, event } in &self.batches {
            if self.kind.is(Mutant::FeedInSecondBatch) && !self.feed.contains(lsn) {
                continue;
            }
            let newest = self.counters.get(&entity.0) == Some(&entity.1);
            let entity = (newest && entity.1 != 0).then_some((entity.0, ItemName::Entity));
            let event = (event.1 != 0).then_some((event.0, ItemName::Event(event.1)));
            for (writer, name) in entity.into_iter().chain(event) {
                if self.kind.is(Mutant::BatchCut) && page.items.len() == PAGE_ITEMS {
                    observed.feed.push(std::mem::take(&mut page));
                }
                let version = Version { lsn: *lsn, etag: etag(name, *lsn) };
                page.items.push(FeedItem { writer, name, version });
            }
            if !self.kind.is(Mutant::BatchCut) && PAGE_ITEMS <= page.items.len() {
                observed.feed.push(std::mem::take(&mut page));
            }
        }
        observed.feed.push(page);
        observed
    }
}

impl Batch {
    fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![0; RECORD_BYTES];
        let mut put =
            |at: usize, value: u64| bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
        put(8, self.lsn);
        put(16, u64::from(self.entity.0));
        put(24, self.entity.1);
        put(EVENT_AT, u64::from(self.event.0));
        put(EVENT_AT + 8, self.event.1);
        put(RECORD_BYTES - 8, self.lsn);
        let sum = checksum(&bytes[8..]);
        bytes[..8].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8], verify: bool) -> Option<Self> {
        if bytes.len() < RECORD_BYTES && verify {
            return None;
        }
        let mut whole = bytes.to_vec();
        whole.resize(RECORD_BYTES, 0);
        if verify && read_u64(&whole, 0) != checksum(&whole[8..]) {
            return None;
        }
        let half =
            |at| (u32::try_from(read_u64(&whole, at)).unwrap_or(0), read_u64(&whole, at + 8));
        Some(Self { lsn: read_u64(&whole, 8), entity: half(16), event: half(EVENT_AT) })
    }
}

fn etag(name: ItemName, lsn: u64) -> String {
    match name {
        ItemName::Entity => format!("{lsn}-0"),
        ItemName::Event(_) => format!("{lsn}-1"),
    }
}

fn append_to_feed(directory: &Path, lsn: u64) -> io::Result<()> {
    let mut feed = OpenOptions::new().append(true).create(true).open(directory.join("feed"))?;
    feed.write_all(&lsn.to_le_bytes())?;
    feed.sync_all()?;
    File::open(directory)?.sync_all()
}

fn read_u64(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

/// FNV-1a.
fn checksum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xCBF2_9CE4_8422_2325, |sum, byte| {
        (sum ^ u64::from(*byte)).wrapping_mul(0x100_0000_01B3)
    })
}
