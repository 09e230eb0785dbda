//! Numbers that a document must keep to the last digit.
//!
//! Azure Cosmos DB keeps numbers as doubles: a larger one comes back rounded, or as `1.8E+19`. Such
//! a number is written as a string; smaller ones stay numbers, as every version reads them.

use serde::{Deserialize, Deserializer, Serializer, de::Error};

/// Up to here a double holds every whole number.
const DOUBLE_EXACT_MAX: u64 = 1 << 53;

#[derive(Deserialize)]
#[serde(untagged)]
enum Written {
    Number(u64),
    Text(String),
}

pub(super) fn serialize<S: Serializer>(number: &u64, serializer: S) -> Result<S::Ok, S::Error> {
    if *number <= DOUBLE_EXACT_MAX {
        return serializer.serialize_u64(*number);
    }
    serializer.collect_str(number)
}

pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    match Written::deserialize(deserializer)? {
        Written::Number(number) => Ok(number),
        Written::Text(text) => text.parse().map_err(D::Error::custom),
    }
}
