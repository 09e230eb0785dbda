//! What a batch costs that is refused because of its size.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::StreamExt;
use millstream_core::conformance::Subject;
use millstream_core::{
    BATCH_RESULT_BYTES_MAX, Batch, Container, ContainerName, ContainerSettings, ErrorKind, ItemId,
    Operation, PartitionKeyDefinition,
};

use crate::harness::{OnNats, Servers, block_on};

const ITEMS: usize = 60;
const ITEM_BYTES: usize = 512 * 1024;
/// So many look-ups are under way at the same time.
const LOOKS_AT_ONCE: usize = 16;

fn id(number: usize) -> ItemId {
    ItemId::new(&number.to_string()).unwrap()
}

async fn filled(subject: &OnNats, name: &ContainerName) {
    let containers = subject.containers();
    containers.create_database("d").await.unwrap();
    let settings = ContainerSettings::new(PartitionKeyDefinition::hash("/pk").unwrap());
    let container = containers.create(name, settings).await.unwrap().name;
    let container = containers.open(&container).await.unwrap();
    for number in 0..ITEMS {
        let body = format!(r#"{{"id":"{number}","pk":"k","text":"{}"}}"#, "x".repeat(ITEM_BYTES));
        let batch = Batch::new("k").with(Operation::create(body));
        container.documents.commit(batch).await.unwrap();
    }
}

/// Counts the look-ups of single messages that anybody makes from now on.
async fn looks(url: &str) -> Arc<AtomicUsize> {
    let client = async_nats::connect(url).await.unwrap();
    let mut requests = client.subscribe("$JS.API.DIRECT.GET.>").await.unwrap();
    client.flush().await.unwrap();
    let count = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&count);
    tokio::spawn(async move {
        // The subscription ends with its client.
        let _client = client;
        while requests.next().await.is_some() {
            counted.fetch_add(1, Ordering::Relaxed);
        }
    });
    count
}

async fn refused(container: &Container, batch: Batch) -> (ErrorKind, Option<usize>, String) {
    let error = container.documents.commit(batch).await.unwrap_err();
    (error.kind(), error.operation(), error.report())
}

#[test]
fn a_batch_that_reads_too_much_is_refused_before_all_of_it_is_fetched() {
    let Some(servers) = Servers::start(1) else { return };
    block_on(async {
        let mut subject = OnNats::on(&servers).await;
        let name = ContainerName::new("d", "c").unwrap();
        filled(&subject, &name).await;
        let looks = looks(&servers.url()).await;
        // Nothing is remembered by a process that has just begun.
        for batches in 1..=2 {
            subject.reopen().await;
            let container = subject.containers().open(&name).await.unwrap();
            let before = looks.load(Ordering::Relaxed);
            let reading = |batch: Batch, it: usize| batch.with(Operation::read(id(it)));
            let mut batch = (0..ITEMS).fold(Batch::new("k"), reading);
            if batches == 2 {
                // What is wrong earlier is said first.
                batch.operations[3] = Operation::read(id(ITEMS));
            }
            let (kind, operation, report) = refused(&container, batch).await;
            if batches == 1 {
                let fit = BATCH_RESULT_BYTES_MAX / (ITEM_BYTES + 1);
                assert_eq!((kind, operation), (ErrorKind::TooLarge, Some(fit)));
                assert!(report.contains("the limit of 4 MiB"), "{report}");
            } else {
                assert_eq!((kind, operation), (ErrorKind::NotFound, Some(3)));
            }
            let made = looks.load(Ordering::Relaxed) - before;
            // The limit, what is under way then, and the settings of the container.
            let fetched_max = BATCH_RESULT_BYTES_MAX / ITEM_BYTES + 1 + LOOKS_AT_ONCE + 5;
            assert!(0 < made && made <= fetched_max, "{made} items were looked at");
        }
    });
}
