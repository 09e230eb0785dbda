use std::pin::pin;
use std::sync::Arc;

use async_trait::async_trait;
use futures_util::future::{Either, select};
use millstream_core::{
    ChangeFeed, Continuation, FeedMode, FeedPage, KeyRange, PageSize, RangeInfo, Result, StartFrom,
};

use crate::faults::documents::travel;
use crate::faults::{Link, lost};

/// The feed of a container at the far end of a [`Link`].
pub(super) struct FaultyFeed {
    inner: Arc<dyn ChangeFeed>,
    link: Arc<Link>,
}

impl FaultyFeed {
    pub(super) fn new(inner: Arc<dyn ChangeFeed>, link: Arc<Link>) -> Self {
        Self { inner, link }
    }
}

#[async_trait]
impl ChangeFeed for FaultyFeed {
    async fn ranges(&self) -> Result<Vec<RangeInfo>> {
        let back = travel(&self.link, "list the ranges").await?;
        let answer = self.inner.ranges().await;
        self.link.hop(back).await;
        answer
    }

    async fn start(
        &self,
        keys: &KeyRange,
        from: StartFrom,
        mode: FeedMode,
    ) -> Result<Continuation> {
        let back = travel(&self.link, "pin a place in the feed").await?;
        let answer = self.inner.start(keys, from, mode).await;
        self.link.hop(back).await;
        answer
    }

    async fn read(
        &self,
        keys: &KeyRange,
        after: &Continuation,
        size: PageSize,
    ) -> Result<FeedPage> {
        let back = travel(&self.link, "read the feed").await?;
        let answer = self.inner.read(keys, after, size).await;
        self.link.hop(back).await;
        answer
    }

    async fn wait(&self, keys: &KeyRange, after: &Continuation) -> Result<()> {
        let back = travel(&self.link, "wait for changes").await?;
        let rates = &self.link.rates;
        let inner = self.inner.wait(keys, after);
        if self.link.happens(rates.spurious_wake) {
            let time = self.link.some_time(rates.late_wake_max);
            let sleep = pin!(self.link.handle.sleep(time));
            // The first one is asked first, so this order is repeatable.
            match select(inner, sleep).await {
                Either::Left((answer, _)) => answer?,
                Either::Right(_) => return Ok(()),
            }
        } else {
            inner.await?;
        }
        if self.link.is_cut() {
            return Err(lost("wait for changes"));
        }
        if self.link.happens(rates.late_wake) {
            let time = self.link.some_time(rates.late_wake_max);
            self.link.handle.sleep(time).await;
        }
        self.link.hop(back).await;
        Ok(())
    }
}
