//! Rows of the schemas of batches: columns that may be absent, then sparse fields.

use std::ops::Range;

use crate::hybrid_row::{Fault, VERSION};

/// Types of sparse fields.
pub(super) const NULL: u8 = 1;
pub(super) const FALSE: u8 = 2;
pub(super) const TRUE: u8 = 3;
pub(super) const INT32: u8 = 7;
pub(super) const UINT32: u8 = 11;
pub(super) const FLOAT64: u8 = 16;
pub(super) const UTF8: u8 = 20;
pub(super) const BINARY: u8 = 21;

/// A place in a row.
#[derive(Debug)]
pub(super) struct RowReader<'a> {
    row: &'a [u8],
    at: usize,
}

/// A sparse field: the number of its path within the schema, and its value.
#[derive(Debug, PartialEq)]
pub(super) struct Sparse {
    pub(super) path: u64,
    pub(super) value: Value,
}

/// The value of a sparse field; texts and bytes say where they are.
#[derive(Debug, PartialEq)]
pub(super) enum Value {
    Null,
    Bool(bool),
    Int32(i32),
    UInt32(u32),
    Float64(f64),
    Bytes(Range<usize>),
}

impl<'a> RowReader<'a> {
    /// Checks version and schema, and stands before the bits of the columns.
    pub(super) fn new(row: &'a [u8], schema: i32) -> Result<Self, Fault> {
        let mut reader = Self { row, at: 0 };
        if reader.byte()? != VERSION {
            return Err("a row has another version");
        }
        if i32::from_le_bytes(reader.chunk()?) != schema {
            return Err("a row has another schema");
        }
        Ok(reader)
    }

    pub(super) fn byte(&mut self) -> Result<u8, Fault> {
        let [byte] = self.chunk()?;
        Ok(byte)
    }

    pub(super) fn chunk<const N: usize>(&mut self) -> Result<[u8; N], Fault> {
        let chunk = self.row[self.at..].first_chunk::<N>().ok_or("a row ends too early")?;
        self.at += N;
        Ok(*chunk)
    }

    /// A length and that many bytes.
    pub(super) fn bytes(&mut self) -> Result<Range<usize>, Fault> {
        let length = self.unsigned()?;
        let length = usize::try_from(length).map_err(|_| "a length is too large")?;
        let start = self.at;
        if self.row.len() - start < length {
            return Err("a row ends too early");
        }
        self.at += length;
        Ok(start..self.at)
    }

    /// The next sparse field; none at the end. `paths` is the number of paths the schema knows;
    /// what it does not know is spelled out, and has no number.
    pub(super) fn sparse(&mut self, paths: u64) -> Result<Option<Sparse>, Fault> {
        if self.at == self.row.len() {
            return Ok(None);
        }
        let kind = self.byte()?;
        let path = self.unsigned()?;
        if paths <= path {
            let length = usize::try_from(path - paths).map_err(|_| "a length is too large")?;
            if self.row.len() - self.at < length {
                return Err("a row ends too early");
            }
            self.at += length;
        }
        let value = match kind {
            NULL => Value::Null,
            FALSE => Value::Bool(false),
            TRUE => Value::Bool(true),
            INT32 => Value::Int32(i32::from_le_bytes(self.chunk()?)),
            UINT32 => Value::UInt32(u32::from_le_bytes(self.chunk()?)),
            FLOAT64 => Value::Float64(f64::from_le_bytes(self.chunk()?)),
            UTF8 | BINARY => Value::Bytes(self.bytes()?),
            _ => return Err("a sparse field has a type that batches do not use"),
        };
        Ok(Some(Sparse { path, value }))
    }

    /// Seven bits a byte, the lowest first.
    fn unsigned(&mut self) -> Result<u64, Fault> {
        let mut value = 0u64;
        for shift in (0..63).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7F) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err("a number is too long")
    }
}

/// A row of the schema, up to the bits of its columns.
pub(super) fn begin(schema: i32) -> Vec<u8> {
    let mut row = vec![VERSION];
    row.extend(schema.to_le_bytes());
    row
}

pub(super) fn push_bytes(row: &mut Vec<u8>, bytes: &[u8]) {
    push_unsigned(row, u64::try_from(bytes.len()).expect("64 bits hold every length"));
    row.extend(bytes);
}

/// Adds a sparse field but for its value.
pub(super) fn push_sparse(row: &mut Vec<u8>, kind: u8, path: u64) {
    row.push(kind);
    push_unsigned(row, path);
}

fn push_unsigned(row: &mut Vec<u8>, mut value: u64) {
    while 0x7F < value {
        let [low, ..] = value.to_le_bytes();
        row.push(low | 0x80);
        value >>= 7;
    }
    let [low, ..] = value.to_le_bytes();
    row.push(low);
}
