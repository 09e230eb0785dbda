//! The headers of a request, as they came.
//!
//! They are looked for where they stand: a request has about ten of them, and putting those into a
//! map took longer than everything that is looked up in it.

use std::ops::Range;

use http::{HeaderMap, HeaderName};

/// The headers of a request.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fields {
    text: Box<[u8]>,
    places: Vec<Place>,
}

/// Where a header stands in the text.
#[derive(Clone, Debug)]
struct Place {
    name: Range<usize>,
    value: Range<usize>,
}

impl Fields {
    /// The value of a header; the first one if it was sent several times.
    pub(crate) fn get(&self, name: &HeaderName) -> Option<&[u8]> {
        let name = name.as_str().as_bytes();
        self.places.iter().find(|it| self.is_named(it, name)).map(|it| &self.text[it.value.clone()])
    }

    /// The value of a header, if it is text.
    pub(crate) fn text(&self, name: &HeaderName) -> Option<&str> {
        self.get(name).and_then(|it| str::from_utf8(it).ok())
    }

    /// All values of a header, in the order they were sent.
    pub(crate) fn get_all<'a>(&'a self, name: &'a HeaderName) -> impl Iterator<Item = &'a [u8]> {
        let name = name.as_str().as_bytes();
        let named = self.places.iter().filter(move |it| self.is_named(it, name));
        named.map(|it| &self.text[it.value.clone()])
    }

    pub(crate) fn contains(&self, name: &HeaderName) -> bool {
        self.get(name).is_some()
    }

    /// How many there are; each counts that was sent several times.
    pub(crate) fn count(&self) -> usize {
        self.places.len()
    }

    /// The headers that were found in the head of a request.
    pub(crate) fn in_head(head: &[u8], headers: &[httparse::Header<'_>]) -> Self {
        let begin = head.as_ptr().addr();
        let place = |part: &[u8]| {
            let at = part.as_ptr().addr() - begin;
            at..at + part.len()
        };
        let places = headers
            .iter()
            .map(|it| Place { name: place(it.name.as_bytes()), value: place(it.value) });
        Self { places: places.collect(), text: head.into() }
    }

    fn is_named(&self, place: &Place, name: &[u8]) -> bool {
        place.name.len() == name.len() && self.text[place.name.clone()].eq_ignore_ascii_case(name)
    }
}

impl From<&HeaderMap> for Fields {
    fn from(map: &HeaderMap) -> Self {
        let mut text = Vec::new();
        let mut add = |part: &[u8]| {
            let at = text.len();
            text.extend_from_slice(part);
            at..text.len()
        };
        let places = map
            .iter()
            .map(|(name, value)| Place {
                name: add(name.as_str().as_bytes()),
                value: add(value.as_bytes()),
            })
            .collect();
        Self { text: text.into(), places }
    }
}

#[cfg(test)]
mod tests {
    use http::{HeaderValue, header};

    use super::*;

    #[track_caller]
    fn check(fields: &Fields) {
        assert_eq!(fields.get(&header::HOST), Some(&b"h"[..]));
        let prefer = HeaderName::from_static("prefer");
        assert_eq!(fields.get_all(&prefer).collect::<Vec<_>>(), [&b"a"[..], b"b\xff"]);
        assert_eq!((fields.text(&prefer), fields.text(&header::HOST)), (Some("a"), Some("h")));
        assert!(fields.contains(&header::HOST) && !fields.contains(&header::DATE));
    }

    #[test]
    fn headers_are_found_in_the_text_they_came_in() {
        let head = b"GET / HTTP/1.1\r\nPrefer:a\r\nHOST: h \r\nprefer: b\xff\r\n\r\n";
        let mut headers = [httparse::EMPTY_HEADER; 4];
        let mut parsed = httparse::Request::new(&mut headers);
        assert!(parsed.parse(head).unwrap().is_complete());
        check(&Fields::in_head(head, parsed.headers));
    }

    #[test]
    fn headers_of_a_map_are_the_same() {
        let mut map = HeaderMap::new();
        map.append("prefer", HeaderValue::from_static("a"));
        map.append("host", HeaderValue::from_static("h"));
        map.append("prefer", HeaderValue::from_bytes(b"b\xff").unwrap());
        check(&Fields::from(&map));
    }
}
