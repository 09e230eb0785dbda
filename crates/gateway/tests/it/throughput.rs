use std::sync::Arc;

use http::Method;
use millstream_core::{ContainerName, KeyRange, PageSize, ScanScope, SystemClock};
use millstream_gateway::GatewayOptions;
use serde_json::{Value, json};

use crate::batches::statuses;
use crate::bulk::bulk;
use crate::client::{Backend, Running, memory, on_both, run};
use crate::elsewhere::Elsewhere;
use crate::splits::patient;

async fn with_throughput(gateway: &Running, units: &str) {
    gateway.post("/dbs", r#"{"id":"d"}"#).await.expect(201);
    let body = r#"{"id":"c","partitionKey":{"paths":["/pk"],"kind":"Hash","version":2}}"#;
    let headers = [("x-ms-offer-throughput", units)];
    gateway.ask(Method::POST, "/dbs/d/colls", &headers, body).await.expect(201);
}

async fn count_ranges(gateway: &Running) -> u64 {
    let ranges = gateway.get("/dbs/d/colls/c/pkranges").await.expect(200).json();
    ranges["_count"].as_u64().unwrap()
}

#[test]
fn raising_the_throughput_splits_ranges() {
    on_both(|gateway| async move {
        with_throughput(&gateway, "400").await;
        assert_eq!(count_ranges(&gateway).await, 1);
        let offers = gateway.get("/offers").await.expect(200).json();
        let mut offer = offers["Offers"][0].clone();
        assert_eq!(offer["content"]["offerThroughput"], 400);
        let container = gateway.get("/dbs/d/colls/c").await.expect(200).json();
        assert_eq!(offer["resource"], container["_self"]);
        offer["content"]["offerThroughput"] = json!(11_000);
        let path = format!("/offers/{}", offer["id"].as_str().unwrap());
        let put = gateway.ask(Method::PUT, &path, &[], offer.to_string()).await.expect(200);
        assert_eq!(put.header("x-ms-offer-replace-pending"), "false");
        assert_eq!(count_ranges(&gateway).await, 2);
        offer["content"]["offerThroughput"] = json!(30_000);
        gateway.ask(Method::PUT, &path, &[], offer.to_string()).await.expect(200);
        assert_eq!(count_ranges(&gateway).await, 3);
        let read = gateway.get(&path).await.expect(200).json();
        assert_eq!(read["content"]["offerThroughput"], 30_000);
        offer["content"]["offerThroughput"] = json!(17);
        gateway.ask(Method::PUT, &path, &[], offer.to_string()).await.expect(400);
        gateway.get("/offers/AAAA").await.expect(404);
    });
}

#[test]
fn ranges_that_others_split_are_not_split_again() {
    run(async {
        let (elsewhere, clock) = (Elsewhere::new(memory()).overtaken(), SystemClock::default());
        let gateway = Running::on_with(Arc::new(elsewhere), Arc::new(clock), patient()).await;
        with_throughput(&gateway, "400").await;
        let item = gateway.item("a", r#"{"id":"1","pk":"a"}"#).await.expect(201);
        assert_eq!(item.header("x-ms-documentdb-partitionkeyrangeid"), "0");
        set_throughput(&gateway, 40_000).await;
        // What paths lead to is known without asking.
        let item = gateway.item("a", r#"{"id":"2","pk":"a"}"#).await.expect(201);
        assert_ne!(item.header("x-ms-documentdb-partitionkeyrangeid"), "0");
        assert_eq!(count_ranges(&gateway).await, 4);
    });
}

#[test]
fn a_database_that_is_deleted_meanwhile_hides_no_offers_of_others() {
    run(async {
        let (elsewhere, clock) = (Elsewhere::new(memory()).losing("a"), SystemClock::default());
        let gateway = Running::on_with(Arc::new(elsewhere), Arc::new(clock), patient()).await;
        with_throughput(&gateway, "400").await;
        let vanishing = || async {
            let units = [("x-ms-offer-throughput", "700")];
            gateway.ask(Method::POST, "/dbs", &units, r#"{"id":"a"}"#).await.expect(201);
        };
        vanishing().await;
        let offers = gateway.get("/offers").await.expect(200).json();
        assert_eq!(offers["_count"], 1);
        let mut offer = offers["Offers"][0].clone();
        let path = format!("/offers/{}", offer["id"].as_str().unwrap());
        vanishing().await;
        gateway.get(&path).await.expect(200);
        vanishing().await;
        offer["content"]["offerThroughput"] = json!(500);
        gateway.ask(Method::PUT, &path, &[], offer.to_string()).await.expect(200);
        vanishing().await;
        let query = r#"{"query":"SELECT * FROM root r WHERE r.content.offerThroughput = 500"}"#;
        let headers =
            [("content-type", "application/query+json"), ("x-ms-documentdb-isquery", "true")];
        let found = gateway.ask(Method::POST, "/offers", &headers, query).await.expect(200).json();
        assert_eq!(found["_count"], 1);
    });
}

#[test]
fn a_database_that_is_deleted_meanwhile_keeps_nothing_of_what_is_gone() {
    run(async {
        let containers = memory();
        let gateway = Running::on(Arc::clone(&containers)).await;
        with_throughput(&gateway, "400").await;
        let count = || async {
            let name = ContainerName::new("millstream", "gateway").unwrap();
            let scope = ScanScope::Keys(KeyRange::all());
            let documents = containers.open(&name).await.unwrap().documents;
            documents.scan(&scope, None, PageSize::default()).await.unwrap().items.len()
        };
        assert_eq!(count().await, 1);
        containers.delete(&ContainerName::new("d", "c").unwrap()).await.unwrap();
        containers.create_database("a").await.unwrap();
        Running::on(Arc::new(Elsewhere::new(Arc::clone(&containers)).losing("a"))).await;
        assert_eq!(count().await, 0);
    });
}

#[test]
fn much_throughput_makes_many_ranges_at_once() {
    on_both(|gateway| async move {
        with_throughput(&gateway, "30000").await;
        assert_eq!(count_ranges(&gateway).await, 5);
    });
}

#[test]
fn autoscale_and_shared_throughput_are_offers_too() {
    on_both(|gateway| async move {
        let autoscale = [("x-ms-cosmos-offer-autopilot-settings", r#"{"maxThroughput":4000}"#)];
        gateway.ask(Method::POST, "/dbs", &autoscale, r#"{"id":"d"}"#).await.expect(201);
        let body = r#"{"id":"c","partitionKey":{"paths":["/pk"]}}"#;
        gateway.post("/dbs/d/colls", body).await.expect(201);
        let offers = gateway.get("/offers").await.expect(200).json();
        assert_eq!(offers["_count"], 1, "the container shares that of its database");
        let content = &offers["Offers"][0]["content"];
        assert_eq!(content["offerAutopilotSettings"]["maxThroughput"], 4000);
        let path = format!("/offers/{}", offers["Offers"][0]["id"].as_str().unwrap());
        let read = gateway.get(&path).await.expect(200);
        assert_eq!(read.header("x-ms-cosmos-min-throughput"), "1000");
        let wrong = [("x-ms-offer-throughput", "many")];
        gateway.ask(Method::POST, "/dbs", &wrong, r#"{"id":"e"}"#).await.expect(400);
    });
}

#[test]
fn the_increment_of_autoscale_is_given_back() {
    on_both(|gateway| async move {
        gateway.post("/dbs", r#"{"id":"d"}"#).await.expect(201);
        let settings = r#"{"maxThroughput":5000,
            "autoUpgradePolicy":{"throughputPolicy":{"incrementPercent":42}}}"#;
        let settings = settings.replace('\n', "");
        let headers = [("x-ms-cosmos-offer-autopilot-settings", settings.as_str())];
        let body = r#"{"id":"c","partitionKey":{"paths":["/pk"]}}"#;
        gateway.ask(Method::POST, "/dbs/d/colls", &headers, body).await.expect(201);
        let offers = gateway.get("/offers").await.expect(200).json();
        let mut offer = offers["Offers"][0].clone();
        assert_eq!(offer["content"]["offerThroughput"], 500);
        let sent: Value = serde_json::from_str(&settings).unwrap();
        assert_eq!(offer["content"]["offerAutopilotSettings"], sent);
        let path = format!("/offers/{}", offer["id"].as_str().unwrap());
        offer["content"]["offerAutopilotSettings"] = json!({ "maxThroughput": 6000 });
        let put = gateway.ask(Method::PUT, &path, &[], offer.to_string()).await.expect(200).json();
        assert_eq!(put["content"]["offerAutopilotSettings"], json!({ "maxThroughput": 6000 }));
        let policy = json!({ "throughputPolicy": { "incrementPercent": "much" } });
        offer["content"]["offerAutopilotSettings"]["autoUpgradePolicy"] = policy;
        gateway.ask(Method::PUT, &path, &[], offer.to_string()).await.expect(400);
    });
}

#[test]
fn containers_without_throughput_of_their_own_share_that_of_their_database() {
    run(async {
        let options = GatewayOptions::default().enforce_throughput(true);
        let gateway = Running::start(Backend::Memory, options).await;
        let units = [("x-ms-offer-throughput", "100000")];
        gateway.ask(Method::POST, "/dbs", &units, r#"{"id":"d"}"#).await.expect(201);
        for name in ["c", "e"] {
            let body = format!(r#"{{"id":"{name}","partitionKey":{{"paths":["/pk"]}}}}"#);
            gateway.post("/dbs/d/colls", &body).await.expect(201);
        }
        // More than a container without an offer could spend.
        for number in 0..150 {
            let body = format!(r#"{{"id":"{number}","pk":"a"}}"#);
            gateway.item("a", &body).await.expect(201);
        }
        // Less for both, of which one spends that of several seconds at once.
        let offers = gateway.get("/offers").await.expect(200).json();
        let mut offer = offers["Offers"][0].clone();
        offer["content"]["offerThroughput"] = json!(400);
        let path = format!("/offers/{}", offer["id"].as_str().unwrap());
        gateway.ask(Method::PUT, &path, &[], offer.to_string()).await.expect(200);
        let large = format!(r#"{{"id":"large","pk":"a","text":"{}"}}"#, "x".repeat(2_000_000));
        gateway.item("a", &large).await.expect(201);
        gateway.get("/dbs/d/colls/e/docs").await.expect(429);
    });
}

#[test]
fn beyond_the_throughput_clients_are_told_to_wait() {
    run(async {
        let options = GatewayOptions::default().enforce_throughput(true);
        let gateway = Running::start(Backend::Memory, options).await;
        with_throughput(&gateway, "400").await;
        // That of several seconds at once.
        let large = format!(r#"{{"id":"large","pk":"a","text":"{}"}}"#, "x".repeat(2_000_000));
        gateway.item("a", &large).await.expect(201);
        let refused = gateway.item("a", r#"{"id":"1","pk":"a"}"#).await.expect(429);
        assert_eq!(refused.header("x-ms-substatus"), "3200");
        assert!(0 < refused.header("x-ms-retry-after-ms").parse::<u64>().unwrap());
        assert_eq!(refused.json()["code"], "TooManyRequests");
    });
}

#[test]
fn what_a_container_is_can_be_asked_when_its_throughput_is_spent() {
    run(async {
        let options = GatewayOptions::default().enforce_throughput(true);
        let gateway = Running::start(Backend::Memory, options).await;
        with_throughput(&gateway, "400").await;
        // That of several seconds at once.
        let large = format!(r#"{{"id":"large","pk":"a","text":"{}"}}"#, "x".repeat(2_000_000));
        gateway.item("a", &large).await.expect(201);
        gateway.get("/dbs/d/colls/c/docs").await.expect(429);
        assert_eq!(count_ranges(&gateway).await, 1);
        let read = gateway.get("/dbs/d/colls/c").await.expect(200);
        gateway.get("/dbs/d/colls/c/docs").await.expect(429);
        let rid = read.json()["_self"].as_str().unwrap().to_owned();
        gateway.ask(Method::PUT, "/dbs/d/colls/c", &[], read.body).await.expect(200);
        // It has one budget, also when it is opened anew or by its resource id.
        gateway.get("/dbs/d/colls/c/docs").await.expect(429);
        gateway.get(&format!("/{rid}docs")).await.expect(429);
        gateway.ask(Method::DELETE, "/dbs/d/colls/c", &[], "").await.expect(204);
    });
}

/// Changes what the container may spend.
async fn set_throughput(gateway: &Running, units: u32) {
    let offers = gateway.get("/offers").await.expect(200).json();
    let mut offer = offers["Offers"][0].clone();
    offer["content"]["offerThroughput"] = units.into();
    let path = format!("/offers/{}", offer["id"].as_str().unwrap());
    gateway.ask(Method::PUT, &path, &[], offer.to_string()).await.expect(200);
}

/// Creates an item of 10 KiB, which costs 16 request units.
fn create(key: &str, id: usize) -> Value {
    let body = json!({"id": id.to_string(), "pk": key, "text": "x".repeat(10_000)});
    let key = json!([key]).to_string();
    json!({"operationType": "Create", "partitionKey": key, "resourceBody": body})
}

/// What a bulk request was answered for each operation, none if it was refused as a whole. Those
/// that are refused are told to wait, and the header has what the others cost.
async fn bulk_results(gateway: &Running, operations: &[Value]) -> Option<Vec<u64>> {
    let answered = bulk(gateway, "0", &operations.into()).await;
    if answered.status == 429 {
        return None;
    }
    let results = answered.json();
    let results = results.as_array().unwrap();
    let charges = results.iter().map(|it| it["requestCharge"].as_f64().unwrap());
    let charge: f64 = answered.header("x-ms-request-charge").parse().unwrap();
    assert_eq!(charges.sum::<f64>(), charge);
    for one in results.iter().filter(|it| it["statusCode"] == 429) {
        let charge = one["requestCharge"].as_f64();
        assert_eq!((&one["subStatusCode"], charge), (&json!(3200), Some(0.0)));
        assert!(0 < one["retryAfterMilliseconds"].as_u64().unwrap());
    }
    Some(statuses(&answered))
}

#[test]
fn a_bulk_request_is_done_as_far_as_the_throughput_goes() {
    run(async {
        let options = GatewayOptions::default().enforce_throughput(true);
        let gateway = Running::start(Backend::Memory, options).await;
        with_throughput(&gateway, "400").await;
        // That of four seconds.
        let key = |number: usize| format!("key {}", number % 7);
        let mut left: Vec<Value> = (0..100).map(|it| create(&key(it), it)).collect();
        let statuses = bulk_results(&gateway, &left).await.expect("nothing was spent before");
        assert!(statuses.contains(&201) && statuses.contains(&429), "{statuses:?}");
        for number in 0..7 {
            let of_key = statuses.iter().skip(number).step_by(7);
            assert!(of_key.is_sorted(), "one overtook another: {statuses:?}");
        }
        set_throughput(&gateway, 6000).await;
        // What was refused has not been done.
        let mut statuses = Some(statuses);
        while !left.is_empty() {
            let results = statuses.take().unwrap_or_else(|| vec![429; left.len()]);
            assert!(results.iter().all(|it| [201, 429].contains(it)), "{results:?}");
            let refused = left.into_iter().zip(results).filter(|(_, status)| *status == 429);
            left = refused.map(|(operation, _)| operation).collect();
            if !left.is_empty() {
                statuses = bulk_results(&gateway, &left).await;
            }
        }
    });
}

#[test]
fn a_bulk_request_is_refused_as_a_whole_when_nothing_is_left_to_spend() {
    run(async {
        let options = GatewayOptions::default().enforce_throughput(true);
        let gateway = Running::start(Backend::Memory, options).await;
        with_throughput(&gateway, "400").await;
        let large = format!(r#"{{"id":"large","pk":"a","text":"{}"}}"#, "x".repeat(2_000_000));
        gateway.item("a", &large).await.expect(201);
        let refused = bulk(&gateway, "0", &json!([create("a", 1)])).await.expect(429);
        assert_eq!(refused.header("x-ms-substatus"), "3200");
        assert!(0 < refused.header("x-ms-retry-after-ms").parse::<u64>().unwrap());
    });
}

#[test]
fn reads_of_a_bulk_request_do_not_spend_more_than_there_is_all_at_once() {
    run(async {
        let options = GatewayOptions::default().enforce_throughput(true);
        let (elsewhere, clock) = (Elsewhere::new(memory()), SystemClock::default());
        let gateway = Running::on_with(Arc::new(elsewhere), Arc::new(clock), options).await;
        with_throughput(&gateway, "6000").await;
        let read = |number: usize| {
            let key = json!([number.to_string()]).to_string();
            json!({"operationType": "Read", "id": "1", "partitionKey": key})
        };
        for key in 0..20 {
            let text = "x".repeat(100_000);
            let body = format!(r#"{{"id":"1","pk":"{key}","text":"{text}"}}"#);
            gateway.item(&key.to_string(), &body).await.expect(201);
        }
        set_throughput(&gateway, 400).await;
        // Each costs almost 100 request units.
        let reads: Vec<Value> = (0..20).map(read).collect();
        let statuses = bulk_results(&gateway, &reads).await.expect("something was left");
        assert!(statuses.contains(&200) && statuses.contains(&429), "{statuses:?}");
    });
}
