//! The record of one run: every change to a file, every sync, every mark, in order.
//!
//! `shim/record.c` writes it; the layout is described there.

use std::fmt;

use crate::error::{Error, Result};

const MAGIC: &[u8; 8] = b"MSTRACE1";

/// A file of the recorded run, whatever it was called. Numbers are never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileId(pub u64);

/// Pairs the beginning of a sync with its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SyncId(pub u64);

/// One step of the recorded run. Paths are relative to the recorded directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// A directory was made.
    Directory {
        /// Its path.
        path: String,
    },
    /// A file was made, empty.
    Create {
        /// The new file.
        file: FileId,
        /// Its path.
        path: String,
    },
    /// Bytes were written.
    Write {
        /// Into this file.
        file: FileId,
        /// At this byte.
        offset: u64,
        /// The bytes.
        data: Vec<u8>,
    },
    /// The length was set, shorter or longer.
    Truncate {
        /// Of this file.
        file: FileId,
        /// In bytes.
        length: u64,
    },
    /// A file or directory got another path, replacing what was there.
    Rename {
        /// The old path.
        from: String,
        /// The new path.
        to: String,
    },
    /// A file got a second path.
    Link {
        /// The path it had.
        from: String,
        /// The path it has as well.
        to: String,
    },
    /// A path of a file went away.
    Unlink {
        /// That path.
        path: String,
    },
    /// A directory went away.
    RemoveDirectory {
        /// Its path.
        path: String,
    },
    /// A sync of a file began; it promises only what was done before this.
    SyncFile {
        /// To find the end.
        sync: SyncId,
        /// The file.
        file: FileId,
    },
    /// A sync of a directory began.
    SyncDirectory {
        /// To find the end.
        sync: SyncId,
        /// The directory.
        path: String,
    },
    /// A sync came back without an error.
    SyncEnd {
        /// Which one.
        sync: SyncId,
    },
    /// The process said something to the outside, such as an acknowledgement.
    Mark {
        /// What it said.
        data: Vec<u8>,
    },
    /// What came before was there when the recording began.
    Settled,
}

impl fmt::Display for Record {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Directory { path } => write!(formatter, "make {path}"),
            Self::Create { file, path } => write!(formatter, "create {path} as file {}", file.0),
            Self::Write { file, offset, data } => {
                write!(formatter, "write file {} at {offset}, {} bytes", file.0, data.len())
            }
            Self::Truncate { file, length } => write!(formatter, "cut file {} to {length}", file.0),
            Self::Rename { from, to } => write!(formatter, "rename {from} to {to}"),
            Self::Link { from, to } => write!(formatter, "link {from} as {to}"),
            Self::Unlink { path } | Self::RemoveDirectory { path } => {
                write!(formatter, "remove {path}")
            }
            Self::SyncFile { sync, file } => {
                write!(formatter, "begin sync {} of file {}", sync.0, file.0)
            }
            Self::SyncDirectory { sync, path } => {
                write!(formatter, "begin sync {} of /{path}", sync.0)
            }
            Self::SyncEnd { sync } => write!(formatter, "end sync {}", sync.0),
            Self::Mark { data } => {
                write!(formatter, "mark {}", String::from_utf8_lossy(data).trim_end())
            }
            Self::Settled => formatter.write_str("settled"),
        }
    }
}

/// Reads a whole trace.
///
/// # Errors
///
/// If the bytes are not a whole trace, or the run did something to its files that the model does
/// not know.
pub fn decode(bytes: &[u8]) -> Result<Vec<Record>> {
    let mut rest = Cursor { bytes, at: 0 };
    if rest.take(MAGIC.len()) != Some(MAGIC) {
        return Err(Error::new("read the trace: it does not begin like one"));
    }
    let mut records = Vec::new();
    while !rest.is_empty() {
        let start = rest.at;
        let record = rest.record().ok_or_else(|| {
            Error::new(format!("read the trace: the record at byte {start} is cut or unknown"))
        })??;
        records.push(record);
    }
    Ok(records)
}

struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    const fn is_empty(&self) -> bool {
        self.bytes.len() <= self.at
    }

    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let end = self.at.checked_add(count)?;
        let taken = self.bytes.get(self.at..end)?;
        self.at = end;
        Some(taken)
    }

    fn u32(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(self.take(4)?.try_into().ok()?))
    }

    fn u64(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.take(8)?.try_into().ok()?))
    }

    fn data(&mut self) -> Option<Vec<u8>> {
        let length = usize::try_from(self.u32()?).ok()?;
        Some(self.take(length)?.to_vec())
    }

    fn text(&mut self) -> Option<String> {
        String::from_utf8(self.data()?).ok()
    }

    fn file(&mut self) -> Option<FileId> {
        self.u64().map(FileId)
    }

    fn sync(&mut self) -> Option<SyncId> {
        self.u64().map(SyncId)
    }

    fn record(&mut self) -> Option<Result<Record>> {
        let length = usize::try_from(self.u32()?).ok()?;
        let kind = self.take(1)?[0];
        let mut payload = Cursor { bytes: self.take(length)?, at: 0 };
        let record = match kind {
            1 => Record::Directory { path: payload.text()? },
            2 => Record::Create { file: payload.file()?, path: payload.text()? },
            3 => Record::Write {
                file: payload.file()?,
                offset: payload.u64()?,
                data: payload.data()?,
            },
            4 => Record::Truncate { file: payload.file()?, length: payload.u64()? },
            5 => Record::Rename { from: payload.text()?, to: payload.text()? },
            6 => Record::Link { from: payload.text()?, to: payload.text()? },
            7 => Record::Unlink { path: payload.text()? },
            8 => Record::RemoveDirectory { path: payload.text()? },
            9 => match (payload.sync()?, payload.file()?, payload.text()?) {
                (sync, FileId(0), path) => Record::SyncDirectory { sync, path },
                (sync, file, _) => Record::SyncFile { sync, file },
            },
            10 => Record::SyncEnd { sync: payload.sync()? },
            11 => Record::Mark { data: payload.data()? },
            12 => {
                let text = payload.text()?;
                return Some(Err(Error::new(format!("replay what the process did: {text}"))));
            }
            13 => Record::Settled,
            _ => return None,
        };
        payload.is_empty().then_some(Ok(record))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(kind: u8, payload: &[u8]) -> Vec<u8> {
        let length = u32::try_from(payload.len()).unwrap();
        [&length.to_le_bytes(), &[kind][..], payload].concat()
    }

    #[track_caller]
    fn check(records: &[Vec<u8>], expected: Result<&[Record], &str>) {
        let bytes = [MAGIC.to_vec(), records.concat()].concat();
        match (decode(&bytes), expected) {
            (Ok(found), Ok(expected)) => assert_eq!(found, expected),
            (Err(error), Err(part)) => assert!(error.report().contains(part), "{}", error.report()),
            (found, expected) => panic!("expected {expected:?}, found {found:?}"),
        }
    }

    #[test]
    fn reads_each_part_of_a_record() {
        let write = [&1_u64.to_le_bytes()[..], &512_u64.to_le_bytes(), &2_u32.to_le_bytes(), b"hi"];
        check(
            &[record(3, &write.concat()), record(13, b"")],
            Ok(&[
                Record::Write { file: FileId(1), offset: 512, data: b"hi".to_vec() },
                Record::Settled,
            ]),
        );
    }

    #[test]
    fn refuses_what_is_cut_or_unknown_or_too_long() {
        check(&[record(3, b"12345678")], Err("byte 8 is cut"));
        check(&[record(99, b"")], Err("byte 8 is cut or unknown"));
        check(&[record(13, b"more")], Err("byte 8 is cut"));
        check(&[vec![255; 7]], Err("byte 8 is cut"));
        let mapping = [&7_u32.to_le_bytes()[..], b"mapping"].concat();
        check(&[record(12, &mapping)], Err("mapping"));
        assert!(decode(b"something else").is_err());
    }
}
