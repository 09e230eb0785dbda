//! `millstream verify`: reads everything in a data directory and checks that it fits together.

mod own;

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use millstream_core::{
    Container, Containers, ErrorKind, FeedMode, Item, KeyRange, PageSize, PartitionKey, RawJson,
    ScanScope, StartFrom, Timestamp,
};
use millstream_store::Store;
use serde::Serialize;

use crate::config::Config;
use crate::failure::{Failure, Result};
use crate::output::{say, say_json, table};
use crate::system;

/// Items that expire sooner are left out, so that none goes away between two readings.
const EXPIRING: Duration = Duration::from_secs(3600);

/// What was found in a container.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct Findings {
    container: String,
    ranges: usize,
    items: u64,
    bytes: u64,
    /// Items in the change feed.
    changes: u64,
    events: u64,
    event_keys: usize,
    /// Numbers between the first and the last event of a key that no event has; those of events
    /// that were deleted or expired before earlier ones, so that is no problem.
    missing_numbers: u64,
    /// What should not be.
    problems: Vec<String>,
}

/// Items in any order, compared without keeping them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Digest {
    count: u64,
    sum: u64,
}

/// The event numbers of a partition key.
#[derive(Clone, Copy, Debug)]
struct Numbers {
    first: u64,
    last: u64,
    count: u64,
}

/// Checks the data directory of the configuration.
pub(crate) async fn verify(config: &Config, json: bool) -> Result<()> {
    let Some(directory) = config.directory()? else {
        return Err(Failure::usage(
            "only a directory can be verified; the servers look after theirs",
        ));
    };
    if !system::exists(&directory) {
        return Err(Failure::other(format!("there is no store in {}", directory.display())));
    }
    let store = Store::open(&directory).map_err(|error| match error.kind() == ErrorKind::Locked {
        true => Failure::other(
            "another process has the store open; stop it first, so that nothing changes meanwhile",
        ),
        false => error.into(),
    })?;
    let soon = millstream_core::Clock::now(&millstream_core::SystemClock::default()).plus(EXPIRING);
    let mut all = Vec::new();
    for database in store.list_databases().await? {
        for info in store.list(&database.name).await? {
            let container = store.open(&info.name).await?;
            all.push(check(&container, soon).await?);
        }
    }
    for (container, problem) in own::problems(&store, config).await? {
        if let Some(findings) = all.iter_mut().find(|it| it.container == container) {
            findings.problems.push(problem);
        }
    }
    if json {
        say_json(&all)?;
    } else {
        say(&text(&all));
    }
    let problems: usize = all.iter().map(|it| it.problems.len()).sum();
    match problems {
        0 => Ok(()),
        1 => Err(Failure::other("the store has a problem; see above")),
        _ => Err(Failure::other(format!("the store has {problems} problems; see above"))),
    }
}

async fn check(container: &Container, soon: Timestamp) -> Result<Findings> {
    let name = container.info.name.to_string();
    let mut findings = Findings { container: name, ..Findings::default() };
    let mut events: BTreeMap<PartitionKey, Numbers> = BTreeMap::new();
    let mut scanned = Digest::default();
    let mut after = None;
    loop {
        let scope = ScanScope::Keys(KeyRange::all());
        let size = PageSize::items(1_000);
        let page = container.documents.scan(&scope, after.as_ref(), size).await?;
        for item in &page.items {
            findings.items += 1;
            findings.bytes += u64::try_from(item.body.len()).unwrap_or(u64::MAX);
            check_item(container, item, &mut findings.problems);
            scanned.add(item, soon);
            if let Some(number) = item.sequence {
                let new = Numbers { first: number, last: number, count: 0 };
                let numbers = events.entry(item.partition_key.clone()).or_insert(new);
                numbers.first = numbers.first.min(number);
                numbers.last = numbers.last.max(number);
                numbers.count += 1;
                findings.events += 1;
            }
        }
        after = page.continuation;
        if after.is_none() {
            break;
        }
    }
    let fed = feed(container, soon, &mut findings).await?;
    if fed != scanned {
        findings.problems.push(format!(
            "the items and the change feed differ: {} items, {} in the feed",
            scanned.count, fed.count
        ));
    }
    findings.event_keys = events.len();
    for (key, numbers) in &events {
        let room = numbers.last - numbers.first + 1;
        match room.checked_sub(numbers.count) {
            Some(missing) => findings.missing_numbers += missing,
            None => findings.problems.push(format!("events of {key} share a number")),
        }
    }
    Ok(findings)
}

/// Reads the feed of every range from its beginning to its end.
async fn feed(container: &Container, soon: Timestamp, findings: &mut Findings) -> Result<Digest> {
    let mut digest = Digest::default();
    for range in container.feed.ranges().await? {
        findings.ranges += 1;
        let mode = FeedMode::LatestVersion;
        let mut after = container.feed.start(&range.keys, StartFrom::Beginning, mode).await?;
        let mut last = None;
        loop {
            let size = PageSize::items(1_000);
            let page = container.feed.read(&range.keys, &after, size).await?;
            if page.is_end(&after) {
                break;
            }
            for change in &page.changes {
                findings.changes += 1;
                if last.is_some_and(|it| change.lsn < it) {
                    findings.problems.push(format!("the feed goes back at {}", change.lsn));
                }
                last = Some(change.lsn);
                if let Some(item) = &change.current {
                    digest.add(item, soon);
                }
            }
            after = page.continuation;
        }
    }
    Ok(digest)
}

fn check_item(container: &Container, item: &Item, problems: &mut Vec<String>) {
    let mut wrong = |reason: String| {
        problems.push(format!("item {:?} of {}: {reason}", item.id.as_str(), item.partition_key));
    };
    let parsed = std::str::from_utf8(&item.body).map_err(|error| error.to_string());
    let parsed = parsed.and_then(|it| RawJson::parse(it).map_err(|error| error.report()));
    if let Err(error) = parsed {
        wrong(error);
        return;
    }
    match container.info.settings.partition_key.extract(&item.body) {
        Ok(key) if key == item.partition_key => (),
        Ok(key) => wrong(format!("its body says that its partition key is {key}")),
        Err(error) => wrong(error.report()),
    }
}

impl Digest {
    fn add(&mut self, item: &Item, soon: Timestamp) {
        if item.expires_at.is_some_and(|it| it <= soon) {
            return;
        }
        let mut hasher = DefaultHasher::new();
        item.partition_key.to_string().hash(&mut hasher);
        item.id.as_str().hash(&mut hasher);
        item.etag.as_str().hash(&mut hasher);
        item.body.hash(&mut hasher);
        self.count += 1;
        self.sum = self.sum.wrapping_add(hasher.finish());
    }
}

fn text(all: &[Findings]) -> String {
    let rows: Vec<[String; 8]> = all
        .iter()
        .map(|it| {
            [
                it.container.clone(),
                it.ranges.to_string(),
                it.items.to_string(),
                it.bytes.to_string(),
                it.changes.to_string(),
                it.events.to_string(),
                it.event_keys.to_string(),
                it.missing_numbers.to_string(),
            ]
        })
        .collect();
    let headings =
        ["CONTAINER", "RANGES", "ITEMS", "BYTES", "IN FEED", "EVENTS", "KEYS", "MISSING NUMBERS"];
    let mut text = table(headings, &rows);
    for findings in all {
        for problem in &findings.problems {
            text += &format!("{}: {problem}\n", findings.container);
        }
    }
    if all.iter().all(|it| it.problems.is_empty()) {
        text += "everything fits together\n";
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sparse_feed::sparse_container;

    #[tokio::test]
    async fn pages_without_changes_are_not_the_end() {
        let container = sparse_container().await;
        let mut findings = Findings::default();
        feed(&container, Timestamp::EPOCH, &mut findings).await.unwrap();
        assert_eq!(findings.changes, 1);
    }
}
