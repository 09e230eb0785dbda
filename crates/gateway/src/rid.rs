//! Resource ids: the names that Cosmos DB gives to resources, in base64 with `-` for `/`.
//!
//! A database has 4 bytes, a container 8 (its database first), an item or a range 16 (its container
//! first). Clients take them apart, so the layout is part of the protocol.

use base64::Engine;
use base64::alphabet::Alphabet;
use base64::engine::general_purpose::{GeneralPurpose, PAD};
use millstream_core::{ItemId, PartitionKey, RangeId, ResourceId};

/// Marks the second half of a container's id.
const CONTAINER_BIT: u32 = 0x8000_0000;
/// The kind of a resource below a container stands in the top four bits of its last eight bytes.
const KIND_SHIFT: u32 = 60;
const RANGE_KIND: u64 = 5;
/// Longest text that is looked at: 16 bytes in base64.
const TEXT_BYTES_MAX: usize = 24;

/// What a resource id names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rid {
    /// A database, by its number.
    Database(u32),
    /// A container.
    Container(ResourceId),
    /// An item, by [`item_number`].
    Item(ResourceId, u64),
    /// A range.
    Range(ResourceId, RangeId),
}

impl Rid {
    /// The text form.
    pub(crate) fn encode(self) -> String {
        match self {
            Self::Database(number) => base64().encode(number.to_be_bytes()),
            Self::Container(id) => base64().encode(container_bytes(id)),
            Self::Item(id, number) => below(id, number & !(0xF << KIND_SHIFT)),
            Self::Range(id, range) => below(id, RANGE_KIND << KIND_SHIFT | u64::from(range.0)),
        }
    }

    /// Reads the text form; none if it is not one of ours.
    pub(crate) fn decode(text: &str) -> Option<Self> {
        if TEXT_BYTES_MAX < text.len() {
            return None;
        }
        let bytes = base64().decode(text).ok()?;
        let (database, rest) = bytes.split_first_chunk::<4>()?;
        let database = u32::from_be_bytes(*database);
        if rest.is_empty() {
            return Some(Self::Database(database));
        }
        let (container, rest) = rest.split_first_chunk::<4>()?;
        let container = u32::from_be_bytes(*container);
        if container & CONTAINER_BIT == 0 {
            return None;
        }
        let id = ResourceId { database, container: container & !CONTAINER_BIT };
        if rest.is_empty() {
            return Some(Self::Container(id));
        }
        let last = u64::from_le_bytes(rest.try_into().ok()?);
        match last >> KIND_SHIFT {
            0 => Some(Self::Item(id, last)),
            RANGE_KIND => {
                let number = last & !(0xF << KIND_SHIFT);
                Some(Self::Range(id, RangeId(u32::try_from(number).ok()?)))
            }
            _ => None,
        }
    }
}

/// The number of an item in its resource id.
///
/// Backends do not number items, so it is a hash of what names the item: stable over restarts and
/// rewrites. An item that was deleted and created again has the same, unlike in Cosmos DB.
pub(crate) fn item_number(key: &PartitionKey, id: &ItemId) -> u64 {
    let mut text = key.to_string();
    text.push('\n');
    text.push_str(id.as_str());
    xxhash_rust::xxh3::xxh3_64(text.as_bytes()) & !(0xF << KIND_SHIFT)
}

/// The resource id of an item.
pub(crate) fn item(container: ResourceId, key: &PartitionKey, id: &ItemId) -> String {
    Rid::Item(container, item_number(key, id)).encode()
}

fn below(id: ResourceId, last: u64) -> String {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&container_bytes(id));
    bytes[8..].copy_from_slice(&last.to_le_bytes());
    base64().encode(bytes)
}

fn container_bytes(id: ResourceId) -> [u8; 8] {
    let mut bytes = [0; 8];
    bytes[..4].copy_from_slice(&id.database.to_be_bytes());
    bytes[4..].copy_from_slice(&(id.container | CONTAINER_BIT).to_be_bytes());
    bytes
}

/// Base64 as resource ids are written: `-` stands for `/`, `+` stays.
pub(crate) fn base64() -> &'static GeneralPurpose {
    static BASE64: std::sync::LazyLock<GeneralPurpose> = std::sync::LazyLock::new(|| {
        let letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+-";
        let alphabet = Alphabet::new(letters).expect("these are 64 different letters");
        GeneralPurpose::new(&alphabet, PAD)
    });
    &BASE64
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: ResourceId = ResourceId { database: 7, container: 300 };

    #[test]
    fn a_resource_id_survives_its_text_form() {
        let item = Rid::Item(ID, 0x0FFF_FFFF_FFFF_FFFF);
        for rid in [Rid::Database(7), Rid::Container(ID), item, Rid::Range(ID, RangeId(9))] {
            assert_eq!(Rid::decode(&rid.encode()), Some(rid));
        }
    }

    #[test]
    fn lengths_are_those_clients_check() {
        let bytes = |rid: Rid| base64().decode(rid.encode()).unwrap().len();
        assert_eq!(bytes(Rid::Database(1)), 4);
        assert_eq!(bytes(Rid::Container(ID)), 8);
        assert_eq!(bytes(Rid::Item(ID, 1)), 16);
    }

    #[test]
    fn foreign_text_is_refused() {
        for text in ["", "a", "contacts", "AAAA/w==", "AAAAAA", "AAAAAQAAAAE=", "a very long name "]
        {
            assert_eq!(Rid::decode(text), None, "{text}");
        }
        assert_eq!(Rid::decode(&"A".repeat(1000)), None);
    }

    #[test]
    fn items_of_different_partitions_differ() {
        let id = ItemId::new("1").unwrap();
        assert_ne!(item(ID, &"a".into(), &id), item(ID, &"b".into(), &id));
    }
}
