//! Which parts of a stream hold something that expires, so that a round need not read all of it.

use std::collections::BTreeMap;

use millstream_core::{TimeToLive, Timestamp};

/// Sequences in a segment.
const SEGMENT: u64 = 1024;

/// When the first item of each segment expires. Kept in memory: a process that starts reads the
/// stream once.
#[derive(Debug, Default)]
pub(crate) struct Sweep {
    /// What counted for items without a TTL of their own. Another one changes every time.
    default_ttl: Option<TimeToLive>,
    /// Segments in which something expires.
    due: BTreeMap<u64, Timestamp>,
    /// Segments before this one were walked over to their end.
    walked: u64,
}

impl Sweep {
    /// The first sequence of a segment.
    pub(crate) fn first(segment: u64) -> u64 {
        (segment * SEGMENT).max(1)
    }

    /// The segments to walk over now.
    pub(crate) fn due(
        &mut self,
        default_ttl: Option<TimeToLive>,
        now: Timestamp,
        newest: u64,
    ) -> Vec<u64> {
        if self.default_ttl != default_ttl {
            *self = Self { default_ttl, ..Self::default() };
        }
        let old = self.due.iter().filter(|(segment, at)| **segment < self.walked && **at <= now);
        let mut segments: Vec<u64> = old.map(|(segment, _)| *segment).collect();
        if 0 < newest {
            segments.extend(self.walked..=newest / SEGMENT);
        }
        segments
    }

    /// Notes when something in a segment is due next. One that may still grow is walked over again.
    pub(crate) fn swept(&mut self, segment: u64, newest: u64, next: Option<Timestamp>) {
        match next {
            Some(at) => self.due.insert(segment, at),
            None => self.due.remove(&segment),
        };
        if segment == self.walked && segment < newest / SEGMENT {
            self.walked = segment + 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_due_or_new_is_walked_over() {
        let at = Timestamp::from_millis;
        let ttl = Some(TimeToLive::Never);
        let mut sweep = Sweep::default();
        assert!(sweep.due(ttl, at(0), 0).is_empty(), "an empty stream");
        let newest = 2 * SEGMENT + 5;
        assert_eq!(sweep.due(ttl, at(0), newest), [0, 1, 2], "all of it the first time");
        sweep.swept(0, newest, Some(at(50)));
        sweep.swept(1, newest, None);
        sweep.swept(2, newest, Some(at(70)));
        assert_eq!(sweep.due(ttl, at(10), newest), [2], "the last one may have grown");
        assert_eq!(sweep.due(ttl, at(50), newest), [0, 2]);
        sweep.swept(0, newest, None);
        assert_eq!(sweep.due(ttl, at(60), newest), [2]);
        assert_eq!(sweep.due(None, at(60), newest), [0, 1, 2], "another default changes all");
    }
}
