//! Microsoft's own emulation of the service, which comes with the SDK for tests, as a second
//! opinion: nobody here wrote it.
//!
//! It can show part of the obligations only; those are listed.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::response::Response;
use azure_core::http::{Method, Request as EmulatorRequest};
use azure_data_cosmos_driver::in_memory_emulator::{
    InMemoryEmulatorHttpClient, VirtualAccountConfig, VirtualRegion,
};
use millstream_backend_cosmos::Cosmos;
use millstream_core::conformance::{OBLIGATIONS, Subject};
use millstream_core::{
    Batch, ContainerName, ContainerSettings, Containers, FeedMode, Operation, PageSize,
    PartitionKeyDefinition, StartFrom,
};
use percent_encoding::percent_decode_str;
use serde::Deserialize;
use tokio::net::TcpListener;
use url::Url;

use crate::gateway::{Serving, block_on};

/// Largest body that is passed on.
const BODY_BYTES_MAX: usize = 8 * 1024 * 1024;

/// The obligations that can be seen through the emulator.
///
/// The others need what it does not have: one range in a new container (it makes four), patches in
/// batches, numbers beyond 64-bit floating point, a clock that can be moved, or the number of the
/// commit of an item that was read.
const KEPT: &[&str] = &[
    "obligation_01_what_is_no_item_is_refused",
    "obligation_02_the_first_failing_operation_is_named",
    "obligation_02_one_of_many_creators_wins",
    "obligation_03_an_etag_survives_reopening",
    "obligation_04_an_acknowledged_commit_survives_reopening",
    "obligation_06_a_foreign_scan_continuation_is_refused",
    "obligation_07_databases_come_and_go",
    "obligation_07_a_key_lies_where_cosmos_db_puts_it",
    "obligation_07_keys_across_ranges_are_refused",
    "obligation_13_a_foreign_continuation_is_refused",
];

/// A connection to an emulator.
struct Emulated {
    serving: Serving,
    cosmos: Cosmos,
}

impl Emulated {
    async fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let base = format!("http://{}/", listener.local_addr().unwrap());
        let base = Url::parse(&base).unwrap();
        let regions = vec![VirtualRegion::new("East US", base.clone())];
        let config = VirtualAccountConfig::new(regions).unwrap();
        let emulator = InMemoryEmulatorHttpClient::new(config);
        let bridge = Arc::new(Bridge { emulator, base, names: Mutex::default() });
        let serve = move |request| pass_on(Arc::clone(&bridge), request);
        let serving = Serving::on(listener, Router::new().fallback(serve));
        Self { cosmos: serving.connect().await, serving }
    }
}

#[async_trait]
impl Subject for Emulated {
    fn containers(&self) -> Arc<dyn Containers> {
        Arc::new(self.cosmos.clone())
    }

    fn advance(&self, _: Duration) {
        panic!("the emulator has the time of the machine");
    }

    async fn settle(&self) {}

    async fn reopen(&mut self) -> bool {
        self.cosmos = self.serving.connect().await;
        true
    }
}

#[test]
fn what_the_emulator_of_the_sdk_can_show_is_kept() {
    for name in KEPT {
        let (_, obligation) = OBLIGATIONS.iter().find(|(it, _)| it == name).unwrap();
        block_on(async {
            let mut subject = Emulated::new().await;
            obligation(&mut subject).await;
        });
    }
}

#[test]
fn the_feed_of_the_emulator_shows_every_change_once() {
    block_on(async {
        let emulated = Emulated::new().await;
        let cosmos = &emulated.cosmos;
        cosmos.create_database("shop").await.unwrap();
        let name = ContainerName::new("shop", "data").unwrap();
        let key = PartitionKeyDefinition::hash("/pk").unwrap();
        cosmos.create(&name, ContainerSettings::new(key)).await.unwrap();
        let container = cosmos.open(&name).await.unwrap();
        let feed = &container.feed;
        let ranges = feed.ranges().await.unwrap();
        let mut places = Vec::new();
        for range in &ranges {
            let (from, mode) = (StartFrom::Beginning, FeedMode::LatestVersion);
            places.push(feed.start(&range.keys, from, mode).await.unwrap());
        }
        // Twice, so that the second round goes on from where the first one ended.
        for round in 0..2 {
            for number in 0..20 {
                let body = format!(r#"{{"id":"{round}-{number}","pk":"{number}"}}"#);
                let batch = Batch::new(number.to_string()).with(Operation::create(body));
                container.documents.commit(batch).await.unwrap();
            }
            let mut found = Vec::new();
            for (range, place) in ranges.iter().zip(&mut places) {
                loop {
                    let page = feed.read(&range.keys, place, PageSize::items(3)).await.unwrap();
                    *place = page.continuation;
                    if page.changes.is_empty() {
                        break;
                    }
                    found.extend(page.changes.into_iter().map(|it| it.id.to_string()));
                }
            }
            found.sort_unstable();
            let mut expected: Vec<_> = (0..20).map(|it| format!("{round}-{it}")).collect();
            expected.sort_unstable();
            assert_eq!(found, expected);
        }
    });
}

/// The emulator, and the names of what it has made by their resource ids: it does not know paths
/// with resource ids.
struct Bridge {
    emulator: InMemoryEmulatorHttpClient,
    base: Url,
    names: Mutex<BTreeMap<String, String>>,
}

/// What an answer says about a database or container.
#[derive(Deserialize)]
struct Made {
    id: String,
    #[serde(rename = "_rid")]
    rid: String,
}

impl Bridge {
    /// The address with names instead of resource ids.
    fn url(&self, path: &str) -> Url {
        let names = self.names.lock().unwrap();
        let mut url = self.base.clone();
        let parts = path.trim_matches('/').split('/').map(|part| {
            let part = percent_decode_str(part).decode_utf8().unwrap().into_owned();
            names.get(&part).cloned().unwrap_or(part)
        });
        url.path_segments_mut().unwrap().clear().extend(parts);
        url
    }

    fn note(&self, path: &str, body: &[u8]) {
        // `dbs` and `dbs/…/colls`.
        if !matches!(path.trim_matches('/').split('/').count(), 1 | 3) {
            return;
        }
        if let Ok(made) = serde_json::from_slice::<Made>(body) {
            self.names.lock().unwrap().insert(made.rid, made.id);
        }
    }
}

/// One request over HTTP, as a call of the emulator.
async fn pass_on(bridge: Arc<Bridge>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let method = match parts.method.as_str() {
        "POST" => Method::Post,
        "PUT" => Method::Put,
        "PATCH" => Method::Patch,
        "DELETE" => Method::Delete,
        _ => Method::Get,
    };
    let mut call = EmulatorRequest::new(bridge.url(parts.uri.path()), method);
    for (name, value) in &parts.headers {
        call.insert_header(name.as_str().to_owned(), value.to_str().unwrap().to_owned());
    }
    call.set_body(to_bytes(body, BODY_BYTES_MAX).await.unwrap());
    let answer = bridge.emulator.execute_request(&call).await.unwrap();
    let answer = answer.try_into_raw_response().await.unwrap();
    let (status, headers, body) = answer.deconstruct();
    if method == Method::Post {
        bridge.note(parts.uri.path(), &body);
    }
    let mut response = Response::builder().status(u16::from(status));
    for (name, value) in headers.iter() {
        response = response.header(name.as_str(), value.as_str());
    }
    response.body(Body::from(body.to_vec())).unwrap()
}
