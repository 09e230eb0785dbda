//! The change feed in both modes.

use std::sync::Arc;
use std::time::Duration;

use http::Method;
use millstream_core::memory::Memory;
use millstream_core::{
    Batch, Clock, ContainerName, ContainerSettings, Containers, ManualClock, Operation,
    PartitionKeyDefinition, SystemClock, Timestamp,
};
use millstream_gateway::GatewayOptions;
use millstream_store::{Store, StoreOptions};
use serde_json::{Value, json};

use crate::client::{Answered, Running, http_date, on_both, run};

const ITEMS: &str = "/dbs/d/colls/c/docs";
const LATEST: (&str, &str) = ("a-im", "Incremental feed");
const VERSIONS: (&str, &str) = ("a-im", "Full-Fidelity Feed");
const RANGE: &str = "x-ms-documentdb-partitionkeyrangeid";
const KEY: &str = "x-ms-documentdb-partitionkey";
const ENVELOPE: (&str, &str) = ("x-ms-cosmos-changefeed-wire-format-version", "2021-09-15");

async fn feed(gateway: &Running, headers: &[(&str, &str)]) -> Answered {
    gateway.ask(Method::GET, ITEMS, headers, "").await
}

fn ids(answered: &Answered) -> Vec<String> {
    let page = answered.json();
    let documents = page["Documents"].as_array().unwrap();
    assert_eq!(answered.header("x-ms-item-count"), documents.len().to_string());
    documents.iter().map(|it| it["id"].as_str().unwrap().to_owned()).collect()
}

async fn write(gateway: &Running, key: &str, id: &str) {
    gateway.item(key, &format!(r#"{{"id":"{id}","pk":"{key}"}}"#)).await.expect(201);
}

#[test]
fn the_feed_goes_on_from_the_etag_of_a_page() {
    on_both(|gateway| async move {
        gateway.with_container().await;
        let empty = feed(&gateway, &[LATEST, (RANGE, "0")]).await.expect(304);
        assert_eq!(empty.header("x-ms-item-count"), "0");
        assert!(empty.body.is_empty());
        for id in ["1", "2", "3"] {
            write(&gateway, "a", id).await;
        }
        let etag = empty.header("etag").to_owned();
        assert!(etag.trim_matches('"').parse::<u64>().is_ok(), "{etag}");
        let two = [LATEST, (RANGE, "0"), ("if-none-match", &etag), ("x-ms-max-item-count", "2")];
        let page = feed(&gateway, &two).await.expect(200);
        assert_eq!(ids(&page), ["1", "2"]);
        let lsn = page.json()["Documents"][1]["_lsn"].as_u64().unwrap();
        assert_eq!(page.header("etag"), format!("\"{lsn}\""));
        assert!(page.header("x-ms-session-token").starts_with("0:-1#"));
        let next = page.header("etag").to_owned();
        let rest = feed(&gateway, &[LATEST, (RANGE, "0"), ("if-none-match", &next)]).await;
        assert_eq!(ids(&rest.expect(200)), ["3"]);
        let end = format!("\"{}\"", lsn + 1);
        let end = feed(&gateway, &[LATEST, (RANGE, "0"), ("if-none-match", &end)]).await;
        end.expect(304);
        let garbage = feed(&gateway, &[LATEST, (RANGE, "0"), ("if-none-match", "\"x\"")]).await;
        garbage.expect(400);
    });
}

#[test]
fn an_etag_ahead_of_its_range_is_refused_and_spoils_nothing() {
    on_both(|gateway| async move {
        gateway.with_container().await;
        write(&gateway, "a", "1").await;
        for ahead in ["\"2\"", "\"99999\"", "\"18446744073709551615\""] {
            let headers = [LATEST, (RANGE, "0"), ("if-none-match", ahead)];
            let refused = feed(&gateway, &headers).await.expect(400).json();
            assert!(
                refused["message"].as_str().unwrap().contains("ahead of its range"),
                "{refused}"
            );
        }
        let written = gateway.item("a", r#"{"id":"2","pk":"a"}"#).await.expect(201);
        assert_eq!(written.header("x-ms-session-token"), "0:-1#2");
        let last = [LATEST, (RANGE, "0"), ("if-none-match", "\"2\"")];
        feed(&gateway, &last).await.expect(304);
    });
}

#[test]
fn a_reader_may_start_now_or_at_a_time() {
    on_both(|gateway| async move {
        gateway.with_container().await;
        write(&gateway, "a", "1").await;
        let now = feed(&gateway, &[LATEST, (RANGE, "0"), ("if-none-match", "*")]).await.expect(304);
        write(&gateway, "a", "2").await;
        let etag = now.header("etag").to_owned();
        let page = feed(&gateway, &[LATEST, (RANGE, "0"), ("if-none-match", &etag)]).await;
        assert_eq!(ids(&page.expect(200)), ["2"]);
        let past = [LATEST, ("if-modified-since", "Sat, 01 Jan 2000 00:00:00 GMT")];
        assert_eq!(ids(&feed(&gateway, &past).await.expect(200)), ["1", "2"]);
        let of_go = [LATEST, ("if-modified-since", "Sat, 01 Jan 2000 00:00:00 UTC")];
        assert_eq!(ids(&feed(&gateway, &of_go).await.expect(200)), ["1", "2"]);
        let future = [LATEST, ("if-modified-since", "Fri, 01 Jan 2100 00:00:00 GMT")];
        let nothing = feed(&gateway, &future).await.expect(304);
        // Clients send both headers again, and both count.
        let etag = nothing.header("etag").to_owned();
        write(&gateway, "a", "3").await;
        let both = [LATEST, future[1], ("if-none-match", etag.as_str())];
        feed(&gateway, &both).await.expect(304);
        let garbage = [LATEST, ("if-modified-since", "yesterday")];
        feed(&gateway, &garbage).await.expect(400);
        feed(&gateway, &[("a-im", "Nonsense")]).await.expect(400);
    });
}

/// What a range was merged from has numbers out of order: `new-b` has a lower one than most of what
/// is older. Returns the range, and the time after which the new items came.
async fn merge_out_of_order(backend: &dyn Containers, clock: &ManualClock) -> (String, Timestamp) {
    let name = ContainerName::new("d", "c").unwrap();
    let settings = ContainerSettings::new(PartitionKeyDefinition::hash("/pk").unwrap());
    backend.create_database("d").await.unwrap();
    backend.create(&name, settings.ranges(2)).await.unwrap();
    let container = backend.open(&name).await.unwrap();
    let write = async |key: &str, id: &str| {
        let body = format!(r#"{{"id":"{id}","pk":"{key}"}}"#);
        container.documents.commit(Batch::new(key).with(Operation::create(body))).await.unwrap();
    };
    for id in ["old-1", "old-2", "old-3"] {
        write("a", id).await;
    }
    clock.advance(Duration::from_secs(10));
    write("b", "new-b").await;
    write("a", "new-a").await;
    let ranges = container.feed.ranges().await.unwrap();
    let merged = backend.merge(&name, ranges[0].id, ranges[1].id).await.unwrap();
    (merged.id.to_string(), clock.now())
}

async fn on_merged(backend: Arc<dyn Containers>, clock: Arc<ManualClock>) {
    let (range, since) = merge_out_of_order(&*backend, &clock).await;
    let gateway = Running::on_with(backend, clock.clone(), GatewayOptions::default()).await;
    let date = http_date(since);
    let since_header = ("if-modified-since", date.as_str());
    let agent = ("user-agent", "cosmos-netstandard-sdk/3.51.0|1|X64|Linux|.NET 8|N|");
    let asked = [LATEST, (RANGE, range.as_str()), ("x-ms-max-item-count", "1")];
    let ask = async |more: &[(&str, &str)]| feed(&gateway, &[&asked, more].concat()).await;

    // With its second request the SDK for .NET says nothing of the time.
    let first = ask(&[agent, since_header]).await.expect(200);
    assert_eq!(ids(&first), ["new-b"]);
    let second = ask(&[agent, ("if-none-match", first.header("etag"))]).await.expect(200);
    assert_eq!(ids(&second), ["new-a"]);
    assert_eq!(first.header("etag"), format!("\"1.{}\"", since.as_millis()));
    // Nothing earlier can follow.
    assert_eq!(second.header("etag"), "\"4\"");
    ask(&[agent, ("if-none-match", second.header("etag"))]).await.expect(304);

    // Others say it again, and some compute with the number.
    let first = ask(&[since_header]).await.expect(200);
    assert_eq!((ids(&first), first.header("etag")), (vec!["new-b".to_owned()], "\"1\""));
    let etag = ("if-none-match", first.header("etag"));
    assert_eq!(ids(&ask(&[since_header, etag]).await.expect(200)), ["new-a"]);
    for garbage in ["\"1.\"", "\"1.x\"", "\"1.2.3\"", "\".1\""] {
        ask(&[("if-none-match", garbage)]).await.expect(400);
    }

    // A time to come is kept until it has come.
    let later = http_date(since.plus(Duration::from_secs(60)));
    let ahead = ask(&[agent, ("if-modified-since", &later)]).await.expect(304);
    gateway.item("a", r#"{"id":"too-early","pk":"a"}"#).await.expect(201);
    let ahead = ask(&[agent, ("if-none-match", ahead.header("etag"))]).await.expect(304);
    clock.advance(Duration::from_secs(60));
    gateway.item("a", r#"{"id":"late","pk":"a"}"#).await.expect(201);
    let late = ask(&[agent, ("if-none-match", ahead.header("etag"))]).await.expect(200);
    assert_eq!(ids(&late), ["late"]);
}

#[test]
fn who_names_the_time_once_gets_nothing_earlier_after_a_merge() {
    let now = SystemClock::default().now().as_millis() / 1000 * 1000;
    let clock = || Arc::new(ManualClock::starting_at(Timestamp::from_millis(now)));
    let in_memory = clock();
    run(on_merged(Arc::new(Memory::new(in_memory.clone())), in_memory));
    let stored = clock();
    let directory = tempfile::tempdir().unwrap();
    let options = StoreOptions::default().clock(stored.clone());
    let store = Store::open_with(directory.path(), options).unwrap();
    run(on_merged(Arc::new(store), stored));
}

#[test]
fn a_time_before_1970_is_the_beginning() {
    on_both(|gateway| async move {
        gateway.with_container().await;
        write(&gateway, "a", "1").await;
        for time in [
            "Mon, 01 Jan 0001 00:00:00 GMT",
            // As Python has it.
            "Mon, 01 Jan 1 00:00:00 GMT",
            "Mon, 01 Jan 0001 00:00:00 UTC",
            "Mon, 01 Jan 1601 00:00:00 GMT",
            "Wed, 31 Dec 1969 00:00:00 GMT",
            "Wed, 31 Dec 1969 23:59:59 GMT",
            "Thu, 01 Jan 1970 00:00:00 GMT",
        ] {
            let since = ("if-modified-since", time);
            let page = feed(&gateway, &[LATEST, since]).await.expect(200);
            assert_eq!(ids(&page), ["1"], "{time}");
            let etag = page.header("etag").to_owned();
            feed(&gateway, &[LATEST, since, ("if-none-match", &etag)]).await.expect(304);
        }
        let garbage = [LATEST, ("if-modified-since", "Mon, 32 Jan 0001 00:00:00 GMT")];
        feed(&gateway, &garbage).await.expect(400);
    });
}

#[test]
fn the_feed_of_one_key_has_its_items_only() {
    on_both(|gateway| async move {
        gateway.with_container().await;
        write(&gateway, "a", "1").await;
        write(&gateway, "b", "2").await;
        write(&gateway, "a", "3").await;
        let page = feed(&gateway, &[LATEST, (KEY, r#"["a"]"#)]).await.expect(200);
        assert_eq!(ids(&page), ["1", "3"]);
        let etag = page.header("etag").to_owned();
        write(&gateway, "b", "4").await;
        let end = feed(&gateway, &[LATEST, (KEY, r#"["a"]"#), ("if-none-match", &etag)]).await;
        let end = end.expect(304);
        // What was passed over is not looked at again.
        assert_ne!(end.header("etag"), etag);
    });
}

#[test]
fn a_query_over_the_feed_is_refused() {
    on_both(|gateway| async move {
        gateway.with_container().await;
        let headers = [
            ("a-im", "Incremental Feed"),
            ("x-ms-documentdb-isquery", "True"),
            ("content-type", "application/query+json"),
            ("x-ms-documentdb-query-enablecrosspartition", "True"),
        ];
        let query = r#"{"query":"SELECT * FROM c","parameters":[]}"#;
        let path = "/dbs/d/colls/c/docs";
        let refused = gateway.ask(Method::POST, path, &headers, query).await.expect(400);
        let message = refused.json()["message"].as_str().unwrap().to_owned();
        assert!(message.contains("change feed"), "{message}");
        gateway.ask(Method::POST, path, &headers[1..], query).await.expect(200);
        // Builds of the SDK for .NET had this with ordinary queries; it names no feed.
        let mut ordinary = headers;
        ordinary[0].1 = "True";
        gateway.ask(Method::POST, path, &ordinary, query).await.expect(200);
    });
}

#[test]
fn bounds_narrow_a_range() {
    on_both(|gateway| async move {
        gateway.with_container().await;
        // The hash of "a" begins with 3A, that of "b" with 19.
        write(&gateway, "a", "1").await;
        write(&gateway, "b", "2").await;
        let kind = ("x-ms-read-key-type", "EffectivePartitionKeyRange");
        let low = [LATEST, (RANGE, "0"), ("x-ms-start-epk", ""), ("x-ms-end-epk", "20"), kind];
        assert_eq!(ids(&feed(&gateway, &low).await.expect(200)), ["2"]);
        let high = [LATEST, (RANGE, "0"), ("x-ms-start-epk", "20"), ("x-ms-end-epk", "FF"), kind];
        assert_eq!(ids(&feed(&gateway, &high).await.expect(200)), ["1"]);
        feed(&gateway, &low[..4]).await.expect(400);
    });
}

#[test]
fn changes_can_come_in_envelopes() {
    on_both(|gateway| async move {
        gateway.with_container().await;
        write(&gateway, "a", "1").await;
        let page = feed(&gateway, &[LATEST, (RANGE, "0"), ENVELOPE]).await.expect(200).json();
        let change = &page["Documents"][0];
        assert_eq!(change["current"]["id"], "1");
        assert_eq!(change["metadata"]["lsn"], change["current"]["_lsn"]);
        assert!(change["metadata"]["crts"].as_u64().is_some());
    });
}

#[test]
fn all_versions_and_deletes_are_shown_where_they_are_kept() {
    on_both(|gateway| async move {
        gateway.post("/dbs", r#"{"id":"d"}"#).await.expect(201);
        let body = r#"{"id":"c","partitionKey":{"paths":["/pk"],"kind":"Hash","version":2},
            "defaultTtl":-1,"changeFeedPolicy":{"retentionDuration":10}}"#;
        gateway.post("/dbs/d/colls", body).await.expect(201);
        let start = [VERSIONS, ENVELOPE, (RANGE, "0"), ("if-none-match", "*")];
        let start = feed(&gateway, &start).await.expect(304).header("etag").to_owned();
        write(&gateway, "a", "1").await;
        let key = [(KEY, r#"["a"]"#)];
        let path = format!("{ITEMS}/1");
        let two = r#"{"id":"1","pk":"a","v":2}"#;
        gateway.ask(Method::PUT, &path, &key, two).await.expect(200);
        gateway.ask(Method::DELETE, &path, &key, "").await.expect(204);
        let after = [VERSIONS, ENVELOPE, (RANGE, "0"), ("if-none-match", start.as_str())];
        let page = feed(&gateway, &after).await.expect(200).json();
        let kinds: Vec<&Value> = page["Documents"]
            .as_array()
            .unwrap()
            .iter()
            .map(|it| &it["metadata"]["operationType"])
            .collect();
        assert_eq!(kinds, ["create", "replace", "delete"]);
        let deleted = &page["Documents"][2];
        assert_eq!(deleted["current"], json!({}));
        assert_eq!(deleted["previous"]["v"], 2);
        assert_eq!(deleted["metadata"]["id"], "1");
        assert_eq!(deleted["metadata"]["partitionKey"], json!({"pk": "a"}));
        let replaced = &page["Documents"][1];
        assert_eq!(
            replaced["metadata"]["previousImageLSN"],
            page["Documents"][0]["metadata"]["lsn"]
        );
        assert!(replaced.get("previous").is_none(), "{replaced}");
        feed(&gateway, &[VERSIONS, ENVELOPE, (RANGE, "0")]).await.expect(400);
    });
}

#[test]
fn an_expired_item_is_a_delete_that_says_so() {
    on_both(|gateway| async move {
        gateway.post("/dbs", r#"{"id":"d"}"#).await.expect(201);
        let body = r#"{"id":"c","partitionKey":{"paths":["/pk"],"kind":"Hash","version":2},
            "defaultTtl":-1,"changeFeedPolicy":{"retentionDuration":10}}"#;
        gateway.post("/dbs/d/colls", body).await.expect(201);
        let start = [VERSIONS, ENVELOPE, (RANGE, "0"), ("if-none-match", "*")];
        let mut after = feed(&gateway, &start).await.expect(304).header("etag").to_owned();
        gateway.item("a", r#"{"id":"1","pk":"a","ttl":1}"#).await.expect(201);
        for _ in 0..60 {
            let headers = [VERSIONS, ENVELOPE, (RANGE, "0"), ("if-none-match", after.as_str())];
            let page = feed(&gateway, &headers).await;
            if page.status == 200 {
                let documents = page.json()["Documents"].clone();
                let mut documents = documents.as_array().unwrap().iter();
                let delete = documents.find(|it| it["metadata"]["operationType"] == "delete");
                if let Some(delete) = delete {
                    assert_eq!(delete["metadata"]["timeToLiveExpired"], true);
                    return;
                }
            }
            after = page.header("etag").to_owned();
            tokio::time::sleep(std::time::Duration::from_millis(250)).await;
        }
        panic!("the expiry never appeared in the feed");
    });
}

#[test]
fn a_container_that_keeps_no_versions_says_so() {
    on_both(|gateway| async move {
        gateway.with_container().await;
        let headers = [VERSIONS, ENVELOPE, (RANGE, "0"), ("if-none-match", "*")];
        let refused = feed(&gateway, &headers).await.expect(400).json();
        let message = refused["message"].as_str().unwrap();
        assert!(message.contains("All Versions and Deletes"), "{message}");
        assert!(message.contains("must be enabled"), "{message}");
    });
}

#[test]
fn after_a_split_the_parent_is_gone_and_its_position_works_on_the_children() {
    on_both(|gateway| async move {
        gateway.with_container().await;
        for (id, key) in ["a", "b", "c", "d"].into_iter().enumerate() {
            write(&gateway, key, &id.to_string()).await;
        }
        let page = [LATEST, (RANGE, "0"), ("x-ms-max-item-count", "2")];
        let page = feed(&gateway, &page).await.expect(200);
        assert_eq!(ids(&page), ["0", "1"]);
        let etag = page.header("etag").to_owned();
        gateway.post("/databases/d/containers/c/partitions/0/split", "").await.expect(200);
        let gone = feed(&gateway, &[LATEST, (RANGE, "0"), ("if-none-match", &etag)]).await;
        assert_eq!(gone.expect(410).header("x-ms-substatus"), "1002");
        write(&gateway, "e", "4").await;
        let mut rest = Vec::new();
        let ranges = gateway.get("/dbs/d/colls/c/pkranges").await.expect(200).json();
        for range in ranges["PartitionKeyRanges"].as_array().unwrap() {
            assert_eq!(range["parents"], json!(["0"]));
            let id = range["id"].as_str().unwrap();
            let page = feed(&gateway, &[LATEST, (RANGE, id), ("if-none-match", &etag)]).await;
            if page.status == 200 {
                rest.extend(ids(&page));
            }
        }
        rest.sort();
        assert_eq!(rest, ["2", "3", "4"]);
        // Nobody can read several ranges as one.
        feed(&gateway, &[LATEST]).await.expect(400);
    });
}
