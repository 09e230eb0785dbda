//! Obligation 1: items come back as they were written. Obligation 6: a read sees what was
//! acknowledged.

use bytes::Bytes;

use crate::conformance::Subject;
use crate::conformance::harness::{Scene, body, extended, item_id, must, must_fail, settings};
use crate::{
    Batch, ContainerSettings, ErrorKind, HashKind, Operation, PartitionKey, PartitionKeyComponent,
    PartitionKeyDefinition, ScanScope,
};

/// What goes wrong when a body is parsed and written again.
const ODD_PARTS: &[&str] = &[
    r#","n":1e400"#,
    r#","n":18446744073709551615"#,
    r#","n":0.1"#,
    r#","n":-0.0"#,
    r#","n":1.0"#,
    r#","n":1E+2"#,
    r#","n":123456789012345678901234567890.123456789012345678901234567890"#,
    r#","b":1,"a":2"#,
    r#","a":1,"a":2"#,
    r#","":null"#,
    r#","text":"\u00e4\/\ud83d\ude00\u0000""#,
    r#","text":"ä/😀""#,
    ",\n\t\"spaces\" :  [ 1 , 2 ]\r\n",
    r#","nested":{"a":[[[{}]]],"b":{"c":{"d":[]}}}"#,
];

pub(super) async fn obligation_01_bodies_come_back_byte_for_byte(subject: &mut dyn Subject) {
    let mut scene = Scene::plain(subject).await;
    let mut written = Vec::new();
    for (index, rest) in ODD_PARTS.iter().enumerate() {
        let (key, id) = ("odd", format!("item-{index}"));
        let body = extended(key, &id, rest);
        let item = scene.commit_one(key, Operation::create(body.clone())).await;
        assert_eq!(item.body, body, "the commit returned another body than was written");
        assert_eq!((item.id.as_str(), &item.partition_key), (id.as_str(), &key.into()));
        written.push(item);
    }
    for _ in 0..2 {
        for item in &written {
            let found = scene.existing("odd", item.id.as_str()).await;
            assert_eq!(found, *item, "an item came back other than it was written");
        }
        let mut scanned = scene.scan_all().await;
        scanned.sort_by_key(|it| it.lsn);
        assert_eq!(scanned, written, "a scan returned items other than they were written");
        let fed = scene.changes(crate::StartFrom::Beginning, crate::FeedMode::LatestVersion).await;
        let fed: Vec<_> = fed.into_iter().filter_map(|it| it.current).collect();
        assert_eq!(fed, written, "the feed returned items other than they were written");
        scene = scene.reopened(subject).await;
    }
}

pub(super) async fn obligation_01_ids_may_hold_any_character_but_two(subject: &mut dyn Subject) {
    let scene = Scene::plain(subject).await;
    let long = "x".repeat(1023);
    let ids = [
        " ",
        "a b ",
        "Ä",
        "ä",
        "a\u{308}",
        "日本語",
        "😀",
        "%2F",
        "a?b",
        "a#b",
        "?",
        "\"'`",
        "a.b",
        ".",
        "..",
        "a\tb",
        "a\u{1}b",
        "a\u{0}",
        "a",
        "A",
        "-1",
        "null",
        &long,
    ];
    for id in ids {
        scene.create("unicode", id).await;
    }
    for id in ids {
        let item = scene.existing("unicode", id).await;
        assert_eq!(item.body, body("unicode", id, 0), "id {id:?} led to another item");
    }
    assert_eq!(scene.scan_all().await.len(), ids.len(), "some ids were taken for the same");
    for id in ["", "a/b", "a\\b", &"x".repeat(1024)] {
        let batch = Batch::new("unicode").with(Operation::create(body("unicode", id, 0)));
        scene.refused(batch, ErrorKind::Invalid, Some(0)).await;
    }
}

pub(super) async fn obligation_01_an_id_is_unique_within_its_partition_only(
    subject: &mut dyn Subject,
) {
    let scene = Scene::new(subject, settings().ranges(3)).await;
    let keys: Vec<String> = (0..20).map(|it| format!("key-{it}")).collect();
    for key in &keys {
        scene.create(key, "same").await;
    }
    for key in &keys {
        assert_eq!(scene.existing(key, "same").await.body, body(key, "same", 0));
        let again = Batch::new(key.as_str()).with(Operation::create(body(key, "same", 1)));
        scene.refused(again, ErrorKind::AlreadyExists, Some(0)).await;
    }
    scene.delete(&keys[0], "same").await;
    assert!(!scene.is_there(&keys[0], "same").await, "a deleted item is still there");
    assert!(scene.is_there(&keys[1], "same").await, "deleting an item removed its namesake");
}

pub(super) async fn obligation_01_every_kind_of_partition_key_has_its_own_partition(
    subject: &mut dyn Subject,
) {
    let long = format!(r#""{}""#, "k".repeat(2048));
    let values = [
        "",
        "null",
        "true",
        "false",
        "0",
        "1",
        "-1",
        "0.1",
        "1e300",
        "9007199254740993",
        r#""""#,
        r#""0""#,
        r#""null""#,
        r#""a""#,
        r#""A""#,
        r#""ä😀""#,
        &long,
    ];
    for (name, kind) in [("v1", HashKind::V1), ("v2", HashKind::V2)] {
        let definition = must(PartitionKeyDefinition::new(["/a/b"], kind));
        let settings = ContainerSettings::new(definition.clone()).ranges(2);
        let scene = Scene::named(subject, name, settings).await;
        let mut keys = Vec::new();
        for value in values {
            let body = match value {
                "" => r#"{"id":"same"}"#.to_owned(),
                value => format!(r#"{{"id":"same","a":{{"b":{value}}}}}"#),
            };
            let key = must(definition.extract(body.as_bytes()));
            assert!(!keys.iter().any(|(other, _)| *other == key), "{key} stands for two values");
            let batch = Batch::new(key.clone()).with(Operation::create(body.clone()));
            scene.commit(batch).await;
            keys.push((key, Bytes::from(body)));
        }
        for (key, body) in &keys {
            let found = must(scene.container.documents.read(key, &item_id("same")).await);
            let found = found.unwrap_or_else(|| panic!("the item of {key} is not there"));
            assert_eq!((&found.body, &found.partition_key), (body, key));
            let partition =
                scene.scan(&ScanScope::Partition(key.clone()), Default::default()).await;
            assert_eq!(partition, [found], "the partition {key} does not hold its one item");
        }
        assert_eq!(scene.scan_all().await.len(), values.len());
    }
}

pub(super) async fn obligation_01_an_object_at_the_path_of_the_key_counts_as_no_value(
    subject: &mut dyn Subject,
) {
    let scene = Scene::plain(subject).await;
    let none = PartitionKey::none();
    let bodies = [
        r#"{"id":"missing"}"#,
        r#"{"id":"object","pk":{"a":"k"}}"#,
        r#"{"id":"array","pk":["k"]}"#,
        r#"{"id":"empty","pk":{}}"#,
    ];
    for body in bodies {
        scene.commit(Batch::new(none.clone()).with(Operation::create(body))).await;
    }
    let partition = scene.scan(&ScanScope::Partition(none), Default::default()).await;
    let mut found: Vec<&[u8]> = partition.iter().map(|it| &*it.body).collect();
    let mut expected = bodies.map(str::as_bytes);
    found.sort_unstable();
    expected.sort_unstable();
    assert_eq!(found, expected, "they do not lie where items without a partition key lie");
}

pub(super) async fn obligation_01_a_hierarchical_key_has_one_to_three_levels(
    subject: &mut dyn Subject,
) {
    for levels in 1..=3 {
        let paths = &["/tenant", "/user", "/session"][..levels];
        let definition = must(PartitionKeyDefinition::multi_hash(paths.iter().copied()));
        let settings = ContainerSettings::new(definition.clone()).ranges(2);
        let scene = Scene::named(subject, &format!("levels-{levels}"), settings).await;
        for tenant in ["a", "b"] {
            for user in ["1", "2"] {
                let body = format!(r#"{{"id":"{user}","tenant":"{tenant}","user":"{user}"}}"#);
                let key = must(definition.extract(body.as_bytes()));
                assert_eq!(key.components().len(), levels);
                scene.commit(Batch::new(key.clone()).with(Operation::create(body.clone()))).await;
                let found = must(scene.container.documents.read(&key, &item_id(user)).await);
                assert_eq!(found.map(|it| it.body), Some(Bytes::from(body)), "{key}");
                let scope = ScanScope::Partition(key);
                let partition = scene.scan(&scope, Default::default()).await;
                assert!(partition.iter().any(|it| it.id.as_str() == user), "{partition:?}");
            }
        }
        assert_eq!(scene.scan_all().await.len(), 4);
        let components = if levels == 3 { 1 } else { levels + 1 };
        let wrong = (0..components).map(|_| PartitionKeyComponent::from("a"));
        let wrong = must(PartitionKey::of(wrong));
        let refused = scene.container.documents.read(&wrong, &item_id("1")).await;
        must_fail(refused, ErrorKind::Invalid, "read with a key of another number of levels");
    }
}

pub(super) async fn obligation_01_what_is_no_item_is_refused(subject: &mut dyn Subject) {
    let scene = Scene::new(subject, settings()).await;
    let bodies: &[&[u8]] = &[
        b"",
        b"null",
        b"[]",
        b"\"id\"",
        b"{",
        br#"{"id":"1","pk":"k"}}"#,
        br#"{"id":"1","pk":"k",}"#,
        br#"{"id":"1","pk":"k","a":01}"#,
        br#"{"id":"1","pk":"k","a":NaN}"#,
        br#"{"pk":"k"}"#,
        br#"{"id":1,"pk":"k"}"#,
        br#"{"id":null,"pk":"k"}"#,
        br#"{"id":"1"}"#,
        br#"{"id":"1","pk":"other"}"#,
        br#"{"id":"1","pk":["k"]}"#,
        br#"{"id":"1","pk":"k","ttl":0}"#,
        br#"{"id":"1","pk":"k","ttl":-2}"#,
        br#"{"id":"1","pk":"k","ttl":1.5}"#,
        br#"{"id":"1","pk":"k","ttl":"1"}"#,
        b"{\"id\":\"1\",\"pk\":\"k\",\"a\":\"\xff\"}",
    ];
    for body in bodies {
        for operation in [
            Operation::create(Bytes::from_static(body)),
            Operation::upsert(Bytes::from_static(body)),
            Operation::replace(item_id("1"), Bytes::from_static(body)),
        ] {
            let batch = Batch::new("k").with(operation);
            scene.refused(batch, ErrorKind::Invalid, Some(0)).await;
        }
    }
    assert_eq!(scene.scan_all().await, [], "something was stored that is no item");
}

pub(super) async fn obligation_06_a_read_sees_what_was_acknowledged(subject: &mut dyn Subject) {
    let scene = Scene::new(subject, settings().ranges(2)).await;
    let other = must(scene.store.open(&scene.name).await);
    for number in 0..50 {
        let key = format!("key-{}", number % 7);
        let written = scene.upsert(&key, "item", number).await;
        for container in [&scene.container, &other] {
            let id = item_id("item");
            let found =
                must(container.documents.read(&PartitionKey::from(key.as_str()), &id).await);
            assert_eq!(found.as_ref(), Some(&written), "a read missed an acknowledged commit");
        }
        let partition = ScanScope::Partition(key.as_str().into());
        assert_eq!(scene.scan(&partition, Default::default()).await, [written]);
    }
    for number in 0..7 {
        let key = format!("key-{number}");
        scene.delete(&key, "item").await;
        assert!(!scene.is_there(&key, "item").await, "a read missed an acknowledged delete");
    }
    assert_eq!(scene.scan_all().await, [], "a scan missed acknowledged deletes");
}
