//! From the start of a commit until whoever waits for changes has it.
//!
//! One writer commits at a moderate pace while one reader waits. Ours waits for the feed and then
//! reads it; the raw one has a consumer that the server pushes to.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use async_trait::async_trait;
use millstream_core::{
    ChangeFeed, Container, Continuation, FeedMode, KeyRange, PageSize, StartFrom,
};

use crate::{
    Result,
    measure::{Histogram, Stopwatch},
    rounds::Subject,
    workload::{Pairs, event_id},
};

/// Between the end of a commit and the start of the next.
const PAUSE: Duration = Duration::from_millis(3);
/// How long the last ones may take to arrive.
const REST_MAX: Duration = Duration::from_secs(30);
/// Changes in a page.
const PAGE_ITEMS: usize = 100;

/// Whoever waits for changes.
#[async_trait]
pub(super) trait Reader: Send {
    /// The ids of what has come; waits until there is something.
    async fn next(&mut self) -> Result<Vec<String>>;
}

/// How long the events of one round took to arrive.
pub(super) async fn measure(
    subject: &dyn Subject,
    reader: Box<dyn Reader>,
    mut pairs: Pairs,
    duration: Duration,
) -> Result<Histogram> {
    let arrivals = Arc::new(Arrivals::default());
    let reading = tokio::spawn(read(reader, Arc::clone(&arrivals)));
    let mut writer = subject.writers(1).await?.pop().ok_or("there is no writer")?;
    let stopwatch = Stopwatch::start();
    while stopwatch.elapsed() < duration {
        let pair = pairs.next();
        arrivals.begin(event_id(pair.event));
        writer.commit(pair).await?;
        tokio::time::sleep(PAUSE).await;
    }
    let stopwatch = Stopwatch::start();
    while !arrivals.open().is_empty() && !reading.is_finished() {
        if REST_MAX < stopwatch.elapsed() {
            return Err("some commits never came to whoever waits for them".into());
        }
        tokio::time::sleep(PAUSE).await;
    }
    if reading.is_finished() {
        reading.await??;
        return Err("whoever waits for commits ended by itself".into());
    }
    reading.abort();
    let latencies = arrivals.latencies().clone();
    Ok(latencies)
}

async fn read(mut reader: Box<dyn Reader>, arrivals: Arc<Arrivals>) -> Result<()> {
    loop {
        for id in reader.next().await? {
            arrivals.end(&id);
        }
    }
}

/// Commits that have begun and are not there yet, and how long the others took.
#[derive(Default)]
struct Arrivals {
    open: Mutex<BTreeMap<String, Stopwatch>>,
    latencies: Mutex<Histogram>,
}

impl Arrivals {
    fn open(&self) -> MutexGuard<'_, BTreeMap<String, Stopwatch>> {
        self.open.lock().expect("nothing panics while it holds the lock")
    }

    fn latencies(&self) -> MutexGuard<'_, Histogram> {
        self.latencies.lock().expect("nothing panics while it holds the lock")
    }

    fn begin(&self, id: String) {
        self.open().insert(id, Stopwatch::start());
    }

    /// What was not begun here, such as an item, is not counted.
    fn end(&self, id: &str) {
        let begun = self.open().remove(id);
        if let Some(stopwatch) = begun {
            self.latencies().record(stopwatch.elapsed());
        }
    }
}

/// Reads a feed, and waits where it ends.
pub(super) struct FeedReader {
    feed: Arc<dyn ChangeFeed>,
    after: Continuation,
}

impl FeedReader {
    /// Begins with the next commit.
    pub(super) async fn new(container: &Container) -> Result<Self> {
        let feed = Arc::clone(&container.feed);
        let after = feed.start(&KeyRange::all(), StartFrom::Now, FeedMode::LatestVersion).await?;
        Ok(Self { feed, after })
    }
}

#[async_trait]
impl Reader for FeedReader {
    async fn next(&mut self) -> Result<Vec<String>> {
        let keys = KeyRange::all();
        loop {
            let page = self.feed.read(&keys, &self.after, PageSize::items(PAGE_ITEMS)).await?;
            self.after = page.continuation;
            if !page.changes.is_empty() {
                return Ok(page.changes.iter().map(|it| it.id.as_str().to_owned()).collect());
            }
            self.feed.wait(&keys, &self.after).await?;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_begun_is_counted_and_only_once() {
        let arrivals = Arrivals::default();
        arrivals.begin("a".to_owned());
        for id in ["b", "a", "a"] {
            arrivals.end(id);
        }
        assert!(arrivals.open().is_empty());
        assert_eq!(arrivals.latencies().count(), 1);
    }
}
