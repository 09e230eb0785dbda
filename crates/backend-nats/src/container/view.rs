//! Looking at items and counters, freshly or from memory.

use std::collections::{BTreeMap, BTreeSet};

use futures_util::{StreamExt, TryStreamExt, stream};
use millstream_core::{
    Action, BoxFuture, CheckedBatch, Claim, ContainerSettings, CurrentItems, EffectiveKey, Error,
    ErrorKind, Etag, Item, ItemId, PartitionKey, Result,
};

use crate::container::claims::{Claims, Held, Partition, foreseen};
use crate::container::reads::Reads;
use crate::container::{Range, Shared};
use crate::plan::{Counter, Known};
use crate::record::{ItemRecord, Mark};
use crate::subject::PartitionNames;

/// Items that are looked at side by side.
pub(super) const LOOKS_AT_ONCE: usize = 16;

/// What a batch rests on.
#[derive(Debug)]
pub(super) struct View {
    pub(super) items: BTreeMap<ItemId, Known>,
    pub(super) claims: Claims,
    /// Whether all of it was asked for just now; only then may a batch be refused because of it.
    pub(super) is_fresh: bool,
    /// Whether the items of the first operations are too much already, so that those of the others
    /// were not looked at. The batch can only be refused.
    pub(super) is_too_much: bool,
}

impl Default for View {
    fn default() -> Self {
        let (items, claims) = (BTreeMap::new(), Claims::new());
        Self { items, claims, is_fresh: true, is_too_much: false }
    }
}

impl Shared {
    /// The item as the leader of its stream knows it.
    pub(crate) async fn look(
        &self,
        range: &Range,
        names: &PartitionNames,
        key: &PartitionKey,
        id: &ItemId,
    ) -> Result<Known> {
        let subject = names.item(id);
        let Some(message) = range.wire.last(&subject).await? else {
            range.cache().forget(&subject);
            return Ok(Known::default());
        };
        let record = ItemRecord::read(&message)?;
        if record.partition_key != *key || record.id != *id {
            let attempted = format!("read item {:?}", id.as_str());
            let error = Error::new(ErrorKind::Corrupt, attempted);
            return Err(error.because("another one has the same hash; choose a shorter id"));
        }
        range.saw_time(record.mark.at);
        let (sequence, version) = (record.sequence, record.version);
        let known = Known { sequence, version, is_over: false };
        range.cache().put_item(subject, known.clone());
        Ok(known)
    }

    /// The items a batch touches. Unless everything must be fresh, what this process remembers is
    /// taken for true, and an item to be created is taken for absent: the server will know better.
    ///
    /// It ends where the items are too much to be returned: of what a batch reads no more is held
    /// than the limit and the items that are being looked at.
    pub(super) async fn view(
        &self,
        range: &Range,
        names: &PartitionNames,
        effective: &EffectiveKey,
        batch: &CheckedBatch,
        settings: &ContainerSettings,
        must_be_fresh: bool,
    ) -> Result<View> {
        let mut view = View::default();
        let mut missing: Vec<&ItemId> = Vec::new();
        for operation in &batch.operations {
            let id = &operation.id;
            if view.items.contains_key(id) || missing.contains(&id) {
                continue;
            }
            let remembered = range.cache().item(&names.item(id)).filter(|_| !must_be_fresh);
            let assumed = match (remembered, &operation.action) {
                (Some(known), _) => known,
                (None, Action::Create(_)) if !must_be_fresh => Known::default(),
                (None, _) => {
                    missing.push(id);
                    continue;
                }
            };
            view.is_fresh = false;
            view.items.insert(id.clone(), assumed);
        }
        let look = |id: &'_ ItemId| -> BoxFuture<'_, Result<(ItemId, Known)>> {
            let id = id.clone();
            Box::pin(async move {
                let known = self.look(range, names, &batch.partition_key, &id).await?;
                Ok((id, known))
            })
        };
        let looks: Vec<_> = missing.into_iter().map(look).collect();
        // In order, as a batch is refused at the first operation that is wrong.
        let mut looks = stream::iter(looks).buffered(LOOKS_AT_ONCE);
        let mut reads = Reads::new(batch, range.number(), settings.default_ttl);
        view.is_too_much = reads.are_too_many(&view.items);
        while !view.is_too_much
            && let Some((id, known)) = looks.try_next().await?
        {
            view.items.insert(id, known);
            view.is_too_much = reads.are_too_many(&view.items);
        }
        drop(looks);
        for known in view.items.values_mut() {
            known.is_over = self.is_over(known, effective, settings).await?;
        }
        let foreseen = foreseen(settings, batch, &view.items)?;
        let partition = Partition { range, names, effective, key: &batch.partition_key };
        self.look_at_claims(partition, settings, foreseen, &mut view).await?;
        Ok(view)
    }

    /// The last number given to an event of the partition.
    pub(super) async fn counter(
        &self,
        range: &Range,
        names: &PartitionNames,
        must_be_fresh: bool,
    ) -> Result<Counter> {
        let remembered = range.cache().counter(&names.sequence).filter(|_| !must_be_fresh);
        if let Some(counter) = remembered {
            return Ok(counter);
        }
        let Some(message) = range.wire.last(&names.sequence).await? else {
            return Ok(Counter::default());
        };
        let strange = || {
            let attempted = format!("read the last event number at {:?}", names.sequence);
            Error::new(ErrorKind::Corrupt, attempted).because("it is not one that we write")
        };
        Mark::read(&message).ok_or_else(strange)?;
        let text = std::str::from_utf8(&message.payload).map_err(|_| strange())?;
        let number = text.parse().map_err(|_| strange())?;
        let counter = Counter { sequence: message.sequence, number };
        range.cache().put_counter(names.sequence.clone(), counter);
        Ok(counter)
    }
}

/// The items of a view as the steps of a batch find them.
pub(super) struct Current<'a> {
    pub(super) range: u32,
    pub(super) view: &'a View,
    pub(super) key: &'a PartitionKey,
    pub(super) settings: &'a ContainerSettings,
    /// Claims that were asked for and that the view does not have.
    pub(super) unseen: BTreeSet<Claim>,
}

impl CurrentItems for Current<'_> {
    fn exists(&mut self, id: &ItemId) -> Result<bool> {
        Ok(self.view.items.get(id).is_some_and(|it| it.visible().is_some()))
    }

    fn item(&mut self, id: &ItemId) -> Result<Option<Item>> {
        let Some(known) = self.view.items.get(id) else { return Ok(None) };
        let default = self.settings.default_ttl;
        Ok(known.visible().map(|it| it.item(self.range, known.sequence, self.key, id, default)))
    }

    fn etag(&mut self, id: &ItemId) -> Result<Option<Etag>> {
        Ok(self.item(id)?.map(|it| it.etag))
    }

    fn holder(&mut self, claim: &Claim) -> Result<Option<ItemId>> {
        let held = self.view.claims.get(claim);
        if held.is_none() {
            self.unseen.insert(claim.clone());
        }
        Ok(held.and_then(Held::live_holder))
    }
}
