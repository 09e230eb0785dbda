use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use millstream_core::memory::Memory;
use millstream_core::{
    Batch, BatchOutcome, ContainerName, Containers, Documents, Error, ErrorKind, Etag, Item,
    ItemId, Lsn, OperationKind, OperationResult, PageSize, PartitionKey, Result, ScanContinuation,
    ScanPage, ScanScope,
};

use crate::mutants::Flaw;
use crate::mutants::store::Shared;

pub(crate) struct MutantDocuments {
    pub(crate) shared: Shared,
    pub(crate) inner: Arc<dyn Documents>,
    pub(crate) memory: Memory,
    pub(crate) name: ContainerName,
}

impl MutantDocuments {
    async fn documents(&self) -> Result<Arc<dyn Documents>> {
        if self.shared.has(Flaw::HandleFollowsTheName) {
            return Ok(self.memory.open(&self.name).await?.documents);
        }
        Ok(Arc::clone(&self.inner))
    }

    fn spoil(&self, item: &mut Item) {
        if self.shared.has(Flaw::BodyParsedAndWrittenAgain)
            && let Ok(value) = serde_json::from_slice::<serde_json::Value>(&item.body)
        {
            item.body = Bytes::from(value.to_string());
        }
        if self.shared.has(Flaw::EtagUnchangedByReplace) {
            item.etag = Etag::new(item.id.as_str());
        }
    }

    fn spoil_batch(&self, batch: &mut Batch) {
        for operation in &mut batch.operations {
            if self.shared.has(Flaw::IfMatchIgnored) {
                operation.if_match = None;
            }
            if self.shared.has(Flaw::IfNoneMatchIgnored) {
                operation.if_none_match = None;
            }
        }
    }

    fn spoil_outcome(&self, outcome: &mut BatchOutcome, deletes: bool) {
        let mut notes = self.shared.notes();
        let number = outcome.lsn.as_u64();
        if self.shared.has(Flaw::NumberReusedAfterDelete) {
            outcome.lsn = Lsn::new(number - notes.deletes);
            notes.deletes += u64::from(deletes);
        }
        if self.shared.has(Flaw::MergeRestartsNumbering) && notes.merged {
            let base = *notes.merged_at.get_or_insert(number - 1);
            outcome.lsn = Lsn::new(number - base);
        }
        let mut events = 0;
        for result in &mut outcome.results {
            let (OperationResult::Created(item)
            | OperationResult::Replaced(item)
            | OperationResult::Read(item)) = result
            else {
                continue;
            };
            notes.items.push(item.clone());
            self.spoil(item);
            if item.lsn.as_u64() == number {
                item.lsn = outcome.lsn;
            }
            events += u64::from(item.sequence.is_some());
            if self.shared.has(Flaw::SequenceGapAfterRefusal) {
                item.sequence = item.sequence.map(|it| it + notes.refusals);
            }
            if self.shared.has(Flaw::SequenceRestartsWithEveryBatch) {
                item.sequence = item.sequence.map(|_| events);
            }
        }
    }
}

#[async_trait]
impl Documents for MutantDocuments {
    async fn read(&self, key: &PartitionKey, id: &ItemId) -> Result<Option<Item>> {
        let mut item = self.documents().await?.read(key, id).await?;
        if self.shared.has(Flaw::ReadFromAStaleCache) {
            let mut notes = self.shared.notes();
            match notes.cache.iter().find(|(it, other, _)| it == key && other == id) {
                Some((_, _, cached)) => item = cached.clone(),
                None => notes.cache.push((key.clone(), id.clone(), item.clone())),
            }
        }
        item.iter_mut().for_each(|it| self.spoil(it));
        Ok(item)
    }

    async fn commit(&self, mut batch: Batch) -> Result<BatchOutcome> {
        let documents = self.documents().await?;
        self.spoil_batch(&mut batch);
        let is_delete = |it: &OperationKind| matches!(it, OperationKind::Delete(_));
        let is_read = |it: &OperationKind| matches!(it, OperationKind::Read(_));
        let deletes = batch.operations.iter().any(|it| is_delete(&it.kind));
        match documents.commit(batch.clone()).await {
            Ok(mut outcome) => {
                self.spoil_outcome(&mut outcome, deletes);
                Ok(outcome)
            }
            Err(error) if self.shared.has(Flaw::HalfOfARefusedBatchCommitted) => {
                for operation in batch.operations {
                    let one = Batch::new(batch.partition_key.clone()).with(operation);
                    if documents.commit(one).await.is_err() {
                        break;
                    }
                }
                Err(error)
            }
            Err(error)
                if self.shared.has(Flaw::ReadsOfABatchUnlimited)
                    && error.kind() == ErrorKind::TooLarge
                    && batch.operations.iter().any(|it| is_read(&it.kind)) =>
            {
                piecemeal(&*documents, batch).await
            }
            Err(error) if self.shared.has(Flaw::RefusalNamesNoOperation) => {
                Err(Error::new(error.kind(), "commit a batch").because(error))
            }
            Err(error) => {
                self.shared.notes().refusals += 1;
                Err(error)
            }
        }
    }

    async fn scan(
        &self,
        scope: &ScanScope,
        after: Option<&ScanContinuation>,
        size: PageSize,
    ) -> Result<ScanPage> {
        let mut page = self.documents().await?.scan(scope, after, size).await?;
        if self.shared.has(Flaw::ScanSkipsAnItemBetweenPages) && after.is_some() {
            page.items.remove(0);
        }
        page.items.iter_mut().for_each(|it| self.spoil(it));
        Ok(page)
    }
}

/// Commits what only what is read makes too large: no step by itself is.
async fn piecemeal(documents: &dyn Documents, batch: Batch) -> Result<BatchOutcome> {
    let mut whole = BatchOutcome { lsn: Lsn::new(0), results: Vec::new() };
    for operation in batch.operations {
        let one = Batch::new(batch.partition_key.clone()).with(operation);
        let outcome = documents.commit(one).await?;
        whole.lsn = outcome.lsn;
        whole.results.extend(outcome.results);
    }
    Ok(whole)
}
