use axum::body::Body;
use serde_json::{Value, json};

use crate::world::{Answer, World, ada};

#[track_caller]
fn check(answer: &Answer, status: u16, detail: &str) {
    assert_eq!(answer.status, status, "{answer:?}");
    assert_eq!(answer.header("content-type"), "application/problem+json");
    assert_eq!(answer.body["type"], "about:blank");
    assert_eq!(answer.body["status"], status);
    assert!(!answer.body["title"].as_str().unwrap().is_empty());
    let found = answer.body["detail"].as_str().unwrap();
    assert!(found.contains(detail), "{found}");
}

#[tokio::test]
async fn fields_that_are_wrong_are_named() {
    let world = World::new().await;
    let wrong = json!({"firstName": " ", "email": "nowhere", "description": "x".repeat(501)});
    let answer = world.post("/api/contacts", wrong).await;
    check(&answer, 400, "some fields are wrong");
    let expected = json!({
        "companyName": ["must not be empty"],
        "description": ["must have at most 500 characters"],
        "email": ["must be an address such as ada@example.com"],
        "firstName": ["must not be empty"],
        "lastName": ["must not be empty"],
    });
    assert_eq!(answer.body["errors"], expected);

    let path = world.created().await;
    for (update, body, field) in [
        ("update-name", json!({"firstName": "Ada"}), "lastName"),
        ("update-description", json!({"description": "x".repeat(501)}), "description"),
        ("update-email", json!({"email": "a@"}), "email"),
        (
            "update-company",
            json!({"companyName": "A", "houseNumber": "12345678901"}),
            "houseNumber",
        ),
    ] {
        let answer = world.post(&format!("{path}/{update}"), body).await;
        check(&answer, 400, "some fields are wrong");
        assert!(answer.body["errors"][field].is_array(), "{update}");
    }
    for query in ["pageSize=0", "pageSize=101", "pageSize=ten", "pageSize=-1"] {
        let answer = world.get(&format!("/api/contacts?{query}")).await;
        check(&answer, 400, "some fields are wrong");
        assert_eq!(answer.body["errors"]["pageSize"], json!(["must be a number from 1 to 100"]));
    }
    let answer = world.get("/api/contacts?continuation=nonsense").await;
    check(&answer, 400, "some fields are wrong");
    assert!(answer.body["errors"]["continuation"].is_array());
    assert_eq!(world.actions().await, ["ContactCreated"]);
}

#[tokio::test]
async fn a_body_that_is_not_as_expected_is_refused_with_a_reason() {
    let world = World::new().await;
    let json_type = [("content-type", "application/json")];
    for (body, reason) in [
        ("", "EOF"),
        ("{", "EOF"),
        ("[]", "firstName"),
        (r#"{"firstName": 1}"#, "invalid type"),
        (r#"{"nickname": "Ada"}"#, "unknown field `nickname`"),
    ] {
        let answer = world.send("POST /api/contacts", &json_type, body).await;
        let detail = if body == "[]" { "" } else { reason };
        check(&answer, 400, detail);
    }
    let answer = world.send("POST /api/contacts", &[], ada().to_string()).await;
    check(&answer, 415, "application/json");
    let xml = [("content-type", "application/xml")];
    check(&world.send("POST /api/contacts", &xml, "<a/>").await, 415, "application/json");

    let mut large = ada();
    large["description"] = Value::from("x".repeat(64 * 1024));
    check(&world.post("/api/contacts", large).await, 413, "at most 64 KiB");
    // A body whose size nobody says is counted as it comes.
    let chunk: Result<_, std::io::Error> = Ok(vec![b' '; 40 * 1024]);
    let again: Result<_, std::io::Error> = Ok(vec![b' '; 40 * 1024]);
    let stream = Body::from_stream(futures_util::stream::iter([chunk, again]));
    check(&world.send("POST /api/contacts", &json_type, stream).await, 413, "at most 64 KiB");
    assert!(world.items().await.is_empty());
}

#[tokio::test]
async fn what_is_not_there_is_not_found() {
    let world = World::new().await;
    for path in ["00000000-0000-0000-0000-0000000000ff", "17", "%FF"] {
        let path = format!("/api/contacts/{path}");
        check(&world.get(&path).await, 404, "there is no contact with this id");
        let answer = world.send(&format!("DELETE {path}"), &[], Body::empty()).await;
        check(&answer, 404, "there is no contact with this id");
        for (update, body) in [
            ("update-name", json!({"firstName": "A", "lastName": "B"})),
            ("update-description", json!({})),
            ("update-email", json!({})),
            ("update-company", json!({"companyName": "C"})),
        ] {
            let answer = world.post(&format!("{path}/{update}"), body).await;
            check(&answer, 404, "there is no contact with this id");
        }
    }
    check(&world.get("/api/people").await, 404, "there is nothing here");
    let answer = world.send("PUT /api/contacts", &[], Body::empty()).await;
    check(&answer, 405, "other methods");
}

#[tokio::test]
async fn a_store_that_is_busy_or_away_says_when_to_come_back() {
    let world = World::new().await;
    world.faults.plan("o");
    let answer = world.post("/api/contacts", ada()).await;
    check(&answer, 429, "nothing was changed");
    assert_eq!(answer.header("retry-after"), "3");

    world.faults.plan("d");
    let answer = world.post("/api/contacts", ada()).await;
    check(&answer, 503, "nothing was changed");
    assert_eq!(answer.header("retry-after"), "1");

    world.faults.plan("rrr");
    let answer = world.post("/api/contacts", ada()).await;
    check(&answer, 503, "may have been made");
    assert_eq!(answer.header("retry-after"), "1");

    let path = world.created().await;
    world.faults.set_down(true);
    for path in [path.as_str(), "/api/contacts"] {
        let answer = world.get(path).await;
        check(&answer, 503, "the store cannot be reached");
        assert_eq!(answer.header("retry-after"), "1");
    }
}
