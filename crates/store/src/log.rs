//! The commit log: groups of table entries in numbered, preallocated files that are used again.
//!
//! A commit is durable when its group is. The log is short: once the entries of a group have moved
//! to the sorted tables, its segment is free for new groups. Writing into blocks that exist keeps
//! fdatasync from waiting for the journal of the file system, and with it for the table files that
//! are written at the same time.

mod frame;

use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use millstream_core::{Error, ErrorKind, Result};

use crate::disk::{Disk, DiskFile};

pub(crate) use crate::log::frame::GROUP_HEADER_BYTES;
use crate::log::frame::{Frame, GroupHeader, SEGMENT_HEADER_BYTES, SegmentHeader};

/// The open log. Owned by the thread that writes it.
#[derive(Debug)]
pub(crate) struct Log {
    disk: Arc<dyn Disk>,
    directory: PathBuf,
    segment_bytes: u64,
    incarnation: u64,
    next_group: u64,
    synced_group: u64,
    /// Segments with groups that have not moved to the tables yet, oldest first; the last one is
    /// written to.
    live: VecDeque<Segment>,
    free: Vec<SegmentFile>,
    next_file: u64,
    end: u64,
    /// Whether this opening has a segment of its own.
    has_begun: bool,
}

#[derive(Debug)]
struct Segment {
    file: SegmentFile,
    first_group: u64,
}

#[derive(Debug)]
struct SegmentFile {
    path: PathBuf,
    file: Arc<dyn DiskFile>,
    length: u64,
}

/// What recovery found.
#[derive(Debug)]
pub(crate) struct Recovered {
    pub(crate) log: Log,
    /// Payloads of the groups after the applied one, in order.
    pub(crate) groups: Vec<Vec<u8>>,
}

impl Log {
    /// Opens the log in `directory` and returns the groups after number `applied`.
    pub(crate) fn open(
        disk: &Arc<dyn Disk>,
        directory: &Path,
        segment_bytes: u64,
        applied: u64,
    ) -> Result<Recovered> {
        let failed = |error: io::Error| {
            Error::new(
                ErrorKind::Unavailable,
                format!("open the commit log {}", directory.display()),
            )
            .because(error)
        };
        // A process that died while it made a segment may not have synced its name, and a segment
        // without one is lost with all groups that were synced into it.
        disk.sync_names(directory).map_err(failed)?;
        let mut found = Vec::new();
        let mut free = Vec::new();
        let mut without_header = 0;
        let mut next_file = 1;
        for path in disk.list(directory).map_err(failed)? {
            let Some(number) = file_number(&path) else { continue };
            next_file = next_file.max(number + 1);
            let file = disk.open(&path).map_err(failed)?;
            let bytes = file.read_all().map_err(failed)?;
            let length = u64::try_from(bytes.len()).expect("a usize fits into 64 bits");
            let file = SegmentFile { path, file, length };
            match SegmentHeader::decode(&bytes) {
                Some(header) => found.push((header, file, bytes)),
                None => {
                    let synced = Frame::all(&bytes).map(|it| it.synced).max().unwrap_or(0);
                    without_header = without_header.max(synced);
                    free.push(file);
                }
            }
        }
        found.sort_by_key(|(header, ..)| *header);
        let incarnation = found.last().map_or(0, |(header, ..)| header.incarnation) + 1;

        let read = Reading::through(&found, applied)?;
        // The header of a segment and its first group are written together, so without a header
        // that group was not acknowledged. Later ones say that it was: then the header is
        // damaged.
        if read.last < without_header {
            return Err(damaged(directory, read.last + 1));
        }
        // A process that died may have left groups that were written but not synced. From here on
        // they count as kept.
        for (_, file, _) in found.iter().filter(|it| read.used.contains(&it.0)) {
            file.file.sync().map_err(failed)?;
        }
        let mut live = VecDeque::new();
        for (header, file, _) in found {
            if header.first_group <= read.last && read.used.contains(&header) {
                live.push_back(Segment { file, first_group: header.first_group });
            } else {
                free.push(file);
            }
        }
        let log = Self {
            disk: Arc::clone(disk),
            directory: directory.to_owned(),
            segment_bytes,
            incarnation,
            next_group: read.last + 1,
            synced_group: read.last,
            live,
            free,
            next_file,
            end: u64::MAX,
            has_begun: false,
        };
        Ok(Recovered { log, groups: read.groups })
    }

    /// Whether a directory holds groups, whichever opening wrote them.
    pub(crate) fn has_groups(disk: &dyn Disk, directory: &Path) -> io::Result<bool> {
        if !directory.exists() {
            return Ok(false);
        }
        for path in disk.list(directory)? {
            if file_number(&path).is_some() {
                let bytes = disk.open(&path)?.read_all()?;
                if Frame::all(&bytes).next().is_some() {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    /// The number of segments that hold groups which have not moved to the tables.
    pub(crate) fn live_segments(&self) -> usize {
        self.live.len()
    }

    /// Writes a group; `group` starts with [`GROUP_HEADER_BYTES`] bytes of room for the header.
    pub(crate) fn append(&mut self, group: &mut [u8]) -> io::Result<u64> {
        let number = self.next_group;
        let payload_bytes = u32::try_from(group.len() - GROUP_HEADER_BYTES)
            .map_err(|_| io::Error::other("a group of commits exceeds 4 GiB"))?;
        GroupHeader {
            incarnation: self.incarnation,
            number,
            synced: self.synced_group,
            payload_bytes,
        }
        .write_over(group);
        let length = u64::try_from(group.len()).expect("a usize fits into 64 bits");
        let has_room = |segment: &Segment| {
            self.end.checked_add(length).is_some_and(|end| end <= segment.file.length)
        };
        if !self.live.back().is_some_and(has_room) {
            self.next_segment(length)?;
        }
        let segment = self.live.back().expect("a segment was just opened");
        segment.file.file.write_at(group, self.end)?;
        self.end += length;
        self.next_group += 1;
        Ok(number)
    }

    /// Waits until every group written so far would survive loss of power.
    pub(crate) fn sync(&mut self) -> io::Result<()> {
        if let Some(segment) = self.live.back() {
            segment.file.file.sync()?;
        }
        self.synced_group = self.next_group - 1;
        Ok(())
    }

    /// Frees the segments whose groups have all moved to the tables.
    pub(crate) fn release_through(&mut self, applied: u64) {
        while 1 < self.live.len() && self.live[1].first_group <= applied + 1 {
            let segment = self.live.pop_front().expect("there are at least two");
            self.free.push(segment.file);
        }
    }

    /// Whether a segment is ready for the moment the current one is full.
    pub(crate) fn needs_spare(&self) -> bool {
        !self.free.iter().any(|it| self.segment_bytes <= it.length)
    }

    /// Adds a segment that [`SpareSegment::make`] prepared.
    pub(crate) fn add_spare(&mut self, spare: SpareSegment) {
        self.free.push(spare.0);
    }

    /// Names the next spare segment; the file is made by the caller, who holds no lock meanwhile.
    pub(crate) fn plan_spare(&mut self) -> SparePlan {
        let number = self.next_file;
        self.next_file += 1;
        SparePlan {
            disk: Arc::clone(&self.disk),
            path: self.directory.join(format!("{number:010}.log")),
            length: self.segment_bytes,
        }
    }

    fn next_segment(&mut self, group_bytes: u64) -> io::Result<()> {
        // The old segment may hold groups that were written but not synced; nobody syncs it later.
        if self.synced_group + 1 < self.next_group {
            self.sync()?;
        }
        let header_bytes = u64::try_from(SEGMENT_HEADER_BYTES).expect("it is small");
        let needed = header_bytes + group_bytes;
        let file = match self.free.iter().position(|it| needed <= it.length) {
            Some(index) => self.free.swap_remove(index),
            None => {
                let plan =
                    SparePlan { length: self.segment_bytes.max(needed), ..self.plan_spare() };
                plan.make()?.0
            }
        };
        let header = SegmentHeader { incarnation: self.incarnation, first_group: self.next_group };
        file.file.write_at(&header.encode(), 0)?;
        if !self.has_begun {
            // No later opening may count itself the same, whatever becomes of the groups.
            file.file.sync()?;
            self.has_begun = true;
        }
        self.end = header_bytes;
        self.live.push_back(Segment { file, first_group: self.next_group });
        self.drop_surplus();
        Ok(())
    }

    /// A burst may leave more files than steady work needs; those are given back.
    fn drop_surplus(&mut self) {
        while FREE_SEGMENTS_MAX < self.free.len() {
            let surplus = self.free.remove(0);
            if let Err(error) = self.disk.remove(&surplus.path) {
                let path = surplus.path.display();
                tracing::warn!(%path, %error, "could not remove a log segment");
            }
        }
    }
}

/// A segment to be prepared.
#[derive(Debug)]
pub(crate) struct SparePlan {
    disk: Arc<dyn Disk>,
    path: PathBuf,
    length: u64,
}

/// A segment that is ready to be written to.
#[derive(Debug)]
pub(crate) struct SpareSegment(SegmentFile);

impl SparePlan {
    pub(crate) fn make(self) -> io::Result<SpareSegment> {
        let file = self.disk.create(&self.path, self.length)?;
        Ok(SpareSegment(SegmentFile { path: self.path, file, length: self.length }))
    }
}

/// The groups of a log in order, from segment to segment.
struct Reading {
    last: u64,
    groups: Vec<Vec<u8>>,
    used: Vec<SegmentHeader>,
}

impl Reading {
    fn through(found: &[(SegmentHeader, SegmentFile, Vec<u8>)], applied: u64) -> Result<Self> {
        let mut reading = Self { last: applied, groups: Vec::new(), used: Vec::new() };
        for (index, (header, file, bytes)) in found.iter().enumerate() {
            // What follows was written later and starts where the whole part of this segment ended.
            let until = found.get(index + 1).map_or(u64::MAX, |(next, ..)| next.first_group);
            if until <= reading.last + 1 {
                continue;
            }
            if reading.last + 1 < header.first_group {
                return Err(damaged(&file.path, reading.last + 1));
            }
            reading.segment(*header, &file.path, bytes, until)?;
        }
        Ok(reading)
    }

    fn segment(
        &mut self,
        header: SegmentHeader,
        path: &Path,
        bytes: &[u8],
        until: u64,
    ) -> Result<()> {
        self.used.push(header);
        let mut offset = SEGMENT_HEADER_BYTES;
        let mut expected = header.first_group;
        while expected < until {
            match Frame::read(bytes, offset, header.incarnation) {
                Frame::Group(group, payload) if group.number == expected => {
                    if self.last < group.number {
                        self.groups.push(payload.to_vec());
                        self.last = group.number;
                    }
                    offset += GROUP_HEADER_BYTES + payload.len();
                    expected += 1;
                }
                Frame::Group(..) | Frame::Nothing => {
                    if Frame::proves_damage(bytes, offset, header.incarnation, expected) {
                        return Err(damaged(path, expected));
                    }
                    break;
                }
            }
        }
        Ok(())
    }
}

fn damaged(path: &Path, group: u64) -> Error {
    Error::new(
        ErrorKind::Corrupt,
        format!("read group {group} of the commit log {}", path.display()),
    )
    .because("it had been synced and is not what was written; restore the directory from a copy")
}

fn file_number(path: &Path) -> Option<u64> {
    if path.extension()? != "log" {
        return None;
    }
    path.file_stem()?.to_str()?.parse().ok()
}

/// Free segments that are kept; a flush frees about as many as it has filled.
const FREE_SEGMENTS_MAX: usize = 8;

#[cfg(test)]
mod tests;
