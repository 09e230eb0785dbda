//! The change feed, one request per page.
//!
//! The SDK has an iterator over all ranges with a position of its own. Here every page is one
//! request for one range, whose position is its `etag`: a lease has one range, and
//! the position of a range that was split must work for each of its parts.

use async_trait::async_trait;
use azure_data_cosmos_driver::CosmosResponse;
use azure_data_cosmos_driver::models::{CosmosOperation, Precondition};
use millstream_core::{
    Change, ChangeFeed, ChangeKind, Continuation, Error, ErrorKind, FeedMode, FeedPage, KeyRange,
    Lsn, PageSize, RangeInfo, Result, StartFrom,
};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::account::single;
use crate::container::{OpenContainer, feed_range};
use crate::documents::newest;
use crate::failure::{Access, unreadable};
use crate::position::{Position, check_mode};
use crate::scan::item_count;

const NOT_MODIFIED: u16 = 304;
/// Most requests for one page; only what was committed in one second is passed over.
const REQUESTS_MAX: usize = 32;

#[async_trait]
impl ChangeFeed for OpenContainer {
    async fn ranges(&self) -> Result<Vec<RangeInfo>> {
        self.account.ranges(&self.reference, true).await
    }

    async fn start(
        &self,
        keys: &KeyRange,
        from: StartFrom,
        mode: FeedMode,
    ) -> Result<Continuation> {
        check_mode(mode)?;
        self.check_one_range(keys, true).await?;
        let mut position = Position { etag: None, since: None };
        match from {
            StartFrom::Beginning => {}
            StartFrom::Time(time) => position.since = Some(time),
            StartFrom::Now => {
                let now = Position { etag: Some("*".to_owned()), since: None };
                let response = self.request(keys, &now, PageSize::items(1)).await?;
                position.etag = Some(etag(&response)?);
            }
        }
        position.to_continuation(self.info.resource_id.incarnation())
    }

    async fn read(
        &self,
        keys: &KeyRange,
        after: &Continuation,
        size: PageSize,
    ) -> Result<FeedPage> {
        let container = self.info.resource_id.incarnation();
        let position = Position::parse(after, container)?;
        self.check_one_range(keys, false).await?;
        let mut answer = self.answer(keys, &position, size).await?;
        for _ in 1..REQUESTS_MAX {
            if !answer.changes.is_empty() || answer.is_empty {
                break;
            }
            answer = self.answer(keys, &answer.position, size).await?;
        }
        let continuation = answer.position.to_continuation(container)?;
        Ok(FeedPage { changes: answer.changes, continuation, newest: answer.newest })
    }

    async fn wait(&self, keys: &KeyRange, after: &Continuation) -> Result<()> {
        let position = Position::parse(after, self.info.resource_id.incarnation())?;
        loop {
            self.check_one_range(keys, false).await?;
            if !self.answer(keys, &position, PageSize::items(1)).await?.is_empty {
                return Ok(());
            }
            self.account.clock.sleep(self.account.options.poll_interval_value()).await;
        }
    }
}

/// What the service said to one request.
struct Answer {
    /// Without those of before the reader's time.
    changes: Vec<Change>,
    position: Position,
    newest: Lsn,
    /// Whether there was nothing at all.
    is_empty: bool,
}

impl OpenContainer {
    /// Refuses keys that lie in several ranges.
    async fn check_one_range(&self, keys: &KeyRange, is_fresh: bool) -> Result<()> {
        let is_covered = |ranges: &[RangeInfo]| ranges.iter().any(|it| it.keys.covers(keys));
        if is_covered(&self.account.ranges(&self.reference, is_fresh).await?) {
            return Ok(());
        }
        // What is remembered may be older than a merge.
        if !is_fresh && is_covered(&self.account.ranges(&self.reference, true).await?) {
            return Ok(());
        }
        let error = Error::new(ErrorKind::RangeMoved, format!("read changes of {keys}"));
        Err(error.because("the keys lie in several ranges"))
    }

    /// One page of one range.
    async fn request(
        &self,
        keys: &KeyRange,
        position: &Position,
        size: PageSize,
    ) -> Result<CosmosResponse> {
        let attempted = format!("read changes of {keys}");
        let target = Some(feed_range(keys)?);
        let mut operation = CosmosOperation::change_feed(self.reference.clone(), target)
            .with_max_item_count(item_count(size));
        if let Some(etag) = &position.etag {
            operation = operation.with_precondition(Precondition::if_none_match(etag.clone()));
        }
        // Sent again with every page, because after a merge the number alone says too little.
        if let Some(date) = position.if_modified_since() {
            operation = operation.with_if_modified_since(date);
        }
        let response = self.account.call(operation, &attempted, Access::Read).await?;
        // If the range was split meanwhile, the SDK has gone on with its parts, and this page is of
        // one of them only.
        self.check_one_range(keys, false).await?;
        Ok(response)
    }

    async fn answer(&self, keys: &KeyRange, after: &Position, size: PageSize) -> Result<Answer> {
        let response = self.request(keys, after, size).await?;
        let newest = newest(&response);
        let position = after.reached(etag(&response)?);
        let mut changes = if u16::from(response.status().status_code()) == NOT_MODIFIED {
            Vec::new()
        } else {
            self.changes(response, keys)?
        };
        let is_empty = changes.is_empty();
        let last = changes.last().map_or(Lsn::ZERO, |it| it.lsn);
        changes.retain(|it| position.wants(it.committed_at));
        Ok(Answer { changes, position, newest: newest.max(last), is_empty })
    }

    fn changes(&self, response: CosmosResponse, keys: &KeyRange) -> Result<Vec<Change>> {
        let attempted = format!("read changes of {keys}");
        let strange = |error: serde_json::Error| unreadable(&attempted, error, Access::Read);
        let body = single(response, &attempted, Access::Read)?;
        let page: PageWire<'_> = serde_json::from_slice(&body).map_err(strange)?;
        let mut changes = Vec::with_capacity(page.documents.len());
        for document in page.documents {
            let wire: ChangeWire<'_> = serde_json::from_str(document.get()).map_err(strange)?;
            // Some servers do not know the envelope and send the items as they are.
            let text = wire.current.unwrap_or(document).get();
            let metadata = wire.metadata.filter(|_| wire.current.is_some());
            let lsn = metadata.as_ref().and_then(|it| it.lsn).map_or(Lsn::ZERO, Lsn::new);
            let item = self.item(text, lsn, &attempted)?;
            changes.push(Change {
                kind: ChangeKind::Written,
                lsn: item.lsn,
                committed_at: item.written_at,
                partition_key: item.partition_key.clone(),
                id: item.id.clone(),
                current: Some(item),
                previous: None,
            });
        }
        Ok(changes)
    }
}

#[derive(Deserialize)]
struct PageWire<'a> {
    #[serde(rename = "Documents", borrow)]
    documents: Vec<&'a RawValue>,
}

#[derive(Deserialize)]
struct ChangeWire<'a> {
    #[serde(borrow)]
    current: Option<&'a RawValue>,
    #[serde(default)]
    metadata: Option<MetadataWire>,
}

#[derive(Deserialize)]
struct MetadataWire {
    lsn: Option<u64>,
}

/// Where the next page begins.
fn etag(response: &CosmosResponse) -> Result<String> {
    let etag = response.headers().etag.as_ref().map(ToString::to_string);
    etag.ok_or_else(|| unreadable("read the feed", "a page has no etag", Access::Read))
}
