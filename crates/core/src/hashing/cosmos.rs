//! The three ways in which Cosmos DB turns a partition key into an effective key.

use std::borrow::Cow;

use crate::hashing::EffectiveKey;
use crate::hashing::murmur::{murmur3_32, murmur3_128};
use crate::partition_key::{COMPONENTS_MAX, PartitionKeyComponent, tag};

/// Bytes of one hashed component of V2 and MultiHash.
pub(crate) const HASH_BYTES: usize = 16;
/// UTF-16 units of a string that V1 looks at.
const V1_UNITS_MAX: usize = 100;
/// Bytes of a string that V1 keeps whole. A longer one gives one byte more and no terminator.
const V1_STRING_BYTES_MAX: usize = 100;
/// Ends a string in the input of V1. Strings may contain it; V1 is known to be weak.
const V1_STRING_END: u8 = 0x00;
/// Longest input of a hash that is put together without allocating.
const INPUT_ON_STACK_MAX: usize = 128;

/// `Hash`, version 1: 32 bits of hash, followed by the beginning of the value itself.
pub(crate) fn v1(component: &PartitionKeyComponent) -> EffectiveKey {
    let cut = match component {
        PartitionKeyComponent::String(text) => cut_for_v1(text),
        PartitionKeyComponent::Undefined
        | PartitionKeyComponent::Null
        | PartitionKeyComponent::Bool(_)
        | PartitionKeyComponent::Number(_) => Cow::Borrowed(&[][..]),
    };
    let hash = with_input(component, &cut, V1_STRING_END, murmur3_32);

    let mut bytes = Vec::with_capacity(V1_STRING_BYTES_MAX + 16);
    push_number(f64::from(hash), &mut bytes);
    match component {
        PartitionKeyComponent::Undefined
        | PartitionKeyComponent::Null
        | PartitionKeyComponent::Bool(_) => bytes.push(tag::of(component)),
        PartitionKeyComponent::Number(number) => push_number(*number, &mut bytes),
        PartitionKeyComponent::String(_) => push_string(&cut, &mut bytes),
    }
    EffectiveKey::new(&bytes)
}

/// The bound below every V1 key whose hash is at least `hash`.
pub(crate) fn v1_bound(hash: u32) -> EffectiveKey {
    let mut bytes = Vec::with_capacity(16);
    push_number(f64::from(hash), &mut bytes);
    EffectiveKey::new(&bytes)
}

/// `Hash`, version 2: 126 bits of hash.
pub(crate) fn v2(component: &PartitionKeyComponent) -> EffectiveKey {
    EffectiveKey::new(&hash_v2(component))
}

/// `MultiHash`: the version 2 hash of each component, one after the other.
pub(crate) fn multi_hash(components: &[PartitionKeyComponent]) -> EffectiveKey {
    let mut bytes = [0; HASH_BYTES * COMPONENTS_MAX];
    let (hashes, _) = bytes.as_chunks_mut::<HASH_BYTES>();
    for (hash, component) in hashes.iter_mut().zip(components) {
        *hash = hash_v2(component);
    }
    EffectiveKey::new(&bytes[..HASH_BYTES * components.len()])
}

fn hash_v2(component: &PartitionKeyComponent) -> [u8; HASH_BYTES] {
    let text = match component {
        PartitionKeyComponent::String(text) => text.as_bytes(),
        PartitionKeyComponent::Undefined
        | PartitionKeyComponent::Null
        | PartitionKeyComponent::Bool(_)
        | PartitionKeyComponent::Number(_) => &[],
    };
    let (low, high) = with_input(component, text, tag::STRING_END, murmur3_128);
    let hash = (u128::from(high) << 64) | u128::from(low);
    // Without the two highest bits every key is below the bound "FF".
    (hash & (u128::MAX >> 2)).to_be_bytes()
}

/// Hashes the component; `text` stands for the value of a string.
fn with_input<R>(
    component: &PartitionKeyComponent,
    text: &[u8],
    string_end: u8,
    hash: impl FnOnce(&[u8]) -> R,
) -> R {
    match component {
        PartitionKeyComponent::Undefined
        | PartitionKeyComponent::Null
        | PartitionKeyComponent::Bool(_) => hash(&[tag::of(component)]),
        PartitionKeyComponent::Number(number) => {
            let mut input = [tag::NUMBER; 9];
            input[1..].copy_from_slice(&number.to_le_bytes());
            hash(&input)
        }
        PartitionKeyComponent::String(_) if text.len() + 2 <= INPUT_ON_STACK_MAX => {
            let mut input = [tag::STRING; INPUT_ON_STACK_MAX];
            input[1..=text.len()].copy_from_slice(text);
            input[text.len() + 1] = string_end;
            hash(&input[..text.len() + 2])
        }
        PartitionKeyComponent::String(_) => hash(&[&[tag::STRING], text, &[string_end]].concat()),
    }
}

/// The first 100 UTF-16 units. Half a surrogate pair at the end becomes a replacement character, as
/// .NET does it.
fn cut_for_v1(text: &str) -> Cow<'_, [u8]> {
    if text.len() <= V1_UNITS_MAX {
        return Cow::Borrowed(text.as_bytes());
    }
    let mut units = 0;
    for (offset, character) in text.char_indices() {
        units += character.len_utf16();
        if V1_UNITS_MAX < units {
            let kept = &text[..offset];
            let whole = units - character.len_utf16() == V1_UNITS_MAX;
            return match whole {
                true => Cow::Borrowed(kept.as_bytes()),
                false => Cow::Owned(format!("{kept}\u{FFFD}").into_bytes()),
            };
        }
    }
    Cow::Borrowed(text.as_bytes())
}

/// Appends a number so that byte order is numeric order: eight bits, then seven at a time, the
/// lowest bit saying whether more follow. Zeros at the end are left out.
fn push_number(number: f64, bytes: &mut Vec<u8>) {
    const SIGN: u64 = 1 << 63;
    let bits = number.to_bits();
    let ordered = if bits < SIGN { bits ^ SIGN } else { bits.wrapping_neg() };

    let [first, ..] = ordered.to_be_bytes();
    bytes.extend([tag::NUMBER, first]);
    let mut rest = ordered << 8;
    loop {
        let [next, ..] = rest.to_be_bytes();
        rest <<= 7;
        if rest == 0 {
            bytes.push(next & 0xFE);
            return;
        }
        bytes.push(next | 1);
    }
}

/// Appends a string with every byte one higher, so that its terminator is below all of them.
fn push_string(text: &[u8], bytes: &mut Vec<u8>) {
    bytes.push(tag::STRING);
    // UTF-8 has no byte 0xFF, so that nothing wraps.
    bytes.extend(text.iter().take(V1_STRING_BYTES_MAX + 1).map(|byte| byte.wrapping_add(1)));
    if text.len() <= V1_STRING_BYTES_MAX {
        bytes.push(0);
    }
}
