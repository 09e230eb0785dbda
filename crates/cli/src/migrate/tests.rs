use std::sync::Arc;

use millstream_core::memory::Memory;
use millstream_core::{
    Batch, Container, ContainerName, ContainerSettings, Containers, ItemId, KeyRange, Numbers,
    Operation, PageSize, PartitionKeyDefinition, ScanScope, SystemClock, UniqueKey,
};
use millstream_store::Store;

use crate::migrate::{Migration, Summary, Until, journal, numbers_of};
use crate::places::Place;
use crate::sparse_feed::SparseFeed;

fn memory() -> Arc<dyn Containers> {
    Arc::new(Memory::new(Arc::new(SystemClock::default())))
}

fn name() -> ContainerName {
    ContainerName::new("app", "data").unwrap()
}

async fn filled(ranges: u32) -> (Arc<dyn Containers>, Container) {
    let source = memory();
    source.create_database("app").await.unwrap();
    let key = PartitionKeyDefinition::hash("/pk").unwrap();
    let settings = ContainerSettings::new(key.clone()).ranges(ranges);
    source.create(&name(), settings).await.unwrap();
    for other in ["leases", "more"] {
        let name = ContainerName::new("app", other).unwrap();
        source.create(&name, ContainerSettings::new(key.clone())).await.unwrap();
    }
    let container = source.open(&name()).await.unwrap();
    for number in 0..250 {
        write(&container, number, 0).await;
    }
    (source, container)
}

fn key(number: u32) -> String {
    format!("k{}", number % 20)
}

async fn write(container: &Container, number: u32, version: u32) {
    let key = key(number);
    let body = format!(r#"{{"id":"{number}","pk":"{key}","version":{version},"big":1e400}}"#);
    let batch = Batch::new(key.as_str()).with(Operation::upsert(body));
    container.documents.commit(batch).await.unwrap();
}

async fn delete(container: &Container, number: u32) {
    let id = ItemId::new(&number.to_string()).unwrap();
    let batch = Batch::new(key(number).as_str()).with(Operation::delete(id));
    container.documents.commit(batch).await.unwrap();
}

fn migration(
    source: &Arc<dyn Containers>,
    target: &Arc<dyn Containers>,
    until: Until,
) -> Migration {
    Migration {
        source: Arc::clone(source),
        target: Arc::clone(target),
        from: "memory".to_owned(),
        clock: Arc::new(SystemClock::default()),
        until,
        numbers: Numbers::Exact,
    }
}

async fn bodies(store: &Arc<dyn Containers>) -> Vec<String> {
    let container = store.open(&name()).await.unwrap();
    let (scope, mut after) = (ScanScope::Keys(KeyRange::all()), None);
    let mut found = Vec::new();
    loop {
        let size = PageSize::items(100);
        let page = container.documents.scan(&scope, after.as_ref(), size).await.unwrap();
        found.extend(page.items.iter().map(|it| String::from_utf8(it.body.to_vec()).unwrap()));
        after = page.continuation;
        if after.is_none() {
            found.sort_unstable();
            return found;
        }
    }
}

async fn run(migration: &Migration) -> Summary {
    migration.run(&[name()]).await.unwrap().remove(0)
}

#[tokio::test]
async fn a_container_goes_to_another_backend_while_it_changes() {
    let directory = tempfile::tempdir().unwrap();
    let (source, container) = filled(4).await;
    let target: Arc<dyn Containers> = Arc::new(Store::open(directory.path()).unwrap());
    let first = run(&migration(&source, &target, Until::CaughtUp)).await;
    assert_eq!(first.copied, 250);
    assert_eq!(bodies(&target).await, bodies(&source).await);
    // Interrupted: writes and deletes go on, then the same command again.
    for number in 0..30 {
        write(&container, number, 1).await;
    }
    delete(&container, 100).await;
    let second = run(&migration(&source, &target, Until::CaughtUp)).await;
    assert_eq!(second.copied, 280, "it goes on where it was");
    let last = run(&migration(&source, &target, Until::Switched)).await;
    assert_eq!((last.copied, last.removed, last.repaired, last.items), (280, 1, 0, 249));
    assert_eq!(bodies(&target).await, bodies(&source).await);
    let again = migration(&source, &target, Until::Switched).run(&[name()]).await.unwrap_err();
    assert!(again.to_string().contains("switched already"), "{again}");
}

#[tokio::test]
async fn pages_without_changes_are_not_the_end() {
    let (source, _) = filled(2).await;
    let target = memory();
    let migration = migration(&source, &target, Until::CaughtUp);
    let journals = journal::container(&*target).await.unwrap();
    let mut copier = migration.prepare(&name(), &journals).await.unwrap();
    copier.source.feed = Arc::new(SparseFeed(copier.source.feed));
    assert_eq!(copier.catch_up().await.unwrap(), 250);
    assert_eq!(bodies(&target).await, bodies(&source).await);
}

#[tokio::test]
async fn a_split_of_the_source_loses_nothing() {
    let (source, container) = filled(1).await;
    let target = memory();
    run(&migration(&source, &target, Until::CaughtUp)).await;
    let range = container.feed.ranges().await.unwrap()[0].id;
    source.split(&name(), range, None).await.unwrap();
    for number in 0..250 {
        write(&container, number, 2).await;
    }
    let last = run(&migration(&source, &target, Until::Switched)).await;
    assert_eq!((last.removed, last.repaired), (0, 0));
    assert_eq!(bodies(&target).await, bodies(&source).await);
}

#[tokio::test]
async fn what_somebody_changed_in_the_target_is_repaired() {
    let (source, _) = filled(2).await;
    let target = memory();
    run(&migration(&source, &target, Until::CaughtUp)).await;
    let container = target.open(&name()).await.unwrap();
    write(&container, 7, 9).await;
    write(&container, 999, 9).await;
    delete(&container, 8).await;
    let last = run(&migration(&source, &target, Until::Switched)).await;
    assert_eq!((last.removed, last.repaired, last.items), (1, 2, 250));
    assert_eq!(bodies(&target).await, bodies(&source).await);
}

/// How many items are repaired where the target has another large number than the source.
async fn repaired(source: &str, target: &str, numbers: Numbers) -> u64 {
    let (from, to) = (memory(), memory());
    from.create_database("app").await.unwrap();
    let key = PartitionKeyDefinition::hash("/pk").unwrap();
    from.create(&name(), ContainerSettings::new(key)).await.unwrap();
    let write = async |store: &Arc<dyn Containers>, number: &str| {
        let body = format!(r#"{{"id":"1","pk":"k","large":{number}}}"#);
        let batch = Batch::new("k").with(Operation::upsert(body));
        store.open(&name()).await.unwrap().documents.commit(batch).await.unwrap();
    };
    write(&from, source).await;
    run(&migration(&from, &to, Until::CaughtUp)).await;
    write(&to, target).await;
    let last = run(&Migration { numbers, ..migration(&from, &to, Until::Switched) }).await;
    if 0 < last.repaired {
        assert_eq!(bodies(&to).await, bodies(&from).await);
    }
    last.repaired
}

#[tokio::test]
async fn a_copy_is_the_same_to_the_last_digit_unless_the_target_keeps_doubles() {
    for (source, target) in [
        ("9007199254740993", "9007199254740992"),
        ("18446744073709551615", "18446744073709551614"),
        ("18446744073709551615", "1.8446744073709552e+19"),
    ] {
        assert_eq!(repaired(source, target, Numbers::Exact).await, 1, "{source} {target}");
        assert_eq!(repaired(source, target, Numbers::AsDoubles).await, 0, "{source} {target}");
    }
    // Spelled in another way, it is the same number.
    assert_eq!(
        repaired("18446744073709551615", "1.8446744073709551615e19", Numbers::Exact).await,
        0
    );
    let numbers = |place| numbers_of(&Place::parse("--to", place).unwrap());
    assert_eq!(numbers("file:./data"), Numbers::Exact);
    assert_eq!(numbers("nats://localhost:4222"), Numbers::Exact);
    assert_eq!(numbers("cosmos+http://localhost:8081"), Numbers::AsDoubles);
}

#[tokio::test]
async fn leases_and_the_own_database_stay_behind_unless_they_are_named() {
    let (source, _) = filled(1).await;
    let target = memory();
    let migration = migration(&source, &target, Until::CaughtUp);
    let names = migration.names(&[]).await.unwrap();
    let names: Vec<String> = names.iter().map(ToString::to_string).collect();
    assert_eq!(names, ["app/data", "app/more"]);
    let named = migration.names(&["app/leases".to_owned()]).await.unwrap();
    assert_eq!(named[0].to_string(), "app/leases");
    assert!(migration.names(&["leases".to_owned()]).await.is_err());
}

#[tokio::test]
async fn another_source_or_partition_key_is_refused() {
    let (source, _) = filled(1).await;
    let target = memory();
    run(&migration(&source, &target, Until::CaughtUp)).await;
    let mut other = migration(&source, &target, Until::CaughtUp);
    other.from = "elsewhere".to_owned();
    let failure = other.run(&[name()]).await.unwrap_err().to_string();
    assert!(failure.contains("another source"), "{failure}");
    let target = memory();
    target.create_database("app").await.unwrap();
    let key = PartitionKeyDefinition::hash("/other").unwrap();
    target.create(&name(), ContainerSettings::new(key)).await.unwrap();
    let failure = migration(&source, &target, Until::CaughtUp).run(&[name()]).await.unwrap_err();
    assert!(failure.to_string().contains("another partition key"), "{failure}");
}

#[tokio::test]
async fn a_container_with_unique_keys_is_refused_before_anything_is_written() {
    let (source, target) = (memory(), memory());
    source.create_database("app").await.unwrap();
    let key = PartitionKeyDefinition::hash("/pk").unwrap();
    let settings = ContainerSettings::new(key).unique_key(UniqueKey::new(["/email"]).unwrap());
    source.create(&name(), settings).await.unwrap();
    let refused = migration(&source, &target, Until::CaughtUp).run(&[name()]).await;
    let reason = refused.unwrap_err().to_string();
    assert!(reason.contains("unique keys"), "{reason}");
    assert!(target.list("app").await.is_err(), "something was created in the target");
}
