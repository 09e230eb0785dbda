//! What a request is about to do, as far as its method, resource and headers tell.
//!
//! Whether a key that may only read allows a request and which handler serves it are decided by
//! the same words, so that no header makes a write look like a question.

use http::{HeaderName, Method, header};

use crate::fields::Fields;
use crate::headers;
use crate::target::{Below, Target};

/// Whether a header says `true`, in whatever case.
pub(crate) fn flag(headers: &Fields, name: &HeaderName) -> bool {
    let value = headers.get(name);
    value.is_some_and(|it| it.trim_ascii().eq_ignore_ascii_case(b"true"))
}

/// Whether the body is a query: a header says so, or, from some clients, the content type alone.
pub(crate) fn is_query(headers: &Fields) -> bool {
    let content = headers.get(&header::CONTENT_TYPE);
    flag(headers, &headers::IS_QUERY)
        || content.is_some_and(|it| it.starts_with(b"application/query+json"))
}

/// Whether the client wants the plan of a query.
pub(crate) fn is_plan(headers: &Fields) -> bool {
    flag(headers, &headers::IS_QUERY_PLAN)
}

/// Whether a request changes nothing.
pub(crate) fn only_reads(method: &Method, target: &Target, headers: &Fields) -> bool {
    if method == Method::GET || method == Method::HEAD {
        return true;
    }
    method == Method::POST
        && match target {
            Target::Databases | Target::Containers(_) | Target::Offers => is_query(headers),
            Target::Container(_, Below::Items) => is_query(headers) || is_plan(headers),
            Target::Container(_, Below::Conflicts) => true,
            Target::Container(
                _,
                Below::Itself
                | Below::Ranges
                | Below::Item(_)
                | Below::DeleteByKey
                | Below::Conflict,
            )
            | Target::Account
            | Target::Database(_)
            | Target::Offer(_)
            | Target::Split(..)
            | Target::Merge(_)
            | Target::Operation(_)
            | Target::Unsupported(_) => false,
        }
}

/// Whether a request changes what a database or container is, which is kept in several places.
pub(crate) fn changes_definition(method: &Method, target: &Target, headers: &Fields) -> bool {
    let is_definition = match target {
        Target::Databases
        | Target::Database(_)
        | Target::Containers(_)
        | Target::Container(_, Below::Itself)
        | Target::Offers
        | Target::Offer(_)
        | Target::Split(..)
        | Target::Merge(_) => true,
        Target::Container(
            _,
            Below::Ranges
            | Below::Items
            | Below::Item(_)
            | Below::DeleteByKey
            | Below::Conflicts
            | Below::Conflict,
        )
        | Target::Account
        | Target::Operation(_)
        | Target::Unsupported(_) => false,
    };
    is_definition && !only_reads(method, target, headers)
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, HeaderValue};

    use super::*;
    use crate::target::Path;

    /// `headers` are names whose value is `True`.
    #[track_caller]
    fn check(method: &Method, path: &str, names: &[HeaderName], expected: bool) {
        let value = || HeaderValue::from_static("True");
        let headers: HeaderMap = names.iter().map(|it| (it.clone(), value())).collect();
        let target = Path::parse(path).unwrap().target;
        assert_eq!(
            only_reads(method, &target, &Fields::from(&headers)),
            expected,
            "{method} {path} {names:?}"
        );
    }

    #[test]
    fn questions_only_read() {
        check(&Method::GET, "/dbs/d/colls/c/docs/1", &[], true);
        for path in ["/dbs", "/dbs/d/colls", "/offers", "/dbs/d/colls/c/docs"] {
            check(&Method::POST, path, &[headers::IS_QUERY], true);
        }
        check(&Method::POST, "/dbs/d/colls/c/docs", &[headers::IS_QUERY_PLAN], true);
    }

    #[test]
    fn no_header_makes_a_write_a_question() {
        let names = [headers::IS_QUERY, headers::IS_QUERY_PLAN];
        for path in [
            "/dbs/d/colls/c/operations/partitionkeydelete",
            "/databases/d/containers/c/partitions/0/split",
            "/databases/d/containers/c/partitions/merge",
        ] {
            check(&Method::POST, path, &names, false);
        }
        check(&Method::POST, "/dbs", &names[1..], false);
        check(&Method::POST, "/dbs/d/colls", &names[1..], false);
        check(&Method::POST, "/dbs/d/colls/c/docs", &[], false);
        for method in [Method::PUT, Method::PATCH, Method::DELETE] {
            check(&method, "/dbs/d/colls/c/docs/1", &names, false);
        }
    }
}
