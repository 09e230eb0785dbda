//! Names of headers, as the SDKs of Cosmos DB send and expect them.

use http::HeaderName;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// What is encoded in a path: all but what SDKs leave as it is when they encode a name.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Which feed: `Incremental Feed` or `Full-Fidelity Feed`.
pub(crate) const A_IM: HeaderName = HeaderName::from_static("a-im");
/// Names one request in logs of both sides.
pub(crate) const ACTIVITY_ID: HeaderName = HeaderName::from_static("x-ms-activity-id");
/// The name path of what owns the resource: the container of an item, `dbs/d/colls/c`, under which
/// clients file session tokens, or the database of a container.
pub(crate) const ALT_CONTENT_PATH: HeaderName = HeaderName::from_static("x-ms-alt-content-path");
/// Settings of autoscale for a new database or container.
pub(crate) const AUTOPILOT_SETTINGS: HeaderName =
    HeaderName::from_static("x-ms-cosmos-offer-autopilot-settings");
/// All operations or none.
pub(crate) const BATCH_ATOMIC: HeaderName = HeaderName::from_static("x-ms-cosmos-batch-atomic");
/// The other operations go on where one is refused.
pub(crate) const BATCH_CONTINUE_ON_ERROR: HeaderName =
    HeaderName::from_static("x-ms-cosmos-batch-continue-on-error");
/// Which form changes have; `2021-09-15` puts each into an envelope.
pub(crate) const CHANGE_FEED_WIRE_FORMAT: HeaderName =
    HeaderName::from_static("x-ms-cosmos-changefeed-wire-format-version");
/// What the SDK that sent the request can do.
pub(crate) const CAPABILITIES: HeaderName =
    HeaderName::from_static("x-ms-cosmos-sdk-supportedcapabilities");
/// The resource id of the same owner.
pub(crate) const CONTENT_PATH: HeaderName = HeaderName::from_static("x-ms-content-path");
/// Where a feed or query goes on.
pub(crate) const CONTINUATION: HeaderName = HeaderName::from_static("x-ms-continuation");
/// Longest continuation the client takes, in KiB.
pub(crate) const CONTINUATION_LIMIT: HeaderName =
    HeaderName::from_static("x-ms-documentdb-responsecontinuationtokenlimitinkb");
/// The time the request was signed at.
pub(crate) const DATE: HeaderName = HeaderName::from_static("x-ms-date");
/// The client knows that a query may look at several partitions.
pub(crate) const ENABLE_CROSS_PARTITION: HeaderName =
    HeaderName::from_static("x-ms-documentdb-query-enablecrosspartition");
/// The end of a range of effective partition keys.
pub(crate) const END_EPK: HeaderName = HeaderName::from_static("x-ms-end-epk");
/// The resource id the client believes the container to have.
pub(crate) const INTENDED_CONTAINER: HeaderName =
    HeaderName::from_static("x-ms-cosmos-intended-collection-rid");
/// The body is a batch.
pub(crate) const IS_BATCH: HeaderName = HeaderName::from_static("x-ms-cosmos-is-batch-request");
/// The body is a query.
pub(crate) const IS_QUERY: HeaderName = HeaderName::from_static("x-ms-documentdb-isquery");
/// The client wants the plan of a query, not its result.
pub(crate) const IS_QUERY_PLAN: HeaderName =
    HeaderName::from_static("x-ms-cosmos-is-query-plan-request");
/// The body replaces an item if there is one.
pub(crate) const IS_UPSERT: HeaderName = HeaderName::from_static("x-ms-documentdb-is-upsert");
/// How far a new indexing policy has got.
pub(crate) const INDEX_PROGRESS: HeaderName =
    HeaderName::from_static("x-ms-documentdb-collection-index-transformation-progress");
/// Which indexes a query used: in base64, or, where the second form was asked for, as in a URL.
pub(crate) const INDEX_UTILIZATION: HeaderName =
    HeaderName::from_static("x-ms-cosmos-index-utilization");
/// Number of items in a page.
pub(crate) const ITEM_COUNT: HeaderName = HeaderName::from_static("x-ms-item-count");
/// The number of the commit that wrote the item which was read.
pub(crate) const ITEM_LSN: HeaderName = HeaderName::from_static("x-ms-item-lsn");
/// The newest commit of the range that answered.
pub(crate) const LSN: HeaderName = HeaderName::from_static("lsn");
/// Most items of a page; -1 lets the server choose.
pub(crate) const MAX_ITEM_COUNT: HeaderName = HeaderName::from_static("x-ms-max-item-count");
/// The least throughput that can be provisioned.
pub(crate) const MIN_THROUGHPUT: HeaderName = HeaderName::from_static("x-ms-cosmos-min-throughput");
/// Whether a change of throughput is still under way.
pub(crate) const OFFER_REPLACE_PENDING: HeaderName =
    HeaderName::from_static("x-ms-offer-replace-pending");
/// Throughput of a new database or container.
pub(crate) const OFFER_THROUGHPUT: HeaderName = HeaderName::from_static("x-ms-offer-throughput");
/// The partition key as a JSON array.
pub(crate) const PARTITION_KEY: HeaderName =
    HeaderName::from_static("x-ms-documentdb-partitionkey");
/// The client wants to know which indexes a query used.
pub(crate) const POPULATE_INDEX_METRICS: HeaderName =
    HeaderName::from_static("x-ms-cosmos-populateindexmetrics");
/// The same, in a shorter form: the SDKs for .NET and JavaScript.
pub(crate) const POPULATE_INDEX_METRICS_SHORT: HeaderName =
    HeaderName::from_static("x-ms-cosmos-populateindexmetrics-v2");
/// The client wants to know what a query did.
pub(crate) const POPULATE_QUERY_METRICS: HeaderName =
    HeaderName::from_static("x-ms-documentdb-populatequerymetrics");
/// Triggers to run after a write.
pub(crate) const POST_TRIGGER: HeaderName =
    HeaderName::from_static("x-ms-documentdb-post-trigger-include");
/// Triggers to run before a write.
pub(crate) const PRE_TRIGGER: HeaderName =
    HeaderName::from_static("x-ms-documentdb-pre-trigger-include");
/// What a query did.
pub(crate) const QUERY_METRICS: HeaderName =
    HeaderName::from_static("x-ms-documentdb-query-metrics");
/// The range of the container, `0` or `<container>,0`.
pub(crate) const RANGE_ID: HeaderName =
    HeaderName::from_static("x-ms-documentdb-partitionkeyrangeid");
/// What the bounds in `x-ms-start-epk` and `x-ms-end-epk` are.
pub(crate) const READ_KEY_TYPE: HeaderName = HeaderName::from_static("x-ms-read-key-type");
/// What the request cost.
pub(crate) const REQUEST_CHARGE: HeaderName = HeaderName::from_static("x-ms-request-charge");
/// How long the service took, in milliseconds.
pub(crate) const REQUEST_DURATION_MS: HeaderName =
    HeaderName::from_static("x-ms-request-duration-ms");
/// How long a client should wait before it tries again.
pub(crate) const RETRY_AFTER_MS: HeaderName = HeaderName::from_static("x-ms-retry-after-ms");
/// Version of the schema, which clients of .NET ask for.
pub(crate) const SCHEMA_VERSION: HeaderName = HeaderName::from_static("x-ms-schemaversion");
/// Version of the service.
pub(crate) const SERVICE_VERSION: HeaderName = HeaderName::from_static("x-ms-serviceversion");
/// What the client has seen, range by range.
pub(crate) const SESSION_TOKEN: HeaderName = HeaderName::from_static("x-ms-session-token");
/// The beginning of a range of effective partition keys.
pub(crate) const START_EPK: HeaderName = HeaderName::from_static("x-ms-start-epk");
/// Tells refusals of the same status apart.
pub(crate) const SUB_STATUS: HeaderName = HeaderName::from_static("x-ms-substatus");
/// What the client can do with the plan of a query, as a list of names.
pub(crate) const SUPPORTED_QUERY_FEATURES: HeaderName =
    HeaderName::from_static("x-ms-cosmos-supported-query-features");
/// Items in answers carry `_lsn`, as they do in the feed; for Millstream's own client.
pub(crate) const WITH_LSN: HeaderName = HeaderName::from_static("x-millstream-item-lsn");

/// Names as a path: a header has ASCII only, and clients compare it with what they sent.
pub(crate) fn path(names: &[&str]) -> String {
    let names: Vec<String> = names.iter().map(|it| encoded(it)).collect();
    names.join("/")
}

/// A text as it stands in a URL.
pub(crate) fn encoded(text: &str) -> String {
    utf8_percent_encode(text, ENCODED).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_has_every_name_that_can_be() {
        assert_eq!(path(&["dbs", "a-b_c.d~1"]), "dbs/a-b_c.d~1");
        assert_eq!(path(&["dbs", "a b+ü%"]), "dbs/a%20b%2B%C3%BC%25");
    }
}
