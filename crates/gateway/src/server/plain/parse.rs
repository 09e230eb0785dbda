//! Which requests are plain, and what is in them.

use std::mem::MaybeUninit;

use http::Method;
use httparse::{Header, Status};
use memchr::memchr_iter;

use crate::fields::Fields;
use crate::gateway::Head;
use crate::server::ServerLimits;

/// Most headers of a plain request.
const HEADERS_MAX: usize = 64;
/// Longest beginning of a plain request, up to its body.
const HEAD_BYTES_MAX: usize = 32 * 1024;
/// Longest body of a plain request. It is kept in memory before the signature is checked, for every
/// connection that there may be.
const BODY_BYTES_MAX: usize = 128 * 1024;
/// How the paths of everything begin that is in a database.
const IN_A_DATABASE: &str = "/dbs/";
/// How the authorization of the protocol begins, and no other.
const SIGNATURE: &[u8] = b"type";

/// How much the headers of a plain request may be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HeadLimits {
    headers_max: usize,
    bytes_max: usize,
}

impl HeadLimits {
    /// At most what the server allows.
    pub(crate) fn within(limits: &ServerLimits) -> Self {
        let bytes_max = usize::try_from(limits.header_bytes_max).unwrap_or(usize::MAX);
        Self {
            headers_max: HEADERS_MAX.min(limits.headers_max),
            bytes_max: HEAD_BYTES_MAX.min(bytes_max),
        }
    }
}

/// What the received bytes begin with.
#[derive(Debug)]
pub(crate) enum Parsed<'a> {
    /// More has to come.
    Partial,
    /// Not a plain request, or not one for the gateway.
    Other,
    Whole(Whole<'a>),
}

/// A plain request.
#[derive(Debug)]
pub(crate) struct Whole<'a> {
    pub(crate) head: Head<'a>,
    pub(crate) body: &'a [u8],
    /// All bytes that belong to it.
    pub(crate) bytes: usize,
}

/// Whether a request goes to the gateway, whatever the router has: everything in a database, and
/// the account, databases and offers if it is signed as the protocol wants it.
pub(crate) fn is_for_gateway(path: &str, authorization: Option<&[u8]>) -> bool {
    let is_signed = authorization.is_some_and(|it| it.starts_with(SIGNATURE));
    path.starts_with(IN_A_DATABASE)
        || (is_signed && (path == "/" || path.starts_with("/dbs") || path.starts_with("/offers")))
}

pub(crate) fn parse(received: &[u8], limits: HeadLimits) -> Parsed<'_> {
    let end = end_of_head(received);
    if limits.bytes_max < end.unwrap_or(received.len()) {
        return Parsed::Other;
    }
    let Some(end) = end else { return Parsed::Partial };
    let text = &received[..end];
    let mut headers = [const { MaybeUninit::uninit() }; HEADERS_MAX];
    let mut request = httparse::Request::new(&mut []);
    let parsed = request.parse_with_uninit_headers(text, &mut headers[..limits.headers_max]);
    if parsed != Ok(Status::Complete(end)) || request.version != Some(1) {
        return Parsed::Other;
    }
    let (Some(method), Some(path), Some(length)) =
        (request.method.and_then(method), request.path, body_bytes(request.headers))
    else {
        return Parsed::Other;
    };
    let authorization =
        request.headers.iter().find(|it| it.name.eq_ignore_ascii_case("authorization"));
    if BODY_BYTES_MAX < length
        || !path.bytes().all(is_plain)
        || !is_for_gateway(path, authorization.map(|it| it.value))
    {
        return Parsed::Other;
    }
    let bytes = end + length;
    let Some(body) = received.get(end..bytes) else { return Parsed::Partial };
    let headers = Fields::in_head(text, request.headers);
    let head = Head { method, path, authority: None, headers };
    Parsed::Whole(Whole { head, body, bytes })
}

/// Where the empty line ends that is behind the headers.
fn end_of_head(received: &[u8]) -> Option<usize> {
    memchr_iter(b'\n', received).find_map(|at| match &received[at + 1..] {
        [b'\n', ..] => Some(at + 2),
        [b'\r', b'\n', ..] => Some(at + 3),
        _ => None,
    })
}

fn method(name: &str) -> Option<Method> {
    match name {
        "GET" => Some(Method::GET),
        "POST" => Some(Method::POST),
        "PUT" => Some(Method::PUT),
        "PATCH" => Some(Method::PATCH),
        "DELETE" => Some(Method::DELETE),
        _ => None,
    }
}

/// How long the body is; none if the headers leave it open, or want something that is not plain.
fn body_bytes(headers: &[Header<'_>]) -> Option<usize> {
    let mut length = None;
    for header in headers {
        let is = |name: &str| header.name.eq_ignore_ascii_case(name);
        match header.name.len() {
            14 if is("content-length") => {
                let text = str::from_utf8(header.value).ok()?;
                let is_number = !text.is_empty() && text.bytes().all(|it| it.is_ascii_digit());
                if length.is_some() || !is_number {
                    return None;
                }
                length = Some(text.parse().ok()?);
            }
            10 if is("connection") && !header.value.eq_ignore_ascii_case(b"keep-alive") => {
                return None;
            }
            17 if is("transfer-encoding") => return None,
            6 if is("expect") => return None,
            7 if is("upgrade") => return None,
            _ => (),
        }
    }
    Some(length.unwrap_or(0))
}

/// Whether a byte of a path means nothing but itself, or begins an escape.
fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=:@%/".contains(&byte)
}

#[cfg(test)]
mod tests {
    use http::header;

    use super::*;

    /// `expected` is `more`, `other`, or method, path, host and body.
    #[track_caller]
    fn check(received: &str, expected: &str) {
        let found = match parse(received.as_bytes(), HeadLimits::within(&ServerLimits::default())) {
            Parsed::Partial => "more".to_owned(),
            Parsed::Other => "other".to_owned(),
            Parsed::Whole(Whole { head, body, bytes }) => {
                let host = head.headers.text(&header::HOST).unwrap_or("-");
                let body = str::from_utf8(body).unwrap();
                assert!(received[..bytes].ends_with(body));
                format!("{} {} {host} {body}", head.method, head.path)
            }
        };
        assert_eq!(found, expected, "{received:?}");
    }

    #[test]
    fn a_request_is_whole_when_its_body_is() {
        let whole = "POST /dbs/a HTTP/1.1\r\nHost: h\r\ncontent-length: 2\r\n\r\n{}";
        for end in 0..whole.len() {
            check(&whole[..end], "more");
        }
        check(whole, "POST /dbs/a h {}");
        check(&format!("{whole}GET"), "POST /dbs/a h {}");
        check("GET /dbs/a HTTP/1.1\n\n", "GET /dbs/a - ");
        check("DELETE /dbs/a HTTP/1.1\r\nConnection: Keep-Alive\r\n\r\n", "DELETE /dbs/a - ");
    }

    #[test]
    fn what_is_not_plain_is_left_to_others() {
        check("GET /dbs/a HTTP/1.0\r\n\r\n", "other");
        check("HEAD /dbs/a HTTP/1.1\r\n\r\n", "other");
        check("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "other");
        check("GET http://h/dbs/a HTTP/1.1\r\n\r\n", "other");
        check("GET /dbs/a?b HTTP/1.1\r\n\r\n", "other");
        check("GET /dbs/a\\ HTTP/1.1\r\n\r\n", "other");
        check("GET /dbs/a HTTP/1.1\r\nno header\r\n\r\n", "other");
        check("\r\n\r\nGET /dbs/a HTTP/1.1\r\n\r\n", "other");
        for headers in [
            "transfer-encoding: chunked",
            "Transfer-Encoding: identity\r\ncontent-length: 2",
            "Expect: 100-continue\r\ncontent-length: 2",
            "connection: close",
            "Connection: Upgrade, HTTP2-Settings",
            "upgrade: h2c",
            "content-length: 2\r\ncontent-length: 2",
            "content-length: 2\r\nContent-Length: 3",
            "content-length: +2",
            "content-length: ",
            "content-length: 2, 2",
            "content-length: 131073",
            "content-length: 99999999999999999999",
        ] {
            check(&format!("POST /dbs/a HTTP/1.1\r\n{headers}\r\n\r\n{{}}"), "other");
        }
        let many = "a: b\r\n".repeat(HEADERS_MAX + 1);
        check(&format!("GET /dbs/a HTTP/1.1\r\n{many}\r\n"), "other");
        check(&"a".repeat(HEAD_BYTES_MAX + 1), "other");
        let long = "b".repeat(HEAD_BYTES_MAX);
        check(&format!("GET /dbs/a HTTP/1.1\r\na: {long}\r\n\r\n"), "other");
    }

    #[test]
    fn no_more_is_taken_than_the_server_allows() {
        let limits = |headers_max: usize, header_bytes_max: u32| {
            let limits = ServerLimits { headers_max, header_bytes_max, ..Default::default() };
            HeadLimits::within(&limits)
        };
        let request = b"GET /dbs/a HTTP/1.1\r\na: b\r\nc:\r\n\r\n";
        let bytes = u32::try_from(request.len()).unwrap();
        assert!(matches!(parse(request, limits(2, bytes)), Parsed::Whole(_)));
        assert!(matches!(parse(request, limits(1, bytes)), Parsed::Other));
        assert!(matches!(parse(request, limits(2, bytes - 1)), Parsed::Other));
    }

    #[test]
    fn only_what_is_signed_is_taken_from_other_paths() {
        check("GET / HTTP/1.1\r\n\r\n", "other");
        check("GET / HTTP/1.1\r\nauthorization: Bearer a\r\n\r\n", "other");
        check("GET / HTTP/1.1\r\nAuthorization: type%3Dmaster\r\n\r\n", "GET / - ");
        check("GET /offers HTTP/1.1\r\nauthorization: type=master\r\n\r\n", "GET /offers - ");
        check("GET /metrics HTTP/1.1\r\nauthorization: type=master\r\n\r\n", "other");
    }
}
