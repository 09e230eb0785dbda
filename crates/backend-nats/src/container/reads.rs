//! What a batch is bound to read and write, counted while its items are still being looked at.
//!
//! A batch may name a hundred items of 2 MiB. Its steps are decided when all that they rest on is
//! known, so without this all of those would be held only to say that they are too much.

use std::collections::BTreeMap;

use millstream_core::{
    Action, BATCH_RESULT_BYTES_MAX, CheckedBatch, CheckedOperation, IfNoneMatch, ItemId, TimeToLive,
};

use crate::plan::Known;

/// Counts the operations of a batch in their order, as far as their items are known.
pub(super) struct Reads<'a> {
    batch: &'a CheckedBatch,
    range: u32,
    default_ttl: Option<TimeToLive>,
    counted: usize,
    bytes: usize,
    /// Items that an operation has touched, with the size that it gives them for sure.
    touched: BTreeMap<&'a ItemId, usize>,
}

impl<'a> Reads<'a> {
    pub(super) fn new(
        batch: &'a CheckedBatch,
        range: u32,
        default_ttl: Option<TimeToLive>,
    ) -> Self {
        Self { batch, range, default_ttl, counted: 0, bytes: 0, touched: BTreeMap::new() }
    }

    /// Whether the first operations, whose items are in `items`, are more than a batch may read and
    /// write: then it is refused at one of them, and nobody asks for the items of the others.
    ///
    /// Never more is counted than `CheckedBatch::resolve` does, which finds the operation and the
    /// words to refuse it with.
    pub(super) fn are_too_many(&mut self, items: &BTreeMap<ItemId, Known>) -> bool {
        while self.bytes <= BATCH_RESULT_BYTES_MAX {
            let Some(operation) = self.batch.operations.get(self.counted) else { return false };
            let Some(known) = items.get(&operation.id) else { return false };
            self.counted += 1;
            self.count(operation, known);
        }
        true
    }

    fn count(&mut self, operation: &'a CheckedOperation, known: &Known) {
        let id = &operation.id;
        match &operation.action {
            Action::Create(body) | Action::Upsert(body) | Action::Replace(body) => {
                self.bytes += body.bytes.len();
                self.touched.insert(id, body.bytes.len());
            }
            // What a patch comes to is not known yet, and what is deleted cannot be read.
            Action::Patch(_) | Action::Delete => drop(self.touched.insert(id, 0)),
            // It gives nothing back, whatever is there.
            Action::Read if operation.if_none_match == Some(IfNoneMatch::Any) => (),
            Action::Read => {
                let touched = self.touched.get(id).copied();
                self.bytes += touched.unwrap_or_else(|| self.returned(operation, known));
            }
        }
    }

    /// The bytes that a read gives back; none if its reader has that version already.
    fn returned(&self, operation: &CheckedOperation, known: &Known) -> usize {
        let Some(version) = &known.version else { return 0 };
        let (key, id) = (&self.batch.partition_key, &operation.id);
        let is_known = match &operation.if_none_match {
            None => false,
            Some(IfNoneMatch::Any) => true,
            Some(IfNoneMatch::Etag(etag)) => {
                let item = version.item(self.range, known.sequence, key, id, self.default_ttl);
                item.etag == *etag
            }
        };
        if is_known { 0 } else { version.body.len() }
    }
}

#[cfg(test)]
mod tests {
    use millstream_core::{Batch, ContainerSettings, Operation, PartitionKeyDefinition};

    use super::*;
    use crate::record::{Stamp, Version};

    const MEBIBYTE: usize = 1024 * 1024;

    fn id(id: &str) -> ItemId {
        ItemId::new(id).unwrap()
    }

    /// A stored item of 1 MiB.
    fn large() -> Known {
        let stamp = Stamp { lsn: None, step: 0, at: 1, ttl: None, sequence: None };
        let version = Version { stamp, body: vec![b' '; MEBIBYTE].into() };
        Known { sequence: 9, version: Some(version), is_over: false }
    }

    fn body(id: &str, size: usize) -> String {
        let start = format!(r#"{{"id":"{id}","pk":"k","text":""#);
        format!("{start}{}\"}}", "x".repeat(size - start.len() - 2))
    }

    /// How many items must be looked at, one after the other, until it is known to be too much.
    #[track_caller]
    fn check(operations: Vec<Operation>, expected: Option<usize>) {
        let settings = ContainerSettings::new(PartitionKeyDefinition::hash("/pk").unwrap());
        let batch = Batch { partition_key: "k".into(), operations }.check(&settings).unwrap();
        let mut reads = Reads::new(&batch, 0, None);
        let mut items = BTreeMap::new();
        let mut looks = batch.operations.iter().map(|it| it.id.clone()).enumerate();
        let found = loop {
            if reads.are_too_many(&items) {
                break Some(items.len());
            }
            let Some((_, id)) = looks.next() else { break None };
            items.insert(id, large());
        };
        assert_eq!(found, expected);
    }

    fn reads(count: usize) -> Vec<Operation> {
        (0..count).map(|it| Operation::read(id(&it.to_string()))).collect()
    }

    #[test]
    fn nothing_is_looked_at_beyond_the_limit() {
        check(reads(4), None);
        check(reads(5), Some(5));
        check(reads(100), Some(5));
        let again = (0..5).map(|_| Operation::read(id("1"))).collect();
        check(again, Some(1));
    }

    #[test]
    fn what_is_written_counts_and_so_does_reading_it_again() {
        let write = || Operation::upsert(body("w", 2 * MEBIBYTE));
        check([vec![write()], reads(3)].concat(), Some(4));
        check([vec![write()], reads(2)].concat(), None);
        let again = || Operation::read(id("w"));
        check(vec![write(), again()], None);
        check(vec![write(), again(), again()], Some(1));
    }

    #[test]
    fn what_may_return_nothing_does_not_count() {
        let known = large().version.unwrap().item(0, 9, &"k".into(), &id("1"), None).etag;
        let reading = |condition: IfNoneMatch| -> Vec<Operation> {
            let read = |_| Operation::read(id("1")).if_none_match(condition.clone());
            (0..9).map(read).collect()
        };
        check(reading(IfNoneMatch::Any), None);
        let write = Operation::upsert(body("1", 2 * MEBIBYTE));
        check([vec![write], reading(IfNoneMatch::Any)].concat(), None);
        check(reading(IfNoneMatch::Etag(known)), None);
        check(reading(IfNoneMatch::Etag(millstream_core::Etag::new("other"))), Some(1));
        let deletes = (0..9).map(|it| Operation::delete(id(&it.to_string()))).collect();
        check(deletes, None);
    }
}
