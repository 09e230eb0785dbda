//! Unique keys: who holds which values. An entry for each claim stands beside the event number of
//! its partition and names the item; it goes with the item, or when another one takes it over.

use fjall::Slice;
use millstream_core::{Claim, ContainerSettings, Error, ErrorKind, ItemId, Result};

use crate::buffer::Entry;
use crate::commit::build::{After, Commit};
use crate::commit::{Current, decode_item};
use crate::engine::Engine;
use crate::keys;
use crate::state::Numbering;
use crate::tables::Table;

/// Who holds a claim from now on, by the key of the claim.
pub(crate) type Claimed = (Slice, Option<ItemId>);

/// The item that a claim was given to last; it may have expired since.
pub(crate) fn claimant(
    engine: &Engine,
    numbering: &Numbering,
    key: &Slice,
) -> Result<Option<ItemId>> {
    if let Some(known) = numbering.claimant(key) {
        return Ok(known.cloned());
    }
    let Some(bytes) = engine.get(Table::Sequences, key.clone())? else { return Ok(None) };
    let id = str::from_utf8(&bytes).ok().and_then(|it| ItemId::new(it).ok());
    let corrupt = || Error::new(ErrorKind::Corrupt, "read who holds a unique value");
    id.map(Some).ok_or_else(corrupt)
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
        // If it had expired, another item may have taken it over.
        if claimant(engine, numbering, &key)?.as_ref() == Some(id) {
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
    pub(super) fn holder_of(&self, claim: &Claim) -> Result<Option<ItemId>> {
        let request = self.request;
        let partition = request.partition();
        let key = keys::claim(partition, claim);
        let Some(id) = claimant(request.engine, self.numbering, &key)? else { return Ok(None) };
        let item_key = Slice::from([partition, id.as_str().as_bytes()].concat());
        let record = match self.numbering.latest(&item_key) {
            Some(latest) => latest.version.as_ref().map(|it| it.0),
            None => {
                let stored = request.engine.get(Table::Items, item_key)?;
                stored.map(|it| decode_item(&it)).transpose()?
            }
        };
        let is_live = record.is_some_and(|it| {
            let settings = &request.info.settings;
            !request.container.is_expired(settings, &it.stamp, &request.effective, self.now)
        });
        Ok(is_live.then_some(id))
    }
}

impl Commit<'_> {
    /// What the commit does to the unique keys: everything that is given up, then everything that
    /// is claimed.
    pub(super) fn claim(&mut self) -> Result<Vec<Claimed>> {
        let request = self.request;
        let settings = &request.info.settings;
        if settings.unique_keys.is_empty() {
            return Ok(Vec::new());
        }
        let mut claimed = Vec::new();
        let touched = || (0..).zip(&self.after).filter_map(|(slot, it)| Some((slot, it.as_ref()?)));
        for (slot, _) in touched() {
            if let Some(before) = &self.current.slots[slot].before {
                let body = self.current.body(before)?;
                let item = (request.id(slot), &body[..]);
                let (engine, partition) = (request.engine, request.partition());
                claimed.extend(given_up(engine, self.numbering, settings, partition, item)?);
            }
        }
        for (slot, after) in touched() {
            let After::Written(_, body) = after else { continue };
            for claim in settings.claims(body)? {
                let key = keys::claim(request.partition(), &claim);
                claimed.push((key, Some(request.id(slot).clone())));
            }
        }
        self.entries.extend(claimed.iter().map(entry));
        Ok(claimed)
    }
}

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
