//! `GET …/docs` without a feed mode: the items in the order of their keys.
//!
//! Between two pages a range may be split or merged. Clients then send the continuation of a range
//! to each that took its place, so it says which keys it was given out for and how far it got.

use bytes::Bytes;
use http::StatusCode;
use millstream_core::{EffectiveKey, Item, KeyRange, Lsn, ScanContinuation, ScanPage, ScanScope};

use crate::item_body::{self, home};
use crate::open_container::OpenContainer;
use crate::refusal::Refusal;
use crate::reply::{Answer, Reply};
use crate::request::Request;
use crate::scope::Scope;
use crate::state::Call;
use crate::{charge, headers};

/// Longest continuation that is looked at.
const CONTINUATION_BYTES_MAX: usize = 16 * 1024;
/// Stands before continuations that have keys; no backend's own begins like it.
const KEYS_MARK: &str = "k:";

/// Where the pages of some keys go on.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// What the backend was asked for.
    keys: KeyRange,
    /// The key of the last item that was shown; if there was none, that of the first there may be.
    shown: EffectiveKey,
    /// The place as the backend names it; none at the first of the keys.
    scan: Option<ScanContinuation>,
}

/// A page of the items that a request is about.
pub(crate) async fn list(call: Call<'_>) -> Answer {
    let Call { request, container, .. } = call;
    let scope = Scope::read(request, container).await?;
    container.check_session(request, &scope.keys(container)?).await?;
    let continuation = match request.text(&headers::CONTINUATION)? {
        None | Some("") => None,
        Some(text) if CONTINUATION_BYTES_MAX < text.len() => {
            return Err(Refusal::bad_request("the continuation of the request is too long"));
        }
        Some(text) => Some(text),
    };
    let (items, next) = match &scope {
        // A logical partition stays in one piece.
        Scope::Partition(_) => {
            let page = scan(request, container, &scope.to_scan(), continuation).await?;
            (page.items, page.continuation.map(|it| it.as_str().to_owned()))
        }
        Scope::Keys(_) | Scope::All => {
            page_of_keys(request, container, scope.keys(container)?, continuation).await?
        }
    };
    let home = home(container);
    let documents: Vec<Bytes> = items.iter().map(|item| home.present(item)).collect();
    let body = item_body::page(&container.rid, &documents);
    let charge = charge::page(body.len());
    let mut reply = Reply::new(StatusCode::OK, body).item_count(documents.len()).charge(charge);
    if let Scope::Partition(key) = &scope {
        let newest = items.iter().map(|it| it.lsn).max().unwrap_or(Lsn::ZERO);
        let (range, lsn) = container.position(key, newest)?;
        reply = reply.session(range, lsn);
    }
    if let Some(next) = next {
        reply = reply.header(&headers::CONTINUATION, &next);
    }
    Ok(reply)
}

/// A page of the items with these keys, and where the next one begins.
async fn page_of_keys(
    request: &Request,
    container: &OpenContainer,
    keys: KeyRange,
    continuation: Option<&str>,
) -> Result<(Vec<Item>, Option<String>), Refusal> {
    let from = continuation.map(|it| Place::parse(it, &keys)).transpose()?;
    // After a merge there are more keys than those that the place is about.
    let keys = match &from {
        Some(place) => place.keys.intersect(&keys).ok_or_else(elsewhere)?,
        None => keys,
    };
    let place = match from {
        Some(place) if keys.contains(&place.shown) => place,
        Some(place) if keys.min().trimmed() <= place.shown.as_bytes() => {
            return Ok((Vec::new(), None));
        }
        Some(_) | None => Place::at_start(keys.clone()),
    };
    let scope = ScanScope::Keys(place.keys.clone());
    let after = place.scan.as_ref().map(ScanContinuation::as_str);
    let page = scan(request, container, &scope, after).await?;
    let mut items = page.items;
    let mut shown = place.shown;
    let mut next = page.continuation;
    for index in 0..items.len() {
        let key = container.settings().partition_key.effective(&items[index].partition_key)?;
        if !keys.contains(&key) {
            // They come in the order of their keys, so none of those that follow is asked for.
            items.truncate(index);
            next = None;
            break;
        }
        shown = key;
    }
    let next = next.map(|scan| Place { keys: place.keys, shown, scan: Some(scan) }.to_string());
    Ok((items, next))
}

async fn scan(
    request: &Request,
    container: &OpenContainer,
    scope: &ScanScope,
    after: Option<&str>,
) -> Result<ScanPage, Refusal> {
    let after = after.map(ScanContinuation::new);
    Ok(container.documents().scan(scope, after.as_ref(), request.page_size()?).await?)
}

fn elsewhere() -> Refusal {
    Refusal::bad_request("the continuation of the request belongs to other keys")
}

impl Place {
    fn at_start(keys: KeyRange) -> Self {
        Self { shown: keys.min().clone(), keys, scan: None }
    }

    /// Reads a continuation of a request about `keys`.
    pub(crate) fn parse(text: &str, keys: &KeyRange) -> Result<Self, Refusal> {
        let Some(text) = text.strip_prefix(KEYS_MARK) else {
            // Those of earlier versions are what the backend said, and so about the same keys.
            let scan = Some(ScanContinuation::new(text));
            return Ok(Self { scan, ..Self::at_start(keys.clone()) });
        };
        let refused = || Refusal::bad_request("the continuation of the request is not one of ours");
        let mut parts = text.splitn(4, ':');
        let mut part = || parts.next().ok_or_else(refused);
        let (min, max, shown) = (part()?.parse()?, part()?.parse()?, part()?.parse()?);
        let scan = Some(ScanContinuation::new(part()?));
        Ok(Self { keys: KeyRange::new(min, max)?, shown, scan })
    }
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { keys, shown, scan } = self;
        let scan = scan.as_ref().map_or("", ScanContinuation::as_str);
        write!(f, "{KEYS_MARK}{}:{}:{shown}:{scan}", keys.min(), keys.max())
    }
}
