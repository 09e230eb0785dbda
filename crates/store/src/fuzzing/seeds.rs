//! Valid input to start from. What a store writes is taken from a store that has done a bit of
//! everything.

use std::sync::LazyLock;
use std::time::Duration;

use futures_lite::future::block_on;
use millstream_core::{
    Batch, ContainerName, ContainerSettings, Containers, FeedMode, HashKind, ItemId, KeyRange,
    Operation, PageSize, PartitionKey, PartitionKeyDefinition, Patch, PatchOperation, ScanScope,
    StartFrom, TimeToLive,
};

use crate::engine::decode_entries;
use crate::fuzzing::disk::{MemoryDisk, Scratch};
use crate::fuzzing::{log, opening};
use crate::store::Store;
use crate::tables::Table;

/// The files of the log of a store that has done a bit of everything.
static LOG: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| {
    let (directory, disk) = (Scratch::new(), MemoryDisk::default());
    let store = opening::open(&directory, &disk).expect("it is empty");
    fill(&store);
    drop(store);
    disk.contents()
});

/// Does a bit of everything.
pub(super) fn fill(store: &Store) {
    let name = container();
    block_on(store.create_database(name.database())).expect("it is new");
    let mut settings = settings("/key");
    settings.all_versions_retention = Duration::from_secs(3600);
    settings.default_ttl = Some(TimeToLive::Never);
    block_on(store.create(&name, settings.clone())).expect("it is new");
    let container = block_on(store.open(&name)).expect("it was just made");
    let commit = |batch| block_on(container.documents.commit(batch)).expect("it is fine");
    for key in ["a", "b", "c"] {
        commit(
            Batch::new(key)
                .with(Operation::create(format!(r#"{{"id":"1","key":"{key}","n":1e400}}"#)))
                .with(Operation::create(format!(
                    r#"{{"id":"2","key":"{key}","ttl":60,"type":"domainEvent"}}"#
                ))),
        );
    }
    let id = ItemId::new("1").expect("an id");
    let more = PatchOperation::set("/more", "text").expect("a path");
    commit(
        Batch::new("a").with(Operation::patch(id.clone(), Patch::new(vec![more]).expect("one"))),
    );
    commit(Batch::new("b").with(Operation::delete(id)));
    let keys = KeyRange::all();
    let start = block_on(container.feed.start(&keys, StartFrom::Now, FeedMode::LatestVersion));
    let guards = container.guards.as_ref().expect("the store has guards");
    block_on(guards.hold("relay", &keys, &start.expect("a start"))).expect("it is new");
    let ranges = block_on(container.feed.ranges()).expect("it is open");
    block_on(store.split(&name, ranges[0].id, None)).expect("it has a middle");
    commit(Batch::new("a").with(Operation::upsert(r#"{"id":"3","key":"a"}"#)));
    settings.default_ttl = Some(TimeToLive::Seconds(600));
    block_on(store.replace(&name, settings, None)).expect("it is there");

    let levels = ContainerName::new("fuzz", "levels").expect("a name");
    let definition = PartitionKeyDefinition::multi_hash(["/a", "/b"]).expect("two paths");
    block_on(store.create(&levels, ContainerSettings::new(definition))).expect("it is new");
    let dropped = ContainerName::new("fuzz", "dropped").expect("a name");
    block_on(store.create(&dropped, self::settings("/id"))).expect("it is new");
    block_on(store.delete(&dropped)).expect("it is there");
}

/// The container that [`fill`] puts items into.
pub(super) fn container() -> ContainerName {
    ContainerName::new("fuzz", "data").expect("a name")
}

fn settings(path: &str) -> ContainerSettings {
    ContainerSettings::new(PartitionKeyDefinition::hash(path).expect("a path"))
}

pub(super) fn effective_keys() -> Vec<Vec<u8>> {
    texts(["", "FF", "1fff", "3A5381E1114EB8D3FCC90795045B49B7", "05C1CF33970FF80800"])
}

pub(super) fn key_ranges() -> Vec<Vec<u8>> {
    let mut ranges = KeyRange::divide(3).expect("three is few");
    ranges.push(KeyRange::all());
    let written = ranges.iter().flat_map(|it| [it.to_json(), it.to_base64()]);
    let mut texts: Vec<_> = written.map(String::into_bytes).collect();
    texts.push(
        br#"{"Range":{"min":"05","max":"05","isMinInclusive":true,"isMaxInclusive":true}}"#
            .to_vec(),
    );
    texts
}

pub(super) fn cursors() -> Vec<Vec<u8>> {
    texts(["1.7.l.42", "1.4294967297.a.0", "1.4294967297.l.3.1700000000000"])
}

pub(super) fn key_texts() -> Vec<Vec<u8>> {
    texts([
        r#"["a"]"#,
        "[null]",
        "[{}]",
        "[true, false, -0.0]",
        r#"[1e300,"\u00e4\ud83d\ude00","b"]"#,
        "[0.1]",
    ])
}

pub(super) fn key_bytes() -> Vec<Vec<u8>> {
    let keys = key_texts().into_iter().map(|it| String::from_utf8(it).expect("it is text"));
    keys.map(|it| {
        let mut bytes = Vec::new();
        it.parse::<PartitionKey>().expect("it is a key").encode(&mut bytes);
        bytes
    })
    .collect()
}

pub(super) fn definitions() -> Vec<Vec<u8>> {
    let definitions = [
        PartitionKeyDefinition::hash("/partitionKey"),
        PartitionKeyDefinition::new(["/a/b"], HashKind::V1),
        PartitionKeyDefinition::multi_hash(["/tenant", "/\"a/b\"/c", "/n"]),
    ];
    let body = br#"{"partitionKey":"x","a":{"b":17},"tenant":"t","a/b":{"c":null},"n":1.5}"#;
    let joined = definitions.into_iter().map(|it| {
        let json = serde_json::to_vec(&it.expect("a path")).expect("it has string keys only");
        [&json[..], &[0], body].concat()
    });
    joined.collect()
}

pub(super) fn bodies() -> Vec<Vec<u8>> {
    texts([
        r#"{"id":"1"}"#,
        r#" { "id" : "\u0031\ud83d\ude00" , "ttl" : -1 , "type" : "domainEvent" } "#,
        r#"{"id":"a","ttl":60,"n":[1e400,-0.5E-7,18446744073709551615,{"id":"b","x":[[],{}]}]}"#,
        r#"{"\u0069d":"1","id":"2","type":null,"t":"\"\\\/\b\f\n\r\t"}"#,
    ])
}

pub(super) fn patches() -> Vec<Vec<u8>> {
    let body = r#"{"id":"1","n":5,"a":[1,2,{"b":3}],"o":{"p":"q"},"r":1e400}"#;
    let patches = [
        r#"[{"op":"set","path":"/x","value":{"y":[1]}}]"#,
        r#"{"operations":[{"op":"add","path":"/a/-","value":1},{"op":"remove","path":"/o/p"}]}"#,
        r#"{"condition":"from c where c.n = 5","operations":[{"op":"incr","path":"/n","value":1.5}]}"#,
        r#"[{"op":"move","from":"/a/2","path":"/o/b"},{"op":"replace","path":"/a/0","value":null}]"#,
    ];
    patches.into_iter().map(|it| format!("{it}\0{body}").into_bytes()).collect()
}

pub(super) fn formats() -> Vec<Vec<u8>> {
    texts([r#"{"major":1,"minor":0}"#, r#"{"major":2,"minor":0,"more":[]}"#])
}

/// The payloads of groups.
pub(super) fn groups() -> Vec<Vec<u8>> {
    let payloads: Vec<_> = LOG.iter().flat_map(|file| log::payloads(file)).collect();
    // All of them in one say what the whole store holds.
    let whole = payloads.concat();
    payloads.into_iter().chain([whole]).collect()
}

/// The values of all tables.
pub(super) fn records() -> Vec<Vec<u8>> {
    let entries = groups().into_iter().flat_map(|it| decode_entries(&it).expect("it is ours"));
    let is_record = |it: &Table| matches!(it, Table::Items | Table::Feed | Table::History);
    let values = entries.filter(|it| is_record(&it.table) || it.key.first() == Some(&b'r'));
    values.filter_map(|it| it.value.map(|it| it.to_vec())).collect()
}

/// The keys of all tables.
pub(super) fn table_keys() -> Vec<Vec<u8>> {
    let entries = groups().into_iter().flat_map(|it| decode_entries(&it).expect("it is ours"));
    entries.map(|it| it.key.to_vec()).chain([vec![0], vec![1]]).collect()
}

/// Logs in the form of [`log::segments`].
pub(super) fn logs() -> Vec<Vec<u8>> {
    let files: Vec<_> = LOG.iter().map(|it| &it[..log::end_of(it).max(64)]).collect();
    let mut logs = Vec::new();
    for (applied, sealing) in [(0, 0), (0, 1), (3, 1)] {
        let mut bytes = vec![applied, sealing];
        for file in &files {
            let length = u16::try_from(file.len()).expect("the store wrote little");
            bytes.extend_from_slice(&length.to_le_bytes());
            bytes.extend_from_slice(file);
        }
        logs.push(bytes);
    }
    // Two small ones as well, one going on where the other ends.
    logs.push([&[0, 1][..], &[91, 0], &log::segment(b"one")].concat());
    logs.push([&[0, 1][..], &[91, 0], &log::segment(b"one"), &[91, 0], &second()].concat());
    logs
}

pub(super) fn continuations() -> Vec<Vec<u8>> {
    let (directory, disk) = (Scratch::new(), MemoryDisk::default());
    let store = opening::open(&directory, &disk).expect("it is empty");
    fill(&store);
    let container = block_on(store.open(&container())).expect("it was just made");
    let mut texts = cursors();
    for scope in [ScanScope::Keys(KeyRange::all()), ScanScope::Partition("a".into())] {
        let page = block_on(container.documents.scan(&scope, None, PageSize::items(1)));
        let after = page.expect("a page").continuation.expect("there is more");
        texts.push(after.as_str().as_bytes().to_vec());
    }
    texts
}

/// A segment of the next incarnation with the group after the first.
fn second() -> Vec<u8> {
    let mut file = log::segment(b"two");
    for at in [8, 16, 48, 56, 64] {
        file[at] = 2;
    }
    file[64] = 1;
    file
}

fn texts<const COUNT: usize>(texts: [&str; COUNT]) -> Vec<Vec<u8>> {
    texts.into_iter().map(|it| it.as_bytes().to_vec()).collect()
}
