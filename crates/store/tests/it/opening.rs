//! What opening a directory says when something is wrong with it.

use std::collections::BTreeMap;
use std::fs;
use std::panic;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use millstream_core::conformance::block_on;
use millstream_core::{
    Batch, Container, ContainerName, ContainerSettings, Containers, Effect, Error, ErrorKind,
    ItemId, Operation, PartitionKey, PartitionKeyDefinition,
};
use millstream_store::{Durability, Store, StoreOptions};
use tempfile::TempDir;

/// Opening must fail in this way and say why.
#[track_caller]
fn check_refused(directory: &Path, kind: ErrorKind, sentence: &str) -> Error {
    let Err(error) = open(directory) else { panic!("it opened") };
    check_error(&error, kind, sentence);
    error
}

#[track_caller]
fn check_error(error: &Error, kind: ErrorKind, sentence: &str) {
    let report = error.report();
    assert_eq!((error.kind(), error.effect()), (kind, Effect::None), "{report}");
    assert!(report.starts_with("could not ") && report.contains(sentence), "{report}");
}

#[test]
fn a_second_opening_in_the_same_process_is_refused() {
    let directory = filled();
    let store = open(directory.path()).expect("it opens");
    check_refused(
        directory.path(),
        ErrorKind::Locked,
        "another process has it open; stop that one",
    );
    check_has(&store, 0..3);
    // What a container hands out keeps the store open, so the lock stays too.
    let container = open_container(&store);
    drop(store);
    check_refused(directory.path(), ErrorKind::Locked, "another process has it open");
    drop(container);
    check_has(&open(directory.path()).expect("it was closed"), 0..3);
}

#[test]
fn a_second_opening_in_another_process_is_refused() {
    let directory = filled();
    let store = open(directory.path()).expect("it opens");
    let answer = ask_another_process(directory.path());
    assert!(answer.contains("Locked: could not lock the store in "), "{answer}");
    assert!(answer.contains("another process has it open"), "{answer}");
    drop(store);
    let answer = ask_another_process(directory.path());
    assert!(answer.contains("opened"), "{answer}");
}

/// Not a test of its own: the other process of the test above.
#[test]
fn another_process() {
    let Some(directory) = std::env::var_os(OTHER_PROCESS) else { return };
    match open(Path::new(&directory)) {
        Ok(_) => println!("opened"),
        Err(error) => println!("{:?}: {}", error.kind(), error.report()),
    }
}

#[test]
fn a_newer_major_is_refused_and_nothing_is_changed() {
    let directory = filled();
    let newer = br#"{"major":3,"minor":7,"more":true}"#;
    fs::write(directory.path().join("format.json"), newer).expect("it can be written");
    let before = files(directory.path());
    let reason = "it has format 3.7 and this Millstream reads 1.x to 2.x; use the version that \
                  wrote it";
    check_refused(directory.path(), ErrorKind::Unsupported, reason);
    assert_same(&before, &files(directory.path()));
}

#[test]
fn a_newer_minor_is_opened_and_kept() {
    let directory = filled();
    let path = directory.path().join("format.json");
    let newer = br#"{"major":2,"minor":7,"more":true}"#;
    fs::write(&path, newer).expect("it can be written");
    check_has(&open(directory.path()).expect("it opens"), 0..3);
    assert_eq!(fs::read(&path).expect("it is there"), newer);
}

#[test]
fn a_format_file_of_garbage_is_refused_and_nothing_is_changed() {
    for garbage in ["", "\0\0\0", "{}", "1.0", r#"{"major":"1","minor":0}"#, "{\"major\":1"] {
        let directory = filled();
        fs::write(directory.path().join("format.json"), garbage).expect("it can be written");
        let before = files(directory.path());
        check_refused(directory.path(), ErrorKind::Corrupt, "could not read format.json in ");
        assert_same(&before, &files(directory.path()));
    }
}

#[test]
fn an_interrupted_creation_is_made_anew() {
    let empty = tempfile::tempdir().expect("a directory");
    drop(open(empty.path()).expect("it opens"));
    for leftovers in [&["tables"][..], &["log"], &["tables", "log"]] {
        let directory = tempfile::tempdir().expect("a directory");
        for name in leftovers {
            copy(&empty.path().join(name), &directory.path().join(name));
        }
        fs::write(directory.path().join("unfinished"), b"").expect("it can be written");
        fs::write(directory.path().join("format.json.new"), b"{\"maj").expect("it can be written");
        fs::write(directory.path().join("notes.txt"), b"mine").expect("it can be written");
        let store = open(directory.path()).expect("it is made anew");
        assert_eq!(block_on(store.list_databases()).expect("it is open"), []);
        fill(&store);
        drop(store);
        check_has(&open(directory.path()).expect("it opens"), 0..3);
        assert_eq!(fs::read(directory.path().join("notes.txt")).expect("it is there"), b"mine");
    }
}

#[test]
fn folders_of_others_are_left_alone() {
    let directory = tempfile::tempdir().expect("a directory");
    for (folder, file) in [("log", "log/app.log"), ("tables", "tables/x.csv")] {
        fs::create_dir(directory.path().join(folder)).expect("it is new");
        fs::write(directory.path().join(file), b"mine").expect("it can be written");
        let reason = "that is not ours; choose an empty directory";
        check_refused(directory.path(), ErrorKind::Invalid, reason);
        assert_eq!(fs::read(directory.path().join(file)).expect("it is there"), b"mine");
    }
}

#[test]
fn a_store_that_lost_its_format_file_is_refused_and_nothing_is_changed() {
    let directory = filled();
    let path = directory.path().join("format.json");
    let format = fs::read(&path).expect("it is there");
    fs::remove_file(&path).expect("it is there");
    let before = files(directory.path());
    let reason = "its log holds commits but format.json is missing; restore it from a copy";
    check_refused(directory.path(), ErrorKind::Corrupt, reason);
    assert_same(&before, &files(directory.path()));
    fs::write(&path, format).expect("it can be written");
    check_has(&open(directory.path()).expect("it opens"), 0..3);
}

#[test]
fn a_directory_that_is_none_is_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("file");
    fs::write(&file, b"mine").expect("it can be written");
    check_refused(&file, ErrorKind::Unavailable, "could not open the store in ");
    check_refused(&file.join("below"), ErrorKind::Unavailable, "could not open the store in ");
    assert_eq!(fs::read(&file).expect("it is there"), b"mine");

    fs::create_dir_all(directory.path().join("odd/LOCK")).expect("it can be made");
    check_refused(
        &directory.path().join("odd"),
        ErrorKind::Unavailable,
        "could not lock the store",
    );
}

#[cfg(unix)]
#[test]
fn a_directory_that_is_not_writable_is_refused() {
    use std::os::unix::fs::PermissionsExt;

    let directory = tempfile::tempdir().expect("a directory");
    let set = |mode| fs::set_permissions(directory.path(), fs::Permissions::from_mode(mode));
    set(0o555).expect("it is ours");
    // Some users may write everywhere.
    if fs::write(directory.path().join("probe"), b"").is_err() {
        check_refused(directory.path(), ErrorKind::Unavailable, "could not lock the store in ");
    }
    set(0o755).expect("it is ours");
}

#[test]
fn options_out_of_bounds_are_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let check = |options: StoreOptions, sentence: &str| {
        let error = Store::open_with(directory.path(), options).expect_err("it is out of bounds");
        check_error(&error, ErrorKind::Invalid, sentence);
    };
    let options = StoreOptions::default;
    check(options().write_buffer_bytes(256 * 1024 - 1), "at least 256 KiB");
    check(options().write_buffer_bytes((1 << 30) + 1), "over 1 GiB");
    check(options().waiting_commits_max(0), "at least one commit");
    check(options().range_bytes_max(1024 * 1024 - 1), "at least 1 MiB");
    check(options().durability(Durability::Interval(Duration::ZERO)), "Durability::Always");
    assert_eq!(fs::read_dir(directory.path()).expect("it is there").count(), 0, "nothing was made");
}

#[test]
fn damage_to_a_synced_group_of_the_log_is_noticed() {
    let directory = filled();
    let path = log_file(directory.path());
    let bytes = fs::read(&path).expect("it is there");
    // The commit of the middle item: from the header of its group to the next group.
    let place = find(&bytes, b"\"id\":\"item-1\"");
    let start = bytes[..place].windows(4).rposition(|it| it == b"MSGR").expect("it has a header");
    let length = find(&bytes[start + 4..], b"MSGR") + 4;
    for step in 0..24 {
        let mut damaged = bytes.clone();
        damaged[start + step * length / 24] ^= 0x10;
        fs::write(&path, &damaged).expect("it can be written");
        let before = files(&directory.path().join("log"));
        let reason = "it had been synced and is not what was written; restore the directory";
        check_refused(directory.path(), ErrorKind::Corrupt, reason);
        assert_same(&before, &files(&directory.path().join("log")));
    }
    fs::write(&path, &bytes).expect("it can be written");
    check_has(&open(directory.path()).expect("it is whole again"), 0..3);
}

/// A torn end looks the same, so it cannot be told.
#[test]
fn damage_to_the_last_group_of_the_log_costs_that_group_alone() {
    let directory = filled();
    let path = log_file(directory.path());
    let mut bytes = fs::read(&path).expect("it is there");
    let place = find(&bytes, b"\"id\":\"item-2\"");
    bytes[place] ^= 0x10;
    fs::write(&path, &bytes).expect("it can be written");
    let store = open(directory.path()).expect("it opens");
    check_has(&store, 0..2);
    assert_eq!(read(&open_container(&store), 2).expect("it can be looked for"), None);
}

fn open(directory: &Path) -> millstream_core::Result<Store> {
    let options = StoreOptions::default().write_buffer_bytes(4 << 20).maintenance_interval(None);
    Store::open_with(directory, options)
}

/// A store with three items, each in a group of its own.
fn filled() -> TempDir {
    let directory = tempfile::tempdir().expect("a directory");
    fill(&open(directory.path()).expect("it opens"));
    directory
}

fn fill(store: &Store) {
    create(store);
    for number in 0..3 {
        write(store, number, 0);
    }
}

fn create(store: &Store) {
    block_on(store.create_database("app")).expect("it is new");
    let definition = PartitionKeyDefinition::hash("/id").expect("a path");
    block_on(store.create(&name(), ContainerSettings::new(definition))).expect("it is new");
}

fn write(store: &Store, number: u32, filler_bytes: usize) {
    let batch =
        Batch::new(format!("item-{number}")).with(Operation::create(body(number, filler_bytes)));
    block_on(open_container(store).documents.commit(batch)).expect("it is new");
}

fn body(number: u32, filler_bytes: usize) -> String {
    format!(r#"{{"id":"item-{number}","filler":"{}"}}"#, "x".repeat(filler_bytes))
}

fn read(container: &Container, number: u32) -> millstream_core::Result<Option<String>> {
    let text = format!("item-{number}");
    let id = ItemId::new(&text).expect("an id");
    let item = block_on(container.documents.read(&PartitionKey::from(text.as_str()), &id))?;
    Ok(item.map(|it| String::from_utf8(it.body.to_vec()).expect("it is text")))
}

#[track_caller]
fn check_has(store: &Store, numbers: std::ops::Range<u32>) {
    let container = open_container(store);
    for number in numbers {
        let found = read(&container, number).expect("it can be read");
        assert_eq!(found, Some(body(number, 0)));
    }
}

fn name() -> ContainerName {
    ContainerName::new("app", "data").expect("a name")
}

fn open_container(store: &Store) -> Container {
    block_on(store.open(&name())).expect("it is there")
}

/// Opens the directory in a process of its own and returns what that said.
fn ask_another_process(directory: &Path) -> String {
    let program = std::env::current_exe().expect("it is running");
    let output = Command::new(program)
        .args(["--exact", "opening::another_process", "--nocapture"])
        .env(OTHER_PROCESS, directory)
        .output()
        .expect("it starts");
    assert!(output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The segment of the log that holds the commits.
fn log_file(directory: &Path) -> PathBuf {
    let entries = fs::read_dir(directory.join("log")).expect("it is there");
    let mut paths = entries.map(|it| it.expect("an entry").path());
    let holds = |it: &PathBuf| fs::read(it).expect("it is there").starts_with(b"MSTRLOG1");
    paths.find(holds).expect("one was written to")
}

#[track_caller]
fn find(bytes: &[u8], part: &[u8]) -> usize {
    bytes.windows(part.len()).position(|it| it == part).expect("it is in there")
}

/// All files but the lock, by path.
fn files(directory: &Path) -> BTreeMap<String, Vec<u8>> {
    fn add(directory: &Path, prefix: &str, to: &mut BTreeMap<String, Vec<u8>>) {
        for entry in fs::read_dir(directory).expect("it is there") {
            let entry = entry.expect("an entry");
            let path = format!("{prefix}{}", entry.file_name().to_string_lossy());
            if entry.path().is_dir() {
                add(&entry.path(), &format!("{path}/"), to);
            } else if path != "LOCK" {
                to.insert(path, fs::read(entry.path()).expect("it is there"));
            }
        }
    }
    let mut found = BTreeMap::new();
    add(directory, "", &mut found);
    found
}

fn copy(from: &Path, to: &Path) {
    for (path, bytes) in files(from) {
        let path = to.join(path);
        fs::create_dir_all(path.parent().expect("it is in the store")).expect("it can be made");
        fs::write(path, bytes).expect("it can be written");
    }
}

#[track_caller]
fn assert_same(before: &BTreeMap<String, Vec<u8>>, after: &BTreeMap<String, Vec<u8>>) {
    assert!(before.keys().eq(after.keys()), "{:?} became {:?}", before.keys(), after.keys());
    for (path, bytes) in before {
        assert!(after[path] == *bytes, "{path} was changed");
    }
}

/// Tells the other process which directory to open.
const OTHER_PROCESS: &str = "MILLSTREAM_TEST_OTHER_PROCESS";
