use http::Method;
use serde_json::{Value, json};

use crate::client::{Answered, Running, on_both};

const QUERY: [(&str, &str); 2] =
    [("x-ms-documentdb-isquery", "True"), ("content-type", "application/query+json")];
const CROSSING: (&str, &str) = ("x-ms-documentdb-query-enablecrosspartition", "True");

async fn ask(gateway: &Running, path: &str, query: &str, more: &[(&str, &str)]) -> Answered {
    let headers: Vec<(&str, &str)> = QUERY.iter().chain(more).copied().collect();
    let body = json!({ "query": query, "parameters": [] }).to_string();
    gateway.ask(Method::POST, path, &headers, body).await
}

async fn with_items(gateway: &Running) {
    gateway.with_container().await;
    for number in 0..10 {
        let key = if number % 2 == 0 { "even" } else { "odd" };
        let body = format!(r#"{{"id":"{number}","pk":"{key}","n":{number}}}"#);
        gateway.item(key, &body).await.expect(201);
    }
}

fn ids(answer: &Answered) -> Vec<Value> {
    let body = answer.json();
    let documents = body["Documents"].as_array().unwrap();
    documents.iter().map(|it| it["id"].clone()).collect()
}

#[test]
fn items_are_queried_within_and_across_partitions() {
    on_both(|gateway| async move {
        with_items(&gateway).await;
        let docs = "/dbs/d/colls/c/docs/";
        let query = "SELECT * FROM c WHERE c.n < 4 ORDER BY c.n DESC";
        let all = ask(&gateway, docs, query, &[CROSSING]).await.expect(200);
        assert_eq!(ids(&all), ["3", "2", "1", "0"]);
        assert_eq!(all.header("x-ms-item-count"), "4");
        assert!(all.header("x-ms-session-token").starts_with("0:-1#"));
        assert!(all.json()["Documents"][0]["_etag"].is_string());
        let odd = ("x-ms-documentdb-partitionkey", r#"["odd"]"#);
        let some = ask(&gateway, docs, query, &[odd]).await.expect(200);
        assert_eq!(ids(&some), ["3", "1"]);
        let refused = ask(&gateway, docs, query, &[]).await.expect(400).json();
        let message = refused["message"].as_str().unwrap();
        assert!(message.contains("Cross partition query is required but disabled"), "{message}");
        let pinned = "SELECT * FROM c WHERE c.pk = 'odd'";
        assert_eq!(ids(&ask(&gateway, docs, pinned, &[]).await.expect(200)).len(), 5);
    });
}

#[test]
fn pages_of_a_query_join_to_the_whole() {
    on_both(|gateway| async move {
        with_items(&gateway).await;
        gateway.post("/databases/d/containers/c/partitions/0/split", "").await.expect(200);
        let (docs, query) = ("/dbs/d/colls/c/docs", "SELECT * FROM c ORDER BY c.n");
        let (mut found, mut continuation) = (Vec::new(), String::new());
        loop {
            let size = ("x-ms-max-item-count", "3");
            let next = ("x-ms-continuation", continuation.as_str());
            let page = ask(&gateway, docs, query, &[CROSSING, size, next]).await.expect(200);
            found.extend(ids(&page));
            continuation = page.header("x-ms-continuation").to_owned();
            if continuation.is_empty() {
                break;
            }
        }
        assert_eq!(found, ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"]);
    });
}

#[test]
fn a_client_may_ask_for_the_plan() {
    on_both(|gateway| async move {
        gateway.with_container().await;
        let plan = ("x-ms-cosmos-is-query-plan-request", "True");
        let docs = "/dbs/d/colls/c/docs";
        let query = "SELECT * FROM c WHERE STARTSWITH(c.id, 'a')";
        let plan = ask(&gateway, docs, query, &[plan]).await.expect(200).json();
        assert_eq!(plan["partitionedQueryExecutionInfoVersion"], 2);
        assert_eq!(plan["queryRanges"][0]["min"], "");
        assert_eq!(plan["queryRanges"][0]["max"], "FF");
    });
}

#[test]
fn databases_containers_and_offers_are_queried() {
    on_both(|gateway| async move {
        gateway.with_container().await;
        let query = "SELECT * FROM root r WHERE r.id = 'd'";
        let found = ask(&gateway, "/dbs", query, &[]).await.expect(200).json();
        assert_eq!(found["Databases"][0]["id"], "d");
        let found = ask(&gateway, "/dbs/d/colls", "SELECT VALUE c.id FROM c", &[]).await;
        assert_eq!(found.expect(200).json()["DocumentCollections"], json!(["c"]));
        let container = gateway.get("/dbs/d/colls/c").await.expect(200).json();
        let link = container["_self"].as_str().unwrap();
        let query = format!("SELECT * from root where root.resource = \"{link}\"");
        let found = ask(&gateway, "/offers", &query, &[]).await.expect(200).json();
        assert_eq!(found["Offers"][0]["offerResourceId"], container["_rid"]);
    });
}

#[test]
fn a_query_that_cannot_be_read_says_where() {
    on_both(|gateway| async move {
        gateway.with_container().await;
        let docs = "/dbs/d/colls/c/docs";
        let answer = ask(&gateway, docs, "SELECT * FORM c", &[CROSSING]).await.expect(400).json();
        assert!(answer["message"].as_str().unwrap().contains("FORM"), "{answer}");
        let wrong = ("x-ms-continuation", "nonsense");
        ask(&gateway, docs, "SELECT * FROM c", &[CROSSING, wrong]).await.expect(400);
        gateway.ask(Method::POST, docs, &QUERY, "not json").await.expect(400);
        ask(&gateway, "/dbs", "SELECT * FROM", &[]).await.expect(400);
    });
}

#[test]
fn all_items_of_a_key_are_deleted_at_once() {
    on_both(|gateway| async move {
        with_items(&gateway).await;
        let odd = ("x-ms-documentdb-partitionkey", r#"["odd"]"#);
        let path = "/dbs/d/colls/c/operations/partitionkeydelete";
        gateway.ask(Method::POST, path, &[odd], "").await.expect(200);
        let left = gateway.get("/dbs/d/colls/c/docs").await.expect(200);
        assert_eq!(left.json()["_count"], 5);
        gateway.ask(Method::POST, path, &[], "").await.expect(400);
    });
}
