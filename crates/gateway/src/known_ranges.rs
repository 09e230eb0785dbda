//! The ranges of a container as they were known last, and what was told of them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use millstream_core::{ChangeFeed, Lsn, RangeId, RangeInfo};

use crate::refusal::Refusal;

/// A range of the container and the newest commit of it that anybody was told about.
#[derive(Debug)]
pub(crate) struct Range {
    pub(crate) info: RangeInfo,
    seen: AtomicU64,
}

impl Range {
    /// The newest commit that anybody was told about.
    pub(crate) fn seen(&self) -> Lsn {
        Lsn::new(self.seen.load(Ordering::Relaxed))
    }

    /// Notes a commit, and returns the newest one noted so far.
    pub(crate) fn note(&self, lsn: Lsn) -> Lsn {
        lsn.max(Lsn::new(self.seen.fetch_max(lsn.as_u64(), Ordering::Relaxed)))
    }

    /// Whether both came from one range, be it long ago.
    pub(crate) fn is_related_to(&self, other: &Self) -> bool {
        self.info.parents.iter().any(|it| other.info.parents.contains(it))
    }
}

/// The ranges of a container in key order; one set for all paths that lead to it. None until they
/// were asked for.
#[derive(Debug, Default)]
pub(crate) struct KnownRanges(RwLock<Arc<Vec<Range>>>);

impl KnownRanges {
    /// The ranges as they were known last.
    pub(crate) fn get(&self) -> Arc<Vec<Range>> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Asks the backend for the ranges.
    pub(crate) async fn refresh(&self, feed: &dyn ChangeFeed) -> Result<Arc<Vec<Range>>, Refusal> {
        Ok(self.learn(feed.ranges().await?))
    }

    /// Takes what the backend has told, unless somebody else was told something newer.
    fn learn(&self, infos: Vec<RangeInfo>) -> Arc<Vec<Range>> {
        let mut known = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let is_same = known.iter().map(|it| &it.info).eq(infos.iter());
        let is_older = newest(&infos) < newest(known.iter().map(|it| &it.info));
        if is_same || is_older {
            return Arc::clone(&known);
        }
        // What was told of a range that is gone may be a commit of one that took its place, and no
        // other of those has seen it.
        let fresh = infos.into_iter().map(|info| {
            let known = known.iter().find(|it| it.info == info).map(Range::seen);
            Range { info, seen: AtomicU64::new(known.map_or(0, Lsn::as_u64)) }
        });
        let fresh: Arc<Vec<Range>> = Arc::new(fresh.collect());
        *known = Arc::clone(&fresh);
        fresh
    }
}

/// The largest number of a range. Numbers are never used again, and whatever takes the place of
/// others has larger ones, so that this tells one set of ranges from every earlier one.
pub(crate) fn newest<'a>(ranges: impl IntoIterator<Item = &'a RangeInfo>) -> Option<RangeId> {
    ranges.into_iter().map(|it| it.id).max()
}

#[cfg(test)]
mod tests {
    use millstream_core::KeyRange;

    use super::*;

    /// Equal parts of the space with these numbers, which came from range 0.
    fn parts(ids: &[u32]) -> Vec<RangeInfo> {
        let keys = KeyRange::divide(u32::try_from(ids.len()).unwrap()).unwrap();
        let parents = |id| if id == 0 { Vec::new() } else { vec![RangeId(0)] };
        let info = |(id, keys)| RangeInfo { id: RangeId(id), keys, parents: parents(id) };
        ids.iter().copied().zip(keys).map(info).collect()
    }

    #[test]
    fn an_older_answer_that_comes_late_changes_nothing() {
        let known = KnownRanges::default();
        known.learn(parts(&[0]));
        let split = known.learn(parts(&[1, 2]));
        let late = known.learn(parts(&[0]));
        assert!(Arc::ptr_eq(&late, &split) && Arc::ptr_eq(&known.get(), &split));
    }

    #[test]
    fn what_was_told_of_a_range_is_kept_as_long_as_it_is_there() {
        let known = KnownRanges::default();
        known.learn(parts(&[0, 1]))[1].note(Lsn::new(5));
        let fresh = known.learn(parts(&[0, 1]));
        assert_eq!(fresh[1].seen(), Lsn::new(5));
        assert_eq!(known.learn(parts(&[2, 3]))[1].seen(), Lsn::ZERO);
    }

    #[test]
    fn parts_of_one_range_are_related() {
        let split = KnownRanges::default().learn(parts(&[1, 2]));
        assert!(split[0].is_related_to(&split[1]));
        let whole = KnownRanges::default().learn(parts(&[0]));
        assert!(!whole[0].is_related_to(&split[1]));
    }
}
