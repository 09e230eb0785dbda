//! Obligation 7 for containers: their life cycle. Obligation 12 for positions in a container that
//! is gone.

use std::time::Duration;

use crate::conformance::Subject;
use crate::conformance::harness::{LATEST, Scene, body, item_id, must, must_fail, settings};
use crate::{
    Batch, ContainerName, ContainerSettings, ErrorKind, Etag, KeyRange, Operation, PageSize,
    PartitionKeyDefinition, ScanScope, StartFrom, TimeToLive,
};

pub(super) async fn obligation_07_databases_come_and_go(subject: &mut dyn Subject) {
    let store = subject.containers();
    assert_eq!(must(store.list_databases().await), [], "a new store has databases");
    let mut infos = Vec::new();
    for name in ["b", "a b", "ä", "B"] {
        let info = must(store.create_database(name).await);
        assert_eq!(info.name, name);
        infos.push(info);
    }
    let again = store.create_database("b").await;
    must_fail(again, ErrorKind::AlreadyExists, "create a database twice");
    for name in ["", "a/b", "a\\b", "a?b", "a#b", "a\nb", &"x".repeat(256)] {
        let refused = store.create_database(name).await;
        must_fail(refused, ErrorKind::Invalid, &format!("create a database called {name:?}"));
    }
    must_fail(store.delete_database("none").await, ErrorKind::NotFound, "delete no database");
    infos.sort_by(|one, other| one.name.cmp(&other.name));
    assert_eq!(must(store.list_databases().await), infos, "databases are not listed by name");
    must(store.delete_database("b").await);
    let gone = infos.iter().position(|it| it.name == "b").expect("it was created");
    let old = infos.remove(gone);
    assert_eq!(must(store.list_databases().await), infos);
    let new = must(store.create_database("b").await);
    assert_ne!(new.resource_id, old.resource_id, "the number of a database was used again");
    must(store.delete_database("b").await);
    drop(store);
    subject.reopen().await;
    let store = subject.containers();
    assert_eq!(must(store.list_databases().await), infos, "reopening changed the databases");
    let newest = must(store.create_database("b").await).resource_id;
    assert!(![old.resource_id, new.resource_id].contains(&newest), "a number was used again");
}

pub(super) async fn obligation_07_containers_come_and_go(subject: &mut dyn Subject) {
    let store = subject.containers();
    let name = |container: &str| must(ContainerName::new("base", container));
    let refused = store.create(&name("data"), settings()).await;
    must_fail(refused, ErrorKind::NotFound, "create a container in no database");
    must_fail(store.list("base").await, ErrorKind::NotFound, "list the containers of no database");
    for database in ["base", "other"] {
        must(store.create_database(database).await);
    }
    let mut infos = Vec::new();
    for container in ["leases", "data", "Data"] {
        let info = must(store.create(&name(container), settings().ranges(2)).await);
        assert_eq!((&info.name, &info.settings), (&name(container), &settings().ranges(2)));
        infos.push(info);
    }
    let again = store.create(&name("data"), settings()).await;
    must_fail(again, ErrorKind::AlreadyExists, "create a container twice");
    // The same name in another database is another container.
    let other = must(ContainerName::new("other", "data"));
    let other = must(store.create(&other, settings()).await);
    infos.sort_by(|one, two| one.name.cmp(&two.name));
    assert_eq!(must(store.list("base").await), infos, "containers are not listed by name");
    for info in infos.iter().chain([&other]) {
        let opened = must(store.open(&info.name).await);
        assert_eq!(opened.info, *info, "an open container differs from the one created");
    }
    must_fail(store.open(&name("none")).await, ErrorKind::NotFound, "open no container");
    must_fail(store.delete(&name("none")).await, ErrorKind::NotFound, "delete no container");
    let refused = store.replace(&name("none"), settings(), None).await;
    must_fail(refused, ErrorKind::NotFound, "replace the settings of no container");
    must(store.delete(&name("leases")).await);
    infos.retain(|it| it.name != name("leases"));
    assert_eq!(must(store.list("base").await), infos);
    drop(store);
    subject.reopen().await;
    let store = subject.containers();
    assert_eq!(must(store.list("base").await), infos, "reopening changed the containers");
    must(store.delete_database("base").await);
    must_fail(store.open(&name("data")).await, ErrorKind::NotFound, "open in no database");
    must(store.create_database("base").await);
    assert_eq!(must(store.list("base").await), [], "a new database has old containers");
    assert_eq!(must(store.list("other").await), [other], "deleting touched another database");
}

pub(super) async fn obligation_07_settings_are_checked_and_replaced(subject: &mut dyn Subject) {
    let scene = Scene::plain(subject).await;
    let new = must(ContainerName::new("conformance", "new"));
    let zero = Some(TimeToLive::Seconds(0));
    let wrong = [
        settings().ranges(0),
        settings().ranges(ContainerSettings::RANGES_MAX + 1),
        ContainerSettings { default_ttl: zero, ..settings() },
        ContainerSettings { event_type: Some(String::new()), ..settings() },
        settings().all_versions_retention(Duration::from_secs(31 * 24 * 3600)),
    ];
    for settings in wrong {
        let what = format!("{settings:?}");
        let refused = scene.store.create(&new, settings.clone()).await;
        must_fail(refused, ErrorKind::Invalid, &what);
        let refused = scene.store.replace(&scene.name, settings, None).await;
        must_fail(refused, ErrorKind::Invalid, &what);
    }
    must_fail(scene.store.open(&new).await, ErrorKind::NotFound, "open what was refused");
    let key = must(PartitionKeyDefinition::hash("/other"));
    let other_key = ContainerSettings { partition_key: key, ..settings() };
    let refused = scene.store.replace(&scene.name, other_key, None).await;
    must_fail(refused, ErrorKind::Invalid, "change the partition key");

    let first = scene.container.info.clone();
    assert_eq!(must(scene.store.open(&scene.name).await).info, first, "a refusal changed it");
    let changed = settings().default_ttl(TimeToLive::Seconds(100));
    let refused = scene.store.replace(&scene.name, changed.clone(), Some(Etag::new("wrong"))).await;
    must_fail(refused, ErrorKind::PreconditionFailed, "replace with a wrong etag");
    let replace = scene.store.replace(&scene.name, changed.clone(), Some(first.etag.clone()));
    let second = must(replace.await);
    assert_eq!(second.settings, changed);
    assert_eq!(second.resource_id, first.resource_id, "new settings made another container");
    assert_ne!(second.etag, first.etag, "new settings have the old etag");
    let stale = scene.store.replace(&scene.name, settings(), Some(first.etag)).await;
    must_fail(stale, ErrorKind::PreconditionFailed, "replace with an old etag");
    let scene = scene.reopened(subject).await;
    assert_eq!(scene.container.info, second, "reopening changed the settings");
    assert_eq!(must(scene.store.list("conformance").await), [second]);
}

pub(super) async fn obligation_12_nothing_is_left_of_a_deleted_container(
    subject: &mut dyn Subject,
) {
    let old = Scene::plain(subject).await;
    let keys = KeyRange::all();
    old.create("k", "1").await;
    let continuation = old.start(&keys, StartFrom::Now, LATEST).await;
    must(old.store.delete(&old.name).await);
    check_gone(&old).await;
    let new = Scene::plain(subject).await;
    let (first, second) = (old.container.info.resource_id, new.container.info.resource_id);
    assert_ne!(first, second, "the number of a container was used again");
    check_gone(&old).await;
    assert_eq!(new.scan_all().await, [], "a new container has old items");
    assert_eq!(new.changes(StartFrom::Beginning, LATEST).await, []);
    let feed = &new.container.feed;
    let refused = feed.read(&keys, &continuation, PageSize::default()).await;
    must_fail(refused, ErrorKind::ContainerRecreated, "read from an old position");
    let refused = feed.wait(&keys, &continuation).await;
    must_fail(refused, ErrorKind::ContainerRecreated, "wait at an old position");
    new.create("k", "1").await;
    drop(old);
    let new = new.reopened(subject).await;
    let refused = new.container.feed.read(&keys, &continuation, PageSize::default()).await;
    must_fail(refused, ErrorKind::ContainerRecreated, "read from an old position after reopening");
    must(new.store.delete_database("conformance").await);
    check_gone(&new).await;
    let newest = Scene::plain(subject).await;
    let third = newest.container.info.resource_id;
    assert!(third != first && third != second, "the number of a container was used again");
    assert_eq!(newest.scan_all().await, [], "a new container has items of an old database");
}

/// Every call of a handle whose container was deleted fails.
async fn check_gone(scene: &Scene) {
    let (documents, feed) = (&scene.container.documents, &scene.container.feed);
    let keys = KeyRange::all();
    let gone = ErrorKind::NotFound;
    must_fail(documents.read(&"k".into(), &item_id("1")).await, gone, "read an item");
    let batch = Batch::new("k").with(Operation::upsert(body("k", "1", 0)));
    must_fail(documents.commit(batch).await, gone, "commit");
    let scan = documents.scan(&ScanScope::Keys(keys.clone()), None, PageSize::default()).await;
    must_fail(scan, gone, "scan");
    must_fail(feed.ranges().await, gone, "ask for the ranges");
    let start = feed.start(&keys, StartFrom::Beginning, LATEST).await;
    must_fail(start, gone, "start a feed");
    if let Some(guards) = &scene.container.guards {
        must_fail(guards.holders().await, gone, "ask for the holders");
    }
}
