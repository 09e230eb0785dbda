//! A service on a store in memory that fails on demand.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::{HeaderMap, Request, StatusCode};
use contacts::{ContactContainers, ContactService};
use millstream_core::memory::Memory;
use millstream_core::{
    Batch, BatchOutcome, CountingIds, Documents, Error, ErrorKind, Item, ItemId, ManualClock,
    PageSize, PartitionKey, Result, ScanContinuation, ScanPage, ScanScope, Timestamp,
};
use millstream_outbox::StoredEvent;
use serde_json::Value;
use tower::ServiceExt;

/// What happens to the next commits: `.` nothing, `a` the answer is lost, `r` the request is lost,
/// `d` the store is down, `o` it is overloaded, `c` somebody else writes the contact first. Then
/// nothing.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    script: Mutex<Vec<char>>,
    is_down: Mutex<bool>,
}

impl Faults {
    pub(crate) fn plan(&self, script: &str) {
        *self.script.lock().unwrap() = script.chars().rev().collect();
    }

    /// Whether reads fail.
    pub(crate) fn set_down(&self, is_down: bool) {
        *self.is_down.lock().unwrap() = is_down;
    }

    fn check_up(&self) -> Result<()> {
        if *self.is_down.lock().unwrap() {
            return Err(Error::new(ErrorKind::Unavailable, "reach the store"));
        }
        Ok(())
    }
}

struct Faulty {
    documents: Arc<dyn Documents>,
    faults: Arc<Faults>,
}

#[async_trait]
impl Documents for Faulty {
    async fn read(&self, key: &PartitionKey, id: &ItemId) -> Result<Option<Item>> {
        self.faults.check_up()?;
        self.documents.read(key, id).await
    }

    async fn commit(&self, batch: Batch) -> Result<BatchOutcome> {
        self.faults.check_up()?;
        let fault = self.faults.script.lock().unwrap().pop().unwrap_or('.');
        let unavailable = Error::new(ErrorKind::Unavailable, "reach the store");
        match fault {
            'a' => {
                self.documents.commit(batch).await?;
                Err(unavailable.with_unknown_effect())
            }
            'r' => Err(unavailable.with_unknown_effect()),
            'd' => Err(unavailable),
            'o' => {
                let overloaded = Error::new(ErrorKind::Overloaded, "take the commit");
                Err(overloaded.with_retry_after(Duration::from_millis(2_500)))
            }
            'c' => {
                let error = Error::new(ErrorKind::PreconditionFailed, "write the contact");
                Err(error.at_operation(0))
            }
            _ => self.documents.commit(batch).await,
        }
    }

    async fn scan(
        &self,
        scope: &ScanScope,
        after: Option<&ScanContinuation>,
        size: PageSize,
    ) -> Result<ScanPage> {
        self.faults.check_up()?;
        self.documents.scan(scope, after, size).await
    }
}

/// 2026-02-09T11:07:37.302Z
pub(crate) const START: Timestamp = Timestamp::from_millis(1_770_635_257_302);

pub(crate) struct World {
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) containers: ContactContainers,
    pub(crate) faults: Arc<Faults>,
    pub(crate) service: ContactService,
    router: Router,
}

/// An answer whose body was read.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Value,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|it| it.to_str().ok()).unwrap_or_default()
    }

    pub(crate) fn etag(&self) -> String {
        self.header("etag").to_owned()
    }
}

impl World {
    pub(crate) async fn new() -> Self {
        let clock = Arc::new(ManualClock::starting_at(START));
        let store = Memory::new(clock.clone());
        let mut containers = ContactContainers::prepare(&store).await.unwrap();
        let faults = Arc::new(Faults::default());
        for container in [&mut containers.data, &mut containers.search] {
            let documents = Arc::clone(&container.documents);
            container.documents = Arc::new(Faulty { documents, faults: Arc::clone(&faults) });
        }
        let ids = Arc::new(CountingIds::default());
        let service = ContactService::new(&containers.data, clock.clone(), ids).unwrap();
        let router = contacts::router(service.clone());
        Self { clock, containers, faults, service, router }
    }

    /// Sends a request such as `"POST /api/contacts"` with headers and a body.
    pub(crate) async fn send(
        &self,
        line: &str,
        headers: &[(&str, &str)],
        body: impl Into<Body>,
    ) -> Answer {
        let (method, path) = line.split_once(' ').expect("a method and a path");
        let mut request = Request::builder().method(method).uri(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(body.into()).unwrap();
        let (head, body) = self.router.clone().oneshot(request).await.unwrap().into_parts();
        let bytes = to_bytes(body, usize::MAX).await.unwrap();
        let body = if bytes.is_empty() {
            Value::Null
        } else {
            serde_json::from_slice(&bytes).expect("every body is JSON")
        };
        Answer { status: head.status, headers: head.headers, body }
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.send(&format!("GET {path}"), &[], Body::empty()).await
    }

    pub(crate) async fn post(&self, path: &str, body: Value) -> Answer {
        self.post_with(path, &[], body).await
    }

    pub(crate) async fn post_with(
        &self,
        path: &str,
        headers: &[(&str, &str)],
        body: Value,
    ) -> Answer {
        let mut all = vec![("content-type", "application/json")];
        all.extend_from_slice(headers);
        self.send(&format!("POST {path}"), &all, body.to_string()).await
    }

    /// Adds a contact, and returns its path.
    pub(crate) async fn created(&self) -> String {
        let answer = self.post("/api/contacts", ada()).await;
        assert_eq!(answer.status, StatusCode::CREATED, "{answer:?}");
        answer.header("location").to_owned()
    }

    /// The items of the container of the service.
    pub(crate) async fn items(&self) -> Vec<Item> {
        let scope = ScanScope::Keys(millstream_core::KeyRange::all());
        let documents = &self.containers.data.documents;
        documents.scan(&scope, None, PageSize::items(10_000)).await.unwrap().items
    }

    /// The events by their numbers.
    pub(crate) async fn events(&self) -> Vec<StoredEvent> {
        let items = self.items().await;
        let events = items.iter().filter(|it| it.sequence.is_some());
        let mut events: Vec<_> = events.map(|it| StoredEvent::read(it).unwrap()).collect();
        events.sort_by_key(|it| (it.partition_key.clone(), it.sequence));
        events
    }

    /// What the events are called, in order.
    pub(crate) async fn actions(&self) -> Vec<String> {
        self.events().await.into_iter().map(|it| it.action).collect()
    }
}

/// A body that makes a contact.
pub(crate) fn ada() -> Value {
    serde_json::json!({
        "firstName": "Ada", "lastName": "King", "email": "ada@example.com",
        "description": "A friend", "companyName": "Analytical Engines",
    })
}
