//! Puts the entries of a commit together.

use bytes::Bytes;
use fjall::Slice;
use millstream_core::{
    ChangeKind, Claim, Error, ErrorKind, ItemId, Lsn, NewBody, OperationResult, PartitionKey,
    Result, Step, Timestamp,
};

use crate::buffer::Entry;
use crate::commit::claims::Claimed;
use crate::commit::{Current, Request, Slot, forget_version, read_result};
use crate::keys::{self, Place};
use crate::records::{HistoryRecord, ItemRecord, RangeRecord, Stamp, encode_feed};
use crate::state::{Latest, Numbering, RangeState};
use crate::tables::Table;

/// A commit being put together.
pub(super) struct Commit<'a> {
    pub(super) request: &'a Request<'a>,
    pub(super) range: &'a RangeState,
    pub(super) numbering: &'a Numbering,
    pub(super) current: Current<'a>,
    now: Timestamp,
    pub(super) lsn: u64,
    next_index: u16,
    pub(super) keeps_history: bool,
    sequence: Option<u64>,
    /// What has become of each item so far.
    pub(super) after: Vec<Option<After>>,
    pub(super) entries: Vec<Entry>,
    /// Values are put together here, so that each is allocated once.
    scratch: Vec<u8>,
}

#[derive(Clone)]
pub(super) enum After {
    Written(Stamp, Bytes, Vec<Claim>),
    Removed,
}

/// What a commit comes down to.
pub(super) struct Built {
    pub(super) entries: Vec<Entry>,
    pub(super) record: RangeRecord,
    pub(super) results: Vec<OperationResult>,
    pub(super) latest: Vec<(Slice, Latest)>,
    pub(super) sequence: Option<u64>,
    pub(super) claimed: Vec<Claimed>,
}

impl<'a> Commit<'a> {
    pub(super) fn new(
        request: &'a Request<'a>,
        range: &'a RangeState,
        numbering: &'a Numbering,
        current: Current<'a>,
        now: Timestamp,
    ) -> Self {
        let count = current.slots.len();
        Self {
            request,
            range,
            numbering,
            current,
            now,
            lsn: Lsn::new(numbering.record.newest).next().as_u64(),
            next_index: 0,
            keeps_history: !request.info.settings.all_versions_retention.is_zero(),
            sequence: None,
            after: vec![None; count],
            entries: Vec::with_capacity(count * 3 + 1),
            scratch: Vec::with_capacity(1024),
        }
    }

    pub(super) fn build(mut self, steps: Vec<Step>) -> Result<Built> {
        let rested = self.lay_to_rest(&steps)?;
        let mut results: Vec<OperationResult> = Vec::with_capacity(steps.len());
        for step in steps {
            let result = match step {
                Step::Write { id, existed, body } => self.write(id, existed, body)?,
                Step::Delete { id } => self.delete(&id)?,
                Step::ReadStep(index) => {
                    let item = results[index].item().expect("that step wrote an item");
                    OperationResult::Read(item.clone())
                }
                step @ (Step::Read(_) | Step::NotModified) => read_result(step),
            };
            results.push(result);
        }
        let mut record =
            RangeRecord { newest: self.lsn, committed_at: self.now, ..self.numbering.record };
        record.live_bytes = record.live_bytes.saturating_sub(rested.live_bytes);
        let claimed = self.claim(rested.claimed)?;
        let mut latest = rested.latest;
        latest.reserve(self.after.len());
        self.finish(&mut record, &mut latest);
        if let Some(number) = self.sequence {
            let key = self.request.sequence_key();
            self.entries.push(Entry::put(Table::Sequences, key, number.to_le_bytes()));
        }
        let Self { entries, sequence, .. } = self;
        Ok(Built { entries, record, results, latest, sequence, claimed })
    }

    fn write(&mut self, id: ItemId, existed: bool, body: NewBody) -> Result<OperationResult> {
        let slot = self.current.slot(&id);
        let previous = self.previous(slot, &id)?;
        let sequence = if !body.is_event {
            None
        } else if let Some(number) =
            previous.as_ref().filter(|_| existed).and_then(|it| it.0.sequence)
        {
            Some(number)
        } else {
            Some(self.next_sequence()?)
        };
        let stamp = Stamp {
            lsn: self.lsn,
            origin: self.range.segment,
            index: self.take_index(),
            written_at: self.now,
            ttl: body.ttl,
            sequence,
        };
        if self.keeps_history {
            let kind = if existed { ChangeKind::Replaced } else { ChangeKind::Created };
            let previous = previous.filter(|_| existed);
            self.remember(kind, stamp.index, &id, Some((stamp, &body.bytes)), previous.as_ref());
        }
        self.after[slot] = Some(After::Written(stamp, body.bytes.clone(), body.claims));
        let key = self.request.batch.partition_key.clone();
        let item = stamp.item(self.request.info.settings.default_ttl, key, id, body.bytes);
        Ok(if existed { OperationResult::Replaced(item) } else { OperationResult::Created(item) })
    }

    fn delete(&mut self, id: &ItemId) -> Result<OperationResult> {
        let slot = self.current.slot(id);
        let previous = self.previous(slot, id)?;
        if self.keeps_history {
            let index = self.take_index();
            self.remember(ChangeKind::Deleted, index, id, None, previous.as_ref());
        }
        self.after[slot] = Some(After::Removed);
        Ok(OperationResult::Deleted)
    }

    /// The version right before this step, with its body only where the history wants it. An
    /// expired one is laid to rest first.
    fn previous(&mut self, slot: usize, id: &ItemId) -> Result<Option<(Stamp, Bytes)>> {
        match &self.after[slot] {
            Some(After::Removed) => return Ok(None),
            Some(After::Written(stamp, body, _)) => return Ok(Some((*stamp, body.clone()))),
            None => {}
        }
        let Slot { before, is_expired, .. } = self.current.slots[slot].clone();
        let Some(before) = before else { return Ok(None) };
        let stamp = before.0.stamp;
        if !self.keeps_history {
            return Ok((!is_expired).then(|| (stamp, Bytes::new())));
        }
        let version = (stamp, self.current.body(&before)?);
        if is_expired {
            let index = self.take_index();
            self.remember(ChangeKind::Expired, index, id, None, Some(&version));
            return Ok(None);
        }
        Ok(Some(version))
    }

    pub(super) fn remember(
        &mut self,
        kind: ChangeKind,
        index: u16,
        id: &ItemId,
        current: Option<(Stamp, &Bytes)>,
        previous: Option<&(Stamp, Bytes)>,
    ) {
        let record = HistoryRecord {
            kind,
            committed_at: self.now,
            effective: self.request.effective.as_bytes(),
            partition_key: self.request.batch.partition_key.clone(),
            id: id.clone(),
            current: current.map(|(stamp, body)| (stamp, &body[..])),
            previous: previous.map(|(stamp, body)| (*stamp, &body[..])),
        };
        let segment = self.range.segment;
        let place = Place { segment, lsn: self.lsn, origin: segment, index };
        self.entries.push(Entry::put(Table::History, place.key(), record.encode()));
    }

    fn next_sequence(&mut self) -> Result<u64> {
        let last =
            match self.sequence.or_else(|| self.numbering.sequence(&self.request.sequence_key())) {
                Some(number) => number,
                None => self.stored_sequence()?,
            };
        self.sequence = Some(last + 1);
        Ok(last + 1)
    }

    fn stored_sequence(&self) -> Result<u64> {
        let stored = self.request.engine.get(Table::Sequences, self.request.sequence_key())?;
        match stored {
            None => Ok(0),
            Some(bytes) => {
                let number = bytes[..].try_into().map(u64::from_le_bytes);
                number.map_err(|_| Error::new(ErrorKind::Corrupt, "read an event number"))
            }
        }
    }

    /// Turns what has become of each item into entries: the version before leaves the feed, the
    /// last one enters it.
    fn finish(&mut self, record: &mut RangeRecord, latest: &mut Vec<(Slice, Latest)>) {
        for (slot, after) in std::mem::take(&mut self.after).into_iter().enumerate() {
            let Some(after) = after else { continue };
            let key = &self.request.keys[slot];
            if let Some((before, _)) = &self.current.slots[slot].before {
                forget_version(before, key, &self.request.info.settings, &mut self.entries);
                // What still stands where a predecessor wrote it has not been counted yet.
                if before.segment == self.range.segment {
                    record.live_bytes = record.live_bytes.saturating_sub(before.body_bytes.into());
                }
            }
            let version = match after {
                After::Removed => {
                    self.entries.push(Entry::remove(Table::Items, key.clone()));
                    None
                }
                After::Written(stamp, body, _) => {
                    let written = self.enter(slot, stamp, &body);
                    record.live_bytes += u64::from(written.body_bytes);
                    Some((written, body))
                }
            };
            latest.push((Slice::clone(key), Latest { lsn: self.lsn, version }));
        }
    }

    fn enter(&mut self, slot: usize, stamp: Stamp, body: &Bytes) -> ItemRecord {
        let request = self.request;
        let key = &request.keys[slot];
        let record = ItemRecord {
            segment: self.range.segment,
            stamp,
            body_bytes: u32::try_from(body.len()).expect("an item has at most 2 MiB"),
        };
        let partition_key: &PartitionKey = &request.batch.partition_key;
        let (id, scratch) = (request.id(slot), &mut self.scratch);
        encode_feed(scratch, &stamp, &request.effective, partition_key, id, body);
        self.entries.push(Entry::put(Table::Feed, record.place().key(), &scratch[..]));
        record.encode(scratch);
        self.entries.push(Entry::put(Table::Items, key.clone(), &scratch[..]));
        if let Some(at) = stamp.expiry(request.info.settings.default_ttl) {
            self.entries.push(Entry::put(Table::Expiry, keys::expiry(at, key), []));
        }
        record
    }

    pub(super) fn take_index(&mut self) -> u16 {
        let index = self.next_index;
        self.next_index += 1;
        index
    }
}
