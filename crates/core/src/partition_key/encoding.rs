//! The stored form of a partition key.
//!
//! One byte with the number of components, then for each its tag and its value: eight little-endian
//! bytes of a number, the UTF-8 of a string and a byte that UTF-8 never contains. The components
//! are written as V2 hashes them.

use crate::partition_key::{
    COMPONENTS_MAX, PartitionKey, PartitionKeyComponent, STRING_BYTES_MAX, tag,
};
use crate::{Error, ErrorKind, Result};

impl PartitionKey {
    /// Appends the stored form.
    ///
    /// No stored form is the beginning of another, so that anything may follow it:
    /// [`PartitionKey::decode`] finds the end. Equal keys have equal bytes. The order of the bytes
    /// means nothing.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let components = self.components();
        out.push(u8::try_from(components.len()).expect("a key has at most three components"));
        for component in components {
            out.push(tag::of(component));
            match component {
                PartitionKeyComponent::Number(number) => out.extend(number.to_le_bytes()),
                PartitionKeyComponent::String(text) => {
                    out.extend_from_slice(text.as_bytes());
                    out.push(tag::STRING_END);
                }
                PartitionKeyComponent::Undefined
                | PartitionKeyComponent::Null
                | PartitionKeyComponent::Bool(_) => (),
            }
        }
    }

    /// Reads the stored form at the beginning of `bytes` and gives back what follows it.
    ///
    /// # Errors
    ///
    /// `Corrupt` if `bytes` does not begin with what [`PartitionKey::encode`] writes.
    pub fn decode(bytes: &[u8]) -> Result<(Self, &[u8])> {
        let (count, mut rest) = bytes.split_first().ok_or_else(|| corrupt("there are no bytes"))?;
        let count = usize::from(*count);
        if count == 0 || COMPONENTS_MAX < count {
            return Err(corrupt("the number of components is not one to three"));
        }
        let mut components = Vec::with_capacity(count);
        for _ in 0..count {
            let (component, after) = decode_component(rest)?;
            components.push(component);
            rest = after;
        }
        let key = Self::of(components).map_err(|error| corrupt(error.report()))?;
        Ok((key, rest))
    }
}

fn decode_component(bytes: &[u8]) -> Result<(PartitionKeyComponent, &[u8])> {
    let (kind, rest) = bytes.split_first().ok_or_else(|| corrupt("a component is missing"))?;
    match *kind {
        tag::UNDEFINED => Ok((PartitionKeyComponent::Undefined, rest)),
        tag::NULL => Ok((PartitionKeyComponent::Null, rest)),
        tag::FALSE => Ok((PartitionKeyComponent::Bool(false), rest)),
        tag::TRUE => Ok((PartitionKeyComponent::Bool(true), rest)),
        tag::NUMBER => {
            let (number, rest) =
                rest.split_first_chunk().ok_or_else(|| corrupt("a number is cut off"))?;
            let number = f64::from_le_bytes(*number);
            if number == 0.0 && number.is_sign_negative() {
                return Err(corrupt("a negative zero is never written"));
            }
            Ok((PartitionKeyComponent::Number(number), rest))
        }
        tag::STRING => {
            let end = rest.iter().take(STRING_BYTES_MAX + 1).position(|it| *it == tag::STRING_END);
            let end = end.ok_or_else(|| corrupt("a string has no end"))?;
            let text = str::from_utf8(&rest[..end]).map_err(corrupt)?;
            Ok((PartitionKeyComponent::String(text.to_owned()), &rest[end + 1..]))
        }
        other => Err(corrupt(format!("there is no component of kind {other}"))),
    }
}

fn corrupt(reason: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
    Error::new(ErrorKind::Corrupt, "decode a partition key").because(reason)
}
