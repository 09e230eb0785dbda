//! Bulk requests: operations that stand each on their own.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use bytes::Bytes;
use futures_util::future::join_all;
use http::StatusCode;
use millstream_core::{
    Batch, ITEM_BYTES_MAX, ItemId, KeyRange, Lsn, PartitionKey, RangeId, RangeInfo,
};

use crate::batch::meter::{Cost, Meter, is_to_wait};
use crate::batch::room::Room;
use crate::batch::{
    Ready, Seen, Sent, failure, is_failure, note, own_key, prepare, refused, success,
};
use crate::batch_wire::{OperationType, ResultWire};
use crate::refusal::{Refusal, sub_status};
use crate::state::Call;
use crate::{charge, headers, scope};

/// What an answer adds to an item at most: the properties of the service.
const SHOWN_BYTES_MAX: usize = 512;

/// What came of an operation, and what it has seen.
pub(super) type Done = (ResultWire, Option<(RangeId, Lsn)>);

/// A bulk request that is being done.
struct Bulk<'a> {
    call: Call<'a>,
    operations: &'a [Sent],
    /// The partition keys of the operations.
    keys: Vec<Result<PartitionKey, Refusal>>,
    room: Room,
    meter: Meter<'a>,
    /// Why the container turned out to be gone, if it did.
    gone: OnceLock<Refusal>,
}

/// Each operation on its own; those of one partition key in their order, others side by side.
pub(super) async fn execute(
    call: Call<'_>,
    operations: &[Sent],
) -> Result<(Vec<ResultWire>, Seen), Refusal> {
    let range = scope::range(call.request, call.container).await?;
    let keys = operations.iter().map(|it| own_key(call, range.as_ref(), &it.wire)).collect();
    let meter = Meter::new(&call.container.throttle, &*call.state.clock);
    let (room, gone) = (Room::new(), OnceLock::new());
    let bulk = Bulk { call, operations, keys, room, meter, gone };
    bulk.check_session(range.as_ref()).await?;
    let done = if call.request.flag(&headers::BATCH_CONTINUE_ON_ERROR) {
        bulk.side_by_side().await
    } else {
        bulk.one_by_one().await
    };
    let mut results = vec![ResultWire::status(StatusCode::FAILED_DEPENDENCY); operations.len()];
    let mut seen = Seen::new();
    // Clients take one token only: none of what was split since is told instead of the range that
    // was named.
    let is_asked = |own: RangeId| range.as_ref().is_none_or(|it| it.id == own);
    for (index, (result, position)) in done {
        note(&mut seen, position.filter(|(own, _)| is_asked(*own)));
        results[index] = result;
    }
    if let Some(refusal) = bulk.gone.into_inner() {
        // There may be another one of that name, which all of it can be done in.
        if results.iter().all(is_failure) {
            return Err(refusal);
        }
        call.state.forget(&call.container.info().name);
    }
    // Clients want to know it of every answer, also if nothing was done; and who was refused for
    // what is there, or is not, has seen more than what was written.
    if let Some(range) = &range
        && (!seen.contains_key(&range.id) || results.iter().any(tells_of_others))
        // What was done stays done without it.
        && let Ok(newest) = call.container.newest(&range.keys).await
    {
        note(&mut seen, Some((range.id, newest)));
    }
    Ok((results, seen))
}

impl Bulk<'_> {
    /// Checks what the client has seen if it reads, as single reads do, and before anything is
    /// done: SDKs send a whole request again, not a part of it.
    async fn check_session(&self, range: Option<&RangeInfo>) -> Result<(), Refusal> {
        let Call { request, container, .. } = self.call;
        let mut looked_at: Vec<KeyRange> = Vec::new();
        for (one, key) in self.operations.iter().zip(&self.keys) {
            let (OperationType::Read, Ok(key)) = (one.wire.kind, key) else { continue };
            let keys = match range {
                Some(range) => range.keys.clone(),
                None => container.settings().partition_key.range_of(key)?,
            };
            if !looked_at.contains(&keys) {
                container.check_session(request, &keys).await?;
                looked_at.push(keys);
            }
        }
        Ok(())
    }

    /// Until one of them fails.
    async fn one_by_one(&self) -> Vec<(usize, Done)> {
        let mut done = Vec::with_capacity(self.operations.len());
        for index in 0..self.operations.len() {
            let (result, position) = self.one(index).await;
            let is_failure = is_failure(&result);
            done.push((index, (result, position)));
            if is_failure {
                break;
            }
        }
        done
    }

    async fn side_by_side(&self) -> Vec<(usize, Done)> {
        // By the key, not by its text: there are many ways to write one.
        let mut groups: BTreeMap<String, Vec<usize>> = BTreeMap::new();
        for (index, key) in self.keys.iter().enumerate() {
            // Those without a key are refused, in whatever order.
            let key = key.as_ref().map_or(String::new(), PartitionKey::to_string);
            groups.entry(key).or_default().push(index);
        }
        // Who comes first is served first, also if there is not enough to spend.
        let mut groups: Vec<Vec<usize>> = groups.into_values().collect();
        groups.sort();
        let groups = groups.into_iter().map(|indexes| self.in_order(indexes));
        join_all(groups).await.into_iter().flatten().collect()
    }

    /// The operations of one partition key.
    async fn in_order(&self, indexes: Vec<usize>) -> Vec<(usize, Done)> {
        let mut done = Vec::with_capacity(indexes.len());
        // Later operations of a key do not overtake a write that is to be sent again, nor anything
        // that is to be sent again later.
        let mut over: Option<ResultWire> = None;
        for index in indexes {
            let (result, position) = match &over {
                Some(result) => (result.clone(), None),
                None => self.one(index).await,
            };
            let is_patch = self.operations[index].wire.kind == OperationType::Patch;
            if over.is_none() && (is_to_wait(&result) || (is_patch && is_left_out(&result))) {
                over = Some(ResultWire { charge: 0.0, ..result.clone() });
            }
            done.push((index, (result, position)));
        }
        done
    }

    async fn one(&self, index: usize) -> Done {
        let sent = &self.operations[index];
        let ready = match &self.keys[index] {
            Ok(key) => prepare(self.call, sent).map(|ready| (key, ready)),
            Err(refusal) => Err(refusal.clone()),
        };
        match ready {
            Ok((key, ready)) => {
                let cost = cost(sent.wire.kind, &ready);
                self.meter.metered(cost, self.prepared(key, sent, ready)).await
            }
            Err(refusal) => {
                let result = refused(&refusal);
                self.meter.refuse(&result);
                (result, None)
            }
        }
    }

    async fn prepared(&self, key: &PartitionKey, sent: &Sent, ready: Ready) -> Done {
        match sent.wire.kind {
            OperationType::Read => self.read(key, ready).await,
            OperationType::Patch if !ready.is_minimal => self.patch(key, sent, ready).await,
            OperationType::Patch
            | OperationType::Create
            | OperationType::Upsert
            | OperationType::Replace
            | OperationType::Delete => self.commit(key, ready).await,
        }
    }

    async fn read(&self, key: &PartitionKey, ready: Ready) -> Done {
        let _turn = self.room.turn().await;
        if self.room.is_full() {
            return (left_out(), None);
        }
        let (result, position) = self.commit(key, ready).await;
        let Some(bytes) = result.body.as_ref().map(Bytes::len) else { return (result, position) };
        match self.room.reserve(bytes).await {
            Some(place) => place.fill(bytes),
            None => return (left_out(), position),
        }
        (result, position)
    }

    async fn patch(&self, key: &PartitionKey, sent: &Sent, ready: Ready) -> Done {
        if self.room.is_full() {
            return (left_out(), None);
        }
        let bytes = self.patched_bytes(key, sent).await;
        let Some(place) = self.room.reserve(bytes).await else { return (left_out(), None) };
        let (result, position) = self.commit(key, ready).await;
        place.fill(result.body.as_ref().map_or(0, Bytes::len));
        (result, position)
    }

    /// What an item may have when it is patched: its size and that of the patch, which both are far
    /// less than the limit nearly always, so that many can be patched at a time.
    async fn patched_bytes(&self, key: &PartitionKey, sent: &Sent) -> usize {
        let _turn = self.room.turn().await;
        let Some(Ok(id)) = sent.wire.id.as_deref().map(ItemId::new) else { return 0 };
        let patch = sent.body.as_ref().map_or(0, |it| it.as_ref().map_or(0, Bytes::len));
        let item = match self.call.container.documents().read(key, &id).await {
            Ok(Some(item)) => item.body.len(),
            Ok(None) => return 0,
            // The patch itself will tell what is wrong.
            Err(_) => ITEM_BYTES_MAX,
        };
        (item + patch).min(ITEM_BYTES_MAX) + SHOWN_BYTES_MAX
    }

    async fn commit(&self, key: &PartitionKey, ready: Ready) -> Done {
        let container = self.call.container;
        let batch = Batch { partition_key: key.clone(), operations: ready.steps };
        match container.documents().commit(batch).await {
            Ok(outcome) => {
                let position = container.position(key, outcome.lsn).ok();
                (success(self.call, &outcome.results, ready.is_minimal), position)
            }
            Err(error) => {
                let refusal = Refusal::from(&error);
                if refusal.is_container_gone {
                    self.gone.get_or_init(|| refusal);
                }
                (failure(container, key, ready.body.as_ref(), &error), None)
            }
        }
    }
}

fn cost(kind: OperationType, ready: &Ready) -> Cost {
    match kind {
        OperationType::Create | OperationType::Upsert | OperationType::Replace => {
            Cost::Known(charge::write(ready.body.as_ref().map_or(0, Bytes::len)))
        }
        OperationType::Delete => Cost::Known(charge::delete()),
        OperationType::Patch => Cost::AtLeast(charge::write(0)),
        OperationType::Read => Cost::AtLeast(charge::read(0)),
    }
}

/// The result of what does not fit. Clients send again what was refused with this sub-status.
fn left_out() -> ResultWire {
    let message = "the answer is full, and this operation was not done; send it again";
    let refusal = Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, message);
    refused(&refusal.sub_status(sub_status::ANSWER_TOO_LARGE))
}

/// Whether an operation was refused because the answer is full.
fn is_left_out(result: &ResultWire) -> bool {
    result.sub_status == Some(sub_status::ANSWER_TOO_LARGE)
}

/// Whether a result shows what somebody else may have written.
fn tells_of_others(result: &ResultWire) -> bool {
    [StatusCode::NOT_FOUND, StatusCode::CONFLICT, StatusCode::PRECONDITION_FAILED]
        .contains(&result.status)
}
