//! The stream around the rows.

use std::ops::Range;

use crate::hybrid_row::checksum::crc32;
use crate::hybrid_row::{Fault, VERSION};

const SEGMENT_SCHEMA: i32 = 2_147_473_648;
const RECORD_SCHEMA: i32 = 2_147_473_649;
/// Version, schema, the bit of its one column, its own length.
const SEGMENT_BYTES: usize = 10;
/// Version, schema, length and checksum of the row that follows. Its columns have no bits.
const RECORD_BYTES: usize = 13;

/// The rows of a stream, one after the other.
#[derive(Debug)]
pub(super) struct Records<'a> {
    body: &'a [u8],
    at: usize,
}

impl<'a> Records<'a> {
    pub(super) fn new(body: &'a [u8]) -> Result<Self, Fault> {
        let mut records = Self { body, at: 0 };
        if records.schema()? != SEGMENT_SCHEMA {
            return Err("it does not begin with the header of a segment");
        }
        records.skip_segment()?;
        Ok(records)
    }

    /// Where the next row is.
    pub(super) fn next(&mut self) -> Result<Option<Range<usize>>, Fault> {
        loop {
            if self.at == self.body.len() {
                return Ok(None);
            }
            match self.schema()? {
                SEGMENT_SCHEMA => self.skip_segment()?,
                RECORD_SCHEMA => return self.record().map(Some),
                _ => return Err("something stands between the records"),
            }
        }
    }

    fn record(&mut self) -> Result<Range<usize>, Fault> {
        let header = self.body[self.at..].first_chunk::<RECORD_BYTES>().ok_or(ENDS_EARLY)?;
        let [.., l0, l1, l2, l3, c0, c1, c2, c3] = *header;
        let length = i32::from_le_bytes([l0, l1, l2, l3]);
        let start = self.at + RECORD_BYTES;
        let length = usize::try_from(length).map_err(|_| "a record has a negative length")?;
        let row = self.body[start..].get(..length).ok_or(ENDS_EARLY)?;
        if crc32(row) != u32::from_le_bytes([c0, c1, c2, c3]) {
            return Err("the checksum of a record does not hold");
        }
        self.at = start + length;
        Ok(start..self.at)
    }

    /// A segment may carry a comment and a schema; neither matters here.
    fn skip_segment(&mut self) -> Result<(), Fault> {
        let header = self.body[self.at..].first_chunk::<SEGMENT_BYTES>().ok_or(ENDS_EARLY)?;
        let [.., present, l0, l1, l2, l3] = *header;
        let length = usize::try_from(i32::from_le_bytes([l0, l1, l2, l3])).unwrap_or(0);
        if present & 1 == 0 || length < SEGMENT_BYTES {
            return Err("the header of a segment has no length");
        }
        if self.body.len() - self.at < length {
            return Err(ENDS_EARLY);
        }
        self.at += length;
        Ok(())
    }

    /// The schema of the row that begins here.
    fn schema(&self) -> Result<i32, Fault> {
        let [version, s0, s1, s2, s3] =
            *self.body[self.at..].first_chunk::<5>().ok_or(ENDS_EARLY)?;
        if version != VERSION {
            return Err("a row has another version");
        }
        Ok(i32::from_le_bytes([s0, s1, s2, s3]))
    }
}

/// The header of a segment without comment and schema.
pub(super) fn segment() -> Vec<u8> {
    let mut header = vec![VERSION];
    header.extend(SEGMENT_SCHEMA.to_le_bytes());
    header.push(1);
    let length = i32::try_from(SEGMENT_BYTES).expect("it is 10");
    header.extend(length.to_le_bytes());
    header
}

/// Adds a row with its header.
///
/// # Panics
///
/// If the row has 2 GiB or more; the limits of items are far below.
pub(super) fn push_record(stream: &mut Vec<u8>, row: &[u8]) {
    let length = i32::try_from(row.len()).expect("a row is far below 2 GiB");
    stream.push(VERSION);
    stream.extend(RECORD_SCHEMA.to_le_bytes());
    stream.extend(length.to_le_bytes());
    stream.extend(crc32(row).to_le_bytes());
    stream.extend(row);
}

const ENDS_EARLY: Fault = "it ends too early";
