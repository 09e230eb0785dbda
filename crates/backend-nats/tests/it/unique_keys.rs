//! Unique keys beyond what every backend promises: several processes, limits of the server, and
//! what is left of values that were given up.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use millstream_backend_nats::NatsStore;
use millstream_core::{
    Batch, Container, ContainerName, ContainerSettings, Containers, ErrorKind, ItemId, ManualClock,
    Operation, PartitionKeyDefinition, Timestamp, UniqueKey,
};

use crate::harness::{Servers, block_on, open};

/// As many stores as are asked for on the same container, as if each were a process of its own.
async fn stores(
    prefix: &str,
    count: usize,
    keys: usize,
) -> Option<(Vec<Opened>, Arc<ManualClock>)> {
    let servers = Servers::single()?;
    let clock = Arc::new(ManualClock::starting_at(Timestamp::from_millis(1_700_000_000_000)));
    let url = format!("{}?prefix={prefix}", servers.url());
    let name = ContainerName::new("d", "c").unwrap();
    let mut opened = Vec::new();
    for number in 0..count {
        let store = open(&url, clock.clone()).await;
        if number == 0 {
            let key = PartitionKeyDefinition::hash("/pk").unwrap();
            let mut settings = ContainerSettings::new(key);
            for key in 0..keys {
                settings = settings.unique_key(UniqueKey::new([format!("/u{key}")]).unwrap());
            }
            store.create_database("d").await.unwrap();
            store.create(&name, settings).await.unwrap();
        }
        let container = store.open(&name).await.unwrap();
        opened.push(Opened { store, container });
    }
    Some((opened, clock))
}

struct Opened {
    store: NatsStore,
    container: Container,
}

fn create(id: &str, value: &str) -> Operation {
    Operation::create(format!(r#"{{"id":"{id}","pk":"k","u0":"{value}"}}"#))
}

#[test]
fn one_of_many_processes_gets_a_value() {
    block_on(async {
        let Some((opened, _)) = stores("unique", 4, 1).await else { return };
        for round in 0..10 {
            let value = format!("value-{round}");
            let commits = opened.iter().enumerate().map(|(number, it)| {
                let batch = Batch::new("k").with(create(&format!("{round}-{number}"), &value));
                it.container.documents.commit(batch)
            });
            let outcomes = join_all(commits).await;
            assert_eq!(outcomes.iter().filter(|it| it.is_ok()).count(), 1, "round {round}");
            for error in outcomes.into_iter().filter_map(Result::err) {
                assert_eq!(error.kind(), ErrorKind::AlreadyExists, "{}", error.report());
            }
        }
    });
}

#[test]
fn what_is_left_of_a_value_that_was_given_up_goes_after_a_day() {
    block_on(async {
        let Some((opened, clock)) = stores("given-up", 1, 1).await else { return };
        let Opened { store, container } = &opened[0];
        let commit =
            async |operation| container.documents.commit(Batch::new("k").with(operation)).await;
        for id in ["1", "2", "3"] {
            commit(create(id, id)).await.unwrap();
        }
        commit(Operation::delete(ItemId::new("1").unwrap())).await.unwrap();
        commit(create("4", "4")).await.unwrap();
        assert_eq!(store.maintain().await.unwrap().traces, 0);
        clock.advance(Duration::from_secs(25 * 3600));
        // That of the item, and that of its value.
        assert_eq!(store.maintain().await.unwrap().traces, 2);
        assert_eq!(store.maintain().await.unwrap().traces, 0);
        commit(create("5", "1")).await.unwrap();
        for value in ["1", "2", "3", "4"] {
            let error = commit(create("6", value)).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::AlreadyExists, "{}", error.report());
        }
    });
}

#[test]
fn a_batch_of_more_messages_than_a_server_takes_is_refused() {
    block_on(async {
        let Some((opened, _)) = stores("many", 1, 10).await else { return };
        let batch = |count: usize| {
            let body = |it: usize| {
                let values: Vec<_> = (0..10).map(|key| format!(r#""u{key}":{it}"#)).collect();
                format!(r#"{{"id":"{it}","pk":"k",{}}}"#, values.join(","))
            };
            (0..count).fold(Batch::new("k"), |batch, it| batch.with(Operation::create(body(it))))
        };
        let documents = &opened[0].container.documents;
        let error = documents.commit(batch(100)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TooLarge, "{}", error.report());
        assert!(error.report().contains("1100 messages"), "{}", error.report());
        // Each takes a message for itself and ten for its values.
        assert_eq!(documents.commit(batch(90)).await.unwrap().results.len(), 90);
    });
}
