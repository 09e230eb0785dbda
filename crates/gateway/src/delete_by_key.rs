//! Deletes all items of a logical partition.

use http::StatusCode;
use millstream_core::{
    BATCH_OPERATIONS_MAX, Batch, ErrorKind, Lsn, Operation, PageSize, PartitionKey, ScanScope,
};

use crate::charge;
use crate::items::check_whole;
use crate::refusal::Refusal;
use crate::reply::{Answer, Reply};
use crate::request::KeyHeader;
use crate::state::Call;

/// `POST …/operations/partitionkeydelete`.
///
/// Items go in batches, not all at once, as in Cosmos DB; but here all are gone when it is
/// answered.
pub(crate) async fn execute(call: Call<'_>) -> Answer {
    let KeyHeader::Key(key) = call.request.partition_key()? else {
        let message = "deleting all items of a partition key needs that key in the request";
        return Err(Refusal::bad_request(message));
    };
    let key = check_whole(key, call.container)?;
    let mut lsn = Lsn::ZERO;
    let (mut charge, mut after) = (0.0, None);
    let size = PageSize::items(BATCH_OPERATIONS_MAX);
    let scope = ScanScope::Partition(key.clone());
    loop {
        // Going on from the last page ends even if somebody creates items all the time.
        let page = call.container.documents().scan(&scope, after.as_ref(), size).await?;
        let ids: Vec<_> = page.items.into_iter().map(|it| it.id).collect();
        for ids in ids.chunks(BATCH_OPERATIONS_MAX) {
            let mut batch = Batch::new(key.clone());
            batch.operations.extend(ids.iter().cloned().map(Operation::delete));
            charge += charge::delete();
            lsn = lsn.max(delete(call, &key, batch).await?);
        }
        after = page.continuation;
        if after.is_none() {
            break;
        }
    }
    let (range, lsn) = call.container.position(&key, lsn)?;
    Ok(Reply::empty(StatusCode::OK).session(range, lsn).charge(charge.max(1.0)))
}

/// Deletes what is there of a batch of deletes: somebody else may delete, too.
async fn delete(call: Call<'_>, key: &PartitionKey, batch: Batch) -> Result<Lsn, Refusal> {
    let documents = call.container.documents();
    match documents.commit(batch.clone()).await {
        Ok(outcome) => return Ok(outcome.lsn),
        Err(error) if error.kind() != ErrorKind::NotFound || error.operation().is_none() => {
            return Err(error.into());
        }
        Err(_) => (),
    }
    let mut lsn = Lsn::ZERO;
    for operation in batch.operations {
        let one = Batch::new(key.clone()).with(operation);
        match documents.commit(one).await {
            Ok(outcome) => lsn = lsn.max(outcome.lsn),
            Err(error) if error.kind() == ErrorKind::NotFound && error.operation().is_some() => (),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(lsn)
}
