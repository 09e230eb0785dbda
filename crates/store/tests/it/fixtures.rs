//! Stores that earlier versions wrote: each directory in `fixtures/` opens and shows what it
//! showed.

mod content;
mod shown;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use millstream_core::conformance::block_on;
use millstream_core::{
    Batch, ContainerName, Containers, ErrorKind, FeedMode, Operation, PageSize, PartitionKey,
    StartFrom,
};
use millstream_store::Store;
use std::time::Duration;

use crate::fixtures::content::{id, next_events, open, open_container};
use crate::fixtures::shown::{Extent, Kept, show};

#[test]
fn every_fixture_shows_what_it_showed() {
    for fixture in fixtures() {
        let directory = copy(&fixture);
        let (store, _) = open(directory.path());
        assert_text(&show(&store, Extent::Everything), &recorded(&fixture, SHOWN));
        for line in recorded(&fixture, KEPT).lines().filter(|it| !it.starts_with(' ')) {
            let now = Kept::from_line(line).show(&store);
            let recorded = recorded(&fixture, KEPT);
            assert!(recorded.contains(&now), "{line} went on with {now}");
        }
    }
}

#[test]
fn a_newer_minor_of_every_major_is_opened() {
    for fixture in fixtures() {
        let directory = copy(&fixture);
        let path = directory.path().join("format.json");
        let format = fs::read_to_string(&path).expect("it is there");
        let newer = format.replace("\"minor\":0", "\"minor\":7");
        assert_ne!(newer, format);
        fs::write(&path, newer).expect("it can be written");
        let (store, _) = open(directory.path());
        assert_text(&show(&store, Extent::Everything), &recorded(&fixture, SHOWN));
    }
}

#[test]
fn every_fixture_goes_on_where_it_ended() {
    for fixture in fixtures() {
        let directory = copy(&fixture);
        let before = {
            let (store, _) = open(directory.path());
            check_goes_on(&store);
            show(&store, Extent::Everything)
        };
        let (store, _) = open(directory.path());
        assert_text(&show(&store, Extent::Everything), &before);
    }
}

#[test]
fn maintenance_of_a_fixture_changes_nothing_that_clients_see() {
    for fixture in fixtures() {
        let directory = copy(&fixture);
        let (store, _) = open(directory.path());
        let before = show(&store, Extent::WithoutVersions);
        store.maintain().expect("nothing is in the way");
        store.flush().expect("nothing is in the way");
        assert_text(&show(&store, Extent::WithoutVersions), &before);
        drop(store);
        let (store, _) = open(directory.path());
        assert_text(&show(&store, Extent::WithoutVersions), &before);
    }
}

#[test]
fn a_guard_of_a_fixture_still_holds_events() {
    for fixture in fixtures() {
        let directory = copy(&fixture);
        let (store, clock) = open(directory.path());
        let orders = open_container(&store, &orders());
        let is_there = |item: &str| {
            let read = block_on(orders.documents.read(&PartitionKey::from("ada"), &id(item)));
            read.expect("it can be read").is_some()
        };
        clock.advance(Duration::from_secs(20 * 24 * 3600));
        store.maintain().expect("nothing is in the way");
        assert!(is_there("e1"), "the relay has not passed it");
        let guards = orders.guards.as_ref().expect("the store has guards");
        block_on(guards.release("relay")).expect("it is there");
        assert!(!is_there("e1"), "nobody waits for it");
        assert!(is_there("2"), "it never expires");
    }
}

/// What the writer of the fixtures makes today, it makes as it did: so the recorded text says what
/// is in them, and a new one can be made at any time.
#[test]
fn a_store_written_today_shows_the_same() {
    let directory = tempfile::tempdir().expect("a directory");
    let kept = content::write(directory.path());
    let (store, _) = open(directory.path());
    let shown = show(&store, Extent::Everything);
    let kept: String = kept.iter().map(|it| it.show(&store)).collect();
    drop(store);
    if let Some(target) = std::env::var_os(VARIABLE) {
        save(directory.path(), Path::new(&target), &shown, &kept).expect("it can be written");
        return;
    }
    let newest = fixtures().pop().expect("there is one");
    assert_text(&shown, &recorded(&newest, SHOWN));
    assert_text(&kept, &recorded(&newest, KEPT));
}

fn check_goes_on(store: &Store) {
    let orders = open_container(store, &orders());
    for (customer, number) in next_events() {
        let body = format!(r#"{{"id":"next","customer":"{customer}","type":"domainEvent"}}"#);
        let batch = Batch::new(customer).with(Operation::create(body.clone()));
        let effective = orders.info.settings.partition_key.effective(&customer.into());
        let effective = effective.expect("a key");
        let ranges = block_on(orders.feed.ranges()).expect("it is open");
        let range = ranges.iter().find(|it| it.keys.contains(&effective)).expect("one has it");
        let start =
            block_on(orders.feed.start(&range.keys, StartFrom::Now, FeedMode::LatestVersion));
        let start = start.expect("a start");
        let newest = block_on(orders.feed.read(&range.keys, &start, PageSize::default()));
        let outcome = block_on(orders.documents.commit(batch.clone())).expect("it is new");
        assert_eq!(outcome.results[0].item().expect("it was written").sequence, Some(number));
        assert!(newest.expect("a page").newest < outcome.lsn, "{customer}");
        let again = block_on(orders.documents.commit(batch)).expect_err("it exists");
        assert_eq!(again.kind(), ErrorKind::AlreadyExists);
    }
    for name in content::names() {
        let container = open_container(store, &name);
        let scope = millstream_core::ScanScope::Keys(millstream_core::KeyRange::all());
        let page = block_on(container.documents.scan(&scope, None, PageSize::default()));
        for item in page.expect("a page").items {
            let replace = Operation::replace(item.id.clone(), item.body.clone());
            let batch = Batch::new(item.partition_key.clone());
            let outcome = block_on(
                container.documents.commit(batch.with(replace.if_match(item.etag.clone()))),
            );
            let outcome = outcome.unwrap_or_else(|error| panic!("{}", error.report()));
            let replaced = outcome.results[0].item().expect("it was written");
            assert!(replaced.etag != item.etag && item.lsn < replaced.lsn, "{item:?}");
            assert_eq!(replaced.sequence, item.sequence);
        }
    }
    let gone = ContainerName::new("audit", "going").expect("a name");
    assert_eq!(block_on(store.open(&gone)).expect_err("it is gone").kind(), ErrorKind::NotFound);
    let settings = orders.info.settings;
    let created = block_on(store.create(&gone, settings)).expect("the name is free");
    let names = content::names();
    let ids = names.iter().map(|it| open_container(store, it).info.resource_id);
    assert!(ids.into_iter().all(|it| it.container < created.resource_id.container));
}

/// The fixtures, oldest first.
fn fixtures() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures");
    let entries = fs::read_dir(&root).expect("the fixtures are there");
    let mut found: Vec<PathBuf> = entries.map(|it| it.expect("an entry").path()).collect();
    found.retain(|it| it.is_dir());
    found.sort();
    assert!(!found.is_empty() || std::env::var_os(VARIABLE).is_some(), "there are no fixtures");
    found
}

fn orders() -> ContainerName {
    ContainerName::new("shop", "orders").expect("a name")
}

fn recorded(fixture: &Path, extension: &str) -> String {
    let path = with_extension(fixture, extension);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// `store-1.0` becomes `store-1.0.shown.txt`.
fn with_extension(fixture: &Path, extension: &str) -> PathBuf {
    let mut path = fixture.as_os_str().to_owned();
    path.push(extension);
    path.into()
}

fn copy(fixture: &Path) -> tempfile::TempDir {
    let directory = tempfile::tempdir().expect("a directory");
    copy_files(fixture, directory.path(), &mut |_, bytes| bytes).expect("it can be copied");
    directory
}

/// Saves what was written without the parts that only take up room: zeros at the end of files,
/// locks, and directories that are empty.
fn save(from: &Path, to: &Path, shown: &str, kept: &str) -> io::Result<()> {
    copy_files(from, to, &mut |path, mut bytes| {
        if path.extension().is_some_and(|it| it == "log" || it == "jnl") {
            let end = bytes.iter().rposition(|it| *it != 0).map_or(0, |it| it + 1);
            // A group may end in zeros, so some stay.
            bytes.truncate((end + 1024).next_multiple_of(1024).min(bytes.len()));
        }
        bytes
    })?;
    fs::write(with_extension(to, SHOWN), shown)?;
    fs::write(with_extension(to, KEPT), kept)
}

fn copy_files(
    from: &Path,
    to: &Path,
    change: &mut dyn FnMut(&Path, Vec<u8>) -> Vec<u8>,
) -> io::Result<()> {
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_files(&entry.path(), &target, change)?;
        } else if entry.file_name() != "LOCK" {
            fs::create_dir_all(to)?;
            fs::write(&target, change(&target, fs::read(entry.path())?))?;
        }
    }
    Ok(())
}

/// Compares line by line, so that a difference can be read.
#[track_caller]
fn assert_text(found: &str, expected: &str) {
    for (found, expected) in found.lines().zip(expected.lines()) {
        assert_eq!(found, expected);
    }
    assert_eq!(found, expected);
}

const SHOWN: &str = ".shown.txt";
const KEPT: &str = ".kept.txt";
/// Names a directory that a new fixture is written to.
const VARIABLE: &str = "MILLSTREAM_WRITE_FIXTURE";
