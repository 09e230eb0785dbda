//! Several gateways on one backend.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::future::{BoxFuture, join_all};
use http::Method;
use millstream_core::{Clock, SystemClock, Timestamp};
use millstream_gateway::GatewayOptions;
use serde_json::{Value, json};

use crate::client::{Answered, Running, memory, run};
use crate::elsewhere::Elsewhere;

/// A clock on which time passes when the test wants it to.
#[derive(Debug, Default)]
struct Ahead {
    clock: SystemClock,
    seconds: AtomicU64,
}

impl Ahead {
    fn pass(&self, seconds: u64) {
        self.seconds.fetch_add(seconds, Ordering::Relaxed);
    }
}

impl Clock for Ahead {
    fn now(&self) -> Timestamp {
        self.clock.now()
    }

    fn monotonic(&self) -> Duration {
        self.clock.monotonic() + Duration::from_secs(self.seconds.load(Ordering::Relaxed))
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        self.clock.sleep(duration)
    }
}

/// Two gateways, of which the second knows the container `/dbs/d/colls/c`, and what time it is for
/// that one.
async fn two(options: GatewayOptions) -> (Running, Running, Arc<Ahead>) {
    let containers = memory();
    let first = Running::on(Arc::clone(&containers)).await;
    first.with_container().await;
    let ahead = Arc::new(Ahead::default());
    let second =
        Running::on_with(Arc::new(Elsewhere::new(containers)), ahead.clone(), options).await;
    second.item("a", r#"{"id":"1","pk":"a"}"#).await.expect(201);
    (first, second, ahead)
}

/// Deletes the container and makes another one with this key.
async fn make_anew(gateway: &Running, key: &str) -> Value {
    gateway.ask(Method::DELETE, "/dbs/d/colls/c", &[], "").await.expect(204);
    let body = json!({ "id": "c", "partitionKey": { "paths": [key], "kind": "Hash" } });
    gateway.post("/dbs/d/colls", &body.to_string()).await.expect(201).json()
}

async fn query(gateway: &Running, query: &str) -> Answered {
    let headers = [
        ("content-type", "application/query+json"),
        ("x-ms-documentdb-isquery", "true"),
        ("x-ms-documentdb-query-enablecrosspartition", "true"),
    ];
    let body = json!({ "query": query }).to_string();
    gateway.ask(Method::POST, "/dbs/d/colls/c/docs", &headers, body).await
}

#[test]
fn what_names_an_earlier_container_does_nothing_to_the_newer_one() {
    run(async {
        let (first, second, _) = two(GatewayOptions::default()).await;
        let old = second.get("/dbs/d/colls/c").await.expect(200).json();
        let by_rid = format!("/{}", old["_self"].as_str().unwrap().trim_end_matches('/'));
        second.get(&by_rid).await.expect(200);
        let new = make_anew(&first, "/pk").await;
        assert_ne!(new["_rid"], old["_rid"]);
        first.item("a", r#"{"id":"kept","pk":"a"}"#).await.expect(201);
        let definition = json!({ "id": "c", "partitionKey": old["partitionKey"], "defaultTtl": 1 });
        let intended = [("x-ms-cosmos-intended-collection-rid", old["_rid"].as_str().unwrap())];
        for method in [Method::PUT, Method::DELETE, Method::GET] {
            let body = if method == Method::PUT { definition.to_string() } else { String::new() };
            second.ask(method.clone(), &by_rid, &[], body.clone()).await.expect(404);
            let named = second.ask(method, "/dbs/d/colls/c", &intended, body).await.expect(400);
            assert_eq!(named.header("x-ms-substatus"), "1024");
        }
        let left = first.get("/dbs/d/colls/c").await.expect(200).json();
        assert_eq!(left, new);
        let key = [("x-ms-documentdb-partitionkey", r#"["a"]"#)];
        first.ask(Method::GET, "/dbs/d/colls/c/docs/kept", &key, "").await.expect(200);
        // Its own name leads to it everywhere.
        assert_eq!(second.get("/dbs/d/colls/c").await.expect(200).json(), new);
        second.ask(Method::DELETE, "/dbs/d/colls/c", &[], "").await.expect(204);
        first.get("/dbs/d/colls/c").await.expect(404);
    });
}

#[test]
fn another_partition_key_is_known_within_a_second() {
    run(async {
        let (first, second, ahead) = two(GatewayOptions::default()).await;
        make_anew(&first, "/other").await;
        ahead.pass(2);
        second.item("x", r#"{"id":"1","pk":"a","other":"x"}"#).await.expect(201);
        first.item("y", r#"{"id":"2","pk":"a","other":"y"}"#).await.expect(201);
        make_anew(&second, "/pk").await;
        make_anew(&first, "/other").await;
        first.item("x", r#"{"id":"1","pk":"a","other":"x"}"#).await.expect(201);
        first.item("y", r#"{"id":"2","pk":"a","other":"y"}"#).await.expect(201);
        ahead.pass(2);
        let found = query(&second, "SELECT VALUE c.id FROM c WHERE c.pk = 'a' ORDER BY c.id")
            .await
            .expect(200);
        assert_eq!(found.json()["Documents"], json!(["1", "2"]));
    });
}

/// Creates an item; how many components its key needs is known without the backend.
async fn create(gateway: &Running, key: &str, body: String) -> Answered {
    let headers = [("x-ms-documentdb-partitionkey", key)];
    gateway.ask(Method::POST, "/dbs/d/colls/c/docs", &headers, body).await
}

#[test]
fn nobody_goes_on_with_what_is_too_old() {
    run(async {
        let (first, second, ahead) = two(GatewayOptions::default()).await;
        let definitions = [
            (r#"["a","x"]"#, r#"{"paths":["/pk","/other"],"kind":"MultiHash","version":2}"#),
            (r#"["a"]"#, r#"{"paths":["/pk"],"kind":"Hash","version":2}"#),
        ];
        for (key, definition) in definitions.repeat(3) {
            first.ask(Method::DELETE, "/dbs/d/colls/c", &[], "").await.expect(204);
            let body = format!(r#"{{"id":"c","partitionKey":{definition}}}"#);
            first.post("/dbs/d/colls", &body).await.expect(201);
            // All at once after a long rest, of which one asks.
            ahead.pass(3600);
            let body = |number| format!(r#"{{"id":"{number}","pk":"a","other":"x"}}"#);
            let asked = (0..20).map(|number| create(&second, key, body(number)));
            for answered in join_all(asked).await {
                answered.expect(201);
            }
        }
    });
}

#[test]
fn one_answer_of_a_slow_backend_is_for_all_who_have_waited_for_it() {
    const REQUESTS: u64 = 12;
    run(async {
        let containers = memory();
        Running::on(Arc::clone(&containers)).await.with_container().await;
        let elsewhere = Elsewhere::new(containers).slower(Duration::from_secs(1));
        let (asked, ahead) = (elsewhere.asked(), Arc::new(Ahead::default()));
        let options = GatewayOptions::default();
        let gateway = Running::on_with(Arc::new(elsewhere), ahead.clone(), options).await;
        gateway.item("a", r#"{"id":"first","pk":"a"}"#).await.expect(201);
        let before = asked.load(Ordering::Relaxed);
        // All come while it is asked, and what is known is too old for each by then.
        let requests = (0..REQUESTS).map(|number| {
            let (gateway, ahead) = (&gateway, &ahead);
            async move {
                tokio::time::sleep(Duration::from_millis(10 * number)).await;
                ahead.pass(2);
                gateway.item("a", &format!(r#"{{"id":"{number}","pk":"a"}}"#)).await
            }
        });
        for answered in join_all(requests).await {
            answered.expect(201);
        }
        let asked = asked.load(Ordering::Relaxed) - before;
        assert!(asked < REQUESTS / 2, "it was asked {asked} times");
    });
}

#[test]
fn what_is_kept_for_the_feed_is_known_within_a_second() {
    run(async {
        let (first, second, ahead) = two(GatewayOptions::default()).await;
        let feed = [("a-im", "Full-Fidelity Feed"), ("if-none-match", "*")];
        let ranges = [("x-ms-documentdb-partitionkeyrangeid", "0")];
        let feed = [&feed[..], &ranges].concat();
        second.ask(Method::GET, "/dbs/d/colls/c/docs", &feed, "").await.expect(400);
        let mut definition = first.get("/dbs/d/colls/c").await.expect(200).json();
        definition["changeFeedPolicy"] = json!({ "retentionDuration": 10 });
        let text = definition.to_string();
        first.ask(Method::PUT, "/dbs/d/colls/c", &[], text).await.expect(200);
        ahead.pass(2);
        second.ask(Method::GET, "/dbs/d/colls/c/docs", &feed, "").await.expect(304);
    });
}

#[test]
fn throughput_that_another_gateway_changed_holds_within_a_second() {
    run(async {
        let options = GatewayOptions::default().enforce_throughput(true);
        let (first, second, ahead) = two(options).await;
        let mut offer = first.get("/offers").await.expect(200).json()["Offers"][0].clone();
        let path = format!("/offers/{}", offer["id"].as_str().unwrap());
        offer["content"]["offerThroughput"] = json!(1_000_000);
        first.ask(Method::PUT, &path, &[], offer.to_string()).await.expect(200);
        // The first request hears of it, and what was saved up is that of a second before.
        for _ in 0..2 {
            ahead.pass(2);
            second.get("/dbs/d/colls/c/docs").await.expect(200);
        }
        for number in 0..150 {
            let body = format!(r#"{{"id":"{number}","pk":"b"}}"#);
            second.item("b", &body).await.expect(201);
        }
    });
}

#[test]
fn throughput_is_kept_where_ranges_cannot_be_split() {
    run(async {
        let (first, second, _) = two(GatewayOptions::default()).await;
        let mut offer = second.get("/offers").await.expect(200).json()["Offers"][0].clone();
        let path = format!("/offers/{}", offer["id"].as_str().unwrap());
        offer["content"]["offerThroughput"] = json!(30_000);
        second.ask(Method::PUT, &path, &[], offer.to_string()).await.expect(200);
        let read = first.get(&path).await.expect(200).json();
        assert_eq!(read["content"]["offerThroughput"], 30_000);
        let ranges = second.get("/dbs/d/colls/c/pkranges").await.expect(200).json();
        assert_eq!(ranges["_count"], 1);
    });
}

/// Reads the item of a key; `token` is what the client has seen.
async fn read(gateway: &Running, key: usize, token: &str) -> Answered {
    let partition_key = format!(r#"["{key}"]"#);
    let headers =
        [("x-ms-documentdb-partitionkey", partition_key.as_str()), ("x-ms-session-token", token)];
    gateway.ask(Method::GET, &format!("/dbs/d/colls/c/docs/{key}"), &headers, "").await
}

#[test]
fn what_one_half_of_a_split_range_has_seen_is_not_told_of_the_other() {
    run(async {
        let (first, second, _) = two(GatewayOptions::default()).await;
        for key in 0..20 {
            let body = format!(r#"{{"id":"{key}","pk":"{key}"}}"#);
            second.item(&key.to_string(), &body).await.expect(201);
        }
        let split = "/databases/d/containers/c/partitions/0/split";
        first.ask(Method::POST, split, &[], "").await.expect(200);
        let mut ranges = BTreeMap::new();
        for key in 0..20 {
            let token =
                read(&first, key, "").await.expect(200).header("x-ms-session-token").to_owned();
            ranges.entry(token.split(':').next().unwrap().to_owned()).or_insert(key);
        }
        let [one, other] = ranges.into_values().collect::<Vec<_>>()[..] else {
            panic!("two halves")
        };
        // The second gateway has not heard of the split, and takes these for commits of the whole.
        for number in 0..5 {
            let body = format!(r#"{{"id":"new-{number}","pk":"{one}"}}"#);
            second.item(&one.to_string(), &body).await.expect(201);
        }
        second.get("/dbs/d/colls/c/pkranges").await.expect(200);
        let told = read(&second, other, "").await.expect(200);
        read(&first, other, told.header("x-ms-session-token")).await.expect(200);
    });
}

#[test]
fn a_range_that_was_split_is_known_to_be_within_a_second() {
    run(async {
        let (first, second, ahead) = two(GatewayOptions::default()).await;
        let split = "/databases/d/containers/c/partitions/0/split";
        first.ask(Method::POST, split, &[], "").await.expect(200);
        ahead.pass(2);
        let written = second.item("a", r#"{"id":"2","pk":"a"}"#).await.expect(201);
        assert_ne!(written.header("x-ms-documentdb-partitionkeyrangeid"), "0");
    });
}

#[test]
fn a_container_that_is_gone_is_gone_everywhere() {
    run(async {
        let (first, second, ahead) = two(GatewayOptions::default()).await;
        ahead.pass(2);
        first.ask(Method::DELETE, "/dbs/d/colls/c", &[], "").await.expect(204);
        for _ in 0..2 {
            // Where the container is there, this needs no backend to be refused.
            let body = r#"{"id":"2","pk":"a"}"#.to_owned();
            let gone = create(&second, r#"["a","b"]"#, body).await.expect(404);
            assert_eq!(gone.header("x-ms-substatus"), "1003");
        }
    });
}
