//! The words of JSON: strings, numbers, literals and the space between them.
//!
//! A cursor is small and copied into a local variable by whoever reads in a loop, so that its
//! position stays in a register; that, not the checks, decides the speed. Hence the forced
//! inlining.

/// What is wrong with a text, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason} at byte {at}")]
pub(crate) struct Fault {
    reason: &'static str,
    at: usize,
}

/// A place in the bytes of a text.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cursor<'a> {
    bytes: &'a [u8],
    pub(super) at: usize,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self { bytes: text.as_bytes(), at: 0 }
    }

    /// The next byte, 0 at the end. No JSON token starts with 0, so the two need no telling apart.
    #[inline(always)]
    pub(super) fn peek(self) -> u8 {
        if self.at < self.bytes.len() { self.bytes[self.at] } else { 0 }
    }

    #[inline(always)]
    pub(super) fn take(&mut self, byte: u8) -> bool {
        if self.peek() != byte {
            return false;
        }
        self.at += 1;
        true
    }

    #[inline(always)]
    pub(super) fn space(&mut self) {
        while let b' ' | b'\n' | b'\r' | b'\t' = self.peek() {
            self.at += 1;
        }
    }

    /// Reads a string and says whether it has escapes.
    #[inline(always)]
    pub(super) fn string(&mut self) -> Result<bool, Fault> {
        if !self.take(b'"') {
            return Err(self.fault("expected a string"));
        }
        let mut escaped = false;
        loop {
            self.at += plain_length(&self.bytes[self.at..]);
            match self.bytes.get(self.at) {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(escaped);
                }
                Some(b'\\') => {
                    self.at = self.after_escape()?;
                    escaped = true;
                }
                Some(_) => return Err(self.fault("control character without an escape")),
                None => return Err(self.fault("string without an end")),
            }
        }
    }

    /// Reads a number of any size and precision.
    #[inline(always)]
    pub(super) fn number(&mut self) -> Result<(), Fault> {
        self.take(b'-');
        if !self.take(b'0') {
            self.digits()?;
        }
        if self.take(b'.') {
            self.digits()?;
        }
        if let b'e' | b'E' = self.peek() {
            self.at += 1;
            if let b'+' | b'-' = self.peek() {
                self.at += 1;
            }
            self.digits()?;
        }
        Ok(())
    }

    #[inline(always)]
    pub(super) fn word(&mut self, word: &str) -> Result<(), Fault> {
        if !self.bytes[self.at..].starts_with(word.as_bytes()) {
            return Err(self.fault("expected a value"));
        }
        self.at += word.len();
        Ok(())
    }

    /// Reads a key and its colon, goes to the value, and says where the key ends and whether it has
    /// escapes.
    #[inline(always)]
    pub(super) fn key(&mut self) -> Result<(usize, bool), Fault> {
        let escaped = self.string()?;
        let end = self.at;
        self.space();
        if !self.take(b':') {
            return Err(self.fault("expected \":\""));
        }
        self.space();
        Ok((end, escaped))
    }

    #[cold]
    pub(super) fn fault(self, reason: &'static str) -> Fault {
        Fault { reason, at: self.at }
    }

    #[inline(always)]
    fn digits(&mut self) -> Result<(), Fault> {
        if !self.peek().is_ascii_digit() {
            return Err(self.fault("expected a digit"));
        }
        while self.peek().is_ascii_digit() {
            self.at += 1;
        }
        Ok(())
    }

    /// Half of a surrogate pair is refused: it is no character, and a reader of the item would
    /// stumble over it.
    #[inline(never)]
    fn after_escape(self) -> Result<usize, Fault> {
        match self.bytes.get(self.at + 1) {
            Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => Ok(self.at + 2),
            Some(b'u') => match self.hexadecimal(2) {
                None => Err(self.fault("expected four hexadecimal digits in the escape")),
                Some(0xD800..=0xDBFF) if self.low_surrogate_follows() => Ok(self.at + 12),
                Some(0xD800..=0xDFFF) => Err(self.fault("half of a surrogate pair")),
                Some(_) => Ok(self.at + 6),
            },
            _ => Err(self.fault("unknown escape")),
        }
    }

    fn low_surrogate_follows(self) -> bool {
        self.bytes[self.at + 6..].starts_with(b"\\u")
            && matches!(self.hexadecimal(8), Some(0xDC00..=0xDFFF))
    }

    /// Four digits, `ahead` bytes from here.
    fn hexadecimal(self, ahead: usize) -> Option<u32> {
        let digits = self.bytes.get(self.at + ahead..)?.first_chunk::<4>()?;
        digits.iter().try_fold(0, |sum, digit| Some(sum << 4 | char::from(*digit).to_digit(16)?))
    }
}

/// How many bytes come before the first quote, backslash or control character.
///
/// Eight bytes at a time: a byte of `hits` has its high bit set if the same byte of the text is one
/// of them. Borrows can set bits above the first hit, never below it.
#[inline(always)]
fn plain_length(bytes: &[u8]) -> usize {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const HIGH: u64 = 0x8080_8080_8080_8080;
    let zeros = |word: u64| word.wrapping_sub(ONES) & !word;
    let mut length = 0;
    while let Some(chunk) = bytes[length..].first_chunk::<8>() {
        let word = u64::from_le_bytes(*chunk);
        let quotes = zeros(word ^ (ONES * 0x22));
        let backslashes = zeros(word ^ (ONES * 0x5C));
        let controls = word.wrapping_sub(ONES * 0x20) & !word;
        let hits = (quotes | backslashes | controls) & HIGH;
        if hits != 0 {
            let within = hits.trailing_zeros() / 8;
            return length + usize::try_from(within).expect("it is below 8");
        }
        length += 8;
    }
    length + short_plain_length(&bytes[length..])
}

/// The same byte by byte, for the last few of a text.
#[inline(never)]
fn short_plain_length(bytes: &[u8]) -> usize {
    bytes.iter().take_while(|byte| 0x20 <= **byte && !matches!(byte, b'"' | b'\\')).count()
}
