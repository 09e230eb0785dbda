//! Conditions and traces in the headers of a request.

use axum::http::{HeaderMap, HeaderName, header};
use millstream_core::Etag;
use millstream_outbox::TraceContext;

use crate::IfMatch;
use crate::http::problem::Problem;

/// The trace of a request. Headers that are wrong are left out: they must not stop the work.
pub(crate) fn trace(headers: &HeaderMap) -> TraceContext {
    let parent = headers.get("traceparent").and_then(|it| it.to_str().ok());
    let state = joined(headers, &HeaderName::from_static("tracestate"));
    let baggage = joined(headers, &HeaderName::from_static("baggage"));
    TraceContext::from_headers(parent, state.as_deref(), baggage.as_deref())
}

/// Which version the caller wants to change; none if it does not say.
pub(crate) fn if_match(headers: &HeaderMap) -> Result<Option<IfMatch>, Problem> {
    let Some(text) = joined(headers, &header::IF_MATCH) else {
        return Ok(None);
    };
    if text.trim() == "*" {
        return Ok(Some(IfMatch::Any));
    }
    let etags = parse(&text).ok_or_else(|| malformed("If-Match"))?;
    // A weak etag never says that two versions are the same byte for byte.
    let strong = etags.into_iter().filter(|(is_weak, _)| !is_weak);
    Ok(Some(IfMatch::OneOf(strong.map(|(_, it)| Etag::new(it)).collect())))
}

/// Whether the caller has this version already.
pub(crate) fn is_known(headers: &HeaderMap, etag: &Etag) -> Result<bool, Problem> {
    let Some(text) = joined(headers, &header::IF_NONE_MATCH) else {
        return Ok(false);
    };
    if text.trim() == "*" {
        return Ok(true);
    }
    let etags = parse(&text).ok_or_else(|| malformed("If-None-Match"))?;
    Ok(etags.iter().any(|(_, it)| it == etag.as_str()))
}

/// An etag as it stands in a header.
pub(crate) fn etag_value(etag: &Etag) -> String {
    format!("\"{etag}\"")
}

/// A list of etags: whether each is weak, and its text. None if it is malformed.
fn parse(text: &str) -> Option<Vec<(bool, String)>> {
    let mut etags = Vec::new();
    let mut rest = text.trim();
    while !rest.is_empty() {
        let strong = rest.strip_prefix("W/");
        let quoted = strong.unwrap_or(rest).strip_prefix('"')?;
        let (etag, after) = quoted.split_once('"')?;
        etags.push((strong.is_some(), etag.to_owned()));
        let after = after.trim_start();
        rest = match after.strip_prefix(',') {
            Some(next) => next.trim_start(),
            None if after.is_empty() => after,
            None => return None,
        };
    }
    (!etags.is_empty()).then_some(etags)
}

fn malformed(header: &str) -> Problem {
    Problem::bad_request(format!("{header} must be * or etags in quotes, as ETag gave them"))
}

/// All values of a header, as one list.
fn joined(headers: &HeaderMap, name: &HeaderName) -> Option<String> {
    let values: Vec<&str> =
        headers.get_all(name).iter().filter_map(|it| it.to_str().ok()).collect();
    (!values.is_empty()).then(|| values.join(","))
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    /// `"W/a b"` is a weak etag and a strong one; `-` is a malformed list.
    #[track_caller]
    fn check(text: &str, expected: &str) {
        let found = parse(text).map(|etags| {
            let shown = etags.into_iter().map(|(is_weak, etag)| {
                let prefix = if is_weak { "W/" } else { "" };
                format!("{prefix}{etag}")
            });
            shown.collect::<Vec<_>>().join(" ")
        });
        assert_eq!(found.as_deref().unwrap_or("-"), expected, "{text}");
    }

    #[test]
    fn etags_stand_in_quotes() {
        check(r#""a""#, "a");
        check(r#" "a" , W/"b,c","" "#, "a W/b,c ");
        for wrong in ["", "a", "\"a", "\"a\" \"b\"", "W/a", "'a'"] {
            check(wrong, "-");
        }
    }

    #[test]
    fn a_weak_etag_is_enough_to_read_but_not_to_write() {
        let etag = Etag::new("a");
        let headers = |name, text| HeaderMap::from_iter([(name, HeaderValue::from_static(text))]);
        let reading = headers(header::IF_NONE_MATCH, "W/\"a\"");
        assert!(is_known(&reading, &etag).unwrap());
        let writing = headers(header::IF_MATCH, "W/\"a\"");
        assert_eq!(if_match(&writing).unwrap(), Some(IfMatch::OneOf(Vec::new())));
        let any = headers(header::IF_MATCH, "*");
        assert_eq!(if_match(&any).unwrap(), Some(IfMatch::Any));
        assert_eq!(if_match(&HeaderMap::new()).unwrap(), None);
        assert!(!is_known(&HeaderMap::new(), &etag).unwrap());
        assert!(is_known(&headers(header::IF_NONE_MATCH, "a"), &etag).is_err());
    }

    #[test]
    fn lists_in_several_headers_are_one() {
        let mut headers = HeaderMap::new();
        headers.append("baggage", HeaderValue::from_static("a=1"));
        headers.append("baggage", HeaderValue::from_static("b=2"));
        assert_eq!(trace(&headers).baggage(), Some("a=1,b=2"));
    }
}
