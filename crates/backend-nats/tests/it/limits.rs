//! What a batch costs that is refused because of its size.

use bytes::Bytes;
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

/// The look-ups of single messages that anybody makes.
struct Looks {
    client: async_nats::Client,
    requests: async_nats::Subscriber,
}

impl Looks {
    async fn on(url: &str) -> Self {
        let client = async_nats::connect(url).await.unwrap();
        let requests = client.subscribe("$JS.API.DIRECT.GET.>").await.unwrap();
        client.flush().await.unwrap();
        Self { client, requests }
    }

    /// How many were made since it was asked last: those before a message of our own, which comes
    /// behind whatever the server has taken before.
    async fn made(&mut self) -> usize {
        const MARK: &str = "$JS.API.DIRECT.GET.no-stream.mark";
        self.client.publish(MARK, Bytes::new()).await.unwrap();
        let mut made = 0;
        while self.requests.next().await.unwrap().subject.as_str() != MARK {
            made += 1;
        }
        made
    }
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
        let mut looks = Looks::on(&servers.url()).await;
        // Nothing is remembered by a process that has just begun.
        for batches in 1..=2 {
            subject.reopen().await;
            let container = subject.containers().open(&name).await.unwrap();
            looks.made().await;
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
            let made = looks.made().await;
            // The limit, what is under way then, and the settings of the container.
            let fetched_max = BATCH_RESULT_BYTES_MAX / ITEM_BYTES + 1 + LOOKS_AT_ONCE + 5;
            assert!(0 < made && made <= fetched_max, "{made} items were looked at");
        }
    });
}
