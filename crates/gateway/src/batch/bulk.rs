//! Bulk requests: operations that stand each on their own.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use futures_util::future::join_all;
use http::StatusCode;
use millstream_core::{BATCH_RESULT_BYTES_MAX, Batch, Lsn, RangeId, RangeInfo};
use tokio::sync::Semaphore;

use crate::batch::{Seen, failure, is_failure, note, own_key, prepare, refused, success};
use crate::batch_wire::{OperationType, OperationWire, ResultWire};
use crate::headers;
use crate::refusal::{Refusal, sub_status};
use crate::scope;
use crate::state::Call;

/// How many operations whose results may be larger than they are run beside each other: when the
/// answer is full, so many more come into it.
const GROWING_MAX: usize = 16;

/// The answer to a bulk request. What its operations sent is limited with the request; what they
/// get back is limited here.
struct Room {
    taken: AtomicUsize,
    growing: Semaphore,
}

impl Room {
    fn new() -> Self {
        Self { taken: AtomicUsize::new(0), growing: Semaphore::new(GROWING_MAX) }
    }

    /// Refuses what may not fit any more. Clients send again what was refused with this
    /// sub-status.
    fn check(&self) -> Result<(), Refusal> {
        if self.taken.load(Ordering::Relaxed) < BATCH_RESULT_BYTES_MAX {
            return Ok(());
        }
        let message = "the answer is full, and this operation was not attempted; send it again";
        let refusal = Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, message);
        Err(refusal.sub_status(sub_status::ANSWER_TOO_LARGE))
    }

    fn take(&self, result: &ResultWire) {
        let bytes = result.body.as_ref().map_or(0, Bytes::len);
        self.taken.fetch_add(bytes, Ordering::Relaxed);
    }
}

/// Each operation on its own; those of one partition key in their order, others side by side.
pub(super) async fn execute(
    call: Call<'_>,
    operations: &[OperationWire],
) -> Result<(Vec<ResultWire>, Seen), Refusal> {
    let range = scope::range(call.request, call.container).await?;
    let goes_on = call.request.flag(&headers::BATCH_CONTINUE_ON_ERROR);
    let mut results = vec![ResultWire::status(StatusCode::FAILED_DEPENDENCY); operations.len()];
    let (mut seen, room) = (Seen::new(), Room::new());
    if !goes_on {
        for (index, wire) in operations.iter().enumerate() {
            let (result, position) = one(call, range.as_ref(), wire, &room).await;
            note(&mut seen, position);
            let is_failure = is_failure(&result);
            results[index] = result;
            if is_failure {
                break;
            }
        }
        return Ok((results, seen));
    }
    let mut groups: BTreeMap<Option<&str>, Vec<usize>> = BTreeMap::new();
    for (index, wire) in operations.iter().enumerate() {
        groups.entry(wire.partition_key.as_deref()).or_default().push(index);
    }
    let (range, room) = (range.as_ref(), &room);
    let groups = groups.into_values().map(|indexes| async move {
        let mut done = Vec::with_capacity(indexes.len());
        for index in indexes {
            done.push((index, one(call, range, &operations[index], room).await));
        }
        done
    });
    for (index, (result, position)) in join_all(groups).await.into_iter().flatten() {
        note(&mut seen, position);
        results[index] = result;
    }
    Ok((results, seen))
}

async fn one(
    call: Call<'_>,
    range: Option<&RangeInfo>,
    wire: &OperationWire,
    room: &Room,
) -> (ResultWire, Option<(RangeId, Lsn)>) {
    let prepared = own_key(call, range, wire).and_then(|key| Ok((key, prepare(call, wire)?)));
    let (key, one) = match prepared {
        Ok(prepared) => prepared,
        Err(refusal) => return (refused(&refusal), None),
    };
    let may_grow = matches!(wire.kind, OperationType::Read | OperationType::Patch);
    let _turn = if may_grow { room.growing.acquire().await.ok() } else { None };
    if may_grow && let Err(refusal) = room.check() {
        return (refused(&refusal), None);
    }
    let batch = Batch { partition_key: key.clone(), operations: one.steps };
    match call.container.documents().commit(batch).await {
        Ok(outcome) => {
            let position = call.container.position(&key, outcome.lsn).ok();
            let result = success(call, &outcome.results, one.is_minimal);
            room.take(&result);
            (result, position)
        }
        Err(error) => (failure(call.container, &key, one.body.as_ref(), &error), None),
    }
}
