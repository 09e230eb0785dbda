use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use millstream_core::Timestamp;
use rustc_hash::FxHashMap;

/// The message ids of the last while, as hashes of 128 bits: 40 to 60 bytes of memory each.
#[derive(Debug, Default)]
pub(crate) struct Duplicates {
    window: Option<Duration>,
    /// Until when each id counts.
    known: FxHashMap<u128, Timestamp>,
    /// The ids by the time they came, oldest first.
    arrived: VecDeque<(Timestamp, Arc<[u128]>)>,
    /// Documents that keep ids beyond their segments, and the time of the newest id in each.
    documents: VecDeque<(Timestamp, String)>,
    /// A planted bug: what is stored is not looked at.
    pub(crate) forgets: bool,
}

impl Duplicates {
    pub(crate) fn new(window: Option<Duration>) -> Self {
        Self { window, ..Self::default() }
    }

    /// Changes the window for ids that come from now on.
    pub(crate) fn set_window(&mut self, window: Option<Duration>) {
        self.window = window;
        if window.is_none() {
            self.known.clear();
            self.arrived.clear();
        }
    }

    /// Whether this id came within the window before `now`. If not, it has come now; what came is
    /// told again with [`Self::arrived`] when all of a segment is known.
    pub(crate) fn is_repeated(&mut self, hash: u128, now: Timestamp) -> bool {
        let Some(window) = self.window else { return false };
        let until = self.known.entry(hash).or_insert(Timestamp::EPOCH);
        if now < *until {
            return true;
        }
        *until = now.plus(window);
        false
    }

    /// These ids came together at `at`.
    pub(crate) fn arrived(&mut self, hashes: &Arc<[u128]>, at: Timestamp, now: Timestamp) {
        let Some(window) = self.window else { return };
        if !self.covers(at, now) {
            return;
        }
        for hash in hashes.iter() {
            let until = self.known.entry(*hash).or_insert(Timestamp::EPOCH);
            *until = (*until).max(at.plus(window));
        }
        self.arrived.push_back((at, Arc::clone(hashes)));
    }

    /// These ids came together at `at`, before the broker was opened.
    pub(crate) fn load(&mut self, hashes: &Arc<[u128]>, at: Timestamp, now: Timestamp) {
        if !self.forgets {
            self.arrived(hashes, at, now);
        }
    }

    /// Whether an id that came at `at` still counts.
    pub(crate) fn covers(&self, at: Timestamp, now: Timestamp) -> bool {
        self.window.is_some_and(|window| now < at.plus(window))
    }

    /// Notes a stored document of ids, the newest of which came at `at`.
    pub(crate) fn stored(&mut self, at: Timestamp, id: String) {
        self.documents.push_back((at, id));
    }

    /// Forgets what is too old, and returns up to `documents_max` documents that can go.
    pub(crate) fn forget(&mut self, now: Timestamp, documents_max: usize) -> Vec<String> {
        while let Some((at, _)) = self.arrived.front() {
            if self.covers(*at, now) {
                break;
            }
            let (_, hashes) = self.arrived.pop_front().expect("it was just looked at");
            for hash in hashes.iter() {
                if self.known.get(hash).is_some_and(|until| *until <= now) {
                    self.known.remove(hash);
                }
            }
        }
        let mut gone = Vec::new();
        while gone.len() < documents_max
            && self.documents.front().is_some_and(|(at, _)| !self.covers(*at, now))
        {
            gone.extend(self.documents.pop_front().map(|(_, id)| id));
        }
        gone
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_millis(seconds * 1000)
    }

    #[test]
    fn an_id_counts_for_the_window_and_is_then_forgotten() {
        let mut duplicates = Duplicates::new(Some(Duration::from_secs(10)));
        assert!(!duplicates.is_repeated(1, at(0)));
        duplicates.arrived(&Arc::from([1]), at(0), at(0));
        assert!(duplicates.is_repeated(1, at(9)));
        assert!(!duplicates.is_repeated(2, at(9)));
        assert!(!duplicates.is_repeated(1, at(10)));
        duplicates.arrived(&Arc::from([1]), at(10), at(10));
        assert!(duplicates.forget(at(10), 10).is_empty());
        assert!(duplicates.is_repeated(1, at(19)));
        duplicates.forget(at(30), 10);
        assert!(duplicates.arrived.is_empty());
        assert_eq!(duplicates.known.keys().collect::<Vec<_>>(), [&2]);
    }

    #[test]
    fn documents_go_when_their_newest_id_is_too_old() {
        let mut duplicates = Duplicates::new(Some(Duration::from_secs(10)));
        duplicates.stored(at(0), "one".to_owned());
        duplicates.stored(at(1), "two".to_owned());
        duplicates.stored(at(5), "three".to_owned());
        assert!(duplicates.forget(at(9), 10).is_empty());
        assert_eq!(duplicates.forget(at(12), 1), ["one"]);
        assert_eq!(duplicates.forget(at(12), 9), ["two"]);
        assert_eq!(duplicates.forget(at(15), 9), ["three"]);
    }

    #[test]
    fn without_a_window_nothing_is_a_duplicate() {
        let mut duplicates = Duplicates::new(None);
        assert!(!duplicates.is_repeated(1, at(0)));
        assert!(!duplicates.is_repeated(1, at(0)));
        assert!(duplicates.known.is_empty());
    }
}
