//! A reader that follows the feed while what it wants moves from the buffer to the tables.

use std::path::Path;
use std::time::Duration;

use millstream_core::conformance::block_on;
use millstream_core::{
    Batch, Container, ContainerName, ContainerSettings, Containers, Continuation, FeedMode,
    Operation, PageSize, PartitionKeyDefinition, StartFrom,
};
use millstream_store::{Store, StoreOptions};

fn open(directory: &Path) -> Store {
    let options = StoreOptions::default().maintenance_interval(None);
    Store::open_with(directory, options).expect("it opens")
}

fn container(store: &Store) -> Container {
    let name = ContainerName::new("app", "data").expect("a name");
    let definition = PartitionKeyDefinition::hash("/key").expect("a path");
    let day = Duration::from_secs(24 * 60 * 60);
    let settings = ContainerSettings::new(definition).all_versions_retention(day);
    block_on(store.create_database("app")).ok();
    block_on(store.create(&name, settings)).ok();
    block_on(store.open(&name)).expect("it is there")
}

fn commit(container: &Container, numbers: std::ops::Range<u32>) {
    for number in numbers {
        let body = format!(r#"{{"id":"{number}","key":"k"}}"#);
        let batch = Batch::new("k").with(Operation::create(body));
        block_on(container.documents.commit(batch)).expect("it is new");
    }
}

fn start(container: &Container, mode: FeedMode) -> Continuation {
    let keys = block_on(container.feed.ranges()).expect("it is there")[0].keys.clone();
    block_on(container.feed.start(&keys, StartFrom::Beginning, mode)).expect("it is kept")
}

/// Everything after a position, and the position behind it.
fn read(container: &Container, mut at: Continuation) -> (Vec<String>, Continuation) {
    let keys = block_on(container.feed.ranges()).expect("it is there")[0].keys.clone();
    let mut ids = Vec::new();
    loop {
        let page = block_on(container.feed.read(&keys, &at, PageSize::items(3))).expect("a page");
        at = page.continuation;
        if page.changes.is_empty() {
            return (ids, at);
        }
        let items = page.changes.iter().filter_map(|it| it.current.as_ref());
        ids.extend(items.map(|it| it.id.to_string()));
    }
}

#[track_caller]
fn check(container: &Container, at: Continuation, expected: std::ops::Range<u32>) -> Continuation {
    let (ids, at) = read(container, at);
    assert_eq!(ids, expected.map(|it| it.to_string()).collect::<Vec<_>>());
    at
}

fn follow(mode: FeedMode) {
    let directory = tempfile::tempdir().expect("a directory");
    let store = open(directory.path());
    let data = container(&store);
    let beginning = start(&data, mode);
    // The first look at an empty feed learns that nothing is in the tables.
    let nothing = check(&data, beginning.clone(), 0..0);
    commit(&data, 0..5);
    let behind_five = check(&data, nothing.clone(), 0..5);
    store.flush().expect("nothing is in the way");
    check(&data, nothing, 0..5);
    commit(&data, 5..9);
    check(&data, beginning.clone(), 0..9);
    check(&data, behind_five.clone(), 5..9);
    store.flush().expect("nothing is in the way");
    commit(&data, 9..11);
    let behind_all = check(&data, behind_five.clone(), 5..11);
    drop((data, store));
    // What an earlier process moved counts too, whether a reader asks before the next flush or
    // after it.
    let store = open(directory.path());
    let data = container(&store);
    check(&data, behind_five.clone(), 5..11);
    commit(&data, 11..12);
    store.flush().expect("nothing is in the way");
    check(&data, beginning, 0..12);
    check(&data, behind_five, 5..12);
    check(&data, behind_all, 11..12);
}

#[test]
fn nothing_is_missed_when_newest_versions_move_to_the_tables() {
    follow(FeedMode::LatestVersion);
}

#[test]
fn nothing_is_missed_when_all_versions_move_to_the_tables() {
    follow(FeedMode::AllVersions);
}
