//! Reading a long feed page by page, with what can happen to the consumer on the server.

use std::time::Duration;

use async_nats::jetstream;
use futures_util::{StreamExt, TryStreamExt, stream};
use millstream_core::conformance::Subject;
use millstream_core::{
    Batch, Container, ContainerName, ContainerSettings, Continuation, Cursor, FeedMode, ItemId,
    KeyRange, Operation, PageSize, PartitionKeyDefinition, StartFrom,
};

use crate::harness::{OnNats, Servers, block_on};

/// Enough for many pages, and for commits to lie across their ends.
const COMMITS: usize = 200;
const ITEMS_PER_COMMIT: usize = 3;
const PAGE_ITEMS: usize = 40;

async fn empty(subject: &OnNats) -> Container {
    let containers = subject.containers();
    containers.create_database("d").await.unwrap();
    let name = ContainerName::new("d", "c").unwrap();
    let settings = ContainerSettings::new(PartitionKeyDefinition::hash("/pk").unwrap());
    containers.create(&name, settings).await.unwrap();
    containers.open(&name).await.unwrap()
}

async fn filled(subject: &OnNats) -> Container {
    let container = empty(subject).await;
    for commit in 0..COMMITS {
        commit_items(&container, commit, 0).await;
    }
    container
}

/// Writes the items of a commit, an event among them so that numbers are in between.
async fn commit_items(container: &Container, commit: usize, revision: usize) {
    let mut batch = Batch::new(format!("k{}", commit % 7));
    for item in 0..ITEMS_PER_COMMIT {
        let kind = if item == 0 { r#","type":"domainEvent""# } else { "" };
        let (id, key) = (id(commit, item), commit % 7);
        let body = format!(r#"{{"id":"{id}","pk":"k{key}","revision":{revision}{kind}}}"#);
        batch = batch.with(Operation::upsert(body));
    }
    container.documents.commit(batch).await.unwrap();
}

fn id(commit: usize, item: usize) -> String {
    format!("{commit}-{item}")
}

/// Reads one page; each commit is whole and later than all before it.
async fn read(container: &Container, after: &mut Continuation, seen: &mut Vec<String>) -> bool {
    let size = PageSize::items(PAGE_ITEMS);
    let page = container.feed.read(&KeyRange::all(), after, size).await.unwrap();
    let numbers: Vec<u64> = page.changes.iter().map(|it| it.lsn.as_u64()).collect();
    assert!(numbers.is_sorted(), "{numbers:?}");
    for change in &page.changes {
        let number = change.lsn.as_u64();
        let together = numbers.iter().filter(|it| **it == number).count();
        assert_eq!(together, ITEMS_PER_COMMIT, "a page cuts commit {number}");
        seen.push(change.id.as_str().to_owned());
    }
    let has_moved = *after != page.continuation;
    *after = page.continuation;
    has_moved
}

async fn beginning(container: &Container) -> Continuation {
    let (keys, mode) = (KeyRange::all(), FeedMode::LatestVersion);
    container.feed.start(&keys, StartFrom::Beginning, mode).await.unwrap()
}

/// Every stream of the servers loses its consumers.
async fn remove_consumers(url: &str) -> usize {
    let servers: Vec<&str> = url.split(',').collect();
    let context = jetstream::new(async_nats::connect(servers).await.unwrap());
    let streams: Vec<String> = context.stream_names().try_collect().await.unwrap();
    let mut removed = 0;
    for stream in streams {
        let stream = context.get_stream(&stream).await.unwrap();
        let names: Vec<String> = stream.consumer_names().try_collect().await.unwrap();
        for name in names {
            stream.delete_consumer(&name).await.unwrap();
            removed += 1;
        }
    }
    removed
}

async fn reads_all_while_consumers_vanish(servers: &Servers) {
    let subject = OnNats::on(servers).await;
    let container = filled(&subject).await;
    let (mut after, mut seen) = (beginning(&container).await, Vec::new());
    let mut removed = 0;
    let mut pages = 0;
    while read(&container, &mut after, &mut seen).await {
        pages += 1;
        if pages % 4 == 2 {
            removed += remove_consumers(&servers.url()).await;
        }
    }
    assert!(0 < removed, "the feed was read without a consumer");
    let expected = (0..COMMITS).flat_map(|it| (0..ITEMS_PER_COMMIT).map(move |item| id(it, item)));
    assert_eq!(seen, expected.collect::<Vec<_>>());
}

#[test]
fn a_consumer_that_vanishes_is_replaced_on_one_server() {
    let Some(servers) = Servers::start(1) else { return };
    block_on(reads_all_while_consumers_vanish(&servers));
}

#[test]
fn a_consumer_that_vanishes_is_replaced_on_a_cluster() {
    let Some(servers) = Servers::start(3) else { return };
    block_on(reads_all_while_consumers_vanish(&servers));
}

/// Nobody answers a request that is not allowed, so whoever waited for it would do so until the
/// timeout, which is longer here than the whole test may take.
#[test]
fn who_may_not_make_consumers_reads_without_waiting_for_them() {
    let permissions = r#"{ deny: "$JS.API.CONSUMER.>" }"#;
    let user = format!("user: ada, password: x, permissions: {{ publish: {permissions} }}");
    let lines = format!("authorization {{ users: [ {{ {user} }} ] }}");
    let Some(servers) = Servers::start_with(1, &lines) else { return };
    block_on(async {
        let url = servers.url().replace("nats://", "nats://ada:x@");
        let subject = OnNats::with(format!("{url}?timeout=900")).await;
        let container = filled(&subject).await;
        let (mut after, mut seen) = (beginning(&container).await, Vec::new());
        while read(&container, &mut after, &mut seen).await {
            // Long enough for another try.
            subject.advance(Duration::from_secs(24 * 3600));
        }
        assert_eq!(seen.len(), COMMITS * ITEMS_PER_COMMIT);
    });
}

/// What was replaced or deleted between two pages is not shown as it was before.
#[test]
fn the_next_page_shows_what_is_there_when_it_is_read() {
    let Some(servers) = Servers::start(1) else { return };
    block_on(async {
        let subject = OnNats::on(&servers).await;
        let container = filled(&subject).await;
        let (mut after, mut seen) = (beginning(&container).await, Vec::new());
        read(&container, &mut after, &mut seen).await;
        let read_so_far = seen.len();
        assert!(read_so_far < 2 * PAGE_ITEMS, "{read_so_far} in one page");
        let next = read_so_far / ITEMS_PER_COMMIT;
        commit_items(&container, next, 1).await;
        let gone = next + 1;
        let mut batch = Batch::new(format!("k{}", gone % 7));
        for item in 0..ITEMS_PER_COMMIT {
            batch = batch.with(Operation::delete(ItemId::new(&id(gone, item)).unwrap()));
        }
        container.documents.commit(batch).await.unwrap();
        while read(&container, &mut after, &mut seen).await {}
        assert_eq!(seen.len(), (COMMITS - 1) * ITEMS_PER_COMMIT);
        let replaced = &seen[seen.len() - ITEMS_PER_COMMIT..];
        let expected: Vec<String> = (0..ITEMS_PER_COMMIT).map(|item| id(next, item)).collect();
        assert_eq!(replaced, expected);
        assert!(!seen.contains(&id(gone, 0)), "an item that was deleted is shown");
    });
}

/// Messages after which a page ends, however few of them the reader wants.
const LOOKED_AT_MAX: usize = 50_000;

/// More messages than that, a hundred to a commit.
async fn fill_with_unwanted(container: &Container) {
    let commits = stream::iter(0..LOOKED_AT_MAX / 100 + 20).map(|commit| {
        let mut batch = Batch::new("unwanted");
        for item in 0..100 {
            let body = format!(r#"{{"id":"{}","pk":"unwanted"}}"#, id(commit, item));
            batch = batch.with(Operation::create(body));
        }
        container.documents.commit(batch)
    });
    commits.buffer_unordered(16).try_for_each(async |_| Ok(())).await.unwrap();
}

#[test]
fn a_page_ends_before_it_has_passed_over_everything() {
    let Some(servers) = Servers::start(1) else { return };
    block_on(async {
        let subject = OnNats::on(&servers).await;
        let container = empty(&subject).await;
        fill_with_unwanted(&container).await;
        subject.advance(Duration::from_secs(60));
        let wanted = Batch::new("wanted").with(Operation::create(r#"{"id":"1","pk":"wanted"}"#));
        let wanted = container.documents.commit(wanted).await.unwrap();
        let from = StartFrom::Time(wanted.results[0].item().unwrap().written_at);
        let (keys, mode) = (KeyRange::all(), FeedMode::LatestVersion);
        for size in [PageSize::items(1), PageSize::default()] {
            let start = container.feed.start(&keys, from, mode).await.unwrap();
            let page = container.feed.read(&keys, &start, size).await.unwrap();
            assert_eq!(page.changes.len(), 0, "one page has looked at everything");
            assert_eq!(page.newest, wanted.lsn);
            let reached = Cursor::parse(&page.continuation).unwrap().after.as_u64();
            let most = u64::try_from(LOOKED_AT_MAX).unwrap();
            assert!((most..wanted.lsn.as_u64()).contains(&reached), "the page ends at {reached}");
            assert_eq!(reached % 100, 0, "the page ends within a commit");
            let page = container.feed.read(&keys, &page.continuation, size).await.unwrap();
            let found: Vec<_> = page.changes.iter().map(|it| it.id.as_str()).collect();
            assert_eq!(found, ["1"]);
        }
    });
}
