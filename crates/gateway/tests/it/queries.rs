use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::Method;
use serde_json::{Value, json};

use crate::client::{Answered, Running, on_both};

const QUERY: [(&str, &str); 2] =
    [("x-ms-documentdb-isquery", "True"), ("content-type", "application/query+json")];
const CROSSING: (&str, &str) = ("x-ms-documentdb-query-enablecrosspartition", "True");
/// What SDKs send with every request.
const SDK: (&str, &str) = ("x-ms-cosmos-sdk-supportedcapabilities", "1");

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
fn what_lies_in_one_partition_needs_no_merging() {
    on_both(|gateway| async move {
        with_items(&gateway).await;
        let docs = "/dbs/d/colls/c/docs";
        let pinned = "SELECT * FROM c WHERE c.pk = 'odd' ORDER BY c.n DESC";
        let answer = ask(&gateway, docs, pinned, &[CROSSING, SDK]).await.expect(200);
        assert_eq!(ids(&answer), ["9", "7", "5", "3", "1"]);
        let counted = "SELECT VALUE COUNT(1) FROM c WHERE c.pk = 'odd'";
        let answer = ask(&gateway, docs, counted, &[CROSSING, SDK]).await.expect(200);
        assert_eq!(answer.json()["Documents"], json!([5]));
        // As in Cosmos DB, whose SDK for Python then says that it cannot do that.
        let listed = "SELECT COUNT(1) AS n FROM c WHERE c.pk = 'odd'";
        ask(&gateway, docs, listed, &[CROSSING, SDK]).await.expect(400);
        let crossing = "SELECT * FROM c ORDER BY c.n DESC";
        let refused = ask(&gateway, docs, crossing, &[CROSSING, SDK]).await.expect(400);
        assert_eq!(refused.header("x-ms-substatus"), "1004");
        let message = refused.json()["message"].as_str().unwrap().to_owned();
        let wanted = "cross partition query can not be directly served by the gateway";
        assert!(message.contains(wanted), "{message}");
    });
}

/// That for Go sends no other sign.
#[test]
fn a_query_is_known_by_its_content_type() {
    on_both(|gateway| async move {
        with_items(&gateway).await;
        let body = r#"{"query":"SELECT VALUE COUNT(1) FROM c","parameters":[]}"#;
        for path in ["/dbs", "/dbs/d/colls", "/offers"] {
            let answer = gateway.ask(Method::POST, path, &QUERY[1..], body).await.expect(200);
            assert_eq!(answer.json()["_count"], 1, "{path}");
        }
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

/// Ten items under keys of their own, in two ranges.
async fn with_two_ranges(gateway: &Running) {
    gateway.with_container().await;
    for number in 0..10 {
        let body = format!(r#"{{"id":"{number}","pk":"{number}","n":{number}}}"#);
        gateway.item(&number.to_string(), &body).await.expect(201);
    }
    gateway.post("/databases/d/containers/c/partitions/0/split", "").await.expect(200);
}

#[test]
fn an_sdk_merges_what_several_ranges_return() {
    on_both(|gateway| async move {
        with_two_ranges(&gateway).await;
        let docs = "/dbs/d/colls/c/docs";
        let query = "SELECT * FROM c ORDER BY c.n";
        let refused = ask(&gateway, docs, query, &[CROSSING, SDK]).await.expect(400);
        assert_eq!(refused.header("x-ms-substatus"), "1004");
        let plan = refused.json()["additionalErrorInfo"].as_str().unwrap().to_owned();
        let plan: Value = serde_json::from_str(&plan).unwrap();
        assert_eq!(plan["queryInfo"]["orderBy"], json!(["Ascending"]));
        // The SDK for JavaScript sends what it goes on from to the server first.
        let own = ("x-ms-continuation", r#"{"rangeMappings":[],"orderByItems":[]}"#);
        let refused = ask(&gateway, docs, query, &[CROSSING, SDK, own]).await.expect(400);
        assert_eq!(refused.header("x-ms-substatus"), "1004");
        // What the SDK does next, and what others do at once.
        let first = ("x-ms-documentdb-partitionkeyrangeid", "1");
        ask(&gateway, docs, query, &[CROSSING, SDK, first]).await.expect(200);
        assert_eq!(ids(&ask(&gateway, docs, query, &[CROSSING]).await.expect(200)).len(), 10);
        let grouped = "SELECT c.pk, COUNT(1) AS n FROM c GROUP BY c.pk";
        let groups = ask(&gateway, docs, grouped, &[CROSSING, SDK]).await.expect(200).json();
        assert_eq!(groups["_count"], 10);
        let composed = "SELECT VALUE COUNT(1) + 5 FROM c";
        let refused = ask(&gateway, docs, composed, &[CROSSING, SDK]).await.expect(400);
        assert_eq!(refused.header("x-ms-substatus"), "");
    });
}

#[test]
fn rows_that_need_no_merging_come_range_by_range() {
    on_both(|gateway| async move {
        with_two_ranges(&gateway).await;
        let docs = "/dbs/d/colls/c/docs";
        let query = "SELECT * FROM c WHERE c.n < 100";
        let first = ask(&gateway, docs, query, &[CROSSING]).await.expect(200);
        let next = first.header("x-ms-continuation").to_owned();
        assert_eq!(first.header("x-ms-documentdb-partitionkeyrangeid"), "1");
        // The keys that are left stay the same, whatever becomes of their range.
        gateway.post("/databases/d/containers/c/partitions/2/split", "").await.expect(200);
        let (mut found, mut next) = (ids(&first), next);
        assert!(!found.is_empty() && found.len() < 10 && !next.is_empty(), "{found:?} {next}");
        while !next.is_empty() {
            let from = ("x-ms-continuation", next.as_str());
            let page = ask(&gateway, docs, query, &[CROSSING, from]).await.expect(200);
            found.extend(ids(&page));
            next = page.header("x-ms-continuation").to_owned();
        }
        found.sort_by_key(ToString::to_string);
        assert_eq!(found, ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"]);
        let pinned = "SELECT * FROM c WHERE c.pk = '7'";
        let pinned = ask(&gateway, docs, pinned, &[CROSSING]).await.expect(200);
        assert_eq!((ids(&pinned).len(), pinned.header("x-ms-continuation")), (1, ""));
        let nothing = "SELECT * FROM c WHERE c.n = 100";
        let nothing = ask(&gateway, docs, nothing, &[CROSSING]).await.expect(200);
        assert!(ids(&nothing).is_empty() && !nothing.header("x-ms-continuation").is_empty());
        let (from, range) =
            (("x-ms-continuation", "r:1F:FF:"), ("x-ms-documentdb-partitionkeyrangeid", "1"));
        ask(&gateway, docs, query, &[CROSSING, from, range]).await.expect(400);
    });
}

#[test]
fn a_session_token_is_of_the_range_that_is_named_beside_it() {
    on_both(|gateway| async move {
        with_two_ranges(&gateway).await;
        // What needs merging is one answer for a client that is no SDK.
        for query in ["SELECT * FROM c", "SELECT * FROM c ORDER BY c.id"] {
            let page = ask(&gateway, "/dbs/d/colls/c/docs", query, &[CROSSING]).await.expect(200);
            let range = page.header("x-ms-documentdb-partitionkeyrangeid");
            let token = page.header("x-ms-session-token");
            assert!(token.starts_with(&format!("{range}:-1#")), "{token}");
            assert!(!token.contains(','), "{token}");
        }
    });
}

#[test]
fn an_object_at_the_path_of_the_key_counts_as_no_value() {
    on_both(|gateway| async move {
        gateway.with_container().await;
        let (docs, none) = ("/dbs/d/colls/c/docs", ("x-ms-documentdb-partitionkey", "[{}]"));
        let body = r#"{"id":"1","pk":{"city":"Bern"}}"#;
        gateway.ask(Method::POST, docs, &[none], body).await.expect(201);
        gateway.ask(Method::GET, "/dbs/d/colls/c/docs/1", &[none], "").await.expect(200);
        let query = "SELECT * FROM c WHERE c.pk = {city: 'Bern'}";
        assert_eq!(ids(&ask(&gateway, docs, query, &[CROSSING]).await.expect(200)), ["1"]);
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
fn a_plan_asks_nothing_of_a_client_that_it_cannot_do() {
    on_both(|gateway| async move {
        gateway.with_container().await;
        let plan = ("x-ms-cosmos-is-query-plan-request", "True");
        let listed = ("x-ms-cosmos-supported-query-features", "Distinct, OrderBy,Top");
        let docs = "/dbs/d/colls/c/docs";
        let ordered = "SELECT DISTINCT VALUE c.n FROM c ORDER BY c.n";
        ask(&gateway, docs, ordered, &[plan, listed]).await.expect(200);
        for query in ["SELECT VALUE COUNT(1) FROM c", "SELECT c.n FROM c GROUP BY c.n"] {
            let refused = ask(&gateway, docs, query, &[plan, listed]).await.expect(400);
            assert_eq!(refused.header("x-ms-substatus"), "1004");
            ask(&gateway, docs, query, &[plan]).await.expect(200);
        }
    });
}

#[test]
fn a_list_is_planned_for_who_can_merge_it_and_whole_for_others() {
    on_both(|gateway| async move {
        with_items(&gateway).await;
        let plan = ("x-ms-cosmos-is-query-plan-request", "True");
        let listed = |names| ("x-ms-cosmos-supported-query-features", names);
        let docs = "/dbs/d/colls/c/docs";
        let query = "SELECT VALUE MAKESET(c.n < 4) FROM c";
        let dotnet = listed("Aggregate, NonValueAggregate, DCount, CountIf, HybridSearch");
        let planned = ask(&gateway, docs, query, &[plan, dotnet]).await.expect(200).json();
        assert_eq!(planned["queryInfo"]["aggregates"][0], "MakeSet");
        let java = listed("Aggregate,CompositeAggregate,GroupBy,DCount,NonValueAggregate");
        let refused = ask(&gateway, docs, query, &[plan, java]).await.expect(400);
        assert_eq!(refused.header("x-ms-substatus"), "1004");
        // The same without a plan.
        let whole = ask(&gateway, docs, query, &[SDK, CROSSING]).await.expect(200).json();
        let set = whole["Documents"][0].as_array().unwrap();
        assert!(set.len() == 2 && set.contains(&true.into()) && set.contains(&false.into()));
    });
}

#[test]
fn a_query_says_what_it_did_if_it_is_asked() {
    on_both(|gateway| async move {
        with_items(&gateway).await;
        let metrics = ("x-ms-documentdb-populatequerymetrics", "True");
        let query = "SELECT * FROM c WHERE c.n < 4";
        let docs = "/dbs/d/colls/c/docs";
        let answer = ask(&gateway, docs, query, &[CROSSING, metrics]).await.expect(200);
        let metrics = answer.header("x-ms-documentdb-query-metrics");
        let (first, rest) = metrics.split_once(';').unwrap();
        let time = first.strip_prefix("totalExecutionTimeInMs=").unwrap();
        assert!(0.0 <= time.parse::<f64>().unwrap(), "{time}");
        assert!(rest.contains("retrievedDocumentCount=10;"), "{rest}");
        assert!(rest.contains("outputDocumentCount=4;"), "{rest}");
        let silent = ask(&gateway, docs, query, &[CROSSING]).await.expect(200);
        assert_eq!(silent.header("x-ms-documentdb-query-metrics"), "");
    });
}

#[test]
fn a_query_says_what_it_was_found_by_in_the_form_that_is_asked_for() {
    on_both(|gateway| async move {
        with_items(&gateway).await;
        let docs = "/dbs/d/colls/c/docs";
        let odd = ("x-ms-documentdb-partitionkey", r#"["odd"]"#);
        let asked = async |form: &str, place: (&str, &str)| {
            let answer = ask(&gateway, docs, "SELECT * FROM c", &[(form, "True"), place]).await;
            answer.expect(200).header("x-ms-cosmos-index-utilization").to_owned()
        };
        // As .NET and JavaScript ask. A plus would be decoded in one of them only.
        let second = "x-ms-cosmos-populateindexmetrics-V2";
        let read = |text: &str| -> Value {
            let text = percent_encoding::percent_decode_str(text).decode_utf8().unwrap();
            serde_json::from_str(&text).unwrap()
        };
        let none = json!({ "SingleIndexes": [], "CompositeIndexes": [] });
        let by_key = json!({ "SingleIndexes": [{ "IndexSpec": "/pk/?" }], "CompositeIndexes": [] });
        let pinned = read(&asked(second, odd).await);
        assert_eq!(pinned, json!({ "UtilizedIndexes": by_key, "PotentialIndexes": none }));
        let crossing = read(&asked(second, CROSSING).await);
        assert_eq!(crossing, json!({ "UtilizedIndexes": none, "PotentialIndexes": none }));
        let first = STANDARD.decode(asked("x-ms-cosmos-populateindexmetrics", odd).await).unwrap();
        let first: Value = serde_json::from_slice(&first).unwrap();
        assert_eq!(first["UtilizedSingleIndexes"][0]["IndexSpec"], "/pk/?");
        assert_eq!(asked("x-ms-other", odd).await, "");
    });
}

#[test]
fn distinct_values_go_on_in_the_children_of_a_range() {
    on_both(|gateway| async move {
        gateway.with_container().await;
        for number in 0..24 {
            let body = format!(r#"{{"id":"{number}","pk":"{number}","v":{}}}"#, number % 8);
            gateway.item(&number.to_string(), &body).await.expect(201);
        }
        let (docs, query) = ("/dbs/d/colls/c/docs", "SELECT DISTINCT VALUE c.v FROM c");
        let (size, range) = (("x-ms-max-item-count", "2"), "x-ms-documentdb-partitionkeyrangeid");
        let page = ask(&gateway, docs, query, &[size, (range, "0")]).await.expect(200);
        let mut found = page.json()["Documents"].as_array().unwrap().clone();
        let whole = page.header("x-ms-continuation").to_owned();
        gateway.post("/databases/d/containers/c/partitions/0/split", "").await.expect(200);
        for id in ["1", "2"] {
            let mut continuation = whole.clone();
            while !continuation.is_empty() {
                let next = ("x-ms-continuation", continuation.as_str());
                let page = ask(&gateway, docs, query, &[size, (range, id), next]).await.expect(200);
                found.extend(page.json()["Documents"].as_array().unwrap().clone());
                continuation = page.header("x-ms-continuation").to_owned();
            }
        }
        found.sort_by_key(Value::as_u64);
        assert_eq!(json!(found), json!([0, 1, 2, 3, 4, 5, 6, 7]));
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
fn a_continuation_of_no_size_is_refused() {
    on_both(|gateway| async move {
        with_items(&gateway).await;
        let limit = ("x-ms-documentdb-responsecontinuationtokenlimitinkb", "0");
        let docs = "/dbs/d/colls/c/docs";
        let refused = ask(&gateway, docs, "SELECT * FROM c", &[CROSSING, limit]).await.expect(400);
        assert!(refused.json()["message"].as_str().unwrap().contains("positive"));
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
        let long = ("x-ms-documentdb-partitionkey", r#"["odd", "even"]"#);
        let refused = gateway.ask(Method::POST, path, &[long], "").await.expect(400);
        assert_eq!(refused.header("x-ms-substatus"), "1001");
    });
}

#[test]
fn queries_name_computed_properties_which_can_be_replaced() {
    on_both(|gateway| async move {
        let definition = |computed: &str| {
            format!(
                r#"{{"id":"c","partitionKey":{{"paths":["/pk"],"kind":"Hash","version":2}},
                "computedProperties":{computed}}}"#
            )
        };
        let lower = r#"[{"name":"lower","query":"SELECT VALUE LOWER(c.name) FROM c"}]"#;
        gateway.post("/dbs", r#"{"id":"d"}"#).await.expect(201);
        let made = gateway.post("/dbs/d/colls", &definition(lower)).await.expect(201).json();
        assert_eq!(made["computedProperties"][0]["name"], "lower");
        gateway.item("a", r#"{"id":"1","pk":"a","name":"Ada"}"#).await.expect(201);
        let find = async |query: &str| {
            let headers = [
                ("x-ms-documentdb-partitionkey", r#"["a"]"#),
                ("content-type", "application/query+json"),
                ("x-ms-documentdb-isquery", "True"),
            ];
            let body = json!({ "query": query }).to_string();
            let found = gateway.ask(Method::POST, "/dbs/d/colls/c/docs", &headers, body).await;
            found.expect(200).json()["Documents"].clone()
        };
        let by_lower = "SELECT c.id, c.lower FROM c WHERE c.lower = 'ada'";
        assert_eq!(find(by_lower).await, json!([{ "id": "1", "lower": "ada" }]));
        let whole = find("SELECT * FROM c").await;
        assert_eq!(whole[0].get("lower"), None);
        let upper = r#"[{"name":"upper","query":"SELECT VALUE UPPER(c.name) FROM c"}]"#;
        gateway.ask(Method::PUT, "/dbs/d/colls/c", &[], definition(upper)).await.expect(200);
        assert_eq!(find(by_lower).await, json!([]));
        assert_eq!(find("SELECT VALUE c.upper FROM c").await, json!(["ADA"]));
        let wrong = r#"[{"name":"x","query":"SELECT VALUE POWERR(c.n, 2) FROM c"}]"#;
        let refused = gateway.ask(Method::PUT, "/dbs/d/colls/c", &[], definition(wrong)).await;
        let message = refused.expect(400).json()["message"].to_string();
        assert!(message.contains("POWERR"), "{message}");
        assert_eq!(find("SELECT VALUE c.upper FROM c").await, json!(["ADA"]));
    });
}
