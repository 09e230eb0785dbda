//! The row of a result.

use crate::batch_wire::ResultWire;
use crate::hybrid_row::row::{FLOAT64, UINT32, begin, push_bytes, push_sparse};

pub(super) const SCHEMA: i32 = 2_145_473_649;
const RETRY_AFTER: u64 = 5;
const REQUEST_CHARGE: u64 = 6;

/// Writes a row.
pub(super) fn encode(result: &ResultWire) -> Vec<u8> {
    let mut row = begin(SCHEMA);
    let body = result.body.as_ref().or(result.refusal.as_ref());
    let bits = 0b11 | u8::from(result.etag.is_some()) << 2 | u8::from(body.is_some()) << 3;
    row.push(bits);
    row.extend(i32::from(result.status.as_u16()).to_le_bytes());
    row.extend(result.sub_status.unwrap_or(0).to_le_bytes());
    if let Some(etag) = &result.etag {
        push_bytes(&mut row, etag.as_bytes());
    }
    if let Some(body) = body {
        push_bytes(&mut row, body);
    }
    if let Some(wait) = result.retry_after {
        push_sparse(&mut row, UINT32, RETRY_AFTER);
        let millis = u32::try_from(wait.as_millis()).unwrap_or(u32::MAX);
        row.extend(millis.to_le_bytes());
    }
    push_sparse(&mut row, FLOAT64, REQUEST_CHARGE);
    row.extend(result.charge.to_le_bytes());
    row
}
