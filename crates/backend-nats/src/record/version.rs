//! Changes of the history: the versions before and after each, in messages of their own.

use bytes::{BufMut, Bytes, BytesMut};
use millstream_core::{Change, ChangeKind, ItemId, Lsn, PartitionKey, TimeToLive, Timestamp};
use serde::{Deserialize, Serialize};

use crate::record::{Stamp, Version};

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum VersionKind {
    Created,
    Replaced,
    Deleted,
    Expired,
}

/// One change as the history keeps it: the length of its description in four bytes, the
/// description in JSON, the body after it and the body before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct VersionRecord {
    pub(crate) kind: VersionKind,
    pub(crate) partition_key: PartitionKey,
    pub(crate) id: ItemId,
    pub(crate) current: Option<Version>,
    pub(crate) previous: Option<Version>,
}

#[derive(Serialize, Deserialize)]
struct Description {
    kind: VersionKind,
    key: String,
    id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    current: Option<Stamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    previous: Option<Stamp>,
    /// Bytes of the body after the change.
    length: usize,
}

impl VersionRecord {
    pub(crate) fn encode(&self) -> Bytes {
        let body = |version: &Option<Version>| version.as_ref().map(|it| it.body.clone());
        let current = body(&self.current).unwrap_or_default();
        let previous = body(&self.previous).unwrap_or_default();
        let description = Description {
            kind: self.kind,
            key: self.partition_key.to_string(),
            id: self.id.as_str().to_owned(),
            current: self.current.as_ref().map(|it| it.stamp),
            previous: self.previous.as_ref().map(|it| it.stamp),
            length: current.len(),
        };
        let text = serde_json::to_vec(&description).expect("a description is JSON");
        let mut bytes = BytesMut::with_capacity(4 + text.len() + current.len() + previous.len());
        bytes.put_u32(u32::try_from(text.len()).expect("a description is short"));
        bytes.put_slice(&text);
        bytes.put_slice(&current);
        bytes.put_slice(&previous);
        bytes.freeze()
    }

    pub(crate) fn decode(bytes: &Bytes) -> Option<Self> {
        let length = u32::from_be_bytes(bytes.get(..4)?.try_into().ok()?);
        let end = usize::try_from(length).ok()?.checked_add(4)?;
        let description: Description = serde_json::from_slice(bytes.get(4..end)?).ok()?;
        let middle = end.checked_add(description.length)?;
        if bytes.len() < middle {
            return None;
        }
        let version =
            |stamp: Option<Stamp>, body: Bytes| stamp.map(|stamp| Version { stamp, body });
        Some(Self {
            kind: description.kind,
            partition_key: description.key.parse().ok()?,
            id: ItemId::new(&description.id).ok()?,
            current: version(description.current, bytes.slice(end..middle)),
            previous: version(description.previous, bytes.slice(middle..)),
        })
    }

    /// As a reader sees it.
    pub(crate) fn change(
        &self,
        range: u32,
        lsn: u64,
        at: Timestamp,
        default: Option<TimeToLive>,
    ) -> Change {
        let item = |version: &Option<Version>| {
            let version = version.as_ref()?;
            Some(version.item(range, lsn, &self.partition_key, &self.id, default))
        };
        Change {
            kind: match self.kind {
                VersionKind::Created => ChangeKind::Created,
                VersionKind::Replaced => ChangeKind::Replaced,
                VersionKind::Deleted => ChangeKind::Deleted,
                VersionKind::Expired => ChangeKind::Expired,
            },
            lsn: Lsn::new(lsn),
            committed_at: at,
            partition_key: self.partition_key.clone(),
            id: self.id.clone(),
            current: item(&self.current),
            previous: item(&self.previous),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> VersionRecord {
        let stamp = Stamp { lsn: Some(4), step: 1, at: 5, ttl: Some(-1), sequence: Some(3) };
        VersionRecord {
            kind: VersionKind::Replaced,
            partition_key: "k".into(),
            id: ItemId::new("1").unwrap(),
            current: Some(Version { stamp: Stamp { lsn: None, ..stamp }, body: "{1}".into() }),
            previous: Some(Version { stamp, body: "{}".into() }),
        }
    }

    #[test]
    fn a_change_comes_back_as_it_was_written() {
        let record = record();
        assert_eq!(VersionRecord::decode(&record.encode()), Some(record));
    }

    #[test]
    fn what_is_cut_off_is_not_read_and_does_not_panic() {
        let bytes = record().encode();
        let whole = 4 + bytes.len() - 4 - "{}".len();
        for length in 0..whole {
            assert_eq!(VersionRecord::decode(&bytes.slice(..length)), None, "{length}");
        }
    }
}
