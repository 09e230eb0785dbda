//! Where a list of databases, containers or offers goes on, or a query over them.
//!
//! Lists are in the order of names, and go on behind the last name that was returned, whether there
//! still is something of that name or not: whoever deletes or creates while reading neither misses
//! nor repeats any of the others. A query whose rows do not come resource by resource can only be
//! counted.

use millstream_core::ContainerName;
use percent_encoding::percent_decode_str;

use crate::headers;
use crate::refusal::Refusal;
use crate::request::Request;

/// Longest continuation that is looked at.
const TEXT_BYTES_MAX: usize = 2 * 1024;
/// Stands before names, and before a count. The SDK for Python takes what is base64 for its own.
const NAMES_MARK: &str = "n:";
const COUNT_MARK: &str = "c:";

// Two names whose every byte is encoded, the marks between them, and a number fit.
const _: () = assert!(2 * 3 * ContainerName::BYTES_MAX + 2 + 1 + 1 + 20 <= TEXT_BYTES_MAX);

/// What lists are sorted by: the name of a database or container, or both of them.
pub(crate) type Names = Vec<String>;

/// Where a list or a query goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// Behind what has these names, or would have them.
    Behind(Names),
    /// Within the rows that a query has of these names: so many of them were returned.
    Within(Names, usize),
    /// Behind so many rows.
    Count(usize),
}

impl Place {
    /// The place that the continuation of a request names; none for the first page.
    ///
    /// # Errors
    ///
    /// 400 if it is not one of ours.
    pub(crate) fn read(request: &Request) -> Result<Option<Self>, Refusal> {
        let text = request.text(&headers::CONTINUATION)?.filter(|it| !it.is_empty());
        if text.is_some_and(|it| TEXT_BYTES_MAX < it.len()) {
            return Err(Refusal::bad_request("the continuation of the request is too long"));
        }
        let Some(text) = text else { return Ok(None) };
        Self::parse(text).map(Some).ok_or_else(|| {
            Refusal::bad_request(
                "the continuation of the request is not one of ours: it has to be what the page \
                 before had in x-ms-continuation; without one the list begins anew",
            )
        })
    }

    fn parse(text: &str) -> Option<Self> {
        let place = if let Some(count) = text.strip_prefix(COUNT_MARK) {
            Self::Count(count.parse().ok()?)
        } else {
            let names = text.strip_prefix(NAMES_MARK)?;
            match names.split_once(':') {
                None => Self::Behind(decoded(names)?),
                Some((names, rows)) => Self::Within(decoded(names)?, rows.parse().ok()?),
            }
        };
        // Whatever else can be read in a like way is not ours.
        (place.text() == text).then_some(place)
    }

    /// The continuation that names it.
    pub(crate) fn text(&self) -> String {
        match self {
            Self::Behind(names) => format!("{NAMES_MARK}{}", encoded(names)),
            Self::Within(names, rows) => format!("{NAMES_MARK}{}:{rows}", encoded(names)),
            Self::Count(count) => format!("{COUNT_MARK}{count}"),
        }
    }

    /// The refusal of a place that a list or query of this kind does not give out.
    pub(crate) fn of_another() -> Refusal {
        Refusal::bad_request("the continuation of the request was given out by another query")
    }
}

fn encoded(names: &Names) -> String {
    let names: Vec<String> = names.iter().map(|it| headers::encoded(it)).collect();
    names.join("/")
}

fn decoded(text: &str) -> Option<Names> {
    let name = |part: &str| percent_decode_str(part).decode_utf8().ok().map(String::from);
    text.split('/').map(|part| name(part).filter(|it| !it.is_empty())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(place: &Place, text: &str) {
        assert_eq!(place.text(), text);
        assert_eq!(Place::parse(text).as_ref(), Some(place));
    }

    #[test]
    fn a_place_comes_back_from_its_text() {
        check(&Place::Behind(vec!["a".to_owned()]), "n:a");
        check(&Place::Behind(vec!["a b:ü".to_owned(), "c".to_owned()]), "n:a%20b%3A%C3%BC/c");
        check(&Place::Within(vec!["a".to_owned()], 7), "n:a:7");
        check(&Place::Count(0), "c:0");
    }

    #[test]
    fn the_longest_names_fit() {
        let name = "\u{1}".repeat(ContainerName::BYTES_MAX);
        let text = Place::Within(vec![name.clone(), name], usize::MAX).text();
        assert!(text.len() <= TEXT_BYTES_MAX, "{}", text.len());
    }

    #[test]
    fn what_is_no_place_is_refused() {
        for text in [
            "100",
            "n:",
            "n:/",
            "n:a/",
            "n:a:",
            "n:a:x",
            "n:a:-1",
            "n:a:+1",
            "n:a:01",
            "n:a:1:2",
            "n:%",
            "n:%FF",
            "n:%61",
            "n:ä",
            "c:",
            "c:+1",
            "c:x",
            "c:18446744073709551616",
            "x:a",
        ] {
            assert_eq!(Place::parse(text), None, "{text}");
        }
    }
}
