//! Which messages of a lane are done: all up to a floor, and ranges above it.
//!
//! A lane has only some of the numbers of its stream. A range says that every message *of the lane*
//! between its ends is done; since numbers only grow, that stays true.

use std::collections::BTreeMap;

/// What is done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Settled {
    floor: u64,
    /// From the first number of each range to its last.
    ranges: BTreeMap<u64, u64>,
}

impl Settled {
    pub(crate) fn new(floor: u64, ranges: &[(u64, u64)]) -> Self {
        Self { floor, ranges: ranges.iter().copied().collect() }
    }

    /// Everything up to here is done.
    pub(crate) fn floor(&self) -> u64 {
        self.floor
    }

    pub(crate) fn ranges(&self) -> Vec<(u64, u64)> {
        self.ranges.iter().map(|(first, last)| (*first, *last)).collect()
    }

    pub(crate) fn len(&self) -> usize {
        self.ranges.len()
    }

    pub(crate) fn contains(&self, number: u64) -> bool {
        let before = self.ranges.range(..=number).next_back();
        number <= self.floor || before.is_some_and(|(_, last)| number <= *last)
    }

    /// Adds a number. `is_open` tells whether a message of the lane between two numbers is not
    /// done; both lie among those that were read.
    pub(crate) fn insert(&mut self, number: u64, is_open: impl Fn(u64, u64) -> bool) {
        if self.contains(number) {
            return;
        }
        let (mut first, mut last) = (number, number);
        if let Some((start, end)) = self.ranges.range(..number).next_back()
            && !is_open(*end, number)
        {
            first = *start;
        }
        if let Some((start, end)) = self.ranges.range(number..).next()
            && !is_open(number, *start)
        {
            last = *end;
            let start = *start;
            self.ranges.remove(&start);
        }
        self.ranges.insert(first, last);
    }

    /// Raises the floor to right before the first open number, or to the last number that was read
    /// if none is open.
    pub(crate) fn raise(&mut self, first_open: Option<u64>, read: u64) {
        let floor = first_open.map_or(read, |it| it.saturating_sub(1));
        self.floor = self.floor.max(floor);
        while let Some((first, last)) = self.ranges.first_key_value()
            && *first <= self.floor
        {
            self.floor = self.floor.max(*last);
            self.ranges.pop_first();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// A lane with the numbers 2, 4, 6 ... 20; `done` are settled in this order.
    #[track_caller]
    fn check(done: &[u64], expected: &str) {
        let mut open: BTreeSet<u64> = (1..=10).map(|it| it * 2).collect();
        let mut settled = Settled::new(1, &[]);
        for number in done {
            open.remove(number);
            settled.insert(*number, |after, before| open.range(after + 1..before).next().is_some());
            settled.raise(open.first().copied(), 20);
            for it in (2..=20).step_by(2) {
                assert_eq!(settled.contains(it), !open.contains(&it), "{it} after {number}");
            }
        }
        assert_eq!(format!("{} {:?}", settled.floor, settled.ranges()), expected);
    }

    #[test]
    fn numbers_become_ranges_and_ranges_the_floor() {
        check(&[], "1 []");
        check(&[2], "3 []");
        check(&[6, 8], "1 [(6, 8)]");
        check(&[8, 6], "1 [(6, 8)]");
        check(&[6, 10], "1 [(6, 6), (10, 10)]");
        check(&[6, 10, 8], "1 [(6, 10)]");
        check(&[6, 10, 2, 4], "7 [(10, 10)]");
        check(&[20, 18, 16, 14, 12, 10, 8, 6, 4, 2], "20 []");
    }

    #[test]
    fn ranges_of_an_earlier_owner_are_taken_over() {
        let mut settled = Settled::new(3, &[(6, 8), (12, 12)]);
        assert!(settled.contains(8) && !settled.contains(10) && settled.contains(12));
        settled.raise(Some(10), 10);
        assert_eq!((settled.floor(), settled.len()), (9, 1));
        settled.raise(None, 14);
        assert_eq!((settled.floor(), settled.len()), (14, 0));
    }
}
