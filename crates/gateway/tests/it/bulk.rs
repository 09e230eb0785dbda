//! Bulk requests.

use std::sync::Arc;

use http::Method;
use serde_json::{Value, json};

use crate::batches::{large_items, statuses};
use crate::client::{Answered, Running, memory, on_both, run};

const ITEMS: &str = "/dbs/d/colls/c/docs";

pub(crate) async fn bulk(gateway: &Running, range: &str, body: &Value) -> Answered {
    let headers = [
        ("x-ms-documentdb-partitionkeyrangeid", range),
        ("x-ms-cosmos-is-batch-request", "true"),
        ("x-ms-cosmos-batch-atomic", "false"),
        ("x-ms-cosmos-batch-continue-on-error", "true"),
    ];
    gateway.ask(Method::POST, ITEMS, &headers, body.to_string()).await
}

#[test]
fn operations_of_a_bulk_request_stand_on_their_own() {
    on_both(|gateway| async move {
        gateway.with_container().await;
        gateway.item("a", r#"{"id":"1","pk":"a"}"#).await.expect(201);
        let operation = |kind: &str, key: &str, id: &str| {
            let body = json!({"id": id, "pk": key});
            let key = format!("[\"{key}\"]");
            json!({"operationType": kind, "partitionKey": key, "resourceBody": body, "id": id})
        };
        let body = json!([
            operation("Create", "a", "1"),
            operation("Create", "b", "1"),
            operation("Replace", "b", "1"),
            operation("Delete", "a", "1"),
            operation("Create", "a", "1"),
            operation("Read", "c", "1"),
            {"operationType": "Create", "partitionKey": "nonsense", "resourceBody": {"id": "1"}},
            {"operationType": "Create", "partitionKey": "[{}]", "resourceBody": {"id": "1"}},
        ]);
        let answered = bulk(&gateway, "0", &body).await.expect(207);
        assert_eq!(statuses(&answered), [409, 201, 200, 204, 201, 404, 400, 201]);
        let fine = json!([operation("Upsert", "z", "1"), operation("Upsert", "y", "1")]);
        assert_eq!(statuses(&bulk(&gateway, "0", &fine).await.expect(200)), [201, 201]);
    });
}

#[test]
fn a_bulk_request_to_a_range_that_is_gone_is_told_so() {
    on_both(|gateway| async move {
        gateway.with_container().await;
        gateway.post("/databases/d/containers/c/partitions/0/split", "").await.expect(200);
        let body = json!([{"operationType": "Read", "id": "1", "partitionKey": "[\"a\"]"}]);
        let gone = bulk(&gateway, "0", &body).await.expect(410);
        assert_eq!(gone.header("x-ms-substatus"), "1002");
        // The hash of "a" lies in the upper half, that of "b" in the lower.
        let ranges = gateway.get("/dbs/d/colls/c/pkranges").await.expect(200).json();
        let ids: Vec<&str> = ranges["PartitionKeyRanges"]
            .as_array()
            .unwrap()
            .iter()
            .map(|it| it["id"].as_str().unwrap())
            .collect();
        let create = |key: &str| {
            let body = json!({"id": "1", "pk": key});
            let key = format!("[\"{key}\"]");
            json!({"operationType": "Create", "partitionKey": key, "resourceBody": body})
        };
        let mixed = json!([create("a"), create("b")]);
        let low = bulk(&gateway, ids[0], &mixed).await.expect(207);
        assert_eq!(statuses(&low), [410, 201]);
        assert_eq!(low.json()[0]["subStatusCode"], 1002);
        let high = bulk(&gateway, ids[1], &mixed).await.expect(207);
        assert_eq!(statuses(&high), [201, 410]);
    });
}

#[test]
fn bulk_reads_that_an_answer_cannot_hold_are_to_be_sent_again() {
    on_both(|gateway| async move {
        gateway.with_container().await;
        let mut reads = large_items(&gateway, |it| format!("key {it}"), 30).await;
        let mut answers = 0;
        while !reads.is_empty() {
            let sent = Value::from(reads.clone());
            let answered = bulk(&gateway, "0", &sent).await;
            assert!(answered.body.len() < 4200 * 1024, "the answer is too large");
            let results = answered.json();
            let results = results.as_array().unwrap();
            let is_refused = |it: &Value| it["statusCode"] == 413 && it["subStatusCode"] == 3402;
            assert!(results.iter().all(|it| it["statusCode"] == 200 || is_refused(it)));
            let refused = results.iter().zip(&reads).filter(|(result, _)| is_refused(result));
            let left: Vec<Value> = refused.map(|(_, read)| read.clone()).collect();
            assert!(left.len() < reads.len(), "nothing was read");
            (reads, answers) = (left, answers + 1);
        }
        assert!(1 < answers, "everything came at once");
    });
}

#[test]
fn nothing_overtakes_an_operation_that_is_to_be_sent_again() {
    on_both(|gateway| async move {
        gateway.with_container().await;
        let mut operations = large_items(&gateway, |_| "a".to_owned(), 6).await;
        let key = r#"["a"]"#;
        operations.push(patch(key, "0"));
        operations.push(json!({"operationType": "Delete", "id": "0", "partitionKey": key}));
        let answered = bulk(&gateway, "0", &Value::from(operations)).await.expect(207);
        assert_eq!(statuses(&answered)[6..], [413, 413]);
        let found = read(&gateway, "a", "0").await.expect(200);
        assert_eq!(found.json().get("n"), None, "the patch was done all the same");
    });
}

#[test]
fn a_write_does_not_wait_for_a_read_that_is_to_be_sent_again() {
    on_both(|gateway| async move {
        gateway.with_container().await;
        let mut operations = large_items(&gateway, |_| "a".to_owned(), 6).await;
        let key = r#"["a"]"#;
        operations.push(json!({"operationType": "Delete", "id": "0", "partitionKey": key}));
        let answered = bulk(&gateway, "0", &Value::from(operations)).await.expect(207);
        assert_eq!(statuses(&answered)[5..], [413, 204]);
    });
}

#[test]
fn what_an_answer_cannot_hold_takes_no_room_from_what_follows() {
    on_both(|gateway| async move {
        gateway.with_container().await;
        let mut reads = large_items(&gateway, |_| "a".to_owned(), 8).await;
        gateway.item("a", r#"{"id":"small","pk":"a"}"#).await.expect(201);
        let key = r#"["a"]"#;
        reads.push(json!({"operationType": "Read", "id": "small", "partitionKey": key}));
        reads.push(patch(key, "small"));
        let answered = bulk(&gateway, "0", &Value::from(reads)).await.expect(207);
        let expected = [200, 200, 200, 413, 413, 413, 413, 413, 200, 200];
        assert_eq!(statuses(&answered), expected);
    });
}

#[test]
fn patches_are_done_as_far_as_the_answer_holds_what_they_make() {
    on_both(|gateway| async move {
        gateway.with_container().await;
        let key = |number: usize| format!("key {number}");
        large_items(&gateway, key, 8).await;
        let text = |number: usize| json!([key(number)]).to_string();
        let patches = (0..8).map(|it| patch(&text(it), &it.to_string()));
        let answered = bulk(&gateway, "0", &patches.collect()).await.expect(207);
        assert!(answered.body.len() < 4 * 1024 * 1024, "the answer is too large");
        let statuses = statuses(&answered);
        assert_eq!(statuses.iter().filter(|it| **it == 200).count(), 3, "{statuses:?}");
        for (number, status) in statuses.iter().enumerate() {
            let found = read(&gateway, &key(number), &number.to_string()).await.expect(200);
            assert_eq!(found.json()["n"] == 1, *status == 200, "{number}");
        }
        // Small ones, and those that show nothing, are not held up by large ones.
        let small = (0..90).map(|it| patch(r#"["a"]"#, &it.to_string()));
        let create = |id: usize| json!({"id": id.to_string(), "pk": "a"}).to_string();
        for id in 0..90 {
            gateway.item("a", &create(id)).await.expect(201);
        }
        bulk(&gateway, "0", &small.collect()).await.expect(200);
        let minimal = (0..8).map(|it| {
            let mut patch = patch(&text(it), &it.to_string());
            patch["minimalReturnPreference"] = true.into();
            patch
        });
        bulk(&gateway, "0", &minimal.collect()).await.expect(200);
    });
}

#[test]
fn operations_of_a_key_keep_their_order_however_it_is_written() {
    on_both(|gateway| async move {
        gateway.with_container().await;
        let operation = |kind: &str, key: &str| {
            let body = json!({"id": "1", "pk": "a"});
            json!({"operationType": kind, "partitionKey": key, "resourceBody": body, "id": "1"})
        };
        let body = json!([
            operation("Create", r#"["a"]"#),
            operation("Read", r#"[ "a" ]"#),
            operation("Delete", r#"["\u0061"]"#),
            operation("Create", r#"[  "a"]"#),
            operation("Replace", r#" ["a"]"#),
        ]);
        let answered = bulk(&gateway, "0", &body).await.expect(200);
        assert_eq!(statuses(&answered), [201, 200, 204, 201, 200]);
        let none = |kind: &str, key: &str| {
            let body = json!({"id": "1"});
            json!({"operationType": kind, "partitionKey": key, "resourceBody": body, "id": "1"})
        };
        let body = json!([none("Create", "[{}]"), none("Read", "[ ]"), none("Delete", "[]")]);
        let answered = bulk(&gateway, "0", &body).await.expect(200);
        assert_eq!(statuses(&answered), [201, 200, 204]);
    });
}

#[test]
fn a_bulk_request_keeps_to_session_tokens_if_it_reads() {
    on_both(|gateway| async move {
        gateway.with_container().await;
        let created = gateway.item("a", r#"{"id":"1","pk":"a"}"#).await.expect(201);
        let now = created.header("x-ms-session-token").to_owned();
        let read = json!({"operationType": "Read", "id": "1", "partitionKey": "[\"a\"]"});
        let item = json!({"id": "2", "pk": "a"});
        let write = json!({"operationType": "Upsert", "partitionKey": "[\"a\"]",
            "resourceBody": item});
        let send = async |range: Option<&str>, token: &str, operations: &[&Value]| {
            let mut headers = vec![
                ("x-ms-cosmos-is-batch-request", "true"),
                ("x-ms-cosmos-batch-continue-on-error", "true"),
                ("x-ms-session-token", token),
            ];
            headers.extend(range.map(|it| ("x-ms-documentdb-partitionkeyrangeid", it)));
            let body = json!(operations).to_string();
            gateway.ask(Method::POST, ITEMS, &headers, body).await
        };
        for range in [Some("0"), None] {
            let refused = send(range, "0:-1#9999", &[&write, &read]).await.expect(404);
            assert_eq!(refused.header("x-ms-substatus"), "1002");
            send(range, "garbage", &[&read]).await.expect(400);
            send(range, &now, &[&read]).await.expect(200);
        }
        self::read(&gateway, "a", "2").await.expect(404);
        send(Some("0"), "0:-1#9999", &[&write]).await.expect(200);
    });
}

#[test]
fn what_was_written_stays_written_when_the_newest_commit_cannot_be_told() {
    run(async {
        let containers = memory();
        let first = Running::on(Arc::clone(&containers)).await;
        first.with_container().await;
        first.item("a", r#"{"id":"1","pk":"a"}"#).await.expect(201);
        let second = Running::on(containers).await;
        read(&second, "a", "1").await.expect(200);
        // The second gateway does not know of it, and nobody can tell the newest commit of both.
        first.post("/databases/d/containers/c/partitions/0/split", "").await.expect(200);
        let create = |id: &str| {
            let body = json!({"id": id, "pk": "a"});
            json!([{"operationType": "Create", "partitionKey": "[\"a\"]", "resourceBody": body}])
        };
        let done = bulk(&second, "0", &create("2")).await.expect(200);
        assert!(done.header("x-ms-session-token").starts_with("0:-1#"));
        let mixed = json!([create("1")[0], create("3")[0]]);
        let done = bulk(&second, "0", &mixed).await.expect(207);
        assert_eq!(statuses(&done), [409, 201]);
    });
}

#[test]
fn a_bulk_request_finds_the_container_that_another_gateway_made_anew() {
    run(async {
        let containers = memory();
        let first = Running::on(Arc::clone(&containers)).await;
        first.with_container().await;
        let second = Running::on(containers).await;
        second.item("a", r#"{"id":"1","pk":"a"}"#).await.expect(201);
        first.ask(Method::DELETE, "/dbs/d/colls/c", &[], "").await.expect(204);
        let body = r#"{"id":"c","partitionKey":{"paths":["/pk"],"kind":"Hash","version":2}}"#;
        first.post("/dbs/d/colls", body).await.expect(201);
        let body = json!({"id": "2", "pk": "a"});
        let create =
            json!([{"operationType": "Create", "partitionKey": "[\"a\"]", "resourceBody": body}]);
        let done = bulk(&second, "0", &create).await.expect(200);
        assert_eq!(statuses(&done), [201]);
        read(&first, "a", "2").await.expect(200);
        // Nor does it go on for ever where there is none.
        first.ask(Method::DELETE, "/dbs/d/colls/c", &[], "").await.expect(204);
        let gone = bulk(&second, "0", &create).await.expect(404);
        assert_eq!(gone.header("x-ms-substatus"), "1003");
    });
}

async fn read(gateway: &Running, key: &str, id: &str) -> Answered {
    let key = json!([key]).to_string();
    let headers = [("x-ms-documentdb-partitionkey", key.as_str())];
    gateway.ask(Method::GET, &format!("{ITEMS}/{id}"), &headers, "").await
}

/// Sets `n` of an item to 1; `key` as it is sent.
fn patch(key: &str, id: &str) -> Value {
    let patch = json!({"operations": [{"op": "set", "path": "/n", "value": 1}]});
    json!({"operationType": "Patch", "id": id, "partitionKey": key, "resourceBody": patch})
}
