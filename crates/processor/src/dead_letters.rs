//! Changes that the handler could not handle, and what to do with them.
//!
//! A *parked sequence* is a failed change and the later ones of its partition key, kept in commit
//! order. Its head document says that the key is parked; each change is a letter of its own. A
//! *skipped* change stands alone, and so does one that was *put off* until its time has come.
//!
//! Head and letters are not written together, so that any container will do and a sequence may be
//! longer than a batch or a partition may be large. What keeps them right is the order: a head is
//! there before its first letter; a change counts as parked once the head was written after its
//! letter; and a head is removed, if nobody has written it since, only after it was seen without
//! letters.
//!
//! Read `documents` first, then `sequence`, then `shelf`.

mod documents;
mod postponed;
mod sequence;
mod shelf;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use millstream_core::{
    Change, Clock, Container, EffectiveKey, Etag, Lsn, PartitionKey, ScanContinuation, Timestamp,
};
use serde::{Deserialize, Serialize};

use crate::dead_letters::documents::{Head, Letter, hash};
pub use crate::dead_letters::postponed::{PostponedChange, PostponedPage};
use crate::dead_letters::shelf::{Group, Shelf, Written, contended};
use crate::error::{Error, ErrorKind, Result};

/// How often a write is tried again when others came first or the reply was lost.
const TRIES_MAX: usize = 8;
/// Most documents of one page.
const PAGE_ITEMS_MAX: usize = 1_000;

/// The changes that a processor has put aside, in a container of their own or beside its leases.
///
/// The container is partitioned by `/id` or by one other property at the top of its documents. With
/// `/id` every listing reads the whole container; with another property, a listing reads what it
/// lists.
#[derive(Clone)]
pub struct DeadLetters {
    shelf: Shelf,
}

/// A partition key whose changes are put aside, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParkedSequence {
    /// The partition key.
    pub partition_key: PartitionKey,
    /// Its place in the key space of the container whose feed is processed.
    pub effective_key: EffectiveKey,
    /// Whether it waits for an operator or is being delivered again.
    pub state: ParkedState,
    /// How many changes were put into it, with those that a redrive has delivered since.
    pub parked: u64,
    /// How often the first change was tried; each failed redrive adds one.
    pub attempts: u32,
    /// What the handler said last.
    pub error: String,
    /// When the first change was parked.
    pub first_parked_at: Timestamp,
    /// When the newest change was put behind the others.
    pub last_parked_at: Timestamp,
    /// The id of the item whose change failed first.
    pub first_id: String,
    /// The commit of that change.
    pub first_lsn: Lsn,
}

/// What happens to a parked sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ParkedState {
    /// It waits until an operator redrives or discards it.
    Parked,
    /// It is delivered again, in order, by the owner of its keys.
    Redriving,
}

/// A change that was put aside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParkedChange {
    /// The id of the document that holds it.
    pub id: String,
    /// The change as the handler got it, or would have.
    pub change: Change,
    /// Whether the item before the change was left out because the document had no room for it.
    pub previous_dropped: bool,
    /// What the handler said; none if the change was only kept behind another of its key.
    pub error: Option<String>,
    /// How often it was tried.
    pub attempts: u32,
    /// When it was put aside.
    pub parked_at: Timestamp,
    etag: Etag,
}

/// Some parked sequences.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParkedPage {
    /// The sequences, in no particular order; may be none although more follow.
    pub sequences: Vec<ParkedSequence>,
    /// Where to go on; none at the end.
    pub next: Option<String>,
}

/// Some skipped changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SkippedPage {
    /// The changes, in no particular order; may be none although more follow.
    pub changes: Vec<ParkedChange>,
    /// Where to go on; none at the end.
    pub next: Option<String>,
}

impl DeadLetters {
    /// The dead letters of the processor `processor` in `container`. Every request to the container
    /// ends within `timeout`.
    ///
    /// # Errors
    ///
    /// `Invalid` if the name cannot be part of an id, or the container is partitioned in another
    /// way.
    pub fn new(
        container: &Container,
        processor: &str,
        clock: Arc<dyn Clock>,
        timeout: Duration,
    ) -> Result<Self> {
        Ok(Self { shelf: Shelf::new(container, processor, clock, timeout)? })
    }

    /// Lists the parked sequences, up to `max` at once, from the beginning or where an earlier page
    /// ended.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    pub async fn list_parked(&self, after: Option<&str>, max: usize) -> Result<ParkedPage> {
        let after = after.map(ScanContinuation::new);
        let max = max.clamp(1, PAGE_ITEMS_MAX);
        let (items, next) = self.shelf.scan(Group::Heads, after.as_ref(), max).await?;
        let heads = items.iter().map(|it| self.shelf.decode::<Head>(it)?.document.to_sequence());
        let sequences = heads.collect::<Result<_>>()?;
        Ok(ParkedPage { sequences, next: next.map(|it| it.as_str().to_owned()) })
    }

    /// Lists the skipped changes, up to `max` at once, from the beginning or where an earlier page
    /// ended.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    pub async fn list_skipped(&self, after: Option<&str>, max: usize) -> Result<SkippedPage> {
        let after = after.map(ScanContinuation::new);
        let max = max.clamp(1, PAGE_ITEMS_MAX);
        let (items, next) = self.shelf.scan(Group::Skipped, after.as_ref(), max).await?;
        let letters = items
            .iter()
            .map(|it| self.shelf.decode::<Letter>(it)?.to_parked(it.id.as_str().to_owned()));
        let changes = letters.collect::<Result<_>>()?;
        Ok(SkippedPage { changes, next: next.map(|it| it.as_str().to_owned()) })
    }

    /// What is known of the parked sequence of a key; none if the key is not parked.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    pub async fn show(&self, key: &PartitionKey) -> Result<Option<ParkedSequence>> {
        let head = self.head(&key.to_string()).await?;
        head.map(|it| it.document.to_sequence()).transpose()
    }

    /// The changes of a parked sequence in the order of delivery, after the document `after` or
    /// from the first. There are at most `max`, and fewer if they are large; none at the end.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    pub async fn sequence(
        &self,
        key: &PartitionKey,
        after: Option<&str>,
        max: usize,
    ) -> Result<Vec<ParkedChange>> {
        let Some(head) = self.head(&key.to_string()).await? else { return Ok(Vec::new()) };
        let found = self.letters(&head.document, after, max.clamp(1, PAGE_ITEMS_MAX)).await?;
        found.own.into_iter().map(|(id, letter)| letter.to_parked(id)).collect()
    }

    /// Asks that a parked sequence be delivered again, in order and to its end, before later
    /// changes of its key. A change that fails stops it; it is parked again from there.
    ///
    /// # Errors
    ///
    /// `NotFound` if the key is not parked.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future may leave it asked or not; ask again.
    pub(crate) async fn redrive(&self, key: &PartitionKey) -> Result<()> {
        let what = format!("redrive the parked key {key}");
        let begin = |head: &mut Head| {
            let is_parked = head.state == ParkedState::Parked;
            head.state = ParkedState::Redriving;
            is_parked
        };
        if self.update(&key.to_string(), &what, begin).await? {
            return Ok(());
        }
        Err(not_parked(what))
    }

    /// Asks that all parked sequences be delivered again, and says how many there are. Skipped
    /// changes stay.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future may leave some asked and some not; ask again.
    pub(crate) async fn redrive_all(&self) -> Result<u64> {
        let (mut count, mut after) = (0, None);
        loop {
            let page = self.list_parked(after.as_deref(), PAGE_ITEMS_MAX).await?;
            for sequence in page.sequences {
                match self.redrive(&sequence.partition_key).await {
                    Ok(()) => count += 1,
                    // It was redriven to its end or discarded since it was listed.
                    Err(error) if *error.kind() == ErrorKind::NotFound => (),
                    Err(error) => return Err(error),
                }
            }
            after = page.next;
            if after.is_none() {
                return Ok(count);
            }
        }
    }

    /// Asks that a skipped change be delivered again: it becomes a parked sequence that is being
    /// redriven, or part of one.
    ///
    /// # Errors
    ///
    /// `NotFound` if the change is not there any more. `Conflict` if its key is parked: redrive or
    /// discard that first.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future may leave it asked or not, and the change still among the skipped ones;
    /// ask again.
    pub(crate) async fn redrive_skipped(&self, skipped: &ParkedChange) -> Result<()> {
        let what = format!("redrive the skipped change \"{}\"", skipped.id);
        let Some(local) = self.local_id(Group::Skipped, &skipped.id) else {
            return Err(Error::new(ErrorKind::NotFound, what).because("it was not skipped"));
        };
        let found = self.shelf.read::<Letter>(Group::Skipped, local).await?;
        let Some(found) = found else {
            return Err(Error::new(ErrorKind::NotFound, what).because("it is not there any more"));
        };
        let head = self.head(&found.document.parked_key).await?;
        if head.is_some_and(|it| it.document.state == ParkedState::Parked) {
            let reason = "its key is parked; redrive or discard that first";
            return Err(Error::new(ErrorKind::Conflict, what).because(reason));
        }
        self.append(found.document, Some(ParkedState::Redriving)).await?;
        self.remove(Group::Skipped, &skipped.id, Some(&found.etag)).await?;
        Ok(())
    }

    /// Throws a parked sequence away and says how many changes it had. Changes that are put behind
    /// it meanwhile are thrown away as well; later ones are delivered.
    ///
    /// # Errors
    ///
    /// `NotFound` if the key is not parked. `Conflict` if changes came faster than they went; try
    /// again.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future may leave a part of the sequence; it is still parked.
    pub async fn discard(&self, key: &PartitionKey) -> Result<u64> {
        let what = format!("discard the parked key {key}");
        let text = key.to_string();
        if self.head(&text).await?.is_none() {
            return Err(not_parked(what));
        }
        let mut count = 0;
        for _ in 0..TRIES_MAX {
            while let Some(head) = self.head(&text).await? {
                let found = self.letters(&head.document, None, PAGE_ITEMS_MAX).await?;
                if found.own.is_empty() {
                    break;
                }
                for (id, letter) in found.own {
                    let group = Group::Letters(&hash(&text));
                    count += u64::from(self.remove(group, &id, Some(&letter.etag)).await?);
                }
            }
            if self.finish_redrive(key).await? {
                return Ok(count);
            }
        }
        Err(contended(what))
    }

    /// Throws one change of a parked sequence away, by the id of its document. If nothing is left
    /// the key is no longer parked.
    ///
    /// # Errors
    ///
    /// `NotFound` if the sequence has no such change.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future may leave the change thrown away or not.
    pub async fn discard_item(&self, key: &PartitionKey, id: &str) -> Result<()> {
        let hash = hash(&key.to_string());
        let group = Group::Letters(&hash);
        if self.local_id(group, id).is_none() || !self.remove(group, id, None).await? {
            let what = format!("discard the parked change \"{id}\"");
            return Err(Error::new(ErrorKind::NotFound, what).because("the key has no such change"));
        }
        self.finish_redrive(key).await?;
        Ok(())
    }

    /// Throws a skipped change away.
    ///
    /// # Errors
    ///
    /// `NotFound` if it is not there any more.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future may leave the change thrown away or not.
    pub async fn discard_skipped(&self, id: &str) -> Result<()> {
        let group = Group::Skipped;
        if self.local_id(group, id).is_none() || !self.remove(group, id, None).await? {
            let what = format!("discard the skipped change \"{id}\"");
            return Err(Error::new(ErrorKind::NotFound, what).because("it is not there any more"));
        }
        Ok(())
    }

    /// Removes a document; false if it was gone or has another version. A lost reply may make a
    /// removal look like one by somebody else, and counts as done.
    async fn remove(&self, group: Group<'_>, id: &str, etag: Option<&Etag>) -> Result<bool> {
        let mut unknown = None;
        for _ in 0..TRIES_MAX {
            match self.shelf.delete(group, id, etag).await? {
                Written::Done(_) => return Ok(true),
                Written::Refused => return Ok(unknown.is_some()),
                Written::Unknown(error) => unknown = Some(error),
            }
        }
        Err(unknown.unwrap_or_else(|| contended(format!("delete \"{id}\""))))
    }

    /// The id without the name of the processor, if it is one of the group.
    fn local_id<'a>(&self, group: Group<'_>, id: &'a str) -> Option<&'a str> {
        let local = id.strip_prefix(self.shelf.name())?.strip_prefix(':')?;
        self.shelf.holds(group, id).then_some(local)
    }
}

impl std::fmt::Debug for DeadLetters {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DeadLetters").field("processor", &self.shelf.name()).finish_non_exhaustive()
    }
}

fn not_parked(what: String) -> Error {
    Error::new(ErrorKind::NotFound, what).because("the key is not parked")
}
