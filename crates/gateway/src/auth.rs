//! Who may do what: signatures with the keys of the account.
//!
//! A request is signed with HMAC-SHA-256 over its method, the type and link of its resource, and
//! its time. The body is not signed, so that the signature is checked before the body is read.

mod verified;

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use http::{Method, StatusCode, header};
use millstream_core::Timestamp;
use percent_encoding::percent_decode;
use sha2::Sha256;

use crate::fields::Fields;
use crate::options::{AccountKey, GatewayOptions};
use crate::refusal::{Refusal, sub_status};
use crate::rid::Rid;
use crate::target::{Path, Target};
use crate::{headers, intent};

use crate::auth::verified::Claim;
pub(crate) use crate::auth::verified::Verified;

/// Longest authorization that is looked at. A signature has about 90 bytes; tokens of Entra ID,
/// which are refused with a sentence, have some thousands.
const AUTHORIZATION_BYTES_MAX: usize = 16 * 1024;

/// Takes the path of a request apart, and checks its signature and that its key allows it.
///
/// # Errors
///
/// Those of [`Path::parse`] and of [`check`]; 501 for what is not served, however it is signed.
pub(crate) fn authorise(
    verified: &Verified,
    options: &GatewayOptions,
    now: Timestamp,
    method: &Method,
    raw_path: &str,
    headers: &Fields,
) -> Result<Arc<Path>, Refusal> {
    let claim = Claim::of(method, raw_path, headers);
    if let Some(known) = claim.and_then(|it| verified.find(&it)) {
        check_time(options, now, known.signed)?;
        check_reach(known.is_full, method, &known.path, headers)?;
        return Ok(Arc::clone(&known.path));
    }
    let path = Arc::new(Path::parse(raw_path)?);
    if let Target::Unsupported(what) = path.target {
        // Clients sign what we do not serve in ways of its own; that it is not served is the
        // better answer, and tells nobody anything.
        return Err(Refusal::unsupported(what));
    }
    let (signed, is_full) = check(options, now, method, &path, headers)?;
    if let Some(claim) = claim {
        verified.remember(&claim, &path, signed, is_full);
    }
    Ok(path)
}

/// Checks the signature of a request, and that its key allows it. Returns when it was signed, and
/// whether the key may do everything.
///
/// # Errors
///
/// 401 if the signature is missing, of a kind that is not supported, or wrong; 403 if it is too old
/// or too new, or if a key that may only read signed a write.
pub(crate) fn check(
    options: &GatewayOptions,
    now: Timestamp,
    method: &Method,
    path: &Path,
    headers: &Fields,
) -> Result<(Timestamp, bool), Refusal> {
    let signature = signature(headers)?;
    let (text, is_x_ms) = date(headers)?;
    let links = links(&path.segments);
    let is_signed_by = |key: &AccountKey| {
        let signs = |(kind, link): &(String, String)| {
            let message = message(method, kind, link, text, is_x_ms);
            verifies(key, message.as_bytes(), &signature)
        };
        links.iter().any(signs)
    };
    let is_full = options.keys.iter().any(is_signed_by);
    if !is_full && !options.read_only_keys.iter().any(is_signed_by) {
        return Err(unauthorized(
            "the signature of the request does not fit: check the account key, and that the \
             request was not changed on its way",
        ));
    }
    let signed = signed_at(text)?;
    check_time(options, now, signed)?;
    check_reach(is_full, method, path, headers)?;
    Ok((signed, is_full))
}

/// Refuses a write of a key that may only read.
fn check_reach(
    is_full: bool,
    method: &Method,
    path: &Path,
    headers: &Fields,
) -> Result<(), Refusal> {
    if is_full || intent::only_reads(method, &path.target, headers) {
        return Ok(());
    }
    let refusal = Refusal::new(StatusCode::FORBIDDEN, "the key of the request may only read");
    Err(refusal.sub_status(sub_status::WRITE_FORBIDDEN))
}

/// The signature in the header `authorization`: `type=master&ver=1.0&sig=…`, percent-encoded.
fn signature(headers: &Fields) -> Result<Vec<u8>, Refusal> {
    let Some(value) = headers.get(&header::AUTHORIZATION) else {
        return Err(unauthorized("the request has no header authorization: sign it with a key"));
    };
    if AUTHORIZATION_BYTES_MAX < value.len() {
        return Err(unauthorized("the header authorization is too long"));
    }
    let decoded = percent_decode(value).decode_utf8();
    let decoded = decoded.map_err(|_| unauthorized("the header authorization is not text"))?;
    let (mut kind, mut version, mut signature) = ("", "", "");
    for part in decoded.split('&') {
        match part.split_once('=') {
            Some(("type", value)) => kind = value,
            Some(("ver", value)) => version = value,
            Some(("sig", value)) => signature = value,
            Some(_) | None => (),
        }
    }
    match kind {
        "master" if version == "1.0" => (),
        "master" => return Err(unauthorized("the version of the signature has to be 1.0")),
        "resource" => {
            return Err(unauthorized(
                "resource tokens are not supported: sign with an account key",
            ));
        }
        "aad" => {
            return Err(unauthorized("Entra ID is not supported: sign with an account key"));
        }
        "sas" => {
            return Err(unauthorized("SAS tokens are not supported: sign with an account key"));
        }
        _ => return Err(unauthorized("the header authorization has to begin with type=master")),
    }
    STANDARD.decode(signature).map_err(|_| unauthorized("the signature is not base64"))
}

/// The time of the signature, and whether it stands in `x-ms-date`.
fn date(headers: &Fields) -> Result<(&str, bool), Refusal> {
    let own = headers.get(&headers::DATE);
    let value = own.or_else(|| headers.get(&header::DATE));
    let text = value.and_then(|it| str::from_utf8(it).ok());
    match text {
        Some(text) => Ok((text, own.is_some())),
        None => {
            Err(unauthorized("the request has no header x-ms-date with the time it was signed"))
        }
    }
}

fn signed_at(text: &str) -> Result<Timestamp, Refusal> {
    let signed = httpdate::parse_http_date(&in_usual_case(text))
        .ok()
        .and_then(|it| it.duration_since(std::time::UNIX_EPOCH).ok())
        .map(|it| Timestamp::EPOCH.plus(it));
    signed.ok_or_else(|| {
        let message = "the time of the signature is not a date of HTTP";
        Refusal::new(StatusCode::FORBIDDEN, message)
    })
}

fn check_time(options: &GatewayOptions, now: Timestamp, signed: Timestamp) -> Result<(), Refusal> {
    let distance = now.since(signed).max(signed.since(now));
    if distance <= options.clock_skew_max {
        return Ok(());
    }
    let message = format!(
        "the authorization token is not valid at the current time: it was signed at {}, and here \
         it is {}; set the clocks",
        signed.to_rfc3339(),
        now.to_rfc3339()
    );
    Err(Refusal::new(StatusCode::FORBIDDEN, message))
}

/// A date of HTTP in the case of the standard; some SDKs send it in lower case.
fn in_usual_case(date: &str) -> String {
    let mut is_first = true;
    let fixed = date.chars().map(|letter| {
        let fixed = if is_first { letter.to_ascii_uppercase() } else { letter };
        is_first = !letter.is_ascii_alphabetic();
        fixed
    });
    fixed.collect::<String>().replace("Gmt", "GMT")
}

fn message(method: &Method, kind: &str, link: &str, date: &str, is_x_ms: bool) -> String {
    let (method, kind) = (method.as_str().to_ascii_lowercase(), kind.to_ascii_lowercase());
    let date = date.to_ascii_lowercase();
    let (own, plain) = if is_x_ms { (date.as_str(), "") } else { ("", date.as_str()) };
    format!("{method}\n{kind}\n{link}\n{own}\n{plain}\n")
}

/// Compares in constant time.
fn verifies(key: &AccountKey, message: &[u8], signature: &[u8]) -> bool {
    let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(key.bytes()) else { return false };
    mac.update(message);
    mac.verify_slice(signature).is_ok()
}

/// What may be signed for a path: type and link of the resource, the likeliest first.
///
/// Feeds are signed with the link of what they belong to; resource ids stand alone, in lower case.
fn links(segments: &[String]) -> Vec<(String, String)> {
    let count = segments.len();
    let Some(last) = segments.last() else { return vec![(String::new(), String::new())] };
    let is_feed = count % 2 == 1;
    let (kind, of) = if is_feed { (last, count - 1) } else { (&segments[count - 2], count) };
    let mut links = vec![(kind.clone(), segments[..of].join("/"))];
    let id = of.checked_sub(1).map(|it| segments[it].as_str()).unwrap_or_default();
    if Rid::decode(id).is_some() || kind == "offers" {
        links.push((kind.clone(), id.to_ascii_lowercase()));
    }
    if last == "partitionkeydelete" && 4 <= count {
        let container = segments[..4].join("/");
        for kind in ["colls", "partitionkey"] {
            links.push((kind.to_owned(), container.clone()));
            links.push((kind.to_owned(), segments[3].to_ascii_lowercase()));
        }
    }
    links
}

fn unauthorized(message: &str) -> Refusal {
    Refusal::new(StatusCode::UNAUTHORIZED, message)
}

#[cfg(test)]
mod tests;
