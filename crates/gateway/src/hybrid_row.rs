//! Batches in HybridRow, the binary form that the SDK for .NET sends and expects back.
//!
//! A body is a RecordIO stream: a header of the segment, then for each operation a record with its
//! length and checksum, and a row. A row is `0x81`, the number of its schema, bits that say which
//! columns are there, columns of fixed size, columns of variable size, and after these sparse
//! fields that name their type and path themselves. Only the two schemas of batches are known here,
//! and only the types they use.
//!
//! Read `record_io` first, then `row` (what the two schemas have in common), `operation` and
//! `result`.

mod checksum;
mod operation;
mod record_io;
mod result;
mod row;
#[cfg(test)]
mod tests;

use bytes::Bytes;
use millstream_core::{Error, Result};

use crate::batch_wire::{OperationWire, ResultWire};

/// First byte of every row, and so of every body in this form; no JSON text begins with it.
const VERSION: u8 = 0x81;

/// Whether a body is in HybridRow.
pub(crate) fn is_hybrid_row(body: &[u8]) -> bool {
    body.first() == Some(&VERSION)
}

/// Reads the operations of a batch, but at most `operations_max` and one more.
///
/// # Errors
///
/// `Invalid` if the body is not a stream of operations or a checksum does not hold.
pub(crate) fn decode_operations(body: &Bytes, operations_max: usize) -> Result<Vec<OperationWire>> {
    let mut records = record_io::Records::new(body).map_err(refused)?;
    let mut operations = Vec::new();
    while let Some(row) = records.next().map_err(refused)? {
        operations.push(operation::decode(&body.slice(row)).map_err(refused)?);
        if operations_max < operations.len() {
            break;
        }
    }
    Ok(operations)
}

/// Writes the results of a batch.
pub(crate) fn encode_results(results: &[ResultWire]) -> Vec<u8> {
    let mut stream = record_io::segment();
    for one in results {
        record_io::push_record(&mut stream, &result::encode(one));
    }
    stream
}

/// The stream of one row, whose checksum holds: a fuzzer would hardly ever find it.
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) fn stream_of(row: &[u8]) -> Bytes {
    let mut stream = record_io::segment();
    record_io::push_record(&mut stream, row);
    stream.into()
}

/// What is wrong with a body.
type Fault = &'static str;

fn refused(reason: Fault) -> Error {
    Error::invalid("read the HybridRow batch", reason)
}
