//! The continuation of a lease of Java's epk form: a state of the change feed as JSON in base64.

use base64::Engine;
use base64::alphabet::{STANDARD, URL_SAFE};
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use millstream_core::{FeedMode, KeyRange, StartFrom, Timestamp};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::error::ErrorKind;
use crate::foreign::document::{ForeignPosition, excerpt};
use crate::foreign::form::{java_mode, mode_of};

/// The only version of the state there is.
const VERSION: u64 = 1;
/// Longest text that is looked at; a state has below 2 KiB.
const TEXT_BYTES_MAX: usize = 32 * 1024;

/// What a state says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FeedState {
    pub(crate) mode: FeedMode,
    pub(crate) position: ForeignPosition,
}

/// A state that is not understood.
#[derive(Debug)]
pub(crate) struct Fault {
    pub(crate) kind: ErrorKind,
    pub(crate) text: String,
}

#[derive(Deserialize)]
struct Wire {
    #[serde(rename = "V")]
    version: Option<u64>,
    #[serde(rename = "Mode")]
    mode: Option<String>,
    #[serde(rename = "StartFrom")]
    start_from: Option<WireStart>,
    #[serde(rename = "Continuation")]
    continuation: Option<WireContinuation>,
}

#[derive(Deserialize)]
struct WireStart {
    #[serde(rename = "Type")]
    kind: String,
    #[serde(rename = "PointInTimeMs")]
    point_in_time_ms: Option<u64>,
    #[serde(rename = "Etag", alias = "ETag")]
    etag: Option<String>,
}

#[derive(Deserialize)]
struct WireContinuation {
    #[serde(rename = "V")]
    version: Option<u64>,
    #[serde(rename = "Continuation")]
    tokens: Option<Vec<WireToken>>,
}

#[derive(Deserialize)]
struct WireToken {
    token: Option<String>,
    range: KeyRange,
}

/// Reads the state of a lease for these keys.
pub(crate) fn parse(text: &str, keys: &KeyRange) -> Result<FeedState, Fault> {
    let wire: Wire = serde_json::from_value(decode(text)?)
        .map_err(|error| fault(format!("its continuation is not a feed state: {error}")))?;
    check_version(wire.version)?;
    let mode = wire.mode.as_deref().unwrap_or_default();
    let mode =
        mode_of(mode).ok_or_else(|| fault(format!("the mode {:?} is not known", excerpt(mode))))?;
    let token = match wire.continuation {
        None => None,
        Some(continuation) => token_of(continuation, keys)?,
    };
    let position = match token {
        Some(token) => ForeignPosition::Etag(token),
        None => start_of(wire.start_from)?,
    };
    Ok(FeedState { mode, position })
}

/// A state with the token at `etag`. What `earlier` says about the container and the first start is
/// kept.
pub(crate) fn write(
    link: &str,
    mode: FeedMode,
    keys: &KeyRange,
    etag: &str,
    earlier: Option<&str>,
) -> String {
    let earlier = earlier.and_then(|it| decode(it).ok());
    let kept = |name: &str| earlier.as_ref().and_then(|it| it.get(name)).cloned();
    // Only used without a token. The feed of all versions knows no beginning.
    let start = match mode {
        FeedMode::LatestVersion => "BEGINNING",
        FeedMode::AllVersions => "NOW",
    };
    let rid = kept("Rid").filter(Value::is_string).unwrap_or_else(|| json!(link));
    let (min, max) = (keys.min(), keys.max());
    let state = json!({
        "V": VERSION,
        "Rid": rid,
        "Mode": java_mode(mode),
        "StartFrom": kept("StartFrom").unwrap_or_else(|| json!({ "Type": start })),
        "Continuation": {
            "V": VERSION,
            "Rid": rid,
            "Continuation": [{ "token": etag, "range": { "min": min, "max": max } }],
            "Range": keys,
        },
    });
    engine(&URL_SAFE).encode(state.to_string())
}

fn decode(text: &str) -> Result<Value, Fault> {
    if TEXT_BYTES_MAX < text.len() {
        return Err(fault(format!("its continuation has {} bytes", text.len())));
    }
    // The SDK writes the alphabet for URLs; its documentation shows the other.
    let bytes = engine(&URL_SAFE).decode(text).or_else(|_| engine(&STANDARD).decode(text));
    let bytes = bytes.map_err(|_| fault("its continuation is not base64".to_owned()))?;
    serde_json::from_slice(&bytes)
        .map_err(|error| fault(format!("its continuation is not JSON: {error}")))
}

fn token_of(continuation: WireContinuation, keys: &KeyRange) -> Result<Option<String>, Fault> {
    check_version(continuation.version)?;
    let mut tokens = continuation.tokens.unwrap_or_default();
    let (Some(only), true) = (tokens.pop(), tokens.is_empty()) else {
        return Err(fault("its continuation does not hold exactly one token".to_owned()));
    };
    if !only.range.covers(keys) {
        return Err(fault(format!("its continuation is for {} and not for {keys}", only.range)));
    }
    Ok(only.token.filter(|it| !it.is_empty()))
}

fn start_of(start: Option<WireStart>) -> Result<ForeignPosition, Fault> {
    let Some(start) = start else { return Ok(ForeignPosition::NotStarted) };
    let from = match (start.kind.as_str(), start.point_in_time_ms, start.etag) {
        ("BEGINNING", ..) => StartFrom::Beginning,
        ("NOW", ..) => StartFrom::Now,
        ("POINT_IN_TIME", Some(millis), _) => StartFrom::Time(Timestamp::from_millis(millis)),
        ("LEASE" | "LEGACY_CHECKPOINT", _, Some(etag)) if !etag.is_empty() => {
            return Ok(ForeignPosition::Etag(etag));
        }
        (kind, ..) => {
            let kind = excerpt(kind);
            return Err(fault(format!("its start {kind:?} is not known or lacks its value")));
        }
    };
    Ok(ForeignPosition::Start(from))
}

fn check_version(version: Option<u64>) -> Result<(), Fault> {
    match version {
        Some(VERSION) => Ok(()),
        Some(version) if VERSION < version => {
            let text = format!(
                "its feed state was written by a newer SDK (V {version}); update this program"
            );
            Err(Fault { kind: ErrorKind::NewerSchema, text })
        }
        _ => Err(fault("its feed state does not say V 1".to_owned())),
    }
}

fn engine(alphabet: &base64::alphabet::Alphabet) -> GeneralPurpose {
    let config =
        GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
    GeneralPurpose::new(alphabet, config)
}

fn fault(text: String) -> Fault {
    Fault { kind: ErrorKind::Invalid, text }
}
