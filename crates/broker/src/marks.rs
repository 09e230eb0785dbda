//! What one queue or subscription has done with the messages of one segment.

use std::collections::{BTreeMap, BTreeSet};

use millstream_core::Result;

use crate::codec::{Reader, corrupt, put_bytes, put_count, put_number};

/// Longest reason of a dead letter that is kept; the rest is cut off.
pub const DEAD_LETTER_REASON_BYTES_MAX: usize = 128;
/// Longest description of a dead letter that is kept; the rest is cut off. A thousand of them must
/// fit into one document.
pub const DEAD_LETTER_DESCRIPTION_BYTES_MAX: usize = 512;

const VERSION: u8 = 1;

/// Why a message is a dead letter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DeadLetter {
    pub(crate) reason: Box<str>,
    pub(crate) description: Box<str>,
}

impl DeadLetter {
    pub(crate) fn new(reason: &str, description: &str) -> Self {
        Self {
            reason: cut(reason, DEAD_LETTER_REASON_BYTES_MAX).into(),
            description: cut(description, DEAD_LETTER_DESCRIPTION_BYTES_MAX).into(),
        }
    }
}

/// The state of the messages of a segment that is not just "waiting for the first time".
///
/// Messages are named by their place in the segment. One that is done has no other mark.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Marks {
    done: Vec<u8>,
    failures: BTreeMap<u16, u32>,
    deferred: BTreeSet<u16>,
    dead: BTreeMap<u16, DeadLetter>,
    /// Dead letters that were sent back; they do not expire any more.
    revived: BTreeSet<u16>,
    /// Whether there is a document of them. Not part of it.
    pub(crate) is_stored: bool,
}

impl Marks {
    pub(crate) fn is_done(&self, index: u16) -> bool {
        let byte = self.done.get(usize::from(index / 8));
        byte.is_some_and(|byte| byte & (1 << (index % 8)) != 0)
    }

    /// Ends a message; nothing else is known of it then.
    pub(crate) fn finish(&mut self, index: u16) {
        let byte = usize::from(index / 8);
        if self.done.len() <= byte {
            self.done.resize(byte + 1, 0);
        }
        self.done[byte] |= 1 << (index % 8);
        self.failures.remove(&index);
        self.deferred.remove(&index);
        self.dead.remove(&index);
        self.revived.remove(&index);
    }

    /// Failed deliveries so far.
    pub(crate) fn failures(&self, index: u16) -> u32 {
        self.failures.get(&index).copied().unwrap_or(0)
    }

    /// Counts a failed delivery and returns how many there are now.
    pub(crate) fn fail(&mut self, index: u16) -> u32 {
        let failures = self.failures.entry(index).or_default();
        *failures = failures.saturating_add(1);
        *failures
    }

    pub(crate) fn is_deferred(&self, index: u16) -> bool {
        self.deferred.contains(&index)
    }

    pub(crate) fn deferred_count(&self) -> usize {
        self.deferred.len()
    }

    pub(crate) fn defer(&mut self, index: u16) {
        self.deferred.insert(index);
    }

    pub(crate) fn dead_letter(&self, index: u16) -> Option<&DeadLetter> {
        self.dead.get(&index)
    }

    pub(crate) fn bury(&mut self, index: u16, dead_letter: DeadLetter) {
        self.deferred.remove(&index);
        self.dead.insert(index, dead_letter);
    }

    pub(crate) fn is_revived(&self, index: u16) -> bool {
        self.revived.contains(&index)
    }

    /// Makes a dead letter a message again, as if it had never been delivered.
    pub(crate) fn revive(&mut self, index: u16) {
        self.dead.remove(&index);
        self.failures.remove(&index);
        self.revived.insert(index);
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = vec![VERSION];
        put_bytes(&mut out, &self.done);
        put_count(&mut out, self.failures.len());
        for (index, failures) in &self.failures {
            put_number(&mut out, u64::from(*index));
            put_number(&mut out, u64::from(*failures));
        }
        put_indexes(&mut out, &self.deferred);
        put_count(&mut out, self.dead.len());
        for (index, dead) in &self.dead {
            put_number(&mut out, u64::from(*index));
            put_bytes(&mut out, dead.reason.as_bytes());
            put_bytes(&mut out, dead.description.as_bytes());
        }
        put_indexes(&mut out, &self.revived);
        out
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self> {
        Self::read(bytes).ok_or_else(|| corrupt("read the settlements of stored messages"))
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader::new(bytes);
        if reader.byte()? != VERSION {
            return None;
        }
        let done = reader.bytes()?.to_vec();
        let mut marks = Self { done, is_stored: true, ..Self::default() };
        for _ in 0..reader.count()? {
            let index = index(&mut reader)?;
            marks.failures.insert(index, u32::try_from(reader.number()?).ok()?);
        }
        marks.deferred = indexes(&mut reader)?;
        for _ in 0..reader.count()? {
            let index = index(&mut reader)?;
            let (reason, description) = (reader.text()?.into(), reader.text()?.into());
            marks.dead.insert(index, DeadLetter { reason, description });
        }
        marks.revived = indexes(&mut reader)?;
        reader.is_at_end().then_some(marks)
    }
}

fn put_indexes(out: &mut Vec<u8>, indexes: &BTreeSet<u16>) {
    put_count(out, indexes.len());
    for index in indexes {
        put_number(out, u64::from(*index));
    }
}

fn index(reader: &mut Reader<'_>) -> Option<u16> {
    u16::try_from(reader.number()?).ok()
}

fn indexes(reader: &mut Reader<'_>) -> Option<BTreeSet<u16>> {
    (0..reader.count()?).map(|_| index(reader)).collect()
}

/// The beginning of a text that has at most so many bytes.
fn cut(text: &str, bytes_max: usize) -> &str {
    let mut end = bytes_max.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_come_back_as_they_were() {
        let mut marks = Marks { is_stored: true, ..Marks::default() };
        marks.finish(0);
        marks.finish(999);
        marks.fail(3);
        marks.fail(3);
        marks.defer(4);
        marks.bury(5, DeadLetter::new("reason", "description"));
        marks.bury(6, DeadLetter::new("", ""));
        marks.revive(6);
        assert_eq!(Marks::decode(&marks.encode()).unwrap(), marks);
        assert!(marks.is_done(999) && !marks.is_done(998) && !marks.is_done(2000));
        assert_eq!(marks.failures(3), 2);
    }

    #[test]
    fn what_is_done_has_no_other_mark() {
        let mut marks = Marks::default();
        marks.fail(1);
        marks.defer(1);
        marks.bury(2, DeadLetter::new("r", "d"));
        marks.finish(1);
        marks.finish(2);
        let mut done = Marks::default();
        done.finish(1);
        done.finish(2);
        assert_eq!(marks, done);
    }

    #[test]
    fn long_reasons_are_cut_between_characters() {
        let dead = DeadLetter::new(&"ä".repeat(100), &"x".repeat(1000));
        assert_eq!(dead.reason.len(), 128);
        assert_eq!(DeadLetter::new(&format!("x{}", "ä".repeat(100)), "").reason.len(), 127);
        assert_eq!(dead.description.len(), 512);
    }

    #[test]
    fn other_bytes_are_refused() {
        assert!(Marks::decode(&[]).is_err());
        assert!(Marks::decode(&[2, 0, 0, 0, 0, 0]).is_err());
        assert!(Marks::decode(&[1, 0, 0, 0, 0, 0, 0]).is_err());
        assert!(Marks::decode(&[1, 0, 0, 0, 0, 0]).is_ok());
    }
}
