use crate::memory::state::ContainerState;
use crate::{Continuation, EffectiveKey, Error, KeyRange, Lsn, Result};

/// How far one reader has come, by keys: so it survives splits and merges.
#[derive(Debug, Default)]
pub(super) struct Guard {
    passed: Vec<(KeyRange, Lsn)>,
}

impl Guard {
    /// Longest name of a reader.
    const NAME_BYTES_MAX: usize = 255;

    /// Where a reader has said nothing, it has passed nothing.
    fn passed(&self, key: &EffectiveKey) -> Lsn {
        let positions = self.passed.iter().filter(|(keys, _)| keys.contains(key));
        positions.map(|(_, lsn)| *lsn).max().unwrap_or(Lsn::ZERO)
    }

    /// A position never goes back: the largest counts. What the new one covers need not be kept.
    fn pass(&mut self, keys: &KeyRange, lsn: Lsn) {
        self.passed.retain(|(old, passed)| !keys.covers(old) || lsn < *passed);
        self.passed.push((keys.clone(), lsn));
    }
}

impl ContainerState {
    pub(super) fn hold(
        &mut self,
        name: &str,
        keys: &KeyRange,
        passed: &Continuation,
    ) -> Result<()> {
        if name.is_empty() || Guard::NAME_BYTES_MAX < name.len() {
            let reason = "the name of the reader must have 1 to 255 bytes";
            return Err(Error::invalid("hold events", reason));
        }
        let lsn = self.cursor(passed)?.after;
        self.guards.entry(name.to_owned()).or_default().pass(keys, lsn);
        Ok(())
    }

    /// Whether some reader has not passed the commit `lsn` of this key (15).
    pub(super) fn is_held(&self, key: &EffectiveKey, lsn: Lsn) -> bool {
        self.guards.values().any(|guard| guard.passed(key) < lsn)
    }
}
