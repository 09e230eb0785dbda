//! What is stored of a parked sequence: a head, and a letter for each change.

use bytes::Bytes;
use millstream_core::{
    Change, ChangeKind, EffectiveKey, Etag, Item, ItemId, Lsn, PartitionKey, Timestamp,
};
use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value};
use xxhash_rust::xxh3::xxh3_128;

use crate::dead_letters::{ParkedChange, ParkedSequence, ParkedState};
use crate::error::{Error, Result};
use crate::lease_store::Stored;
use crate::stored::schema::{Document, Schema};

/// Longest error text that is kept.
const ERROR_BYTES_MAX: usize = 4096;

/// The properties of heads and letters; none of them can be the partition key of the container.
pub(super) const PROPERTIES: &[&str] = &[
    "attempts",
    "committedAt",
    "current",
    "due",
    "effectiveKey",
    "error",
    "firstId",
    "firstLsn",
    "firstParkedAt",
    "generation",
    "index",
    "itemId",
    "kind",
    "last",
    "lastParkedAt",
    "lsn",
    "parked",
    "parkedAt",
    "parkedKey",
    "previous",
    "previousDropped",
    "schema",
    "state",
    "ttl",
];

/// Says that the changes of a partition key are parked. As long as it exists, later changes of the
/// key are put behind the others.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Head {
    pub(super) schema: Schema,
    /// The partition key as text.
    pub(super) parked_key: String,
    pub(super) effective_key: EffectiveKey,
    /// Differs from that of an earlier sequence of the same key. Letters of another generation were
    /// left behind by a writer that came too late or crashed; they are no part of the sequence.
    pub(super) generation: String,
    pub(super) state: ParkedState,
    /// Changes put into the sequence so far.
    pub(super) parked: u64,
    pub(super) attempts: u32,
    pub(super) error: String,
    pub(super) first_parked_at: u64,
    pub(super) last_parked_at: u64,
    pub(super) first_id: String,
    pub(super) first_lsn: u64,
    /// The last place that was used; none until the first change is there.
    pub(super) last: Option<Slot>,
    #[serde(flatten)]
    pub(super) unknown: Map<String, Value>,
}

/// A place in a sequence: a commit, and a number within it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct Slot {
    pub(super) lsn: u64,
    pub(super) index: u32,
}

/// A change that was put aside.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Letter {
    pub(super) schema: Schema,
    /// The partition key as text.
    pub(super) parked_key: String,
    pub(super) effective_key: EffectiveKey,
    /// The generation of the sequence; none if the change was skipped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) generation: Option<String>,
    /// Until when it waits, if it was put off and is in no sequence yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) due: Option<u64>,
    kind: Kind,
    pub(super) lsn: u64,
    /// Its number among the changes of the same commit.
    pub(super) index: u32,
    committed_at: u64,
    item_id: String,
    current: Option<Version>,
    previous: Option<Version>,
    /// Whether the item before the change was left out because there was no room for it.
    #[serde(default)]
    previous_dropped: bool,
    /// What the handler said; none if it was not asked because its key was parked.
    pub(super) error: Option<String>,
    pub(super) attempts: u32,
    parked_at: u64,
    #[serde(flatten)]
    unknown: Map<String, Value>,
}

/// A version of the item that was changed.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Version {
    /// A string with the bytes of the body: no backend reads numbers or nesting into it. Where that
    /// would be too large, the body itself.
    body: Box<RawValue>,
    etag: String,
    lsn: u64,
    written_at: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    expires_at: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    sequence: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
enum Kind {
    Written,
    Created,
    Replaced,
    Deleted,
    Expired,
}

impl Head {
    /// An empty sequence that begins with `letter`.
    pub(super) fn new(letter: &Letter, state: ParkedState, now: Timestamp) -> Self {
        let now = now.as_millis();
        Self {
            schema: Schema::default(),
            parked_key: letter.parked_key.clone(),
            effective_key: letter.effective_key.clone(),
            generation: format!("{now}-{}", letter.lsn),
            state,
            parked: 0,
            attempts: letter.attempts,
            error: letter.error.clone().unwrap_or_default(),
            first_parked_at: now,
            last_parked_at: now,
            first_id: letter.item_id.clone(),
            first_lsn: letter.lsn,
            last: None,
            unknown: Map::new(),
        }
    }

    /// Notes that a change is in the sequence; more than once does no harm.
    pub(super) fn note(&mut self, slot: Slot, is_new: bool, now: Timestamp) {
        if is_new || self.last < Some(slot) {
            self.parked += 1;
            self.last_parked_at = now.as_millis();
        }
        self.last = self.last.max(Some(slot));
    }

    /// Whether `letter` is part of this sequence.
    pub(super) fn has(&self, letter: &Letter) -> bool {
        letter.generation.as_ref() == Some(&self.generation) && letter.parked_key == self.parked_key
    }

    pub(super) fn to_sequence(&self) -> Result<ParkedSequence> {
        Ok(ParkedSequence {
            partition_key: read_key(&self.parked_key)?,
            effective_key: self.effective_key.clone(),
            state: self.state,
            parked: self.parked,
            attempts: self.attempts,
            error: self.error.clone(),
            first_parked_at: Timestamp::from_millis(self.first_parked_at),
            last_parked_at: Timestamp::from_millis(self.last_parked_at),
            first_id: self.first_id.clone(),
            first_lsn: Lsn::new(self.first_lsn),
        })
    }
}

impl Letter {
    /// What is kept of a change.
    pub(super) fn new(
        change: &Change,
        effective_key: &EffectiveKey,
        now: Timestamp,
    ) -> Result<Self> {
        Ok(Self {
            schema: Schema::default(),
            parked_key: change.partition_key.to_string(),
            effective_key: effective_key.clone(),
            generation: None,
            due: None,
            kind: change.kind.into(),
            lsn: change.lsn.as_u64(),
            index: 0,
            committed_at: change.committed_at.as_millis(),
            item_id: change.id.to_string(),
            current: change.current.as_ref().map(Version::new).transpose()?,
            previous: change.previous.as_ref().map(Version::new).transpose()?,
            previous_dropped: false,
            error: None,
            attempts: 0,
            parked_at: now.as_millis(),
            unknown: Map::new(),
        })
    }

    /// With what the handler said.
    pub(super) fn failed(mut self, error: &str, attempts: u32) -> Self {
        self.error = Some(shortened(error));
        self.attempts = attempts;
        self
    }

    /// Whether both are the same change in the same sequence.
    pub(super) fn is(&self, other: &Self) -> bool {
        let etag = |it: &Option<Version>| it.as_ref().map(|it| it.etag.clone());
        // One of them may have been left out.
        let previous = match (&self.previous, &other.previous) {
            (Some(one), Some(two)) => one.etag == two.etag,
            _ => true,
        };
        self.parked_key == other.parked_key
            && self.generation == other.generation
            && self.lsn == other.lsn
            && self.kind == other.kind
            && self.item_id == other.item_id
            && etag(&self.current) == etag(&other.current)
            && previous
    }

    pub(super) fn slot(&self) -> Slot {
        Slot { lsn: self.lsn, index: self.index }
    }

    /// The next smaller form, if there is one.
    pub(super) fn smaller(&self) -> Option<Self> {
        let mut smaller = self.clone();
        let versions = [&mut smaller.current, &mut smaller.previous];
        let unquoted = versions.into_iter().flatten().filter_map(Version::unquote).count();
        if 0 < unquoted {
            return Some(smaller);
        }
        smaller.previous.take()?;
        smaller.previous_dropped = true;
        Some(smaller)
    }

    /// Put off until then.
    pub(super) fn until(mut self, due: Timestamp) -> Self {
        self.due = Some(due.as_millis());
        self
    }

    fn to_change(&self) -> Result<Change> {
        let attempted = || format!("read the parked change \"{}\"", self.local_id());
        let partition_key = read_key(&self.parked_key)?;
        let id = ItemId::stored(&*self.item_id);
        let item = |it: &Version| it.to_item(&id, &partition_key);
        let current = self.current.as_ref().map(item).transpose();
        let previous = self.previous.as_ref().map(item).transpose();
        Ok(Change {
            kind: self.kind.into(),
            lsn: Lsn::new(self.lsn),
            committed_at: Timestamp::from_millis(self.committed_at),
            current: current.map_err(|it| Error::invalid(attempted(), it))?,
            previous: previous.map_err(|it| Error::invalid(attempted(), it))?,
            partition_key,
            id,
        })
    }
}

impl Stored<Letter> {
    /// The change, as it lies at `id`.
    pub(super) fn to_parked(&self, id: String) -> Result<ParkedChange> {
        let letter = &self.document;
        Ok(ParkedChange {
            id,
            change: letter.to_change()?,
            previous_dropped: letter.previous_dropped,
            error: letter.error.clone(),
            attempts: letter.attempts,
            parked_at: Timestamp::from_millis(letter.parked_at),
            etag: self.etag.clone(),
        })
    }
}

impl Version {
    fn new(item: &Item) -> Result<Self> {
        let attempted = || format!("park the item {:?}", item.id.as_str());
        let text = str::from_utf8(&item.body).map_err(|it| Error::invalid(attempted(), it))?;
        Ok(Self {
            body: to_raw_value(text).map_err(|it| Error::invalid(attempted(), it))?,
            etag: item.etag.as_str().to_owned(),
            lsn: item.lsn.as_u64(),
            written_at: item.written_at.as_millis(),
            expires_at: item.expires_at.map(Timestamp::as_millis),
            sequence: item.sequence,
        })
    }

    /// Keeps the body itself instead of a string, if that is not done yet and possible.
    fn unquote(&mut self) -> Option<()> {
        let text: String = serde_json::from_str(self.body.get()).ok()?;
        self.body = RawValue::from_string(text).ok()?;
        Some(())
    }

    fn to_item(&self, id: &ItemId, key: &PartitionKey) -> serde_json::Result<Item> {
        let raw = self.body.get();
        let body = if raw.starts_with('"') { serde_json::from_str(raw)? } else { raw.to_owned() };
        Ok(Item {
            id: id.clone(),
            partition_key: key.clone(),
            body: Bytes::from(body),
            etag: Etag::new(self.etag.as_str()),
            lsn: Lsn::new(self.lsn),
            written_at: Timestamp::from_millis(self.written_at),
            expires_at: self.expires_at.map(Timestamp::from_millis),
            sequence: self.sequence,
        })
    }
}

impl Document for Head {
    const WHAT: &'static str = "parked sequence";

    fn local_id(&self) -> String {
        format!("parked:{}", hash(&self.parked_key))
    }

    fn unknown(&mut self) -> &mut Map<String, Value> {
        &mut self.unknown
    }
}

impl Document for Letter {
    const WHAT: &'static str = "parked change";

    /// In a sequence, the order of the ids is that of delivery; among those that were put off, that
    /// of the times.
    fn local_id(&self) -> String {
        let (key, lsn, index) = (hash(&self.parked_key), self.lsn, self.index);
        if let Some(due) = self.due {
            return format!("later:{due:020}:{lsn:020}:{key}:{index:04}");
        }
        let group = if self.generation.is_some() { "parked" } else { "skipped" };
        format!("{group}:{key}:{lsn:020}:{index:04}")
    }

    fn unknown(&mut self) -> &mut Map<String, Value> {
        &mut self.unknown
    }
}

impl From<ChangeKind> for Kind {
    fn from(kind: ChangeKind) -> Self {
        match kind {
            ChangeKind::Written => Self::Written,
            ChangeKind::Created => Self::Created,
            ChangeKind::Replaced => Self::Replaced,
            ChangeKind::Deleted => Self::Deleted,
            ChangeKind::Expired => Self::Expired,
        }
    }
}

impl From<Kind> for ChangeKind {
    fn from(kind: Kind) -> Self {
        match kind {
            Kind::Written => Self::Written,
            Kind::Created => Self::Created,
            Kind::Replaced => Self::Replaced,
            Kind::Deleted => Self::Deleted,
            Kind::Expired => Self::Expired,
        }
    }
}

/// What stands for a partition key in ids: XXH3 with 128 bits of its text, as 32 hexadecimal
/// digits. A key may be longer than an id and have characters that no id has.
pub(super) fn hash(key: &str) -> String {
    format!("{:032x}", xxh3_128(key.as_bytes()))
}

/// The beginning of an error text, as much as is kept.
pub(super) fn shortened(error: &str) -> String {
    let end = (0..=ERROR_BYTES_MAX.min(error.len())).rev().find(|it| error.is_char_boundary(*it));
    error[..end.unwrap_or(0)].to_owned()
}

fn read_key(text: &str) -> Result<PartitionKey> {
    text.parse().map_err(|it| Error::store(format!("read the parked key {text}"), it))
}
