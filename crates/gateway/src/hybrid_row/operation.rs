//! The row of an operation.

use std::ops::Range;

use bytes::Bytes;

use crate::batch_wire::{OperationType, OperationWire};
use crate::hybrid_row::Fault;
use crate::hybrid_row::row::{RowReader, Value};

const SCHEMA: i32 = 2_145_473_648;
/// The empty path, seven columns and five sparse fields.
const PATHS: u64 = 13;

/// Reads a row; what it holds shares the memory of `row`.
pub(super) fn decode(row: &Bytes) -> Result<OperationWire, Fault> {
    let mut reader = RowReader::new(row, SCHEMA)?;
    let present = reader.byte()?;
    let has = |column: u8| present & 1 << column != 0;
    // Columns of fixed size have their place also when they are absent.
    let (kind, _resource) =
        (i32::from_le_bytes(reader.chunk()?), i32::from_le_bytes(reader.chunk()?));
    if !has(0) {
        return Err("an operation has no type");
    }
    let mut column = |number: u8| if has(number) { reader.bytes().map(Some) } else { Ok(None) };
    let partition_key = column(2)?;
    let _effective_key = column(3)?;
    let id = column(4)?;
    let _binary_id = column(5)?;
    let body = column(6)?;
    let text = |place: Range<usize>| match std::str::from_utf8(&row[place]) {
        Ok(text) => Ok(text.to_owned()),
        Err(_) => Err("a text is not UTF-8"),
    };
    let mut operation = OperationWire {
        kind: kind_of(kind)?,
        id: id.map(text).transpose()?,
        partition_key: partition_key.map(text).transpose()?,
        body: body.map(|place| row.slice(place)),
        if_match: None,
        if_none_match: None,
        is_minimal: false,
    };
    while let Some(field) = reader.sparse(PATHS)? {
        match (field.path, field.value) {
            (9, Value::Bytes(place)) => operation.if_match = Some(text(place)?),
            (10, Value::Bytes(place)) => operation.if_none_match = Some(text(place)?),
            (12, Value::Bool(minimal)) => operation.is_minimal = minimal,
            // Indexing directives mean nothing without indexes; the other fields are not for us.
            _ => {}
        }
    }
    Ok(operation)
}

/// The numbers that the SDK for .NET has for operations.
fn kind_of(number: i32) -> Result<OperationType, Fault> {
    Ok(match number {
        0 => OperationType::Create,
        1 => OperationType::Patch,
        2 => OperationType::Read,
        4 => OperationType::Delete,
        5 => OperationType::Replace,
        20 => OperationType::Upsert,
        _ => return Err("an operation has a type that batches do not have"),
    })
}
