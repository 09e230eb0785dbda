//! Where a page of a query begins, and how a query over several ranges goes from one to the next.
//!
//! Rows that need no merging come range by range, as in Cosmos DB: a page never holds rows of two
//! ranges. Ranges may be split or merged between pages; what counts are the keys that are left.

use millstream_core::{EffectiveKey, KeyRange};
use millstream_query::{Joining, Specification};

use crate::headers;
use crate::open_container::OpenContainer;
use crate::refusal::Refusal;
use crate::request::Request;
use crate::scope::Scope;

/// Longest continuation that is looked at: one of a query, and what a place adds to it.
pub(crate) const CONTINUATION_BYTES_MAX: usize = 65 * 1024;
/// What the keys of a place add to a continuation: two bounds of three hashes in hexadecimal.
pub(crate) const KEYS_BYTES_MAX: usize = 2 * 3 * 32 + 4;
/// Stands before continuations. The SDK for Python takes everything that is base64 for its own.
const WHOLE_MARK: &str = "q:";
/// Stands before those of a query that goes range by range.
const RANGE_MARK: &str = "r:";

/// Where a page begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// The keys the page is about, and after them those of the next range; none if it is about
    /// all that the request is about.
    pub(crate) keys: Option<KeyRange>,
    /// Where within them; none at their start.
    pub(crate) continuation: Option<String>,
}

impl Place {
    /// The place that the continuation of a request names; none for the first page.
    ///
    /// # Errors
    ///
    /// 400 if it is not one of ours.
    pub(crate) fn read(request: &Request) -> Result<Option<Self>, Refusal> {
        let text = request.text(&headers::CONTINUATION)?.filter(|it| !it.is_empty());
        if text.is_some_and(|it| CONTINUATION_BYTES_MAX < it.len()) {
            return Err(Refusal::bad_request("the continuation of the request is too long"));
        }
        let Some(text) = text else { return Ok(None) };
        // Such a place lies in an index of Cosmos DB itself. Here it is none: the query begins
        // anew.
        if text.starts_with("-RID:") || text.starts_with("+RID:") {
            return Ok(None);
        }
        let refused = || Refusal::bad_request("the continuation of the request is not one of ours");
        Self::parse(text).map(Some).ok_or_else(refused)
    }

    fn parse(text: &str) -> Option<Self> {
        if let Some(token) = text.strip_prefix(WHOLE_MARK) {
            return Some(Self { keys: None, continuation: Some(token.to_owned()) });
        }
        let mut parts = text.strip_prefix(RANGE_MARK)?.splitn(3, ':');
        let min: EffectiveKey = parts.next()?.parse().ok()?;
        let max: EffectiveKey = parts.next()?.parse().ok()?;
        let token = parts.next()?;
        let continuation = (!token.is_empty()).then(|| token.to_owned());
        Some(Self { keys: Some(KeyRange::new(min, max).ok()?), continuation })
    }

    /// The continuation that names it.
    pub(crate) fn text(&self) -> String {
        let token = self.continuation.as_deref().unwrap_or_default();
        match &self.keys {
            None => format!("{WHOLE_MARK}{token}"),
            Some(keys) => format!("{RANGE_MARK}{}:{}:{token}", keys.min(), keys.max()),
        }
    }

    /// Where the first page of a query begins.
    pub(crate) fn first(
        container: &OpenContainer,
        scope: &Scope,
        specification: &Specification,
    ) -> Result<Self, Refusal> {
        let whole = Self { keys: None, continuation: None };
        let is_divided = *scope == Scope::All
            && specification.query.joining() == Joining::Appended
            && 1 < container.ranges().len();
        if !is_divided {
            return Ok(whole);
        }
        let first = next(container, specification, &EffectiveKey::MIN)?;
        let Some(keys) = first else { return Ok(whole) };
        // A query of one range alone needs no others after it.
        let is_only = next(container, specification, keys.max())?.is_none();
        Ok(if is_only { whole } else { Self { keys: Some(keys), continuation: None } })
    }

    /// Where a query goes on after a page that began here and ended with `continuation`.
    pub(crate) fn after(
        &self,
        container: &OpenContainer,
        specification: &Specification,
        continuation: Option<String>,
    ) -> Result<Option<Self>, Refusal> {
        if continuation.is_some() {
            return Ok(Some(Self { keys: self.keys.clone(), continuation }));
        }
        let Some(keys) = &self.keys else { return Ok(None) };
        let next = next(container, specification, keys.max())?;
        Ok(next.map(|keys| Self { keys: Some(keys), continuation: None }))
    }
}

/// The keys of the first range from `min` on that can have rows of the query.
fn next(
    container: &OpenContainer,
    specification: &Specification,
    min: &EffectiveKey,
) -> Result<Option<KeyRange>, Refusal> {
    let Ok(rest) = KeyRange::new(min.clone(), EffectiveKey::MAX) else { return Ok(None) };
    let (query, parameters) = (&specification.query, &specification.parameters);
    let touched = query.key_ranges(&container.settings().partition_key, parameters)?;
    let ranges = container.ranges();
    let mut ranges = ranges.iter().filter_map(|it| it.info.keys.intersect(&rest));
    Ok(ranges.find(|range| touched.iter().any(|it| it.overlaps(range))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str) {
        assert_eq!(Place::parse(text).unwrap().text(), text);
    }

    #[test]
    fn a_place_comes_back_from_its_text() {
        check("q:abc");
        check("r::1F:");
        check("r:1F:FF:abc:d");
        let place = Place::parse("r:1F:FF:").unwrap();
        assert_eq!(place.continuation, None);
        assert_eq!(place.keys.unwrap().max(), &EffectiveKey::MAX);
    }

    #[test]
    fn what_is_no_place_is_refused() {
        for text in ["", "abc", "r:", "r::", "r:1F:", "r:x:FF:", "r:FF:1F:abc", "r:1F:1F:"] {
            assert_eq!(Place::parse(text), None, "{text}");
        }
    }
}
