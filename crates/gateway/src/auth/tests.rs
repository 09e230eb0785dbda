use http::{HeaderMap, HeaderValue};

use crate::auth::*;

const NOW: Timestamp = Timestamp::from_millis(1_700_000_000_000);
const DATE: &str = "tue, 14 nov 2023 22:13:20 gmt";

/// What a client sends that signs `message` with `key`.
fn signed(key: &AccountKey, message: &str, date: &str) -> HeaderMap {
    let mut mac = Hmac::<Sha256>::new_from_slice(key.bytes()).unwrap();
    mac.update(message.as_bytes());
    let signature = STANDARD.encode(mac.finalize().into_bytes());
    let token = format!("type=master&ver=1.0&sig={signature}");
    let token = percent_encoding::utf8_percent_encode(&token, percent_encoding::NON_ALPHANUMERIC);
    let pairs = [(headers::DATE, date.to_owned()), (header::AUTHORIZATION, token.to_string())];
    pairs.into_iter().map(|(name, it)| (name, HeaderValue::from_str(&it).unwrap())).collect()
}

fn checked(options: &GatewayOptions, method: &Method, path: &str, headers: &HeaderMap) -> u16 {
    let path = Path::parse(path).unwrap();
    check(options, NOW, method, &path, &Fields::from(headers))
        .map_or_else(|it| it.status.as_u16(), |_| 200)
}

#[track_caller]
fn check_link(path: &str, kind: &str, link: &str) {
    let date = "Tue, 14 Nov 2023 22:13:20 GMT";
    let message = format!("get\n{kind}\n{link}\n{DATE}\n\n");
    let headers = signed(&AccountKey::public(), &message, date);
    assert_eq!(checked(&GatewayOptions::default(), &Method::GET, path, &headers), 200, "{path}");
}

#[test]
fn names_are_signed_decoded_and_feeds_with_their_owner() {
    check_link("/", "", "");
    check_link("/dbs", "dbs", "");
    check_link("/dbs/d/", "dbs", "dbs/d");
    check_link("/dbs/d/colls/c/docs/", "docs", "dbs/d/colls/c");
    check_link("/dbs/d/colls/c/docs/a%20b", "docs", "dbs/d/colls/c/docs/a b");
    check_link("/dbs/d/colls/c/pkranges", "pkranges", "dbs/d/colls/c");
    check_link("/offers/AbCd", "offers", "abcd");
    check_link("/dbs/d/colls/c/operations/partitionkeydelete", "colls", "dbs/d/colls/c");
}

#[test]
fn resource_ids_are_signed_alone_in_lower_case() {
    let id = millstream_core::ResourceId { database: 1, container: 2 };
    let rid = Rid::Container(id).encode();
    let path = format!("/dbs/{}/colls/{rid}/docs", Rid::Database(1).encode());
    check_link(&path, "docs", &rid.to_ascii_lowercase());
}

#[test]
fn a_wrong_key_or_a_changed_request_is_refused() {
    let message = format!("get\ndbs\ndbs/d\n{DATE}\n\n");
    let other = AccountKey::new("AAAA").unwrap();
    let (options, get) = (GatewayOptions::default(), Method::GET);
    assert_eq!(checked(&options, &get, "/dbs/d", &signed(&other, &message, DATE)), 401);
    let headers = signed(&AccountKey::public(), &message, DATE);
    assert_eq!(checked(&options, &get, "/dbs/e", &headers), 401);
    assert_eq!(checked(&options, &Method::DELETE, "/dbs/d", &headers), 401);
    assert_eq!(checked(&options, &get, "/dbs/d", &HeaderMap::new()), 401);
}

/// The status of two requests, one after the other, of which the first may be remembered.
#[track_caller]
fn check_second(first: &HeaderMap, second: (&Method, &str, &HeaderMap), expected: (u16, u16)) {
    let (options, verified) = (GatewayOptions::default(), Verified::default());
    let status = |method: &Method, path: &str, headers: &HeaderMap| {
        let outcome = authorise(&verified, &options, NOW, method, path, &Fields::from(headers));
        outcome.map_or_else(|it| it.status.as_u16(), |_| 200)
    };
    let first = status(&Method::POST, FEED, first);
    assert_eq!((first, status(second.0, second.1, second.2)), expected);
}

const FEED: &str = "/dbs/d/colls/c/docs";

#[test]
fn a_signature_that_is_remembered_proves_nothing_else() {
    let message = format!("post\ndocs\ndbs/d/colls/c\n{DATE}\n\n");
    let right = signed(&AccountKey::public(), &message, DATE);
    let wrong = signed(&AccountKey::new("AAAA").unwrap(), &message, DATE);
    let (post, get) = (Method::POST, Method::GET);
    check_second(&right, (&post, FEED, &right), (200, 200));
    check_second(&right, (&post, FEED, &wrong), (200, 401));
    check_second(&wrong, (&post, FEED, &wrong), (401, 401));
    check_second(&wrong, (&post, FEED, &right), (401, 200));
    check_second(&right, (&get, FEED, &right), (200, 401));
    check_second(&right, (&post, "/dbs/d/colls/e/docs", &right), (200, 401));
    let mut later = right.clone();
    later.insert(headers::DATE, HeaderValue::from_static("tue, 14 nov 2023 22:13:21 gmt"));
    check_second(&right, (&post, FEED, &later), (200, 401));
    let mut cut = right.clone();
    let token = right[header::AUTHORIZATION].as_bytes();
    let short = HeaderValue::from_bytes(&token[..token.len() - 1]).unwrap();
    cut.insert(header::AUTHORIZATION, short);
    check_second(&right, (&post, FEED, &cut), (200, 401));
}

#[test]
fn a_signature_that_is_remembered_grows_old_and_keeps_its_bounds() {
    let key = AccountKey::new("c2VjcmV0").unwrap();
    let options = GatewayOptions::default().read_only_keys(vec![key.clone()]);
    let verified = Verified::default();
    let mut headers = signed(&key, &format!("post\ndocs\ndbs/d/colls/c\n{DATE}\n\n"), DATE);
    headers.insert(headers::IS_QUERY, HeaderValue::from_static("True"));
    let status = |now: Timestamp, headers: &HeaderMap| {
        let outcome =
            authorise(&verified, &options, now, &Method::POST, FEED, &Fields::from(headers));
        outcome.map_or_else(|it| it.status.as_u16(), |_| 200)
    };
    assert_eq!([status(NOW, &headers), status(NOW, &headers)], [200, 200]);
    let late = NOW.plus(options.clock_skew_max + std::time::Duration::from_secs(1));
    assert_eq!(status(late, &headers), 403);
    headers.remove(headers::IS_QUERY);
    assert_eq!(status(NOW, &headers), 403, "a key that may only read wrote");
}

#[test]
fn a_signature_of_another_time_is_refused() {
    let early = "tue, 14 nov 2023 21:13:20 gmt";
    let headers = signed(&AccountKey::public(), &format!("get\n\n\n{early}\n\n"), early);
    assert_eq!(checked(&GatewayOptions::default(), &Method::GET, "/", &headers), 403);
}

#[test]
fn a_key_that_may_only_read_cannot_write() {
    let key = AccountKey::new("c2VjcmV0").unwrap();
    let options = GatewayOptions::default().read_only_keys(vec![key.clone()]);
    let read = signed(&key, &format!("get\ndbs\n\n{DATE}\n\n"), DATE);
    assert_eq!(checked(&options, &Method::GET, "/dbs", &read), 200);
    let mut write = signed(&key, &format!("post\ndbs\n\n{DATE}\n\n"), DATE);
    assert_eq!(checked(&options, &Method::POST, "/dbs", &write), 403);
    write.insert(headers::IS_QUERY, HeaderValue::from_static("True"));
    assert_eq!(checked(&options, &Method::POST, "/dbs", &write), 200);
}

#[track_caller]
fn check_refused(token: &str, expected: &str) {
    let mut headers = HeaderMap::new();
    headers.insert(header::AUTHORIZATION, HeaderValue::from_str(token).unwrap());
    headers.insert(headers::DATE, HeaderValue::from_static(DATE));
    let path = Path::parse("/").unwrap();
    let options = GatewayOptions::default();
    let refusal = check(&options, NOW, &Method::GET, &path, &Fields::from(&headers)).unwrap_err();
    assert_eq!(refusal.status.as_u16(), 401);
    assert!(refusal.message.contains(expected), "{refusal}");
}

#[test]
fn other_kinds_of_tokens_are_refused_with_a_sentence() {
    check_refused("type%3Daad%26ver%3D1.0%26sig%3Dx", "Entra ID");
    check_refused("type=resource&ver=1&sig=x", "resource tokens");
    check_refused("Bearer abc", "type=master");
    check_refused("type=master&ver=2.0&sig=x", "1.0");
    check_refused("type=master&ver=1.0&sig=%FF", "not text");
    check_refused(&"x".repeat(AUTHORIZATION_BYTES_MAX + 1), "too long");
}
