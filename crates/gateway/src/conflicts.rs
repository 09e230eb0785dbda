//! Conflicts of several write regions. There is one region, so that there are none, ever.

use http::StatusCode;
use serde_json::json;

use crate::headers;
use crate::refusal::Refusal;
use crate::reply::{Answer, Reply};
use crate::request::KeyHeader;
use crate::state::Call;

/// `GET …/conflicts`, or a query of them.
pub(crate) fn list(call: Call<'_>) -> Answer {
    let request = call.request;
    let is_query = request.flag(&headers::IS_QUERY);
    let crosses = request.flag(&headers::ENABLE_CROSS_PARTITION);
    if is_query && !crosses && request.partition_key()? == KeyHeader::Missing {
        return Err(Refusal::bad_request(
            "Cross partition query is required but disabled. Name a partition key, or allow it \
             in the header x-ms-documentdb-query-enablecrosspartition.",
        ));
    }
    let page = json!({ "_rid": call.container.rid, "Conflicts": [], "_count": 0 });
    Ok(Reply::json(StatusCode::OK, &page)?.item_count(0))
}

/// `…/conflicts/{id}`.
pub(crate) fn one() -> Answer {
    Err(Refusal::not_found("there is no conflict with this id: writes go to one region"))
}
