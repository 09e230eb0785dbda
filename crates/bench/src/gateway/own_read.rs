//! What a read costs in the store itself, without a protocol around it.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU64, Ordering},
};

use millstream_core::ItemId;
use tokio::task::JoinSet;

use crate::{
    Options, Result,
    documents::{create, fill},
    gateway::{load::CONNECTIONS, requests::READ_ITEMS},
    measure::{Usage, float},
    store,
    workload::{Random, Shape, item_id, partition_of},
};

/// Processor time of one read, in microseconds, of the same items at the same concurrency.
pub(super) async fn measure(options: &Options) -> Result<f64> {
    let directory = options.fresh_directory()?;
    let store = store::open(directory.path())?;
    let container = create(&store, "read").await?;
    fill(&container.documents, 0, READ_ITEMS, Shape::CONTACT).await?;
    let (count, is_over) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let mut readers = JoinSet::new();
    for reader in 0..CONNECTIONS {
        let documents = Arc::clone(&container.documents);
        let (count, is_over) = (Arc::clone(&count), Arc::clone(&is_over));
        readers.spawn(async move {
            let mut random = Random::new(reader);
            while !is_over.load(Ordering::Relaxed) {
                let item = random.below(READ_ITEMS);
                let (key, id) = (partition_of(item).into(), ItemId::new(&item_id(item))?);
                if documents.read(&key, &id).await?.is_some() {
                    count.fetch_add(1, Ordering::Relaxed);
                }
                // A reader behind a socket waits, too, and others have their turn.
                tokio::task::yield_now().await;
            }
            Ok::<(), millstream_core::Error>(())
        });
    }
    let (usage, before) = (Usage::of_self()?, count.load(Ordering::Relaxed));
    tokio::time::sleep(options.duration()).await;
    let (usage, count) = (Usage::of_self()?.since(usage), count.load(Ordering::Relaxed) - before);
    is_over.store(true, Ordering::Relaxed);
    while let Some(ended) = readers.join_next().await {
        ended??;
    }
    Ok(usage.processor.as_secs_f64() * 1e6 / float(count.max(1)))
}
