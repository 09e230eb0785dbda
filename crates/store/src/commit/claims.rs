//! Unique keys: who holds which values. An entry for each claim stands beside the event number of
//! its partition and names the item; it comes and goes with the item. One that has expired is
//! removed when another item takes over what it held.

use std::collections::BTreeSet;

use bytes::Bytes;
use fjall::Slice;
use millstream_core::{
    ChangeKind, Claim, ContainerSettings, Error, ErrorKind, ItemId, Result, Step,
};

use crate::buffer::Entry;
use crate::commit::build::{After, Commit};
use crate::commit::{Current, decode_item, forget_version};
use crate::engine::{Engine, overloaded};
use crate::keys;
use crate::records::ItemRecord;
use crate::state::{Latest, Numbering};
use crate::tables::Table;

/// Who holds a claim from now on, by the key of the claim.
pub(crate) type Claimed = (Slice, Option<ItemId>);

/// What is left of items that a commit removes because others take over what they held.
#[derive(Default)]
pub(crate) struct Rested {
    pub(crate) claimed: Vec<Claimed>,
    pub(crate) latest: Vec<(Slice, Latest)>,
    /// Of their bodies in the segment of the range.
    pub(crate) live_bytes: u64,
    bytes: u64,
}

/// The item that a claim was given to last, and the commit, if that was lately. The item may have
/// expired since.
pub(crate) fn claimant(
    engine: &Engine,
    numbering: &Numbering,
    key: &Slice,
) -> Result<(Option<ItemId>, u64)> {
    if let Some((known, lsn)) = numbering.claimant(key) {
        return Ok((known.clone(), *lsn));
    }
    let Some(bytes) = engine.get(Table::Sequences, key.clone())? else { return Ok((None, 0)) };
    let id = str::from_utf8(&bytes).ok().and_then(|it| ItemId::new(it).ok());
    let corrupt = || Error::new(ErrorKind::Corrupt, "read who holds a unique value");
    id.map(|it| (Some(it), 0)).ok_or_else(corrupt)
}

/// The claims that an item with this body still holds.
pub(crate) fn given_up(
    engine: &Engine,
    numbering: &Numbering,
    settings: &ContainerSettings,
    partition: &[u8],
    (id, body): (&ItemId, &[u8]),
) -> Result<Vec<Claimed>> {
    let mut claimed = Vec::new();
    for claim in settings.claims(body)? {
        let key = keys::claim(partition, &claim);
        if claimant(engine, numbering, &key)?.0.as_ref() == Some(id) {
            claimed.push((key, None));
        }
    }
    Ok(claimed)
}

pub(crate) fn entry((key, holder): &Claimed) -> Entry {
    match holder {
        None => Entry::remove(Table::Sequences, key.clone()),
        Some(id) => Entry::put(Table::Sequences, key.clone(), id.as_str()),
    }
}

impl Current<'_> {
    pub(super) fn holder_of(&mut self, claim: &Claim) -> Result<Option<ItemId>> {
        let request = self.request;
        let key = keys::claim(request.partition(), claim);
        let (id, claimed_at) = claimant(request.engine, self.numbering, &key)?;
        let Some(id) = id else { return Ok(None) };
        // Every version of an item claims anew, so this is the commit of the version as well.
        self.rests_on = self.rests_on.max(claimed_at);
        let version = self.version(&request.item_key(&id))?;
        let is_live = version.is_some_and(|(it, _)| !self.is_expired(&it));
        Ok(is_live.then_some(id))
    }

    fn is_expired(&self, record: &ItemRecord) -> bool {
        let (request, stamp) = (self.request, &record.stamp);
        let settings = &request.info.settings;
        request.container.is_expired(settings, stamp, &request.effective, self.now)
    }

    /// Any item of the partition; its body only if it is not visible yet.
    fn version(&self, key: &Slice) -> Result<Option<(ItemRecord, Option<Bytes>)>> {
        if let Some(latest) = self.numbering.latest(key) {
            let version = latest.version.clone();
            return Ok(version.map(|(record, body)| (record, Some(body))));
        }
        let stored = self.request.engine.get(Table::Items, key.clone())?;
        stored.map(|it| Ok((decode_item(&it)?, None))).transpose()
    }
}

impl Commit<'_> {
    /// Removes items that have expired and whose values the steps of the commit claim: a TTL that
    /// is changed or a reader that begins to hold events must not bring them back.
    pub(super) fn lay_to_rest(&mut self, steps: &[Step]) -> Result<Rested> {
        let request = self.request;
        let mut rested = Rested::default();
        if request.info.settings.unique_keys.is_empty() {
            return Ok(rested);
        }
        let (mut touched, mut losers) = (BTreeSet::new(), BTreeSet::new());
        for step in steps {
            match step {
                Step::Delete { id } => drop(touched.insert(id)),
                Step::Write { id, body, .. } => {
                    touched.insert(id);
                    for claim in &body.claims {
                        let key = keys::claim(request.partition(), claim);
                        losers.extend(claimant(request.engine, self.numbering, &key)?.0);
                    }
                }
                Step::Read(_) | Step::ReadStep(_) | Step::NotModified => (),
            }
        }
        losers.retain(|it| !touched.contains(it));
        for id in losers {
            let key = request.item_key(&id);
            let version = self.current.version(&key)?;
            let Some(version) = version.filter(|it| self.current.is_expired(&it.0)) else {
                continue;
            };
            rested.bytes += u64::from(version.0.body_bytes);
            if RESTED_BYTES_MAX < rested.bytes {
                return Err(overloaded("too much has expired that it would take over"));
            }
            rested.claimed.extend(self.given_up(&id, &version)?);
            self.remove_expired(&id, &key, &version)?;
            rested.latest.push((key, Latest { lsn: self.lsn, version: None }));
            if version.0.segment == self.range.segment {
                rested.live_bytes += u64::from(version.0.body_bytes);
            }
        }
        Ok(rested)
    }

    fn remove_expired(
        &mut self,
        id: &ItemId,
        key: &Slice,
        version: &(ItemRecord, Option<Bytes>),
    ) -> Result<()> {
        if self.keeps_history {
            let previous = (version.0.stamp, self.current.body(version)?);
            let index = self.take_index();
            self.remember(ChangeKind::Expired, index, id, None, Some(&previous));
        }
        forget_version(&version.0, key, &self.request.info.settings, &mut self.entries);
        self.entries.push(Entry::remove(Table::Items, key.clone()));
        Ok(())
    }

    /// What the commit does to the unique keys: everything that is given up, then everything that
    /// is claimed.
    pub(super) fn claim(&mut self, rested: Vec<Claimed>) -> Result<Vec<Claimed>> {
        let request = self.request;
        if request.info.settings.unique_keys.is_empty() {
            return Ok(Vec::new());
        }
        let (mut claimed, mut taken) = (rested, Vec::new());
        for (slot, after) in self.after.iter().enumerate() {
            let Some(after) = after else { continue };
            if let Some(before) = &self.current.slots[slot].before {
                claimed.extend(self.given_up(request.id(slot), before)?);
            }
            let After::Written(_, _, claims) = after else { continue };
            let key = |claim| keys::claim(request.partition(), claim);
            taken.extend(claims.iter().map(|it| (key(it), Some(request.id(slot).clone()))));
        }
        claimed.extend(taken);
        self.entries.extend(claimed.iter().map(entry));
        Ok(claimed)
    }

    fn given_up(&self, id: &ItemId, version: &(ItemRecord, Option<Bytes>)) -> Result<Vec<Claimed>> {
        let (request, body) = (self.request, self.current.body(version)?);
        let (engine, settings) = (request.engine, &request.info.settings);
        given_up(engine, self.numbering, settings, request.partition(), (id, &body))
    }
}

/// Bytes of expired items that one commit may remove by the way; purging does the rest.
const RESTED_BYTES_MAX: u64 = 16 * 1024 * 1024;

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use millstream_core::conformance::block_on;
    use millstream_core::{
        Batch, ContainerName, Containers, ManualClock, Operation, PartitionKeyDefinition,
        TimeToLive, Timestamp, UniqueKey,
    };

    use super::*;
    use crate::view::Section;
    use crate::{Store, StoreOptions};

    /// Entries of all claims in the store.
    fn claims(store: &Store) -> usize {
        let to = vec![u8::MAX; 5];
        let section = Section { table: Table::Sequences, from: Vec::new(), to };
        store.inner.engine.view(vec![section], |_| usize::MAX).entries(0).count()
    }

    #[test]
    fn nothing_is_left_of_an_item_that_was_deleted_replaced_or_purged() {
        let directory = tempfile::tempdir().expect("a directory");
        let clock = Arc::new(ManualClock::starting_at(Timestamp::from_millis(1_700_000_000_000)));
        let options = StoreOptions::default().clock(clock.clone()).maintenance_interval(None);
        let store = Store::open_with(directory.path(), options).expect("it opens");
        block_on(store.create_database("d")).expect("it is new");
        let name = ContainerName::new("d", "c").expect("a name");
        let settings = ContainerSettings::new(PartitionKeyDefinition::hash("/pk").expect("a path"))
            .default_ttl(TimeToLive::Never)
            .unique_key(UniqueKey::new(["/u"]).expect("a path"));
        block_on(store.create(&name, settings)).expect("it is new");
        let container = block_on(store.open(&name)).expect("it exists");
        let commit = |operation: Operation| {
            block_on(container.documents.commit(Batch::new("k").with(operation))).expect("it may");
        };
        let body =
            |id: &str, value: u32| format!(r#"{{"id":"{id}","pk":"k","u":{value},"ttl":5}}"#);
        for (id, value) in [("1", 1), ("2", 2), ("3", 3)] {
            commit(Operation::create(body(id, value)));
        }
        assert_eq!(claims(&store), 3);
        commit(Operation::upsert(body("1", 10)));
        commit(Operation::delete(ItemId::new("2").expect("an id")));
        assert_eq!(claims(&store), 2);
        clock.advance(Duration::from_secs(6));
        commit(Operation::create(body("4", 3)));
        store.maintain().expect("it goes through");
        // That of the item which took over from one that had expired.
        assert_eq!(claims(&store), 1);
        clock.advance(Duration::from_secs(6));
        store.maintain().expect("it goes through");
        assert_eq!(claims(&store), 0);
    }
}
