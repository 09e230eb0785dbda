use axum::body::Bytes;
use axum::extract::{FromRequest, Request};
use axum::http::{HeaderMap, StatusCode, header};
use serde::de::DeserializeOwned;

use crate::http::problem::Problem;

/// The body of a request as JSON.
///
/// # Errors
///
/// 415 if it is something else, 413 if it is too large, 400 if it is not what it should be.
pub(crate) async fn json<T: DeserializeOwned>(request: Request) -> Result<T, Problem> {
    if !is_json(request.headers()) {
        let sentence = "the body must be JSON: set Content-Type to application/json";
        return Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, sentence));
    }
    let bytes = Bytes::from_request(request, &()).await.map_err(|rejection| {
        if rejection.status() == StatusCode::PAYLOAD_TOO_LARGE {
            let sentence = "the body must have at most 64 KiB";
            return Problem::new(StatusCode::PAYLOAD_TOO_LARGE, sentence);
        }
        Problem::bad_request("the body could not be read to its end")
    })?;
    serde_json::from_slice(&bytes)
        .map_err(|error| Problem::bad_request(format!("the body is not as expected: {error}")))
}

fn is_json(headers: &HeaderMap) -> bool {
    let value = headers.get(header::CONTENT_TYPE).and_then(|it| it.to_str().ok());
    let kind = value.and_then(|it| it.split(';').next()).unwrap_or_default().trim();
    let kind = kind.to_ascii_lowercase();
    kind == "application/json" || kind.starts_with("application/") && kind.ends_with("+json")
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    #[track_caller]
    fn check(content_type: &str, expected: bool) {
        let value = HeaderValue::try_from(content_type).unwrap();
        let headers = HeaderMap::from_iter([(header::CONTENT_TYPE, value)]);
        assert_eq!(is_json(&headers), expected, "{content_type}");
    }

    #[test]
    fn json_has_several_names() {
        check("application/json", true);
        check("Application/JSON; charset=utf-8", true);
        check("application/merge-patch+json", true);
        check("text/json", false);
        check("application/xml", false);
        check("", false);
        assert!(!is_json(&HeaderMap::new()));
    }
}
