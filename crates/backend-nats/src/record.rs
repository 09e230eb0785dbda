//! What is written into messages. Everything here reads what others may have written: what is
//! strange gives `None`, never a panic.

mod version;

use bytes::Bytes;
use millstream_core::{
    Error, ErrorKind, Etag, Item, ItemId, Lsn, PartitionKey, TimeToLive, Timestamp,
};
use serde::{Deserialize, Serialize};

pub(crate) use crate::record::version::{VersionKind, VersionRecord};
use crate::subject::{self, ItemPlace};
use crate::wire::{Headers, StoredMessage};

/// The header that says what a message is.
const MARK: &str = "Millstream";
/// The partition key, where it does not stand in the subject.
const KEY: &str = "Millstream-Key";
/// The id, where it does not stand in the subject.
const ID: &str = "Millstream-Id";

/// What a message is. The letters are stored; none is used again for something else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The newest version of an item.
    Written,
    /// There is no such item any more.
    Deleted,
    /// There is no such item any more because its time was over.
    Expired,
    /// The last number given to an event of a partition.
    Sequence,
    /// A change of the history, or part of one.
    Version,
    /// Something that was expected of an item that did not change.
    Look,
    /// Which item has the values of a unique key.
    Claim,
}

impl Kind {
    const ALL: [(char, Self); 7] = [
        ('w', Self::Written),
        ('d', Self::Deleted),
        ('x', Self::Expired),
        ('s', Self::Sequence),
        ('v', Self::Version),
        ('r', Self::Look),
        ('u', Self::Claim),
    ];
}

/// What every message of a commit says about itself: `1`, then its fields with spaces between.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    pub(crate) kind: Kind,
    /// Its place in the commit, counted from 1.
    pub(crate) index: usize,
    /// Messages in the commit.
    pub(crate) count: usize,
    /// Names the commit, so that a lost answer can be looked up.
    pub(crate) batch: String,
    /// The operation that wrote it.
    pub(crate) step: usize,
    pub(crate) at: Timestamp,
    pub(crate) ttl: Option<TimeToLive>,
    pub(crate) sequence: Option<u64>,
}

impl Mark {
    pub(crate) fn write(&self, headers: &mut Headers) {
        let kinds = Kind::ALL.iter();
        let letter = kinds.clone().find(|(_, it)| *it == self.kind).map_or('?', |(it, _)| *it);
        let ttl = match self.ttl {
            None => "-".to_owned(),
            Some(TimeToLive::Never) => "never".to_owned(),
            Some(TimeToLive::Seconds(seconds)) => seconds.to_string(),
        };
        let sequence = self.sequence.map_or_else(|| "-".to_owned(), |it| it.to_string());
        let Self { index, count, batch, step, .. } = self;
        let at = self.at.as_millis();
        let text = format!("1 {letter} {index} {count} {batch} {step} {at} {ttl} {sequence}");
        headers.set(MARK, text);
    }

    pub(crate) fn read(message: &StoredMessage) -> Option<Self> {
        let mut fields = message.header(MARK)?.split(' ');
        let ["1", letter, index, count, batch, step, at, ttl, sequence] =
            std::array::from_fn(|_| fields.next().unwrap_or_default())
        else {
            return None;
        };
        if fields.next().is_some() {
            return None;
        }
        let mark = Self {
            kind: Kind::ALL.iter().find(|(it, _)| letter.chars().eq([*it])).map(|(_, it)| *it)?,
            index: index.parse().ok()?,
            count: count.parse().ok()?,
            batch: batch.to_owned(),
            step: step.parse().ok()?,
            at: Timestamp::from_millis(at.parse().ok()?),
            ttl: match ttl {
                "-" => None,
                "never" => Some(TimeToLive::Never),
                seconds => Some(TimeToLive::Seconds(seconds.parse().ok()?)),
            },
            sequence: match sequence {
                "-" => None,
                number => Some(number.parse().ok()?),
            },
        };
        let is_possible = 1 <= mark.index && mark.index <= mark.count && mark.count <= 10_000;
        is_possible.then_some(mark)
    }

    /// The number of the commit: the sequence of its last message.
    pub(crate) fn lsn(&self, message: &StoredMessage) -> u64 {
        let left = u64::try_from(self.count - self.index).unwrap_or(0);
        message.sequence.saturating_add(left)
    }
}

/// What is known about a version of an item besides its body.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Stamp {
    /// None if it belongs to the commit it is written down in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) lsn: Option<u64>,
    pub(crate) step: usize,
    pub(crate) at: u64,
    /// -1: never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) ttl: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) sequence: Option<u64>,
}

impl Stamp {
    pub(crate) fn ttl(&self) -> Option<TimeToLive> {
        self.ttl.map(|it| u32::try_from(it).map_or(TimeToLive::Never, TimeToLive::Seconds))
    }

    pub(crate) fn with_ttl(mut self, ttl: Option<TimeToLive>) -> Self {
        self.ttl = ttl.map(|it| match it {
            TimeToLive::Never => -1,
            TimeToLive::Seconds(seconds) => i64::from(seconds),
        });
        self
    }

    pub(crate) fn expiry(&self, default: Option<TimeToLive>) -> Option<Timestamp> {
        TimeToLive::expiry(default, self.ttl(), Timestamp::from_millis(self.at))
    }
}

/// A version of an item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Version {
    pub(crate) stamp: Stamp,
    pub(crate) body: Bytes,
}

impl Version {
    /// The item as a reader sees it; `commit` is where the version was written down. Commits are
    /// numbered by range, so an etag names it.
    pub(crate) fn item(
        &self,
        range: u32,
        commit: u64,
        key: &PartitionKey,
        id: &ItemId,
        default: Option<TimeToLive>,
    ) -> Item {
        let lsn = self.stamp.lsn.unwrap_or(commit);
        Item {
            id: id.clone(),
            partition_key: key.clone(),
            body: self.body.clone(),
            etag: Etag::new(format!("{range:x}-{lsn:x}-{:x}", self.stamp.step)),
            lsn: Lsn::new(lsn),
            written_at: Timestamp::from_millis(self.stamp.at),
            expires_at: self.stamp.expiry(default),
            sequence: self.stamp.sequence,
        }
    }
}

/// The newest message of an item.
#[derive(Clone, Debug)]
pub(crate) struct ItemRecord {
    pub(crate) partition_key: PartitionKey,
    pub(crate) id: ItemId,
    /// Of its message; what the next write expects.
    pub(crate) sequence: u64,
    pub(crate) mark: Mark,
    /// Of its commit.
    pub(crate) lsn: u64,
    /// None after a delete.
    pub(crate) version: Option<Version>,
}

impl ItemRecord {
    /// Adds what does not stand in the subject of an item.
    pub(crate) fn name(headers: &mut Headers, is_hashed: bool, key: &PartitionKey, id: &ItemId) {
        if is_hashed {
            headers.set(KEY, subject::header_text(&key.to_string()));
        }
        if subject::is_hashed(id) {
            headers.set(ID, subject::header_text(id.as_str()));
        }
    }

    /// Reads the message of an item.
    pub(crate) fn read(message: &StoredMessage) -> Result<Self, Error> {
        let record = Mark::read(message).and_then(|mark| Self::parse(message, mark));
        record.ok_or_else(|| strange(message))
    }

    /// Reads the message of an item whose mark was read already.
    pub(crate) fn read_marked(message: &StoredMessage, mark: Mark) -> Result<Self, Error> {
        Self::parse(message, mark).ok_or_else(|| strange(message))
    }

    fn parse(message: &StoredMessage, mark: Mark) -> Option<Self> {
        let place = ItemPlace::parse(&message.subject)?;
        let partition_key = match (place.partition_key, message.header(KEY)) {
            (Some(key), _) => key,
            (None, text) => subject::decoded(text?)?.parse().ok()?,
        };
        let id = match (place.id, message.header(ID)) {
            (Some(id), _) => id,
            (None, text) => ItemId::new(&subject::decoded(text?)?).ok()?,
        };
        let lsn = mark.lsn(message);
        let stamp = Stamp {
            lsn: Some(lsn),
            step: mark.step,
            at: mark.at.as_millis(),
            ttl: None,
            sequence: mark.sequence,
        };
        let version = match mark.kind {
            Kind::Written => {
                let body = message.payload.clone();
                Some(Version { stamp: stamp.with_ttl(mark.ttl), body })
            }
            Kind::Deleted | Kind::Expired => None,
            Kind::Sequence | Kind::Version | Kind::Look | Kind::Claim => return None,
        };
        Some(Self { partition_key, id, sequence: message.sequence, mark, lsn, version })
    }
}

/// The error for a message that we cannot have written.
pub(crate) fn strange(message: &StoredMessage) -> Error {
    let attempted = format!("read message {} of {:?}", message.sequence, message.subject);
    Error::new(ErrorKind::Corrupt, attempted).because("it is not one that we write")
}
