use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_channel::oneshot;
use millstream_core::{
    Batch, BatchOutcome, Documents, Error, Item, ItemId, PageSize, PartitionKey, Result,
    ScanContinuation, ScanPage, ScanScope,
};

use crate::executor::NodeId;
use crate::faults::listings::Listings;
use crate::faults::{Link, Outcome, lost, throttled};

/// The items of a container at the far end of a [`Link`].
pub(super) struct FaultyDocuments {
    inner: Arc<dyn Documents>,
    link: Arc<Link>,
    listings: Option<Arc<Listings>>,
}

impl FaultyDocuments {
    pub(super) fn new(
        inner: Arc<dyn Documents>,
        link: Arc<Link>,
        listings: Option<Arc<Listings>>,
    ) -> Self {
        Self { inner, link, listings }
    }

    /// The batch travels on its own: it arrives even if the sender stalls, dies or gives up.
    async fn send(&self, batch: Batch, there: Duration) -> Result<BatchOutcome> {
        if there.is_zero() {
            self.link.hop(Duration::ZERO).await;
            return self.inner.commit(batch).await;
        }
        let (reply, replied) = oneshot::channel();
        let (inner, sleep) = (Arc::clone(&self.inner), self.link.handle.sleep(there));
        let travel = async move {
            sleep.await;
            // The sender may be gone.
            let _ = reply.send(inner.commit(batch).await);
        };
        self.link.handle.spawn(NodeId::WORLD, Box::pin(travel));
        replied.await.unwrap_or_else(|_| Err(lost("commit a batch").with_unknown_effect()))
    }

    /// What a request without effect meets on its way.
    async fn travel(&self, attempted: &str) -> Result<Duration> {
        travel(&self.link, attempted).await
    }
}

#[async_trait]
impl Documents for FaultyDocuments {
    async fn read(&self, key: &PartitionKey, id: &ItemId) -> Result<Option<Item>> {
        let back = self.travel("read an item").await?;
        let answer = self.inner.read(key, id).await;
        self.link.hop(back).await;
        answer
    }

    async fn commit(&self, batch: Batch) -> Result<BatchOutcome> {
        let fate = self.link.fate();
        let attempted = "commit a batch";
        let unknown = || -> Result<BatchOutcome> { Err(lost(attempted).with_unknown_effect()) };
        match fate.outcome {
            Outcome::Fine => {
                let answer = self.send(batch, fate.there).await;
                self.link.hop(fate.back).await;
                answer
            }
            Outcome::LostRequest => {
                self.link.hop(fate.there).await;
                Err(lost(attempted))
            }
            Outcome::LostUnknown => {
                self.link.hop(fate.there).await;
                unknown()
            }
            Outcome::LostReply => {
                let _ = self.send(batch, fate.there).await;
                self.link.hop(fate.back).await;
                unknown()
            }
            Outcome::LateEffect => {
                let late = self.link.some_time(self.link.rates.hang_max);
                let (inner, sleep) = (Arc::clone(&self.inner), self.link.handle.sleep(late));
                let travel = async move {
                    sleep.await;
                    let _ = inner.commit(batch).await;
                };
                self.link.handle.spawn(NodeId::WORLD, Box::pin(travel));
                self.link.hop(fate.back).await;
                unknown()
            }
            Outcome::Throttled(wait) => {
                self.link.hop(fate.there).await;
                Err(throttled(attempted, wait))
            }
            Outcome::Hang { takes_effect: true } => {
                let _ = self.send(batch, fate.there).await;
                self.link.hop(fate.back).await;
                unknown()
            }
            Outcome::Hang { takes_effect: false } => {
                self.link.hop(fate.there + fate.back).await;
                unknown()
            }
        }
    }

    async fn scan(
        &self,
        scope: &ScanScope,
        after: Option<&ScanContinuation>,
        size: PageSize,
    ) -> Result<ScanPage> {
        let back = self.travel("scan items").await?;
        let answer = self.answer(scope, after, size).await;
        self.link.hop(back).await;
        answer
    }
}

impl FaultyDocuments {
    async fn answer(
        &self,
        scope: &ScanScope,
        after: Option<&ScanContinuation>,
        size: PageSize,
    ) -> Result<ScanPage> {
        let Some(listings) = &self.listings else {
            return self.inner.scan(scope, after, size).await;
        };
        if let Some(page) = after.and_then(|it| listings.next_page(it, size)) {
            return page;
        }
        let rates = &self.link.rates;
        if rates.stale_list == 0 || after.is_some() || !self.link.is_faulty() {
            return self.inner.scan(scope, after, size).await;
        }
        let now = self.link.handle.now();
        if self.link.happens(rates.stale_list) {
            let oldest = now.saturating_sub(rates.stale_age_max);
            let choose = |count| self.link.rng().index(count);
            if let Some(page) = listings.old_page(scope, oldest, size, choose) {
                return Ok(page);
            }
        }
        listings.remember(&*self.inner, scope, now).await?;
        self.inner.scan(scope, after, size).await
    }
}

/// What a request without effect meets on its way; returns how long the reply takes.
pub(super) async fn travel(link: &Link, attempted: &str) -> Result<Duration, Error> {
    let fate = link.fate();
    link.hop(fate.there).await;
    match fate.outcome {
        Outcome::Fine => Ok(fate.back),
        Outcome::LostRequest
        | Outcome::LostUnknown
        | Outcome::LostReply
        | Outcome::LateEffect
        | Outcome::Hang { .. } => {
            link.hop(fate.back).await;
            Err(lost(attempted))
        }
        Outcome::Throttled(wait) => Err(throttled(attempted, wait)),
    }
}
