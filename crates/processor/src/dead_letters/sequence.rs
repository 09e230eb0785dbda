//! What a worker does with the dead letters.

use std::collections::BTreeMap;

use millstream_core::{
    BATCH_OPERATIONS_MAX, Change, EffectiveKey, ErrorKind as CoreErrorKind, Etag, KeyRange,
    PartitionKey,
};

use crate::dead_letters::documents::{Head, Letter, Slot, hash, shortened};
use crate::dead_letters::shelf::{Group, Written, contended};
use crate::dead_letters::{
    DeadLetters, PAGE_ITEMS_MAX, ParkedChange, ParkedSequence, ParkedState, TRIES_MAX,
};
use crate::error::{Error, ErrorKind, Result};
use crate::lease_store::Stored;
use crate::stored::schema::Document;

/// Bytes of items after which a page of a sequence ends.
const PAGE_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Most changes of one commit, as many as ids have digits for. A commit of ours has far fewer.
const INDEX_END: u32 = 10_000;
/// Most documents of other generations that are removed at once.
const STRAYS_MAX: usize = 100;

/// Some letters of a sequence in order, and documents that only look like it.
#[derive(Default)]
pub(super) struct Found {
    pub(super) own: Vec<(String, Stored<Letter>)>,
    strays: Vec<(String, Etag)>,
}

/// A letter that lies in its place.
pub(super) struct Put {
    slot: Slot,
    etag: Option<Etag>,
    is_new: bool,
}

impl Put {
    /// The version that was found in the place, if nothing had to be written.
    pub(super) fn found(&self) -> Option<&Etag> {
        self.etag.as_ref().filter(|_| !self.is_new)
    }

    pub(super) fn index(&self) -> u32 {
        self.slot.index
    }
}

impl DeadLetters {
    /// Parks a change that failed: its key is parked from now on, and the change is the next of its
    /// sequence. Parking the same change again changes nothing.
    ///
    /// # Errors
    ///
    /// `Store(TooLarge)` if the change does not fit into a document even without the previous
    /// version. `Conflict` if another key with the same hash is parked.
    pub(crate) async fn park(
        &self,
        change: &Change,
        effective_key: &EffectiveKey,
        error: &str,
        attempts: u32,
    ) -> Result<()> {
        let letter = Letter::new(change, effective_key, self.shelf.now())?.failed(error, attempts);
        self.append(letter, Some(ParkedState::Parked)).await.map(|_| ())
    }

    /// Puts a change behind the others of its key; false if the key is not parked any more, then it
    /// is to be delivered. Doing it again changes nothing.
    pub(crate) async fn append_if_parked(
        &self,
        change: &Change,
        effective_key: &EffectiveKey,
    ) -> Result<bool> {
        let letter = Letter::new(change, effective_key, self.shelf.now())?;
        self.append(letter, None).await
    }

    /// Puts a change aside alone; later ones of its key go on.
    pub(crate) async fn skip(
        &self,
        change: &Change,
        effective_key: &EffectiveKey,
        error: &str,
        attempts: u32,
    ) -> Result<()> {
        let letter = Letter::new(change, effective_key, self.shelf.now())?.failed(error, attempts);
        self.put_from(Group::Skipped, letter, 0).await.map(|_| ())
    }

    /// The parked sequences of keys in this range.
    pub(crate) async fn parked_keys(&self, keys: &KeyRange) -> Result<Vec<ParkedSequence>> {
        let (mut found, mut after) = (Vec::new(), None);
        loop {
            let page = self.list_parked(after.as_deref(), PAGE_ITEMS_MAX).await?;
            found.extend(page.sequences.into_iter().filter(|it| keys.contains(&it.effective_key)));
            after = page.next;
            if after.is_none() {
                return Ok(found);
            }
        }
    }

    /// Removes a change of a sequence after it was delivered.
    pub(crate) async fn delete_delivered(&self, delivered: &ParkedChange) -> Result<()> {
        let hash = hash(&delivered.change.partition_key.to_string());
        self.remove(Group::Letters(&hash), &delivered.id, Some(&delivered.etag)).await?;
        Ok(())
    }

    /// Ends the parking of a key if nothing is left of its sequence; false if something is, also if
    /// it was put there this moment.
    pub(crate) async fn finish_redrive(&self, key: &PartitionKey) -> Result<bool> {
        let text = key.to_string();
        let mut unknown = None;
        for _ in 0..TRIES_MAX {
            let Some(head) = self.head(&text).await? else { return Ok(true) };
            let found = self.letters(&head.document, None, 1).await?;
            if !found.own.is_empty() {
                return Ok(false);
            }
            self.remove_strays(&head, found).await?;
            let id = self.shelf.full_id(&head.document.local_id());
            match self.shelf.delete(Group::Heads, &id, Some(&head.etag)).await? {
                Written::Done(_) => return Ok(true),
                Written::Refused => (),
                Written::Unknown(error) => unknown = Some(error),
            }
        }
        Err(unknown.unwrap_or_else(|| contended(format!("end the parking of {key}"))))
    }

    /// Parks a sequence again because its first change failed once more. Changes nothing if it is
    /// not being redriven.
    pub(crate) async fn fail_redrive(&self, key: &PartitionKey, error: &str) -> Result<()> {
        let fail = |head: &mut Head| {
            if head.state == ParkedState::Parked {
                return false;
            }
            head.state = ParkedState::Parked;
            head.attempts = head.attempts.saturating_add(1);
            head.error = shortened(error);
            true
        };
        self.update(&key.to_string(), &format!("park the key {key} again"), fail).await?;
        Ok(())
    }

    /// Puts a letter into the sequence of its key. Without a sequence it begins one in the state
    /// `begin`, or returns false.
    pub(super) async fn append(
        &self,
        mut letter: Letter,
        begin: Option<ParkedState>,
    ) -> Result<bool> {
        let (mut put, mut unknown) = (None, None);
        for _ in 0..TRIES_MAX {
            let Some(head) = self.head(&letter.parked_key).await? else {
                let Some(state) = begin else {
                    self.take_back(&letter, put).await;
                    return Ok(false);
                };
                unknown = self.begin(&letter, state).await?.or(unknown);
                continue;
            };
            letter.generation = Some(head.document.generation.clone());
            let placed = self.put(&head.document, letter.clone()).await?;
            // Only now it counts: whoever has seen the sequence without this letter can no longer
            // end it.
            let mut noted = head.document.clone();
            noted.note(placed.slot, placed.is_new, self.shelf.now());
            match self.shelf.replace(Group::Heads, &noted, &head.etag).await? {
                Written::Done(_) => return Ok(true),
                Written::Refused => (),
                Written::Unknown(error) => unknown = Some(error),
            }
            put = Some(placed);
        }
        let contended = || contended(format!("park a change of {}", letter.parked_key));
        Err(unknown.unwrap_or_else(contended))
    }

    /// The head of the sequence of a key.
    pub(super) async fn head(&self, key: &str) -> Result<Option<Stored<Head>>> {
        let head = self.any_head(key).await?;
        Ok(head.filter(|it| it.document.parked_key == key))
    }

    /// Changes the head of a key, unless `change` says that there is nothing to write. False if
    /// there is no head.
    pub(super) async fn update(
        &self,
        key: &str,
        what: &str,
        change: impl Fn(&mut Head) -> bool,
    ) -> Result<bool> {
        let mut unknown = None;
        for _ in 0..TRIES_MAX {
            let Some(mut head) = self.head(key).await? else { return Ok(false) };
            if !change(&mut head.document) {
                return Ok(true);
            }
            match self.shelf.replace(Group::Heads, &head.document, &head.etag).await? {
                Written::Done(_) => return Ok(true),
                Written::Refused => (),
                Written::Unknown(error) => unknown = Some(error),
            }
        }
        Err(unknown.unwrap_or_else(|| contended(what)))
    }

    /// The first letters of a sequence after the document `after`, in the order of their ids.
    pub(super) async fn letters(
        &self,
        head: &Head,
        after: Option<&str>,
        max: usize,
    ) -> Result<Found> {
        let hash = hash(&head.parked_key);
        let (mut own, mut strays, mut bytes) = (BTreeMap::new(), Vec::new(), 0);
        let page = if self.shelf.is_ordered() { max } else { PAGE_ITEMS_MAX };
        let mut next = None;
        loop {
            let group = Group::Letters(&hash);
            let (items, continuation) = self.shelf.scan(group, next.as_ref(), page).await?;
            for item in items {
                let id = item.id.as_str();
                if after.is_some_and(|it| id <= it) {
                    continue;
                }
                let letter = self.shelf.decode::<Letter>(&item)?;
                if head.has(&letter.document) {
                    bytes += item.body.len();
                    own.insert(id.to_owned(), (letter, item.body.len()));
                } else if strays.len() < STRAYS_MAX {
                    strays.push((id.to_owned(), letter.etag));
                }
            }
            // Where a scan has another order, any later page may hold the first letters.
            let is_full = |own: &BTreeMap<_, _>, bytes| max <= own.len() || PAGE_BYTES_MAX <= bytes;
            if continuation.is_none() || (self.shelf.is_ordered() && is_full(&own, bytes)) {
                break;
            }
            while max < own.len() || (PAGE_BYTES_MAX < bytes && 1 < own.len()) {
                bytes -= own.pop_last().map_or(0, |(_, (_, length))| length);
            }
            next = continuation;
        }
        let own = own.into_iter().take(max).map(|(id, (letter, _))| (id, letter)).collect();
        Ok(Found { own, strays })
    }

    /// Begins a sequence, if nobody else does. Returns why it is not known whether that happened.
    async fn begin(&self, letter: &Letter, state: ParkedState) -> Result<Option<Error>> {
        let head = Head::new(letter, state, self.shelf.now());
        match self.shelf.create(Group::Heads, &head).await? {
            Written::Done(_) => Ok(None),
            Written::Unknown(error) => Ok(Some(error)),
            Written::Refused => {
                let other = self.any_head(&letter.parked_key).await?;
                if other.is_none_or(|it| it.document.parked_key == letter.parked_key) {
                    return Ok(None);
                }
                let what = format!("park the key {}", letter.parked_key);
                let reason = "another key with the same hash is parked; redrive or discard it";
                Err(Error::new(ErrorKind::Conflict, what).because(reason))
            }
        }
    }

    /// The head that lies where that of this key does.
    async fn any_head(&self, key: &str) -> Result<Option<Stored<Head>>> {
        self.shelf.read(Group::Heads, &format!("parked:{}", hash(key))).await
    }

    /// Finds a letter in its sequence, or puts it behind those of the same commit.
    async fn put(&self, head: &Head, mut letter: Letter) -> Result<Put> {
        let hash = hash(&letter.parked_key);
        // Usually changes come in order, and nothing needs to be looked for. Otherwise they come
        // again, after a crash or because the position was reset; what was delivered from the
        // sequence meanwhile has left gaps.
        let (known, mut next) = match head.last {
            Some(last) if last.lsn == letter.lsn => (last.index + 1, last.index + 1),
            Some(last) if letter.lsn < last.lsn => {
                (u32::try_from(BATCH_OPERATIONS_MAX).unwrap_or(INDEX_END), 0)
            }
            _ => (0, 0),
        };
        for index in 0..known {
            letter.index = index;
            let found = self.shelf.read(Group::Letters(&hash), &letter.local_id()).await?;
            let Some(found) = found.filter(|it| head.has(&it.document)) else { continue };
            if found.document.is(&letter) {
                return Ok(Put { slot: letter.slot(), etag: Some(found.etag), is_new: false });
            }
            next = next.max(index + 1);
        }
        self.put_from(Group::Letters(&hash), letter, next).await
    }

    /// Puts a letter into the first free place of its commit from `index` on, unless it lies there.
    pub(super) async fn put_from(
        &self,
        group: Group<'_>,
        mut letter: Letter,
        index: u32,
    ) -> Result<Put> {
        for index in index..INDEX_END {
            letter.index = index;
            if let Some(put) = self.put_at(group, &letter).await? {
                return Ok(put);
            }
        }
        let what = format!("park a change of {}", letter.parked_key);
        Err(Error::invalid(what, "its commit has too many changes"))
    }

    /// Puts a letter into its place; none if another one lies there.
    async fn put_at(&self, group: Group<'_>, letter: &Letter) -> Result<Option<Put>> {
        let slot = letter.slot();
        let (mut stray, mut unknown) = (None::<Etag>, None);
        for _ in 0..TRIES_MAX {
            match self.write_fitting(group, letter, stray.as_ref()).await? {
                Written::Done(etag) => return Ok(Some(Put { slot, etag, is_new: true })),
                Written::Refused => (),
                Written::Unknown(error) => unknown = Some(error),
            }
            stray = None;
            let found = self.shelf.read::<Letter>(group, &letter.local_id()).await?;
            let Some(Stored { document, etag }) = found else { continue };
            if document.is(letter) {
                return Ok(Some(Put { slot, etag: Some(etag), is_new: false }));
            }
            if document.generation == letter.generation {
                return Ok(None);
            }
            stray = Some(etag);
        }
        let contended = || contended(format!("park a change of {}", letter.parked_key));
        Err(unknown.unwrap_or_else(contended))
    }

    /// Creates or replaces a letter, in a smaller form if it is too large.
    async fn write_fitting(
        &self,
        group: Group<'_>,
        letter: &Letter,
        replaced: Option<&Etag>,
    ) -> Result<Written> {
        let mut smaller = None;
        loop {
            let letter = smaller.as_ref().unwrap_or(letter);
            let written = match replaced {
                Some(etag) => self.shelf.replace(group, letter, etag).await,
                None => self.shelf.create(group, letter).await,
            };
            let too_large = ErrorKind::Store(CoreErrorKind::TooLarge);
            match (written, letter.smaller()) {
                (Err(error), Some(form)) if *error.kind() == too_large => smaller = Some(form),
                (written, _) => return written,
            }
        }
    }

    /// Removes a letter whose sequence ended before it was part of it.
    async fn take_back(&self, letter: &Letter, put: Option<Put>) {
        let Some(Put { slot, etag: Some(etag), .. }) = put else { return };
        let mut letter = letter.clone();
        letter.index = slot.index;
        let id = self.shelf.full_id(&letter.local_id());
        let hash = hash(&letter.parked_key);
        if let Err(error) = self.remove(Group::Letters(&hash), &id, Some(&etag)).await {
            // Its generation is over, so nobody takes it for part of a sequence.
            tracing::debug!(id, error = error.report(), "left a parked change behind");
        }
    }

    /// Removes what earlier sequences of the key left behind.
    async fn remove_strays(&self, head: &Stored<Head>, found: Found) -> Result<()> {
        if found.strays.is_empty() {
            return Ok(());
        }
        // If the sequence has ended meanwhile they may belong to the next one.
        let now = self.head(&head.document.parked_key).await?;
        if now.is_none_or(|it| it.document.generation != head.document.generation) {
            return Ok(());
        }
        let hash = hash(&head.document.parked_key);
        for (id, etag) in found.strays {
            self.remove(Group::Letters(&hash), &id, Some(&etag)).await?;
        }
        Ok(())
    }
}
