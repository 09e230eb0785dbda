//! A container of any backend: made, filled, and written to as a subject.

use std::{io, sync::Arc};

use async_trait::async_trait;
use millstream_core::{
    Batch, Container, ContainerName, ContainerSettings, Containers, Documents, ErrorKind, ItemId,
    Operation, PartitionKeyDefinition, TimeToLive,
};
use tokio::task::JoinSet;

use crate::{
    Result,
    measure::Usage,
    rounds::{Subject, Writer},
    workload::{ITEMS_PER_PARTITION, Pair, Random, Shape, item_body, item_id, partition_of},
};

const DATABASE: &str = "bench";
/// Tasks that load side by side, enough for large groups at the disk.
const LOADERS: u64 = 32;

/// Creates a container with one range; items expire if they say when.
pub(crate) async fn create(containers: &dyn Containers, name: &str) -> Result<Container> {
    create_divided(containers, name, 1).await
}

/// Creates a container as [`create`] does, with so many ranges.
pub(crate) async fn create_divided(
    containers: &dyn Containers,
    name: &str,
    ranges: u32,
) -> Result<Container> {
    match containers.create_database(DATABASE).await {
        Ok(_) => (),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => (),
        Err(error) => return Err(error.into()),
    }
    let name = ContainerName::new(DATABASE, name)?;
    let settings = ContainerSettings::new(PartitionKeyDefinition::hash("/partitionKey")?)
        .default_ttl(TimeToLive::Never)
        .ranges(ranges);
    containers.create(&name, settings).await?;
    Ok(containers.open(&name).await?)
}

/// Opens a container that [`create`] made.
pub(crate) async fn open(containers: &dyn Containers, name: &str) -> Result<Container> {
    Ok(containers.open(&ContainerName::new(DATABASE, name)?).await?)
}

/// Writes the items numbered from `first` up to `end`, a partition at a time.
pub(crate) async fn fill(
    documents: &Arc<dyn Documents>,
    first: u64,
    end: u64,
    shape: Shape,
) -> Result<()> {
    let mut tasks: JoinSet<millstream_core::Result<()>> = JoinSet::new();
    for loader in 0..LOADERS {
        let documents = Arc::clone(documents);
        tasks.spawn(async move {
            let mut random = Random::new(loader);
            let mut partition = first / ITEMS_PER_PARTITION + loader;
            while partition * ITEMS_PER_PARTITION < end {
                let start = partition * ITEMS_PER_PARTITION;
                let items = start.max(first)..(start + ITEMS_PER_PARTITION).min(end);
                let mut batch = Batch::new(partition_of(start));
                for item in items {
                    let body = item_body(item, 0, shape, &mut random);
                    batch = batch.with(Operation::upsert(body));
                }
                documents.commit(batch).await?;
                partition += LOADERS;
            }
            Ok(())
        });
    }
    while let Some(outcome) = tasks.join_next().await {
        outcome??;
    }
    Ok(())
}

/// One writer of a container.
pub(crate) struct DocumentWriter(pub(crate) Arc<dyn Documents>);

#[async_trait]
impl Writer for DocumentWriter {
    async fn commit(&mut self, pair: Pair) -> Result<()> {
        let id = ItemId::new(&item_id(pair.item))?;
        let batch = Batch::new(partition_of(pair.item))
            .with(Operation::replace(id, pair.item_body))
            .with(Operation::create(pair.event_body));
        self.0.commit(batch).await?;
        Ok(())
    }
}

/// A container as a subject of a round.
pub(crate) struct ContainerSubject<F> {
    pub(crate) documents: Arc<dyn Documents>,
    /// Returns how often the log was synced so far.
    pub(crate) fdatasyncs: F,
}

#[async_trait]
impl<F: Fn() -> u64 + Send + Sync> Subject for ContainerSubject<F> {
    fn name(&self) -> &'static str {
        "store"
    }

    async fn writers(&self, count: usize) -> Result<Vec<Box<dyn Writer>>> {
        let writer =
            || -> Box<dyn Writer> { Box::new(DocumentWriter(Arc::clone(&self.documents))) };
        Ok((0..count).map(|_| writer()).collect())
    }

    async fn fdatasyncs(&self) -> Result<Option<u64>> {
        Ok(Some((self.fdatasyncs)()))
    }

    fn usage(&self) -> io::Result<Usage> {
        Usage::of_self()
    }
}
