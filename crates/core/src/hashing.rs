//! Effective keys: the space that ranges divide, and the hashes that place a partition key in it.
//!
//! Not here: which hash a container uses (`partition_key::definition`) and how ranges compare
//! bounds (`range`).

pub(crate) mod cosmos;
pub(crate) mod murmur;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::{Error, Result};

/// Longest effective key. Cosmos DB reserves as much for three components of V1.
const BYTES_MAX: usize = 336;
/// Bytes kept without allocating: a V2 hash, or one with a byte of bound behind it.
const SHORT_MAX: usize = 22;

/// The place of a partition key, or of the bound of a range, in the effective partition key space.
///
/// Compares as bytes. A bound may be written shorter or longer by zeros at its end;
/// [`crate::KeyRange`] knows, and [`EffectiveKey::trimmed`] gives the form in which such bounds are
/// equal.
///
/// ```
/// use millstream_core::EffectiveKey;
///
/// let key: EffectiveKey = "1fff".parse()?;
/// assert_eq!(key.to_string(), "1FFF");
/// assert!(EffectiveKey::MIN < key && key < EffectiveKey::MAX);
/// # Ok::<(), millstream_core::Error>(())
/// ```
#[derive(Clone)]
pub struct EffectiveKey(Stored);

#[derive(Clone)]
enum Stored {
    Short { length: u8, bytes: [u8; SHORT_MAX] },
    Long(Box<[u8]>),
}

impl EffectiveKey {
    /// The beginning of the space, written as nothing.
    pub const MIN: Self = Self(Stored::Short { length: 0, bytes: [0; SHORT_MAX] });
    /// The end of the space, written "FF". Every key is below it.
    pub const MAX: Self = {
        let mut bytes = [0; SHORT_MAX];
        bytes[0] = 0xFF;
        Self(Stored::Short { length: 1, bytes })
    };

    /// Takes the bytes of a key that was stored or sent.
    ///
    /// # Errors
    ///
    /// `Invalid` if there are more bytes than any effective key has.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        if BYTES_MAX < bytes.len() {
            return Err(refused(format!("it has {} bytes, more than {BYTES_MAX}", bytes.len())));
        }
        Ok(Self::new(bytes))
    }

    pub(crate) fn new(bytes: &[u8]) -> Self {
        match u8::try_from(bytes.len()) {
            Ok(length) if bytes.len() <= SHORT_MAX => {
                let mut short = [0; SHORT_MAX];
                short[..bytes.len()].copy_from_slice(bytes);
                Self(Stored::Short { length, bytes: short })
            }
            Ok(_) | Err(_) => Self(Stored::Long(bytes.into())),
        }
    }

    /// The bytes; their order is the order of keys.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        match &self.0 {
            Stored::Short { length, bytes } => &bytes[..usize::from(*length)],
            Stored::Long(bytes) => bytes,
        }
    }

    /// The bytes without zeros at the end.
    ///
    /// Two bounds of ranges are the same exactly when these bytes are. A key lies at or after a
    /// bound exactly when its bytes are not less than these, which is what a scan over stored keys
    /// needs.
    #[must_use]
    pub fn trimmed(&self) -> &[u8] {
        let bytes = self.as_bytes();
        let length = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        &bytes[..length]
    }

    /// The next key of the same width, if there is one.
    pub(crate) fn successor(&self) -> Option<Self> {
        let mut next = self.as_bytes().to_vec();
        let place = next.iter().rposition(|byte| *byte != 0xFF)?;
        next[place] += 1;
        next[place + 1..].fill(0);
        Some(Self::new(&next))
    }

    /// The end of everything that begins with this key.
    pub(crate) fn prefix_end(&self) -> Self {
        Self::new(&[self.as_bytes(), &[0xFF]].concat())
    }
}

impl PartialEq for EffectiveKey {
    fn eq(&self, other: &Self) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}

impl Eq for EffectiveKey {}

impl Ord for EffectiveKey {
    fn cmp(&self, other: &Self) -> Ordering {
        self.as_bytes().cmp(other.as_bytes())
    }
}

impl PartialOrd for EffectiveKey {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Hash for EffectiveKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_bytes().hash(state);
    }
}

impl fmt::Debug for EffectiveKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EffectiveKey({self})")
    }
}

impl fmt::Display for EffectiveKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const DIGITS: [char; 16] =
            ['0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'A', 'B', 'C', 'D', 'E', 'F'];
        let mut text = String::with_capacity(2 * self.as_bytes().len());
        for byte in self.as_bytes() {
            text.push(DIGITS[usize::from(byte >> 4)]);
            text.push(DIGITS[usize::from(byte & 0x0F)]);
        }
        f.pad(&text)
    }
}

impl FromStr for EffectiveKey {
    type Err = Error;

    /// Reads hexadecimal digits of either case.
    fn from_str(text: &str) -> Result<Self> {
        if 2 * BYTES_MAX < text.len() {
            return Err(refused(format!("it has {} digits, more than any key", text.len())));
        }
        let (pairs, odd) = text.as_bytes().as_chunks::<2>();
        if !odd.is_empty() {
            return Err(refused("it has an odd number of digits"));
        }
        let mut bytes = [0; BYTES_MAX];
        for (byte, [high, low]) in bytes.iter_mut().zip(pairs) {
            match (digit(*high), digit(*low)) {
                (Some(high), Some(low)) => *byte = (high << 4) | low,
                _ => return Err(refused("it has a character that is not a hexadecimal digit")),
            }
        }
        Ok(Self::new(&bytes[..pairs.len()]))
    }
}

impl Serialize for EffectiveKey {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for EffectiveKey {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Cow::<str>::deserialize(deserializer)?;
        text.parse().map_err(|error: Error| de::Error::custom(error.report()))
    }
}

fn digit(character: u8) -> Option<u8> {
    match character {
        b'0'..=b'9' => Some(character - b'0'),
        b'A'..=b'F' => Some(character - b'A' + 10),
        b'a'..=b'f' => Some(character - b'a' + 10),
        _ => None,
    }
}

fn refused(reason: impl Into<String>) -> Error {
    Error::invalid("read an effective partition key", reason.into())
}
