use std::collections::BTreeMap;

use bytes::Bytes;

/// Bytes of segments, the longest unused dropped first.
#[derive(Debug)]
pub(crate) struct Cache {
    bytes_max: usize,
    bytes: usize,
    /// By entity and first number.
    segments: BTreeMap<(u64, u64), (u64, Bytes)>,
    by_use: BTreeMap<u64, (u64, u64)>,
    uses: u64,
}

impl Cache {
    pub(crate) fn new(bytes_max: usize) -> Self {
        let (segments, by_use) = (BTreeMap::new(), BTreeMap::new());
        Self { bytes_max, bytes: 0, segments, by_use, uses: 0 }
    }

    pub(crate) fn get(&mut self, key: (u64, u64)) -> Option<Bytes> {
        let (used, bytes) = self.segments.get_mut(&key)?;
        self.uses += 1;
        self.by_use.remove(used);
        self.by_use.insert(self.uses, key);
        *used = self.uses;
        Some(bytes.clone())
    }

    pub(crate) fn put(&mut self, key: (u64, u64), bytes: Bytes) {
        self.remove(key);
        self.uses += 1;
        self.bytes += bytes.len();
        self.by_use.insert(self.uses, key);
        self.segments.insert(key, (self.uses, bytes));
        while self.bytes_max < self.bytes {
            let Some((_, oldest)) = self.by_use.first_key_value() else { return };
            self.remove(*oldest);
        }
    }

    pub(crate) fn remove(&mut self, key: (u64, u64)) {
        if let Some((used, bytes)) = self.segments.remove(&key) {
            self.by_use.remove(&used);
            self.bytes -= bytes.len();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_unused_goes_first() {
        let mut cache = Cache::new(10);
        cache.put((1, 1), Bytes::from_static(b"aaaa"));
        cache.put((1, 2), Bytes::from_static(b"bbbb"));
        assert!(cache.get((1, 1)).is_some());
        cache.put((1, 3), Bytes::from_static(b"cccc"));
        assert!(cache.get((1, 2)).is_none());
        assert!(cache.get((1, 1)).is_some() && cache.get((1, 3)).is_some());
        cache.put((1, 4), Bytes::from(vec![0; 11]));
        assert_eq!((cache.bytes, cache.segments.len(), cache.by_use.len()), (0, 0, 0));
    }
}
