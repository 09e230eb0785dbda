//! Processes that start at the same moment.

use std::sync::Arc;

use futures_util::future::join_all;
use millstream_backend_nats::NatsStore;
use millstream_core::{
    ContainerName, ContainerSettings, Containers, ErrorKind, PartitionKeyDefinition, Result,
    SystemClock,
};

use crate::harness::{Servers, block_on, open};

/// What a process does when it starts.
async fn start(store: &NatsStore, name: &ContainerName) {
    unless_exists(store.create_database(name.database()).await);
    let settings = ContainerSettings::new(PartitionKeyDefinition::hash("/pk").unwrap());
    unless_exists(store.create(name, settings).await);
    store.open(name).await.unwrap();
}

fn unless_exists<T>(outcome: Result<T>) {
    if let Err(error) = outcome {
        assert_eq!(error.kind(), ErrorKind::AlreadyExists, "{}", error.report());
    }
}

#[test]
fn what_another_process_creates_at_the_same_moment_can_be_opened() {
    let Some(servers) = Servers::cluster() else { return };
    block_on(async {
        let url = format!("{}?replicas=3&prefix=starting", servers.url());
        let clock = Arc::new(SystemClock::default());
        let mut stores = Vec::new();
        for _ in 0..6 {
            stores.push(open(&url, clock.clone()).await);
        }
        for round in 0..10 {
            let name = ContainerName::new(&format!("d{round}"), "c").unwrap();
            join_all(stores.iter().map(|it| start(it, &name))).await;
            stores[0].delete_database(name.database()).await.unwrap();
        }
    });
}
