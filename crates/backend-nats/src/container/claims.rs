//! Unique keys: a message for each value that an item holds says which item that is.
//!
//! Such messages are written in the same batch as the item and expect what was seen, so of two
//! batches that want the same value the server refuses one.

use std::collections::{BTreeMap, BTreeSet};

use futures_util::{StreamExt, TryStreamExt, stream};
use millstream_core::{
    Action, BoxFuture, CheckedBatch, Claim, ContainerSettings, EffectiveKey, Error, ErrorKind,
    ItemId, PartitionKey, Result, Step,
};

use crate::container::view::{LOOKS_AT_ONCE, View};
use crate::container::{Range, Shared};
use crate::plan::{ClaimChange, ClaimChanges, Known};
use crate::record::{Kind, Mark};
use crate::subject::PartitionNames;
use crate::wire::StoredMessage;

/// Who holds what is claimed by a unique key.
#[derive(Clone, Debug, Default)]
pub(crate) struct Held {
    /// Of the message that says so; 0 if there is none.
    sequence: u64,
    holder: Option<ItemId>,
    /// The holder, if it has expired and so has lost what it held.
    expired: Option<Known>,
}

impl Held {
    pub(super) fn live_holder(&self) -> Option<ItemId> {
        self.holder.clone().filter(|_| self.expired.is_none())
    }
}

pub(crate) type Claims = BTreeMap<Claim, Held>;

/// A logical partition, and where it is.
#[derive(Clone, Copy)]
pub(crate) struct Partition<'a> {
    pub(crate) range: &'a Range,
    pub(crate) names: &'a PartitionNames,
    pub(crate) effective: &'a EffectiveKey,
    pub(crate) key: &'a PartitionKey,
}

/// What a batch gives up or wants, as far as that is known before its steps are decided.
pub(super) fn foreseen(
    settings: &ContainerSettings,
    batch: &CheckedBatch,
    items: &BTreeMap<ItemId, Known>,
) -> Result<BTreeSet<Claim>> {
    let mut claims = BTreeSet::new();
    if settings.unique_keys.is_empty() {
        return Ok(claims);
    }
    for operation in &batch.operations {
        if let Action::Create(body) | Action::Upsert(body) | Action::Replace(body) =
            &operation.action
        {
            claims.extend(body.claims.iter().cloned());
        }
    }
    for version in items.values().filter_map(|it| it.version.as_ref()) {
        claims.extend(settings.claims(&version.body)?);
    }
    Ok(claims)
}

/// What the steps of a batch do to unique keys.
pub(super) fn changes(
    settings: &ContainerSettings,
    names: &PartitionNames,
    steps: &[Step],
    view: &View,
) -> Result<ClaimChanges> {
    if settings.unique_keys.is_empty() {
        return Ok(ClaimChanges::default());
    }
    let mut after: BTreeMap<&ItemId, &[Claim]> = BTreeMap::new();
    for step in steps {
        match step {
            Step::Write { id, body, .. } => drop(after.insert(id, &body.claims)),
            Step::Delete { id } => drop(after.insert(id, &[])),
            Step::Read(_) | Step::ReadStep(_) | Step::NotModified => (),
        }
    }
    let mut holders = BTreeMap::new();
    for id in after.keys() {
        let version = view.items.get(*id).and_then(|it| it.version.as_ref());
        if let Some(version) = version {
            holders.extend(given_up(settings, id, &version.body, &view.claims)?);
        }
    }
    let mut rested = BTreeMap::new();
    for held in after.values().copied().flatten().filter_map(|it| view.claims.get(it)) {
        if let (Some(id), Some(known)) = (&held.holder, &held.expired)
            && !after.contains_key(id)
            && let Some(version) = &known.version
        {
            holders.extend(given_up(settings, id, &version.body, &view.claims)?);
            rested.insert(id.clone(), known.clone());
        }
    }
    for (id, claims) in after {
        holders.extend(claims.iter().map(|claim| (claim.clone(), Some(id.clone()))));
    }
    Ok(ClaimChanges { claims: as_changes(names, holders, &view.claims), rested })
}

/// The claims that an item with this body still holds.
fn given_up(
    settings: &ContainerSettings,
    id: &ItemId,
    body: &[u8],
    held: &Claims,
) -> Result<Vec<(Claim, Option<ItemId>)>> {
    let mut claims = settings.claims(body)?;
    claims.retain(|claim| held.get(claim).is_some_and(|it| it.holder.as_ref() == Some(id)));
    Ok(claims.into_iter().map(|claim| (claim, None)).collect())
}

fn as_changes(
    names: &PartitionNames,
    holders: BTreeMap<Claim, Option<ItemId>>,
    held: &Claims,
) -> Vec<ClaimChange> {
    let change = |(claim, holder): (Claim, _)| {
        let expected = held.get(&claim).map_or(0, |it| it.sequence);
        ClaimChange { subject: names.claim(&claim), expected, holder }
    };
    holders.into_iter().map(change).collect()
}

impl Shared {
    /// What becomes of unique keys when an item is removed because its time is over.
    pub(crate) async fn give_up_claims(
        &self,
        partition: Partition<'_>,
        settings: &ContainerSettings,
        (id, known): (&ItemId, &Known),
    ) -> Result<ClaimChanges> {
        let Some(version) = known.version.as_ref().filter(|_| !settings.unique_keys.is_empty())
        else {
            return Ok(ClaimChanges::default());
        };
        let claims = settings.claims(&version.body)?.into_iter().collect();
        let items = BTreeMap::from([(id.clone(), known.clone())]);
        let mut view = View { items, ..View::default() };
        self.look_at_claims(partition, settings, claims, &mut view).await?;
        let holders = given_up(settings, id, &version.body, &view.claims)?;
        let claims = as_changes(partition.names, holders.into_iter().collect(), &view.claims);
        Ok(ClaimChanges { claims, rested: BTreeMap::new() })
    }

    /// Adds to a view who holds these claims, as the leader of the stream knows it, and what else
    /// those hold that have expired.
    pub(super) async fn look_at_claims(
        &self,
        partition: Partition<'_>,
        settings: &ContainerSettings,
        mut claims: BTreeSet<Claim>,
        view: &mut View,
    ) -> Result<()> {
        while !claims.is_empty() {
            let known = &view.items;
            let look = |claim: Claim| -> BoxFuture<'_, Result<(Claim, Held)>> {
                Box::pin(async move {
                    let held = self.held(partition, settings, &claim, known).await?;
                    Ok((claim, held))
                })
            };
            let looks: Vec<_> = claims.into_iter().map(look).collect();
            let found = stream::iter(looks).buffer_unordered(LOOKS_AT_ONCE);
            let found: Vec<(Claim, Held)> = found.try_collect().await?;
            claims = BTreeSet::new();
            let expired = found.iter().filter_map(|(_, it)| it.expired.as_ref()?.version.as_ref());
            for version in expired {
                claims.extend(settings.claims(&version.body)?);
            }
            view.claims.extend(found);
            claims.retain(|it| !view.claims.contains_key(it));
        }
        Ok(())
    }

    async fn held(
        &self,
        partition: Partition<'_>,
        settings: &ContainerSettings,
        claim: &Claim,
        known: &BTreeMap<ItemId, Known>,
    ) -> Result<Held> {
        let Partition { range, names, effective, key } = partition;
        let Some(message) = range.wire.last(&names.claim(claim)).await? else {
            return Ok(Held::default());
        };
        let sequence = message.sequence;
        let Some(id) = holder(&message)? else {
            return Ok(Held { sequence, ..Held::default() });
        };
        let known = match known.get(&id) {
            Some(known) => known.clone(),
            None => {
                let mut known = self.look(range, names, key, &id).await?;
                known.is_over = self.is_over(&known, effective, settings).await?;
                known
            }
        };
        let expired = if known.visible().is_some() { None } else { Some(known) };
        Ok(Held { sequence, holder: Some(id), expired })
    }
}

/// The item that a message says holds a value; none if it was given up.
pub(crate) fn holder(message: &StoredMessage) -> Result<Option<ItemId>> {
    let strange = || {
        let attempted = format!("read message {} of the unique keys", message.sequence);
        Error::new(ErrorKind::Corrupt, attempted).because("it is not one of ours")
    };
    Mark::read(message).filter(|it| it.kind == Kind::Claim).ok_or_else(strange)?;
    if message.payload.is_empty() {
        return Ok(None);
    }
    let id = str::from_utf8(&message.payload).ok().and_then(|it| ItemId::new(it).ok());
    id.map(Some).ok_or_else(strange)
}
