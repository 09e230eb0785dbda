//! What web pages may not do while everybody knows the key.
//!
//! Any page makes the browser that shows it send requests to this machine, and a page whose name
//! leads here (DNS rebinding) sees the answers as well.

use std::net::{Ipv4Addr, Ipv6Addr};

use http::{HeaderName, StatusCode, header};

use crate::fields::Fields;
use crate::refusal::Refusal;

/// Where browsers say how near a page is to what it asks.
const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
/// What names end with that nobody can have in the DNS of the internet.
const OWN_DOMAINS: [&str; 3] = ["localhost", "internal", "test"];
/// Longest part of a host that is shown.
const SHOWN_CHARS_MAX: usize = 64;

/// Refuses a request without a signature that a page from elsewhere may have sent to `host`.
pub(crate) fn check_unsigned(headers: &Fields, host: &str) -> Result<(), Refusal> {
    let is_near =
        headers.get(&FETCH_SITE).is_none_or(|it| [&b"same-origin"[..], b"none"].contains(&it));
    let is_own = |origin: &str| {
        origin.split_once("://").is_some_and(|(_, it)| it.eq_ignore_ascii_case(host))
    };
    let is_from_here =
        headers.get(&header::ORIGIN).is_none_or(|it| str::from_utf8(it).is_ok_and(is_own));
    if !is_near || !is_from_here {
        return Err(forbidden("a web page from elsewhere has to sign this request".to_owned()));
    }
    // Anything else a page may send without asking the browser first, some without an origin.
    let is_json = match headers.text(&header::CONTENT_TYPE) {
        Some(text) => {
            let kind = text.split(';').next().unwrap_or_default().trim();
            kind.eq_ignore_ascii_case("application/json")
        }
        None => !has_body(headers),
    };
    if is_json {
        return Ok(());
    }
    let message = "without a signature the content type of the request has to be application/json";
    Err(forbidden(message.to_owned()))
}

/// Refuses a request for a host whose name somebody on the internet may have lead here.
pub(crate) fn check_host(host: &str, names: &[String]) -> Result<(), Refusal> {
    let name = without_port(host);
    // The root of all names is the same with and without its dot.
    let name = name.strip_suffix('.').unwrap_or(name);
    let is_address = match name.strip_prefix('[').and_then(|it| it.strip_suffix(']')) {
        Some(inner) => inner.parse::<Ipv6Addr>().is_ok(),
        None => name.parse::<Ipv4Addr>().is_ok(),
    };
    let is_own = match name.rsplit_once('.') {
        Some((_, domain)) => OWN_DOMAINS.iter().any(|it| it.eq_ignore_ascii_case(domain)),
        None => true,
    };
    if is_address || is_own || names.iter().any(|it| is_meant(it, name)) {
        return Ok(());
    }
    let shown: String = name.chars().take(SHOWN_CHARS_MAX).collect();
    Err(forbidden(format!(
        "{shown:?} may be the name of a web page that leads to this machine, and the key is \
         public: use localhost, name it in gateway.names, or set a key of your own"
    )))
}

fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|it| it.is_ascii_digit()) => name,
        Some(_) | None => host,
    }
}

/// Whether a name of the settings is this one, or one with a star, as certificates have it, that
/// stands for it.
fn is_meant(wanted: &str, name: &str) -> bool {
    let wanted = wanted.strip_suffix('.').unwrap_or(wanted);
    match (wanted.strip_prefix("*."), name.split_once('.')) {
        (Some(wanted), Some((_, domain))) => wanted.eq_ignore_ascii_case(domain),
        (Some(_), None) => false,
        (None, _) => wanted.eq_ignore_ascii_case(name),
    }
}

fn has_body(headers: &Fields) -> bool {
    headers.contains(&header::TRANSFER_ENCODING)
        || headers.get(&header::CONTENT_LENGTH).is_some_and(|it| it != b"0")
}

fn forbidden(message: String) -> Refusal {
    Refusal::new(StatusCode::FORBIDDEN, message)
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, HeaderValue};

    use super::*;

    #[track_caller]
    fn check(headers: &[(HeaderName, &'static str)], is_taken: bool) {
        let map: HeaderMap = headers
            .iter()
            .map(|(name, value)| (name.clone(), HeaderValue::from_static(value)))
            .collect();
        let outcome = check_unsigned(&Fields::from(&map), "localhost:8081");
        assert_eq!(outcome.is_ok(), is_taken, "{headers:?}");
    }

    #[test]
    fn pages_from_elsewhere_have_to_sign() {
        check(&[], true);
        check(&[(header::ORIGIN, "http://localhost:8081")], true);
        check(&[(header::ORIGIN, "http://localhost:3000")], false);
        check(&[(header::ORIGIN, "https://evil.example")], false);
        check(&[(header::ORIGIN, "null")], false);
        check(&[(FETCH_SITE, "same-origin")], true);
        check(&[(FETCH_SITE, "none")], true);
        check(&[(FETCH_SITE, "same-site")], false);
        check(&[(FETCH_SITE, "cross-site")], false);
    }

    #[test]
    fn a_body_without_a_signature_is_json() {
        let body = (header::CONTENT_LENGTH, "9");
        check(&[body.clone(), (header::CONTENT_TYPE, "application/json; charset=utf-8")], true);
        check(&[body.clone(), (header::CONTENT_TYPE, "text/plain")], false);
        check(&[body], false);
        check(&[(header::CONTENT_LENGTH, "0")], true);
        check(&[(header::TRANSFER_ENCODING, "chunked")], false);
    }

    #[test]
    fn names_of_the_internet_are_not_taken() {
        let names = ["Cosmos.example".to_owned(), "*.db.example.".to_owned()];
        for host in [
            "localhost",
            "LocalHost:8081",
            "a.localhost:1",
            "127.0.0.1:8081",
            "192.168.0.7",
            "[::1]",
            "[::1]:8081",
            "localhost.",
            "cosmos.example:8081",
            "cosmos.example.:8081",
            "one.DB.example",
            "cosmos:8081",
            "host.docker.internal:8081",
        ] {
            assert!(check_host(host, &names).is_ok(), "{host}");
        }
        for host in [
            "evil.example:8081",
            "localhost.evil.example",
            "a.notlocalhost",
            "1.2.3",
            "evil.example.",
            "db.example",
            "a.b.db.example",
            "*.example",
        ] {
            assert!(check_host(host, &names).is_err(), "{host}");
        }
    }
}
