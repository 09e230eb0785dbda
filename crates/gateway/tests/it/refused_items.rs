//! Requests about single items that are refused, and why.

use http::Method;

use crate::client::on_both;
use crate::items::{ITEMS, KEY, on_item};

#[test]
fn refusals_begin_with_the_words_that_programs_look_for() {
    on_both(|gateway| async move {
        gateway.with_container().await;
        let body = r#"{"id":"1","pk":"a"}"#;
        gateway.item("a", body).await.expect(201);
        let none = [("if-match", "\"none\"")];
        let patch = r#"{"operations":[{"op":"set","path":"/n","value":1}]}"#;
        let no_item = "Entity with the specified id does not exist in the system";
        let no_resource = "Resource Not Found";
        for (answer, status, words) in [
            (
                gateway.item("a", body).await,
                409,
                "Entity with the specified id already exists in the system",
            ),
            (
                on_item(&gateway, Method::PUT, "1", &none, body).await,
                412,
                "One of the specified pre-condition is not met",
            ),
            (on_item(&gateway, Method::GET, "2", &[], "").await, 404, no_item),
            (on_item(&gateway, Method::PATCH, "2", &[], patch).await, 404, no_item),
            (on_item(&gateway, Method::DELETE, "2", &[], "").await, 404, no_item),
            (gateway.get("/dbs/none").await, 404, no_resource),
            (gateway.get("/dbs/d/colls/none").await, 404, no_resource),
            (
                gateway.post("/dbs", r#"{"id":"d"}"#).await,
                409,
                "Resource with specified id or name already exists",
            ),
        ] {
            let refused = answer.expect(status).json();
            let message = refused["message"].as_str().unwrap();
            assert!(message.starts_with(words), "{message}");
        }
    });
}

#[test]
fn a_key_that_is_not_that_of_the_body_is_refused() {
    on_both(|gateway| async move {
        gateway.with_container().await;
        let mismatch = gateway.item("a", r#"{"id":"1","pk":"b"}"#).await.expect(400);
        assert_eq!(mismatch.header("x-ms-substatus"), "1001");
        let without = gateway.ask(Method::POST, ITEMS, &[], r#"{"id":"1","pk":"a"}"#).await;
        without.expect(400);
        gateway.ask(Method::GET, "/dbs/d/colls/c/docs/1", &[], "").await.expect(400);
        let many = [(KEY, r#"["a","b"]"#)];
        let many = gateway.ask(Method::POST, ITEMS, &many, r#"{"id":"1","pk":"a"}"#).await;
        assert_eq!(many.expect(400).header("x-ms-substatus"), "1001");
        let none = [(KEY, "[{}]")];
        gateway.ask(Method::POST, ITEMS, &none, r#"{"id":"1"}"#).await.expect(201);
        gateway.ask(Method::GET, "/dbs/d/colls/c/docs/1", &none, "").await.expect(200);
        let empty = [(KEY, "[]")];
        gateway.ask(Method::GET, "/dbs/d/colls/c/docs/1", &empty, "").await.expect(200);
    });
}

#[test]
fn what_is_not_there_is_not_replaced_whatever_the_body_says() {
    on_both(|gateway| async move {
        gateway.with_container().await;
        // With another partition key than that of the request, too: tests of the SDK for .NET
        // expect so, and that the client learns what the range has seen.
        let misfits = [r#"{"id":"1","pk":"b"}"#, r#"{"id":"2","pk":"b"}"#, "{}"];
        let broken = ["", r#"{"pk":"a"}"#];
        for body in misfits.iter().chain(&broken).chain(&[r#"{"id":"1","pk":"a"}"#]) {
            let refused = on_item(&gateway, Method::PUT, "1", &[], body).await.expect(404);
            assert_eq!(refused.header("x-ms-substatus"), "", "{body}");
            assert!(refused.header("x-ms-session-token").starts_with("0:-1#"), "{body}");
        }
        gateway.item("a", r#"{"id":"1","pk":"a"}"#).await.expect(201);
        for body in misfits {
            let refused = on_item(&gateway, Method::PUT, "1", &[], body).await.expect(400);
            assert_eq!(refused.header("x-ms-substatus"), "1001", "{body}");
        }
        for body in broken {
            let refused = on_item(&gateway, Method::PUT, "1", &[], body).await.expect(400);
            assert_eq!(refused.header("x-ms-substatus"), "", "{body}");
        }
    });
}
