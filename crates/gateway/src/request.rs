//! A request, read and authorised.

use std::str::FromStr;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderName, Method, header};
use millstream_core::{Etag, IfNoneMatch, PageSize, PartitionKey};

use crate::fields::Fields;
use crate::refusal::Refusal;
use crate::reply::unquoted;
use crate::target::Path;
use crate::{headers, intent};

/// A request whose path is understood, whose signature holds and whose body is there.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) method: Method,
    pub(crate) path: Arc<Path>,
    pub(crate) headers: Fields,
    /// The body as it came; at most as long as the options allow.
    pub(crate) body: Bytes,
    /// Scheme, host and port as the client wrote them, such as `http://localhost:8081`.
    pub(crate) base: String,
}

/// What a client would like.
const PREFER: HeaderName = HeaderName::from_static("prefer");

/// The partition key a request names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum KeyHeader {
    /// There is no such header.
    Missing,
    /// `[]`: no component at all.
    Empty,
    /// A key, or the outer components of one.
    Key(PartitionKey),
}

impl Request {
    /// The text of a header; the first one if it was sent several times.
    pub(crate) fn text(&self, name: &HeaderName) -> Result<Option<&str>, Refusal> {
        let Some(value) = self.headers.get(name) else { return Ok(None) };
        match str::from_utf8(value) {
            Ok(text) => Ok(Some(text.trim())),
            Err(_) => Err(Refusal::bad_request(format!("the header {name} is not text"))),
        }
    }

    /// Whether a header says `true`, in whatever case.
    pub(crate) fn flag(&self, name: &HeaderName) -> bool {
        intent::flag(&self.headers, name)
    }

    /// The number in a header.
    pub(crate) fn number<T: FromStr>(&self, name: &HeaderName) -> Result<Option<T>, Refusal> {
        let Some(text) = self.text(name)? else { return Ok(None) };
        let refused = |_| Refusal::bad_request(format!("the header {name} has to be a number"));
        text.parse().map(Some).map_err(refused)
    }

    /// The partition key the request names.
    pub(crate) fn partition_key(&self) -> Result<KeyHeader, Refusal> {
        let Some(text) = self.text(&headers::PARTITION_KEY)? else {
            return Ok(KeyHeader::Missing);
        };
        let inner = text.strip_prefix('[').and_then(|it| it.strip_suffix(']'));
        if inner.is_some_and(|it| it.trim().is_empty()) {
            return Ok(KeyHeader::Empty);
        }
        Ok(KeyHeader::Key(text.parse()?))
    }

    /// The etag of `If-Match`; none if there is no such header or it is `*`.
    pub(crate) fn if_match(&self) -> Result<Option<Etag>, Refusal> {
        let text = self.text(&header::IF_MATCH)?;
        Ok(text.filter(|it| *it != "*").map(unquoted))
    }

    /// The condition of `If-None-Match`.
    pub(crate) fn if_none_match(&self) -> Result<Option<IfNoneMatch>, Refusal> {
        Ok(self.text(&header::IF_NONE_MATCH)?.map(|text| match text {
            "*" => IfNoneMatch::Any,
            etag => IfNoneMatch::Etag(unquoted(etag)),
        }))
    }

    /// Whether the client has the version with this etag, or any, and needs no other.
    pub(crate) fn knows(&self, etag: &Etag) -> Result<bool, Refusal> {
        Ok(match self.if_none_match()? {
            None => false,
            Some(IfNoneMatch::Any) => true,
            Some(IfNoneMatch::Etag(known)) => known == *etag,
        })
    }

    /// Whether the client wants no body in the answer to a write.
    pub(crate) fn wants_minimal(&self) -> bool {
        self.headers.get_all(&PREFER).any(|it| {
            let parts = it.split(|byte| *byte == b',' || *byte == b';');
            parts.map(<[u8]>::trim_ascii).any(|it| it.eq_ignore_ascii_case(b"return=minimal"))
        })
    }

    /// How much the client wants in a page: 100 items unless it says.
    pub(crate) fn page_size(&self) -> Result<PageSize, Refusal> {
        let asked: Option<i64> = self.number(&headers::MAX_ITEM_COUNT)?;
        let items = match asked {
            None | Some(-1) => return Ok(PageSize::default()),
            Some(items) if 0 < items => items,
            Some(_) => {
                let name = headers::MAX_ITEM_COUNT;
                let message = format!("the header {name} has to be -1 or positive");
                return Err(Refusal::bad_request(message));
            }
        };
        Ok(PageSize::items(usize::try_from(items).unwrap_or(usize::MAX)).clamped())
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use http::{HeaderMap, HeaderValue};

    use super::*;

    /// A request for `path` with these headers.
    pub(crate) fn request(method: Method, path: &str, pairs: &[(HeaderName, &str)]) -> Request {
        let pairs = pairs.iter().map(|(name, value)| {
            (name.clone(), HeaderValue::from_bytes(value.as_bytes()).unwrap())
        });
        Request {
            method,
            path: Arc::new(Path::parse(path).unwrap()),
            headers: Fields::from(&pairs.collect::<HeaderMap>()),
            body: Bytes::new(),
            base: "http://localhost:8081".to_owned(),
        }
    }

    #[track_caller]
    fn check_key(header: &str, expected: &KeyHeader) {
        let request = request(Method::GET, "/", &[(headers::PARTITION_KEY, header)]);
        assert_eq!(request.partition_key().unwrap(), *expected);
    }

    #[test]
    fn partition_keys_have_the_forms_of_the_protocol() {
        check_key("[]", &KeyHeader::Empty);
        check_key("[ ]", &KeyHeader::Empty);
        check_key(r#"["a"]"#, &KeyHeader::Key("a".into()));
        check_key("[{}]", &KeyHeader::Key(PartitionKey::none()));
        check_key(r#"["\u00e4"]"#, &KeyHeader::Key("ä".into()));
        let refused = request(Method::GET, "/", &[(headers::PARTITION_KEY, "a")]);
        assert_eq!(refused.partition_key().unwrap_err().status.as_u16(), 400);
    }

    #[test]
    fn flags_are_read_in_any_case_and_numbers_are_checked() {
        let pairs = [(headers::IS_QUERY, "True"), (headers::MAX_ITEM_COUNT, "0")];
        let request = request(Method::POST, "/dbs", &pairs);
        assert!(request.flag(&headers::IS_QUERY));
        assert!(!request.flag(&headers::IS_BATCH));
        assert_eq!(request.page_size().unwrap_err().status.as_u16(), 400);
    }

    #[test]
    fn a_client_may_ask_for_no_body() {
        let prefer = HeaderName::from_static("prefer");
        assert!(request(Method::PUT, "/", &[(prefer, "a; return=minimal")]).wants_minimal());
    }
}
