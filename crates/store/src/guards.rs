//! Readers whose unread events must not expire.

use std::collections::BTreeMap;

use millstream_core::{EffectiveKey, KeyRange};
use serde::{Deserialize, Serialize};

/// How far each registered reader has come, key range by key range.
#[derive(Clone, Debug, Default)]
pub(crate) struct Guards {
    positions: BTreeMap<String, Positions>,
}

/// How far one reader has come. Where it has said nothing, it has passed nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Positions(Vec<(KeyRange, u64)>);

impl Guards {
    pub(crate) fn have_passed(&self, key: &EffectiveKey, lsn: u64) -> bool {
        self.positions.values().all(|it| it.have_passed(key, lsn))
    }

    pub(crate) fn get(&self, name: &str) -> Positions {
        self.positions.get(name).cloned().unwrap_or_default()
    }

    pub(crate) fn set(&mut self, name: &str, positions: Positions) {
        self.positions.insert(name.to_owned(), positions);
    }

    pub(crate) fn remove(&mut self, name: &str) {
        self.positions.remove(name);
    }

    pub(crate) fn names(&self) -> Vec<String> {
        self.positions.keys().cloned().collect()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&String, &Positions)> {
        self.positions.iter()
    }
}

impl Positions {
    pub(crate) fn have_passed(&self, key: &EffectiveKey, lsn: u64) -> bool {
        self.0.iter().any(|(keys, passed)| lsn <= *passed && keys.contains(key))
    }

    /// The earliest place the reader may have to go on from within `keys`.
    pub(crate) fn least_in(&self, keys: &KeyRange) -> u64 {
        let mut inside: Vec<_> = self.0.iter().filter(|it| it.0.overlaps(keys)).collect();
        inside.sort_by(|left, right| left.0.min().trimmed().cmp(right.0.min().trimmed()));
        let mut covered = keys.min();
        for (known, _) in &inside {
            if known.min().trimmed() <= covered.trimmed()
                && covered.trimmed() < known.max().trimmed()
            {
                covered = known.max();
            }
        }
        if covered.trimmed() < keys.max().trimmed() {
            return 0;
        }
        inside.iter().map(|it| it.1).min().unwrap_or(0)
    }

    /// Notes that the reader has passed `lsn` in `keys`. A position never goes back.
    pub(crate) fn pass(&mut self, keys: &KeyRange, lsn: u64) {
        if self.0.iter().any(|(known, passed)| lsn <= *passed && known.covers(keys)) {
            return;
        }
        // What lies within `keys` and is not further is said by the new entry; the rest stays.
        self.0.retain(|(known, passed)| !(keys.covers(known) && *passed <= lsn));
        self.0.push((keys.clone(), lsn));
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(text: &str) -> KeyRange {
        let (min, max) = text.split_once('-').unwrap();
        KeyRange::new(min.parse().unwrap(), max.parse().unwrap()).unwrap()
    }

    /// `"00-20:5 20-FF:7"` are two reports, in this order.
    #[track_caller]
    fn check(reports: &str, key: &str, passed: u64) {
        let mut positions = Positions::default();
        for report in reports.split_whitespace() {
            let (range, lsn) = report.split_once(':').unwrap();
            positions.pass(&keys(range), lsn.parse().unwrap());
        }
        let key: EffectiveKey = key.parse().unwrap();
        let found = (0..100).rev().find(|lsn| positions.have_passed(&key, *lsn));
        assert_eq!(found.unwrap_or(0), passed, "{reports}");
    }

    #[test]
    fn a_report_counts_for_its_keys() {
        check("00-20:5 20-FF:7", "10", 5);
        check("00-20:5 20-FF:7", "30", 7);
        check("00-20:5", "30", 0);
    }

    #[test]
    fn a_position_never_goes_back() {
        check("00-20:5 00-20:3", "10", 5);
        check("00-FF:5 00-20:9 00-FF:7", "10", 9);
        check("00-FF:5 00-20:9 00-FF:7", "30", 7);
    }

    #[test]
    fn old_reports_are_forgotten() {
        let mut positions = Positions::default();
        for lsn in 1..100 {
            positions.pass(&keys("00-20"), lsn);
            positions.pass(&keys("20-FF"), lsn);
        }
        assert_eq!(positions.len(), 2);
        positions.pass(&keys("00-FF"), 200);
        assert_eq!(positions.len(), 1);
    }
}
