//! Transactional batches and bulk requests.

use http::Method;
use serde_json::{Value, json};

use crate::bulk::bulk;
use crate::client::{Answered, Running, on_both};

const ITEMS: &str = "/dbs/d/colls/c/docs";

async fn batch(gateway: &Running, key: &str, body: &str) -> Answered {
    let headers = [
        ("x-ms-documentdb-partitionkey", key),
        ("x-ms-cosmos-is-batch-request", "True"),
        ("x-ms-cosmos-batch-atomic", "True"),
        ("x-ms-cosmos-batch-continue-on-error", "False"),
    ];
    gateway.ask(Method::POST, ITEMS, &headers, body.to_owned()).await
}

pub(crate) fn statuses(answered: &Answered) -> Vec<u64> {
    let results = answered.json();
    let results = results.as_array().unwrap();
    results.iter().map(|it| it["statusCode"].as_u64().unwrap()).collect()
}

#[test]
fn a_batch_does_every_kind_of_operation() {
    on_both(|gateway| async move {
        gateway.with_container().await;
        gateway.item("a", r#"{"id":"old","pk":"a"}"#).await.expect(201);
        let body = r#"[
            {"operationType":"Create","resourceBody":{"id":"1","pk":"a", "n":1.50}},
            {"operationType":"Upsert","resourceBody":{"id":"2","pk":"a"}},
            {"operationType":"Replace","id":"1","resourceBody":{"id":"1","pk":"a","n":2}},
            {"operationType":"Patch","id":"1","resourceBody":
                {"operations":[{"op":"incr","path":"/n","value":3}]}},
            {"operationType":"Read","id":"1"},
            {"operationType":"Delete","id":"old"},
            {"operationType":"Upsert","resourceBody":{"id":"2","pk":"a"},
                "minimalReturnPreference":true}
        ]"#;
        let answered = batch(&gateway, r#"["a"]"#, body).await.expect(200);
        assert_eq!(statuses(&answered), [201, 201, 200, 200, 200, 204, 200]);
        let results = answered.json();
        assert_eq!(results[4]["resourceBody"]["n"], 5);
        assert_eq!(results[4]["eTag"], results[4]["resourceBody"]["_etag"]);
        assert_eq!(results[5].get("resourceBody"), None);
        assert_eq!(results[6].get("resourceBody"), None);
        assert!(results[0]["requestCharge"].as_f64().is_some_and(|it| 0.0 < it));
        assert!(answered.header("x-ms-session-token").starts_with("0:-1#"));
    });
}

#[test]
fn a_failed_batch_changes_nothing_and_names_the_operation() {
    on_both(|gateway| async move {
        gateway.with_container().await;
        gateway.item("a", r#"{"id":"1","pk":"a"}"#).await.expect(201);
        let check = async |body: &str, expected: &[u64]| {
            let answered = batch(&gateway, r#"["a"]"#, body).await.expect(207);
            assert_eq!(statuses(&answered), expected, "{body}");
            // A client that reads JSON takes whatever is there for an item.
            let results = answered.json();
            let results = results.as_array().unwrap();
            assert!(results.iter().all(|it| it.get("resourceBody").is_none()), "{body}");
        };
        let create = r#"{"operationType":"Create","resourceBody":{"id":"2","pk":"a"}}"#;
        let again = r#"{"operationType":"Create","resourceBody":{"id":"1","pk":"a"}}"#;
        check(&format!("[{create},{again}]"), &[424, 409]).await;
        let other = r#"{"operationType":"Create","resourceBody":{"id":"3","pk":"b"}}"#;
        check(&format!("[{create},{other},{create}]"), &[424, 400, 424]).await;
        check(&format!(r#"[{create},{{"operationType":"Read","id":"9"}}]"#), &[424, 404]).await;
        check(&format!(r#"[{create},{{"operationType":"Read"}}]"#), &[424, 400]).await;
        let stale = r#"{"operationType":"Delete","id":"1","ifMatch":"\"stale\""}"#;
        check(&format!("[{create},{stale}]"), &[424, 412]).await;
        let headers = [("x-ms-documentdb-partitionkey", r#"["a"]"#)];
        let path = format!("{ITEMS}/2");
        gateway.ask(Method::GET, &path, &headers, "").await.expect(404);
    });
}

#[test]
fn an_operation_for_another_partition_key_than_that_of_the_batch_is_refused() {
    on_both(|gateway| async move {
        gateway.with_container().await;
        gateway.item("a", r#"{"id":"1","pk":"a"}"#).await.expect(201);
        let delete =
            |key: &str| format!(r#"[{{"operationType":"Delete","partitionKey":{key},"id":"1"}}]"#);
        for key in [r#""[\"b\"]""#, r#""[]""#, r#""[1,2]""#, r#""nonsense""#] {
            let refused = batch(&gateway, r#"["a"]"#, &delete(key)).await.expect(207);
            assert_eq!(statuses(&refused), [400], "{key}");
        }
        batch(&gateway, r#"["a"]"#, &delete(r#""[\"a\"]""#)).await.expect(200);
    });
}

#[test]
fn a_replace_in_a_batch_may_rename() {
    on_both(|gateway| async move {
        gateway.with_container().await;
        gateway.item("a", r#"{"id":"1","pk":"a"}"#).await.expect(201);
        let rename = r#"{"operationType":"Replace","id":"1","resourceBody":{"id":"2","pk":"a"}}"#;
        let read = |id: &str| format!(r#"{{"operationType":"Read","id":"{id}"}}"#);
        let missing = format!("[{},{rename},{}]", read("1"), read("1"));
        let refused = batch(&gateway, r#"["a"]"#, &missing).await.expect(207);
        assert_eq!(statuses(&refused), [424, 424, 404]);
        let renamed = format!("[{},{rename},{}]", read("1"), read("2"));
        let done = batch(&gateway, r#"["a"]"#, &renamed).await.expect(200);
        assert_eq!(statuses(&done), [200, 200, 200]);
        assert_eq!(done.json()[1]["resourceBody"]["id"], "2");
    });
}

#[test]
fn batches_have_limits() {
    on_both(|gateway| async move {
        gateway.with_container().await;
        let none = batch(&gateway, r#"["a"]"#, "[]").await.expect(400);
        assert_eq!(none.json()["message"], "Batch request has no operations.");
        let many = vec![json!({"operationType": "Read", "id": "1"}); 101];
        let many = batch(&gateway, r#"["a"]"#, &Value::from(many).to_string()).await.expect(400);
        let message = "Batch request has more operations than what is supported.";
        assert_eq!(many.json()["message"], message);
        let half = "x".repeat(1100 * 1024);
        let large: Vec<Value> = (0..2)
            .map(|id| {
                let body = json!({"id": id.to_string(), "pk": "a", "x": half});
                json!({"operationType": "Create", "resourceBody": body})
            })
            .collect();
        let large = batch(&gateway, r#"["a"]"#, &Value::from(large).to_string()).await.expect(413);
        assert_eq!(large.json()["code"], "RequestEntityTooLarge");
        batch(&gateway, r#"["a"]"#, "{").await.expect(400);
        batch(&gateway, r#"["a"]"#, r#"[{"operationType":"Dance"}]"#).await.expect(400);
    });
}

#[test]
fn a_batch_in_hybrid_row_is_answered_in_hybrid_row() {
    on_both(|gateway| async move {
        gateway.with_container().await;
        let body = br#"{"id":"1","pk":"a"}"#.to_vec();
        let stream = creates_in_hybrid_row(&[body.clone(), body]);
        let headers = [
            ("x-ms-documentdb-partitionkey", r#"["a"]"#),
            ("x-ms-cosmos-is-batch-request", "True"),
            ("x-ms-cosmos-batch-atomic", "True"),
        ];
        let answered = gateway.ask(Method::POST, ITEMS, &headers, stream).await.expect(207);
        let results = &answered.body;
        // A segment, then records of 13 bytes and rows whose status stands at byte 6.
        assert_eq!(results[..5], [0x81, 0xF0, 0xD8, 0xFF, 0x7F]);
        let first = 10 + 13;
        let length = usize::from(results[10 + 5]);
        let second = first + length + 13;
        assert_eq!(results[first + 6..first + 8], 424u16.to_le_bytes());
        assert_eq!(results[second + 6..second + 8], 409u16.to_le_bytes());
        // The SDK for .NET takes the message from the body of the result that failed, which is the
        // fourth column of the row; after two numbers it begins with its length, 7 bits in a byte.
        assert_eq!((results[first + 5], results[second + 5]), (0b0011, 0b1011));
        let body = &results[second + 14..];
        let length = usize::from(body[0] & 0x7F) | usize::from(body[1]) << 7;
        let refusal: Value = serde_json::from_slice(&body[2..2 + length]).unwrap();
        assert_eq!(refusal["code"], "Conflict");
        let message = refusal["message"].as_str().unwrap();
        assert!(message.starts_with("Entity with the specified id already exists"), "{message}");
    });
}

/// A batch of operations that create these items.
fn creates_in_hybrid_row(bodies: &[Vec<u8>]) -> Vec<u8> {
    let mut stream = vec![0x81, 0xF0, 0xD8, 0xFF, 0x7F, 1, 10, 0, 0, 0];
    for body in bodies {
        let mut row = vec![0x81, 0x70, 0x54, 0xE1, 0x7F, 0b0100_0011, 0, 0, 0, 0, 2, 0, 0, 0];
        let mut length = body.len();
        while 0x80 <= length {
            row.push(u8::try_from(length & 0x7F | 0x80).unwrap());
            length >>= 7;
        }
        row.push(u8::try_from(length).unwrap());
        row.extend(body);
        stream.extend([0x81, 0xF1, 0xD8, 0xFF, 0x7F]);
        stream.extend(i32::try_from(row.len()).unwrap().to_le_bytes());
        stream.extend(crc32(&row).to_le_bytes());
        stream.extend(&row);
    }
    stream
}

/// An item with an array of a string of 10,000 bytes and so many references to it.
fn binary_item(id: u8, references: u16) -> Vec<u8> {
    let mut body = vec![0x80, 0xEC, 0, 0, 0, 0, 0x2C, 0x81, id, 0x82, b'p', b'k'];
    body.extend([0x81, b'a', 0x81, b'l', 0xE4]);
    body.extend((3 + 10_000 + 3 * u32::from(references)).to_le_bytes());
    let place = u16::try_from(body.len()).unwrap();
    body.extend([0xC1, 0x10, 0x27]);
    body.extend([b's'; 10_000]);
    for _ in 0..references {
        body.push(0xC4);
        body.extend(place.to_le_bytes());
    }
    let members = u32::try_from(body.len() - 6).unwrap();
    body[2..6].copy_from_slice(&members.to_le_bytes());
    body
}

async fn create_in_bulk(gateway: &Running, items: &[Vec<u8>]) -> Answered {
    let headers = [
        ("x-ms-documentdb-partitionkey", r#"["a"]"#),
        ("x-ms-cosmos-is-batch-request", "True"),
        ("x-ms-cosmos-batch-continue-on-error", "True"),
    ];
    gateway.ask(Method::POST, ITEMS, &headers, creates_in_hybrid_row(items)).await
}

#[test]
fn binary_bodies_that_refer_to_one_string_again_and_again_are_limited() {
    on_both(|gateway| async move {
        gateway.with_container().await;
        let items: Vec<Vec<u8>> = (b'0'..=b'9').map(|id| binary_item(id, 100)).collect();
        create_in_bulk(&gateway, &items).await.expect(413);
        let read = [("x-ms-documentdb-partitionkey", r#"["a"]"#)];
        gateway.ask(Method::GET, &format!("{ITEMS}/0"), &read, "").await.expect(404);
        create_in_bulk(&gateway, &items[..5]).await.expect(200);
        let found = gateway.ask(Method::GET, &format!("{ITEMS}/4"), &read, "").await.expect(200);
        assert!(1_000_000 < found.body.len());
    });
}

#[test]
fn a_binary_body_that_is_too_large_as_text_is_refused_with_all_that_came_with_it() {
    on_both(|gateway| async move {
        gateway.with_container().await;
        let items = [binary_item(b'0', 1), binary_item(b'1', 1000)];
        let refused = create_in_bulk(&gateway, &items).await.expect(413).json();
        let message = refused["message"].as_str().unwrap();
        assert!(message.starts_with("the body of operation 1 has more than 4194304"), "{message}");
        let read = [("x-ms-documentdb-partitionkey", r#"["a"]"#)];
        gateway.ask(Method::GET, &format!("{ITEMS}/0"), &read, "").await.expect(404);
        // One that is no binary JSON at all is a matter of its operation alone.
        let items = [binary_item(b'0', 1), vec![0x80, 0xFF]];
        create_in_bulk(&gateway, &items).await.expect(207);
        gateway.ask(Method::GET, &format!("{ITEMS}/0"), &read, "").await.expect(200);
    });
}

fn crc32(bytes: &[u8]) -> u32 {
    let mut crc = u32::MAX;
    for byte in bytes {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = if crc & 1 == 1 { 0xEDB8_8320 ^ (crc >> 1) } else { crc >> 1 };
        }
    }
    !crc
}

/// Items of a MiB each, and operations that read them.
pub(crate) async fn large_items(
    gateway: &Running,
    key: impl Fn(usize) -> String,
    count: usize,
) -> Vec<Value> {
    let text = "x".repeat(1024 * 1024);
    for number in 0..count {
        let item = json!({ "id": number.to_string(), "pk": key(number), "text": text });
        gateway.item(&key(number), &item.to_string()).await.expect(201);
    }
    let read = |number: usize| {
        json!({
            "operationType": "Read",
            "id": number.to_string(),
            "partitionKey": json!([key(number)]).to_string(),
        })
    };
    (0..count).map(read).collect()
}

#[test]
fn a_batch_that_reads_too_much_is_refused() {
    on_both(|gateway| async move {
        gateway.with_container().await;
        let reads = large_items(&gateway, |_| "a".to_owned(), 5).await;
        let body = Value::from(reads[..3].to_vec()).to_string();
        batch(&gateway, r#"["a"]"#, &body).await.expect(200);
        let answered = batch(&gateway, r#"["a"]"#, &Value::from(reads).to_string()).await;
        assert_eq!(statuses(&answered.expect(207)), [424, 424, 424, 413, 424]);
    });
}

#[test]
fn a_batch_keeps_to_session_tokens_if_it_reads() {
    on_both(|gateway| async move {
        gateway.with_container().await;
        gateway.item("a", r#"{"id":"1","pk":"a"}"#).await.expect(201);
        let send = async |body: &str| {
            let headers = [
                ("x-ms-documentdb-partitionkey", r#"["a"]"#),
                ("x-ms-cosmos-is-batch-request", "True"),
                ("x-ms-cosmos-batch-atomic", "True"),
                ("x-ms-session-token", "0:-1#9999"),
            ];
            gateway.ask(Method::POST, ITEMS, &headers, body.to_owned()).await
        };
        let read = r#"{"operationType":"Read","id":"1"}"#;
        let write = r#"{"operationType":"Create","resourceBody":{"id":"2","pk":"a"}}"#;
        let refused = send(&format!("[{write},{read}]")).await.expect(404);
        assert_eq!(refused.header("x-ms-substatus"), "1002");
        send(&format!("[{write}]")).await.expect(200);
    });
}

#[test]
fn every_answer_to_a_batch_says_what_was_seen_of_which_range() {
    on_both(|gateway| async move {
        gateway.with_container().await;
        gateway.item("a", r#"{"id":"1","pk":"a"}"#).await.expect(201);
        for (body, status) in [
            (r#"[{"operationType":"Read","id":"1"}]"#, 200),
            (r#"[{"operationType":"Read","id":"none"}]"#, 207),
            (r#"[{"operationType":"Create","resourceBody":{"id":"2","pk":"b"}}]"#, 207),
        ] {
            let answered = batch(&gateway, r#"["a"]"#, body).await.expect(status);
            assert_eq!(answered.header("x-ms-documentdb-partitionkeyrangeid"), "0", "{body}");
            assert!(answered.header("x-ms-session-token").starts_with("0:-1#"), "{body}");
        }
        let read = json!([{"operationType": "Read", "id": "1", "partitionKey": "[\"a\"]"}]);
        let answered = bulk(&gateway, "0", &read).await.expect(200);
        assert_eq!(answered.header("x-ms-documentdb-partitionkeyrangeid"), "0");
        let wrong = json!([{"operationType": "Read", "partitionKey": "[\"a\"]"}]);
        let answered = bulk(&gateway, "0", &wrong).await.expect(207);
        assert_eq!(answered.header("x-ms-documentdb-partitionkeyrangeid"), "0");
    });
}

#[test]
fn a_batch_with_an_item_that_has_not_changed_has_several_statuses() {
    on_both(|gateway| async move {
        gateway.with_container().await;
        let created = gateway.item("a", r#"{"id":"1","pk":"a"}"#).await.expect(201);
        let known = created.json()["_etag"].clone();
        let body = json!([
            {"operationType": "Read", "id": "1", "ifNoneMatch": known},
            {"operationType": "Create", "resourceBody": {"id": "2", "pk": "a"}},
        ]);
        let answered = batch(&gateway, r#"["a"]"#, &body.to_string()).await.expect(207);
        assert_eq!(statuses(&answered), [304, 201]);
    });
}

#[test]
fn the_conditions_of_a_batch_are_limited_together() {
    on_both(|gateway| async move {
        gateway.with_container().await;
        let array = vec!["1"; 30].join(",");
        let item = format!(r#"{{"id":"1","pk":"a","n":0,"array":[{array}]}}"#);
        gateway.item("a", &item).await.expect(201);
        let condition = "FROM c WHERE NOT EXISTS(SELECT VALUE 1 FROM x IN c.array \
                         JOIN y IN c.array JOIN z IN c.array WHERE x < 0)";
        let patch = |condition: &str| {
            let operations = json!([{"op": "incr", "path": "/n", "value": 1}]);
            let body = json!({"condition": condition, "operations": operations});
            json!({"operationType": "Patch", "id": "1", "resourceBody": body})
        };
        let few = Value::Array(vec![patch(condition); 2]).to_string();
        let answered = batch(&gateway, r#"["a"]"#, &few).await.expect(200);
        assert_eq!(statuses(&answered), [200, 200]);
        let many = Value::Array(vec![patch(condition); 10]).to_string();
        let answered = batch(&gateway, r#"["a"]"#, &many).await.expect(207);
        let mut statuses = statuses(&answered);
        statuses.retain(|it| *it != 424);
        assert_eq!(statuses, [400]);
        let plain = Value::Array(vec![patch("FROM c WHERE 0 < c.n"); 100]).to_string();
        batch(&gateway, r#"["a"]"#, &plain).await.expect(200);
    });
}
