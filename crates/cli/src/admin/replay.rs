//! Sending events again, a page at a time.

use std::str::FromStr;

use millstream_core::{
    Container, Continuation, Cursor, EffectiveKey, FeedMode, KeyRange, Lsn, StartFrom,
};
use millstream_relay::{Replay, ReplayPart, ReplayReport, ReplayStep};
use serde::{Deserialize, Serialize};

use crate::admin::feed::parse_start;
use crate::failure::{Failure, Result};
use crate::relaying;
use crate::system::System;

/// What stands before the number of a commit.
const COMMIT: &str = "lsn:";

/// Which events to send again, and to whom.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ReplayRequest {
    pub(crate) container: String,
    /// Where to begin: `beginning`, a time, or `lsn:` and the number of a commit.
    pub(crate) from: String,
    /// Only events of these keys, as `leases` shows them.
    pub(crate) keys: Option<String>,
    /// A topic or a queue.
    pub(crate) to: String,
    /// The only subscription of the topic that gets them.
    pub(crate) subscription: Option<String>,
    /// Most events of this step.
    pub(crate) max: u64,
    /// Where an earlier answer ended. Without it nothing is sent yet: the answer says what there is
    /// to do.
    pub(crate) places: Option<Vec<ReplayPlace>>,
}

/// What is left to do in some keys.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ReplayPlace {
    keys: KeyRange,
    after: String,
    passed: u64,
    until: u64,
}

/// What a step did, and what is left.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ReplayAnswer {
    pub(crate) published: u64,
    pub(crate) refused: u64,
    pub(crate) places: Vec<ReplayPlace>,
    /// Whether it ended because no more events were wanted.
    pub(crate) is_cut: bool,
}

/// Where a replay begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReplayStart {
    From(StartFrom),
    /// With this commit of a range.
    Commit(u64),
}

/// Reads where to begin.
pub(crate) fn parse_replay_start(text: &str) -> Result<ReplayStart> {
    let Some(number) = text.strip_prefix(COMMIT) else {
        let start = parse_start(text).map_err(|_| {
            Failure::usage(format!(
                "{text:?} is not a place to begin: write beginning, a time such as \
                 2026-02-09T11:07:37Z, or lsn: and the number of a commit, such as lsn:17"
            ))
        })?;
        return Ok(ReplayStart::From(start));
    };
    number.parse().map(ReplayStart::Commit).map_err(|_| {
        Failure::usage(format!("{text:?} is not a commit: write lsn: and a number, such as lsn:17"))
    })
}

/// Reads keys as `leases` shows them, such as `[,1FFF)`.
pub(crate) fn parse_keys(text: &str) -> Result<KeyRange> {
    let bounds = text.strip_prefix('[').and_then(|it| it.strip_suffix(')'));
    let keys = bounds.and_then(|it| it.split_once(',')).and_then(|(min, max)| {
        let (min, max) = (EffectiveKey::from_str(min).ok()?, EffectiveKey::from_str(max).ok()?);
        KeyRange::new(min, max).ok()
    });
    keys.ok_or_else(|| {
        Failure::usage(format!(
            "{text:?} are no keys: write them as `millstream leases` shows them, such as [,1FFF)"
        ))
    })
}

impl ReplayPlace {
    /// Commits that are still ahead.
    pub(crate) fn behind(&self) -> u64 {
        self.until.saturating_sub(self.passed)
    }
}

/// Finds out what there is to do, or does the next page of it.
pub(crate) async fn replay(system: &System, request: ReplayRequest) -> Result<ReplayAnswer> {
    let data = system.container(&request.container).await?;
    let publisher = match &request.subscription {
        Some(name) => system.messages.publisher_to_one(&request.to, name)?,
        None => system.messages.publisher(&request.to).await?,
    };
    let source = system.source_of(&data);
    let replay = Replay::new(&data, publisher).like(&relaying::options(&system.config, &source));
    let Some(places) = request.places else {
        let keys = request.keys.as_deref().map(parse_keys).transpose()?;
        let keys = keys.unwrap_or_else(KeyRange::all);
        let replay = match parse_replay_start(&request.from)? {
            ReplayStart::From(start) => replay.from(start),
            ReplayStart::Commit(number) => replay.after(before(&data, &keys, number).await?),
        };
        let parts = replay.keys(keys).begin().await?;
        return Ok(answer(ReplayStep { rest: parts, ..ReplayStep::default() }));
    };
    let mut parts = places.into_iter().map(ReplayPart::try_from).collect::<Result<Vec<_>>>()?;
    let Some(part) = parts.pop() else { return Ok(answer(ReplayStep::default())) };
    let mut step = replay.step(part, request.max).await?;
    parts.append(&mut step.rest);
    Ok(answer(ReplayStep { rest: parts, ..step }))
}

/// The position right before a commit. Its number means something in one range only.
async fn before(data: &Container, keys: &KeyRange, number: u64) -> Result<Continuation> {
    let ranges = data.feed.ranges().await?;
    let ranges = ranges.iter().filter_map(|it| it.keys.intersect(keys));
    let ranges: Vec<String> = ranges.map(|it| it.to_string()).collect();
    if ranges.len() != 1 {
        return Err(Failure::usage(format!(
            "each of the {} ranges of the container has commits of its own with this number: \
             name one of them with --keys: {}",
            ranges.len(),
            ranges.join(" or ")
        )));
    }
    let start = data.feed.start(keys, StartFrom::Beginning, FeedMode::LatestVersion).await?;
    let cursor = Cursor::parse(&start).map_err(|_| {
        Failure::usage("the commits of this store have no numbers: begin at a time")
    })?;
    Ok(Cursor { after: Lsn::new(number.saturating_sub(1)), ..cursor }.to_continuation())
}

fn answer(step: ReplayStep) -> ReplayAnswer {
    let ReplayStep { report, rest, is_cut } = step;
    let ReplayReport { published, refused } = report;
    let places = rest.into_iter().map(ReplayPlace::from).collect();
    ReplayAnswer { published, refused, places, is_cut }
}

impl From<ReplayPart> for ReplayPlace {
    fn from(part: ReplayPart) -> Self {
        let ReplayPart { keys, after, passed, until } = part;
        Self { keys, after: after.to_string(), passed: passed.as_u64(), until: until.as_u64() }
    }
}

impl TryFrom<ReplayPlace> for ReplayPart {
    type Error = Failure;

    fn try_from(place: ReplayPlace) -> Result<Self> {
        let ReplayPlace { keys, after, passed, until } = place;
        let (passed, until) = (Lsn::new(passed), Lsn::new(until));
        Ok(Self { keys, after: Continuation::new(after)?, passed, until })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replay_begins_at_a_time_or_with_a_commit() {
        assert_eq!(parse_replay_start("lsn:17").unwrap(), ReplayStart::Commit(17));
        let beginning = ReplayStart::From(StartFrom::Beginning);
        assert_eq!(parse_replay_start("beginning").unwrap(), beginning);
        for text in ["", "17", "lsn:", "lsn:-1", "yesterday"] {
            assert_eq!(parse_replay_start(text).unwrap_err().code(), 2, "{text}");
        }
    }

    #[test]
    fn keys_are_read_as_they_are_shown() {
        for keys in KeyRange::divide(3).unwrap().into_iter().chain([KeyRange::all()]) {
            assert_eq!(parse_keys(&keys.to_string()).unwrap(), keys);
        }
        for text in ["", "[)", "[00,)", "[XY,FF)", "[,FF]", "[20,10)"] {
            assert_eq!(parse_keys(text).unwrap_err().code(), 2, "{text}");
        }
    }
}
