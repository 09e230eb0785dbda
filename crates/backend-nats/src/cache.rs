//! What this process knows about items it has written or read lately.
//!
//! It may be out of date at any time. That is harmless: a commit that rests on it is refused by the
//! server if anything has changed, and a refusal is only told to the caller after a fresh look.

use std::collections::BTreeMap;

use crate::plan::{Counter, Known};

/// Bytes of one generation. What is used stays; what was not used for a generation goes.
const GENERATION_BYTES_MAX: usize = 8 * 1024 * 1024;
/// What an entry costs besides its body.
const ENTRY_BYTES: usize = 400;

#[derive(Clone, Debug)]
enum Entry {
    Item(Known),
    Counter(Counter),
}

impl Entry {
    fn bytes(&self) -> usize {
        match self {
            Self::Item(known) => ENTRY_BYTES + known.version.as_ref().map_or(0, |it| it.body.len()),
            Self::Counter(_) => ENTRY_BYTES,
        }
    }
}

/// Items and counters by subject.
#[derive(Debug, Default)]
pub(crate) struct Cache {
    young: BTreeMap<String, Entry>,
    old: BTreeMap<String, Entry>,
    young_bytes: usize,
}

impl Cache {
    pub(crate) fn item(&mut self, subject: &str) -> Option<Known> {
        match self.find(subject)? {
            Entry::Item(known) => Some(known),
            Entry::Counter(_) => None,
        }
    }

    pub(crate) fn counter(&mut self, subject: &str) -> Option<Counter> {
        match self.find(subject)? {
            Entry::Counter(counter) => Some(counter),
            Entry::Item(_) => None,
        }
    }

    pub(crate) fn put_item(&mut self, subject: String, known: Known) {
        self.put(subject, Entry::Item(known));
    }

    pub(crate) fn put_counter(&mut self, subject: String, counter: Counter) {
        self.put(subject, Entry::Counter(counter));
    }

    pub(crate) fn forget(&mut self, subject: &str) {
        self.old.remove(subject);
        if let Some(entry) = self.young.remove(subject) {
            self.young_bytes = self.young_bytes.saturating_sub(entry.bytes());
        }
    }

    fn find(&mut self, subject: &str) -> Option<Entry> {
        if let Some(entry) = self.young.get(subject) {
            return Some(entry.clone());
        }
        let entry = self.old.remove(subject)?;
        self.put(subject.to_owned(), entry.clone());
        Some(entry)
    }

    fn put(&mut self, subject: String, entry: Entry) {
        self.forget(&subject);
        self.young_bytes += entry.bytes();
        self.young.insert(subject, entry);
        if GENERATION_BYTES_MAX < self.young_bytes {
            self.old = std::mem::take(&mut self.young);
            self.young_bytes = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_stays_within_its_bounds_and_keeps_what_is_used() {
        let mut cache = Cache::default();
        for number in 0..100_000 {
            cache.put_counter(format!("s{number}"), Counter { sequence: number, number });
            assert!(cache.counter("s0").is_some(), "what is used is kept");
        }
        let count = cache.young.len() + cache.old.len();
        assert!(count * ENTRY_BYTES <= 2 * (GENERATION_BYTES_MAX + ENTRY_BYTES), "{count}");
        assert!(cache.counter("s1").is_none(), "what was not used for long is gone");
        cache.forget("s0");
        assert!(cache.counter("s0").is_none());
    }
}
