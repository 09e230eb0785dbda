//! What readers see of batches that are committed while they look.
#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use millstream_core::conformance::block_on;
use millstream_core::{
    Batch, Container, ContainerName, ContainerSettings, Containers, ItemId, Operation, PageSize,
    PartitionKey, PartitionKeyDefinition, ScanScope,
};
use millstream_store::Store;

const ITEMS: usize = 10;
/// Between two commits of a writer, so that there is time for a look even where a disk is memory.
const PAUSE: Duration = Duration::from_micros(200);

/// Ends the writers, also if the reader fails.
struct Ending<'a>(&'a AtomicBool);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn container(store: &Store) -> Container {
    block_on(async {
        let name = ContainerName::new("app", "data").unwrap();
        store.create_database("app").await.unwrap();
        let key = PartitionKeyDefinition::hash("/pk").unwrap();
        store.create(&name, ContainerSettings::new(key)).await.unwrap();
        store.open(&name).await.unwrap()
    })
}

/// All items of a partition with one number; now and then all but the first are gone.
fn batch(number: usize) -> Batch {
    let is_short = number.is_multiple_of(5);
    let operation = |item: usize| match is_short && 0 < item {
        true => vec![
            Operation::upsert(format!(r#"{{"id":"{item}","pk":"k","n":0}}"#)),
            Operation::delete(ItemId::new(&item.to_string()).unwrap()),
        ],
        false => vec![Operation::upsert(format!(r#"{{"id":"{item}","pk":"k","n":{number}}}"#))],
    };
    let operations = (0..ITEMS).flat_map(operation).collect();
    Batch { partition_key: "k".into(), operations }
}

#[test]
fn a_page_of_one_partition_has_batches_whole_while_others_write() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path()).unwrap();
    let container = container(&store);
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        for writer in 0..2 {
            let (container, is_over) = (&container, &is_over);
            scope.spawn(move || {
                for number in (1..).filter(|it| it % 2 == writer) {
                    if is_over.load(Ordering::Relaxed) {
                        break;
                    }
                    block_on(container.documents.commit(batch(number))).unwrap();
                    thread::sleep(PAUSE);
                }
            });
        }
        let _ending = Ending(&is_over);
        let partition = ScanScope::Partition(PartitionKey::from("k"));
        let mut torn = 0;
        for _ in 0..5000 {
            let page = container.documents.scan(&partition, None, PageSize::items(100));
            let page = block_on(page).unwrap();
            let bodies: Vec<&[u8]> = page.items.iter().map(|it| &it.body[..]).collect();
            let number = |body: &[u8]| {
                let body: serde_json::Value = serde_json::from_slice(body).unwrap();
                body["n"].as_u64().unwrap()
            };
            let first = bodies.first().map_or(1, |it| number(it));
            let expected = match first.is_multiple_of(5) {
                true => 1,
                false => ITEMS,
            };
            let is_whole = bodies.len() == expected && bodies.iter().all(|it| number(it) == first);
            torn += usize::from(!is_whole && !bodies.is_empty());
        }
        assert_eq!(torn, 0);
    });
}

#[test]
fn a_page_is_of_one_moment_also_where_much_was_deleted_lately() {
    // More than a page looks at beyond itself at first.
    check_beside_deleted(1300, Duration::from_millis(1), 1000);
    // More than it ever looks at in one moment, while it can be that nobody writes.
    check_beside_deleted(18_000, Duration::from_millis(200), 50);
}

/// Looks so often at two items that take turns, between which so many have been deleted.
fn check_beside_deleted(gone: usize, pause: Duration, looks: usize) {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path()).unwrap();
    let container = container(&store);
    let create = |id: &str| Operation::create(format!(r#"{{"id":"{id}","pk":"k"}}"#));
    let delete = |id: &str| Operation::delete(ItemId::new(id).unwrap());
    let commit = |operations: Vec<Operation>| {
        let batch = Batch { partition_key: "k".into(), operations };
        block_on(container.documents.commit(batch)).unwrap();
    };
    // They lie between the two items, and none of them is there any more.
    let gone: Vec<String> = (0..gone).map(|it| format!("b{it:05}")).collect();
    for part in gone.chunks(50) {
        commit(part.iter().flat_map(|id| [create(id), delete(id)]).collect());
    }
    commit(vec![create("z")]);
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                commit(vec![create("a"), delete("z")]);
                thread::sleep(pause);
                commit(vec![delete("a"), create("z")]);
                thread::sleep(pause);
            }
        });
        let _ending = Ending(&is_over);
        let partition = ScanScope::Partition(PartitionKey::from("k"));
        let mut torn = BTreeSet::new();
        for _ in 0..looks {
            let page = container.documents.scan(&partition, None, PageSize::items(100));
            let page = block_on(page).unwrap();
            let ids: Vec<&str> = page.items.iter().map(|it| it.id.as_str()).collect();
            let is_whole = match page.continuation {
                None => [["a"], ["z"]].iter().any(|it| *it == ids[..]),
                Some(_) => ids == ["a"],
            };
            if !is_whole {
                torn.insert(format!("{ids:?}"));
            }
        }
        assert_eq!(torn, BTreeSet::new());
    });
}
