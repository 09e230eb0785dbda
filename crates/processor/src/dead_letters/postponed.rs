//! Changes that the handler put off until a time.
//!
//! Each lies alone, and later ones of its key go on. When its time has come it becomes part of the
//! parked sequence of its key, one that is being redriven unless it is parked already. From there
//! on it is delivered, tried again and parked as any other.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::stream::iter;
use millstream_core::{Change, EffectiveKey, Etag, KeyRange, ScanContinuation, Timestamp};

use crate::dead_letters::documents::Letter;
use crate::dead_letters::shelf::{Group, Written, contended};
use crate::dead_letters::{DeadLetters, PAGE_ITEMS_MAX, ParkedState, TRIES_MAX};
use crate::error::{Error, ErrorKind, Result};
use crate::lease_store::Stored;

/// Most changes, and bytes of them, that are woken at once.
const WOKEN_MAX: usize = 100;
const WOKEN_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Partition keys whose changes are moved at the same time.
const PARALLEL: usize = 16;

/// A change that waits for its time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PostponedChange {
    /// The id of the document that holds it.
    pub id: String,
    /// The change as the handler got it.
    pub change: Change,
    /// It is not delivered before.
    pub due: Timestamp,
}

/// Some changes that wait for their time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PostponedPage {
    /// The changes, in the order of their times where the container is not partitioned by `/id`;
    /// may be none although more follow.
    pub changes: Vec<PostponedChange>,
    /// Where to go on; none at the end.
    pub next: Option<String>,
}

/// Changes whose time has come.
#[derive(Debug, Default)]
pub(crate) struct Woken {
    /// The documents they were in, which are needed no longer once the owners know.
    moved: Vec<(String, Etag)>,
    /// When to look again; none if nothing waits.
    pub(crate) next: Option<Timestamp>,
    /// Why some could not be moved. The others were, and must be forgotten all the same.
    pub(crate) failed: Option<Error>,
}

/// What is due of each partition key, and when to look for more.
#[derive(Default)]
struct Due {
    by_key: BTreeMap<String, Vec<(String, Stored<Letter>)>>,
    next: Option<Timestamp>,
    /// What is wrong with a document that cannot be read; the others are not kept waiting.
    failed: Option<Error>,
}

impl Woken {
    pub(crate) fn is_empty(&self) -> bool {
        self.moved.is_empty()
    }
}

impl DeadLetters {
    /// Lists the changes that were put off, up to `max` at once, from the beginning or where an
    /// earlier page ended.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    pub async fn list_postponed(&self, after: Option<&str>, max: usize) -> Result<PostponedPage> {
        let after = after.map(ScanContinuation::new);
        let max = max.clamp(1, PAGE_ITEMS_MAX);
        let (items, next) = self.shelf.scan(Group::Postponed, after.as_ref(), max).await?;
        let mut changes = Vec::new();
        for item in &items {
            let letter = self.shelf.decode::<Letter>(item)?;
            let due = due_of(&letter)?;
            let id = item.id.as_str().to_owned();
            let change = letter.to_parked(id.clone())?.change;
            changes.push(PostponedChange { id, change, due });
        }
        Ok(PostponedPage { changes, next: next.map(|it| it.as_str().to_owned()) })
    }

    /// Throws away a change that was put off: it is never delivered.
    ///
    /// # Errors
    ///
    /// `NotFound` if it is not there any more.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future may leave the change thrown away or not.
    pub async fn discard_postponed(&self, id: &str) -> Result<()> {
        let group = Group::Postponed;
        if self.local_id(group, id).is_none() || !self.remove(group, id, None).await? {
            let what = format!("discard the postponed change \"{id}\"");
            return Err(Error::new(ErrorKind::NotFound, what).because("it is not there any more"));
        }
        Ok(())
    }

    /// Keeps a change until `due`. Doing it again changes nothing.
    pub(crate) async fn postpone(
        &self,
        change: &Change,
        effective_key: &EffectiveKey,
        due: Timestamp,
    ) -> Result<()> {
        let mut letter = Letter::new(change, effective_key, self.shelf.now())?.until(due);
        for _ in 0..TRIES_MAX {
            let put = self.put_from(Group::Postponed, letter.clone(), 0).await?;
            let Some(found) = put.found() else { return Ok(()) };
            // Somebody whose clock is ahead may be about to forget it, because it is in a sequence.
            // Whoever relies on it makes another version of it, which is not forgotten.
            letter.index = put.index();
            match self.shelf.replace(Group::Postponed, &letter, found).await? {
                Written::Done(_) => return Ok(()),
                Written::Refused => (),
                Written::Unknown(error) => return Err(error),
            }
        }
        Err(contended(format!("put off a change of {}", letter.parked_key)))
    }

    /// Puts changes of these keys whose time has come into the sequences of their keys. They stay
    /// where they were until [`DeadLetters::forget`], so a crash repeats some and loses none.
    pub(crate) async fn wake(&self, now: Timestamp, keys: &[Arc<KeyRange>]) -> Result<Woken> {
        let Due { by_key, next, mut failed } = self.due(now, keys).await?;
        let moves: Vec<_> = by_key.into_values().map(|it| self.join_sequence(it)).collect();
        let mut moves = iter(moves).buffer_unordered(PARALLEL);
        let mut moved = Vec::new();
        while let Some((of_key, outcome)) = moves.next().await {
            moved.extend(of_key);
            failed = outcome.err().or(failed);
        }
        Ok(Woken { moved, next, failed })
    }

    /// Removes changes from where they waited, now that they are part of sequences.
    pub(crate) async fn forget(&self, woken: &Woken) -> Result<()> {
        let moved = woken.moved.iter();
        let removals = moved.map(|(id, etag)| self.remove(Group::Postponed, id, Some(etag)));
        let removals: Vec<_> = removals.collect();
        let mut removals = iter(removals).buffer_unordered(PARALLEL);
        while let Some(outcome) = removals.next().await {
            outcome?;
        }
        Ok(())
    }

    async fn due(&self, now: Timestamp, keys: &[Arc<KeyRange>]) -> Result<Due> {
        let mut due = Due::default();
        let (mut count, mut bytes, mut after) = (0, 0, None);
        loop {
            let group = Group::Postponed;
            let (items, more) = self.shelf.scan(group, after.as_ref(), PAGE_ITEMS_MAX).await?;
            for item in items {
                let read = self.shelf.decode::<Letter>(&item).and_then(|it| Ok((due_of(&it)?, it)));
                let (time, letter) = match read {
                    Ok(read) => read,
                    Err(error) => {
                        due.failed = Some(error);
                        continue;
                    }
                };
                if now < time {
                    due.next = Some(due.next.map_or(time, |it| it.min(time)));
                    if self.shelf.is_ordered() {
                        return Ok(due);
                    }
                    continue;
                }
                if !keys.iter().any(|it| it.contains(&letter.document.effective_key)) {
                    continue;
                }
                (count, bytes) = (count + 1, bytes + item.body.len());
                let id = item.id.as_str().to_owned();
                let same_key = due.by_key.entry(letter.document.parked_key.clone()).or_default();
                same_key.push((id, letter));
                if WOKEN_MAX <= count || WOKEN_BYTES_MAX <= bytes {
                    due.next = Some(now);
                    return Ok(due);
                }
            }
            after = more;
            if after.is_none() {
                return Ok(due);
            }
        }
    }

    /// Puts changes of one key into its sequence, which begins with them if there is none. Returns
    /// those that are there now, and why the others are not.
    async fn join_sequence(
        &self,
        mut letters: Vec<(String, Stored<Letter>)>,
    ) -> (Vec<(String, Etag)>, Result<()>) {
        // In the order of commits, because looking for the place of an earlier one costs reads.
        letters.sort_by_key(|(_, it)| it.document.slot());
        let mut moved = Vec::new();
        for (id, Stored { document, etag }) in letters {
            let mut letter = document;
            letter.due = None;
            if let Err(error) = self.append(letter, Some(ParkedState::Redriving)).await {
                return (moved, Err(error));
            }
            moved.push((id, etag));
        }
        (moved, Ok(()))
    }
}

fn due_of(letter: &Stored<Letter>) -> Result<Timestamp> {
    let letter = &letter.document;
    let due = letter.due.map(Timestamp::from_millis);
    due.ok_or_else(|| {
        let what = format!("read a postponed change of {}", letter.parked_key);
        Error::invalid(what, "it does not say until when it waits")
    })
}
