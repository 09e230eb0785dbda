//! Sends spans to a collector.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::body::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use hyper::{Method, Request, StatusCode, Uri};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use millstream_core::Clock;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::config::TracesConfig;
use crate::failure::{Failure, Result};
use crate::traces::span::{Span, request};

/// Spans of one request.
const REQUEST_SPANS_MAX: usize = 512;
/// How long spans wait for others.
const GATHER: Duration = Duration::from_secs(1);
/// How long one request may take; also all that is left when the program ends.
const TIMEOUT: Duration = Duration::from_secs(10);
const LAST_TIMEOUT: Duration = Duration::from_secs(3);
/// How often a request is tried, and how long apart, if the collector says that it may be.
const TRIES: u32 = 3;
const PAUSE: Duration = Duration::from_secs(1);
/// Most of an answer that is read; only errors are shown.
const ANSWER_BYTES_MAX: usize = 1024;

/// Sends what a [`crate::traces::Traces`] takes, while it runs.
pub(crate) struct Exporter {
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    address: Uri,
    headers: HeaderMap,
    service: String,
    spans: mpsc::Receiver<Span>,
    dropped: Arc<AtomicU64>,
    clock: Arc<dyn Clock>,
    /// Whether the last request failed, so that a failure is told once.
    is_failing: bool,
}

/// Why spans were not taken.
enum Refusal {
    /// It may be taken later.
    Later(String),
    Never(String),
}

impl Exporter {
    pub(super) fn new(
        endpoint: &str,
        config: &TracesConfig,
        spans: mpsc::Receiver<Span>,
        dropped: Arc<AtomicU64>,
        clock: Arc<dyn Clock>,
    ) -> Result<Self> {
        let connector =
            HttpsConnectorBuilder::new().with_webpki_roots().https_or_http().enable_http1().build();
        Ok(Self {
            client: Client::builder(TokioExecutor::new()).build(connector),
            address: address(endpoint)?,
            headers: headers(&config.headers)?,
            service: config.service.clone(),
            spans,
            dropped,
            clock,
            is_failing: false,
        })
    }

    /// Sends spans until `shutdown`, then those that wait.
    pub(crate) async fn run(mut self, shutdown: CancellationToken) {
        let mut gathered = Vec::new();
        while !shutdown.is_cancelled() {
            tokio::select! {
                biased;
                () = shutdown.cancelled() => (),
                count = self.spans.recv_many(&mut gathered, REQUEST_SPANS_MAX) => {
                    if count == 0 {
                        return;
                    }
                    self.gather(&mut gathered, &shutdown).await;
                }
            }
            self.send(std::mem::take(&mut gathered), &shutdown).await;
        }
        let last = async {
            while let Ok(span) = self.spans.try_recv() {
                gathered.push(span);
                if REQUEST_SPANS_MAX <= gathered.len() {
                    self.send(std::mem::take(&mut gathered), &shutdown).await;
                }
            }
            self.send(gathered, &shutdown).await;
        };
        // A collector that is slow does not keep the program from ending.
        let _ = tokio::time::timeout(LAST_TIMEOUT, last).await;
    }

    /// Waits for more, a moment.
    async fn gather(&mut self, gathered: &mut Vec<Span>, shutdown: &CancellationToken) {
        let clock = Arc::clone(&self.clock);
        let mut over = clock.sleep(GATHER);
        while gathered.len() < REQUEST_SPANS_MAX {
            let room = REQUEST_SPANS_MAX - gathered.len();
            tokio::select! {
                biased;
                () = shutdown.cancelled() => return,
                () = &mut over => return,
                count = self.spans.recv_many(gathered, room) => {
                    if count == 0 {
                        return;
                    }
                }
            }
        }
    }

    async fn send(&mut self, spans: Vec<Span>, shutdown: &CancellationToken) {
        if spans.is_empty() {
            return;
        }
        let body = Bytes::from(request(&self.service, &spans));
        let mut refused = String::new();
        for attempt in 1..=TRIES {
            match self.post(body.clone()).await {
                Ok(()) => {
                    self.is_failing = false;
                    return;
                }
                Err(Refusal::Never(reason)) => {
                    refused = reason;
                    break;
                }
                Err(Refusal::Later(reason)) => refused = reason,
            }
            if shutdown.is_cancelled() {
                break;
            }
            self.clock.sleep(PAUSE * attempt).await;
        }
        let count = u64::try_from(spans.len()).unwrap_or(u64::MAX);
        self.dropped.fetch_add(count, Ordering::Relaxed);
        if !std::mem::replace(&mut self.is_failing, true) {
            let address = self.address.to_string();
            tracing::warn!(address, reason = refused, "traces do not reach the collector");
        }
    }

    async fn post(&self, body: Bytes) -> std::result::Result<(), Refusal> {
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.address.clone();
        *request.headers_mut() = self.headers.clone();
        let exchange = async {
            let answer = self.client.request(request).await;
            let answer = answer.map_err(|error| Refusal::Later(error.to_string()))?;
            let status = answer.status();
            if status.is_success() {
                return Ok(());
            }
            let text = Limited::new(answer.into_body(), ANSWER_BYTES_MAX).collect().await;
            let text = text.map(|it| it.to_bytes()).unwrap_or_default();
            let reason = format!("{status}: {}", String::from_utf8_lossy(&text).trim());
            // Those that the protocol names as worth another attempt.
            let is_passing = matches!(
                status,
                StatusCode::TOO_MANY_REQUESTS
                    | StatusCode::BAD_GATEWAY
                    | StatusCode::SERVICE_UNAVAILABLE
                    | StatusCode::GATEWAY_TIMEOUT
            );
            Err(if is_passing { Refusal::Later(reason) } else { Refusal::Never(reason) })
        };
        let late = |_| Refusal::Later("it did not answer in time".to_owned());
        tokio::time::timeout(TIMEOUT, exchange).await.map_err(late)?
    }
}

/// Refuses settings that cannot work.
pub(crate) fn check(config: &TracesConfig) -> Result<()> {
    headers(&config.headers)?;
    config.endpoint.as_deref().map_or(Ok(()), |it| address(it).map(drop))
}

/// The address of an endpoint, with the path that the protocol gives it.
fn address(endpoint: &str) -> Result<Uri> {
    let wrong = || {
        Failure::usage(format!(
            "traces.endpoint is {endpoint:?}: write the address of a collector for OTLP over \
             HTTP, such as http://127.0.0.1:4318"
        ))
    };
    let base = endpoint.trim_end_matches('/');
    let path = if base.ends_with("/v1/traces") { "" } else { "/v1/traces" };
    let address: Uri = format!("{base}{path}").parse().map_err(|_| wrong())?;
    let is_http = matches!(address.scheme_str(), Some("http" | "https"));
    if is_http && address.host().is_some() { Ok(address) } else { Err(wrong()) }
}

/// Headers as the environment writes them, `name=value` and commas between.
fn headers(text: &str) -> Result<HeaderMap> {
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    for pair in text.split(',').map(str::trim).filter(|it| !it.is_empty()) {
        // A value may be secret, so it is not shown.
        let wrong = || {
            Failure::usage(
                "the headers for traces are malformed: write name=value, with commas between",
            )
        };
        let (name, value) = pair.split_once('=').ok_or_else(wrong)?;
        let name = HeaderName::try_from(name.trim()).map_err(|_| wrong())?;
        let mut value = HeaderValue::try_from(value.trim()).map_err(|_| wrong())?;
        value.set_sensitive(true);
        headers.insert(name, value);
    }
    Ok(headers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_gets_the_path_of_the_protocol_unless_it_has_it() {
        let check = |endpoint: &str| address(endpoint).map(|it| it.to_string()).ok();
        let expected = Some("http://127.0.0.1:4318/v1/traces".to_owned());
        assert_eq!(check("http://127.0.0.1:4318"), expected);
        assert_eq!(check("http://127.0.0.1:4318/"), expected);
        assert_eq!(check("http://127.0.0.1:4318/v1/traces"), expected);
        assert_eq!(check("127.0.0.1:4318"), None);
        assert_eq!(check("grpc://here"), None);
    }

    #[test]
    fn headers_are_read_and_never_shown() {
        let found = headers("authorization=Bearer a=b, x-team = blue").unwrap();
        assert_eq!(found["authorization"], "Bearer a=b");
        assert_eq!(found["x-team"], "blue");
        assert!(!format!("{found:?}").contains("Bearer"));
        assert!(headers("authorization").unwrap_err().to_string().contains("name=value"));
    }
}
