//! A container in memory, and queries over it page by page.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use bytes::Bytes;
use millstream_core::conformance::block_on;
use millstream_core::memory::Memory;
use millstream_core::{
    Batch, BatchOutcome, Container, ContainerName, ContainerSettings, Containers, Documents, Item,
    ItemId, ManualClock, Operation, PartitionKey, PartitionKeyDefinition, Result as CoreResult,
    ScanContinuation, ScanPage, ScanScope, Timestamp,
};
use millstream_query::{Limits, Page, Parameters, Query, Request, Result, Scope};

/// 2026-02-09T11:07:37.302Z.
pub(crate) const NOW: Timestamp = Timestamp::from_millis(1_770_635_257_302);

/// A container with documents.
pub(crate) struct Harness {
    pub(crate) definition: PartitionKeyDefinition,
    pub(crate) documents: Arc<Counted>,
    pub(crate) clock: ManualClock,
    pub(crate) container: Container,
    /// The documents it began with.
    pub(crate) texts: Vec<Bytes>,
}

/// Counts what is read from the container.
pub(crate) struct Counted {
    inner: Arc<dyn Documents>,
    pub(crate) reads: AtomicU64,
    pub(crate) scanned: AtomicU64,
}

#[async_trait]
impl Documents for Counted {
    async fn read(&self, key: &PartitionKey, id: &ItemId) -> CoreResult<Option<Item>> {
        self.reads.fetch_add(1, Ordering::SeqCst);
        self.inner.read(key, id).await
    }

    async fn commit(&self, batch: Batch) -> CoreResult<BatchOutcome> {
        self.inner.commit(batch).await
    }

    async fn scan(
        &self,
        scope: &ScanScope,
        after: Option<&ScanContinuation>,
        size: millstream_core::PageSize,
    ) -> CoreResult<ScanPage> {
        let page = self.inner.scan(scope, after, size).await?;
        self.scanned.fetch_add(u64::try_from(page.items.len()).unwrap(), Ordering::SeqCst);
        Ok(page)
    }
}

impl Harness {
    /// A container partitioned by these paths (`MultiHash` if there are several).
    pub(crate) fn new(paths: &[&str], documents: &[String]) -> Self {
        let definition = match paths {
            [only] => PartitionKeyDefinition::hash(*only).unwrap(),
            several => PartitionKeyDefinition::multi_hash(several.iter().copied()).unwrap(),
        };
        let store = Memory::new(Arc::new(ManualClock::starting_at(NOW)));
        let name = ContainerName::new("app", "data").unwrap();
        let container = block_on(async {
            store.create_database("app").await.unwrap();
            store.create(&name, ContainerSettings::new(definition.clone())).await.unwrap();
            store.open(&name).await.unwrap()
        });
        let harness = Self {
            definition,
            documents: Arc::new(Counted {
                inner: container.documents.clone(),
                reads: AtomicU64::new(0),
                scanned: AtomicU64::new(0),
            }),
            clock: ManualClock::starting_at(NOW),
            container,
            texts: documents.iter().map(|it| Bytes::from(it.clone())).collect(),
        };
        for document in documents {
            harness.put(document);
        }
        harness
    }

    pub(crate) fn put(&self, document: &str) {
        let key = self.definition.extract(document.as_bytes()).unwrap();
        let operation = Operation::upsert(document.to_owned());
        block_on(self.container.documents.commit(Batch::new(key).with(operation))).unwrap();
    }

    pub(crate) fn delete(&self, key: &str, id: &str) {
        let operation = Operation::delete(ItemId::new(id).unwrap());
        block_on(self.container.documents.commit(Batch::new(key).with(operation))).unwrap();
    }

    pub(crate) fn request(&self) -> Request<'_> {
        Request::new(&self.definition, &self.clock)
    }

    pub(crate) fn page(&self, query: &Query, request: &Request<'_>) -> Result<Page> {
        block_on(query.execute(&*self.documents, request))
    }

    /// All rows, in pages of that size.
    pub(crate) fn all(
        &self,
        query: &Query,
        parameters: &Parameters,
        scope: &Scope,
        limits: Limits,
    ) -> Result<Vec<String>> {
        const PAGES_MAX: usize = 10_000;
        let mut rows = Vec::new();
        let mut continuation: Option<String> = None;
        for _ in 0..PAGES_MAX {
            let mut request =
                self.request().with_parameters(parameters).with_scope(scope).with_limits(limits);
            if let Some(continuation) = &continuation {
                request = request.with_continuation(continuation);
            }
            let page = self.page(query, &request)?;
            assert!(page.rows.len() <= limits.items_max, "a page is too long");
            rows.extend(page.rows);
            continuation = page.continuation;
            if continuation.is_none() {
                return Ok(rows);
            }
        }
        panic!("the pages of {} have no end", query.text());
    }
}
