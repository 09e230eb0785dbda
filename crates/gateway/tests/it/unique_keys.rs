//! Unique keys, from the definition of a container to a refused item.

use http::Method;
use serde_json::json;

use crate::client::{Running, on_both};

const CONTAINER: &str = "/dbs/d/colls/c";
const ITEMS: &str = "/dbs/d/colls/c/docs";
const KEY: (&str, &str) = ("x-ms-documentdb-partitionkey", r#"["a"]"#);

async fn with_unique_emails(gateway: &Running) {
    gateway.post("/dbs", r#"{"id":"d"}"#).await.expect(201);
    let body = r#"{"id":"c","partitionKey":{"paths":["/pk"],"kind":"Hash","version":2},
        "uniqueKeyPolicy":{"uniqueKeys":[{"paths":["/email"]},{"paths":["/n/a","/n/b"]}]}}"#;
    let made = gateway.post("/dbs/d/colls", body).await.expect(201).json();
    let policy = json!({ "uniqueKeys": [{ "paths": ["/email"] }, { "paths": ["/n/a", "/n/b"] }] });
    assert_eq!(made["uniqueKeyPolicy"], policy);
}

#[test]
fn a_second_item_with_the_same_values_is_a_conflict() {
    on_both(|gateway| async move {
        with_unique_emails(&gateway).await;
        gateway.item("a", r#"{"id":"1","pk":"a","email":"x","n":{"a":1}}"#).await.expect(201);
        gateway.item("b", r#"{"id":"1","pk":"b","email":"x","n":{"a":1}}"#).await.expect(201);
        let second = r#"{"id":"2","pk":"a","email":"x","n":{"a":2}}"#;
        let refused = gateway.item("a", second).await.expect(409).json();
        assert_eq!(refused["code"], "Conflict");
        let message = refused["message"].as_str().unwrap();
        assert!(message.starts_with("Unique index constraint violation"), "{message}");
        for part in ["item \"1\"", "/email"] {
            assert!(message.contains(part), "{message}");
        }
        let upsert = [KEY, ("x-ms-documentdb-is-upsert", "true")];
        gateway.ask(Method::POST, ITEMS, &upsert, second).await.expect(409);
        gateway.item("a", r#"{"id":"2","pk":"a","email":"y","n":{"a":2}}"#).await.expect(201);
        let path = format!("{ITEMS}/2");
        gateway.ask(Method::PUT, &path, &[KEY], second).await.expect(409);
        let patch = r#"{"operations":[{"op":"set","path":"/n/a","value":1.0}]}"#;
        gateway.ask(Method::PATCH, &path, &[KEY], patch).await.expect(409);
        gateway.ask(Method::DELETE, &format!("{ITEMS}/1"), &[KEY], "").await.expect(204);
        gateway.ask(Method::PUT, &path, &[KEY], second).await.expect(200);
    });
}

#[test]
fn a_batch_that_breaks_a_unique_key_fails_as_a_whole() {
    on_both(|gateway| async move {
        with_unique_emails(&gateway).await;
        let headers = [
            KEY,
            ("x-ms-cosmos-is-batch-request", "True"),
            ("x-ms-cosmos-batch-atomic", "True"),
            ("x-ms-cosmos-batch-continue-on-error", "False"),
        ];
        let body = r#"[
            {"operationType":"Create","resourceBody":{"id":"1","pk":"a","email":"x","n":{"a":1}}},
            {"operationType":"Create","resourceBody":{"id":"2","pk":"a","email":"x","n":{"a":2}}}
        ]"#;
        let results = gateway.ask(Method::POST, ITEMS, &headers, body).await.expect(207).json();
        assert_eq!(results[0]["statusCode"], 424);
        assert_eq!(results[1]["statusCode"], 409);
        gateway.ask(Method::GET, &format!("{ITEMS}/1"), &[KEY], "").await.expect(404);
    });
}

#[test]
fn unique_keys_outlive_a_change_of_the_container_and_are_not_changed_by_it() {
    on_both(|gateway| async move {
        with_unique_emails(&gateway).await;
        let key = r#""partitionKey":{"paths":["/pk"],"kind":"Hash","version":2}"#;
        let silent = format!(r#"{{"id":"c",{key},"defaultTtl":60}}"#);
        let replaced = gateway.ask(Method::PUT, CONTAINER, &[], silent).await.expect(200).json();
        assert_eq!(replaced["uniqueKeyPolicy"]["uniqueKeys"][0]["paths"], json!(["/email"]));
        let other = format!(r#"{{"id":"c",{key},"uniqueKeyPolicy":{{"uniqueKeys":[]}}}}"#);
        let refused = gateway.ask(Method::PUT, CONTAINER, &[], other).await.expect(400).json();
        let message = refused["message"].as_str().unwrap();
        assert!(message.contains("unique keys"), "{message}");
        let many: Vec<_> = (0..11).map(|it| json!({ "paths": [format!("/{it}")] })).collect();
        let many = json!({ "id": "e", "partitionKey": { "paths": ["/pk"] },
            "uniqueKeyPolicy": { "uniqueKeys": many } });
        gateway.post("/dbs/d/colls", &many.to_string()).await.expect(400);
    });
}
