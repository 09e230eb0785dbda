//! Numbers that a document must keep to the last digit.
//!
//! Azure Cosmos DB keeps numbers as doubles: a larger one comes back rounded, or as `1.8E+19`. Such
//! a number is written as a string; smaller ones stay numbers, as every version reads them. The
//! first version of the documents had numbers only.

use std::fmt::{Display, Formatter, Result as Formatted};

use serde::de::{Deserializer, Error, Unexpected, Visitor};
use serde::ser::Serializer;

use crate::error::{Error as ProcessorError, ErrorKind};
use crate::stored::schema::Document;

/// Up to here a double holds every whole number.
const DOUBLE_EXACT_MAX: u64 = 1 << 53;
/// The first version that reads strings.
const STRING_READER_MIN: u32 = 2;
/// The first version.
const NUMBER_READER_MIN: u32 = 1;

pub(super) fn serialize<S: Serializer>(number: &u64, serializer: S) -> Result<S::Ok, S::Error> {
    if is_string(*number) {
        return serializer.collect_str(number);
    }
    serializer.serialize_u64(*number)
}

pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    deserializer.deserialize_any(Exact)
}

/// The oldest version that reads this number as it is written.
pub(super) fn min_reader(number: u64) -> u32 {
    if is_string(number) { STRING_READER_MIN } else { NUMBER_READER_MIN }
}

/// Refuses a number that an earlier version wrote as `written`, and that a store has rounded to
/// `found`.
pub(super) fn check<T: Document>(id: &str, found: u64, written: u64) -> crate::error::Result<()> {
    if found == written || double(found) != double(written) {
        return Ok(());
    }
    let kind = ErrorKind::Store(millstream_core::ErrorKind::Corrupt);
    let attempted = format!("read the {} \"{id}\"", T::WHAT);
    Err(ProcessorError::new(kind, attempted).because(rounded(found)))
}

fn is_string(number: u64) -> bool {
    DOUBLE_EXACT_MAX < number
}

fn double(number: u64) -> Option<f64> {
    number.to_string().parse().ok()
}

/// What happened to the number, and what to do about it. Lease ids are strings, so they have kept
/// all of its digits.
fn rounded(found: impl Display) -> String {
    format!(
        "an earlier version wrote the number of the container as a JSON number, and the store, \
         which keeps numbers as doubles, has rounded it to {found}; stop every instance, then \
         either set \"container\" in the control document and in each lease to a string with the \
         digits that stand in the ids of the leases (lease:DIGITS:...), or start with another \
         processor name"
    )
}

struct Exact;

impl Visitor<'_> for Exact {
    type Value = u64;

    fn expecting(&self, f: &mut Formatter<'_>) -> Formatted {
        f.write_str("a whole number that is not negative, or a string with one")
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<u64, E> {
        Ok(number)
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<u64, E> {
        u64::try_from(number).map_err(|_| E::invalid_value(Unexpected::Signed(number), &self))
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<u64, E> {
        // A store may spell a small number like this, too; then nothing is lost.
        let text = format!("{number:.0}");
        match text.parse::<u64>() {
            Ok(whole) if number.fract() == 0.0 && !is_string(whole) => Ok(whole),
            _ if number.fract() == 0.0 && 0.0 < number => {
                Err(E::custom(rounded(format_args!("{number:e}"))))
            }
            _ => Err(E::invalid_value(Unexpected::Float(number), &self)),
        }
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<u64, E> {
        text.parse().map_err(|_| E::invalid_value(Unexpected::Str(text), &self))
    }
}
