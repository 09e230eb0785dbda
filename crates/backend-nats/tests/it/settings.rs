//! Settings that one process changes while another one writes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::{join, join_all};
use millstream_backend_nats::NatsStore;
use millstream_core::{
    Batch, ContainerName, ContainerSettings, Containers, Cursor, ErrorKind, FeedMode, KeyRange,
    Operation, PageSize, PartitionKeyDefinition, StartFrom, SystemClock,
};

use crate::harness::{Servers, block_on, open};

/// Who write at the same time.
const WRITERS: usize = 2000;
const HOUR: Duration = Duration::from_secs(3600);

/// Two processes, and a container that keeps no versions.
async fn two(
    servers: &Servers,
    options: &str,
) -> (NatsStore, NatsStore, ContainerName, ContainerSettings) {
    let url = format!("{}?{options}", servers.url());
    let one = open(&url, Arc::new(SystemClock::default())).await;
    let other = open(&url, Arc::new(SystemClock::default())).await;
    one.create_database("d").await.unwrap();
    let name = ContainerName::new("d", "c").unwrap();
    let settings = ContainerSettings::new(PartitionKeyDefinition::hash("/pk").unwrap());
    one.create(&name, settings.clone()).await.unwrap();
    (one, other, name, settings)
}

#[test]
fn all_versions_are_complete_from_when_they_are_switched_on() {
    let Some(servers) = Servers::single() else { return };
    block_on(async {
        let (one, other, name, settings) = two(servers, "prefix=versions").await;
        let writer = other.open(&name).await.unwrap();
        let is_over = AtomicBool::new(false);
        // Events of one key take turns, and so many of them take longer than others need to hear.
        let (writer, is_over) = (&writer, &is_over);
        let writing = (0..WRITERS).map(|number| async move {
            let mut written = Vec::new();
            while !is_over.load(Ordering::Relaxed) {
                let id = format!("{number}-{}", written.len());
                let body = format!(r#"{{"id":"{id}","pk":"k","type":"domainEvent"}}"#);
                let batch = Batch::new("k").with(Operation::create(body));
                written.push((writer.documents.commit(batch).await.unwrap().lsn, id));
            }
            written
        });
        let switching = async {
            one.replace(&name, settings.all_versions_retention(HOUR), None).await.unwrap();
            let feed = one.open(&name).await.unwrap().feed;
            let all = KeyRange::all();
            let start = feed.start(&all, StartFrom::Now, FeedMode::AllVersions).await.unwrap();
            is_over.store(true, Ordering::Relaxed);
            (feed, start)
        };
        let (written, (feed, mut after)) = join(join_all(writing), switching).await;
        let start = Cursor::parse(&after).unwrap().after;
        let mut expected: Vec<_> = written.into_iter().flatten().collect();
        expected.retain(|(lsn, _)| start < *lsn);
        expected.sort();
        assert!(!expected.is_empty(), "something was written meanwhile");
        let mut shown = Vec::new();
        loop {
            let size = PageSize::items(1000);
            let page = feed.read(&KeyRange::all(), &after, size).await.unwrap();
            after = page.continuation;
            if page.changes.is_empty() {
                break;
            }
            let changes = page.changes.into_iter();
            shown.extend(changes.map(|it| (it.lsn, it.id.as_str().to_owned())));
        }
        // Short, as there are thousands.
        assert_eq!((shown.len(), shown.last()), (expected.len(), expected.last()));
        assert!(shown == expected, "the changes are not those that were committed");
    });
}

#[test]
fn nobody_sees_versions_before_every_process_keeps_them() {
    let Some(servers) = Servers::single() else { return };
    block_on(async {
        let (one, other, name, settings) = two(servers, "prefix=opening").await;
        let kept = settings.clone().all_versions_retention(HOUR);
        let start = async |store: &NatsStore| {
            let feed = store.open(&name).await.unwrap().feed;
            feed.start(&KeyRange::all(), StartFrom::Now, FeedMode::AllVersions).await
        };
        // Broken off, as by the end of the process, when the settings have been written.
        let mut replacing = Box::pin(one.replace(&name, kept.clone(), None));
        loop {
            let waited = tokio::time::timeout(Duration::from_millis(1), &mut replacing).await;
            assert!(waited.is_err(), "it waits for the others");
            if other.open(&name).await.unwrap().info.settings == kept {
                break;
            }
        }
        drop(replacing);
        for store in [&one, &other] {
            assert_eq!(start(store).await.unwrap_err().kind(), ErrorKind::Unavailable);
        }
        // Maintenance goes on with it, and so does whoever replaces the settings again.
        other.maintain().await.unwrap();
        start(&one).await.unwrap();
        one.replace(&name, settings, None).await.unwrap();
        start(&other).await.unwrap_err();
        let info = one.replace(&name, kept, None).await.unwrap();
        start(&other).await.unwrap();
        assert_eq!(other.open(&name).await.unwrap().info, info);
    });
}

#[test]
fn a_history_that_is_open_begins_no_later() {
    let Some(servers) = Servers::single() else { return };
    block_on(async {
        let (one, other, name, settings) = two(servers, "prefix=begun&timeout=2").await;
        let container = one.open(&name).await.unwrap();
        let commit = async |id: &str| {
            let body = format!(r#"{{"id":"{id}","pk":"k"}}"#);
            let batch = Batch::new("k").with(Operation::create(body));
            container.documents.commit(batch).await.unwrap();
        };
        commit("before").await;
        let (feed, all) = (&container.feed, KeyRange::all());
        let reading = async {
            one.replace(&name, settings.all_versions_retention(HOUR), None).await.unwrap();
            let start = feed.start(&all, StartFrom::Beginning, FeedMode::AllVersions).await;
            commit("after").await;
            start.unwrap()
        };
        // It finds the history about to be opened, and is done only after it was.
        let maintaining = async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            other.maintain().await.unwrap();
        };
        let (start, ()) = join(reading, maintaining).await;
        let page = feed.read(&all, &start, PageSize::items(10)).await.unwrap();
        let ids: Vec<&str> = page.changes.iter().map(|it| it.id.as_str()).collect();
        assert_eq!(ids, ["after"]);
    });
}
