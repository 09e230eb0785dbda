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

/// Reads at a time: what does not fit is in memory for a moment all the same.
const READS_MAX: usize = 16;
/// Patches at a time: what has happened cannot be left out of the answer, so that these may exceed
/// it.
const PATCHES_MAX: usize = 4;

/// The answer to a bulk request. What operations sent is limited before they are done; what reads
/// and patches get back, which may be larger than they are, is limited here.
struct Room {
    taken: AtomicUsize,
    reading: Semaphore,
    patching: Semaphore,
}

impl Room {
    fn new() -> Self {
        Self {
            taken: AtomicUsize::new(0),
            reading: Semaphore::new(READS_MAX),
            patching: Semaphore::new(PATCHES_MAX),
        }
    }

    fn is_full(&self) -> bool {
        BATCH_RESULT_BYTES_MAX <= self.taken.load(Ordering::Relaxed)
    }

    /// Whether a result fits; the first one always does.
    fn takes(&self, result: &ResultWire) -> bool {
        let bytes = result.body.as_ref().map_or(0, Bytes::len);
        let taken = self.taken.fetch_add(bytes, Ordering::Relaxed);
        taken == 0 || taken + bytes <= BATCH_RESULT_BYTES_MAX
    }

    /// The result of what does not fit. Clients send again what was refused with this sub-status.
    fn refusal() -> ResultWire {
        let message = "the answer is full, and this operation was not done; send it again";
        let refusal = Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, message);
        refused(&refusal.sub_status(sub_status::ANSWER_TOO_LARGE))
    }
}

/// Whether an operation was refused because the answer is full.
fn is_left_out(result: &ResultWire) -> bool {
    result.sub_status == Some(sub_status::ANSWER_TOO_LARGE)
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
    if let Some(range) = &range {
        // Clients want to know it of every answer, also if nothing was done.
        let newest = call.container.newest(&range.keys).await?;
        seen.insert(range.id, newest);
    }
    // What was split since is told as of the range that was named: clients take one token only.
    let place = |(own, lsn)| (range.as_ref().map_or(own, |it| it.id), lsn);
    if !goes_on {
        for (index, wire) in operations.iter().enumerate() {
            let (result, position) = one(call, range.as_ref(), wire, &room).await;
            note(&mut seen, position.map(place));
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
    let (named, room) = (range.as_ref(), &room);
    let groups = groups.into_values().map(|indexes| async move {
        let mut done = Vec::with_capacity(indexes.len());
        let mut is_over = false;
        for index in indexes {
            // Later operations of a key do not overtake a write that is to be sent again.
            let (result, position) = match is_over {
                true => (Room::refusal(), None),
                false => one(call, named, &operations[index], room).await,
            };
            is_over |= operations[index].kind == OperationType::Patch && is_left_out(&result);
            done.push((index, (result, position)));
        }
        done
    });
    for (index, (result, position)) in join_all(groups).await.into_iter().flatten() {
        note(&mut seen, position.map(place));
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
    let (is_read, is_patch) = (wire.kind == OperationType::Read, wire.kind == OperationType::Patch);
    let may_grow = is_read || (is_patch && !one.is_minimal);
    let turns = if is_patch { &room.patching } else { &room.reading };
    let _turn = if may_grow { turns.acquire().await.ok() } else { None };
    if may_grow && room.is_full() {
        return (Room::refusal(), None);
    }
    let batch = Batch { partition_key: key.clone(), operations: one.steps };
    match call.container.documents().commit(batch).await {
        Ok(outcome) => {
            let position = call.container.position(&key, outcome.lsn).ok();
            let result = success(call, &outcome.results, one.is_minimal);
            let fits = !may_grow || room.takes(&result);
            (if fits || is_patch { result } else { Room::refusal() }, position)
        }
        Err(error) => (failure(call.container, &key, one.body.as_ref(), &error), None),
    }
}
