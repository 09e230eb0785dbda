//! Values, containers and numbers of binary JSON.

use millstream_core::JSON_DEPTH_MAX;

use crate::binary_json::strings;

/// Why a body is refused.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// What is wrong, and where.
    At(usize, &'static str),
    /// The text has become longer than allowed.
    TooLarge,
}

/// A place in the bytes, and the text made so far.
#[derive(Debug)]
pub(super) struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    text: Vec<u8>,
    text_bytes_max: usize,
}

/// How many bytes a length or a count has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Width {
    One,
    Two,
    Four,
}

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8], text_bytes_max: usize) -> Self {
        let text = Vec::with_capacity((bytes.len() + bytes.len() / 4).min(text_bytes_max));
        Self { bytes, at: 1, text, text_bytes_max }
    }

    /// A reader of the string at `target`, an offset that an earlier one was written at.
    pub(super) fn at_offset(&self, target: usize) -> Reader<'a> {
        Reader { bytes: self.bytes, at: target, text: Vec::new(), text_bytes_max: 0 }
    }

    pub(super) fn into_text(self) -> Vec<u8> {
        self.text
    }

    pub(super) fn end(&self) -> Result<(), Fault> {
        if self.at == self.bytes.len() { Ok(()) } else { Err(self.fault("more than one value")) }
    }

    /// Reads one value and writes its text. `depth` counts the containers around it.
    pub(super) fn value(&mut self, depth: u32) -> Result<(), Fault> {
        let start = self.at;
        let marker = self.byte()?;
        match marker {
            0x00..=0x1F => self.write(marker.to_string().as_bytes()),
            0xD0 => self.write(b"null"),
            0xD1 => self.write(b"false"),
            0xD2 => self.write(b"true"),
            0xC7..=0xCE | 0xD7..=0xDC => self.number(marker),
            0xE0..=0xE7 => self.array(marker, depth),
            0xE8..=0xEF => self.object(marker, depth),
            0xF0..=0xF3 => self.uniform(marker, depth),
            _ => {
                let string = strings::read(self, marker, start)?;
                self.write_string(&string)
            }
        }
    }

    pub(super) fn byte(&mut self) -> Result<u8, Fault> {
        let byte = *self.bytes.get(self.at).ok_or_else(|| self.fault("it ends too early"))?;
        self.at += 1;
        Ok(byte)
    }

    pub(super) fn take(&mut self, length: usize) -> Result<&'a [u8], Fault> {
        let rest = &self.bytes[self.at..];
        let taken = rest.get(..length).ok_or_else(|| self.fault("it ends too early"))?;
        self.at += length;
        Ok(taken)
    }

    pub(super) fn chunk<const N: usize>(&mut self) -> Result<[u8; N], Fault> {
        let found = self.bytes[self.at..].first_chunk::<N>();
        let chunk = *found.ok_or_else(|| self.fault("it ends too early"))?;
        self.at += N;
        Ok(chunk)
    }

    pub(super) fn length(&mut self, width: Width) -> Result<usize, Fault> {
        let length = match width {
            Width::One => u32::from(self.byte()?),
            Width::Two => u32::from(u16::from_le_bytes(self.chunk()?)),
            Width::Four => u32::from_le_bytes(self.chunk()?),
        };
        usize::try_from(length).map_err(|_| self.fault("a length is too large"))
    }

    pub(super) fn fault(&self, reason: &'static str) -> Fault {
        Fault::At(self.at, reason)
    }

    /// The byte at an absolute offset.
    pub(super) fn marker_at(&self, offset: usize) -> Option<u8> {
        self.bytes.get(offset).copied()
    }

    fn write(&mut self, text: &[u8]) -> Result<(), Fault> {
        if self.text_bytes_max < self.text.len() + text.len() {
            return Err(Fault::TooLarge);
        }
        self.text.extend_from_slice(text);
        Ok(())
    }

    fn write_string(&mut self, string: &str) -> Result<(), Fault> {
        // Looked at first, because quoting allocates.
        if self.text_bytes_max < self.text.len() + string.len() {
            return Err(Fault::TooLarge);
        }
        let quoted = serde_json::to_string(string).expect("every string has a JSON spelling");
        self.write(quoted.as_bytes())
    }

    fn number(&mut self, marker: u8) -> Result<(), Fault> {
        let text = match marker {
            0xC8 | 0xD7 => self.byte()?.to_string(),
            0xD8 => i8::from_le_bytes(self.chunk()?).to_string(),
            0xC9 | 0xD9 => i16::from_le_bytes(self.chunk()?).to_string(),
            0xCA | 0xDA => i32::from_le_bytes(self.chunk()?).to_string(),
            0xCB | 0xDB => i64::from_le_bytes(self.chunk()?).to_string(),
            0xDC => u32::from_le_bytes(self.chunk()?).to_string(),
            0xC7 => u64::from_le_bytes(self.chunk()?).to_string(),
            0xCD => {
                let single = f32::from_le_bytes(self.chunk()?);
                self.double(f64::from(single))?
            }
            0xCC | 0xCE => {
                let double = f64::from_le_bytes(self.chunk()?);
                self.double(double)?
            }
            _ => return Err(self.fault("no kind of number has this marker")),
        };
        self.write(text.as_bytes())
    }

    /// A double that is whole loses its fraction, as in the text of Cosmos DB.
    fn double(&self, number: f64) -> Result<String, Fault> {
        if !number.is_finite() {
            return Err(self.fault("a number is not finite"));
        }
        let text = serde_json::to_string(&number).expect("a finite number has a JSON spelling");
        Ok(text.strip_suffix(".0").map_or(text.clone(), str::to_owned))
    }

    fn array(&mut self, marker: u8, depth: u32) -> Result<(), Fault> {
        let frame = self.frame(marker - 0xE0, depth)?;
        self.write(b"[")?;
        let mut count = 0;
        while frame.goes_on(count, self.at) {
            if 0 < count {
                self.write(b",")?;
            }
            self.value(depth + 1)?;
            count += 1;
        }
        frame.check(count, self)?;
        self.write(b"]")
    }

    fn object(&mut self, marker: u8, depth: u32) -> Result<(), Fault> {
        let frame = self.frame(marker - 0xE8, depth)?;
        self.write(b"{")?;
        let mut count = 0;
        while frame.goes_on(count, self.at) {
            if 0 < count {
                self.write(b",")?;
            }
            let start = self.at;
            let marker = self.byte()?;
            let name = strings::read(self, marker, start)?;
            self.write_string(&name)?;
            self.write(b":")?;
            self.value(depth + 1)?;
            count += 1;
        }
        frame.check(count, self)?;
        self.write(b"}")
    }

    /// What stands before the members: nothing, or their length in bytes, or length and count.
    fn frame(&mut self, form: u8, depth: u32) -> Result<Frame, Fault> {
        if JSON_DEPTH_MAX <= depth {
            return Err(self.fault("it is nested too deep"));
        }
        let (width, counted) = match form {
            0 => return Ok(Frame { end: None, count: Some(0) }),
            1 => return Ok(Frame { end: None, count: Some(1) }),
            2 => (Width::One, false),
            3 => (Width::Two, false),
            4 => (Width::Four, false),
            5 => (Width::One, true),
            6 => (Width::Two, true),
            _ => (Width::Four, true),
        };
        let length = self.length(width)?;
        let count = if counted { Some(self.length(width)?) } else { None };
        let end = self.at + length;
        if self.bytes.len() < end {
            return Err(self.fault("a container is longer than the body"));
        }
        Ok(Frame { end: Some(end), count })
    }

    /// Numbers of one kind without markers of their own, or arrays of such arrays.
    fn uniform(&mut self, marker: u8, depth: u32) -> Result<(), Fault> {
        let nested = 0xF2 <= marker;
        let width = if marker == 0xF0 || marker == 0xF2 { Width::One } else { Width::Two };
        if JSON_DEPTH_MAX <= depth + u32::from(nested) {
            return Err(self.fault("it is nested too deep"));
        }
        if !nested {
            let kind = self.uniform_kind()?;
            let count = self.length(width)?;
            return self.uniform_numbers(kind, count);
        }
        let inner = self.byte()?;
        if inner != marker - 2 {
            return Err(self.fault("an array of arrays has other elements"));
        }
        let kind = self.uniform_kind()?;
        let (numbers, arrays) = (self.length(width)?, self.length(width)?);
        self.write(b"[")?;
        for index in 0..arrays {
            if 0 < index {
                self.write(b",")?;
            }
            self.uniform_numbers(kind, numbers)?;
        }
        self.write(b"]")
    }

    fn uniform_kind(&mut self) -> Result<u8, Fault> {
        match self.byte()? {
            kind @ (0xCD | 0xCE | 0xD7..=0xDC) => Ok(kind),
            _ => Err(self.fault("an array of numbers has no kind of number")),
        }
    }

    fn uniform_numbers(&mut self, kind: u8, count: usize) -> Result<(), Fault> {
        self.write(b"[")?;
        for index in 0..count {
            if 0 < index {
                self.write(b",")?;
            }
            self.number(kind)?;
        }
        self.write(b"]")
    }
}

/// Where a container ends, as far as its marker says.
struct Frame {
    end: Option<usize>,
    count: Option<usize>,
}

impl Frame {
    fn goes_on(&self, count: usize, at: usize) -> bool {
        match (self.end, self.count) {
            (Some(end), _) => at < end,
            (None, wanted) => wanted.is_some_and(|wanted| count < wanted),
        }
    }

    fn check(&self, count: usize, reader: &Reader<'_>) -> Result<(), Fault> {
        if self.end.is_some_and(|end| end != reader.at) {
            return Err(reader.fault("a member goes beyond its container"));
        }
        if self.count.is_some_and(|wanted| wanted != count) {
            return Err(reader.fault("a container has another number of members than it says"));
        }
        Ok(())
    }
}
