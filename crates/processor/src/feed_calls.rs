//! Calls to the feed that end in time, and what their failures mean for a processor.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use millstream_core::{
    ChangeFeed, Clock, Continuation, Error as CoreError, ErrorKind as CoreErrorKind, FeedMode,
    FeedPage, KeyRange, PageSize, RangeInfo, Result as CoreResult, StartFrom,
};

use crate::error::{Error, ErrorKind};
use crate::lease_store::{timed_out, within};

/// Longest time a call may take.
const TIMEOUT: Duration = Duration::from_secs(30);

/// A feed whose calls end in time.
#[derive(Clone)]
pub(crate) struct FeedCalls {
    feed: Arc<dyn ChangeFeed>,
    clock: Arc<dyn Clock>,
}

impl FeedCalls {
    pub(crate) fn new(feed: Arc<dyn ChangeFeed>, clock: Arc<dyn Clock>) -> Self {
        Self { feed, clock }
    }

    pub(crate) async fn ranges(&self) -> CoreResult<Vec<RangeInfo>> {
        self.bounded("list the ranges", self.feed.ranges()).await
    }

    pub(crate) async fn start(
        &self,
        keys: &KeyRange,
        from: StartFrom,
        mode: FeedMode,
    ) -> CoreResult<Continuation> {
        self.bounded("choose a start in the feed", self.feed.start(keys, from, mode)).await
    }

    pub(crate) async fn read(
        &self,
        keys: &KeyRange,
        after: &Continuation,
        size: PageSize,
    ) -> CoreResult<FeedPage> {
        self.bounded("read the feed", self.feed.read(keys, after, size)).await
    }

    async fn bounded<T>(
        &self,
        what: &str,
        call: impl Future<Output = CoreResult<T>>,
    ) -> CoreResult<T> {
        within(&*self.clock, TIMEOUT, call).await.unwrap_or_else(|| Err(timed_out(what)))
    }
}

impl std::fmt::Debug for FeedCalls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FeedCalls").finish_non_exhaustive()
    }
}

/// What a failure of the feed at these keys means.
#[expect(clippy::wildcard_enum_match_arm, reason = "a kind that is new is one of the store")]
pub(crate) fn feed_error(attempted: String, keys: &KeyRange, error: CoreError) -> Error {
    let kind = match error.kind() {
        CoreErrorKind::RangeMoved => ErrorKind::Conflict,
        CoreErrorKind::PositionExpired => {
            ErrorKind::PositionExpired { keys: Box::new(keys.clone()) }
        }
        // The feed belongs to one container for ever; "not found" means that it was deleted.
        CoreErrorKind::ContainerRecreated | CoreErrorKind::NotFound => {
            ErrorKind::ContainerRecreated
        }
        CoreErrorKind::Invalid => ErrorKind::Invalid,
        kind => ErrorKind::Store(kind),
    };
    Error::new(kind, attempted).because(error)
}
