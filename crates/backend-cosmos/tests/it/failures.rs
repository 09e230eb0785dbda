//! What callers hear when the service refuses, or does not answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use futures_lite::stream::once;
use millstream_backend_cosmos::{Address, Cosmos, CosmosOptions};
use millstream_core::memory::Memory;
use millstream_core::{
    Batch, Container, ContainerName, ContainerSettings, Containers, Effect, Error, ErrorKind,
    FeedMode, ItemId, KeyRange, Operation, PageSize, PartitionKeyDefinition, Patch, PatchOperation,
    StartFrom, SystemClock,
};
use millstream_gateway::{Server, Tls};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::gateway::{Serving, block_on};

/// All is served.
const SERVE: u16 = 0;
/// All is served, but answers to batches are kept back.
const LOSE: u16 = 1;

/// The next batch is served, but its answer is that nobody knows; then all is served.
const LOSE_ONE: u16 = 2;

/// The next batch is served, but its answer breaks off; then all is served.
const BREAK_ONE: u16 = 3;

/// Every batch is too much, which takes a moment to be said.
const THROTTLE: u16 = 4;

/// A gateway that does not always do what it is asked for, and a container behind it.
struct Unreliable {
    serving: Serving,
    container: Container,
    mood: Arc<AtomicU16>,
}

impl Unreliable {
    async fn new() -> Self {
        let mood = Arc::new(AtomicU16::new(SERVE));
        let memory = Arc::new(Memory::new(Arc::new(SystemClock::default())));
        let shared = Arc::clone(&mood);
        let serving = Serving::changed(memory, |router| {
            router.layer(from_fn(move |request, next| moody(Arc::clone(&shared), request, next)))
        });
        let serving = serving.await;
        let address = Address::parse(&serving.url, None).unwrap();
        let options = CosmosOptions::default().call_timeout(Duration::from_secs(2));
        let clock = Arc::new(SystemClock::default());
        let cosmos = Cosmos::connect(&address, clock, options).await.unwrap();
        cosmos.create_database("shop").await.unwrap();
        let name = ContainerName::new("shop", "data").unwrap();
        let key = PartitionKeyDefinition::hash("/pk").unwrap();
        cosmos.create(&name, ContainerSettings::new(key)).await.unwrap();
        let container = cosmos.open(&name).await.unwrap();
        Self { serving, container, mood }
    }

    async fn commit(&self, operation: Operation) -> Result<(), Error> {
        let batch = Batch::new("k").with(operation);
        self.container.documents.commit(batch).await.map(|_| ())
    }

    async fn create(&self, id: &str) -> Result<(), Error> {
        self.commit(Operation::create(format!(r#"{{"id":"{id}","pk":"k"}}"#))).await
    }

    /// How often an item that began at 0 was increased.
    async fn count(&self, id: &ItemId) -> u64 {
        let item = self.container.documents.read(&"k".into(), id).await.unwrap().unwrap();
        let body: serde_json::Value = serde_json::from_slice(&item.body).unwrap();
        body["count"].as_u64().unwrap()
    }

    async fn has(&self, id: &str) -> bool {
        let id = ItemId::new(id).unwrap();
        self.container.documents.read(&"k".into(), &id).await.unwrap().is_some()
    }
}

async fn moody(mood: Arc<AtomicU16>, request: Request, next: Next) -> Response {
    let is_batch = request.headers().contains_key("x-ms-cosmos-is-batch-request");
    let shared = mood;
    let mut mood = shared.load(Ordering::SeqCst);
    if !is_batch || mood == SERVE {
        return next.run(request).await;
    }
    if mood == LOSE_ONE {
        shared.store(SERVE, Ordering::SeqCst);
        next.run(request).await;
        mood = 503;
    } else if mood == BREAK_ONE {
        shared.store(SERVE, Ordering::SeqCst);
        next.run(request).await;
        let broken = std::io::Error::other("the answer breaks off");
        return Response::new(Body::from_stream(once(Err::<String, _>(broken))));
    } else if mood == LOSE {
        next.run(request).await;
        return std::future::pending().await;
    }
    let (status, retry_after) = if mood == THROTTLE {
        tokio::time::sleep(Duration::from_millis(60)).await;
        (429, "700")
    } else {
        (mood, "3")
    };
    let status = axum::http::StatusCode::from_u16(status).unwrap();
    let body = r#"{"code":"Refused","message":"not today"}"#;
    (status, [("x-ms-retry-after-ms", retry_after)], body).into_response()
}

#[test]
fn a_commit_whose_answer_is_lost_may_have_happened() {
    block_on(async {
        let service = Unreliable::new().await;
        service.mood.store(LOSE, Ordering::SeqCst);
        let error = service.create("1").await.unwrap_err();
        assert_eq!((error.kind(), error.effect()), (ErrorKind::Unavailable, Effect::Unknown));
        let id = ItemId::new("1").unwrap();
        let error = service.container.documents.read(&"k".into(), &id).await.unwrap_err();
        assert_eq!((error.kind(), error.effect()), (ErrorKind::Unavailable, Effect::None));
        service.mood.store(SERVE, Ordering::SeqCst);
        assert!(service.has("1").await, "it did happen");
    });
}

/// The SDK repeats writes by itself.
#[test]
fn a_commit_that_meets_its_own_first_attempt_may_have_happened() {
    block_on(async {
        let service = Unreliable::new().await;
        service.mood.store(LOSE_ONE, Ordering::SeqCst);
        let error = service.create("1").await.unwrap_err();
        assert_eq!(error.effect(), Effect::Unknown, "{}", error.report());
        assert!(service.has("1").await, "it did happen");
        let error = service.create("1").await.unwrap_err();
        assert_eq!((error.kind(), error.effect()), (ErrorKind::AlreadyExists, Effect::None));
    });
}

#[test]
fn a_commit_that_would_count_twice_is_sent_once() {
    block_on(async {
        let service = Unreliable::new().await;
        let body = r#"{"id":"1","pk":"k","count":0}"#;
        service.commit(Operation::create(body)).await.unwrap();
        let id = ItemId::new("1").unwrap();
        let increase = PatchOperation::increment("/count", 1).unwrap();
        let increase = Operation::patch(id.clone(), Patch::new(vec![increase]).unwrap());
        service.mood.store(LOSE_ONE, Ordering::SeqCst);
        let error = service.commit(increase.clone()).await.unwrap_err();
        assert_eq!((error.kind(), error.effect()), (ErrorKind::Unavailable, Effect::Unknown));
        assert_eq!(service.count(&id).await, 1, "it did happen");
        // Here the SDK sends it again whatever it is told.
        service.mood.store(BREAK_ONE, Ordering::SeqCst);
        let error = service.commit(increase).await.unwrap_err();
        assert_eq!((error.kind(), error.effect()), (ErrorKind::Unavailable, Effect::Unknown));
        assert!(1 < service.count(&id).await, "it did happen");
    });
}

#[test]
fn what_the_service_refuses_has_not_happened() {
    block_on(async {
        let service = Unreliable::new().await;
        for (status, kind) in [
            (400, ErrorKind::Invalid),
            (401, ErrorKind::Invalid),
            (413, ErrorKind::TooLarge),
            (429, ErrorKind::Overloaded),
        ] {
            service.mood.store(status, Ordering::SeqCst);
            let error = service.create("1").await.unwrap_err();
            assert_eq!((error.kind(), error.effect()), (kind, Effect::None), "{status}");
            if status == 429 {
                assert_eq!(error.retry_after(), Some(Duration::from_millis(3)));
            }
            assert!(error.report().contains("not today"), "{}", error.report());
        }
        service.mood.store(SERVE, Ordering::SeqCst);
        assert!(!service.has("1").await);
    });
}

#[test]
fn too_much_for_a_long_time_is_told_as_such() {
    block_on(async {
        let service = Unreliable::new().await;
        service.mood.store(THROTTLE, Ordering::SeqCst);
        let error = service.create("1").await.unwrap_err();
        assert_eq!((error.kind(), error.effect()), (ErrorKind::Overloaded, Effect::None));
        assert_eq!(error.retry_after(), Some(Duration::from_millis(700)));
    });
}

#[test]
fn a_commit_while_the_service_is_down_has_not_happened() {
    block_on(async {
        let Unreliable { serving, container, .. } = Unreliable::new().await;
        serving.stop().await;
        let upsert = Operation::upsert(r#"{"id":"1","pk":"k"}"#);
        let create = Operation::create(r#"{"id":"1","pk":"k"}"#);
        for operation in [upsert, create] {
            let batch = Batch::new("k").with(operation);
            let error = container.documents.commit(batch).await.unwrap_err();
            let found = (error.kind(), error.effect());
            assert_eq!(found, (ErrorKind::Unavailable, Effect::None), "{}", error.report());
        }
    });
}

#[test]
fn a_service_that_is_not_there_is_unavailable() {
    block_on(async {
        // Nobody listens on a port that was just given back.
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("cosmos+http://{}", listener.local_addr().unwrap());
        drop(listener);
        let address = Address::parse(&address, None).unwrap();
        let clock = Arc::new(SystemClock::default());
        let options = CosmosOptions::default().call_timeout(Duration::from_secs(2));
        let error = Cosmos::connect(&address, clock, options).await.unwrap_err();
        assert_eq!((error.kind(), error.effect()), (ErrorKind::Unavailable, Effect::None));
    });
}

#[test]
fn a_wrong_key_is_told() {
    block_on(async {
        let memory = Memory::new(Arc::new(SystemClock::default()));
        let serving = Serving::over(Arc::new(memory)).await;
        let host = serving.url.strip_prefix("cosmos+http://").unwrap();
        let address = format!("cosmos+http://:c2VjcmV0@{host}");
        let address = Address::parse(&address, None).unwrap();
        let clock = Arc::new(SystemClock::default());
        let error = Cosmos::connect(&address, clock, CosmosOptions::default()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{}", error.report());
        assert!(!error.report().contains("c2VjcmV0"), "{}", error.report());
    });
}

#[test]
fn a_certificate_that_nobody_vouches_for_is_not_trusted() {
    block_on(async {
        let directory = tempfile::tempdir().unwrap();
        let tls = Tls::self_signed(directory.path(), &["localhost".to_owned()]).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let shutdown = CancellationToken::new();
        let server = Server::new(listener, axum::Router::new()).tls(tls);
        let serving = tokio::spawn(server.run(shutdown.clone()));
        let address = Address::parse(&format!("cosmos+https://localhost:{port}"), None).unwrap();
        let clock = Arc::new(SystemClock::default());
        let error = Cosmos::connect(&address, clock, CosmosOptions::default()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{}", error.report());
        assert!(error.report().contains("certificate"), "{}", error.report());
        shutdown.cancel();
        serving.await.unwrap();
    });
}

#[test]
fn positions_go_on_when_the_service_splits_a_range() {
    block_on(async {
        let memory = Arc::new(Memory::new(Arc::new(SystemClock::default())));
        let behind: Arc<dyn Containers> = memory.clone();
        let serving = Serving::over(behind).await;
        let cosmos = serving.connect().await;
        cosmos.create_database("shop").await.unwrap();
        let name = ContainerName::new("shop", "data").unwrap();
        let key = PartitionKeyDefinition::hash("/pk").unwrap();
        cosmos.create(&name, ContainerSettings::new(key)).await.unwrap();
        let container = cosmos.open(&name).await.unwrap();
        let (feed, all) = (&container.feed, KeyRange::all());
        let start = feed.start(&all, StartFrom::Now, FeedMode::LatestVersion).await.unwrap();
        for number in 0..20 {
            let body = format!(r#"{{"id":"{number}","pk":"{number}"}}"#);
            let batch = Batch::new(number.to_string()).with(Operation::create(body));
            container.documents.commit(batch).await.unwrap();
        }
        // Behind the back of the client, as Azure does it.
        let range = feed.ranges().await.unwrap()[0].id;
        memory.split(&name, range, None).await.unwrap();
        let size = PageSize::default();
        let error = feed.read(&all, &start, size).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::RangeMoved, "{}", error.report());
        let mut found = 0;
        for range in feed.ranges().await.unwrap() {
            found += feed.read(&range.keys, &start, size).await.unwrap().changes.len();
        }
        assert_eq!(found, 20);
    });
}
