use crate::memory::state::ContainerState;
use crate::{EffectiveKey, Error, ErrorKind, KeyRange, Lsn, RangeId, RangeInfo, Result, Timestamp};

/// A live range: it numbers the commits of its keys (9).
#[derive(Debug)]
pub(super) struct Range {
    pub(super) info: RangeInfo,
    pub(super) newest: Lsn,
    pub(super) newest_at: Timestamp,
}

impl Range {
    /// The number and the time of the next commit. Neither ever goes back, even if the clock does.
    fn next_commit(&mut self, now: Timestamp) -> (Lsn, Timestamp) {
        self.newest = self.newest.next();
        self.newest_at = self.newest_at.max(now);
        (self.newest, self.newest_at)
    }
}

impl ContainerState {
    /// The number and the time of the next commit to a key.
    pub(super) fn next_commit(&mut self, key: &EffectiveKey, now: Timestamp) -> (Lsn, Timestamp) {
        self.moves += 1;
        let range = self.ranges.iter_mut().find(|it| it.info.keys.contains(key));
        range.expect("ranges have no gaps").next_commit(now)
    }

    /// The newest commit of the range a key lies in.
    pub(super) fn newest(&self, key: &EffectiveKey) -> Lsn {
        let range = self.ranges.iter().find(|it| it.info.keys.contains(key));
        range.expect("ranges have no gaps").newest
    }

    /// The one range that `keys` lie in.
    pub(super) fn range_of(&self, keys: &KeyRange) -> Result<&Range> {
        self.ranges.iter().find(|it| it.info.keys.covers(keys)).ok_or_else(|| {
            Error::new(ErrorKind::RangeMoved, format!("read the changes of {keys}"))
                .because("the keys lie in several ranges; ask for the ranges again")
        })
    }

    pub(super) fn split(
        &mut self,
        id: RangeId,
        at: Option<&EffectiveKey>,
    ) -> Result<Vec<RangeInfo>> {
        let place = self.place_of(id)?;
        let keys = &self.ranges[place].info.keys;
        let no_middle = || Error::invalid(format!("split range {id}"), "it has no middle");
        let (low, high) = match at {
            Some(at) => keys.split_at(at)?,
            None => {
                let definition = &self.info.settings.partition_key;
                keys.split_at(&definition.middle(keys).ok_or_else(no_middle)?)?
            }
        };
        let parent = self.ranges.remove(place);
        let mut parents = parent.info.parents;
        parents.push(id);
        // Both children go on counting where the parent stopped, so that its positions mean the
        // same in them (8).
        for (offset, keys) in [low, high].into_iter().enumerate() {
            let info = RangeInfo { id: self.new_range_id(), keys, parents: parents.clone() };
            let child = Range { info, newest: parent.newest, newest_at: parent.newest_at };
            self.ranges.insert(place + offset, child);
        }
        self.moves += 1;
        Ok(self.ranges[place..place + 2].iter().map(|it| it.info.clone()).collect())
    }

    pub(super) fn merge(&mut self, left: RangeId, right: RangeId) -> Result<RangeInfo> {
        let place = self.place_of(left)?;
        if self.place_of(right)? != place + 1 {
            let reason = "the second does not begin where the first ends";
            return Err(Error::invalid(format!("merge the ranges {left} and {right}"), reason));
        }
        let high = self.ranges.remove(place + 1);
        let low = self.ranges.remove(place);
        let min = low.info.keys.min().clone();
        let keys = KeyRange::new(min, high.info.keys.max().clone())?;
        let mut parents = low.info.parents;
        parents.extend(high.info.parents.into_iter().filter(|it| *it != left && *it != right));
        parents.sort();
        parents.dedup();
        parents.extend([left, right]);
        let info = RangeInfo { id: self.new_range_id(), keys, parents };
        // Later commits are after everything in both parents (8, 9).
        let newest = low.newest.max(high.newest);
        let newest_at = low.newest_at.max(high.newest_at);
        self.ranges.insert(place, Range { info: info.clone(), newest, newest_at });
        self.moves += 1;
        Ok(info)
    }

    fn place_of(&self, id: RangeId) -> Result<usize> {
        self.ranges.iter().position(|it| it.info.id == id).ok_or_else(|| {
            Error::new(ErrorKind::NotFound, format!("find range {id}"))
                .because("it does not exist, or was split or merged")
        })
    }

    fn new_range_id(&mut self) -> RangeId {
        self.ranges_made += 1;
        RangeId(self.ranges_made - 1)
    }

    /// The ranges of a new container.
    pub(super) fn divide(&mut self, now: Timestamp) -> Result<()> {
        for keys in self.info.settings.partition_key.divide(self.info.settings.ranges)? {
            let info = RangeInfo { id: self.new_range_id(), keys, parents: Vec::new() };
            self.ranges.push(Range { info, newest: Lsn::ZERO, newest_at: now });
        }
        Ok(())
    }
}
