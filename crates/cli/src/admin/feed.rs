//! Reading the change feed of a container page by page.

use std::sync::Arc;
use std::time::Duration;

use millstream_core::{
    Change, ChangeKind, Container, Continuation, ErrorKind, FeedMode, KeyRange, PageSize,
    StartFrom, Timestamp,
};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::failure::{Failure, Result};
use crate::system::System;

/// Longest time one request waits for changes.
const WAIT_MAX: Duration = Duration::from_secs(10);

/// What to read.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct FeedRequest {
    pub(crate) container: String,
    /// Where to begin: `beginning`, `now` or a time.
    pub(crate) from: String,
    /// Every version instead of the latest one of each item.
    pub(crate) all_versions: bool,
    /// Where an earlier answer ended; empty at first.
    pub(crate) places: Vec<Place>,
    /// About how many changes to return.
    pub(crate) max: usize,
    /// Whether to wait a while if there is nothing.
    pub(crate) wait: bool,
}

/// Some changes, and where to go on.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct FeedAnswer {
    pub(crate) changes: Vec<ChangeRow>,
    pub(crate) places: Vec<Place>,
}

/// A place in the feed of some keys.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Place {
    keys: KeyRange,
    after: String,
}

/// A change.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ChangeRow {
    pub(crate) kind: String,
    pub(crate) lsn: u64,
    pub(crate) committed_at: String,
    pub(crate) partition_key: Box<RawValue>,
    pub(crate) id: String,
    /// The number of an event within its partition key.
    pub(crate) sequence: Option<u64>,
    /// The item; none if there is none any more.
    pub(crate) body: Option<Box<RawValue>>,
}

/// Reads where to begin.
pub(crate) fn parse_start(text: &str) -> Result<StartFrom> {
    match text {
        "beginning" => Ok(StartFrom::Beginning),
        "now" => Ok(StartFrom::Now),
        _ => Timestamp::from_rfc3339(text).map(StartFrom::Time).ok_or_else(|| {
            Failure::usage(format!(
                "{text:?} is not a place to begin: write beginning, now or a time such as \
                 2026-02-09T11:07:37Z"
            ))
        }),
    }
}

pub(crate) async fn feed(system: &System, request: FeedRequest) -> Result<FeedAnswer> {
    let container = system.container(&request.container).await?;
    let from = parse_start(&request.from)?;
    let mode = match request.all_versions {
        true => FeedMode::AllVersions,
        false => FeedMode::LatestVersion,
    };
    let mut places = request.places;
    if places.is_empty() {
        for range in container.feed.ranges().await? {
            let after = container.feed.start(&range.keys, from, mode).await?;
            places.push(Place { keys: range.keys, after: after.to_string() });
        }
    }
    let (mut changes, mut places) = read_all(&container, places, request.max).await?;
    if changes.is_empty() && request.wait {
        wait(&container, &places).await?;
        (changes, places) = read_all(&container, places, request.max).await?;
    }
    let changes = changes.iter().map(ChangeRow::try_from).collect::<Result<_>>()?;
    Ok(FeedAnswer { changes, places })
}

/// Reads each place to its next changes, or to its end, until there are enough of them.
async fn read_all(
    container: &Container,
    places: Vec<Place>,
    changes_max: usize,
) -> Result<(Vec<Change>, Vec<Place>)> {
    let (mut changes, mut done, mut todo) = (Vec::new(), Vec::new(), places);
    todo.reverse();
    while let Some(place) = todo.pop() {
        if changes_max <= changes.len() {
            done.push(place);
            continue;
        }
        let after = Continuation::new(place.after.as_str())?;
        let size = PageSize::items(changes_max - changes.len()).clamped();
        match container.feed.read(&place.keys, &after, size).await {
            Ok(page) => {
                // Empty although there is more: much was passed over.
                let goes_on = page.changes.is_empty() && !page.is_end(&after);
                changes.extend(page.changes);
                let place = Place { keys: place.keys, after: page.continuation.to_string() };
                if goes_on { todo.push(place) } else { done.push(place) }
            }
            Err(error) if error.kind() == ErrorKind::RangeMoved => {
                for range in container.feed.ranges().await? {
                    if let Some(keys) = range.keys.intersect(&place.keys) {
                        todo.push(Place { keys, after: place.after.clone() });
                    }
                }
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok((changes, done))
}

/// Waits until there may be something after one of the places, or for a while.
async fn wait(container: &Container, places: &[Place]) -> Result<()> {
    let mut waits = tokio::task::JoinSet::new();
    for place in places.iter().cloned() {
        let feed = Arc::clone(&container.feed);
        let after = Continuation::new(place.after)?;
        // What is wrong with a place is told when it is read.
        waits.spawn(async move { drop(feed.wait(&place.keys, &after).await) });
    }
    let _ = tokio::time::timeout(WAIT_MAX, waits.join_next()).await;
    Ok(())
}

impl TryFrom<&Change> for ChangeRow {
    type Error = Failure;

    fn try_from(change: &Change) -> Result<Self> {
        let item = change.current.as_ref();
        let body = item.map(|it| String::from_utf8_lossy(&it.body).into_owned());
        Ok(Self {
            kind: match change.kind {
                ChangeKind::Written => "written",
                ChangeKind::Created => "created",
                ChangeKind::Replaced => "replaced",
                ChangeKind::Deleted => "deleted",
                ChangeKind::Expired => "expired",
            }
            .to_owned(),
            lsn: change.lsn.as_u64(),
            committed_at: change.committed_at.to_rfc3339(),
            partition_key: RawValue::from_string(change.partition_key.to_string())?,
            id: change.id.as_str().to_owned(),
            sequence: item.and_then(|it| it.sequence),
            body: body.map(RawValue::from_string).transpose()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use millstream_core::KeyRange;

    use super::*;
    use crate::sparse_feed::sparse_container;

    #[tokio::test]
    async fn pages_without_changes_are_not_the_end() {
        let container = sparse_container().await;
        let (keys, mode) = (KeyRange::all(), FeedMode::LatestVersion);
        let after = container.feed.start(&keys, StartFrom::Beginning, mode).await.unwrap();
        let places = vec![Place { keys, after: after.to_string() }];
        let (changes, places) = read_all(&container, places, 10).await.unwrap();
        assert_eq!(changes.len(), 1);
        let (changes, _) = read_all(&container, places, 10).await.unwrap();
        assert_eq!(changes.len(), 0);
    }
}
