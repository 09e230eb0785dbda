//! How the driver makes calls: what goes with each, how long it may take, what is sent again.

use std::time::Duration;

use azure_core::http::headers::{HeaderName, HeaderValue};
use azure_data_cosmos_driver::options::{
    BinaryEncodingOptions, ContentResponseOnWrite, EndToEndOperationLatencyPolicy, OperationOptions,
};

/// What holds for every call.
pub(crate) fn for_all(timeout: Duration) -> OperationOptions {
    let mut options = OperationOptions::default();
    // The SDK's own binary form would not bring back what a user wrote.
    options.binary_encoding = Some(BinaryEncodingOptions::new().with_enabled(false));
    options.content_response_on_write = Some(ContentResponseOnWrite::Enabled);
    // A remote Millstream says then which commit an item is from; Azure does not know the header.
    let wanted =
        (HeaderName::from_static("x-millstream-item-lsn"), HeaderValue::from_static("true"));
    options.custom_headers = Some([wanted].into());
    options.end_to_end_latency_policy = Some(EndToEndOperationLatencyPolicy::new(timeout));
    options
}

/// For a call that must not take effect twice: it is not sent again after its answer was lost.
///
/// What the service surely did not do is repeated all the same (429, 449, 403/3, 404/1002). When a
/// connection breaks the SDK goes on with another one, which no option prevents; the diagnostics of
/// the answer tell that.
pub(crate) fn once() -> OperationOptions {
    let mut options = OperationOptions::default();
    options.max_failover_retry_count = Some(0);
    options
}
