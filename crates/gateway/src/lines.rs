//! The headers of an answer, as they go out.

use http::{HeaderMap, HeaderName, HeaderValue};

const END: &[u8] = b"\r\n";
const COLON: &[u8] = b": ";

/// The headers of an answer, a line each. A name is added once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Lines(Vec<u8>);

impl Lines {
    pub(crate) fn with_capacity(bytes: usize) -> Self {
        Self(Vec::with_capacity(bytes))
    }

    /// Adds a header; a value that no header can have is left out.
    pub(crate) fn add(&mut self, name: &HeaderName, value: &[u8]) {
        self.add_parts(name, &[value]);
    }

    /// Adds a header whose value is these parts together; one that no header can have is left out.
    pub(crate) fn add_parts(&mut self, name: &HeaderName, value: &[&[u8]]) {
        debug_assert!(self.get(name).is_none(), "{name} is there already");
        if !value.iter().all(|part| part.iter().all(|it| is_allowed(*it))) {
            return;
        }
        self.0.extend_from_slice(name.as_str().as_bytes());
        self.0.extend_from_slice(COLON);
        value.iter().for_each(|part| self.0.extend_from_slice(part));
        self.0.extend_from_slice(END);
    }

    /// Adds all of `others`.
    pub(crate) fn add_all(&mut self, others: &Self) {
        debug_assert!(!others.iter().any(|(name, _)| self.iter().any(|it| it.0 == name)));
        self.0.extend_from_slice(&others.0);
    }

    pub(crate) fn get(&self, name: &HeaderName) -> Option<&[u8]> {
        self.iter().find(|(found, _)| *found == name.as_str().as_bytes()).map(|(_, value)| value)
    }

    /// All lines, each with its end.
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    pub(crate) fn to_map(&self) -> HeaderMap {
        let parsed = |(name, value): (&[u8], &[u8])| {
            Some((HeaderName::from_bytes(name).ok()?, HeaderValue::from_bytes(value).ok()?))
        };
        self.iter().filter_map(parsed).collect()
    }

    fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let mut rest = &self.0[..];
        std::iter::from_fn(move || {
            let end = rest.windows(END.len()).position(|it| it == END)?;
            let (line, behind) = (&rest[..end], &rest[end + END.len()..]);
            rest = behind;
            let colon = line.windows(COLON.len()).position(|it| it == COLON)?;
            Some((&line[..colon], &line[colon + COLON.len()..]))
        })
    }
}

/// What can stand in the value of a header: above all no end of the line.
fn is_allowed(byte: u8) -> bool {
    (b' ' <= byte && byte != 0x7F) || byte == b'\t'
}

#[cfg(test)]
mod tests {
    use http::header;

    use super::*;

    #[test]
    fn lines_are_headers() {
        let mut lines = Lines::default();
        lines.add(&header::ETAG, b"\"a: b\"");
        lines.add_parts(&header::SERVER, &[b"7", b"", b"."]);
        assert_eq!(lines.as_bytes(), b"etag: \"a: b\"\r\nserver: 7.\r\n");
        assert_eq!(lines.get(&header::SERVER), Some(&b"7."[..]));
        assert_eq!(lines.get(&header::DATE), None);
        let map = lines.to_map();
        assert_eq!(map.len(), 2);
        assert_eq!(map[header::ETAG], "\"a: b\"");
    }

    #[test]
    fn no_value_makes_a_line_of_its_own() {
        let mut lines = Lines::default();
        for value in ["a\r\nb: c", "a\n", "\0", "\x7f"] {
            lines.add(&header::ETAG, value.as_bytes());
            lines.add_parts(&header::ETAG, &[b"a", value.as_bytes()]);
        }
        assert_eq!(lines, Lines::default());
        lines.add(&header::ETAG, "a\tü".as_bytes());
        assert_eq!(lines.to_map()[header::ETAG].as_bytes(), "a\tü".as_bytes());
    }
}
