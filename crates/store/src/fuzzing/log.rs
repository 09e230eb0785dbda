//! Whole log directories. Everything about bytes here is written from the description of the
//! format, not from the code that reads it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use millstream_core::ErrorKind;
use xxhash_rust::xxh3::xxh3_64;

use crate::disk::Disk;
use crate::fuzzing::disk::MemoryDisk;
use crate::log::{GROUP_HEADER_BYTES, Log, Recovered};

const SEGMENT_HEADER_BYTES: usize = 40;
const SEGMENT_BYTES: u64 = 4096;
const SEGMENT_MAGIC: &[u8] = b"MSTRLOG1";
const GROUP_MAGIC: &[u8] = b"MSGR";

/// Input: the number of the applied group, a byte that is odd if checksums are to be made right,
/// then files, each with its length in two bytes before it.
///
/// Whatever the files hold, the log opens or says that it is corrupt; and once it has opened, what
/// is written next is found after what was found before.
pub(super) fn segments(data: &[u8]) {
    let Some(([applied, sealing], mut rest)) = data.split_first_chunk() else { return };
    let disk = MemoryDisk::default();
    let mut number = 0;
    while let Some((length, after)) = rest.split_first_chunk() {
        let length = usize::from(u16::from_le_bytes(*length)).min(after.len());
        let (file, after) = after.split_at(length);
        let mut file = file.to_vec();
        if sealing % 2 == 1 {
            seal(&mut file);
        }
        disk.put(path(number), file);
        (number, rest) = (number + 1, after);
    }
    let applied = u64::from(*applied);
    let disk: Arc<dyn Disk> = Arc::new(disk);
    let Some((mut log, mut groups)) = open(&disk, applied) else { return };
    for text in [&b"one"[..], &[b'x'; 5000], b""] {
        let mut group = vec![0; GROUP_HEADER_BYTES];
        group.extend_from_slice(text);
        log.append(&mut group).expect("memory takes it");
        log.sync().expect("memory takes it");
        groups.push(text.to_vec());
        let (_, found) = open(&disk, applied).expect("what was just written can be read");
        assert_eq!(found, groups);
    }
}

/// A segment with one group of this payload.
pub(super) fn segment(payload: &[u8]) -> Vec<u8> {
    let mut file = SEGMENT_MAGIC.to_vec();
    file.extend_from_slice(&1_u64.to_le_bytes());
    file.extend_from_slice(&1_u64.to_le_bytes());
    file.resize(SEGMENT_HEADER_BYTES, 0);
    file.extend_from_slice(GROUP_MAGIC);
    let length = u32::try_from(payload.len()).expect("input is short");
    file.extend_from_slice(&length.to_le_bytes());
    for number in [1_u64, 1, 0, 0, 0] {
        file.extend_from_slice(&number.to_le_bytes());
    }
    file.extend_from_slice(payload);
    seal(&mut file);
    file
}

/// The payloads of the groups of a segment.
pub(super) fn payloads(file: &[u8]) -> Vec<Vec<u8>> {
    places(file).into_iter().map(|(start, end)| file[start..end].to_vec()).collect()
}

/// The end of the last group of a segment.
pub(super) fn end_of(file: &[u8]) -> usize {
    places(file).last().map_or(0, |it| it.1)
}

pub(super) fn path(number: u32) -> PathBuf {
    Path::new("log").join(format!("{number:010}.log"))
}

fn open(disk: &Arc<dyn Disk>, applied: u64) -> Option<(Log, Vec<Vec<u8>>)> {
    match Log::open(disk, Path::new("log"), SEGMENT_BYTES, applied) {
        Ok(Recovered { log, groups }) => Some((log, groups)),
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Corrupt, "{}", error.report());
            None
        }
    }
}

/// Makes the checksums right, and the lengths of groups that end behind the file.
///
/// Numbers stay far from 2^64: no store counts that far, and damage does not leave the checksum of
/// one that did.
fn seal(file: &mut [u8]) {
    if file.len() < SEGMENT_HEADER_BYTES {
        return;
    }
    (file[15], file[23]) = (0, 0);
    let checksum = xxh3_64(&file[..32]).to_le_bytes();
    file[32..SEGMENT_HEADER_BYTES].copy_from_slice(&checksum);
    for (start, end) in places(file) {
        let header = start - GROUP_HEADER_BYTES;
        let length = u32::try_from(end - start).expect("input is short");
        file[header + 4..header + 8].copy_from_slice(&length.to_le_bytes());
        (file[header + 15], file[header + 23], file[header + 31]) = (0, 0, 0);
        let mut covered = file[header..header + 40].to_vec();
        covered.extend_from_slice(&file[start..end]);
        file[header + 40..start].copy_from_slice(&xxh3_64(&covered).to_le_bytes());
    }
}

/// Where the payloads of the groups of a segment start and end.
fn places(file: &[u8]) -> Vec<(usize, usize)> {
    let mut places = Vec::new();
    let mut offset = SEGMENT_HEADER_BYTES;
    while let Some(header) = file.get(offset..offset + GROUP_HEADER_BYTES) {
        if !header.starts_with(GROUP_MAGIC) {
            break;
        }
        let length = u32::from_le_bytes([header[4], header[5], header[6], header[7]]);
        let start = offset + GROUP_HEADER_BYTES;
        let length = usize::try_from(length).unwrap_or(usize::MAX).min(file.len() - start);
        offset = start + length;
        places.push((start, offset));
    }
    places
}
