//! Which keys the leases of another processor stand for now, and whether they are all keys once.

use std::collections::{BTreeMap, BTreeSet};

use millstream_core::{EffectiveKey, KeyRange, RangeId, RangeInfo};

use crate::foreign::document::{ForeignLease, ForeignScope};
use crate::foreign::report::Problem;

/// Where the leases lie.
#[derive(Debug, Default)]
pub(crate) struct Layout {
    /// In key order.
    pub(crate) pieces: Vec<Piece>,
    pub(crate) coverage: Coverage,
    /// Leases whose keys are not known.
    pub(crate) problems: Vec<Problem>,
}

/// Keys that go on from the position of a lease. They lie in one range of the feed.
#[derive(Debug)]
pub(crate) struct Piece {
    /// The place of the lease among the leases.
    pub(crate) lease: usize,
    pub(crate) keys: KeyRange,
}

/// What ranges of keys leave out or hold twice.
#[derive(Debug, Default)]
pub(crate) struct Coverage {
    pub(crate) holes: Vec<KeyRange>,
    pub(crate) overlaps: Vec<KeyRange>,
    pub(crate) problems: Vec<Problem>,
}

/// Finds the keys of every lease among the ranges of the feed.
pub(crate) fn lay_out(leases: &[ForeignLease], ranges: &[RangeInfo]) -> Layout {
    let family = Family::new(ranges);
    let mut layout = Layout::default();
    for (index, lease) in leases.iter().enumerate() {
        let keys = match &lease.scope {
            ForeignScope::Keys(keys) => Ok(parts(keys, ranges.iter())),
            ForeignScope::Partition { id, keys } => family.keys_of(*id, keys.as_ref()),
        };
        match keys {
            Ok(keys) => {
                layout.pieces.extend(keys.into_iter().map(|keys| Piece { lease: index, keys }));
            }
            Err(reason) => {
                let text = format!("the lease \"{}\" cannot be placed: {reason}", lease.id);
                layout.problems.push(Problem::invalid(text));
            }
        }
    }
    layout.pieces.sort_by(|left, right| order(&left.keys, &right.keys));
    let named = layout.pieces.iter().map(|it| (leases[it.lease].id.as_str(), &it.keys));
    layout.coverage = coverage(named);
    layout
}

/// Compares ranges by where they begin.
pub(crate) fn order(left: &KeyRange, right: &KeyRange) -> std::cmp::Ordering {
    left.min().trimmed().cmp(right.min().trimmed())
}

/// Holes and overlaps of ranges with their names, which come in key order.
pub(crate) fn coverage<'a>(named: impl Iterator<Item = (&'a str, &'a KeyRange)>) -> Coverage {
    let mut found = Coverage::default();
    let mut end = EffectiveKey::MIN;
    let mut reaching = "";
    for (name, keys) in named {
        found.hole(&end, keys.min());
        let limit = if keys.max().trimmed() < end.trimmed() { keys.max() } else { &end };
        if let Ok(twice) = KeyRange::new(keys.min().clone(), limit.clone()) {
            let text = format!("the leases \"{reaching}\" and \"{name}\" both hold {twice}");
            found.problems.push(Problem::invalid(text));
            found.overlaps.push(twice);
        }
        if end.trimmed() < keys.max().trimmed() {
            (end, reaching) = (keys.max().clone(), name);
        }
    }
    found.hole(&end, &EffectiveKey::MAX);
    found
}

impl Coverage {
    fn hole(&mut self, from: &EffectiveKey, to: &EffectiveKey) {
        if let Ok(hole) = KeyRange::new(from.clone(), to.clone()) {
            self.problems.push(Problem::invalid(format!("no lease holds {hole}")));
            self.holes.push(hole);
        }
    }
}

/// Which of the ranges came from which.
struct Family<'a> {
    ranges: &'a [RangeInfo],
    /// The live ranges that hold keys of a range, by their places; itself if it is live.
    heirs: BTreeMap<RangeId, BTreeSet<usize>>,
}

impl<'a> Family<'a> {
    fn new(ranges: &'a [RangeInfo]) -> Self {
        let mut heirs: BTreeMap<RangeId, BTreeSet<usize>> = BTreeMap::new();
        for (place, range) in ranges.iter().enumerate() {
            for id in range.parents.iter().chain([&range.id]) {
                heirs.entry(*id).or_default().insert(place);
            }
        }
        Self { ranges, heirs }
    }

    /// The keys of a physical partition as parts of live ranges, or why they are not known.
    fn keys_of(&self, id: RangeId, said: Option<&KeyRange>) -> Result<Vec<KeyRange>, String> {
        if let Some(live) = self.ranges.iter().find(|it| it.id == id) {
            return match said {
                Some(keys) if *keys != live.keys => Err(format!(
                    "it says that partition {id} holds {keys}, but it holds {}; the lease belongs \
                     to another container",
                    live.keys
                )),
                _ => Ok(vec![live.keys.clone()]),
            };
        }
        let Some(heirs) = self.heirs.get(&id) else {
            return Err(format!("the container has no partition {id}, and none that came from it"));
        };
        if let Some(keys) = said {
            let mut holders =
                self.ranges.iter().enumerate().filter(|(_, it)| it.keys.overlaps(keys));
            if holders.any(|(place, _)| !heirs.contains(&place)) {
                return Err(format!("its keys {keys} are not those that came from partition {id}"));
            }
            return Ok(parts(keys, self.ranges.iter()));
        }
        let heirs: Vec<&RangeInfo> = heirs.iter().map(|place| &self.ranges[*place]).collect();
        if let Some(merged) = heirs.iter().find(|it| self.may_hold_more(it, id)) {
            return Err(format!(
                "partition {id} was merged with others into partition {}, and the lease does not \
                 say which keys it had",
                merged.id
            ));
        }
        Ok(heirs.into_iter().map(|it| it.keys.clone()).collect())
    }

    /// Whether a range that came from partition `id` may have come from others beside it too.
    ///
    /// All that became of two merged ranges became of the merged one, so the three have the same
    /// heirs, and parents come oldest first. Ranges that were only split have fewer heirs with each
    /// split. Splits whose parts were joined again crosswise look merged as well, and are refused
    /// though they need not be.
    fn may_hold_more(&self, range: &RangeInfo, id: RangeId) -> bool {
        let line: Vec<RangeId> = range.parents.iter().copied().chain([range.id]).collect();
        let place = line.iter().position(|it| *it == id).unwrap_or(0);
        let later = place + 1..line.len();
        later.into_iter().any(|at| {
            let heirs = &self.heirs[&line[at]];
            heirs.is_subset(&self.heirs[&id])
                && line[..at].iter().any(|it| self.heirs[it] == *heirs)
        })
    }
}

/// The keys cut where ranges end.
fn parts<'a>(keys: &KeyRange, ranges: impl Iterator<Item = &'a RangeInfo>) -> Vec<KeyRange> {
    ranges.filter_map(|it| keys.intersect(&it.keys)).collect()
}
