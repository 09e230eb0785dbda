//! Single items: what every SDK does all day.

use bytes::Bytes;
use http::Method;
use millstream_gateway::PUBLIC_EMULATOR_KEY;
use serde_json::{Value, json};

use crate::client::{Answered, Running, on_both, signed};

pub(crate) const ITEMS: &str = "/dbs/d/colls/c/docs";
pub(crate) const KEY: &str = "x-ms-documentdb-partitionkey";

pub(crate) async fn on_item(
    gateway: &Running,
    method: Method,
    id: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> Answered {
    let headers = [&[(KEY, r#"["a"]"#)], headers].concat();
    gateway.ask(method, &format!("{ITEMS}/{id}"), &headers, body.to_owned()).await
}

#[test]
fn an_item_comes_back_as_it_was_written_with_system_properties() {
    on_both(|gateway| async move {
        gateway.with_container().await;
        let body = r#"{"id":"1", "pk":"a", "big":18446744073709551615, "x":1.50e+400}"#;
        let created = gateway.item("a", body).await.expect(201);
        let text = String::from_utf8(created.body.to_vec()).unwrap();
        let unchanged = body.strip_suffix('}').unwrap();
        assert!(text.starts_with(unchanged), "{text}");
        let read = on_item(&gateway, Method::GET, "1", &[], "").await.expect(200);
        assert_eq!(read.body, created.body);
        assert_eq!(read.header("etag"), created.header("etag"));
        for name in ["_rid", "_self", "_etag", "_attachments", "_ts"] {
            assert!(text.contains(&format!("\"{name}\":")), "{name} in {text}");
        }
        assert!(text.contains(&format!("\"_etag\":{:?}", read.header("etag"))), "{text}");
        assert!(read.header("x-ms-session-token").starts_with("0:-1#"));
        assert_eq!(read.header("x-ms-request-charge"), "1.00");
        assert_eq!(read.header("x-ms-alt-content-path"), "dbs/d/colls/c");
    });
}

#[test]
fn a_read_says_which_commit_wrote_the_item_and_every_answer_how_long_it_took() {
    on_both(|gateway| async move {
        gateway.with_container().await;
        let created = gateway.item("a", r#"{"id":"1","pk":"a"}"#).await.expect(201);
        gateway.item("a", r#"{"id":"2","pk":"a"}"#).await.expect(201);
        let read = on_item(&gateway, Method::GET, "1", &[], "").await.expect(200);
        assert_eq!(read.header("x-ms-item-lsn"), created.header("lsn"));
        assert_ne!(read.header("x-ms-item-lsn"), read.header("lsn"));
        let missing = on_item(&gateway, Method::GET, "3", &[], "").await.expect(404);
        for answer in [created, read, missing] {
            let duration: f64 = answer.header("x-ms-request-duration-ms").parse().unwrap();
            assert!(0.0 <= duration, "{duration}");
        }
    });
}

#[test]
fn statuses_are_those_of_the_protocol() {
    on_both(|gateway| async move {
        gateway.with_container().await;
        let body = r#"{"id":"1","pk":"a"}"#;
        gateway.item("a", body).await.expect(201);
        let conflict = gateway.item("a", body).await.expect(409);
        assert_eq!(conflict.json()["code"], "Conflict");
        assert!(!conflict.header("x-ms-session-token").is_empty());
        let missing = on_item(&gateway, Method::GET, "2", &[], "").await.expect(404);
        assert_eq!(missing.json()["code"], "NotFound");
        assert!(!missing.header("x-ms-session-token").is_empty());
        on_item(&gateway, Method::PUT, "2", &[], r#"{"id":"2","pk":"a"}"#).await.expect(404);
        on_item(&gateway, Method::PUT, "1", &[], r#"{"id":"1","pk":"a","v":2}"#).await.expect(200);
        let upsert = [(KEY, r#"["a"]"#), ("x-ms-documentdb-is-upsert", "True")];
        gateway.ask(Method::POST, ITEMS, &upsert, body).await.expect(200);
        let other = r#"{"id":"3","pk":"a"}"#;
        gateway.ask(Method::POST, ITEMS, &upsert, other).await.expect(201);
        let deleted = on_item(&gateway, Method::DELETE, "1", &[], "").await.expect(204);
        assert!(deleted.body.is_empty());
        on_item(&gateway, Method::DELETE, "1", &[], "").await.expect(404);
    });
}

#[test]
fn a_replace_with_another_id_renames_the_item() {
    on_both(|gateway| async move {
        gateway.with_container().await;
        let first = gateway.item("a", r#"{"id":"1","pk":"a"}"#).await.expect(201);
        gateway.item("a", r#"{"id":"taken","pk":"a"}"#).await.expect(201);
        let taken = r#"{"id":"taken","pk":"a"}"#;
        on_item(&gateway, Method::PUT, "1", &[], taken).await.expect(409);
        let other = r#"{"id":"2","pk":"a"}"#;
        on_item(&gateway, Method::PUT, "1", &[("if-match", "\"no\"")], other).await.expect(412);
        let etag = [("if-match", first.header("etag"))];
        let renamed = on_item(&gateway, Method::PUT, "1", &etag, other).await.expect(200);
        assert_eq!(renamed.json()["id"], "2");
        on_item(&gateway, Method::GET, "1", &[], "").await.expect(404);
        on_item(&gateway, Method::GET, "2", &[], "").await.expect(200);
        on_item(&gateway, Method::PUT, "1", &[], other).await.expect(404);
    });
}

#[test]
fn a_question_mark_belongs_to_the_id_however_it_is_spelled() {
    on_both(|gateway| async move {
        gateway.with_container().await;
        for id in ["what?", "a?b=c?d", "a#b", "?first"] {
            gateway.item("a", &json!({"id": id, "pk": "a"}).to_string()).await.expect(201);
        }
        // The SDK for .NET does not encode question marks.
        for (path, id) in [
            ("what?", "what?"),
            ("what%3F", "what?"),
            ("a?b=c?d", "a?b=c?d"),
            ("a%3Fb%3Dc%3Fd", "a?b=c?d"),
            ("a%23b", "a#b"),
            ("?first", "?first"),
        ] {
            let found = on_item(&gateway, Method::GET, path, &[], "").await.expect(200);
            assert_eq!(found.json()["id"], id, "{path}");
        }
        on_item(&gateway, Method::GET, "a", &[], "").await.expect(404);
        // It is no query, even if it looks like one: the signature has to be over it as well.
        gateway.item("a", r#"{"id":"1","pk":"a"}"#).await.expect(201);
        on_item(&gateway, Method::GET, "1?x=1", &[], "").await.expect(404);
        let mut request = signed(Method::GET, &format!("{ITEMS}/1"), PUBLIC_EMULATOR_KEY);
        *request.uri_mut() = format!("{ITEMS}/1?x=1").parse().unwrap();
        gateway.send(request.map(|()| Bytes::new())).await.expect(401);
    });
}

#[test]
fn bad_bodies_are_refused_with_a_sentence() {
    on_both(|gateway| async move {
        gateway.with_container().await;
        let deep = format!(r#"{{"id":"1","pk":"a","x":{}1{}}}"#, "[".repeat(200), "]".repeat(200));
        for body in [
            "",
            "[]",
            r#"{"pk":"a"}"#,
            r#"{"id":7,"pk":"a"}"#,
            r#"{"id":"a/b","pk":"a"}"#,
            r#"{"id":"1","pk":"a","ttl":0}"#,
            r#"{"id":"1","pk":"a","ttl":null}"#,
            r#"{"id":"1","pk":"a""#,
            &deep,
        ] {
            let refused = gateway.item("a", body).await.expect(400);
            assert_eq!(refused.json()["code"], "BadRequest", "{body}");
        }
        let large = format!(r#"{{"id":"1","pk":"a","x":"{}"}}"#, "x".repeat(2 * 1024 * 1024));
        let refused = gateway.item("a", &large).await.expect(413);
        assert!(refused.json()["message"].as_str().unwrap().contains("store an item"));
        assert_eq!(refused.json()["code"], "RequestEntityTooLarge");
    });
}

#[test]
fn etags_guard_against_lost_updates() {
    on_both(|gateway| async move {
        gateway.with_container().await;
        let body = r#"{"id":"1","pk":"a"}"#;
        let first = gateway.item("a", body).await.expect(201);
        let first = first.header("etag").to_owned();
        assert!(first.starts_with('"') && first.ends_with('"'), "{first}");
        let not_modified =
            on_item(&gateway, Method::GET, "1", &[("if-none-match", &first)], "").await;
        assert!(not_modified.expect(304).body.is_empty());
        let if_first = [("if-match", first.as_str())];
        let second = on_item(&gateway, Method::PUT, "1", &if_first, body).await.expect(200);
        assert_ne!(second.header("etag"), first);
        on_item(&gateway, Method::PUT, "1", &if_first, body).await.expect(412);
        on_item(&gateway, Method::DELETE, "1", &if_first, "").await.expect(412);
        let known = [("if-none-match", first.as_str())];
        on_item(&gateway, Method::GET, "1", &known, "").await.expect(200);
        let any =
            [(KEY, r#"["a"]"#), ("x-ms-documentdb-is-upsert", "true"), ("if-none-match", "*")];
        gateway.ask(Method::POST, ITEMS, &any, body).await.expect(412);
        let new = r#"{"id":"2","pk":"a"}"#;
        gateway.ask(Method::POST, ITEMS, &any, new).await.expect(201);
    });
}

#[test]
fn a_write_can_be_answered_without_a_body() {
    on_both(|gateway| async move {
        gateway.with_container().await;
        let minimal = [(KEY, r#"["a"]"#), ("prefer", "return=minimal")];
        let created = gateway.ask(Method::POST, ITEMS, &minimal, r#"{"id":"1","pk":"a"}"#).await;
        let created = created.expect(201);
        assert!(created.body.is_empty());
        assert!(!created.header("etag").is_empty());
        let replaced = on_item(&gateway, Method::PUT, "1", &minimal[1..], r#"{"id":"1","pk":"a"}"#);
        assert!(replaced.await.expect(200).body.is_empty());
        let read = on_item(&gateway, Method::GET, "1", &minimal[1..], "").await.expect(200);
        assert!(!read.body.is_empty());
    });
}

#[test]
fn patches_come_in_both_forms() {
    on_both(|gateway| async move {
        gateway.with_container().await;
        gateway.item("a", r#"{"id":"1","pk":"a","n":1,"list":[1]}"#).await.expect(201);
        let patch = r#"{"operations":[{"op":"incr","path":"/n","value":4}]}"#;
        let patched = on_item(&gateway, Method::PATCH, "1", &[], patch).await.expect(200);
        assert_eq!(patched.json()["n"], 5);
        let bare = r#"[{"op":"add","path":"/list/-","value":2},{"op":"remove","path":"/n"}]"#;
        let patched = on_item(&gateway, Method::PATCH, "1", &[], bare).await.expect(200);
        assert_eq!((&patched.json()["list"], &patched.json()["n"]), (&json!([1, 2]), &Value::Null));
        on_item(&gateway, Method::PATCH, "2", &[], bare).await.expect(404);
        on_item(&gateway, Method::PATCH, "1", &[], bare).await.expect(400);
        on_item(&gateway, Method::PATCH, "1", &[], r#"[{"op":"set","path":"/id","value":"2"}]"#)
            .await
            .expect(400);
        on_item(&gateway, Method::PATCH, "1", &[], "[]").await.expect(400);
        let stale = [("if-match", "\"no\"")];
        let set = r#"[{"op":"set","path":"/n","value":1}]"#;
        on_item(&gateway, Method::PATCH, "1", &stale, set).await.expect(412);
    });
}

#[test]
fn a_patch_may_have_a_condition() {
    on_both(|gateway| async move {
        gateway.with_container().await;
        gateway.item("a", r#"{"id":"1","pk":"a","n":1}"#).await.expect(201);
        let patch = |limit: u32| {
            let set = r#"[{"op":"set","path":"/n","value":2}]"#;
            format!(r#"{{"condition":"from c where c.n < {limit}","operations":{set}}}"#)
        };
        on_item(&gateway, Method::PATCH, "1", &[], &patch(1)).await.expect(412);
        let patched = on_item(&gateway, Method::PATCH, "1", &[], &patch(2)).await.expect(200);
        assert_eq!(patched.json()["n"], 2);
        let system = r#"from c where 0 < c._ts and IS_DEFINED(c._etag) and c._rid != ''"#;
        let set = r#"[{"op":"set","path":"/n","value":3}]"#;
        let patch = format!(r#"{{"condition":"{system}","operations":{set}}}"#);
        on_item(&gateway, Method::PATCH, "1", &[], &patch).await.expect(200);
        let broken = r#"{"condition":"from","operations":[{"op":"set","path":"/n","value":2}]}"#;
        on_item(&gateway, Method::PATCH, "1", &[], broken).await.expect(400);
    });
}

#[test]
fn binary_json_is_read() {
    on_both(|gateway| async move {
        gateway.with_container().await;
        // {"id":"1","pk":"a","n":7}
        let body: &[u8] =
            &[0x80, 0xEA, 11, 0x2C, 0x81, b'1', 0x82, b'p', b'k', 0x81, b'a', 0x81, b'n', 7];
        let headers = [(KEY, r#"["a"]"#)];
        let created = gateway.ask(Method::POST, ITEMS, &headers, body.to_vec()).await.expect(201);
        assert_eq!((&created.json()["n"], &created.json()["id"]), (&json!(7), &json!("1")));
        let broken = gateway.ask(Method::POST, ITEMS, &headers, body[..9].to_vec()).await;
        broken.expect(400);
    });
}

#[test]
fn an_item_can_be_named_by_its_resource_id() {
    on_both(|gateway| async move {
        gateway.with_container().await;
        for id in 0..5 {
            gateway.item("a", &format!(r#"{{"id":"{id}","pk":"a"}}"#)).await.expect(201);
        }
        let created = gateway.item("a", r#"{"id":"x","pk":"a"}"#).await.expect(201).json();
        let link = format!("/{}", created["_self"].as_str().unwrap());
        let headers = [(KEY, r#"["a"]"#)];
        let read = gateway.ask(Method::GET, &link, &headers, "").await.expect(200);
        assert_eq!(read.json()["id"], "x");
        let other = [(KEY, r#"["b"]"#)];
        gateway.ask(Method::GET, &link, &other, "").await.expect(404);
        gateway.ask(Method::DELETE, &link, &headers, "").await.expect(204);
        gateway.ask(Method::GET, &link, &headers, "").await.expect(404);
        on_item(&gateway, Method::GET, "x", &[], "").await.expect(404);
    });
}

#[test]
fn items_are_listed_page_by_page() {
    on_both(|gateway| async move {
        gateway.with_container().await;
        for id in 0..25 {
            let key = id % 3;
            let body = format!(r#"{{"id":"{id}","pk":"{key}"}}"#);
            gateway.item(&key.to_string(), &body).await.expect(201);
        }
        let mut found = Vec::new();
        let mut continuation = String::new();
        loop {
            let mut headers = vec![("x-ms-max-item-count", "10")];
            if !continuation.is_empty() {
                headers.push(("x-ms-continuation", &continuation));
            }
            let page = gateway.ask(Method::GET, ITEMS, &headers, "").await.expect(200);
            let documents = page.json()["Documents"].as_array().unwrap().clone();
            assert_eq!(page.header("x-ms-item-count"), documents.len().to_string());
            found.extend(documents.iter().map(|it| it["id"].as_str().unwrap().to_owned()));
            continuation = page.header("x-ms-continuation").to_owned();
            if continuation.is_empty() {
                break;
            }
        }
        found.sort_by_key(|it| it.parse::<u32>().unwrap());
        let expected: Vec<String> = (0..25).map(|it| it.to_string()).collect();
        assert_eq!(found, expected);
        let one = [(KEY, r#"["1"]"#)];
        let page = gateway.ask(Method::GET, ITEMS, &one, "").await.expect(200);
        assert_eq!(page.json()["_count"], 8);
        let garbage = [("x-ms-continuation", "garbage")];
        gateway.ask(Method::GET, ITEMS, &garbage, "").await.expect(400);
    });
}

/// The ids on all pages of a range from a place on, and the continuation of the first page.
async fn pages_of(gateway: &Running, range: &str, continuation: &str) -> (Vec<String>, String) {
    let (mut found, mut first) = (Vec::new(), None);
    let mut continuation = continuation.to_owned();
    loop {
        let headers = [
            ("x-ms-max-item-count", "3"),
            ("x-ms-documentdb-partitionkeyrangeid", range),
            ("x-ms-continuation", &continuation),
        ];
        let page = gateway.ask(Method::GET, ITEMS, &headers, "").await.expect(200);
        for document in page.json()["Documents"].as_array().unwrap() {
            found.push(document["id"].as_str().unwrap().to_owned());
        }
        continuation = page.header("x-ms-continuation").to_owned();
        first.get_or_insert_with(|| continuation.clone());
        if continuation.is_empty() {
            return (found, first.unwrap());
        }
    }
}

#[test]
fn pages_of_items_go_on_in_the_ranges_that_took_the_place_of_theirs() {
    on_both(|gateway| async move {
        gateway.with_container().await;
        for id in 0..40 {
            let body = format!(r#"{{"id":"{id}","pk":"{}"}}"#, id / 2);
            gateway.item(&(id / 2).to_string(), &body).await.expect(201);
        }
        let (all, after_three) = pages_of(&gateway, "0", "").await;
        assert_eq!(all.len(), 40);
        // A place far into the range lies behind the first half of it.
        let mut places = vec![(3, after_three)];
        while places.len() < 13 {
            let (count, place) = places.last().unwrap();
            let (_, next) = pages_of(&gateway, "0", place).await;
            places.push((count + 3, next));
        }
        gateway.post("/databases/d/containers/c/partitions/0/split", "").await.expect(200);
        for (count, place) in &places {
            let (mut rest, _) = pages_of(&gateway, "1", place).await;
            rest.extend(pages_of(&gateway, "2", place).await.0);
            assert_eq!(rest, all[*count..], "after {count} items");
        }
        let (left, place) = pages_of(&gateway, "1", "").await;
        let merged = r#"{"partitionIds":[1,2]}"#;
        gateway.post("/databases/d/containers/c/partitions/merge", merged).await.expect(200);
        let (rest, _) = pages_of(&gateway, "3", &place).await;
        assert_eq!(rest, left[3..], "the place of a range is one of its keys after a merge, too");
    });
}

#[test]
fn a_session_token_from_the_future_is_refused() {
    on_both(|gateway| async move {
        gateway.with_container().await;
        let created = gateway.item("a", r#"{"id":"1","pk":"a"}"#).await.expect(201);
        let token = created.header("x-ms-session-token").to_owned();
        let now = [("x-ms-session-token", token.as_str())];
        on_item(&gateway, Method::GET, "1", &now, "").await.expect(200);
        let future = [("x-ms-session-token", "0:-1#1000000")];
        let refused = on_item(&gateway, Method::GET, "1", &future, "").await.expect(404);
        assert_eq!(refused.header("x-ms-substatus"), "1002");
        let garbage = [("x-ms-session-token", "garbage")];
        on_item(&gateway, Method::GET, "1", &garbage, "").await.expect(400);
    });
}
