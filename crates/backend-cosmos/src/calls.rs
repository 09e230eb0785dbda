//! How the driver makes calls: what goes with each, how long it may take, what is sent again.

use std::time::Duration;

use azure_core::http::headers::{HeaderName, HeaderValue};
use azure_data_cosmos_driver::CosmosError;
use azure_data_cosmos_driver::options::{
    BinaryEncodingOptions, ConnectionPoolOptions, ContentResponseOnWrite,
    EndToEndOperationLatencyPolicy, OperationOptions, ThrottlingRetryOptions,
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
    // The SDK is to give up before the time is over: then the caller hears that it was too much.
    let mut throttling = ThrottlingRetryOptions::default();
    throttling.max_retry_wait_time = Some(timeout / 2);
    options.throttling_retry_options = Some(throttling);
    options
}

/// Connections on which an attempt may take as long as the whole call; by itself the SDK ends each
/// after 6 seconds, and nobody knows then what became of it.
pub(crate) fn connections(timeout: Duration) -> Result<ConnectionPoolOptions, CosmosError> {
    ConnectionPoolOptions::builder().with_max_dataplane_request_timeout(timeout).build()
}

/// For a call that must not take effect twice: it is not sent again after its answer was lost.
///
/// What the service refused is repeated all the same (429, 449, 403/3, 404/1002); what could not be
/// sent is not, and left to the caller. When a connection breaks the SDK goes on with another one,
/// which no option prevents; the diagnostics of the answer tell that.
pub(crate) fn once() -> OperationOptions {
    let mut options = OperationOptions::default();
    options.max_failover_retry_count = Some(0);
    options
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(timeout: Duration) {
        let attempt = connections(timeout).unwrap().max_dataplane_request_timeout();
        let options = for_all(timeout);
        let call = options.end_to_end_latency_policy.unwrap().timeout();
        let throttled = options.throttling_retry_options.unwrap().max_retry_wait_time.unwrap();
        assert_eq!((attempt, call), (timeout, timeout));
        assert!(throttled < timeout);
    }

    #[test]
    fn the_timeout_of_a_call_holds_for_each_attempt() {
        for seconds in [1, 6, 30, 600] {
            check(Duration::from_secs(seconds));
        }
    }
}
