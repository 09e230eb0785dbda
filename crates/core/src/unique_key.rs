//! Values that no two items of a logical partition may share.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::hashing::murmur::murmur3_128;
use crate::json::{scanner, utf8};
use crate::partition_key::definition::parse_path;
use crate::partition_key::text::scalar;
use crate::{Error, PartitionKeyComponent, Result};

/// Paths whose values, taken together, are unique within a logical partition.
///
/// A missing value counts as `null`, and so does an object or an array; numbers are compared as
/// doubles, strings character by character. In JSON it has the form of Cosmos DB.
///
/// ```
/// use millstream_core::{ContainerSettings, PartitionKeyDefinition, UniqueKey};
///
/// let settings = ContainerSettings::new(PartitionKeyDefinition::hash("/partitionKey")?)
///     .unique_key(UniqueKey::new(["/email"])?)
///     .unique_key(UniqueKey::new(["/name/first", "/name/last"])?);
/// settings.check()?;
/// # Ok::<(), millstream_core::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "Wire", into = "Wire")]
pub struct UniqueKey {
    paths: Vec<String>,
    segments: Vec<Vec<String>>,
}

/// The form of Cosmos DB.
#[derive(Serialize, Deserialize)]
struct Wire {
    paths: Vec<String>,
}

impl UniqueKey {
    /// Most unique keys of a container.
    pub const COUNT_MAX: usize = 10;
    /// Most paths of all unique keys of a container together, as in Cosmos DB.
    pub const PATHS_MAX: usize = 16;

    /// Paths such as `/a/b`, in the form that partition keys have.
    ///
    /// # Errors
    ///
    /// `Invalid` if there is no path or more than [`UniqueKey::PATHS_MAX`], if one is not a path,
    /// or if one is given twice.
    pub fn new<T: Into<String>>(paths: impl IntoIterator<Item = T>) -> Result<Self> {
        let refused = |reason: String| Err(Error::invalid("define a unique key", reason));
        let paths: Vec<String> =
            paths.into_iter().map(Into::into).take(Self::PATHS_MAX + 1).collect();
        if !(1..=Self::PATHS_MAX).contains(&paths.len()) {
            return refused("it takes one to sixteen paths".to_owned());
        }
        let mut segments: Vec<Vec<String>> = Vec::with_capacity(paths.len());
        for path in &paths {
            match parse_path(path) {
                Err(reason) => return refused(format!("path {path:?} {reason}")),
                Ok(new) if segments.contains(&new) => {
                    return refused(format!("path {path:?} is given twice"));
                }
                Ok(new) => segments.push(new),
            }
        }
        Ok(Self { paths, segments })
    }

    /// The paths as they were given.
    #[must_use]
    pub fn paths(&self) -> &[String] {
        &self.paths
    }

    /// What an item claims by each of `keys`, in their order. `body` is one that may be stored.
    pub(crate) fn claims(keys: &[Self], body: &[u8]) -> Result<Vec<Claim>> {
        if keys.is_empty() {
            return Ok(Vec::new());
        }
        let text = utf8(body)?;
        let claim = |(number, key): (usize, &Self)| {
            let values = key.segments.iter().map(|path| value_at(text, path));
            values.collect::<Result<Vec<_>, _>>().map(|values| Claim::new(number, &values))
        };
        let claims: Result<_, String> = keys.iter().enumerate().map(claim).collect();
        claims.map_err(|reason| Error::invalid("read the unique keys of an item", reason))
    }
}

impl TryFrom<Wire> for UniqueKey {
    type Error = String;

    fn try_from(wire: Wire) -> Result<Self, String> {
        Self::new(wire.paths).map_err(|error| error.report())
    }
}

impl From<UniqueKey> for Wire {
    fn from(key: UniqueKey) -> Self {
        Self { paths: key.paths }
    }
}

/// The values that an item has for a unique key of its container: at most one item of a logical
/// partition may have the same.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Claim(Box<[u8]>);

impl Claim {
    fn new(key: usize, values: &[PartitionKeyComponent]) -> Self {
        let mut bytes = vec![u8::try_from(key).expect("a container has few unique keys"), EXACT];
        for value in values {
            match value {
                PartitionKeyComponent::Undefined | PartitionKeyComponent::Null => bytes.push(0),
                PartitionKeyComponent::Bool(value) => bytes.extend([1, u8::from(*value)]),
                PartitionKeyComponent::Number(value) => {
                    bytes.push(2);
                    // There are two zeros, and they are equal.
                    let value = if *value == 0.0 { 0.0 } else { *value };
                    bytes.extend(value.to_bits().to_be_bytes());
                }
                PartitionKeyComponent::String(value) => {
                    bytes.push(3);
                    let length = u64::try_from(value.len()).expect("a usize fits into 64 bits");
                    bytes.extend(length.to_be_bytes());
                    bytes.extend(value.as_bytes());
                }
            }
        }
        if CLAIM_BYTES_MAX < bytes.len() {
            let (low, high) = murmur3_128(&bytes[2..]);
            bytes.truncate(1);
            bytes.push(HASHED);
            bytes.extend(low.to_be_bytes());
            bytes.extend(high.to_be_bytes());
        }
        Self(bytes.into())
    }

    /// What a backend keeps; never empty, and at most 256 bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The number of the unique key among those of the container.
    pub(crate) fn key(&self) -> usize {
        usize::from(self.0[0])
    }
}

impl fmt::Debug for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Claim({})", self.0.escape_ascii())
    }
}

/// What stands at a path of an object; of a repeated name the last counts.
fn value_at(body: &str, path: &[String]) -> Result<PartitionKeyComponent, String> {
    let mut text = body;
    for name in path {
        if !text.trim_start().starts_with('{') {
            return Ok(PartitionKeyComponent::Undefined);
        }
        let found = scanner::properties(text, [name.as_str()]).map_err(|it| it.to_string())?;
        match found {
            [Some(value)] => text = value,
            [None] => return Ok(PartitionKeyComponent::Undefined),
        }
    }
    Ok(scalar(text)?.unwrap_or(PartitionKeyComponent::Undefined))
}

/// Longer values are told apart by a hash of 128 bits.
const CLAIM_BYTES_MAX: usize = 256;
const EXACT: u8 = 0;
const HASHED: u8 = 1;

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(paths: &[&str], body: &str) -> Claim {
        let key = UniqueKey::new(paths.to_vec()).unwrap();
        UniqueKey::claims(&[key], body.as_bytes()).unwrap().remove(0)
    }

    #[track_caller]
    fn check_same(paths: &[&str], bodies: &[&str]) {
        for body in bodies {
            assert_eq!(claim(paths, body), claim(paths, bodies[0]), "{body}");
        }
    }

    #[track_caller]
    fn check_different(paths: &[&str], bodies: &[&str]) {
        for (index, one) in bodies.iter().enumerate() {
            for other in &bodies[index + 1..] {
                assert_ne!(claim(paths, one), claim(paths, other), "{one} {other}");
            }
        }
    }

    #[test]
    fn equal_values_claim_the_same_however_they_are_spelled() {
        check_same(&["/a"], &[r#"{"a":"é"}"#, r#" { "b":1, "\u0061" : "\u00e9" } "#]);
        check_same(&["/a"], &[r#"{"a":1}"#, r#"{"a":1.0}"#, r#"{"a":10e-1}"#]);
        check_same(&["/a"], &[r#"{"a":0}"#, r#"{"a":-0.0}"#]);
        check_same(&["/a/b"], &[r#"{"a":{"b":true}}"#, r#"{"a":1,"a":{"b":false,"b":true}}"#]);
    }

    #[test]
    fn what_is_no_value_counts_as_null() {
        let bodies = [r#"{"a":null}"#, "{}", r#"{"a":[1]}"#, r#"{"a":{"b":1}}"#];
        check_same(&["/a"], &bodies);
        check_same(&["/a/b"], &["{}", r#"{"a":1}"#, r#"{"a":[{"b":1}]}"#]);
    }

    #[test]
    fn other_values_claim_something_else() {
        let bodies = [
            r#"{"a":"1"}"#,
            r#"{"a":1}"#,
            r#"{"a":true}"#,
            r#"{"a":false}"#,
            r#"{"a":null}"#,
            r#"{"a":"A"}"#,
            r#"{"a":"a"}"#,
            r#"{"a":""}"#,
        ];
        check_different(&["/a"], &bodies);
        // What belongs to which path shows.
        check_different(&["/a", "/b"], &[r#"{"a":"xy"}"#, r#"{"b":"xy"}"#, r#"{"a":"x","b":"y"}"#]);
    }

    #[test]
    fn long_values_have_short_claims() {
        let long = |end: &str| format!(r#"{{"a":"{}{end}"}}"#, "x".repeat(5000));
        check_different(&["/a"], &[&long("1"), &long("2"), &long("")]);
        check_same(&["/a"], &[&long("1"), &long("\\u0031")]);
        assert!(claim(&["/a"], &long("1")).as_bytes().len() <= CLAIM_BYTES_MAX);
    }

    #[test]
    fn every_key_claims_for_itself() {
        let keys = ["/a", "/b"].map(|it| UniqueKey::new([it]).unwrap());
        let claims = UniqueKey::claims(&keys, br#"{"a":1,"b":1}"#).unwrap();
        assert_ne!(claims[0], claims[1]);
        assert_eq!(claims.iter().map(Claim::key).collect::<Vec<_>>(), [0, 1]);
    }

    #[test]
    fn what_is_no_unique_key_is_refused() {
        let check = |paths: &[&str], expected: &str| {
            let error = UniqueKey::new(paths.to_vec()).unwrap_err();
            assert!(error.report().contains(expected), "{}", error.report());
        };
        check(&[], "one to sixteen paths");
        check(&["/a"; 17], "one to sixteen paths");
        check(&["a"], "slash");
        check(&["/a", "/\"a\""], "given twice");
    }
}
