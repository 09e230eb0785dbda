//! The documents of a broker.
//!
//! All documents of a queue or topic are in one logical partition, so that a batch can hold any of
//! them. Bytes are in base64 and begin with their version.
//!
//! | id | what |
//! |---|---|
//! | `head` | who owns the entity, the number of the last commit, the next message number |
//! | `seg-<first>` | the messages of one commit |
//! | `ack-<subscription>-<first>` | what a subscription has done with them |
//! | `ids-<first>` | ids for duplicate detection whose messages are gone |
//! | `state-<subscription>-<hash>` | the state of a session |
//!
//! Which entities there are is in the partition `$catalog`, one document each.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use millstream_core::{ItemId, Operation, Result, Timestamp};
use serde::{Deserialize, Serialize};

use crate::codec::{corrupt, id_hash};
use crate::marks::Marks;
use crate::settings::{QueueSettings, SubscriptionSettings, TopicSettings};

/// The partition of the list of entities.
pub(crate) const CATALOG: &str = "$catalog";
pub(crate) const HEAD: &str = "head";

/// The document that every commit of an entity replaces.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Head {
    pub(crate) id: String,
    pub(crate) partition_key: String,
    #[serde(rename = "type")]
    pub(crate) kind: String,
    /// The broker that may write here.
    pub(crate) owner: String,
    /// How many commits there were.
    pub(crate) commit: u64,
    /// The number of the next message; in the catalog, of the next entity.
    pub(crate) next_sequence: u64,
}

impl Head {
    pub(crate) fn new(partition: &str, owner: &str, commit: u64, next_sequence: u64) -> Self {
        Self {
            id: HEAD.to_owned(),
            partition_key: partition.to_owned(),
            kind: "brokerHead".to_owned(),
            owner: owner.to_owned(),
            commit,
            next_sequence,
        }
    }
}

/// A document that holds bytes.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Packed<'a> {
    id: &'a str,
    partition_key: &'a str,
    #[serde(rename = "type")]
    kind: &'a str,
    /// When the newest of it came, in milliseconds; for ids.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    at: Option<u64>,
    /// In base64.
    bytes: &'a str,
}

/// What follows the bytes in [`Packed`], which are last.
const PACKED_END: &str = "\"}";

/// The state of a session.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct SessionState {
    id: String,
    partition_key: String,
    #[serde(rename = "type")]
    kind: String,
    session: String,
    /// In base64.
    state: String,
}

/// A queue or topic as the catalog has it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct EntityDocument {
    pub(crate) id: String,
    pub(crate) partition_key: String,
    #[serde(rename = "type")]
    pub(crate) kind: String,
    /// As its owner wrote it.
    pub(crate) name: String,
    /// Different for every entity there ever was.
    pub(crate) generation: u64,
    /// It is being removed; only its documents are left.
    #[serde(default)]
    pub(crate) is_gone: bool,
    pub(crate) definition: Definition,
}

/// What an entity is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Definition {
    Queue(QueueSettings),
    #[serde(rename_all = "camelCase")]
    Topic {
        settings: TopicSettings,
        /// Numbers are not used again.
        last_subscription: u16,
        subscriptions: Vec<StoredSubscription>,
    },
}

/// A subscription as the catalog has it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct StoredSubscription {
    pub(crate) number: u16,
    /// As its owner wrote it.
    pub(crate) name: String,
    pub(crate) settings: SubscriptionSettings,
}

impl EntityDocument {
    pub(crate) fn new(name: &str, generation: u64, definition: Definition) -> Self {
        Self {
            id: format!("entity-{}", name.to_ascii_lowercase().replace('/', "!")),
            partition_key: CATALOG.to_owned(),
            kind: "brokerEntity".to_owned(),
            name: name.to_owned(),
            generation,
            is_gone: false,
            definition,
        }
    }

    /// The same entity while its documents are removed; its name is free again.
    pub(crate) fn gone(&self) -> Self {
        Self { id: format!("gone-{}", self.generation), is_gone: true, ..self.clone() }
    }

    /// The partition of its documents.
    pub(crate) fn partition(&self) -> String {
        format!("{}@{}", self.name.to_ascii_lowercase(), self.generation)
    }
}

/// A document as bytes.
pub(crate) fn document(value: &impl Serialize) -> Bytes {
    Bytes::from(serde_json::to_vec(value).expect("stored types have only names as keys"))
}

/// A document read back.
pub(crate) fn parse<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T> {
    serde_json::from_slice(body)
        .map_err(|error| corrupt("read a stored document of the broker").because(error))
}

pub(crate) fn item_id(id: &str) -> ItemId {
    ItemId::new(id).expect("ids are made of letters, digits and dashes")
}

pub(crate) fn delete(id: &str) -> Operation {
    Operation::delete(item_id(id))
}

pub(crate) fn segment_id(first: u64) -> String {
    format!("seg-{first:020}")
}

pub(crate) fn ack_id(outlet: u16, first: u64) -> String {
    format!("ack-{outlet:05}-{first:020}")
}

pub(crate) fn ids_id(first: u64) -> String {
    format!("ids-{first:020}")
}

pub(crate) fn state_id(outlet: u16, session: &str) -> String {
    format!("state-{outlet:05}-{:032x}", id_hash(session))
}

/// What the id of a document says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DocumentKind {
    Head,
    Segment(u64),
    Ack(u16, u64),
    Ids,
    State(u16),
    Unknown,
}

pub(crate) fn kind_of(id: &str) -> DocumentKind {
    let parsed = match id.split_once('-') {
        None if id == HEAD => Some(DocumentKind::Head),
        Some(("seg", first)) => first.parse().ok().map(DocumentKind::Segment),
        Some(("ids", _)) => Some(DocumentKind::Ids),
        Some(("ack", rest)) => rest.split_once('-').and_then(|(outlet, first)| {
            Some(DocumentKind::Ack(outlet.parse().ok()?, first.parse().ok()?))
        }),
        Some(("state", rest)) => {
            rest.split_once('-').and_then(|(it, _)| it.parse().ok()).map(DocumentKind::State)
        }
        None | Some(_) => None,
    };
    parsed.unwrap_or(DocumentKind::Unknown)
}

pub(crate) fn segment_document(partition: &str, first: u64, bytes: &[u8]) -> Bytes {
    packed(partition, &segment_id(first), "brokerSegment", None, bytes)
}

pub(crate) fn ack_document(partition: &str, outlet: u16, first: u64, marks: &Marks) -> Bytes {
    packed(partition, &ack_id(outlet, first), "brokerAck", None, &marks.encode())
}

pub(crate) fn ids_document(
    partition: &str,
    first: u64,
    newest: Timestamp,
    hashes: &[u128],
) -> Bytes {
    let bytes: Vec<u8> = hashes.iter().flat_map(|it| it.to_le_bytes()).collect();
    packed(partition, &ids_id(first), "brokerIds", Some(newest), &bytes)
}

pub(crate) fn state_document(partition: &str, outlet: u16, session: &str, state: &[u8]) -> Bytes {
    document(&SessionState {
        id: state_id(outlet, session),
        partition_key: partition.to_owned(),
        kind: "brokerSessionState".to_owned(),
        session: session.to_owned(),
        state: STANDARD.encode(state),
    })
}

/// The bytes of a segment, of marks or of ids, and the time that stands with them.
pub(crate) fn unpack(body: &[u8]) -> Result<(Vec<u8>, Option<Timestamp>)> {
    let packed: Packed<'_> = parse(body)?;
    let bytes = decode(packed.bytes)?;
    Ok((bytes, packed.at.map(Timestamp::from_millis)))
}

pub(crate) fn unpack_hashes(bytes: &[u8]) -> Result<Vec<u128>> {
    let (hashes, []) = bytes.as_chunks() else { return Err(corrupt("read stored message ids")) };
    Ok(hashes.iter().map(|it| u128::from_le_bytes(*it)).collect())
}

/// The state in the document of a session.
pub(crate) fn unpack_state(body: &[u8]) -> Result<Bytes> {
    let stored: SessionState = parse(body)?;
    decode(&stored.state).map(Bytes::from)
}

fn packed(partition: &str, id: &str, kind: &str, at: Option<Timestamp>, bytes: &[u8]) -> Bytes {
    let at = at.map(Timestamp::as_millis);
    let empty = document(&Packed { id, partition_key: partition, kind, at, bytes: "" });
    // Base64 needs no escapes, so looking for them in megabytes would be in vain.
    let (start, end) = empty.split_at(empty.len() - PACKED_END.len());
    let encoded_length = base64::encoded_len(bytes.len(), true).expect("bytes fit into memory");
    let mut body = Vec::with_capacity(empty.len() + encoded_length);
    body.extend_from_slice(start);
    body.resize(start.len() + encoded_length, 0);
    let encoded = STANDARD.encode_slice(bytes, &mut body[start.len()..]);
    encoded.expect("there is room for all of it");
    body.extend_from_slice(end);
    Bytes::from(body)
}

fn decode(text: &str) -> Result<Vec<u8>> {
    STANDARD.decode(text).map_err(|error| corrupt("read stored bytes").because(error))
}
