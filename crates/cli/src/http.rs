//! What the running program answers over HTTP.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{ConnectInfo, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use tokio::task::AbortHandle;

use millstream_processor::ParkedState;
use millstream_store::StoreStatistics;

use crate::admin::{self, Request, count_scheduled};
use crate::demo::DemoFigures;
use crate::failure::Result;
use crate::figures::{Figures, Page, label};
use crate::messages::Messages;
use crate::relaying::Board;
use crate::retention::unsent;
use crate::system::System;

/// Largest request of a command: a page of an import.
const BODY_BYTES_MAX: usize = 64 * 1024 * 1024;

/// What the routes look at.
pub(crate) struct Service {
    pub(crate) system: System,
    pub(crate) board: Arc<Board>,
    pub(crate) figures: Arc<Figures>,
    pub(crate) demo: Option<DemoFigures>,
    pub(crate) broker: AbortHandle,
    /// What commands must show.
    pub(crate) token: String,
}

/// Health, readiness, metrics and the entrance for commands.
pub(crate) fn router(service: Arc<Service>) -> Router {
    Router::new()
        .route("/health", get(|| async { "alive\n" }))
        .route("/ready", get(ready))
        .route("/metrics", get(metrics))
        .route("/admin", post(admin))
        .with_state(service)
}

/// How many keys a relay has parked, without those that are on their way again.
pub(crate) async fn parked(system: &System, relay: &str) -> Result<u64> {
    let tools = system.relay(relay).await?;
    let (mut count, mut after) = (0, None);
    loop {
        let page = tools.letters.list_parked(after.as_deref(), 1_000).await?;
        let parked = page.sequences.iter().filter(|it| it.state == ParkedState::Parked);
        count += u64::try_from(parked.count()).unwrap_or(u64::MAX);
        after = page.next;
        if after.is_none() {
            return Ok(count);
        }
    }
}

async fn ready(State(service): State<Arc<Service>>) -> Response {
    if service.broker.is_finished() {
        return (StatusCode::SERVICE_UNAVAILABLE, "the broker does not run\n").into_response();
    }
    let views = service.board.views();
    let trouble = views.iter().find_map(|it| it.trouble.as_ref().map(|why| (&it.name, why)));
    match trouble {
        None => "ready\n".into_response(),
        Some((name, why)) => {
            let sentence = format!("the relay {name:?} does not run: {why}\n");
            (StatusCode::SERVICE_UNAVAILABLE, sentence).into_response()
        }
    }
}

async fn metrics(State(service): State<Arc<Service>>) -> Response {
    match page(&service).await {
        Ok(text) => ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], text).into_response(),
        Err(failure) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{failure}\n")).into_response(),
    }
}

async fn admin(
    State(service): State<Arc<Service>>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    headers: HeaderMap,
    body: Body,
) -> Response {
    let expected = format!("Bearer {}", service.token);
    let shown = headers.get(header::AUTHORIZATION).map(|it| it.as_bytes());
    if !peer.ip().is_loopback() || shown != Some(expected.as_bytes()) {
        let sentence = "only commands on this machine that can read the data directory may ask\n";
        return (StatusCode::FORBIDDEN, sentence).into_response();
    }
    // Not before: nobody else is to have so much kept for them.
    let body = match to_bytes(body, BODY_BYTES_MAX).await {
        Ok(body) => body,
        Err(error) => {
            let sentence = format!("could not read the request to its end: {error}\n");
            return (StatusCode::BAD_REQUEST, sentence).into_response();
        }
    };
    let request: Request = match serde_json::from_slice(&body) {
        Ok(request) => request,
        Err(error) => {
            let sentence = format!("could not read the request: {error}; is it another version?");
            return (StatusCode::BAD_REQUEST, sentence).into_response();
        }
    };
    let answer = admin::execute(&service.system, request).await;
    let (status, body) = match answer.and_then(|it| Ok(serde_json::to_vec(&it)?)) {
        Ok(body) => (StatusCode::OK, body),
        Err(failure) if failure.code() == 2 => {
            (StatusCode::UNPROCESSABLE_ENTITY, failure.to_string().into_bytes())
        }
        Err(failure) => (StatusCode::INTERNAL_SERVER_ERROR, failure.to_string().into_bytes()),
    };
    (status, body).into_response()
}

/// What the consumers of the demonstration have got.
fn consumers(demo: &DemoFigures, page: &mut Page) {
    let (search, webhook) = (demo.projection.get(), demo.receiver.get());
    let figures = [
        ("millstream_demo_events_total", search.handled, webhook.received),
        ("millstream_demo_duplicates_total", search.duplicates, webhook.duplicates),
        ("millstream_demo_out_of_order_total", search.gaps + search.late, webhook.out_of_order),
    ];
    for (name, search, webhook) in figures {
        page.add(name, "counter", &label("consumer", "search"), search);
        page.add(name, "counter", &label("consumer", "webhook"), webhook);
    }
}

/// What the store in a directory has done since it was opened.
fn statistics(it: &StoreStatistics, page: &mut Page) {
    let figures = [
        ("millstream_store_commits_total", "counter", it.commits),
        ("millstream_store_groups_total", "counter", it.groups),
        ("millstream_store_syncs_total", "counter", it.syncs),
        ("millstream_store_logged_bytes_total", "counter", it.logged_bytes),
        ("millstream_store_flushes_total", "counter", it.flushes),
        ("millstream_store_buffered_bytes", "gauge", it.buffered_bytes),
        ("millstream_store_table_bytes", "gauge", it.table_bytes),
    ];
    for (name, kind, value) in figures {
        page.add(name, kind, "", value);
    }
}

/// How full queues and topics are. Those on NATS have no limit of messages.
fn room(service: &Service, page: &mut Page) {
    let Messages::Own(broker) = &service.system.messages else { return };
    let queues = broker.queues().into_iter().map(|(name, _)| name);
    let names = queues.chain(broker.topics().into_iter().map(|(name, _)| name));
    let mut fills = Vec::new();
    for name in names {
        // One that was removed meanwhile has nothing to tell.
        let Ok(fill) = broker.fill(&name) else { continue };
        fills.push((label("entity", &name), fill));
    }
    for (label, fill) in &fills {
        page.add("millstream_broker_kept_messages", "gauge", label, fill.messages);
    }
    for (label, fill) in &fills {
        page.add("millstream_broker_kept_messages_max", "gauge", label, fill.messages_max);
    }
    for (label, fill) in &fills {
        let is_nearly_full = u8::from(fill.is_nearly_full);
        page.add("millstream_broker_nearly_full", "gauge", label, is_nearly_full);
    }
}

async fn page(service: &Service) -> Result<String> {
    let mut page = Page::default();
    let dropped = service.system.traces.dropped();
    page.add("millstream_traces_dropped_total", "counter", "", dropped);
    let views = service.board.views();
    for view in &views {
        let is_up = u8::from(view.trouble.is_none());
        page.add("millstream_relay_up", "gauge", &label("relay", &view.name), is_up);
    }
    for view in &views {
        let label = label("relay", &view.name);
        page.add("millstream_relay_published_total", "counter", &label, view.published);
    }
    // Those of relays that do not run now, too: that is when lag grows.
    let lags = admin::lag(&service.system).await?;
    for lag in &lags {
        let label = label("relay", &lag.relay);
        page.add("millstream_relay_lag_commits", "gauge", &label, lag.commits);
    }
    for lag in &lags {
        let Some(seconds) = lag.seconds else { continue };
        page.add("millstream_relay_lag_seconds", "gauge", &label("relay", &lag.relay), seconds);
    }
    for lag in &lags {
        let (label, is_expired) = (label("relay", &lag.relay), u8::from(lag.expired));
        page.add("millstream_relay_position_expired", "gauge", &label, is_expired);
    }
    let unsent = unsent(&service.system, &lags).await?;
    for it in &unsent {
        let (label, age) = (label("relay", &it.relay), it.age.as_secs_f64());
        page.add("millstream_relay_unsent_age_seconds", "gauge", &label, age);
    }
    for it in &unsent {
        let (label, ttl) = (label("relay", &it.relay), it.time_to_live.as_secs_f64());
        page.add("millstream_relay_unsent_ttl_seconds", "gauge", &label, ttl);
    }
    for view in &views {
        let count = count_scheduled(&service.system, &view.name).await?;
        let label = label("relay", &view.name);
        page.add("millstream_relay_scheduled_events", "gauge", &label, count);
    }
    for view in &views {
        let parked = parked(&service.system, &view.name).await?;
        let label = label("relay", &view.name);
        page.add("millstream_relay_parked_sequences", "gauge", &label, parked);
    }
    service.figures.write(&mut page);
    let topics = admin::topics(&service.system).await?;
    for entity in topics.iter().filter(|it| it.counts.is_some()) {
        let counts = entity.counts.clone().unwrap_or_default();
        let states = [
            ("active", counts.active),
            ("locked", counts.locked),
            ("scheduled", counts.scheduled),
            ("deferred", counts.deferred),
            ("deadLettered", counts.dead_lettered),
        ];
        for (state, count) in states {
            let labels = format!("{},{}", label("path", &entity.path), label("state", state));
            page.add("millstream_broker_messages", "gauge", &labels, count);
        }
    }
    room(service, &mut page);
    if let Some(store) = &service.system.store.directory {
        statistics(&store.statistics(), &mut page);
    }
    if let Some(demo) = &service.demo {
        consumers(demo, &mut page);
    }
    Ok(page.into_text())
}
