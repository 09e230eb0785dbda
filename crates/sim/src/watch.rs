//! Looks at every commit of a container the moment it happens, below all faults.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use millstream_core::{
    Batch, BatchOutcome, Container, Documents, Item, ItemId, Lsn, OperationKind, OperationResult,
    PageSize, PartitionKey, Result, ScanContinuation, ScanPage, ScanScope,
};

use crate::executor::NodeId;
use crate::executor::handle::{Handle, wide};

/// Says what is wrong with a commit. It is called at the moment of the commit, in commit order, and
/// must not use the container itself.
pub type Check = Arc<dyn Fn(&Commit) -> Result<(), String> + Send + Sync>;

/// A commit that has just happened.
#[derive(Clone, Debug)]
pub struct Commit {
    /// Who sent it.
    pub node: NodeId,
    /// When, since the start of the simulation.
    pub at: Duration,
    /// Its number in its range.
    pub lsn: Lsn,
    /// The logical partition.
    pub partition_key: PartitionKey,
    /// What it changed, in the order of its operations. Never empty.
    pub writes: Vec<Write>,
}

/// What one operation changed.
#[derive(Clone, Debug)]
pub struct Write {
    /// The item.
    pub id: ItemId,
    /// As it was before the operation; none if it did not exist.
    pub before: Option<Item>,
    /// As it is after the operation; none if it was deleted.
    pub after: Option<Item>,
}

/// The watched items of one container. All commits must come through views of the same watch.
pub struct Watch {
    container: Container,
    handle: Handle,
    check: Check,
    ignores_etags: bool,
    /// The newest version of each item by its own results; an item that expired stays here, which
    /// shows when it is created anew.
    current: Mutex<BTreeMap<(PartitionKey, ItemId), Item>>,
    reads: AtomicU64,
    scans: AtomicU64,
}

impl Watch {
    /// Watches a container that is still empty. A complaint of `check` ends the run.
    #[must_use]
    pub fn new(handle: &Handle, container: Container, check: Check) -> Self {
        let (handle, current) = (handle.clone(), Mutex::default());
        let (reads, scans) = (AtomicU64::new(0), AtomicU64::new(0));
        Self { container, handle, check, ignores_etags: false, current, reads, scans }
    }

    /// Plants a bug: conditions on etags are not looked at.
    #[must_use]
    pub fn ignore_etags(mut self, value: bool) -> Self {
        self.ignores_etags = value;
        self
    }

    /// The container as `node` would see it without any fault.
    #[must_use]
    pub fn view(self: &Arc<Self>, node: NodeId) -> Container {
        let documents = Arc::new(View { watch: Arc::clone(self), node });
        Container { documents, ..self.container.clone() }
    }

    /// Reads of single items and pages of scans so far.
    #[must_use]
    pub fn requests(&self) -> (u64, u64) {
        (self.reads.load(Ordering::Relaxed), self.scans.load(Ordering::Relaxed))
    }

    fn note(&self, node: NodeId, ids: Vec<Option<ItemId>>, key: PartitionKey, done: &BatchOutcome) {
        let mut current = self.current.lock().expect("nothing panics while it holds the lock");
        let mut writes = Vec::new();
        for (result, id) in done.results.iter().zip(ids) {
            let write = match (result, id) {
                (OperationResult::Created(item), _) => {
                    current.insert((key.clone(), item.id.clone()), item.clone());
                    Write { id: item.id.clone(), before: None, after: Some(item.clone()) }
                }
                (OperationResult::Replaced(item), _) => {
                    let before = current.insert((key.clone(), item.id.clone()), item.clone());
                    Write { id: item.id.clone(), before, after: Some(item.clone()) }
                }
                (OperationResult::Deleted, Some(id)) => {
                    let before = current.remove(&(key.clone(), id.clone()));
                    Write { id, before, after: None }
                }
                (
                    OperationResult::Deleted
                    | OperationResult::Read(_)
                    | OperationResult::NotModified,
                    _,
                ) => continue,
            };
            writes.push(write);
        }
        drop(current);
        if writes.is_empty() {
            return;
        }
        self.handle.trace_number(wide(node.number()) << 32 ^ done.lsn.as_u64());
        for after in writes.iter().filter_map(|it| it.after.as_ref()) {
            self.handle.trace(&after.body);
        }
        let (at, lsn) = (self.handle.now(), done.lsn);
        let commit = Commit { node, at, lsn, partition_key: key, writes };
        if let Err(violation) = (self.check)(&commit) {
            self.handle.fail(violation);
        }
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch").field("container", &self.container).finish_non_exhaustive()
    }
}

/// The watched items as one node uses them.
struct View {
    watch: Arc<Watch>,
    node: NodeId,
}

#[async_trait]
impl Documents for View {
    async fn read(&self, key: &PartitionKey, id: &ItemId) -> Result<Option<Item>> {
        self.watch.reads.fetch_add(1, Ordering::Relaxed);
        self.watch.container.documents.read(key, id).await
    }

    async fn commit(&self, mut batch: Batch) -> Result<BatchOutcome> {
        if self.watch.ignores_etags {
            batch.operations.iter_mut().for_each(|it| it.if_match = None);
        }
        let key = batch.partition_key.clone();
        let deleted = batch.operations.iter().map(|it| match &it.kind {
            OperationKind::Delete(id) => Some(id.clone()),
            OperationKind::Create(_)
            | OperationKind::Upsert(_)
            | OperationKind::Replace(..)
            | OperationKind::Patch(..)
            | OperationKind::Read(_) => None,
        });
        let deleted = deleted.collect();
        let outcome = self.watch.container.documents.commit(batch).await?;
        self.watch.note(self.node, deleted, key, &outcome);
        Ok(outcome)
    }

    async fn scan(
        &self,
        scope: &ScanScope,
        after: Option<&ScanContinuation>,
        size: PageSize,
    ) -> Result<ScanPage> {
        self.watch.scans.fetch_add(1, Ordering::Relaxed);
        self.watch.container.documents.scan(scope, after, size).await
    }
}

#[cfg(test)]
mod tests {
    use millstream_core::conformance::block_on;
    use millstream_core::{Etag, Operation};

    use super::*;
    use crate::executor::Executor;
    use crate::testing;

    fn body(id: &str, version: u32) -> String {
        format!(r#"{{"id":"{id}","partitionKey":"k","version":{version}}}"#)
    }

    fn upsert(id: &str, version: u32) -> Operation {
        Operation::upsert(body(id, version))
    }

    fn text(item: Option<&Item>) -> String {
        let Some(item) = item else { return "-".to_owned() };
        let value: serde_json::Value = serde_json::from_slice(&item.body).unwrap();
        value["version"].to_string()
    }

    fn watched(ignores_etags: bool) -> (Executor, Container, Arc<Mutex<Vec<String>>>) {
        let executor = Executor::new(1);
        let seen: Arc<Mutex<Vec<String>>> = Arc::default();
        let log = Arc::clone(&seen);
        let check = move |commit: &Commit| {
            for it in &commit.writes {
                let (before, after) = (text(it.before.as_ref()), text(it.after.as_ref()));
                log.lock().unwrap().push(format!("{}:{before}>{after}", it.id));
            }
            match commit.writes.len() {
                3 => Err("three at once".to_owned()),
                _ => Ok(()),
            }
        };
        let container = testing::container(executor.handle(), 1);
        let watch = Watch::new(executor.handle(), container, Arc::new(check));
        let watch = Arc::new(watch.ignore_etags(ignores_etags));
        let view = watch.view(NodeId::WORLD);
        (executor, view, seen)
    }

    #[test]
    fn every_write_is_seen_in_order_with_what_was_before() {
        let (executor, container, seen) = watched(false);
        let commit = |batch| block_on(container.documents.commit(batch));
        commit(Batch::new("k").with(upsert("a", 1))).unwrap();
        commit(Batch::new("k").with(upsert("a", 2)).with(upsert("b", 3))).unwrap();
        let a = ItemId::new("a").unwrap();
        commit(Batch::new("k").with(Operation::read(a.clone()))).unwrap();
        commit(Batch::new("k").with(Operation::create(body("b", 4)))).unwrap_err();
        commit(Batch::new("k").with(Operation::delete(a)).with(upsert("a", 5))).unwrap();
        let expected = ["a:->1", "a:1>2", "b:->3", "a:2>-", "a:->5"];
        assert_eq!(*seen.lock().unwrap(), expected);
        assert_eq!(executor.handle().failure(), None);
    }

    #[test]
    fn a_complaint_ends_the_run() {
        let (executor, container, _) = watched(false);
        let batch = Batch::new("k").with(upsert("a", 1)).with(upsert("b", 1)).with(upsert("c", 1));
        block_on(container.documents.commit(batch)).unwrap();
        assert_eq!(executor.handle().failure().as_deref(), Some("three at once"));
    }

    #[test]
    fn a_store_that_ignores_etags_takes_every_write() {
        for ignores_etags in [false, true] {
            let (_executor, container, _) = watched(ignores_etags);
            let commit = |batch| block_on(container.documents.commit(batch));
            commit(Batch::new("k").with(upsert("a", 1))).unwrap();
            let wrong = upsert("a", 2).if_match(Etag::new("wrong"));
            assert_eq!(commit(Batch::new("k").with(wrong)).is_ok(), ignores_etags);
        }
    }
}
