//! Items: every read and write is a batch, because a batch can name the container by its resource
//! id and the text of a batch is ours.

use async_trait::async_trait;
use azure_data_cosmos_driver::CosmosResponse;
use azure_data_cosmos_driver::models::CosmosOperation;
use azure_data_cosmos_driver::options::OperationOptions;
use millstream_core::{
    Action, Batch, BatchOutcome, CheckedBatch, CheckedOperation, Documents, Effect, Error,
    ErrorKind, Item, ItemId, Lsn, Operation, OperationResult, PageSize, PartitionKey, Result,
    ScanContinuation, ScanPage, ScanScope,
};

use crate::account::single;
use crate::batch_wire::{self, FAILED_DEPENDENCY, ResultWire};
use crate::calls;
use crate::container::{OpenContainer, driver_key};
use crate::failure::{Access, refused_operation, unreadable, was_tried_before};
use crate::scan;

const OK: u16 = 200;
const CREATED: u16 = 201;
const NO_CONTENT: u16 = 204;
const NOT_MODIFIED: u16 = 304;

#[async_trait]
impl Documents for OpenContainer {
    async fn read(&self, key: &PartitionKey, id: &ItemId) -> Result<Option<Item>> {
        let batch = Batch::new(key.clone()).with(Operation::read(id.clone()));
        let outcome = match self.commit(batch).await {
            Ok(outcome) => outcome,
            Err(error) if is_missing(&error) => return Ok(None),
            Err(error) => return Err(error),
        };
        Ok(outcome.results.first().and_then(OperationResult::item).cloned())
    }

    async fn commit(&self, batch: Batch) -> Result<BatchOutcome> {
        let batch = batch.check(self.settings())?;
        let attempted = attempted(&batch);
        let access = access(&batch);
        let key = driver_key(&batch.partition_key)?;
        let body = batch_wire::encode(&batch);
        let is_repeatable = is_repeatable(&batch);
        let send = || {
            let operation = CosmosOperation::batch(self.reference.clone(), key.clone());
            let options = if is_repeatable { OperationOptions::default() } else { calls::once() };
            self.account.call_with(operation.with_body(body.clone()), options, &attempted, access)
        };
        let response = match send().await {
            // With several regions that take writes the SDK knows by now where else to send it.
            Err(error) if !is_repeatable && has_certainly_not_arrived(&error) => send().await?,
            sent => sent?,
        };
        let lsn = newest(&response);
        let is_doubtful = access == Access::Write && was_tried_before(&response.diagnostics());
        let body = single(response, &attempted, access)?;
        let results: Vec<ResultWire> =
            serde_json::from_slice(&body).map_err(|error| unreadable(&attempted, error, access))?;
        refusal(&batch, &results)
            .map_err(|error| if is_doubtful { error.with_unknown_effect() } else { error })?;
        if is_doubtful && !is_repeatable {
            let reason = "it was sent again after an answer was lost, and may have been done twice";
            return Err(unreadable(&attempted, reason, access));
        }
        if results.len() != batch.operations.len() {
            return Err(unreadable(&attempted, "the answer has another number of results", access));
        }
        let results = batch.operations.iter().zip(&results).map(|(operation, result)| {
            self.result(operation, result, lsn, &attempted).map_err(|error| match access {
                Access::Read => error,
                Access::Write => error.with_unknown_effect(),
            })
        });
        Ok(BatchOutcome { lsn, results: results.collect::<Result<_>>()? })
    }

    async fn scan(
        &self,
        scope: &ScanScope,
        after: Option<&ScanContinuation>,
        size: PageSize,
    ) -> Result<ScanPage> {
        scan::page(self, scope, after, size).await
    }
}

impl OpenContainer {
    fn result(
        &self,
        operation: &CheckedOperation,
        result: &ResultWire,
        lsn: Lsn,
        attempted: &str,
    ) -> Result<OperationResult> {
        // Only the feed says which commit an item is from, unless it is this one.
        let lsn = if matches!(operation.action, Action::Read) { Lsn::ZERO } else { lsn };
        let item = || match &result.body {
            Some(body) => self.item(body.get(), lsn, attempted),
            None => Err(unreadable(attempted, "a result has no item", Access::Read)),
        };
        match (&operation.action, result.status) {
            (Action::Read, NOT_MODIFIED) => Ok(OperationResult::NotModified),
            (Action::Read, OK) => Ok(OperationResult::Read(item()?)),
            (Action::Delete, NO_CONTENT | OK) => Ok(OperationResult::Deleted),
            (Action::Create(_) | Action::Upsert(_), CREATED) => {
                Ok(OperationResult::Created(item()?))
            }
            (Action::Upsert(_) | Action::Replace(_) | Action::Patch(_), OK) => {
                Ok(OperationResult::Replaced(item()?))
            }
            (_, status) => {
                let reason = format!("an operation was answered with status {status}");
                Err(unreadable(attempted, reason, Access::Read))
            }
        }
    }
}

fn has_certainly_not_arrived(error: &Error) -> bool {
    error.kind() == ErrorKind::Unavailable && error.effect() == Effect::None
}

/// The newest commit of the range that answered, as far as it says.
pub(crate) fn newest(response: &CosmosResponse) -> Lsn {
    let headers = response.headers();
    Lsn::new(headers.lsn.unwrap_or_default())
}

/// The error of the operation that failed, if one did.
fn refusal(batch: &CheckedBatch, results: &[ResultWire]) -> Result<()> {
    let refused = |it: &(usize, &ResultWire)| it.1.is_refused();
    let is_cause = |it: &(usize, &ResultWire)| it.1.status != FAILED_DEPENDENCY;
    let Some((index, result)) = results.iter().enumerate().find(|it| refused(it) && is_cause(it))
    else {
        return Ok(());
    };
    let attempted = match batch.operations.get(index) {
        Some(operation) => {
            format!("{} item {:?}", batch_wire::verb(&operation.action), operation.id.as_str())
        }
        None => "commit a batch".to_owned(),
    };
    let reason = match (result.status, result.sub_status) {
        (404, _) => "there is no item with this id".to_owned(),
        (409, _) => "an item with this id exists".to_owned(),
        (412, _) => "the item has changed since it was read; read it again".to_owned(),
        (status, 0) => format!("the service refused it with status {status}"),
        (status, sub) => format!("the service refused it with status {status}/{sub}"),
    };
    let error =
        refused_operation(result.status, result.sub_status, attempted, result.retry_after());
    Err(error.because(reason).at_operation(index))
}

/// Whether the item of a batch that reads one is not there.
fn is_missing(error: &Error) -> bool {
    error.kind() == ErrorKind::NotFound
        && error.operation() == Some(0)
        && error.effect() == Effect::None
}

fn attempted(batch: &CheckedBatch) -> String {
    match batch.operations.as_slice() {
        [one] => format!("{} item {:?}", batch_wire::verb(&one.action), one.id.as_str()),
        many => format!("commit {} operations to partition {}", many.len(), batch.partition_key),
    }
}

fn access(batch: &CheckedBatch) -> Access {
    let only_reads = batch.operations.iter().all(|it| matches!(it.action, Action::Read));
    if only_reads { Access::Read } else { Access::Write }
}

/// Whether a batch may be sent again while nobody knows if it was done: it only reads, or, once it
/// was done, one of its operations is refused and with it all of them.
///
/// Others would be done twice, or undo what somebody else has written in between.
fn is_repeatable(batch: &CheckedBatch) -> bool {
    let is_deleted = |id: &ItemId| {
        let deletes = |it: &&CheckedOperation| matches!(it.action, Action::Delete);
        batch.operations.iter().filter(deletes).any(|it| it.id == *id)
    };
    let is_refused_again = |it: &CheckedOperation| match it.action {
        Action::Create(_) => !is_deleted(&it.id),
        Action::Replace(_) | Action::Patch(_) | Action::Delete => it.if_match.is_some(),
        // An upsert finds no etag to compare where the item is gone.
        Action::Upsert(_) | Action::Read => false,
    };
    access(batch) == Access::Read || batch.operations.iter().any(is_refused_again)
}

#[cfg(test)]
mod tests {
    use millstream_core::{ContainerSettings, Etag, PartitionKeyDefinition, Patch, PatchOperation};

    use super::*;

    const BODY: &str = r#"{"id":"1","pk":"k"}"#;
    const OTHER: &str = r#"{"id":"2","pk":"k"}"#;

    fn id() -> ItemId {
        ItemId::new("1").unwrap()
    }

    fn patch() -> Operation {
        let increment = PatchOperation::increment("/n", 1).unwrap();
        Operation::patch(id(), Patch::new(vec![increment]).unwrap())
    }

    fn known(operation: Operation) -> Operation {
        operation.if_match(Etag::new("e"))
    }

    #[track_caller]
    fn check(operations: impl IntoIterator<Item = Operation>, expected: bool) {
        let settings = ContainerSettings::new(PartitionKeyDefinition::hash("/pk").unwrap());
        let batch = operations.into_iter().fold(Batch::new("k"), Batch::with);
        assert_eq!(is_repeatable(&batch.check(&settings).unwrap()), expected);
    }

    #[test]
    fn what_is_refused_the_second_time_may_be_sent_again() {
        check([Operation::read(id())], true);
        check([Operation::create(BODY)], true);
        check([known(Operation::replace(id(), BODY))], true);
        check([known(patch())], true);
        check([known(Operation::delete(id()))], true);
        check([patch(), Operation::create(OTHER), Operation::upsert(OTHER)], true);
    }

    #[test]
    fn what_would_be_done_twice_is_sent_once() {
        check([patch()], false);
        check([Operation::upsert(BODY)], false);
        check([Operation::replace(id(), BODY)], false);
        check([Operation::delete(id())], false);
        check([known(Operation::upsert(BODY))], false);
        check([known(Operation::read(id())), patch()], false);
        check([Operation::create(BODY), Operation::delete(id())], false);
    }
}
