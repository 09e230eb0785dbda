//! Reads the binary JSON of Cosmos DB, which some SDKs send instead of text.
//!
//! A value is a marker byte and what the marker asks for. The text that is made of it is what is
//! stored; answers are always text, which every SDK accepts. `strings` has the many ways to write a
//! string.

mod reader;
mod strings;
#[cfg(test)]
mod tests;

use millstream_core::{Error, ErrorKind, Result};

use crate::binary_json::reader::{Fault, Reader};

/// First byte of binary JSON; no JSON text begins with it.
pub(crate) const PREAMBLE: u8 = 0x80;

/// Whether a body is binary JSON.
pub(crate) fn is_binary(body: &[u8]) -> bool {
    body.first() == Some(&PREAMBLE)
}

/// The text of one value in binary JSON.
///
/// A few bytes can refer to a long string again and again, so the text is bounded on its own.
///
/// # Errors
///
/// `Invalid` if it is not binary JSON, is nested deeper than
/// [`JSON_DEPTH_MAX`](millstream_core::JSON_DEPTH_MAX), or has something JSON cannot express;
/// `TooLarge` if the text would exceed `text_bytes_max`.
pub(crate) fn decode(body: &[u8], text_bytes_max: usize) -> Result<Vec<u8>> {
    if !is_binary(body) {
        return Err(Error::invalid("read binary JSON", "it does not begin with the byte 0x80"));
    }
    let mut reader = Reader::new(body, text_bytes_max);
    let read = reader.value(0).and_then(|()| reader.end());
    match read {
        Ok(()) => Ok(reader.into_text()),
        Err(Fault::TooLarge) => {
            let reason = format!("its text would exceed {text_bytes_max} bytes");
            Err(Error::new(ErrorKind::TooLarge, "read binary JSON").because(reason))
        }
        Err(Fault::At(at, reason)) => {
            Err(Error::invalid("read binary JSON", format!("{reason} at byte {at}")))
        }
    }
}
