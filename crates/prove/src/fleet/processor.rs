//! The process of a processor: it shares the feed with the others, and counts each event once.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use millstream_core::{
    Batch, BoxFuture, Change, Container, Documents, ItemId, Operation, PartitionKey,
};
use millstream_crash::{Attempt, Error, Result};
use millstream_processor::{
    ChangeBatch, Concurrency, Context, Handler, HandlerError, HandlerResult, Processor,
    ProcessorOptions, StartPosition,
};
use serde::Deserialize;
use tokio_util::sync::CancellationToken;

use crate::fleet::scene::{COUNT, Count, EVENT, Scene};
use crate::mutant::Mutant;
use crate::patience::patiently;
use crate::say::say;

const NAME: &str = "counter";
/// How long the planted bug acknowledges before it counts: long enough that a kill finds some.
const EARLY: Duration = Duration::from_millis(300);

/// Follows the feed until it is killed.
pub(crate) async fn follow(directory: &Path, number: usize, mutant: Option<Mutant>) -> Result<()> {
    let scene = Scene::open(directory).await?;
    let options = ProcessorOptions::default()
        .start(StartPosition::Beginning)
        .lease_duration(Duration::from_secs(3))
        .round_interval(Duration::from_millis(500))
        .poll_interval(Duration::from_millis(500))
        .concurrency(Concurrency::Keyed(8))
        .batch_items_max(100);
    let counter = Counter::new(&scene.counts, mutant);
    let start = async || {
        // Its leases are waited for as those of a dead machine are: nobody promises its death.
        let processor = Processor::new(&scene.data, &scene.leases, NAME)
            .instance(&format!("processor-{number}"))
            .options(options.clone());
        processor.start(counter.clone()).await
    };
    // A server that was just killed may have led.
    let started = patiently(start).await.attempt(|| "start the processor")?;
    say("ready".to_owned());
    started.run(CancellationToken::new()).await.attempt(|| "process the feed")?;
    Err(Error::new("process the feed: it ended by itself"))
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Event {
    partition_key: String,
    number: u64,
}

/// Counts events. A clone counts in the same place.
#[derive(Clone)]
struct Counter {
    counts: Arc<dyn Documents>,
    mutant: Option<Mutant>,
}

impl Counter {
    fn new(counts: &Container, mutant: Option<Mutant>) -> Self {
        Self { counts: Arc::clone(&counts.documents), mutant }
    }

    async fn count_all(&self, events: &[Event]) -> millstream_core::Result<()> {
        for event in events {
            self.count(event).await?;
        }
        Ok(())
    }

    /// Counts one event, unless that was done.
    async fn count(&self, event: &Event) -> millstream_core::Result<()> {
        let Event { partition_key, number } = event;
        let (id, key) = (ItemId::new(COUNT)?, PartitionKey::from(partition_key.as_str()));
        let found = self.counts.read(&key, &id).await?;
        let unreadable = |error| millstream_core::Error::invalid("read a count", error);
        let mut count: Count = match &found {
            Some(item) => serde_json::from_slice(&item.body).map_err(unreadable)?,
            None => Count {
                id: COUNT.to_owned(),
                partition_key: partition_key.clone(),
                ..Count::default()
            },
        };
        if *number <= count.last {
            say("repeated".to_owned());
            return Ok(());
        }
        if *number != count.last + 1 {
            count.gaps += 1;
        }
        count.last = *number;
        let body = serde_json::to_vec(&count).map_err(unreadable)?;
        let operation = match found {
            Some(item) => Operation::replace(id, body).if_match(item.etag),
            None => Operation::create(body),
        };
        self.counts.commit(Batch::new(key).with(operation)).await?;
        Ok(())
    }
}

impl Handler for Counter {
    fn handle(&self, batch: ChangeBatch, _: Context) -> BoxFuture<'_, HandlerResult> {
        let events: Vec<Event> = batch.iter().filter_map(event).collect();
        if self.mutant == Some(Mutant::AcknowledgeEarly) {
            let counter = self.clone();
            tokio::spawn(async move {
                tokio::time::sleep(EARLY).await;
                counter.count_all(&events).await
            });
            return Box::pin(async { Ok(()) });
        }
        Box::pin(async move {
            // Whoever else has counted meanwhile, or whatever is away: all of it comes again.
            self.count_all(&events).await.map_err(HandlerError::transient)
        })
    }
}

/// What the feed shows, if it is an event.
fn event(change: &Change) -> Option<Event> {
    let item = change.current.as_ref().filter(|_| change.id.as_str().starts_with(EVENT))?;
    serde_json::from_slice(&item.body).ok()
}
