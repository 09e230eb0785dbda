//! The ranges of a container: `pkranges`.

use http::{StatusCode, header};
use millstream_core::{Etag, ResourceId};
use serde_json::{Value, json};

use crate::known_ranges::{self, Range};
use crate::reply::{Answer, Reply, quoted};
use crate::rid::Rid;
use crate::state::Call;
use crate::{headers, listing, session};

/// `GET …/pkranges`.
///
/// Clients go on asking with the etag of the last answer until they get 304, so that exactly the
/// etag of what is there now must be answered with it. With any other etag they get all ranges,
/// which they merge into what they know by id and `parents`. The SDK for Python keeps both by name,
/// also when the container of that name is another one.
pub(crate) async fn read(call: Call<'_>) -> Answer {
    let ranges = call.container.refresh_ranges().await?;
    let container = call.container.info().resource_id;
    let newest = newest(&ranges);
    let etag = etag(container, newest);
    let token = session::tokens(ranges.iter().map(|it| (it.info.id, it.seen())));
    let with_headers = |reply: Reply| {
        reply
            .etag(&etag)
            .header(&headers::SESSION_TOKEN, &token)
            .number(&headers::LSN, newest.into())
    };
    let known = call.request.text(&header::IF_NONE_MATCH)?.map(crate::reply::unquoted);
    if known.is_some_and(|it| it == etag) {
        let reply = Reply::empty(StatusCode::NOT_MODIFIED).item_count(0);
        return Ok(with_headers(reply));
    }
    let count = ranges.len();
    let values = ranges.iter().map(|range| {
        let rid = Rid::Range(container, range.info.id).encode();
        let parents: Vec<String> = range.info.parents.iter().map(|it| it.0.to_string()).collect();
        json!({
            "id": range.info.id.0.to_string(),
            "_self": format!("{}pkranges/{rid}/", call.container.self_link),
            "_rid": rid,
            "_etag": quoted(&etag),
            "_ts": call.container.info().modified_at.as_millis() / 1000,
            "_lsn": range.seen().as_u64(),
            "minInclusive": range.info.keys.min().to_string(),
            "maxExclusive": range.info.keys.max().to_string(),
            "ridPrefix": range.info.id.0,
            "throughputFraction": fraction(count),
            "status": "online",
            "parents": parents,
            "ownedArchivalPKRangeIds": [],
        })
    });
    let values: Vec<Value> = values.collect();
    Ok(with_headers(listing::values("PartitionKeyRanges", &call.container.rid, values)?))
}

fn newest(ranges: &[Range]) -> u32 {
    known_ranges::newest(ranges.iter().map(|it| &it.info)).unwrap_or_default().0
}

/// Tells the ranges of a container from earlier ones, and from those of any other container.
fn etag(container: ResourceId, newest: u32) -> Etag {
    Etag::new(format!("{}-{}-{newest}", container.database, container.container))
}

fn fraction(count: usize) -> f64 {
    1.0 / f64::from(u32::try_from(count.max(1)).unwrap_or(u32::MAX))
}
