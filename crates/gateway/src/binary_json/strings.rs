//! Strings of binary JSON: plain, from a dictionary, packed, or a reference to an earlier one.

use std::borrow::Cow;

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE};

use crate::binary_json::reader::{Fault, Reader, Width};

/// Strings that Cosmos DB writes as one byte, in the order of their numbers.
const DICTIONARY: [&str; 32] = [
    "$s",
    "$t",
    "$v",
    "_attachments",
    "_etag",
    "_rid",
    "_self",
    "_ts",
    "attachments/",
    "coordinates",
    "geometry",
    "GeometryCollection",
    "id",
    "url",
    "Value",
    "label",
    "LineString",
    "link",
    "MultiLineString",
    "MultiPoint",
    "MultiPolygon",
    "name",
    "Name",
    "Type",
    "Point",
    "Polygon",
    "properties",
    "type",
    "value",
    "Feature",
    "FeatureCollection",
    "_id",
];

const LOWER_HEX: &[u8; 16] = b"0123456789abcdef";
const UPPER_HEX: &[u8; 16] = b"0123456789ABCDEF";
const DATE_TIME: &[u8; 16] = b" 0123456789:-.TZ";

/// The string that `marker` introduces; the marker itself has been read and stands at `start`.
pub(super) fn read<'a>(
    reader: &mut Reader<'a>,
    marker: u8,
    start: usize,
) -> Result<Cow<'a, str>, Fault> {
    let target = match marker {
        0xC3 => reader.length(Width::One)?,
        0xC4 => reader.length(Width::Two)?,
        0xC5 => {
            let [low, middle, high] = reader.chunk()?;
            usize::try_from(u32::from_le_bytes([low, middle, high, 0]))
                .map_err(|_| Fault::At(start, "a reference is too large"))?
        }
        0xC6 => reader.length(Width::Four)?,
        _ => return read_here(reader, marker, start),
    };
    // A reference to a reference could go round in circles.
    match reader.marker_at(target) {
        Some(0xC3..=0xC6) | None => Err(Fault::At(start, "a reference leads to no string")),
        Some(marker) => {
            let mut there = reader.at_offset(target);
            there.byte()?;
            read_here(&mut there, marker, target)
        }
    }
}

fn read_here<'a>(reader: &mut Reader<'a>, marker: u8, start: usize) -> Result<Cow<'a, str>, Fault> {
    match marker {
        0x20..=0x3F => Ok(Cow::Borrowed(DICTIONARY[usize::from(marker - 0x20)])),
        0x40..=0x67 => Err(Fault::At(start, "a string is from a dictionary of the sender")),
        0x71 => base64(reader, Width::One, false),
        0x72 => base64(reader, Width::Two, false),
        0x73 => base64(reader, Width::One, true),
        0x74 => base64(reader, Width::Two, true),
        0x75 => Ok(guid(reader.chunk()?, LOWER_HEX).into()),
        0x76 => Ok(guid(reader.chunk()?, UPPER_HEX).into()),
        0x77 => Ok(format!("\"{}\"", guid(reader.chunk()?, LOWER_HEX)).into()),
        0x78 => from_table(reader, LOWER_HEX),
        0x79 => from_table(reader, UPPER_HEX),
        0x7A => from_table(reader, DATE_TIME),
        0x7B => packed(reader, 4, Width::One),
        0x7C => packed(reader, 5, Width::One),
        0x7D => packed(reader, 6, Width::One),
        0x7E => packed(reader, 7, Width::One),
        0x7F => packed(reader, 7, Width::Two),
        0x80..=0xBF => plain(reader, usize::from(marker & 0x7F)),
        0xC0 => {
            let length = reader.length(Width::One)?;
            plain(reader, length)
        }
        0xC1 => {
            let length = reader.length(Width::Two)?;
            plain(reader, length)
        }
        0xC2 => {
            let length = reader.length(Width::Four)?;
            plain(reader, length)
        }
        0xD3 => Ok(guid_value(reader.chunk()?).into()),
        0xDD => binary(reader, Width::One),
        0xDE => binary(reader, Width::Two),
        0xDF => binary(reader, Width::Four),
        _ => Err(Fault::At(start, "expected a string")),
    }
}

fn plain<'a>(reader: &mut Reader<'a>, length: usize) -> Result<Cow<'a, str>, Fault> {
    let bytes = reader.take(length)?;
    let text = std::str::from_utf8(bytes).map_err(|_| reader.fault("a string is not UTF-8"))?;
    Ok(Cow::Borrowed(text))
}

/// A number of groups of four characters, how many of the last are padding (as its complement if
/// the padding is left out), and the bytes.
fn base64<'a>(
    reader: &mut Reader<'a>,
    width: Width,
    url_safe: bool,
) -> Result<Cow<'a, str>, Fault> {
    let groups = reader.length(width)?;
    let padding = reader.byte()?;
    let (padding, written) = if 2 < padding { (!padding, false) } else { (padding, true) };
    let padding = usize::from(padding);
    if 2 < padding || (groups == 0 && 0 < padding) {
        return Err(reader.fault("a base64 string has an impossible padding"));
    }
    let bytes = reader.take(groups * 3 - padding)?;
    let engine = if url_safe { &URL_SAFE } else { &STANDARD };
    let mut text = engine.encode(bytes);
    if !written {
        text.truncate(groups * 4 - padding);
    }
    Ok(text.into())
}

/// Two characters a byte, the low half first.
fn guid(bytes: [u8; 16], digits: &[u8; 16]) -> String {
    let mut text = String::with_capacity(36);
    for (index, byte) in bytes.into_iter().enumerate() {
        if matches!(index, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        text.push(char::from(digits[usize::from(byte & 0x0F)]));
        text.push(char::from(digits[usize::from(byte >> 4)]));
    }
    text
}

/// The layout of a GUID in .NET: three little-endian numbers, then bytes in order.
fn guid_value(bytes: [u8; 16]) -> String {
    let order = [3, 2, 1, 0, 5, 4, 7, 6, 8, 9, 10, 11, 12, 13, 14, 15];
    let swapped = order.map(|index: usize| bytes[index].rotate_left(4));
    guid(swapped, LOWER_HEX)
}

fn from_table<'a>(reader: &mut Reader<'a>, table: &[u8; 16]) -> Result<Cow<'a, str>, Fault> {
    let length = reader.length(Width::One)?;
    let bytes = reader.take(length.div_ceil(2))?;
    let mut text = String::with_capacity(length + 1);
    for byte in bytes {
        text.push(char::from(table[usize::from(byte & 0x0F)]));
        text.push(char::from(table[usize::from(byte >> 4)]));
    }
    text.truncate(length);
    Ok(text.into())
}

/// Characters of `bits` bits, the lowest first. Fewer than seven are counted from a first
/// character, which stands before them.
fn packed<'a>(reader: &mut Reader<'a>, bits: usize, width: Width) -> Result<Cow<'a, str>, Fault> {
    let length = reader.length(width)?;
    let first = if bits < 7 { reader.byte()? } else { 0 };
    let bytes = reader.take((length * bits).div_ceil(8))?;
    let mask = (1u16 << bits) - 1;
    let mut text = String::with_capacity(length);
    for index in 0..length {
        let (byte, shift) = (index * bits / 8, index * bits % 8);
        let pair = [bytes[byte], bytes.get(byte + 1).copied().unwrap_or(0)];
        let [low, _] = (u16::from_le_bytes(pair) >> shift & mask).to_le_bytes();
        let code = first.checked_add(low).filter(u8::is_ascii);
        let code = code.ok_or_else(|| reader.fault("a packed string has a strange character"))?;
        text.push(char::from(code));
    }
    Ok(text.into())
}

/// JSON has no bytes; base64 is what stands for them everywhere.
fn binary<'a>(reader: &mut Reader<'a>, width: Width) -> Result<Cow<'a, str>, Fault> {
    let length = reader.length(width)?;
    Ok(STANDARD.encode(reader.take(length)?).into())
}
