//! Streams of containers whose creation or removal was broken off by the death of a process.
//!
//! Whoever makes or removes streams leaves a mark in the catalog until it is done. A mark that
//! stays is taken over: it is written again, so that its owner, should it live after all, is
//! refused when it wants to finish, and then the streams are removed.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use millstream_core::Result;

use crate::NatsStore;
use crate::catalog::Written;

/// A mark that has been there for so long, as seen by one process, is abandoned. Only a creation
/// that takes longer, and is then refused, would notice.
const ABANDONED_AFTER: Duration = Duration::from_secs(10 * 60);

/// The marks that were seen: for each container its sequence, and since when.
#[derive(Debug, Default)]
pub(crate) struct Leftovers {
    seen: BTreeMap<u32, (u64, Duration)>,
}

impl Leftovers {
    /// Takes note of the marks there are, and returns those that are abandoned.
    fn abandoned(&mut self, marks: &[(u32, u64)], now: Duration) -> BTreeSet<u32> {
        let mut seen = BTreeMap::new();
        let mut abandoned = BTreeSet::new();
        for (number, sequence) in marks {
            let before = self.seen.get(number).filter(|(it, _)| it == sequence);
            let since = before.map_or(now, |(_, since)| *since);
            if since + ABANDONED_AFTER <= now {
                abandoned.insert(*number);
            }
            seen.insert(*number, (*sequence, since));
        }
        self.seen = seen;
        abandoned
    }
}

impl NatsStore {
    /// Removes what processes that died have left behind; returns of how many containers.
    pub(crate) async fn remove_leftovers(&self) -> Result<u64> {
        let mut removed = self.remove_homeless().await?;
        let catalog = &self.inner.catalog;
        let unfinished = catalog.all_unfinished().await?;
        let marks: Vec<(u32, u64)> =
            unfinished.iter().map(|(sequence, it)| (it.number, *sequence)).collect();
        let now = self.inner.connection.options().clock.monotonic();
        let abandoned = {
            let mut leftovers = self.inner.leftovers.lock().expect("nobody panics with the lock");
            leftovers.abandoned(&marks, now)
        };
        for (sequence, unfinished) in unfinished {
            if !abandoned.contains(&unfinished.number) {
                continue;
            }
            let mark = catalog.unfinished(unfinished.number);
            match catalog.put(&mark, sequence, &unfinished).await? {
                Written::Done(_) => {
                    self.remove_streams(unfinished).await?;
                    removed += 1;
                }
                // Its owner has finished, or somebody else does this.
                Written::Conflict => {}
            }
        }
        Ok(removed)
    }

    /// Removes containers of databases that are gone. The databases are asked for last: what is not
    /// among them was deleted.
    async fn remove_homeless(&self) -> Result<u64> {
        let catalog = &self.inner.catalog;
        let containers = catalog.all_containers().await?;
        let databases: BTreeSet<u32> =
            catalog.databases().await?.into_iter().map(|it| it.number).collect();
        let mut removed = 0;
        for (sequence, record) in containers {
            let database = record.database_number();
            if databases.contains(&database) {
                continue;
            }
            let name = record.info(sequence)?.name;
            let subject = catalog.container(database, name.container());
            if let Written::Done(_) = self.remove(&subject, sequence, &record).await? {
                removed += 1;
            }
        }
        Ok(removed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_abandoned_when_it_stays_as_it_is() {
        let minutes = |it: u64| Duration::from_secs(it * 60);
        let mut leftovers = Leftovers::default();
        let mut check = |marks: &[(u32, u64)], at, expected: &str| {
            assert_eq!(format!("{:?}", leftovers.abandoned(marks, minutes(at))), expected);
        };
        // Nobody knows since when it is there.
        check(&[(1, 7)], 5, "{}");
        check(&[(1, 7), (2, 8)], 14, "{}");
        check(&[(1, 7), (2, 8)], 15, "{1}");
        // Another process has taken over the first.
        check(&[(1, 9), (2, 8)], 24, "{2}");
        check(&[(1, 9)], 33, "{}");
        check(&[(1, 9)], 34, "{1}");
    }
}
