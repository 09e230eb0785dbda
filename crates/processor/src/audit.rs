//! The coverage auditor: whether every key of the feed belongs to one lease.
//!
//! A listing of leases is not a snapshot: a split in the middle of it can look like a hole. So a
//! hole is believed only after it was seen several times ([`HoleWatch`]). Whatever the leases look
//! like, an audit reports and never fails.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use millstream_core::{EffectiveKey, KeyRange};

use crate::stored::{Lease, LeaseState};

/// So many audits in a row must find a hole before it counts.
const CONFIRMATIONS: u32 = 3;

/// What the auditor knows of a lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditedLease {
    /// The id of its document.
    pub id: String,
    /// The keys that it stands for.
    pub keys: KeyRange,
    /// Whether it stands for them now.
    pub state: AuditedState,
}

/// How far a lease is on its way to be replaced by others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AuditedState {
    /// It stands for all its keys.
    Active,
    /// It is frozen while the leases that replace it are being created. It stands for those of its
    /// keys that belong to a child without a document.
    Splitting {
        /// The keys of the leases that replace it. After a merge they reach beyond its own.
        children: Vec<KeyRange>,
    },
    /// It stands for nothing any more.
    Retired,
}

/// What an audit found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Coverage {
    /// What no lease stands for, in order, as few ranges as possible.
    pub holes: Vec<KeyRange>,
    /// What two leases stand for, in order. Where more than two overlap, each is reported with the
    /// one before it that reaches furthest, so together the ranges are all that is covered twice.
    pub overlaps: Vec<(String, String, KeyRange)>,
    /// Active leases with exactly the same keys: the first by id, and another one. They are among
    /// the overlaps as well.
    pub duplicates: Vec<(String, String)>,
}

/// Remembers holes from audit to audit.
#[derive(Debug, Default)]
pub struct HoleWatch {
    seen: BTreeMap<Bounds, u32>,
}

/// The bounds of a range in the form in which equal ranges are equal.
type Bounds = (Vec<u8>, Vec<u8>);

/// Compares leases with the key space that they should cover: [`KeyRange::all`], or the ranges of
/// the container. The order of either means nothing.
///
/// ```
/// use millstream_core::KeyRange;
/// use millstream_processor::{AuditedLease, AuditedState, audit};
///
/// let halves = KeyRange::divide(2)?;
/// let (id, keys) = ("left".to_owned(), halves[0].clone());
/// let lease = AuditedLease { id, keys, state: AuditedState::Active };
/// assert_eq!(audit(&[KeyRange::all()], &[lease]).holes, [halves[1].clone()]);
/// # Ok::<(), millstream_core::Error>(())
/// ```
#[must_use]
pub fn audit(space: &[KeyRange], leases: &[AuditedLease]) -> Coverage {
    let mut covered = covered(leases);
    covered.sort_by(|(id, keys), (other_id, other_keys)| {
        borders(keys).cmp(&borders(other_keys)).then_with(|| id.cmp(other_id))
    });
    Coverage {
        holes: holes(space, covered.iter().map(|(_, keys)| keys)),
        overlaps: overlaps(&covered),
        duplicates: duplicates(leases),
    }
}

impl AuditedLease {
    pub(crate) fn of(id: &str, lease: &Lease) -> Self {
        let state = match lease.state {
            LeaseState::Active => AuditedState::Active,
            LeaseState::Splitting => AuditedState::Splitting { children: lease.children.clone() },
            LeaseState::Retired => AuditedState::Retired,
        };
        Self { id: id.to_owned(), keys: lease.keys.clone(), state }
    }
}

impl Coverage {
    /// Whether every key belongs to exactly one lease.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.holes.is_empty() && self.overlaps.is_empty()
    }
}

impl HoleWatch {
    /// Takes note of an audit, and returns the holes that this one and the two before it found with
    /// the same bounds. A hole stays confirmed until an audit does not find it.
    pub fn confirm(&mut self, coverage: &Coverage) -> Vec<KeyRange> {
        let mut seen = BTreeMap::new();
        let mut confirmed = Vec::new();
        for hole in &coverage.holes {
            let bounds = bounds(hole);
            let times = self.seen.get(&bounds).copied().unwrap_or_default().saturating_add(1);
            if CONFIRMATIONS <= times {
                confirmed.push(hole.clone());
            }
            seen.insert(bounds, times);
        }
        self.seen = seen;
        confirmed
    }
}

/// All that some lease stands for.
fn covered(leases: &[AuditedLease]) -> Vec<(&str, KeyRange)> {
    let mut documents: BTreeMap<_, usize> = BTreeMap::new();
    for lease in leases {
        *documents.entry(borders(&lease.keys)).or_default() += 1;
    }
    let mut covered = Vec::with_capacity(leases.len());
    for lease in leases {
        match &lease.state {
            AuditedState::Active => covered.push((lease.id.as_str(), lease.keys.clone())),
            AuditedState::Retired => (),
            AuditedState::Splitting { children } => {
                let has_document = |child: &KeyRange| {
                    // A lease is not its own child, even if it is replaced by one with its keys.
                    let own = usize::from(*child == lease.keys);
                    own < documents.get(&borders(child)).copied().unwrap_or_default()
                };
                let missing = children.iter().filter(|child| !has_document(child));
                let missing = missing.filter_map(|child| child.intersect(&lease.keys));
                covered.extend(missing.map(|keys| (lease.id.as_str(), keys)));
            }
        }
    }
    covered
}

/// What lies in the space and in none of the ranges, which are sorted.
fn holes<'a>(space: &[KeyRange], covered: impl Iterator<Item = &'a KeyRange>) -> Vec<KeyRange> {
    let covered = union(covered);
    let mut space: Vec<_> = space.iter().collect();
    space.sort_by_key(|keys| borders(keys));
    let mut holes = Vec::new();
    for part in union(space.into_iter()) {
        let (mut from, end) = part;
        // The first that ends after the beginning of the part.
        let first = covered.partition_point(|(_, max)| max.trimmed() <= from.trimmed());
        for (min, max) in &covered[first..] {
            if end.trimmed() <= min.trimmed() {
                break;
            }
            holes.extend(range(from, min));
            from = max;
        }
        holes.extend(range(from, end));
    }
    holes
}

/// Sorted ranges with those that touch made one.
fn union<'a>(
    ranges: impl Iterator<Item = &'a KeyRange>,
) -> Vec<(&'a EffectiveKey, &'a EffectiveKey)> {
    let mut union: Vec<(&EffectiveKey, &EffectiveKey)> = Vec::new();
    for keys in ranges {
        match union.last_mut() {
            Some((_, max)) if keys.min().trimmed() <= max.trimmed() => {
                if max.trimmed() < keys.max().trimmed() {
                    *max = keys.max();
                }
            }
            Some(_) | None => union.push((keys.min(), keys.max())),
        }
    }
    union
}

fn overlaps(covered: &[(&str, KeyRange)]) -> Vec<(String, String, KeyRange)> {
    let mut overlaps = Vec::new();
    let mut furthest: Option<&(&str, KeyRange)> = None;
    for lease in covered {
        let (id, keys) = lease;
        if let Some((other, reach)) = furthest
            && let Some(both) = reach.intersect(keys)
        {
            overlaps.push(((*other).to_owned(), (*id).to_owned(), both));
        }
        if furthest.is_none_or(|(_, reach)| reach.max().trimmed() < keys.max().trimmed()) {
            furthest = Some(lease);
        }
    }
    overlaps
}

fn duplicates(leases: &[AuditedLease]) -> Vec<(String, String)> {
    let mut same: BTreeMap<_, Vec<&str>> = BTreeMap::new();
    for lease in leases.iter().filter(|lease| lease.state == AuditedState::Active) {
        same.entry(borders(&lease.keys)).or_default().push(&lease.id);
    }
    let mut duplicates = Vec::new();
    for ids in same.values_mut() {
        ids.sort_unstable();
        let (first, others) = ids.split_first().expect("a list begins with its first id");
        duplicates.extend(others.iter().map(|it| ((*first).to_owned(), (*it).to_owned())));
    }
    duplicates
}

/// The range between two bounds, if there is anything between them.
fn range(min: &EffectiveKey, max: &EffectiveKey) -> Option<KeyRange> {
    KeyRange::new(min.clone(), max.clone()).ok()
}

fn borders(keys: &KeyRange) -> (&[u8], &[u8]) {
    (keys.min().trimmed(), keys.max().trimmed())
}

fn bounds(keys: &KeyRange) -> Bounds {
    let (min, max) = borders(keys);
    (min.to_vec(), max.to_vec())
}
