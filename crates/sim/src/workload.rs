//! Writers on the data container, and the splits and merges of its ranges.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use millstream_core::{
    Batch, Container, Containers, EffectiveKey, ErrorKind, ItemId, Operation, PartitionKey,
    RangeInfo, Result,
};

use crate::executor::handle::Handle;
use crate::rng::Rng;
use crate::truth::Truth;

/// How much is written, and what.
#[derive(Clone, Debug)]
pub struct WorkloadOptions {
    /// Partition keys.
    pub keys: u64,
    /// Items that a partition key can have.
    pub items_per_key: u64,
    /// Commits of one writer.
    pub commits: u64,
    /// Longest pause between two of them.
    pub pause_max: Duration,
    /// Deletes in a thousand operations on items that exist.
    pub deletes: u64,
    /// Batches of several items in a thousand commits.
    pub batches: u64,
}

/// One writer. Several may write at once.
#[derive(Debug)]
pub struct Workload {
    handle: Handle,
    container: Container,
    truth: Truth,
    options: WorkloadOptions,
    rng: Rng,
}

/// How often ranges move.
#[derive(Clone, Debug)]
pub struct TopologyOptions {
    /// Splits and merges that are tried.
    pub moves: u64,
    /// Longest pause between two of them.
    pub pause_max: Duration,
    /// From this many ranges on they are only merged.
    pub ranges_max: usize,
}

/// Splits and merges ranges at random times.
#[derive(Debug)]
pub struct Topology<C> {
    handle: Handle,
    containers: C,
    container: Container,
    truth: Truth,
    options: TopologyOptions,
    rng: Rng,
}

impl WorkloadOptions {
    /// What one world writes, most of it before `end`.
    #[must_use]
    pub fn draw(rng: &mut Rng, end: Duration) -> Self {
        let commits = rng.between(3, 30);
        let pause = end * 2 / u32::try_from(commits).expect("a few");
        Self {
            keys: rng.between(1, 10),
            items_per_key: rng.between(1, 4),
            commits,
            // Some are done at once, so that there is a backlog.
            pause_max: if rng.chance(250) { Duration::ZERO } else { pause },
            deletes: rng.below(250),
            batches: rng.below(400),
        }
    }
}

impl Workload {
    /// A writer that notes in `truth` what it has committed. `container` must answer at once, so
    /// that nothing comes between a commit and its note.
    #[must_use]
    pub fn new(
        handle: &Handle,
        container: Container,
        truth: Truth,
        options: WorkloadOptions,
        rng: Rng,
    ) -> Self {
        Self { handle: handle.clone(), container, truth, options, rng }
    }

    /// Writes everything. A commit that is refused ends the run of the simulation.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future stops the writer between two commits.
    pub async fn run(mut self) {
        for _ in 0..self.options.commits {
            let pause = self.rng.duration(Duration::ZERO, self.options.pause_max);
            self.handle.sleep(pause).await;
            if let Err(error) = self.commit().await {
                self.handle.fail(format!("the workload: {}", error.report()));
                return;
            }
        }
    }

    async fn commit(&mut self) -> Result<()> {
        let key: Arc<str> = format!("key-{}", self.rng.below(self.options.keys)).into();
        let mut batch = Batch::new(&*key);
        let count = if self.rng.chance(self.options.batches) { self.rng.between(2, 4) } else { 1 };
        let numbers: BTreeSet<u64> =
            (0..count).map(|_| self.rng.below(self.options.items_per_key)).collect();
        let mut written: Vec<(Arc<str>, Option<u64>)> = Vec::new();
        for number in numbers {
            let id: Arc<str> = format!("item-{number}").into();
            let (operation, version) = self.operation(&key, &id)?;
            batch = batch.with(operation);
            written.push((id, version));
        }
        let effective = effective(&self.container, &batch.partition_key)?;
        let outcome = self.container.documents.commit(batch).await?;
        self.handle.trace_number(outcome.lsn.as_u64());
        self.truth.lock().add(&key, effective, outcome.lsn, written);
        Ok(())
    }

    fn operation(&mut self, key: &Arc<str>, id: &Arc<str>) -> Result<(Operation, Option<u64>)> {
        let mut truth = self.truth.lock();
        let exists = truth.live_version(key, id).is_some();
        if exists && self.rng.chance(self.options.deletes) {
            return Ok((Operation::delete(ItemId::new(id)?), None));
        }
        let version = truth.next_version();
        let body = format!(r#"{{"id":"{id}","partitionKey":"{key}","version":{version}}}"#);
        let operation = match (exists, self.rng.below(3)) {
            (false, 0 | 1) => Operation::create(body),
            (true, 0) => Operation::replace(ItemId::new(id)?, body),
            _ => Operation::upsert(body),
        };
        Ok((operation, Some(version)))
    }
}

impl TopologyOptions {
    /// How often ranges move in one world, most of it before `end`: never in every third.
    #[must_use]
    pub fn draw(rng: &mut Rng, end: Duration) -> Self {
        let moves = if rng.chance(333) { 0 } else { rng.between(1, 6) };
        let pause_max = end * 2 / u32::try_from(moves + 1).expect("a few");
        Self { moves, pause_max, ranges_max: 8 }
    }
}

impl<C: Containers> Topology<C> {
    /// Moves the ranges of `container`, which is one of `containers`.
    #[must_use]
    pub fn new(
        handle: &Handle,
        containers: C,
        container: Container,
        truth: Truth,
        options: TopologyOptions,
        rng: Rng,
    ) -> Self {
        Self { handle: handle.clone(), containers, container, truth, options, rng }
    }

    /// Does all moves.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future stops between two moves.
    pub async fn run(mut self) {
        for _ in 0..self.options.moves {
            let pause = self.rng.duration(Duration::ZERO, self.options.pause_max);
            self.handle.sleep(pause).await;
            match self.step().await {
                // There was nothing to split or merge there.
                Err(error) if error.kind() == ErrorKind::Invalid => {}
                Err(error) => self.handle.fail(format!("the ranges: {}", error.report())),
                Ok(()) => {}
            }
        }
    }

    async fn step(&mut self) -> Result<()> {
        let ranges = self.container.feed.ranges().await?;
        let name = self.container.info.name.clone();
        let may_split = ranges.len() < self.options.ranges_max;
        if may_split && (ranges.len() == 1 || self.rng.chance(500)) {
            let range = self.rng.pick(&ranges);
            let at = if self.rng.chance(500) { None } else { self.written_place(range) };
            self.handle.trace_number(u64::from(range.id.0));
            self.containers.split(&name, range.id, at.as_ref()).await?;
            return Ok(());
        }
        if 1 < ranges.len() {
            let left = self.rng.index(ranges.len() - 1);
            self.handle.trace_number(u64::from(ranges[left].id.0));
            self.containers.merge(&name, ranges[left].id, ranges[left + 1].id).await?;
        }
        Ok(())
    }

    /// The place of a key that was written, so that a split cuts between keys that are in use.
    fn written_place(&mut self, range: &RangeInfo) -> Option<EffectiveKey> {
        let truth = self.truth.lock();
        let last = truth.commits().iter().rev().map(|it| &it.effective);
        let inside: Vec<_> = last.filter(|it| range.keys.contains(it)).take(8).collect();
        if inside.is_empty() { None } else { Some((*self.rng.pick(&inside)).clone()) }
    }
}

fn effective(container: &Container, key: &PartitionKey) -> Result<EffectiveKey> {
    container.info.settings.partition_key.effective(key)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use millstream_core::conformance::block_on;
    use millstream_core::{FeedMode, PageSize, StartFrom};

    use super::*;
    use crate::executor::{Executor, NodeId, Stopped};
    use crate::testing;
    use crate::truth::version_in;

    /// Two writers and many range moves.
    fn run(seed: u64) -> (Truth, Container) {
        let mut executor = Executor::new(seed);
        let handle = executor.handle().clone();
        let (store, container) = testing::store(&handle, 2);
        let truth = Truth::default();
        let end = Duration::from_secs(20);
        for writer in 0..2 {
            let mut rng = Rng::stream(seed, "workload").fork(writer);
            let options = WorkloadOptions { deletes: 200, ..WorkloadOptions::draw(&mut rng, end) };
            let workload = Workload::new(&handle, container.clone(), truth.clone(), options, rng);
            handle.spawn(NodeId::WORLD, Box::pin(workload.run()));
        }
        let pause_max = Duration::from_secs(1);
        let options = TopologyOptions { moves: 20, pause_max, ranges_max: 8 };
        let rng = Rng::stream(seed, "topology");
        let topology =
            Topology::new(&handle, store, container.clone(), truth.clone(), options, rng);
        handle.spawn(NodeId::WORLD, Box::pin(topology.run()));
        assert_eq!(executor.run_until(Duration::from_secs(3600)), Stopped::Idle);
        (truth, container)
    }

    #[test]
    fn the_truth_is_what_the_store_holds() {
        let mut ranges_made = 0;
        for seed in 0..20 {
            let (truth, container) = run(seed);
            let mut found = BTreeMap::new();
            for range in block_on(container.feed.ranges()).unwrap() {
                ranges_made = ranges_made.max(range.id.0);
                let (from, mode) = (StartFrom::Beginning, FeedMode::LatestVersion);
                let start = block_on(container.feed.start(&range.keys, from, mode)).unwrap();
                let size = PageSize::items(PageSize::ITEMS_MAX);
                let page = block_on(container.feed.read(&range.keys, &start, size)).unwrap();
                for item in page.changes.into_iter().filter_map(|it| it.current) {
                    let version = version_in(&item.body).unwrap();
                    let commit = truth.lock().place(version).unwrap().commit;
                    assert_eq!(truth.lock().commits()[commit].lsn, item.lsn);
                    found.insert(version, item.id.to_string());
                }
            }
            let truth = truth.lock();
            let live: BTreeMap<u64, String> =
                truth.live().map(|(_, id, version)| (version, id.to_owned())).collect();
            assert_eq!(found, live, "seed {seed}");
            let commits = truth.keys().flat_map(|it| truth.of_key(it)).count();
            assert_eq!(commits, truth.commits().len());
        }
        assert!(10 < ranges_made, "{ranges_made}");
    }
}
