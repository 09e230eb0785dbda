//! Partition keys: the values that say which logical partition an item belongs to.
//!
//! Read this file first, then `encoding` (bytes), `text` (JSON), `definition` (where in an item the
//! key is found) and `extract` (how it is found).

pub(crate) mod definition;
mod encoding;
mod extract;
pub(crate) mod tag;
#[cfg(test)]
mod tests;
pub(crate) mod text;

use std::cmp::Ordering;
use std::hash::{Hash, Hasher};
use std::slice;

use crate::{Error, Result};

/// Most components of a key; Cosmos DB has three levels.
pub(crate) const COMPONENTS_MAX: usize = 3;
/// Most bytes of all strings of a key together; Cosmos DB refuses more.
pub(crate) const STRING_BYTES_MAX: usize = 2048;

/// One value of a partition key.
///
/// Numbers compare by their bits, in the total order of IEEE 754. A number inside a
/// [`PartitionKey`] is finite and never a negative zero.
#[derive(Clone, Debug)]
pub enum PartitionKeyComponent {
    /// The item has no such property, or an object or an array there.
    Undefined,
    /// The property is `null`.
    Null,
    /// The property is `true` or `false`.
    Bool(bool),
    /// The property is a number; whole numbers beyond 2^53 lose digits, as in Cosmos DB.
    Number(f64),
    /// The property is a string.
    String(String),
}

/// The value of a partition key: one to three components, the outermost first.
///
/// ```
/// use millstream_core::PartitionKey;
///
/// assert_eq!(PartitionKey::from("a").to_string(), r#"["a"]"#);
/// assert_eq!(PartitionKey::none().to_string(), "[{}]");
/// assert_eq!(PartitionKey::of(["tenant", "user"])?, r#"["tenant", "user"]"#.parse()?);
/// # Ok::<(), millstream_core::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PartitionKey(Components);

// Nearly every key has one component; it should not cost a second allocation.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Components {
    One(PartitionKeyComponent),
    /// Two or more.
    Several(Box<[PartitionKeyComponent]>),
}

impl PartitionKey {
    /// The key of items that have no partition key property.
    #[must_use]
    pub fn none() -> Self {
        Self(Components::One(PartitionKeyComponent::Undefined))
    }

    /// The key of items whose partition key property is `null`.
    #[must_use]
    pub fn null() -> Self {
        Self(Components::One(PartitionKeyComponent::Null))
    }

    /// The key of one number. A negative zero becomes zero.
    ///
    /// # Errors
    ///
    /// `Invalid` if the number is infinite or not a number.
    pub fn number(number: f64) -> Result<Self> {
        Self::of([PartitionKeyComponent::Number(number)])
    }

    /// The key of these components, the outermost first.
    ///
    /// # Errors
    ///
    /// `Invalid` unless there are one to three components, all numbers are finite, and the strings
    /// have together at most 2048 bytes.
    pub fn of<T: Into<PartitionKeyComponent>>(
        components: impl IntoIterator<Item = T>,
    ) -> Result<Self> {
        let mut checked = Vec::with_capacity(COMPONENTS_MAX);
        for component in components.into_iter().map(Into::into) {
            if checked.len() == COMPONENTS_MAX {
                return Err(refused("it has more than three components"));
            }
            checked.push(normalised(component)?);
        }
        let key = match checked.pop() {
            None => return Err(refused("it has no components")),
            Some(only) if checked.is_empty() => Self(Components::One(only)),
            Some(last) => {
                checked.push(last);
                Self(Components::Several(checked.into()))
            }
        };
        key.check_size()?;
        Ok(key)
    }

    /// The components, the outermost first.
    #[must_use]
    pub fn components(&self) -> &[PartitionKeyComponent] {
        match &self.0 {
            Components::One(component) => slice::from_ref(component),
            Components::Several(components) => components,
        }
    }

    /// Whether `other` begins with all components of this key.
    #[must_use]
    pub fn is_prefix_of(&self, other: &Self) -> bool {
        other.components().starts_with(self.components())
    }

    /// Whether the key is one string and `json`, a valid value, is that string without escapes. If
    /// not, it may still be the same in other words.
    pub(crate) fn is_spelled_plainly(&self, json: &str) -> bool {
        let Components::One(PartitionKeyComponent::String(text)) = &self.0 else { return false };
        let inner = json.strip_prefix('"').and_then(|it| it.strip_suffix('"'));
        inner == Some(text) && text.len() <= STRING_BYTES_MAX && !text.contains('\\')
    }

    pub(crate) fn check_size(&self) -> Result<()> {
        let mut bytes = 0;
        for component in self.components() {
            if let PartitionKeyComponent::String(text) = component {
                bytes += text.len();
            }
        }
        if STRING_BYTES_MAX < bytes {
            let reason = format!("its strings have {bytes} bytes, more than {STRING_BYTES_MAX}");
            return Err(refused(reason));
        }
        Ok(())
    }
}

impl Ord for PartitionKey {
    fn cmp(&self, other: &Self) -> Ordering {
        self.components().cmp(other.components())
    }
}

impl PartialOrd for PartitionKey {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl From<&str> for PartitionKey {
    fn from(text: &str) -> Self {
        Self::from(text.to_owned())
    }
}

/// A string beyond 2048 bytes is refused when the key is used.
impl From<String> for PartitionKey {
    fn from(text: String) -> Self {
        Self(Components::One(PartitionKeyComponent::String(text)))
    }
}

impl From<bool> for PartitionKey {
    fn from(value: bool) -> Self {
        Self(Components::One(PartitionKeyComponent::Bool(value)))
    }
}

impl From<i64> for PartitionKey {
    fn from(number: i64) -> Self {
        Self(Components::One(PartitionKeyComponent::from(number)))
    }
}

impl TryFrom<f64> for PartitionKey {
    type Error = Error;

    fn try_from(number: f64) -> Result<Self> {
        Self::number(number)
    }
}

impl From<&str> for PartitionKeyComponent {
    fn from(text: &str) -> Self {
        Self::String(text.to_owned())
    }
}

impl From<String> for PartitionKeyComponent {
    fn from(text: String) -> Self {
        Self::String(text)
    }
}

impl From<bool> for PartitionKeyComponent {
    fn from(value: bool) -> Self {
        Self::Bool(value)
    }
}

impl From<i64> for PartitionKeyComponent {
    #[expect(clippy::as_conversions, reason = "Cosmos DB rounds whole numbers to the same doubles")]
    fn from(number: i64) -> Self {
        Self::Number(number as f64)
    }
}

impl From<f64> for PartitionKeyComponent {
    fn from(number: f64) -> Self {
        Self::Number(number)
    }
}

impl Ord for PartitionKeyComponent {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Number(one), Self::Number(two)) => one.total_cmp(two),
            (Self::String(one), Self::String(two)) => one.cmp(two),
            // The tags are in the order of the kinds and hold the whole of the other values.
            _ => tag::of(self).cmp(&tag::of(other)),
        }
    }
}

impl PartialOrd for PartitionKeyComponent {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for PartitionKeyComponent {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for PartitionKeyComponent {}

impl Hash for PartitionKeyComponent {
    fn hash<H: Hasher>(&self, state: &mut H) {
        tag::of(self).hash(state);
        match self {
            Self::Number(number) => number.to_bits().hash(state),
            Self::String(text) => text.hash(state),
            Self::Undefined | Self::Null | Self::Bool(_) => (),
        }
    }
}

fn normalised(component: PartitionKeyComponent) -> Result<PartitionKeyComponent> {
    let PartitionKeyComponent::Number(number) = component else {
        return Ok(component);
    };
    if !number.is_finite() {
        return Err(refused(format!("{number} is not a number of JSON")));
    }
    // Adding zero turns a negative zero into zero and changes nothing else.
    Ok(PartitionKeyComponent::Number(number + 0.0))
}

fn refused(reason: impl Into<String>) -> Error {
    Error::invalid("use the partition key", reason.into())
}
