//! Settings that one process changes while another one writes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::join;
use millstream_core::{
    Batch, ContainerName, ContainerSettings, Containers, FeedMode, KeyRange, Operation, PageSize,
    PartitionKeyDefinition, StartFrom, SystemClock,
};

use crate::harness::{Servers, block_on, open};

const HOUR: Duration = Duration::from_secs(3600);

#[test]
fn all_versions_are_complete_from_when_they_are_switched_on() {
    let Some(servers) = Servers::single() else { return };
    block_on(async {
        let url = format!("{}?prefix=versions", servers.url());
        let mut processes = Vec::new();
        for _ in 0..2 {
            processes.push(open(&url, Arc::new(SystemClock::default())).await);
        }
        let [one, other] = &processes[..] else { unreachable!("there are two") };
        one.create_database("d").await.unwrap();
        let name = ContainerName::new("d", "c").unwrap();
        let settings = ContainerSettings::new(PartitionKeyDefinition::hash("/pk").unwrap());
        one.create(&name, settings.clone()).await.unwrap();
        let writer = other.open(&name).await.unwrap();
        let is_over = AtomicBool::new(false);
        let writing = async {
            let mut written = 0;
            while !is_over.load(Ordering::Relaxed) {
                let body = format!(r#"{{"id":"1","pk":"k","number":{written}}}"#);
                let batch = Batch::new("k").with(Operation::upsert(body));
                writer.documents.commit(batch).await.unwrap();
                written += 1;
            }
            written
        };
        let switching = async {
            one.replace(&name, settings.all_versions_retention(HOUR), None).await.unwrap();
            let container = one.open(&name).await.unwrap();
            let all = KeyRange::all();
            let start = container.feed.start(&all, StartFrom::Now, FeedMode::AllVersions).await;
            // What is missing is missing from what comes right after.
            tokio::time::sleep(Duration::from_millis(100)).await;
            is_over.store(true, Ordering::Relaxed);
            (container, start.unwrap())
        };
        let (written, (container, mut after)) = join(writing, switching).await;
        let mut numbers: Vec<i64> = Vec::new();
        loop {
            let size = PageSize::items(1000);
            let page = container.feed.read(&KeyRange::all(), &after, size).await.unwrap();
            after = page.continuation;
            if page.changes.is_empty() {
                break;
            }
            for change in page.changes {
                let body = change.current.unwrap().body;
                let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
                numbers.push(body["number"].as_i64().unwrap());
            }
        }
        let first = *numbers.first().expect("something was written meanwhile");
        assert_eq!(numbers, (first..written).collect::<Vec<_>>());
    });
}
