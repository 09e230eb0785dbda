//! What Azure does otherwise than a Millstream, played by something in between.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::body::{Body, Bytes, to_bytes};
use axum::extract::Request;
use axum::http::header::IF_MODIFIED_SINCE;
use axum::http::{HeaderValue, Method, StatusCode};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use millstream_backend_cosmos::Cosmos;
use millstream_core::memory::Memory;
use millstream_core::{
    Batch, Container, ContainerName, ContainerSettings, Containers, Effect, ErrorKind, FeedMode,
    KeyRange, ManualClock, Operation, PageSize, PartitionKeyDefinition, ScanScope, StartFrom,
    SystemClock, TimeToLive, Timestamp,
};

use crate::gateway::{Serving, block_on};

const BODY_BYTES_MAX: usize = 8 * 1024 * 1024;
const SECOND_MILLIS: u64 = 1_700_000_000_000;

fn memory() -> Arc<Memory> {
    Arc::new(Memory::new(Arc::new(SystemClock::default())))
}

fn settings() -> ContainerSettings {
    let key = PartitionKeyDefinition::hash("/pk").unwrap();
    ContainerSettings::new(key).default_ttl(TimeToLive::Never)
}

fn named(container: &str) -> ContainerName {
    ContainerName::new("shop", container).unwrap()
}

async fn connect(serving: &Serving) -> (Cosmos, Container) {
    let cosmos = serving.connect().await;
    cosmos.create_database("shop").await.unwrap();
    cosmos.create(&named("data"), settings()).await.unwrap();
    let container = cosmos.open(&named("data")).await.unwrap();
    (cosmos, container)
}

async fn create(container: &Container, id: &str) {
    let body = format!(r#"{{"id":"{id}","pk":"k"}}"#);
    let batch = Batch::new("k").with(Operation::create(body));
    container.documents.commit(batch).await.unwrap();
}

/// The ids of what a reader finds who starts there.
async fn ids_from(container: &Container, from: StartFrom) -> Vec<String> {
    let (feed, keys) = (&container.feed, KeyRange::all());
    let mut place = feed.start(&keys, from, FeedMode::LatestVersion).await.unwrap();
    let mut found = Vec::new();
    loop {
        let page = feed.read(&keys, &place, PageSize::items(1)).await.unwrap();
        if page.changes.is_empty() && page.continuation == place {
            return found;
        }
        place = page.continuation;
        found.extend(page.changes.into_iter().map(|it| it.id.to_string()));
    }
}

/// On Azure a commit of the second that is asked for does not count.
async fn later_only(mut request: Request, next: Next) -> Response {
    if let Some(date) = request.headers_mut().get_mut(IF_MODIFIED_SINCE) {
        let since = httpdate::parse_http_date(date.to_str().unwrap()).unwrap();
        let since = httpdate::fmt_http_date(since + Duration::from_secs(1));
        *date = HeaderValue::from_str(&since).unwrap();
    }
    next.run(request).await
}

#[test]
fn a_start_at_a_time_loses_nothing_of_its_second() {
    block_on(async {
        for is_azure in [true, false] {
            let clock = Arc::new(ManualClock::starting_at(Timestamp::from_millis(SECOND_MILLIS)));
            let memory = Arc::new(Memory::new(clock.clone()));
            let serving = Serving::changed(memory, |router| match is_azure {
                true => router.layer(from_fn(later_only)),
                false => router,
            });
            let serving = serving.await;
            let (_, container) = connect(&serving).await;
            create(&container, "before").await;
            clock.advance(Duration::from_millis(1_500));
            create(&container, "within").await;
            clock.advance(Duration::from_secs(1));
            create(&container, "after").await;
            for millis in [1_000, 1_500, 1_999] {
                let from = StartFrom::Time(Timestamp::from_millis(SECOND_MILLIS + millis));
                let found = ids_from(&container, from).await;
                assert_eq!(found, ["within", "after"], "from {millis}, on Azure: {is_azure}");
            }
        }
    });
}

#[test]
fn a_start_at_a_time_beyond_all_dates_is_a_start() {
    block_on(async {
        let serving = Serving::over(memory()).await;
        let (_, container) = connect(&serving).await;
        create(&container, "1").await;
        let from = StartFrom::Time(Timestamp::from_millis(u64::MAX));
        assert_eq!(ids_from(&container, from).await, Vec::<String>::new());
    });
}

/// Bodies as Azure has them, which takes any id and any `ttl`; texts of the same length.
const SPELLINGS: [(&str, &str); 2] =
    [(r#""id":"a-b""#, r#""id":"a/b""#), (r#""ttl":12345"#, r#""ttl":"old""#)];

async fn strange_items(request: Request, next: Next) -> Response {
    let (parts, body) = request.into_parts();
    let body = respelled(body, |(ours, azure)| (azure, ours)).await;
    let answer = next.run(Request::from_parts(parts, body.into())).await;
    let (parts, body) = answer.into_parts();
    Response::from_parts(parts, respelled(body, |spelling| spelling).await.into())
}

async fn respelled<'a>(
    body: Body,
    order: impl Fn((&'a str, &'a str)) -> (&'a str, &'a str),
) -> Bytes {
    let body = to_bytes(body, BODY_BYTES_MAX).await.unwrap();
    let Ok(text) = std::str::from_utf8(&body) else { return body };
    let respell = |text: String, (from, to)| text.replace(from, to);
    SPELLINGS.into_iter().map(order).fold(text.to_owned(), respell).into()
}

#[test]
fn items_that_only_azure_takes_keep_nobody_from_the_others() {
    block_on(async {
        let serving = Serving::changed(memory(), |router| router.layer(from_fn(strange_items)));
        let serving = serving.await;
        let (_, container) = connect(&serving).await;
        let strange = r#"{"id":"a-b","pk":"k","ttl":12345}"#;
        let batch = Batch::new("k").with(Operation::create(strange));
        container.documents.commit(batch).await.unwrap();
        create(&container, "fine").await;
        assert_eq!(ids_from(&container, StartFrom::Beginning).await, ["a/b", "fine"]);
        let (documents, all) = (&container.documents, ScanScope::Keys(KeyRange::all()));
        let items = documents.scan(&all, None, PageSize::default()).await.unwrap().items;
        let [strange, _] = items.as_slice() else { panic!("two items") };
        assert_eq!((strange.id.as_str(), strange.expires_at), ("a/b", None));
        let read = documents.read(&"k".into(), &strange.id).await.unwrap();
        assert_eq!(read.as_ref(), Some(strange));
        let batch = Batch::new("k").with(Operation::delete(strange.id.clone()));
        documents.commit(batch).await.unwrap();
        assert_eq!(ids_from(&container, StartFrom::Beginning).await, ["fine"]);
    });
}

/// A gateway whose containers, once they are being described, are answered as the switch says.
async fn answering(
    status: StatusCode,
    sub_status: &'static str,
    how_often: impl Fn(&AtomicBool) -> bool + Copy + Send + Sync + 'static,
) -> (Serving, Arc<AtomicBool>) {
    let switch = Arc::new(AtomicBool::new(false));
    let shared = Arc::clone(&switch);
    let serving = Serving::changed(memory(), move |router| {
        router.layer(from_fn(move |request: Request, next: Next| {
            let is_container = request.uri().path().trim_matches('/').split('/').count() == 4;
            let is_asked_for = request.method() == Method::GET && is_container;
            let is_refused = is_asked_for && how_often(&shared);
            async move {
                if !is_refused {
                    return next.run(request).await;
                }
                let body = r#"{"code":"Refused","message":"not today"}"#;
                (status, [("x-ms-substatus", sub_status)], body).into_response()
            }
        }))
    });
    (serving.await, switch)
}

#[test]
fn a_container_that_cannot_be_described_yet_may_have_been_created() {
    block_on(async {
        let while_on = |switch: &AtomicBool| switch.load(Ordering::SeqCst);
        let (serving, switch) = answering(StatusCode::NOT_FOUND, "1013", while_on).await;
        let (cosmos, _) = connect(&serving).await;
        switch.store(true, Ordering::SeqCst);
        let error = cosmos.create(&named("new"), settings()).await.unwrap_err();
        let found = (error.kind(), error.effect());
        assert_eq!(found, (ErrorKind::Unavailable, Effect::Unknown), "{}", error.report());
        let error = cosmos.open(&named("new")).await.unwrap_err();
        let found = (error.kind(), error.effect());
        assert_eq!(found, (ErrorKind::Unavailable, Effect::None), "{}", error.report());
        switch.store(false, Ordering::SeqCst);
        cosmos.open(&named("new")).await.unwrap();
    });
}

#[test]
fn a_container_that_goes_away_while_all_are_listed_is_left_out() {
    block_on(async {
        let once = |switch: &AtomicBool| switch.swap(false, Ordering::SeqCst);
        let (serving, switch) = answering(StatusCode::NOT_FOUND, "0", once).await;
        let (cosmos, _) = connect(&serving).await;
        cosmos.create(&named("more"), settings()).await.unwrap();
        assert_eq!(cosmos.list("shop").await.unwrap().len(), 2);
        switch.store(true, Ordering::SeqCst);
        let left = cosmos.list("shop").await.unwrap();
        assert_eq!(left.len(), 1, "one was answered with 404");
    });
}
