//! What was really written: the log that deliveries are compared with.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use millstream_core::{EffectiveKey, KeyRange, Lsn, PartitionKey, PartitionKeyComponent};

/// One commit of the data container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrueCommit {
    /// The logical partition, as text.
    pub key: Arc<str>,
    /// Where that lies.
    pub effective: EffectiveKey,
    /// Its number.
    pub lsn: Lsn,
    /// What it changed.
    pub changes: Vec<TrueChange>,
}

/// What a commit did to one item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrueChange {
    /// The item.
    pub id: Arc<str>,
    /// The number in the body, unique in the run; none if it was deleted.
    pub version: Option<u64>,
    /// The number before, if it existed.
    pub previous: Option<u64>,
}

/// Where a version was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The commit, counted over all keys from 0.
    pub commit: usize,
    /// The commit that wrote the item again or deleted it, if one did.
    pub superseded_by: Option<usize>,
}

/// All commits of the data container in order. Clones share their content.
#[derive(Clone, Debug, Default)]
pub struct Truth {
    state: Arc<Mutex<TruthState>>,
}

/// The log itself, see [`Truth::lock`].
#[derive(Debug, Default)]
pub struct TruthState {
    commits: Vec<TrueCommit>,
    places: BTreeMap<u64, Place>,
    by_key: BTreeMap<Arc<str>, Vec<usize>>,
    live: BTreeMap<(Arc<str>, Arc<str>), u64>,
    versions_made: u64,
}

impl Truth {
    /// Looks at the log.
    pub fn lock(&self) -> MutexGuard<'_, TruthState> {
        self.state.lock().expect("nothing panics while it holds the lock")
    }
}

impl TruthState {
    /// All commits in order.
    #[must_use]
    pub fn commits(&self) -> &[TrueCommit] {
        &self.commits
    }

    /// The commits of one key, as places in [`TruthState::commits`].
    #[must_use]
    pub fn of_key(&self, key: &str) -> &[usize] {
        self.by_key.get(key).map_or(&[], Vec::as_slice)
    }

    /// The keys that were ever written.
    pub fn keys(&self) -> impl Iterator<Item = &Arc<str>> {
        self.by_key.keys()
    }

    /// Where a version was written, if it ever was.
    #[must_use]
    pub fn place(&self, version: u64) -> Option<Place> {
        self.places.get(&version).copied()
    }

    /// The version of an item that exists.
    #[must_use]
    pub fn live_version(&self, key: &Arc<str>, id: &Arc<str>) -> Option<u64> {
        self.live.get(&(Arc::clone(key), Arc::clone(id))).copied()
    }

    /// The items that exist, by key and id, with their versions.
    pub fn live(&self) -> impl Iterator<Item = (&str, &str, u64)> {
        self.live.iter().map(|((key, id), version)| (&**key, &**id, *version))
    }

    /// For each written key in a range how many of its commits have a number up to `lsn`.
    pub fn passed<'a>(
        &'a self,
        keys: &'a KeyRange,
        lsn: Lsn,
    ) -> impl Iterator<Item = (&'a Arc<str>, usize)> {
        self.by_key.iter().filter_map(move |(key, of_key)| {
            let first = &self.commits[*of_key.first()?];
            // Numbers of one key only grow, also over splits and merges.
            let count = || of_key.partition_point(|it| self.commits[*it].lsn <= lsn);
            keys.contains(&first.effective).then(|| (key, count()))
        })
    }

    /// A version that no body has yet.
    pub(crate) fn next_version(&mut self) -> u64 {
        self.versions_made += 1;
        self.versions_made
    }

    /// Adds a commit; versions by id, none for a delete.
    pub(crate) fn add(
        &mut self,
        key: &Arc<str>,
        effective: EffectiveKey,
        lsn: Lsn,
        written: Vec<(Arc<str>, Option<u64>)>,
    ) {
        let commit = self.commits.len();
        let mut changes = Vec::with_capacity(written.len());
        for (id, version) in written {
            let item = (Arc::clone(key), Arc::clone(&id));
            let previous = match version {
                Some(version) => self.live.insert(item, version),
                None => self.live.remove(&item),
            };
            if let Some(place) = previous.and_then(|it| self.places.get_mut(&it)) {
                place.superseded_by = Some(commit);
            }
            if let Some(version) = version {
                self.places.insert(version, Place { commit, superseded_by: None });
            }
            changes.push(TrueChange { id, version, previous });
        }
        self.by_key.entry(Arc::clone(key)).or_default().push(commit);
        self.commits.push(TrueCommit { key: Arc::clone(key), effective, lsn, changes });
    }
}

/// The partition key as the log writes it.
#[must_use]
pub fn key_text(key: &PartitionKey) -> String {
    match key.components() {
        [PartitionKeyComponent::String(text)] => text.clone(),
        _ => key.to_string(),
    }
}

/// The version in a body of the workload.
#[must_use]
pub fn version_in(body: &[u8]) -> Option<u64> {
    const NAME: &[u8] = b"\"version\":";
    let at = body.windows(NAME.len()).position(|it| it == NAME)?;
    let digits = body[at + NAME.len()..].iter().take_while(|it| it.is_ascii_digit());
    digits.map(|it| u64::from(*it - b'0')).reduce(|sum, digit| sum * 10 + digit)
}
