//! What clients are told after a range was split behind the back of the gateway.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use http::Method;
use millstream_core::{ContainerName, Containers, RangeId, SystemClock};
use millstream_gateway::GatewayOptions;
use serde_json::Value;

use crate::client::{Answered, Running, memory, run};
use crate::elsewhere::Elsewhere;

const KEYS: usize = 20;

/// Options of a gateway that goes on with what it knows of a container.
pub(crate) fn patient() -> GatewayOptions {
    GatewayOptions::default().container_age_max(Duration::from_secs(3600))
}

async fn gateway(containers: &Arc<dyn Containers>) -> Running {
    let clock = Arc::new(SystemClock::default());
    Running::on_with(Arc::clone(containers), clock, patient()).await
}

/// A gateway that knows the container `/dbs/d/colls/c`, which has an item of each key.
async fn filled(containers: &Arc<dyn Containers>) -> Running {
    let gateway = gateway(containers).await;
    gateway.with_container().await;
    for key in 0..KEYS {
        write(&gateway, key, "first").await;
    }
    gateway
}

/// Creates an item, and returns the session token.
async fn write(gateway: &Running, key: usize, id: &str) -> String {
    let body = format!(r#"{{"id":"{id}","pk":"{key}"}}"#);
    let written = gateway.item(&key.to_string(), &body).await.expect(201);
    written.header("x-ms-session-token").to_owned()
}

/// Reads the first item of a key; `token` is what the client has seen.
async fn read(gateway: &Running, key: usize, token: &str) -> Answered {
    let partition_key = format!(r#"["{key}"]"#);
    let headers =
        [("x-ms-documentdb-partitionkey", partition_key.as_str()), ("x-ms-session-token", token)];
    gateway.ask(Method::GET, "/dbs/d/colls/c/docs/first", &headers, "").await
}

/// Splits a range as a store does that has grown.
async fn split(containers: &Arc<dyn Containers>, range: u32) {
    let name = ContainerName::new("d", "c").unwrap();
    containers.split(&name, RangeId(range), None).await.unwrap();
}

/// A key of each of two ranges, with the number of the range.
async fn halves(gateway: &Running) -> [(String, usize); 2] {
    let mut ranges = BTreeMap::new();
    for key in 0..KEYS {
        let found = read(gateway, key, "").await.expect(200);
        let range = found.header("x-ms-documentdb-partitionkeyrangeid").to_owned();
        ranges.entry(range).or_insert(key);
    }
    ranges.into_iter().collect::<Vec<_>>().try_into().expect("two halves")
}

#[test]
fn a_commit_of_one_half_is_none_that_the_other_has_missed() {
    run(async {
        let containers = memory();
        let stale = filled(&containers).await;
        split(&containers, 0).await;
        let fresh = gateway(&containers).await;
        let [(_, one), (other_range, other)] = halves(&fresh).await;
        // It has not heard of the split, and takes these for commits of the whole.
        let mut told = String::new();
        for number in 0..5 {
            told = write(&stale, one, &number.to_string()).await;
        }
        // Clients do the same: what they were told of a range holds for both halves.
        let number: u64 = told.strip_prefix("0:-1#").unwrap().parse().unwrap();
        let token = |number: u64| format!("{other_range}:-1#{number}");
        read(&fresh, other, &token(number)).await.expect(200);
        let ahead = read(&fresh, other, &token(number + 1)).await.expect(404);
        assert_eq!(ahead.header("x-ms-substatus"), "1002");
        // Also when the half it was committed in has been split again.
        split(&containers, 1).await;
        split(&containers, 2).await;
        let fresh = gateway(&containers).await;
        let found = read(&fresh, other, "").await.expect(200);
        let range = found.header("x-ms-documentdb-partitionkeyrangeid");
        read(&fresh, other, &format!("{range}:-1#{number}")).await.expect(200);
        read(&fresh, other, &format!("{range}:-1#{}", number + 1)).await.expect(404);
    });
}

#[test]
fn a_read_is_not_refused_because_its_range_was_split() {
    run(async {
        let containers = memory();
        let reader = filled(&containers).await;
        let writer = gateway(&containers).await;
        writer.get("/dbs/d/colls/c/docs").await.expect(200);
        split(&containers, 0).await;
        // Neither has heard of it.
        let told = write(&writer, 3, "second").await;
        assert_eq!(told.split(':').next(), Some("0"));
        let found = read(&reader, 3, &told).await.expect(200);
        assert_ne!(found.header("x-ms-documentdb-partitionkeyrangeid"), "0");
    });
}

#[test]
fn ranges_asked_for_by_resource_id_are_known_by_name() {
    run(async {
        let containers = memory();
        let gateway = filled(&containers).await;
        let container = gateway.get("/dbs/d/colls/c").await.expect(200).json();
        let by_rid = format!("/{}pkranges", container["_self"].as_str().unwrap());
        assert_eq!(gateway.get(&by_rid).await.expect(200).json()["_count"], 1);
        split(&containers, 0).await;
        assert_eq!(gateway.get(&by_rid).await.expect(200).json()["_count"], 2);
        let found = read(&gateway, 3, "").await.expect(200);
        assert_ne!(found.header("x-ms-documentdb-partitionkeyrangeid"), "0");
    });
}

#[test]
fn a_split_that_somebody_else_did_first_is_refused_as_gone() {
    run(async {
        let elsewhere = Arc::new(Elsewhere::new(memory()).overtaken());
        let clock = Arc::new(SystemClock::default());
        let gateway = Running::on_with(elsewhere, clock, patient()).await;
        gateway.with_container().await;
        let path = "/databases/d/containers/c/partitions/0/split";
        let gone = gateway.post(path, "").await.expect(410);
        assert_eq!(gone.header("x-ms-substatus"), "1002");
    });
}

#[test]
fn ranges_of_an_earlier_container_of_the_name_are_not_taken_for_those_of_the_newer() {
    run(async {
        let containers = memory();
        let gateway = filled(&containers).await;
        let ranges = "/dbs/d/colls/c/pkranges";
        let old = gateway.get(ranges).await.expect(200);
        gateway.ask(Method::DELETE, "/dbs/d", &[], "").await.expect(204);
        gateway.with_container().await;
        let known = [("a-im", "Incremental Feed"), ("if-none-match", old.header("etag"))];
        let new = gateway.ask(Method::GET, ranges, &known, "").await.expect(200);
        let rid = |answered: &Answered| answered.json()["PartitionKeyRanges"][0]["_rid"].clone();
        assert_ne!(rid(&new), rid(&old));
        let known = [("a-im", "Incremental Feed"), ("if-none-match", new.header("etag"))];
        gateway.ask(Method::GET, ranges, &known, "").await.expect(304);
        let etag: Value = new.json()["PartitionKeyRanges"][0]["_etag"].clone();
        assert_eq!((etag.as_str().unwrap(), new.header("lsn")), (new.header("etag"), "0"));
    });
}
