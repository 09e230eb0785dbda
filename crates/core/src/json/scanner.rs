//! Reads JSON text by position: checks every byte, builds nothing.
//!
//! Numbers are checked by their spelling only, so one that fits no machine type is as good as any
//! other.

use std::borrow::Cow;

use crate::json::JSON_DEPTH_MAX;
use crate::json::cursor::{Cursor, Fault};

// One bit of a `u128` remembers for each open level whether it is an object.
const _: () = assert!(JSON_DEPTH_MAX <= u128::BITS);

/// A string as it stands in the text, quotes included.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RawString<'a> {
    raw: &'a str,
    escaped: bool,
}

/// A place in a text that is being read.
#[derive(Debug)]
pub(crate) struct Scanner<'a> {
    text: &'a str,
    cursor: Cursor<'a>,
    depth: u32,
}

impl<'a> RawString<'a> {
    /// What the string says.
    pub(crate) fn decoded(self) -> Cow<'a, str> {
        decode(self.raw).expect("the scanner has checked it")
    }

    /// Whether the string means `name`, however it is spelled.
    #[inline]
    pub(crate) fn says(self, name: &str) -> bool {
        if self.escaped {
            return decode(self.raw).is_some_and(|decoded| decoded == name);
        }
        self.raw.len() == name.len() + 2 && self.raw.as_bytes()[1..].starts_with(name.as_bytes())
    }
}

impl<'a> Scanner<'a> {
    pub(crate) fn new(text: &'a str) -> Self {
        Self { text, cursor: Cursor::new(text), depth: 0 }
    }

    pub(crate) fn position(&self) -> usize {
        self.cursor.at
    }

    /// The text from `start` to here.
    pub(crate) fn since(&self, start: usize) -> &'a str {
        &self.text[start..self.cursor.at]
    }

    /// The next byte, 0 at the end.
    pub(crate) fn peek(&self) -> u8 {
        self.cursor.peek()
    }

    pub(crate) fn space(&mut self) {
        self.cursor.space();
    }

    /// Checks that nothing but space follows.
    pub(crate) fn end(&mut self) -> Result<(), Fault> {
        self.space();
        if self.cursor.at < self.text.len() {
            return Err(self.cursor.fault("expected the end"));
        }
        Ok(())
    }

    /// Reads an object.
    ///
    /// `member` is called with each key and where it starts while the scanner stands on the value,
    /// and must read it.
    pub(crate) fn object(
        &mut self,
        mut member: impl FnMut(&mut Self, RawString<'a>, usize) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        if self.peek() != b'{' {
            return Err(self.cursor.fault("expected an object"));
        }
        self.enter()?;
        self.space();
        if self.cursor.take(b'}') {
            self.depth -= 1;
            return Ok(());
        }
        loop {
            self.space();
            let start = self.cursor.at;
            let mut cursor = self.cursor;
            let (end, escaped) = cursor.key()?;
            self.cursor = cursor;
            member(self, RawString { raw: &self.text[start..end], escaped }, start)?;
            self.space();
            if self.cursor.take(b'}') {
                self.depth -= 1;
                return Ok(());
            }
            if !self.cursor.take(b',') {
                return Err(self.cursor.fault("expected \",\" or \"}\""));
            }
        }
    }

    /// Reads an array.
    ///
    /// `element` is called with each index while the scanner stands on the value, and must read it.
    pub(crate) fn array(
        &mut self,
        mut element: impl FnMut(&mut Self, usize) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        if self.peek() != b'[' {
            return Err(self.cursor.fault("expected an array"));
        }
        self.enter()?;
        self.space();
        if self.cursor.take(b']') {
            self.depth -= 1;
            return Ok(());
        }
        for index in 0.. {
            self.space();
            element(self, index)?;
            self.space();
            if self.cursor.take(b']') {
                break;
            }
            if !self.cursor.take(b',') {
                return Err(self.cursor.fault("expected \",\" or \"]\""));
            }
        }
        self.depth -= 1;
        Ok(())
    }

    /// Reads a string.
    pub(crate) fn string(&mut self) -> Result<RawString<'a>, Fault> {
        let start = self.cursor.at;
        let escaped = self.cursor.string()?;
        Ok(RawString { raw: self.since(start), escaped })
    }

    /// Reads any value. Does not recurse: a hostile text costs no stack.
    pub(crate) fn value(&mut self) -> Result<(), Fault> {
        let levels_max = JSON_DEPTH_MAX - self.depth;
        self.cursor.at = after_value(self.cursor, levels_max)?;
        Ok(())
    }

    fn enter(&mut self) -> Result<(), Fault> {
        if JSON_DEPTH_MAX <= self.depth {
            return Err(self.cursor.fault(TOO_DEEP));
        }
        self.depth += 1;
        self.cursor.at += 1;
        Ok(())
    }
}

/// The texts of the values that `names` have in the object `text`; the last one counts where a name
/// is repeated.
pub(crate) fn properties<'a, const N: usize>(
    text: &'a str,
    names: [&str; N],
) -> Result<[Option<&'a str>; N], Fault> {
    let mut found = [None; N];
    let mut scanner = Scanner::new(text);
    scanner.space();
    scanner.object(|scanner, key, _| {
        let start = scanner.position();
        scanner.value()?;
        if let Some(index) = names.iter().position(|name| key.says(name)) {
            found[index] = Some(scanner.since(start));
        }
        Ok(())
    })?;
    scanner.end()?;
    Ok(found)
}

/// What the checked value `raw` says if it is a string.
pub(crate) fn decode(raw: &str) -> Option<Cow<'_, str>> {
    let inner = raw.strip_prefix('"')?.strip_suffix('"')?;
    if !inner.contains('\\') {
        return Some(Cow::Borrowed(inner));
    }
    serde_json::from_str(raw).ok().map(Cow::Owned)
}

const TOO_DEEP: &str = "nested deeper than 128 levels";

fn after_value(mut cursor: Cursor<'_>, levels_max: u32) -> Result<usize, Fault> {
    let mut levels = 0;
    // The lowest bit belongs to the innermost level; 1 is an object.
    let mut objects: u128 = 0;
    loop {
        cursor.space();
        match cursor.peek() {
            b'"' => {
                cursor.string()?;
            }
            b'-' | b'0'..=b'9' => cursor.number()?,
            bracket @ (b'{' | b'[') => {
                if levels_max <= levels {
                    return Err(cursor.fault(TOO_DEEP));
                }
                cursor.at += 1;
                cursor.space();
                let is_object = bracket == b'{';
                if !cursor.take(if is_object { b'}' } else { b']' }) {
                    levels += 1;
                    objects = objects << 1 | u128::from(is_object);
                    if is_object {
                        cursor.key()?;
                    }
                    continue;
                }
            }
            b't' => cursor.word("true")?,
            b'f' => cursor.word("false")?,
            b'n' => cursor.word("null")?,
            _ => return Err(cursor.fault("expected a value")),
        }
        // A value has ended; so may the levels around it.
        loop {
            if levels == 0 {
                return Ok(cursor.at);
            }
            let in_object = objects & 1 == 1;
            cursor.space();
            if cursor.take(b',') {
                if in_object {
                    cursor.space();
                    cursor.key()?;
                }
                break;
            }
            if !cursor.take(if in_object { b'}' } else { b']' }) {
                let wanted =
                    if in_object { "expected \",\" or \"}\"" } else { "expected \",\" or \"]\"" };
                return Err(cursor.fault(wanted));
            }
            objects >>= 1;
            levels -= 1;
        }
    }
}
