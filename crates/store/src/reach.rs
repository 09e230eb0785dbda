//! How far the tables reach into each part of the feed.
//!
//! Whoever follows the feed wants what was committed last, which is in the buffer; to look for it
//! in the tables as well made a page half as dear again.

use std::ops::Bound;
use std::sync::Mutex;

use millstream_core::Result;
use rustc_hash::FxHashMap;

use crate::buffer::{Key, Layer};
use crate::engine::lock;
use crate::keys::Place;
use crate::tables::Table;
use crate::view::Section;

/// The last commit of each segment that the tables may hold.
#[derive(Debug, Default)]
pub(crate) struct Reach(Mutex<FxHashMap<(Table, u32), Last>>);

/// What is known about a segment.
#[derive(Clone, Copy, Debug, Default)]
struct Last {
    /// No commit after this one has moved to the tables since they were opened.
    lsn: u64,
    /// Whether that includes what was there before.
    is_certain: bool,
}

impl Reach {
    /// Whether the tables may hold something of a section.
    pub(crate) fn includes(&self, section: &Section) -> bool {
        let Some(place) = place_of(section.table, &section.from) else { return true };
        let end = place.segment.checked_add(1).map(u32::to_be_bytes);
        if end.is_none_or(|it| it[..] < section.to[..]) {
            return true;
        }
        let last = lock(&self.0).get(&(section.table, place.segment)).copied();
        last.is_none_or(|it| !it.is_certain || place.lsn <= it.lsn)
    }

    /// Finds out about the segment that a section begins in, if that is not known yet. `stored`
    /// tells the last place of the segment in the tables.
    pub(crate) fn learn(
        &self,
        section: &Section,
        stored: impl FnOnce(u32) -> Result<Option<Place>>,
    ) -> Result<()> {
        let table = section.table;
        let Some(Place { segment, .. }) = place_of(table, &section.from) else { return Ok(()) };
        if lock(&self.0).get(&(table, segment)).is_some_and(|it| it.is_certain) {
            return Ok(());
        }
        let stored = stored(segment)?;
        let mut known = lock(&self.0);
        let last = known.entry((table, segment)).or_default();
        last.lsn = last.lsn.max(stored.map_or(0, |it| it.lsn));
        last.is_certain = true;
        Ok(())
    }

    /// Notes what a layer will add, before it does.
    pub(crate) fn extend(&self, table: Table, layer: &Layer) {
        let entries = layer.table(table);
        let mut known = lock(&self.0);
        let mut first = entries.keys().next();
        while let Some(place) = first.and_then(|it| place_of(table, it)) {
            let end = Key::from(Place::end_of_segment(place.segment));
            let newest = entries.range(..&end).next_back().and_then(|it| place_of(table, it.0));
            let last = known.entry((table, place.segment)).or_default();
            last.lsn = last.lsn.max(newest.unwrap_or(place).lsn);
            first = entries.range((Bound::Included(&end), Bound::Unbounded)).next().map(|it| it.0);
        }
    }
}

/// None for tables that are not in commit order.
fn place_of(table: Table, key: &[u8]) -> Option<Place> {
    if table.writes_keys_once() { Place::from_key(key) } else { None }
}

#[cfg(test)]
mod tests {
    use millstream_core::Lsn;

    use super::*;
    use crate::buffer::Entry;

    fn place(segment: u32, lsn: u64) -> Place {
        Place { segment, lsn, origin: segment, index: 0 }
    }

    /// What a reader asks for after a commit.
    fn after(segment: u32, lsn: u64) -> Section {
        let from = Place::first_after(segment, Lsn::new(lsn)).to_vec();
        Section { table: Table::Feed, from, to: Place::end_of_segment(segment) }
    }

    fn layer(places: &[(u32, u64)]) -> Layer {
        let mut layer = Layer::default();
        let put =
            |it: &(u32, u64)| Entry::put(Table::Feed, place(it.0, it.1).key(), b"x".as_slice());
        layer.apply(places.iter().map(put), 1);
        layer
    }

    fn learn(reach: &Reach, segment: u32, stored: Option<u64>) {
        let found = |segment| Ok(stored.map(|lsn| place(segment, lsn)));
        reach.learn(&after(segment, 0), found).expect("nothing fails");
    }

    #[track_caller]
    fn check(reach: &Reach, segment: u32, last: u64) {
        let before = last.checked_sub(1).map(|it| after(segment, it));
        assert!(before.is_none_or(|it| reach.includes(&it)), "{segment}: {last} is left out");
        assert!(!reach.includes(&after(segment, last)), "{segment}: more than {last} is there");
    }

    #[test]
    fn what_is_not_known_is_looked_for() {
        let reach = Reach::default();
        assert!(reach.includes(&after(1, 100)));
        reach.extend(Table::Feed, &layer(&[(1, 5)]));
        assert!(reach.includes(&after(1, 100)), "older tables may hold more");
    }

    #[test]
    fn what_is_not_one_segment_of_the_feed_is_looked_for() {
        let reach = Reach::default();
        learn(&reach, 255, None);
        check(&reach, 255, 0);
        let whole = after(255, 0);
        let others = [
            Section { table: Table::Items, ..whole.clone() },
            Section { table: Table::History, ..whole.clone() },
            Section { from: b"no place".to_vec(), ..whole.clone() },
            Section { to: Place::end_of_segment(256), ..whole },
            Section { to: vec![255; 4], ..after(u32::MAX, 0) },
        ];
        assert!(others.iter().all(|it| reach.includes(it)));
    }

    #[test]
    fn each_segment_reaches_as_far_as_its_last_commit() {
        let reach = Reach::default();
        reach.extend(Table::Feed, &layer(&[(1, 5), (1, 7), (2, 3), (9, 4)]));
        for (segment, stored, last) in [(1, Some(6), 7), (2, Some(8), 8), (3, None, 0)] {
            learn(&reach, segment, stored);
            check(&reach, segment, last);
        }
        reach.extend(Table::Feed, &layer(&[(1, 2), (3, 11)]));
        check(&reach, 1, 7);
        check(&reach, 3, 11);
    }

    #[test]
    fn what_moves_while_the_tables_are_asked_counts() {
        let reach = Reach::default();
        let found = |segment: u32| {
            reach.extend(Table::Feed, &layer(&[(segment, 12)]));
            Ok(None)
        };
        reach.learn(&after(1, 0), found).expect("nothing fails");
        check(&reach, 1, 12);
    }
}
