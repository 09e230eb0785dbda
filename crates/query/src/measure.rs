//! How large a value is: as text, and in memory.

use std::collections::BTreeSet;
use std::fmt::{self, Write};
use std::sync::Arc;

use crate::json;
use crate::value::{Object, Value, whole, write_double};

/// Bytes of text that are measured, or written, in the time of one step of evaluation.
pub(crate) const MEASURE_STEP_BYTES: usize = 128;
/// Memory of values that is gone through in that time, however short their text is.
pub(crate) const MEASURE_STEP_MEMORY: usize = 8 * size_of::<Value>();

/// What counts the owners of a value that can be shared.
const SHARED_BYTES: usize = size_of::<usize>() * 2;

/// What an array of so many values takes up, but for their parts.
pub(crate) fn array_memory(length: usize) -> usize {
    SHARED_BYTES + size_of::<Vec<Value>>() + length.saturating_mul(size_of::<Value>())
}

/// What an object of so many properties takes up, but for their names and their parts.
pub(crate) fn object_memory(properties: usize) -> usize {
    /// An entry, and its place in the order of names.
    const PROPERTY_BYTES: usize = size_of::<(Arc<str>, Value)>() + size_of::<usize>();
    SHARED_BYTES + size_of::<Object>() + properties.saturating_mul(PROPERTY_BYTES)
}

/// What a string of so many bytes takes up.
pub(crate) fn string_memory(bytes: usize) -> usize {
    SHARED_BYTES + bytes
}

/// About what the value takes up that a text of JSON spells, with the text: no less than that, but
/// for the room that lists have for more.
pub(crate) fn memory_of_json(text: &str) -> usize {
    let (mut memory, mut is_in_string, mut is_escaped) = (text.len() * 2, false, false);
    for byte in text.bytes() {
        if is_in_string {
            is_in_string = is_escaped || byte != b'"';
            is_escaped = !is_escaped && byte == b'\\';
            continue;
        }
        is_in_string = byte == b'"';
        memory += match byte {
            b'"' => SHARED_BYTES,
            b'[' => array_memory(1),
            b'{' => object_memory(0),
            b':' => object_memory(1) - object_memory(0),
            b',' => size_of::<Value>(),
            _ => 0,
        };
    }
    memory
}

/// About how many bytes a value takes up. What several parts share counts for each of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Measure {
    /// As JSON.
    pub(crate) text: usize,
    pub(crate) memory: usize,
}

impl Measure {
    /// Measures a value; none if its text is longer than that. Nobody looks further then, since
    /// queries within each other can make a value of more parts than could ever be counted.
    pub(crate) fn of(value: &Value, text_bytes_max: usize) -> Option<Self> {
        let mut measure = Self::default();
        measure.add(value, text_bytes_max).then_some(measure)
    }

    /// Adds a value; false if that is too much.
    fn add(&mut self, value: &Value, text_bytes_max: usize) -> bool {
        self.memory += size_of::<Value>();
        let (text, memory) = match value {
            Value::Undefined => (0, 0),
            Value::Null | Value::Bool(_) => (4, 0),
            Value::Number(number) => match number.text() {
                Some(text) => (text.len(), SHARED_BYTES + text.len()),
                None => (double_bytes(number.as_double()), 0),
            },
            Value::String(text) => (json::string_bytes(text), SHARED_BYTES + text.len()),
            Value::Array(items) => {
                let unused = items.capacity() - items.len();
                self.memory += SHARED_BYTES + size_of_val(&**items) + unused * size_of::<Value>();
                self.text += 2;
                let is_whole = items.iter().all(|it| {
                    self.text += 1;
                    self.add(it, text_bytes_max)
                });
                return is_whole && self.text <= text_bytes_max;
            }
            Value::Object(object) => return self.add_object(object, text_bytes_max),
        };
        self.memory += memory;
        self.text = self.text.saturating_add(text);
        self.text <= text_bytes_max
    }

    fn add_object(&mut self, object: &Object, text_bytes_max: usize) -> bool {
        self.memory += SHARED_BYTES + object.memory();
        let Some(raw) = object.raw() else {
            self.text += 2;
            let mut properties = object.iter();
            let is_whole = properties.all(|it| self.add_property(it, text_bytes_max));
            return is_whole && self.text <= text_bytes_max;
        };
        // A document is written as it is spelled, and its parts are nobody else's.
        let text = self.text.saturating_add(raw.len());
        object.iter().for_each(|property| {
            self.add_property(property, usize::MAX);
        });
        self.memory += raw.len();
        self.text = text;
        self.text <= text_bytes_max
    }

    fn add_property(&mut self, (name, value): (&Arc<str>, &Value), text_bytes_max: usize) -> bool {
        self.text = self.text.saturating_add(name.len() + 4);
        self.memory += SHARED_BYTES + name.len();
        self.add(value, text_bytes_max)
    }
}

/// What several values share, to count it once.
#[derive(Debug, Default)]
pub(crate) struct Parts {
    known: BTreeSet<*const u8>,
    /// How often something was looked for among them.
    pub(crate) looks: usize,
}

impl Parts {
    /// Adds a value; returns the bytes of memory that it takes up besides what is known already.
    pub(crate) fn add(&mut self, value: &Value) -> usize {
        let parts = match value {
            Value::Undefined | Value::Null | Value::Bool(_) => 0,
            Value::Number(number) => number.text().map_or(0, |it| self.text(it)),
            Value::String(text) => self.text(text),
            Value::Array(items) if self.is_new(Arc::as_ptr(items).cast()) => {
                let unused = items.capacity() - items.len();
                let items: usize = items.iter().map(|it| self.add(it)).sum();
                SHARED_BYTES + size_of::<Vec<Value>>() + unused * size_of::<Value>() + items
            }
            Value::Object(object) if self.is_new(Arc::as_ptr(object).cast()) => {
                let raw = object.raw().filter(|it| self.is_new(it.as_ptr()));
                let raw = raw.map_or(0, |it| it.len());
                let properties =
                    object.iter().map(|(name, value)| self.text(name) + self.add(value));
                SHARED_BYTES + object.memory() + raw + properties.sum::<usize>()
            }
            Value::Array(_) | Value::Object(_) => 0,
        };
        size_of::<Value>() + parts
    }

    fn text(&mut self, text: &str) -> usize {
        if self.is_new(text.as_ptr()) { SHARED_BYTES + text.len() } else { 0 }
    }

    fn is_new(&mut self, part: *const u8) -> bool {
        self.looks += 1;
        self.known.insert(part)
    }
}

/// How many bytes [`write_double`] appends.
fn double_bytes(double: f64) -> usize {
    // Most numbers are whole, and quicker counted than written.
    if let Some(whole) = whole(double) {
        let digits = whole.unsigned_abs().checked_ilog10().map_or(1, |it| it + 1);
        return usize::from(whole < 0) + usize::try_from(digits).unwrap_or(usize::MAX);
    }
    let mut counter = Counter(0);
    write_double(double, &mut counter);
    counter.0
}

/// Counts what is written to it.
struct Counter(usize);

impl Write for Counter {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0 += text.len();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bytes_of_a_number_are_those_that_are_written() {
        for double in [0.0, -0.0, 7.0, -10.0, 999.0, 1e15, -1.5, 0.1, 1e-7, -2e300, 1e20, 1e21] {
            let mut out = String::new();
            write_double(double, &mut out);
            assert_eq!(double_bytes(double), out.len(), "{out}");
        }
    }

    #[test]
    fn a_text_takes_up_about_as_much_as_the_value_that_it_spells() {
        for text in ["[0,0,0,0]", "{\"a\":1,\"b\":[]}", "[{},[[]],\"a,[\\\"{:\",1e400]", "[]"] {
            let value = json::read(&bytes::Bytes::from(text)).unwrap();
            let (memory, found) = (Measure::of(&value, 1000).unwrap().memory, memory_of_json(text));
            assert!((memory / 4..memory * 2).contains(&found), "{found} of {memory}: {text}");
        }
        // What stands within strings makes no values.
        let text = "\"[[[[\\\"[[[,,,,\"";
        assert_eq!(memory_of_json(text), text.len() * 2 + SHARED_BYTES);
    }

    #[test]
    fn what_is_held_is_counted() {
        let memory = |text: &'static str| {
            let value = json::read(&bytes::Bytes::from_static(text.as_bytes())).unwrap();
            Measure::of(&value.element(0), 1000).unwrap().memory
        };
        // On machines of 64 bits: the value itself, two counts, and what they count.
        assert_eq!(memory("[null]"), 32);
        assert_eq!(memory("[1]"), 32);
        assert_eq!(memory("[\"abc\"]"), 32 + 16 + 3);
        assert_eq!(memory("[1.50]"), 32 + 16 + 4);
        assert_eq!(memory("[[]]"), 32 + 16 + 24);
        assert_eq!(memory("[{}]"), 32 + 16 + 80);
        // There is room for more than one.
        assert!((32 + 16 + 24 + 32..250).contains(&memory("[[null]]")));
        assert!((32 + 16 + 80 + 48 + 16..450).contains(&memory("[{\"a\":null}]")));
    }
}
