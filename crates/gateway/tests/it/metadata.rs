use std::sync::Arc;

use bytes::Bytes;
use http::Method;
use millstream_gateway::PUBLIC_EMULATOR_KEY;
use serde_json::{Value, json};

use crate::client::{Backend, Running, memory, on_both, run, signed};

const CONTAINER: &str = r#"{"id":"c","partitionKey":{"paths":["/pk"],"kind":"Hash","version":2},
    "indexingPolicy":{"indexingMode":"Consistent","compositeIndexes":[]},"defaultTtl":-1}"#;

#[test]
fn the_account_has_the_address_the_client_used() {
    on_both(|gateway| async move {
        let account = gateway.get("/").await.expect(200).json();
        assert_ne!(account["id"], "localhost");
        let location = &account["writableLocations"][0]["databaseAccountEndpoint"];
        assert_eq!(*location, format!("http://{}/", gateway.address()));
        assert!(account.get("thinClientReadableLocations").is_none());
        assert!(account["queryEngineConfiguration"].is_string());
    });
}

#[test]
fn databases_are_created_listed_read_and_deleted() {
    on_both(|gateway| async move {
        let made = gateway.post("/dbs", r#"{"id":"colls"}"#).await.expect(201);
        assert_eq!(made.header("etag"), made.json()["_etag"].as_str().unwrap());
        assert!(!made.header("x-ms-activity-id").is_empty());
        assert_eq!(made.header("x-ms-request-charge"), "5.00");
        let twice = gateway.post("/dbs", r#"{"id":"colls"}"#).await.expect(409).json();
        assert_eq!(twice["code"], "Conflict");
        let list = gateway.get("/dbs/").await.expect(200).json();
        assert_eq!(list["_count"], 1);
        assert_eq!(list["Databases"][0]["id"], "colls");
        let rid = list["Databases"][0]["_rid"].as_str().unwrap().to_owned();
        let by_rid = gateway.get(&format!("/dbs/{rid}/")).await.expect(200).json();
        assert_eq!(by_rid["id"], "colls");
        let known = [("if-none-match", made.header("etag"))];
        gateway.ask(Method::GET, "/dbs/colls", &known, "").await.expect(304);
        gateway.ask(Method::GET, "/dbs/colls", &[("if-none-match", "\"x\"")], "").await.expect(200);
        gateway.ask(Method::DELETE, "/dbs/colls", &[], "").await.expect(204);
        let gone = gateway.get("/dbs/colls").await.expect(404).json();
        assert_eq!(gone["code"], "NotFound");
    });
}

#[test]
fn the_databases_of_the_service_itself_are_hidden() {
    on_both(|gateway| async move {
        assert_eq!(gateway.get("/dbs").await.expect(200).json()["_count"], 0);
        gateway.get("/dbs/millstream").await.expect(404);
        gateway.get("/dbs/millstream/colls/gateway/docs").await.expect(404);
        gateway.post("/dbs", r#"{"id":"millstream"}"#).await.expect(403);
    });
}

#[test]
fn lists_come_in_pages() {
    on_both(|gateway| async move {
        for name in ["a", "b", "c"] {
            gateway.post("/dbs", &format!(r#"{{"id":"{name}"}}"#)).await.expect(201);
        }
        let size = ("x-ms-max-item-count", "2");
        let first = gateway.ask(Method::GET, "/dbs", &[size], "").await.expect(200);
        assert_eq!(first.json()["_count"], 2);
        let next = ("x-ms-continuation", first.header("x-ms-continuation"));
        let second = gateway.ask(Method::GET, "/dbs", &[size, next], "").await.expect(200);
        assert_eq!(second.json()["Databases"][0]["id"], "c");
        assert_eq!(second.header("x-ms-continuation"), "");
    });
}

#[test]
fn a_container_gives_back_what_it_was_defined_with() {
    on_both(|gateway| async move {
        gateway.post("/dbs", r#"{"id":"d"}"#).await.expect(201);
        let made = gateway.post("/dbs/d/colls/", CONTAINER).await.expect(201).json();
        assert_eq!(made["defaultTtl"], -1);
        assert_eq!(made["indexingPolicy"]["indexingMode"], "consistent");
        assert_eq!(made["partitionKey"]["paths"], json!(["/pk"]));
        let read = gateway.get("/dbs/d/colls/c").await.expect(200);
        assert_eq!(read.json(), made);
        // The SDK for Java appends the name of the container to what it belongs to.
        assert_eq!(read.header("x-ms-alt-content-path"), "dbs/d");
        let database = gateway.get("/dbs/d").await.expect(200).json();
        assert_eq!(read.header("x-ms-content-path"), database["_rid"].as_str().unwrap());
        let path = format!("/{}", made["_self"].as_str().unwrap());
        assert_eq!(gateway.get(&path).await.expect(200).json(), made);
        let list = gateway.get("/dbs/d/colls").await.expect(200).json();
        assert_eq!(list["DocumentCollections"], json!([made]));
        let deleted = gateway.ask(Method::DELETE, "/dbs/d/colls/c", &[], "").await.expect(204);
        // The SDKs for .NET and Java forget the session tokens of the container that is named here.
        assert_eq!(deleted.header("x-ms-content-path"), made["_rid"].as_str().unwrap());
        assert_eq!(deleted.header("x-ms-alt-content-path"), "dbs/d/colls/c");
        gateway.get("/dbs/d/colls/c").await.expect(404);
    });
}

#[test]
fn what_was_said_about_a_partition_key_stays() {
    on_both(|gateway| async move {
        gateway.post("/dbs", r#"{"id":"d"}"#).await.expect(201);
        for (name, said) in [("yes", true), ("no", false)] {
            let key = json!({"paths": ["/pk"], "kind": "Hash", "version": 1, "systemKey": said});
            let body = json!({ "id": name, "partitionKey": key }).to_string();
            let made = gateway.post("/dbs/d/colls", &body).await.expect(201).json();
            assert_eq!(made["partitionKey"], key);
            let path = format!("/dbs/d/colls/{name}");
            assert_eq!(gateway.get(&path).await.expect(200).json()["partitionKey"], key);
            let silent = json!({ "id": name, "defaultTtl": 5 }).to_string();
            let replaced = gateway.ask(Method::PUT, &path, &[], silent).await.expect(200).json();
            assert_eq!(replaced["partitionKey"], key);
            assert_eq!(gateway.get(&path).await.expect(200).json(), replaced);
        }
    });
}

#[test]
fn items_expire_by_their_own_time_alone() {
    on_both(|gateway| async move {
        gateway.post("/dbs", r#"{"id":"d"}"#).await.expect(201);
        let create = async |name: &str, path: &str| {
            let key = json!({ "paths": ["/pk"], "kind": "Hash" });
            let path: Value = serde_json::from_str(path).unwrap();
            let body = json!({
                "id": name, "partitionKey": key, "defaultTtl": 5, "ttlPropertyPath": path
            });
            gateway.post("/dbs/d/colls", &body.to_string()).await
        };
        for path in [r#""/creationDate""#, r#""creationDate""#, r#""""#, "1", r#"["/_ts"]"#] {
            let refused = create("refused", path).await.expect(400).json();
            let message = refused["message"].as_str().unwrap();
            assert!(message.contains("ttlPropertyPath"), "{message}");
        }
        create("none", "null").await.expect(201);
        let made = create("slash", r#""/_ts""#).await.expect(201).json();
        assert_eq!(made["ttlPropertyPath"], "/_ts");
        create("plain", r#""_ts""#).await.expect(201);
    });
}

#[test]
fn a_container_looks_as_cosmos_db_shows_it_whatever_was_left_out() {
    on_both(|gateway| async move {
        gateway.post("/dbs", r#"{"id":"d"}"#).await.expect(201);
        let body = r#"{"id":"c","partitionKey":{"paths":["/pk"],"kind":"Hash"},
            "indexingPolicy":{"automatic":false,"indexingMode":"Consistent"}}"#;
        gateway.post("/dbs/d/colls", body).await.expect(201);
        let read = gateway.get("/dbs/d/colls/c").await.expect(200).json();
        assert_eq!(read["partitionKey"], json!({ "paths": ["/pk"], "kind": "Hash" }));
        assert_eq!(read["indexingPolicy"]["automatic"], true);
        let body = r#"{"id":"c","partitionKey":{"paths":["/pk"],"kind":"Hash"},
            "indexingPolicy":{"automatic":false,"indexingMode":"None"}}"#;
        let replaced = gateway.ask(Method::PUT, "/dbs/d/colls/c", &[], body).await.expect(200);
        assert_eq!(replaced.json()["indexingPolicy"]["automatic"], false);
        assert_eq!(replaced.json()["indexingPolicy"]["includedPaths"], json!([]));
        let body = r#"{"id":"e","partitionKey":{"paths":["/pk"],"kind":"Hash","version":1}}"#;
        gateway.post("/dbs/d/colls", body).await.expect(201);
        let read = gateway.get("/dbs/d/colls/e").await.expect(200).json();
        assert_eq!(read["partitionKey"], json!({ "paths": ["/pk"], "kind": "Hash", "version": 1 }));
    });
}

#[test]
fn a_container_is_replaced_but_for_its_partition_key() {
    on_both(|gateway| async move {
        gateway.with_container().await;
        let old = gateway.get("/dbs/d/colls/c").await.expect(200);
        let mut body = old.json();
        body["defaultTtl"] = json!(60);
        let text = body.to_string();
        let put = |etag: &'static str, text: String| {
            let gateway = &gateway;
            async move {
                let condition = [("if-match", etag)];
                gateway.ask(Method::PUT, "/dbs/d/colls/c", &condition, text).await
            }
        };
        put("\"nonsense\"", text.clone()).await.expect(412);
        let new = put("*", text).await.expect(200);
        assert_eq!(new.json()["defaultTtl"], 60);
        assert_ne!(new.header("etag"), old.header("etag"));
        body["partitionKey"]["paths"] = json!(["/other"]);
        put("*", body.to_string()).await.expect(400);
    });
}

#[test]
fn what_does_not_exist_is_told_apart() {
    on_both(|gateway| async move {
        let sub = |answer: crate::client::Answered| answer.header("x-ms-substatus").to_owned();
        assert_eq!(sub(gateway.get("/dbs/d/colls").await.expect(404)), "1003");
        gateway.post("/dbs", r#"{"id":"d"}"#).await.expect(201);
        assert_eq!(sub(gateway.get("/dbs/d/colls/c").await.expect(404)), "");
        assert_eq!(sub(gateway.get("/dbs/d/colls/c/docs/1").await.expect(404)), "1003");
        assert_eq!(sub(gateway.get("/dbs/d/colls/c/pkranges").await.expect(404)), "1003");
    });
}

#[test]
fn a_client_of_an_earlier_container_is_sent_to_look_again() {
    on_both(|gateway| async move {
        gateway.with_container().await;
        let old = gateway.get("/dbs/d/colls/c").await.expect(200).json();
        let rid = old["_rid"].as_str().unwrap();
        let intended = [("x-ms-cosmos-intended-collection-rid", rid)];
        gateway.ask(Method::GET, "/dbs/d/colls/c/pkranges", &intended, "").await.expect(200);
        gateway.ask(Method::DELETE, "/dbs/d/colls/c", &[], "").await.expect(204);
        let body = r#"{"id":"c","partitionKey":{"paths":["/pk"],"kind":"Hash","version":2}}"#;
        gateway.post("/dbs/d/colls", body).await.expect(201);
        let path = "/dbs/d/colls/c/pkranges";
        let answer = gateway.ask(Method::GET, path, &intended, "").await.expect(400);
        assert_eq!(answer.header("x-ms-substatus"), "1024");
    });
}

#[test]
fn a_client_that_knows_the_newer_container_is_not_sent_away() {
    run(async {
        let containers = memory();
        let first = Running::on(Arc::clone(&containers)).await;
        first.with_container().await;
        let second = Running::on(containers).await;
        second.item("a", r#"{"id":"1","pk":"a"}"#).await.expect(201);
        first.ask(Method::DELETE, "/dbs/d/colls/c", &[], "").await.expect(204);
        let body = r#"{"id":"c","partitionKey":{"paths":["/pk"],"kind":"Hash","version":2}}"#;
        let made = first.post("/dbs/d/colls", body).await.expect(201).json();
        let intended = [("x-ms-cosmos-intended-collection-rid", made["_rid"].as_str().unwrap())];
        second.ask(Method::GET, "/dbs/d/colls/c/docs", &intended, "").await.expect(200);
    });
}

#[test]
fn everything_is_still_there_after_a_restart() {
    run(async {
        let options = millstream_gateway::GatewayOptions::default();
        let gateway = Running::start(Backend::Store, options.clone()).await;
        gateway.post("/dbs", r#"{"id":"d"}"#).await.expect(201);
        let throughput = [("x-ms-offer-throughput", "12000")];
        let made = gateway.ask(Method::POST, "/dbs/d/colls", &throughput, CONTAINER).await;
        let made: Value = made.expect(201).json();
        let directory = gateway.stop().await;
        let limits = millstream_gateway::ServerLimits::default();
        let gateway = Running::start_with(Backend::Store, options, limits, None, directory).await;
        assert_eq!(gateway.get("/dbs/d/colls/c").await.expect(200).json(), made);
        let offers = gateway.get("/offers").await.expect(200).json();
        assert_eq!(offers["Offers"][0]["content"]["offerThroughput"], 12000);
    });
}

#[test]
fn ranges_are_told_until_the_client_knows_them() {
    on_both(|gateway| async move {
        gateway.with_container().await;
        let path = "/dbs/d/colls/c/pkranges/";
        let feed = ("a-im", "Incremental Feed");
        let all = gateway.ask(Method::GET, path, &[feed], "").await.expect(200);
        let ranges = all.json()["PartitionKeyRanges"].clone();
        assert_eq!(ranges[0]["minInclusive"], "");
        assert_eq!(ranges[0]["maxExclusive"], "FF");
        let known = ("if-none-match", all.header("etag"));
        let same = gateway.ask(Method::GET, path, &[feed, known], "").await.expect(304);
        assert_eq!(same.header("etag"), all.header("etag"));
        assert_eq!(same.header("x-ms-item-count"), "0");
        let split = "/databases/d/containers/c/partitions/0/split";
        let done = gateway.post(split, r#"{"mode":"midpoint"}"#).await.expect(200).json();
        assert_eq!(done["phase"], "Succeeded");
        let operation = format!("/operations/{}", done["operationId"].as_str().unwrap());
        assert_eq!(gateway.get(&operation).await.expect(200).json(), done);
        gateway.get("/operations/none").await.expect(404);
        let new = gateway.ask(Method::GET, path, &[feed, known], "").await.expect(200).json();
        assert_eq!(new["_count"], 2);
        assert_eq!(new["PartitionKeyRanges"][0]["parents"], json!(["0"]));
        assert_eq!(
            new["PartitionKeyRanges"][0]["maxExclusive"],
            new["PartitionKeyRanges"][1]["minInclusive"]
        );
        let container = gateway.get("/dbs/d/colls/c").await.expect(200);
        assert_eq!(container.header("x-ms-session-token").split(',').count(), 1);
        let gone = [feed, ("x-ms-documentdb-partitionkeyrangeid", "0")];
        let gone = gateway.ask(Method::GET, "/dbs/d/colls/c/docs", &gone, "").await.expect(410);
        assert_eq!(gone.header("x-ms-substatus"), "1002");
    });
}

#[test]
fn ranges_are_merged_again() {
    on_both(|gateway| async move {
        gateway.with_container().await;
        gateway.post("/databases/d/containers/c/partitions/0/split", "").await.expect(200);
        let merge = "/databases/d/containers/c/partitions/merge";
        gateway.post(merge, r#"{"partitionIds":[2,1]}"#).await.expect(200);
        let ranges = gateway.get("/dbs/d/colls/c/pkranges").await.expect(200).json();
        assert_eq!(ranges["_count"], 1);
        let parents = ranges["PartitionKeyRanges"][0]["parents"].as_array().unwrap();
        assert!(parents.contains(&json!("1")) && parents.contains(&json!("2")), "{parents:?}");
        gateway.post(merge, r#"{"partitionIds":[2,1]}"#).await.expect(410);
        gateway.post(merge, r#"{"partitionIds":[2]}"#).await.expect(400);
        let nonsense = "/databases/d/containers/c/partitions/x/split";
        gateway.post(nonsense, "").await.expect(400);
    });
}

#[test]
fn what_is_not_supported_says_so() {
    on_both(|gateway| async move {
        gateway.with_container().await;
        for path in [
            "/dbs/d/colls/c/sprocs",
            "/dbs/d/colls/c/triggers/t",
            "/dbs/d/colls/c/udfs",
            "/dbs/d/users",
            "/dbs/d/users/u/permissions",
        ] {
            let answer = gateway.post(path, "{}").await.expect(501).json();
            let message = answer["message"].as_str().unwrap();
            assert!(message.contains("not supported"), "{message}");
        }
        for name in ["x-ms-documentdb-pre-trigger-include", "x-ms-documentdb-post-trigger-include"]
        {
            let headers = [("x-ms-documentdb-partitionkey", r#"["a"]"#), (name, "t")];
            let (path, body) = ("/dbs/d/colls/c/docs", r#"{"id":"1","pk":"a"}"#);
            gateway.ask(Method::POST, path, &headers, body).await.expect(501);
        }
        let list = gateway.get("/dbs/d/colls/c/docs").await.expect(200).json();
        assert_eq!(list["_count"], 0, "an item was written without its trigger");
    });
}

#[test]
fn direct_mode_is_told_so_however_it_signs() {
    on_both(|gateway| async move {
        let mut request = signed(Method::GET, "/dbs", PUBLIC_EMULATOR_KEY);
        *request.uri_mut() = "//addresses/?$resolveFor=dbs".parse().unwrap();
        let answer = gateway.send(request.map(|()| Bytes::new())).await.expect(501).json();
        let message = answer["message"].as_str().unwrap();
        assert!(message.contains("gateway mode"), "{message}");
    });
}

#[test]
fn a_container_that_is_known_is_not_sent_again() {
    on_both(|gateway| async move {
        gateway.with_container().await;
        let read = gateway.get("/dbs/d/colls/c").await.expect(200);
        let known = [("if-none-match", read.header("etag"))];
        gateway.ask(Method::GET, "/dbs/d/colls/c", &known, "").await.expect(304);
    });
}
