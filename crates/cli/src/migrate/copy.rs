//! Reads the feed of the source and writes it to the target.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::{self, StreamExt, TryStreamExt};
use millstream_core::{
    BATCH_OPERATIONS_MAX, Batch, Change, Clock, Container, ErrorKind, FeedPage, Numbers, Operation,
    PageSize, PartitionKey,
};

use crate::failure::{Failure, Result};
use crate::migrate::Summary;
use crate::migrate::journal::{Journal, Position};
use crate::migrate::progress::Progress;

/// Changes read at once.
const PAGE_ITEMS: usize = 1_000;
/// Most bytes of bodies in one batch; the limit of a batch counts more than bodies.
const BATCH_BYTES_MAX: usize = 1024 * 1024;
/// Partition keys that are written beside each other.
const KEYS_AT_ONCE: usize = 64;
/// How often a call is repeated that may work later, and how long apart.
const ATTEMPTS_MAX: u32 = 30;
const PAUSE: Duration = Duration::from_secs(1);

/// Copies one container.
pub(super) struct Copier {
    pub(super) source: Container,
    pub(super) target: Container,
    pub(super) journal: Journal,
    pub(super) progress: Progress,
    pub(super) clock: Arc<dyn Clock>,
    /// How closely numbers of both sides are compared.
    pub(super) numbers: Numbers,
}

impl Copier {
    /// Copies what was committed since it was last called, and returns how many changes that were.
    pub(super) async fn catch_up(&mut self) -> Result<u64> {
        let before = self.journal.copied();
        let mut positions = self.journal.positions();
        while let Some(mut position) = positions.pop() {
            loop {
                let after = position.continuation()?;
                let size = PageSize::items(PAGE_ITEMS);
                let feed = &self.source.feed;
                let read =
                    patiently(&*self.clock, || feed.read(&position.keys, &after, size)).await;
                let page = match read {
                    Ok(page) => page,
                    Err(error) if error.kind() == ErrorKind::RangeMoved => {
                        positions = self.divide(&position).await?;
                        break;
                    }
                    Err(error) => return Err(error.into()),
                };
                let is_end = page.is_end(&after);
                if page.continuation != after {
                    self.write(&mut position, page).await?;
                }
                if is_end {
                    break;
                }
            }
        }
        self.progress.end();
        Ok(self.journal.copied() - before)
    }

    pub(super) fn summary(&self) -> Summary {
        Summary {
            container: self.source.info.name.to_string(),
            copied: self.journal.copied(),
            ..Summary::default()
        }
    }

    /// Writes items of one partition key to the target in their order, `bodies` by commit.
    pub(super) async fn upsert(&self, key: &PartitionKey, commits: Vec<Vec<Bytes>>) -> Result<()> {
        let mut operations: Vec<Bytes> = Vec::new();
        let mut bytes = 0;
        for commit in commits {
            let size: usize = commit.iter().map(Bytes::len).sum();
            let is_full = BATCH_OPERATIONS_MAX < operations.len() + commit.len()
                || BATCH_BYTES_MAX < bytes + size;
            if is_full && !operations.is_empty() {
                self.commit(key, std::mem::take(&mut operations)).await?;
                bytes = 0;
            }
            bytes += size;
            operations.extend(commit);
        }
        if operations.is_empty() {
            return Ok(());
        }
        self.commit(key, operations).await
    }

    async fn commit(&self, key: &PartitionKey, bodies: Vec<Bytes>) -> Result<()> {
        let documents = &self.target.documents;
        let attempt = || {
            let batch = bodies.iter().fold(Batch::new(key.clone()), |batch, body| {
                batch.with(Operation::upsert(body.clone()))
            });
            documents.commit(batch)
        };
        // Writing the same once more changes nothing, so a lost answer needs no thought.
        patiently(&*self.clock, attempt).await.map_err(|error| {
            let name = &self.target.info.name;
            Failure::other(format!("could not write to {name} in the target: {}", error.report()))
        })?;
        Ok(())
    }

    async fn write(&mut self, position: &mut Position, page: FeedPage) -> Result<()> {
        let FeedPage { changes, continuation, newest } = page;
        let count = u64::try_from(changes.len()).unwrap_or(u64::MAX);
        let last = changes.last().map(|it| it.lsn);
        let copier = &*self;
        stream::iter(by_key(changes))
            .map(|(key, commits)| async move { copier.upsert(&key, commits).await })
            .buffer_unordered(KEYS_AT_ONCE)
            .try_collect::<()>()
            .await?;
        self.journal.advance(position, &continuation, count).await?;
        let done = last.unwrap_or(newest);
        self.progress.show(self.journal.copied(), done.as_u64(), newest.as_u64());
        Ok(())
    }

    /// The keys of a position lie in several ranges now.
    async fn divide(&mut self, position: &Position) -> Result<Vec<Position>> {
        let ranges = self.source.feed.ranges().await?;
        let parts: Vec<_> =
            ranges.iter().filter_map(|it| it.keys.intersect(&position.keys)).collect();
        self.journal.divide(position, &parts).await?;
        Ok(self.journal.positions())
    }
}

/// The changes of a page by partition key and commit, both in their order.
fn by_key(changes: Vec<Change>) -> BTreeMap<PartitionKey, Vec<Vec<Bytes>>> {
    let mut keys: BTreeMap<PartitionKey, Vec<Vec<Bytes>>> = BTreeMap::new();
    let mut last = None;
    for change in changes {
        let Some(item) = change.current else { continue };
        let commits = keys.entry(change.partition_key).or_default();
        let is_same = last == Some(change.lsn) && !commits.is_empty();
        match commits.last_mut().filter(|_| is_same) {
            Some(commit) => commit.push(item.body),
            None => commits.push(vec![item.body]),
        }
        last = Some(change.lsn);
    }
    keys
}

/// Repeats a call that may work later.
pub(super) async fn patiently<T, F>(
    clock: &dyn Clock,
    mut call: impl FnMut() -> F,
) -> millstream_core::Result<T>
where
    F: Future<Output = millstream_core::Result<T>>,
{
    for _ in 0..ATTEMPTS_MAX {
        match call().await {
            Err(error)
                if matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Overloaded) =>
            {
                tracing::warn!(error = error.report(), "tries again");
                clock.sleep(error.retry_after().unwrap_or(PAUSE)).await;
            }
            outcome => return outcome,
        }
    }
    call().await
}
