use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::future::{Either, select};
use futures_util::stream::iter;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use hyper::{Method, Request, StatusCode, Uri};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use millstream_core::{
    Clock, Error, ErrorKind, Message, PropertyValue, PublishLimits, Publisher, Result, SystemClock,
};

use crate::signature::Signer;

/// Most of an answer that is read; only errors are shown.
const ANSWER_BYTES_MAX: usize = 1024;
/// What begins the properties of CloudEvents.
const CLOUD_EVENTS: &str = "cloudEvents:";
/// Most messages in one call.
const BATCH_MESSAGES_MAX: usize = 100;

/// Settings of a webhook.
#[derive(Clone, Debug)]
pub struct WebhookOptions {
    signer: Option<Signer>,
    timeout: Duration,
    sessions_at_once: usize,
    message_bytes_max: usize,
    headers: Vec<(String, String)>,
}

impl Default for WebhookOptions {
    fn default() -> Self {
        Self {
            signer: None,
            timeout: Duration::from_secs(30),
            sessions_at_once: 8,
            message_bytes_max: 1024 * 1024,
            headers: Vec::new(),
        }
    }
}

impl WebhookOptions {
    /// Signs every POST. Default: not signed.
    #[must_use]
    pub fn signer(mut self, value: Signer) -> Self {
        self.signer = Some(value);
        self
    }

    /// How long one POST may take. Default: 30 s.
    #[must_use]
    pub fn timeout(mut self, value: Duration) -> Self {
        self.timeout = value;
        self
    }

    /// How many sessions are posted beside each other. Default: 8.
    #[must_use]
    pub fn sessions_at_once(mut self, value: usize) -> Self {
        self.sessions_at_once = value;
        self
    }

    /// Adds a header to every POST, such as an authorization. Default: none.
    #[must_use]
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }
}

/// A publisher that posts to one address.
pub struct Webhook {
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    address: Uri,
    headers: HeaderMap,
    options: WebhookOptions,
    clock: Arc<dyn Clock>,
    /// Answers so far that tell of no outage: whoever waits sees whether the endpoint is alive.
    answers: AtomicU64,
}

impl Webhook {
    /// A webhook at `address`, `http://` or `https://`. Needs a Tokio runtime.
    ///
    /// # Errors
    ///
    /// `Invalid` if the address or a header cannot be one.
    pub fn new(address: &str, options: WebhookOptions) -> Result<Self> {
        let refused = |reason: String| Error::invalid("use the address of the webhook", reason);
        let address: Uri = address.parse().map_err(|error| refused(format!("{error}")))?;
        if !matches!(address.scheme_str(), Some("http" | "https")) || address.host().is_none() {
            return Err(refused("it must begin with http:// or https:// and a host".to_owned()));
        }
        let mut headers = HeaderMap::new();
        for (name, value) in &options.headers {
            let failed = |_| Error::invalid(format!("use the header {name:?}"), "it is malformed");
            let name = HeaderName::try_from(name.as_str()).map_err(|_| failed(()))?;
            let mut value = HeaderValue::try_from(value.as_str()).map_err(|_| failed(()))?;
            value.set_sensitive(true);
            headers.insert(name, value);
        }
        let connector =
            HttpsConnectorBuilder::new().with_webpki_roots().https_or_http().enable_http1().build();
        let client = Client::builder(TokioExecutor::new()).build(connector);
        let clock = Arc::new(SystemClock::default());
        Ok(Self { client, address, headers, options, clock, answers: AtomicU64::new(0) })
    }

    /// Where the time in the signatures and the timeouts comes from. Default: the machine.
    #[must_use]
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Posts the messages of one session in order, until one fails.
    async fn post_session(&self, messages: Vec<(usize, Message)>) -> Result<()> {
        for (index, message) in messages {
            self.post(index, &message).await?;
        }
        Ok(())
    }

    /// Posts the message that has this number in the call. A failure names it only if it is about
    /// the message, and not about the endpoint.
    async fn post(&self, index: usize, message: &Message) -> Result<()> {
        let attempted = format!("post the message \"{}\"", message.id);
        let request = self.request(message).map_err(|error| error.at_operation(index))?;
        let answers_before = self.answers.load(Ordering::Relaxed);
        let exchange = async {
            let unavailable = |error: &dyn std::error::Error| {
                Error::new(ErrorKind::Unavailable, attempted.as_str()).because(error.to_string())
            };
            let answer = self.client.request(request).await.map_err(|error| {
                // What went wrong is in the cause: refused, reset, no such host.
                let cause = std::error::Error::source(&error);
                unavailable(cause.unwrap_or(&error)).with_unknown_effect()
            })?;
            let (head, body) = answer.into_parts();
            self.answers.fetch_add(u64::from(!is_outage(head.status)), Ordering::Relaxed);
            if head.status.is_success() {
                return Ok(());
            }
            let body = beginning(body).await;
            let retry_after = head.headers.get("retry-after").and_then(|it| it.to_str().ok());
            let retry_after = retry_after.and_then(|it| it.parse().ok()).map(Duration::from_secs);
            let error = answered(&attempted, head.status, &body, retry_after);
            Err(if is_outage(head.status) { error } else { error.at_operation(index) })
        };
        let exchange = std::pin::pin!(exchange);
        match select(exchange, self.clock.sleep(self.options.timeout)).await {
            Either::Left((outcome, _)) => outcome,
            Either::Right(((), _)) => {
                let error = Error::new(ErrorKind::Unavailable, attempted.as_str())
                    .because("there was no answer in time")
                    .with_unknown_effect();
                // An endpoint that answers others hangs at this message.
                let is_alive = answers_before != self.answers.load(Ordering::Relaxed);
                Err(if is_alive { error.at_operation(index) } else { error })
            }
        }
    }

    fn request(&self, message: &Message) -> Result<Request<Full<Bytes>>> {
        let refused = |name: &str| {
            Error::invalid(
                format!("post the message \"{}\"", message.id),
                format!("its {name} cannot be a header"),
            )
        };
        let now = self.clock.now();
        let mut headers = self.headers.clone();
        let mut set = |name: &str, value: &str| -> Result<()> {
            let key = HeaderName::try_from(name).map_err(|_| refused(name))?;
            headers.insert(key, HeaderValue::try_from(value).map_err(|_| refused(name))?);
            Ok(())
        };
        let content_type = message.content_type.as_deref().unwrap_or("application/octet-stream");
        set("content-type", content_type)?;
        set("webhook-id", &message.id)?;
        set("webhook-timestamp", &(now.as_millis() / 1000).to_string())?;
        for (name, value) in &message.properties {
            let text = text(value);
            if let Some(attribute) = name.strip_prefix(CLOUD_EVENTS) {
                set(&format!("ce-{attribute}"), &percent_encoded(&text))?;
            } else if matches!(name.as_ref(), "traceparent" | "tracestate" | "baggage") {
                set(name, &text)?;
            }
        }
        if let Some(signer) = &self.options.signer {
            let signature = signer.sign(&message.id, now, &message.body);
            set("webhook-signature", &signature)?;
        }
        let mut request = Request::new(Full::new(message.body.clone()));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.address.clone();
        *request.headers_mut() = headers;
        Ok(request)
    }
}

#[async_trait]
impl Publisher for Webhook {
    fn limits(&self) -> PublishLimits {
        PublishLimits {
            message_bytes_max: self.options.message_bytes_max,
            batch_bytes_max: 4 * self.options.message_bytes_max,
            batch_messages_max: BATCH_MESSAGES_MAX,
        }
    }

    fn can_schedule(&self) -> bool {
        false
    }

    async fn publish(&self, messages: Vec<Message>) -> Result<()> {
        let now = self.clock.now();
        let is_early = |it: &Message| it.scheduled_at.is_some_and(|at| now < at);
        if let Some(early) = messages.iter().position(is_early) {
            let attempted = format!("post the message {:?}", messages[early].id);
            let reason = "it is not due yet, and an endpoint cannot hold it back";
            let error = Error::new(ErrorKind::Unsupported, attempted).because(reason);
            return Err(error.at_operation(early));
        }
        let mut sessions: BTreeMap<Option<String>, Vec<(usize, Message)>> = BTreeMap::new();
        for (index, message) in messages.into_iter().enumerate() {
            sessions.entry(message.session_id.clone()).or_default().push((index, message));
        }
        let posts = sessions.into_values().map(|it| self.post_session(it));
        let outcomes: Vec<Result<()>> =
            iter(posts).buffer_unordered(self.options.sessions_at_once.max(1)).collect().await;
        let mut failures: Vec<Error> = outcomes.into_iter().filter_map(Result::err).collect();
        // A refusal tells the caller more than an outage: it will be the same the next time. An
        // outage, which names no message, tells more than that one message failed.
        failures.sort_by_key(|it| (!is_refusal(it), it.operation()));
        match failures.into_iter().next() {
            None => Ok(()),
            Some(error) => Err(error),
        }
    }
}

impl std::fmt::Debug for Webhook {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Webhook").field("address", &self.address).finish_non_exhaustive()
    }
}

/// As much of an answer as is shown.
async fn beginning(mut body: Incoming) -> Vec<u8> {
    let mut read = Vec::new();
    while read.len() < ANSWER_BYTES_MAX
        && let Some(Ok(frame)) = body.frame().await
    {
        read.extend_from_slice(frame.data_ref().map_or(&[], |it| it.as_ref()));
    }
    read.truncate(ANSWER_BYTES_MAX);
    read
}

/// An attribute as the HTTP binding of CloudEvents spells it: what is not printable ASCII, spaces,
/// quotation marks and percent signs as `%` and two digits for each byte of UTF-8.
fn percent_encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'"' | b'%' | ..=b' ' | 0x7F.. => encoded.push_str(&format!("%{byte:02X}")),
            b'!'..=b'~' => encoded.push(char::from(byte)),
        }
    }
    encoded
}

fn is_refusal(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Invalid | ErrorKind::TooLarge)
}

/// Whether an answer would be the same for every message: the endpoint is down or busy, or its
/// address or our permission is wrong, which a person mends, and then the same message is welcome.
/// With any other answer it failed at the message.
fn is_outage(status: StatusCode) -> bool {
    status.is_redirection()
        || matches!(
            status,
            StatusCode::UNAUTHORIZED
                | StatusCode::PAYMENT_REQUIRED
                | StatusCode::FORBIDDEN
                | StatusCode::NOT_FOUND
                | StatusCode::METHOD_NOT_ALLOWED
                | StatusCode::PROXY_AUTHENTICATION_REQUIRED
                | StatusCode::REQUEST_TIMEOUT
                | StatusCode::GONE
                | StatusCode::MISDIRECTED_REQUEST
                | StatusCode::TOO_MANY_REQUESTS
                | StatusCode::BAD_GATEWAY
                | StatusCode::SERVICE_UNAVAILABLE
                | StatusCode::GATEWAY_TIMEOUT
        )
}

/// What an answer that is not a success means.
fn answered(
    attempted: &str,
    status: StatusCode,
    body: &[u8],
    retry_after: Option<Duration>,
) -> Error {
    let kind = match status {
        StatusCode::BAD_REQUEST | StatusCode::UNPROCESSABLE_ENTITY => ErrorKind::Invalid,
        StatusCode::PAYLOAD_TOO_LARGE => ErrorKind::TooLarge,
        _ => ErrorKind::Unavailable,
    };
    let text = String::from_utf8_lossy(body);
    let error =
        Error::new(kind, attempted).because(format!("the endpoint answered {status}: {text}"));
    match retry_after {
        Some(wait) => error.with_retry_after(wait),
        None => error,
    }
}

fn text(value: &PropertyValue) -> String {
    match value {
        PropertyValue::Bool(value) => value.to_string(),
        PropertyValue::Integer(number) => number.to_string(),
        PropertyValue::Double(number) => number.to_string(),
        PropertyValue::String(text) => text.clone(),
        PropertyValue::Timestamp(time) => time.to_rfc3339(),
        PropertyValue::Binary(_) => String::new(),
    }
}
