//! Reading and writing values as JSON.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::sync::Arc;

use bytes::Bytes;
use millstream_core::JSON_DEPTH_MAX;

use crate::resolve::VALUE_DEPTH_MAX;
use crate::value::{Number, Object, Value};

/// How deep a value nests that a query made, and what a continuation puts around it.
const MADE_DEPTH_MAX: u32 = VALUE_DEPTH_MAX + 8;

/// Reads one JSON value.
///
/// # Errors
///
/// A reason with the place of the fault.
pub(crate) fn read(bytes: &Bytes) -> Result<Value, String> {
    read_nested(bytes, JSON_DEPTH_MAX)
}

/// Reads one JSON value that a query made, which may nest deeper than items do.
///
/// # Errors
///
/// As for [`read`].
pub(crate) fn read_made(bytes: &Bytes) -> Result<Value, String> {
    read_nested(bytes, MADE_DEPTH_MAX)
}

fn read_nested(bytes: &Bytes, depth_max: u32) -> Result<Value, String> {
    let text = std::str::from_utf8(bytes).map_err(|error| error.to_string())?;
    let mut reader = Reader { text, at: 0, depth_max };
    reader.space();
    let start = reader.at;
    let value = match reader.peek() {
        // Only a whole document is worth keeping as it is spelled; numbers are kept anyway.
        Some(b'{') => {
            let object = reader.object(0)?;
            Value::object(object.with_raw(bytes.slice(start..reader.at)))
        }
        _ => reader.value(0)?,
    };
    reader.space();
    if reader.at < text.len() {
        return Err(reader.fault("end of text"));
    }
    Ok(value)
}

/// Reads only these properties of one JSON object; the others are in its text alone.
///
/// # Errors
///
/// As for [`read`], but faults in what is not read may go unnoticed.
pub(crate) fn read_properties(bytes: &Bytes, wanted: &BTreeSet<Arc<str>>) -> Result<Value, String> {
    let text = std::str::from_utf8(bytes).map_err(|error| error.to_string())?;
    let mut reader = Reader { text, at: 0, depth_max: JSON_DEPTH_MAX };
    reader.space();
    let start = reader.at;
    if reader.peek() != Some(b'{') {
        return read(bytes);
    }
    let object = reader.properties(0, Some(wanted))?;
    Ok(Value::object(object.with_raw(bytes.slice(start..reader.at))))
}

/// The value as JSON that does not show how it was written; nothing for `Undefined`.
pub(crate) fn to_plain_string(value: &Value) -> String {
    let mut out = String::new();
    write_plain(value, &mut out);
    out
}

fn write_plain(value: &Value, out: &mut String) {
    match value {
        Value::Undefined | Value::Null | Value::Bool(_) | Value::String(_) => write(value, out),
        Value::Number(number) => number.write_plain(out),
        Value::Array(items) => separated(out, "[]", items.iter(), |out, item| {
            write_plain(item, out);
        }),
        Value::Object(object) => separated(out, "{}", object.iter(), |out, (name, value)| {
            write_string(name, out);
            out.push(':');
            write_plain(value, out);
        }),
    }
}

/// Items with commas between them, in a pair of brackets.
fn separated<T>(
    out: &mut String,
    brackets: &str,
    items: impl Iterator<Item = T>,
    mut write: impl FnMut(&mut String, T),
) {
    let (open, close) = brackets.split_at(1);
    out.push_str(open);
    for (index, item) in items.enumerate() {
        if 0 < index {
            out.push(',');
        }
        write(out, item);
    }
    out.push_str(close);
}

/// The value as JSON; nothing for `Undefined`.
pub(crate) fn to_string(value: &Value) -> String {
    let mut out = String::new();
    write(value, &mut out);
    out
}

/// Appends the value as JSON; nothing for `Undefined`.
pub(crate) fn write(value: &Value, out: &mut String) {
    match value {
        Value::Undefined => (),
        Value::Null => out.push_str("null"),
        Value::Bool(true) => out.push_str("true"),
        Value::Bool(false) => out.push_str("false"),
        Value::Number(number) => number.write(out),
        Value::String(text) => write_string(text, out),
        Value::Array(items) => separated(out, "[]", items.iter(), |out, item| write(item, out)),
        Value::Object(object) => write_object(object, out),
    }
}

fn write_object(object: &Object, out: &mut String) {
    if let Some(raw) = object.raw().and_then(|it| std::str::from_utf8(it).ok()) {
        return out.push_str(raw);
    }
    separated(out, "{}", object.iter(), |out, (name, value)| {
        write_string(name, out);
        out.push(':');
        write(value, out);
    });
}

/// How many bytes [`write_string`] appends.
pub(crate) fn string_bytes(text: &str) -> usize {
    let added = |byte: u8| match byte {
        b'"' | b'\\' | b'\n' | b'\r' | b'\t' => 1,
        0..b' ' => 5,
        _ => 0,
    };
    text.len() + 2 + text.bytes().map(added).sum::<usize>()
}

/// Appends a string with its quotes.
pub(crate) fn write_string(text: &str, out: &mut String) {
    out.push('"');
    let mut rest = text;
    while let Some(at) = rest.find(|it: char| it < ' ' || it == '"' || it == '\\') {
        out.push_str(&rest[..at]);
        match rest.as_bytes()[at] {
            b'"' => out.push_str("\\\""),
            b'\\' => out.push_str("\\\\"),
            b'\n' => out.push_str("\\n"),
            b'\r' => out.push_str("\\r"),
            b'\t' => out.push_str("\\t"),
            other => write!(out, "\\u{other:04x}").expect("a string takes any text"),
        }
        rest = &rest[at + 1..];
    }
    out.push_str(rest);
    out.push('"');
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
    depth_max: u32,
}

impl Reader<'_> {
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn fault(&self, expected: &str) -> String {
        format!("expected {expected} at byte {}", self.at)
    }

    fn eat(&mut self, byte: u8) -> bool {
        let is_there = self.peek() == Some(byte);
        self.at += usize::from(is_there);
        is_there
    }

    fn value(&mut self, depth: u32) -> Result<Value, String> {
        if self.depth_max < depth {
            return Err(format!("nested deeper than {} levels", self.depth_max));
        }
        match self.peek() {
            Some(b'{') => Ok(Value::object(self.object(depth)?)),
            Some(b'[') => self.array(depth),
            Some(b'"') => Ok(Value::String(self.string()?)),
            Some(b't') => self.word("true", Value::Bool(true)),
            Some(b'f') => self.word("false", Value::Bool(false)),
            Some(b'n') => self.word("null", Value::Null),
            _ => self.number(),
        }
    }

    fn word(&mut self, word: &str, value: Value) -> Result<Value, String> {
        if !self.text[self.at..].starts_with(word) {
            return Err(self.fault("a value"));
        }
        self.at += word.len();
        Ok(value)
    }

    fn object(&mut self, depth: u32) -> Result<Object, String> {
        self.properties(depth, None)
    }

    /// An object, or only some of its properties.
    fn properties(
        &mut self,
        depth: u32,
        wanted: Option<&BTreeSet<Arc<str>>>,
    ) -> Result<Object, String> {
        self.at += 1;
        let mut entries = Vec::new();
        self.space();
        if self.eat(b'}') {
            return Ok(Object::collect(entries));
        }
        loop {
            self.space();
            if self.peek() != Some(b'"') {
                return Err(self.fault("a property name"));
            }
            let name = self.string()?;
            self.space();
            if !self.eat(b':') {
                return Err(self.fault("\":\""));
            }
            self.space();
            if wanted.is_none_or(|wanted| wanted.contains(&name)) {
                let value = self.value(depth + 1)?;
                entries.push((name, value));
            } else {
                self.pass()?;
            }
            self.space();
            if self.eat(b'}') {
                return Ok(Object::collect(entries));
            }
            if !self.eat(b',') {
                return Err(self.fault("\",\" or \"}\""));
            }
        }
    }

    /// Passes over a value without looking into it.
    fn pass(&mut self) -> Result<(), String> {
        let mut open: usize = 0;
        while let Some(byte) = self.peek() {
            match byte {
                b'"' => self.pass_string()?,
                b'{' | b'[' => {
                    open += 1;
                    self.at += 1;
                }
                b'}' | b']' | b',' if open == 0 => return Ok(()),
                b'}' | b']' => {
                    open -= 1;
                    self.at += 1;
                    if open == 0 {
                        return Ok(());
                    }
                }
                _ => self.at += 1,
            }
        }
        Err(self.fault("the end of a value"))
    }

    fn pass_string(&mut self) -> Result<(), String> {
        self.at += 1;
        loop {
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(());
                }
                Some(b'\\') => self.at += 2,
                Some(_) => self.at += 1,
                None => return Err(self.fault("the end of a string")),
            }
        }
    }

    fn array(&mut self, depth: u32) -> Result<Value, String> {
        self.at += 1;
        let mut items = Vec::new();
        self.space();
        if self.eat(b']') {
            return Ok(Value::array(items));
        }
        loop {
            self.space();
            items.push(self.value(depth + 1)?);
            self.space();
            if self.eat(b']') {
                return Ok(Value::array(items));
            }
            if !self.eat(b',') {
                return Err(self.fault("\",\" or \"]\""));
            }
        }
    }

    fn number(&mut self) -> Result<Value, String> {
        let start = self.at;
        self.eat(b'-');
        if !self.eat(b'0') && !self.digits() {
            self.at = start;
            return Err(self.fault("a value"));
        }
        if self.eat(b'.') && !self.digits() {
            return Err(self.fault("a digit"));
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.at += 1;
            if !self.eat(b'+') {
                self.eat(b'-');
            }
            if !self.digits() {
                return Err(self.fault("a digit"));
            }
        }
        let number = Number::parse(&self.text[start..self.at]);
        number.map(Value::Number).ok_or_else(|| self.fault("a number"))
    }

    fn digits(&mut self) -> bool {
        let start = self.at;
        while matches!(self.peek(), Some(b'0'..=b'9')) {
            self.at += 1;
        }
        start < self.at
    }

    fn string(&mut self) -> Result<Arc<str>, String> {
        self.at += 1;
        let start = self.at;
        loop {
            match self.peek() {
                Some(b'"') => {
                    let text = &self.text[start..self.at];
                    self.at += 1;
                    return Ok(text.into());
                }
                Some(b'\\') => break,
                Some(0..b' ') | None => return Err(self.fault("the end of a string")),
                Some(_) => self.at += 1,
            }
        }
        let mut decoded = self.text[start..self.at].to_owned();
        loop {
            let rest = &self.text[self.at..];
            let Some(character) = rest.chars().next() else {
                return Err(self.fault("the end of a string"));
            };
            self.at += character.len_utf8();
            match character {
                '"' => return Ok(decoded.into()),
                '\\' => decoded.push(self.escape()?),
                '\0'..' ' => return Err(self.fault("the end of a string")),
                other => decoded.push(other),
            }
        }
    }

    fn escape(&mut self) -> Result<char, String> {
        let Some(byte) = self.peek() else { return Err(self.fault("an escape")) };
        self.at += 1;
        Ok(match byte {
            b'"' => '"',
            b'\\' => '\\',
            b'/' => '/',
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => {
                let unit = self.hexadecimal()?;
                match unit {
                    0xD800..0xDC00 if self.text[self.at..].starts_with("\\u") => {
                        self.at += 2;
                        let low = self.hexadecimal()?;
                        char::decode_utf16([unit, low])
                            .next()
                            .and_then(Result::ok)
                            .unwrap_or(char::REPLACEMENT_CHARACTER)
                    }
                    _ => char::from_u32(unit.into()).unwrap_or(char::REPLACEMENT_CHARACTER),
                }
            }
            _ => return Err(self.fault("an escape")),
        })
    }

    fn hexadecimal(&mut self) -> Result<u16, String> {
        let digits = self.text.get(self.at..self.at + 4);
        let is_hexadecimal = |it: &&str| it.bytes().all(|it| it.is_ascii_hexdigit());
        let unit = digits.filter(is_hexadecimal).and_then(|it| u16::from_str_radix(it, 16).ok());
        self.at += 4;
        unit.ok_or_else(|| self.fault("four hexadecimal digits"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &str) {
        let found = read(&Bytes::copy_from_slice(text.as_bytes()));
        assert_eq!(found.map_or_else(|it| it, |it| to_string(&it)), expected, "{text}");
    }

    #[test]
    fn values_come_back_as_they_were() {
        for text in ["null", "true", "-0", "1e400", "18446744073709551615", "0.10", "[1,[],{}]"] {
            check(text, text);
        }
        check(r#" {"a" : 1.50, "a" : [2]} "#, r#"{"a" : 1.50, "a" : [2]}"#);
        check(r#"["\u00e4\ud83d\ude00\n\u0001\"\\"]"#, "[\"ä😀\\n\\u0001\\\"\\\\\"]");
        check(r#"["\ud83d"]"#, "[\"\u{fffd}\"]");
    }

    #[test]
    fn the_bytes_of_a_string_are_those_that_are_written() {
        for text in ["", "ä😀", "\n\r\t\"\\/", "\u{0}\u{8}\u{1f} \u{7f}"] {
            let mut out = String::new();
            write_string(text, &mut out);
            assert_eq!(string_bytes(text), out.len(), "{text:?}");
        }
    }

    #[test]
    fn some_properties_are_read_without_the_others() {
        let text =
            br#" {"a": [1, {"b": "]}\\\""}], "x": {"y": [2]}, "c": -1.50 , "x": 3, "d": ","} "#;
        let wanted = BTreeSet::from(["x".into(), "d".into()]);
        let found = read_properties(&Bytes::from_static(text), &wanted).unwrap();
        assert_eq!(to_string(&found.property("x")), "3");
        assert_eq!(to_string(&found.property("d")), "\",\"");
        assert!(found.property("a").is_undefined() && found.property("c").is_undefined());
        assert_eq!(to_string(&found), std::str::from_utf8(text).unwrap().trim());
        for text in [
            &b"{"[..],
            b"{\"a\":",
            b"{\"a\": [",
            b"{\"a\": \"",
            b"{\"a\": 1 \"b\"",
            b"{\"a\": \"\\",
        ] {
            assert!(read_properties(&Bytes::from_static(text), &wanted).is_err(), "{text:?}");
        }
    }

    #[test]
    fn of_a_repeated_property_the_last_counts() {
        let found = read(&Bytes::from_static(br#"{"a": 1, "b": 2, "a": 3}"#)).unwrap();
        assert_eq!(to_string(&found.property("a")), "3");
    }

    #[test]
    fn what_is_no_json_is_refused() {
        check("", "expected a value at byte 0");
        check("01", "expected end of text at byte 1");
        check("[1,]", "expected a value at byte 3");
        check("{\"a\"}", "expected \":\" at byte 4");
        check("\"\\u12\"", "expected four hexadecimal digits at byte 7");
        check("\"a", "expected the end of a string at byte 2");
        check("nul", "expected a value at byte 0");
        let deep = "[".repeat(1000);
        check(&deep, "nested deeper than 128 levels");
    }
}
