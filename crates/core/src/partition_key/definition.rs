//! The partition key of a container: where it is found in an item and how it is hashed.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::hashing::cosmos;
use crate::partition_key::{COMPONENTS_MAX, PartitionKey, extract};
use crate::range::tiles;
use crate::{EffectiveKey, Error, KeyRange, Result};

/// Longest path.
const PATH_BYTES_MAX: usize = 1024;
/// Most segments of a path: each costs one more pass over the part of the item below it.
const SEGMENTS_MAX: usize = 32;

/// How the values of a partition key are hashed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HashKind {
    /// `Hash`, version 1: containers of old, and those created without a version.
    V1,
    /// `Hash`, version 2: one path, long values allowed.
    V2,
    /// `MultiHash`: a hierarchy of up to three paths, each hashed on its own.
    MultiHash,
}

/// Where in an item the partition key is found and how it is hashed. A container keeps it for life.
///
/// In JSON it has the form of Cosmos DB; a `Hash` without a version is version 1.
///
/// ```
/// use millstream_core::{PartitionKey, PartitionKeyDefinition};
///
/// let definition = PartitionKeyDefinition::hash("/partitionKey")?;
/// let key = definition.extract(br#"{"id": "17", "partitionKey": "a"}"#)?;
/// assert_eq!(key, PartitionKey::from("a"));
/// assert_eq!(definition.effective(&key)?.to_string(), "3A5381E1114EB8D3FCC90795045B49B7");
/// # Ok::<(), millstream_core::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PartitionKeyDefinition {
    paths: Vec<String>,
    segments: Vec<Vec<String>>,
    kind: HashKind,
}

/// The form of Cosmos DB.
#[derive(Serialize, Deserialize)]
struct Wire {
    paths: Vec<String>,
    #[serde(default)]
    kind: WireKind,
    version: Option<u8>,
}

#[derive(Default, Serialize, Deserialize)]
enum WireKind {
    #[default]
    Hash,
    MultiHash,
}

impl PartitionKeyDefinition {
    /// One path, hashed with version 2: what a new container should have.
    ///
    /// # Errors
    ///
    /// `Invalid` if the path is not a path.
    pub fn hash(path: impl Into<String>) -> Result<Self> {
        Self::new([path], HashKind::V2)
    }

    /// A hierarchy of one to three paths, the outermost first.
    ///
    /// # Errors
    ///
    /// As for [`PartitionKeyDefinition::new`].
    pub fn multi_hash<T: Into<String>>(paths: impl IntoIterator<Item = T>) -> Result<Self> {
        Self::new(paths, HashKind::MultiHash)
    }

    /// Paths such as `/a/b`; a segment with a slash or blanks at its ends is quoted, as in
    /// `/"a/b"/c`.
    ///
    /// # Errors
    ///
    /// `Invalid` if the kind does not allow so many paths, if one is not a path, or if one leads
    /// through the value of another.
    pub fn new<T: Into<String>>(
        paths: impl IntoIterator<Item = T>,
        kind: HashKind,
    ) -> Result<Self> {
        let paths: Vec<String> =
            paths.into_iter().map(Into::into).take(COMPONENTS_MAX + 1).collect();
        match (kind, paths.len()) {
            (HashKind::V1 | HashKind::V2, 1) | (HashKind::MultiHash, 1..=COMPONENTS_MAX) => (),
            (HashKind::V1 | HashKind::V2, _) => return Err(refused("Hash takes exactly one path")),
            (HashKind::MultiHash, _) => return Err(refused("MultiHash takes one to three paths")),
        }
        let mut segments: Vec<Vec<String>> = Vec::with_capacity(paths.len());
        for path in &paths {
            let new =
                parse_path(path).map_err(|reason| refused(format!("path {path:?} {reason}")))?;
            if segments.iter().any(|old| old.starts_with(&new) || new.starts_with(old)) {
                return Err(refused(format!("path {path:?} meets another path")));
            }
            segments.push(new);
        }
        Ok(Self { paths, segments, kind })
    }

    /// The paths as they were given.
    #[must_use]
    pub fn paths(&self) -> &[String] {
        &self.paths
    }

    /// The name of the property that is the whole key, if it is that simple.
    pub(crate) fn only_name(&self) -> Option<&str> {
        match &self.segments[..] {
            [only] => match &only[..] {
                [name] => Some(name),
                _ => None,
            },
            _ => None,
        }
    }

    /// The names of properties along each path.
    #[must_use]
    pub fn segments(&self) -> &[Vec<String>] {
        &self.segments
    }

    /// How values are hashed.
    #[must_use]
    pub fn kind(&self) -> HashKind {
        self.kind
    }

    /// The place of a whole key.
    ///
    /// # Errors
    ///
    /// `Invalid` if the key does not have one component for each path, or is too long.
    pub fn effective(&self, key: &PartitionKey) -> Result<EffectiveKey> {
        let (given, wanted) = (key.components().len(), self.paths.len());
        if given != wanted {
            let reason =
                format!("it has {given} components where the container has {wanted} paths");
            return Err(Error::invalid("hash the partition key", reason));
        }
        self.hashed(key)
    }

    /// The range that holds the items of this key and no others, but for collisions of the hash.
    ///
    /// With `MultiHash` a key may leave out inner components; the range then holds all keys that
    /// begin like it.
    ///
    /// # Errors
    ///
    /// `Invalid` if the key has more components than the container has paths, fewer though the kind
    /// is not `MultiHash`, or is too long.
    pub fn range_of(&self, key: &PartitionKey) -> Result<KeyRange> {
        if self.kind == HashKind::MultiHash && key.components().len() < self.paths.len() {
            let min = self.hashed(key)?;
            let max = min.prefix_end();
            return KeyRange::new(min, max);
        }
        let min = self.effective(key)?;
        let max = min.successor().expect("a hash never consists of FF alone");
        KeyRange::new(min, max)
    }

    /// The partition key of an item, read from its JSON.
    ///
    /// A missing property is [`crate::PartitionKeyComponent::Undefined`], and so is an object or
    /// an array. If a name occurs more than once in an object, the last counts. Nothing but the
    /// paths is looked at, beyond what it takes to find the end of the object.
    ///
    /// # Errors
    ///
    /// `Invalid` if the body is not a JSON object, if there is a number beyond any double at a
    /// path, or if the key is too long.
    pub fn extract(&self, body: &[u8]) -> Result<PartitionKey> {
        let attempted = "find the partition key in the item";
        let found = extract::follow(&self.segments, body)
            .map_err(|error| Error::invalid(attempted, error))?;
        let mut components = Vec::with_capacity(COMPONENTS_MAX);
        for (component, path) in found.into_iter().zip(&self.paths) {
            components.push(component.map_err(|reason| {
                Error::invalid(format!("use the value at {path:?} as partition key"), reason)
            })?);
        }
        PartitionKey::of(components)
    }

    /// Equal parts of the space that the hashes of this kind fill, in order; together they are
    /// [`KeyRange::all`].
    ///
    /// # Errors
    ///
    /// As for [`KeyRange::divide`].
    pub fn divide(&self, parts: u32) -> Result<Vec<KeyRange>> {
        match self.kind {
            HashKind::V2 | HashKind::MultiHash => KeyRange::divide(parts),
            HashKind::V1 => tiles(parts, |part| {
                let bound = u64::from(u32::MAX) * u64::from(part) / u64::from(parts);
                cosmos::v1_bound(u32::try_from(bound).expect("a part of the whole is less than it"))
            }),
        }
    }

    /// The bound that leaves half of the hashes of this kind in a range on either side, if there is
    /// one.
    #[must_use]
    pub fn middle(&self, range: &KeyRange) -> Option<EffectiveKey> {
        match self.kind {
            HashKind::V2 | HashKind::MultiHash => range.middle(),
            HashKind::V1 => {
                let (first, end) = (first_v1_hash(range.min()), first_v1_hash(range.max()));
                let middle = cosmos::v1_bound(first + end.checked_sub(first)? / 2);
                range.split_at(&middle).is_ok().then_some(middle)
            }
        }
    }

    fn hashed(&self, key: &PartitionKey) -> Result<EffectiveKey> {
        key.check_size()?;
        Ok(match (self.kind, key.components()) {
            (HashKind::V1, [component, ..]) => cosmos::v1(component),
            (HashKind::V2, [component, ..]) => cosmos::v2(component),
            (HashKind::MultiHash, components) => cosmos::multi_hash(components),
            (HashKind::V1 | HashKind::V2, []) => unreachable!("a key has at least one component"),
        })
    }
}

/// The first hash of V1 that is not below a bound, or the last of all: the bounds of hashes have
/// the order of the hashes.
fn first_v1_hash(bound: &EffectiveKey) -> u32 {
    let (mut low, mut high) = (0, u32::MAX);
    while low < high {
        let middle = low + (high - low) / 2;
        if cosmos::v1_bound(middle).trimmed() < bound.trimmed() {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    low
}

impl Serialize for PartitionKeyDefinition {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (kind, version) = match self.kind {
            HashKind::V1 => (WireKind::Hash, 1),
            HashKind::V2 => (WireKind::Hash, 2),
            HashKind::MultiHash => (WireKind::MultiHash, 2),
        };
        Wire { paths: self.paths.clone(), kind, version: Some(version) }.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for PartitionKeyDefinition {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let wire = Wire::deserialize(deserializer)?;
        let kind = match (wire.kind, wire.version) {
            (WireKind::Hash, None | Some(1)) => HashKind::V1,
            (WireKind::Hash, Some(2)) => HashKind::V2,
            // There never was another version of it.
            (WireKind::MultiHash, None | Some(2)) => HashKind::MultiHash,
            (WireKind::Hash, Some(_)) => {
                return Err(de::Error::custom("Hash has versions 1 and 2"));
            }
            (WireKind::MultiHash, Some(_)) => {
                return Err(de::Error::custom("MultiHash has version 2 only"));
            }
        };
        Self::new(wire.paths, kind).map_err(|error| de::Error::custom(error.report()))
    }
}

/// The names of properties along a path.
pub(crate) fn parse_path(path: &str) -> Result<Vec<String>, &'static str> {
    if PATH_BYTES_MAX < path.len() {
        return Err("is longer than 1024 bytes");
    }
    let mut segments = Vec::new();
    let mut rest = path;
    while let Some(segment) = rest.strip_prefix('/') {
        let (name, after) = match segment.chars().next() {
            Some(quote @ ('"' | '\'')) => quoted(&segment[1..], quote)?,
            _ => {
                let end = segment.find('/').unwrap_or(segment.len());
                (segment[..end].trim().to_owned(), &segment[end..])
            }
        };
        if name.is_empty() {
            return Err("has an empty segment");
        }
        if segments.len() == SEGMENTS_MAX {
            return Err("has more than 32 segments");
        }
        segments.push(name);
        rest = after;
    }
    match (rest, segments.is_empty()) {
        ("", false) => Ok(segments),
        (_, true) => Err("does not begin with a slash"),
        (_, false) => Err("goes on after a closing quote"),
    }
}

/// The segment up to the closing quote, and what follows it. A backslash takes the meaning from the
/// next character.
fn quoted(text: &str, quote: char) -> Result<(String, &str), &'static str> {
    let mut name = String::new();
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        match character {
            '\\' => name.push(characters.next().ok_or("ends in a backslash")?),
            it if it == quote => return Ok((name, characters.as_str())),
            it => name.push(it),
        }
    }
    Err("lacks a closing quote")
}

fn refused(reason: impl Into<String>) -> Error {
    Error::invalid("define the partition key", reason.into())
}
