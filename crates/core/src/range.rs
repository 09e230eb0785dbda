//! Ranges of the effective partition key space: what a container is divided into and what a feed is
//! read from.

#[cfg(test)]
mod tests;

use std::fmt;
use std::hash::{Hash, Hasher};
use std::str::FromStr;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::{EffectiveKey, Error, Result};

/// Longest text of a feed range; two of the longest keys fit in it.
const TEXT_BYTES_MAX: usize = 4096;
/// Most ranges of a container.
const PARTS_MAX: u32 = 10_000;
/// The largest hash of V2.
const HASH_MAX: u128 = u128::MAX >> 2;

/// The number of a range within its container. Numbers are never used again.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct RangeId(pub u32);

/// A part of the effective partition key space: everything from `min` up to, but not including,
/// `max`. Never empty.
///
/// Zeros at the end of a bound mean nothing: two ranges are equal if their bounds differ by these
/// alone. The bounds are given back as they came. Serialises as the `Range` of Cosmos DB. Sort
/// ranges by `min().trimmed()`; there is no `Ord`, whose `min` and `max` would hide those of the
/// range.
///
/// ```
/// use millstream_core::KeyRange;
///
/// let halves = KeyRange::divide(2)?;
/// assert_eq!(halves[0].to_string(), "[,1FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFF)");
/// assert!(KeyRange::all().covers(&halves[1]));
/// assert!(!halves[0].overlaps(&halves[1]));
/// # Ok::<(), millstream_core::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct KeyRange {
    min: EffectiveKey,
    max: EffectiveKey,
}

/// A range as Cosmos DB writes it; .NET leaves out the two flags.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Wire {
    min: EffectiveKey,
    max: EffectiveKey,
    #[serde(default = "yes")]
    is_min_inclusive: bool,
    #[serde(default)]
    is_max_inclusive: bool,
}

/// A feed range as Cosmos DB writes it.
#[derive(Serialize, Deserialize)]
struct FeedRange {
    #[serde(rename = "Range")]
    range: KeyRange,
}

impl KeyRange {
    /// The range from `min` up to `max`. A `max` beyond the end of the space is taken for the end.
    ///
    /// # Errors
    ///
    /// `Invalid` if nothing lies between them.
    pub fn new(min: EffectiveKey, max: EffectiveKey) -> Result<Self> {
        let max = max.min(EffectiveKey::MAX);
        if min.trimmed() < max.trimmed() {
            return Ok(Self { min, max });
        }
        Err(Error::invalid(format!("make the range [{min},{max})"), "it would be empty"))
    }

    /// The whole space.
    #[must_use]
    pub fn all() -> Self {
        Self { min: EffectiveKey::MIN, max: EffectiveKey::MAX }
    }

    /// Equal parts of the space that V2 and MultiHash fill, in order; together they are
    /// [`KeyRange::all`].
    ///
    /// Keys of V1 would all be in the first part; see [`crate::PartitionKeyDefinition::divide`].
    ///
    /// # Errors
    ///
    /// `Invalid` unless there are 1 to 10 000 parts.
    pub fn divide(parts: u32) -> Result<Vec<Self>> {
        tiles(parts, |part| {
            let (parts, part) = (u128::from(parts), u128::from(part));
            // The whole multiplied by the part would overflow.
            let bound = HASH_MAX / parts * part + HASH_MAX % parts * part / parts;
            EffectiveKey::new(&bound.to_be_bytes())
        })
    }

    /// The first place in the range.
    #[must_use]
    pub fn min(&self) -> &EffectiveKey {
        &self.min
    }

    /// The first place after the range.
    #[must_use]
    pub fn max(&self) -> &EffectiveKey {
        &self.max
    }

    /// Whether the key lies in the range.
    #[must_use]
    pub fn contains(&self, key: &EffectiveKey) -> bool {
        let (min, max) = self.bounds();
        min <= key.as_bytes() && key.as_bytes() < max
    }

    /// Whether some place lies in both ranges.
    #[must_use]
    pub fn overlaps(&self, other: &Self) -> bool {
        let ((min, max), (other_min, other_max)) = (self.bounds(), other.bounds());
        min < other_max && other_min < max
    }

    /// Whether all of `other` lies in this range.
    #[must_use]
    pub fn covers(&self, other: &Self) -> bool {
        let ((min, max), (other_min, other_max)) = (self.bounds(), other.bounds());
        min <= other_min && other_max <= max
    }

    /// What lies in both ranges.
    #[must_use]
    pub fn intersect(&self, other: &Self) -> Option<Self> {
        if !self.overlaps(other) {
            return None;
        }
        let min = if self.min.trimmed() < other.min.trimmed() { &other.min } else { &self.min };
        let max = if other.max.trimmed() < self.max.trimmed() { &other.max } else { &self.max };
        Some(Self { min: min.clone(), max: max.clone() })
    }

    /// The ranges below and from `key`.
    ///
    /// # Errors
    ///
    /// `Invalid` if one of them would be empty.
    pub fn split_at(&self, key: &EffectiveKey) -> Result<(Self, Self)> {
        let (min, max) = self.bounds();
        if min < key.trimmed() && key.trimmed() < max {
            let low = Self { min: self.min.clone(), max: key.clone() };
            let high = Self { min: key.clone(), max: self.max.clone() };
            return Ok((low, high));
        }
        Err(Error::invalid(
            format!("split the range {self} at {key}"),
            "the place is not inside the range",
        ))
    }

    /// The bound that leaves half of the hashes of V2 and MultiHash on either side, if there is
    /// one.
    ///
    /// Keys of V1 would all be on one side; see [`crate::PartitionKeyDefinition::middle`].
    #[must_use]
    pub fn middle(&self) -> Option<EffectiveKey> {
        let (min, max) = (first_hash(&self.min), first_hash(&self.max).min(HASH_MAX));
        let distance = max.checked_sub(min)?;
        let middle = EffectiveKey::new(&(min + distance / 2).to_be_bytes());
        self.split_at(&middle).is_ok().then_some(middle)
    }

    /// The JSON of a Cosmos DB feed range: `{"Range":{"min":"","max":"FF",…}}`.
    #[must_use]
    pub fn to_json(&self) -> String {
        serde_json::to_string(&FeedRange { range: self.clone() })
            .expect("two strings and two flags are JSON")
    }

    /// Reads the JSON of a Cosmos DB feed range.
    ///
    /// # Errors
    ///
    /// `Invalid` if it is too long, not of that form or empty, or if it stands for one partition
    /// key instead of a range.
    pub fn from_json(text: &str) -> Result<Self> {
        check_length(text)?;
        serde_json::from_str(text)
            .map(|feed_range: FeedRange| feed_range.range)
            .map_err(|error| Error::invalid("read the feed range", error))
    }

    /// The text of a feed range as the SDKs hand it out: the JSON in base64.
    #[must_use]
    pub fn to_base64(&self) -> String {
        STANDARD.encode(self.to_json())
    }

    /// Reads the text of a feed range.
    ///
    /// # Errors
    ///
    /// `Invalid` if it is not base64, and as for [`KeyRange::from_json`].
    pub fn from_base64(text: &str) -> Result<Self> {
        let attempted = "read the feed range";
        check_length(text)?;
        let json =
            STANDARD.decode(text).map_err(|error| Error::invalid(attempted, error.to_string()))?;
        Self::from_json(str::from_utf8(&json).map_err(|error| Error::invalid(attempted, error))?)
    }

    fn bounds(&self) -> (&[u8], &[u8]) {
        (self.min.trimmed(), self.max.trimmed())
    }
}

impl PartialEq for KeyRange {
    fn eq(&self, other: &Self) -> bool {
        self.bounds() == other.bounds()
    }
}

impl Eq for KeyRange {}

impl Hash for KeyRange {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.bounds().hash(state);
    }
}

impl fmt::Display for KeyRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{},{})", self.min, self.max)
    }
}

impl Serialize for KeyRange {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (min, max) = (self.min.clone(), self.max.clone());
        Wire { min, max, is_min_inclusive: true, is_max_inclusive: false }.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for KeyRange {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let wire = Wire::deserialize(deserializer)?;
        if !wire.is_min_inclusive {
            return Err(de::Error::custom("a range without its lower bound is not supported"));
        }
        let max = match wire.is_max_inclusive {
            // SDKs write a single key as a range from it to itself.
            true if !wire.max.as_bytes().is_empty() => {
                wire.max.successor().unwrap_or(EffectiveKey::MAX)
            }
            true | false => wire.max,
        };
        Self::new(wire.min, max).map_err(|error| de::Error::custom(error.report()))
    }
}

impl fmt::Display for RangeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for RangeId {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let number = text.parse().map_err(|error| Error::invalid("read a range id", error))?;
        Ok(Self(number))
    }
}

/// Ranges that together are the whole space, with `bound(n)` between the parts `n - 1` and `n`.
pub(crate) fn tiles(parts: u32, bound: impl Fn(u32) -> EffectiveKey) -> Result<Vec<KeyRange>> {
    if parts == 0 || PARTS_MAX < parts {
        let attempted = format!("divide a container into {parts} ranges");
        return Err(Error::invalid(attempted, "there can be 1 to 10000"));
    }
    let mut min = EffectiveKey::MIN;
    let bounds = (1..parts).map(bound).chain([EffectiveKey::MAX]);
    bounds.map(|max| KeyRange::new(std::mem::replace(&mut min, max.clone()), max)).collect()
}

/// The first component of a bound, filled up with zeros.
fn first_hash(bound: &EffectiveKey) -> u128 {
    let mut bytes = [0; 16];
    for (to, from) in bytes.iter_mut().zip(bound.as_bytes()) {
        *to = *from;
    }
    u128::from_be_bytes(bytes)
}

fn check_length(text: &str) -> Result<()> {
    if TEXT_BYTES_MAX < text.len() {
        let reason = format!("it has {} bytes, more than {TEXT_BYTES_MAX}", text.len());
        return Err(Error::invalid("read the feed range", reason));
    }
    Ok(())
}

fn yes() -> bool {
    true
}
