//! Lists of databases, containers and offers, and queries over them, while they change.

use http::Method;
use millstream_gateway::GatewayOptions;
use serde_json::{Value, json};

use crate::client::{Answered, Backend, Running, on_both, run};

const CONTINUATION: &str = "x-ms-continuation";
const COLLECTIONS: &str = "/dbs/d/colls";

/// What a list is asked with: nothing, or a query.
type Asked = Option<&'static str>;

async fn page(
    gateway: &Running,
    path: &str,
    query: Asked,
    size: usize,
    continuation: &str,
) -> Answered {
    let size = size.to_string();
    let mut headers = vec![("x-ms-max-item-count", size.as_str()), (CONTINUATION, continuation)];
    let Some(query) = query else { return gateway.ask(Method::GET, path, &headers, "").await };
    headers.push(("x-ms-documentdb-isquery", "True"));
    headers.push(("content-type", "application/query+json"));
    let body = json!({ "query": query, "parameters": [] }).to_string();
    gateway.ask(Method::POST, path, &headers, body).await
}

fn rows(answered: &Answered) -> Vec<Value> {
    let body = answered.json();
    let lists = ["Databases", "DocumentCollections", "Offers"];
    let list = lists.iter().find_map(|it| body[*it].as_array()).unwrap();
    assert_eq!(body["_count"], list.len());
    list.clone()
}

fn ids(answered: &Answered) -> Vec<String> {
    rows(answered).iter().map(|it| it["id"].as_str().unwrap().to_owned()).collect()
}

async fn create(gateway: &Running, path: &str, name: &str) {
    let key = json!({ "paths": ["/pk"], "kind": "Hash", "version": 2 });
    let body = json!({ "id": name, "partitionKey": key }).to_string();
    gateway.post(path, &body).await.expect(201);
}

async fn delete(gateway: &Running, path: &str, name: &str) {
    gateway.ask(Method::DELETE, &format!("{path}/{name}"), &[], "").await.expect(204);
}

/// Reads all, and deletes what was read before the next page is asked for.
async fn delete_while_listing(gateway: &Running, path: &str, query: Asked, size: usize) {
    let mut continuation = String::new();
    loop {
        let answered = page(gateway, path, query, size, &continuation).await.expect(200);
        for id in ids(&answered) {
            delete(gateway, path, &id).await;
        }
        answered.header(CONTINUATION).clone_into(&mut continuation);
        if continuation.is_empty() {
            break;
        }
    }
    assert_eq!(ids(&gateway.get(path).await.expect(200)), [""; 0], "{query:?}");
}

#[test]
fn what_is_deleted_while_it_is_listed_leaves_nothing_out() {
    on_both(|gateway| async move {
        for query in
            [None, Some("SELECT * FROM c"), Some("select * from c where startswith(c.id, 'c')")]
        {
            for number in 0..8 {
                create(&gateway, "/dbs", &format!("c{number}")).await;
            }
            delete_while_listing(&gateway, "/dbs", query, 3).await;
            create(&gateway, "/dbs", "d").await;
            for number in 0..8 {
                create(&gateway, COLLECTIONS, &format!("c{number}")).await;
            }
            delete_while_listing(&gateway, COLLECTIONS, query, 3).await;
            delete(&gateway, "/dbs", "d").await;
        }
    });
}

#[test]
fn pages_of_the_usual_size_leave_nothing_out() {
    run(async {
        let gateway = Running::start(Backend::Memory, GatewayOptions::default()).await;
        create(&gateway, "/dbs", "d").await;
        for number in 0..130 {
            create(&gateway, COLLECTIONS, &format!("c{number:03}")).await;
        }
        let first = gateway.get(COLLECTIONS).await.expect(200);
        assert_eq!(rows(&first).len(), 100);
        for id in ids(&first) {
            delete(&gateway, COLLECTIONS, &id).await;
        }
        let next = (CONTINUATION, first.header(CONTINUATION));
        let second = gateway.ask(Method::GET, COLLECTIONS, &[next], "").await.expect(200);
        assert_eq!(rows(&second).len(), 30);
        assert_eq!(second.header(CONTINUATION), "");
    });
}

#[test]
fn what_is_created_while_it_is_listed_repeats_nothing() {
    on_both(|gateway| async move {
        for name in ["b", "d", "f", "h"] {
            create(&gateway, "/dbs", name).await;
        }
        for query in [None, Some("SELECT * FROM c")] {
            let first = page(&gateway, "/dbs", query, 2, "").await.expect(200);
            assert_eq!(ids(&first), ["b", "d"]);
            for name in ["a", "c", "e"] {
                create(&gateway, "/dbs", name).await;
            }
            let next = first.header(CONTINUATION);
            let second = page(&gateway, "/dbs", query, 3, next).await.expect(200);
            assert_eq!(ids(&second), ["e", "f", "h"]);
            assert_eq!(second.header(CONTINUATION), "");
            for name in ["a", "c", "e"] {
                delete(&gateway, "/dbs", name).await;
            }
        }
    });
}

#[test]
fn offers_are_listed_behind_the_last_one() {
    on_both(|gateway| async move {
        for query in [None, Some("SELECT * FROM root")] {
            // Names whose order would be another if they were compared as one text.
            for database in ["a", "a-b", "ü"] {
                create(&gateway, "/dbs", database).await;
                for container in ["x", "y"] {
                    create(&gateway, &format!("/dbs/{database}/colls"), container).await;
                }
            }
            let all = ids(&gateway.get("/offers").await.expect(200));
            assert_eq!(all.len(), 6);
            let first = page(&gateway, "/offers", query, 3, "").await.expect(200);
            assert_eq!(ids(&first), all[..3]);
            delete(&gateway, "/dbs", "a").await;
            delete(&gateway, "/dbs", "a-b/colls/x").await;
            let second = page(&gateway, "/offers", query, 2, first.header(CONTINUATION)).await;
            let second = second.expect(200);
            assert_eq!(ids(&second), all[3..5]);
            let third = page(&gateway, "/offers", query, 2, second.header(CONTINUATION)).await;
            let third = third.expect(200);
            assert_eq!(ids(&third), all[5..]);
            assert_eq!(third.header(CONTINUATION), "");
            for database in ["a-b", "%C3%BC"] {
                delete(&gateway, "/dbs", database).await;
            }
        }
    });
}

#[test]
fn a_page_may_end_between_rows_of_one_resource() {
    on_both(|gateway| async move {
        for name in ["a", "b", "c"] {
            create(&gateway, "/dbs", name).await;
        }
        let query = Some("SELECT VALUE CONCAT(c.id, x) FROM c JOIN x IN ['1', '2', '3']");
        let first = page(&gateway, "/dbs", query, 2, "").await.expect(200);
        assert_eq!(rows(&first), ["a1", "a2"]);
        let second = page(&gateway, "/dbs", query, 2, first.header(CONTINUATION)).await;
        let second = second.expect(200);
        assert_eq!(rows(&second), ["a3", "b1"]);
        // Of what is gone there are no more rows.
        delete(&gateway, "/dbs", "b").await;
        let third = page(&gateway, "/dbs", query, 3, second.header(CONTINUATION)).await;
        let third = third.expect(200);
        assert_eq!(rows(&third), ["c1", "c2", "c3"]);
        assert_eq!(third.header(CONTINUATION), "");
    });
}

#[test]
fn queries_that_sort_or_do_not_look_at_resources_have_all_their_rows() {
    on_both(|gateway| async move {
        for name in ["a", "b", "c"] {
            create(&gateway, "/dbs", name).await;
        }
        for (query, expected) in [
            ("SELECT VALUE c.id FROM c ORDER BY c.id DESC", json!(["c", "b", "a"])),
            ("SELECT TOP 2 VALUE c.id FROM c", json!(["a", "b"])),
            ("SELECT VALUE c.id FROM c OFFSET 1 LIMIT 5", json!(["b", "c"])),
            ("SELECT DISTINCT VALUE IS_STRING(c.id) FROM c", json!([true])),
            ("SELECT VALUE COUNT(1) FROM c", json!([3])),
            ("SELECT VALUE x FROM (SELECT TOP 1 VALUE c.id FROM c) AS x", json!(["a"])),
            ("SELECT VALUE 1", json!([1])),
            ("SELECT VALUE x FROM x IN [1, 2, 3]", json!([1, 2, 3])),
        ] {
            let (mut found, mut continuation) = (Vec::new(), String::new());
            loop {
                let one = page(&gateway, "/dbs", Some(query), 1, &continuation).await.expect(200);
                found.extend(rows(&one));
                one.header(CONTINUATION).clone_into(&mut continuation);
                if continuation.is_empty() {
                    break;
                }
            }
            assert_eq!(json!(found), expected, "{query}");
        }
    });
}

#[test]
fn a_continuation_that_nobody_gave_out_is_refused() {
    on_both(|gateway| async move {
        create(&gateway, "/dbs", "d").await;
        let (plain, sorted) = ("SELECT * FROM c", "SELECT * FROM c ORDER BY c.id");
        let long = format!("n:{}", "a".repeat(3_000));
        for (query, continuation, reason) in [
            // As earlier versions gave it out.
            (None, "100", "is not one of ours"),
            (Some(plain), "100", "is not one of ours"),
            (None, "garbage", "is not one of ours"),
            (None, "n:%FF", "is not one of ours"),
            (None, &long, "is too long"),
            (Some(sorted), &long, "is too long"),
            (None, "c:1", "another query"),
            (None, "n:a:1", "another query"),
            (Some(plain), "c:1", "another query"),
            (Some(sorted), "n:a", "another query"),
        ] {
            for path in ["/dbs", COLLECTIONS, "/offers"] {
                let refused = page(&gateway, path, query, 1, continuation).await.expect(400).json();
                let message = refused["message"].as_str().unwrap();
                assert!(message.contains(reason), "{path} {query:?} {message}");
            }
        }
    });
}
