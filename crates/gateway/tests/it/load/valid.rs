//! A client that means well, knows what it has written, and checks every answer.

use std::collections::BTreeMap;

use http::Method;
use serde_json::{Value, json};

use crate::client::Answered;
use crate::load::server::ServerProcess;
use crate::load::wire::{Connection, ITEMS, KEY, Kind, Random};

const LATEST: (&str, &str) = ("a-im", "Incremental feed");
const JSON_QUERY: (&str, &str) = ("content-type", "application/query+json");

/// What a client has written.
#[derive(Clone, Debug)]
struct Written {
    n: u64,
    text: String,
    etag: String,
}

/// The only one that writes to its partition, so that it knows what is there.
pub(super) struct Client {
    pub(super) random: Random,
    pub(super) connection: Connection,
    /// Its partition key, and the header that names it.
    pub(super) key: String,
    pub(super) header: String,
    items: BTreeMap<String, Written>,
    next: u64,
}

impl Client {
    pub(super) async fn connect(
        server: &ServerProcess,
        number: u64,
        kind: Kind,
        random: Random,
    ) -> Self {
        let connection = Connection::open(server, kind).await;
        let key = format!("client-{number}");
        let header = format!("[\"{key}\"]");
        Self { random, connection, key, header, items: BTreeMap::new(), next: 0 }
    }

    /// How many items it has.
    pub(super) fn count(&self) -> usize {
        self.items.len()
    }

    /// One request, or a few that belong together.
    pub(super) async fn act(&mut self) {
        match self.random.below(20) {
            0..=5 => self.create().await,
            6..=9 => self.read().await,
            10..=11 => self.replace().await,
            12 => self.upsert().await,
            13 => self.patch().await,
            14..=15 => self.batch().await,
            16 => self.batch_that_fails().await,
            17 => self.delete().await,
            18 => self.query().await,
            _ => self.feed().await,
        }
    }

    /// Everything is as it should be, by point read, query and feed.
    pub(super) async fn check_all(&mut self) {
        self.query().await;
        self.feed().await;
        for id in self.items.keys().cloned().collect::<Vec<_>>() {
            let answer = self.on_item(Method::GET, &id, &[], "").await.expect(200);
            self.check_item(&answer.json(), &id);
        }
    }

    async fn create(&mut self) {
        let id = self.fresh_id();
        let body = self.body(&id);
        let answer = self.on_items(&[], &body).await.expect(201);
        self.remember(&id, &body, &answer);
        if self.random.below(4) == 0 {
            self.on_items(&[], &body).await.expect(409);
        }
    }

    async fn read(&mut self) {
        let Some(id) = self.any_id() else {
            self.on_item(Method::GET, "missing", &[], "").await.expect(404);
            return;
        };
        let answer = self.on_item(Method::GET, &id, &[], "").await.expect(200);
        let document = answer.json();
        self.check_item(&document, &id);
        assert_eq!(answer.header("etag"), document["_etag"].as_str().unwrap());
        let etag = self.items[&id].etag.clone();
        let known = [("if-none-match", etag.as_str())];
        let answer = self.on_item(Method::GET, &id, &known, "").await.expect(304);
        assert!(answer.body.is_empty());
    }

    async fn replace(&mut self) {
        let Some(id) = self.any_id() else { return };
        let body = self.body(&id);
        let stale = [("if-match", "\"stale\"")];
        self.on_item(Method::PUT, &id, &stale, &body).await.expect(412);
        let etag = self.items[&id].etag.clone();
        let current = [("if-match", etag.as_str())];
        let answer = self.on_item(Method::PUT, &id, &current, &body).await.expect(200);
        self.remember(&id, &body, &answer);
    }

    async fn upsert(&mut self) {
        let (id, status) = match self.any_id() {
            Some(id) if self.random.below(2) == 0 => (id, 200),
            Some(_) | None => (self.fresh_id(), 201),
        };
        let body = self.body(&id);
        let upsert = [("x-ms-documentdb-is-upsert", "True")];
        let answer = self.on_items(&upsert, &body).await.expect(status);
        self.remember(&id, &body, &answer);
    }

    async fn patch(&mut self) {
        let Some(id) = self.any_id() else { return };
        let body = r#"{"operations":[{"op":"incr","path":"/n","value":7}]}"#;
        let answer = self.on_item(Method::PATCH, &id, &[], body).await.expect(200);
        let written = self.items.get_mut(&id).unwrap();
        written.n += 7;
        written.etag = answer.header("etag").to_owned();
        self.check_item(&answer.json(), &id);
    }

    async fn delete(&mut self) {
        let Some(id) = self.any_id() else { return };
        self.on_item(Method::DELETE, &id, &[], "").await.expect(204);
        self.items.remove(&id);
        self.on_item(Method::GET, &id, &[], "").await.expect(404);
    }

    async fn batch(&mut self) {
        let (one, two) = (self.fresh_id(), self.fresh_id());
        let (first, second) = (self.body(&one), self.body(&two));
        let answer = self.commit(&[create(&first), create(&second)]).await.expect(200).json();
        for (index, (id, body)) in [(&one, &first), (&two, &second)].into_iter().enumerate() {
            let result = &answer[index];
            assert_eq!(result["statusCode"], 201);
            let etag = result["eTag"].as_str().unwrap().to_owned();
            self.note(id, body, etag);
            self.check_item(&result["resourceBody"], id);
        }
    }

    async fn batch_that_fails(&mut self) {
        let Some(existing) = self.any_id() else { return };
        let fresh = self.fresh_id();
        let operations = [create(&self.body(&fresh)), create(&self.body(&existing))];
        let answer = self.commit(&operations).await.expect(207).json();
        assert_eq!(
            (&answer[0]["statusCode"], &answer[1]["statusCode"]),
            (&json!(424), &json!(409))
        );
        self.on_item(Method::GET, &fresh, &[], "").await.expect(404);
    }

    /// The ids from a number on, in order, a few on each page.
    async fn query(&mut self) {
        let least = self.random.below(self.next.max(1));
        let body = json!({
            "query": "SELECT VALUE c.id FROM c WHERE c.n >= @n ORDER BY c.id",
            "parameters": [{"name": "@n", "value": least}],
        });
        let (mut found, mut continuation) = (Vec::new(), String::new());
        loop {
            let headers = [
                JSON_QUERY,
                ("x-ms-documentdb-isquery", "True"),
                ("x-ms-max-item-count", "40"),
                ("x-ms-continuation", continuation.as_str()),
            ];
            let answer = self.on_items(&headers, &body.to_string()).await.expect(200);
            let page = answer.json();
            let ids = page["Documents"].as_array().unwrap().iter();
            found.extend(ids.map(|it| it.as_str().unwrap().to_owned()));
            continuation = answer.header("x-ms-continuation").to_owned();
            if continuation.is_empty() {
                break;
            }
        }
        let expected = self.items.iter().filter(|(_, it)| least <= it.n);
        let expected: Vec<String> = expected.map(|(id, _)| id.clone()).collect();
        assert_eq!(found, expected, "{}", self.key);
    }

    /// The whole feed of the partition: every item once, as it is now.
    async fn feed(&mut self) {
        let (mut seen, mut etag) = (BTreeMap::new(), None);
        loop {
            let mut headers = vec![LATEST, ("x-ms-max-item-count", "50")];
            headers.extend(etag.as_deref().map(|it| ("if-none-match", it)));
            headers.push((KEY, &self.header));
            let answer = self.connection.ask(Method::GET, ITEMS, &headers, "").await;
            etag = Some(answer.header("etag").to_owned());
            if answer.status == 304 {
                break;
            }
            let page = answer.expect(200).json();
            for document in page["Documents"].as_array().unwrap() {
                let id = document["id"].as_str().unwrap();
                self.check_item(document, id);
                assert!(seen.insert(id.to_owned(), ()).is_none(), "{id} came twice");
            }
        }
        assert!(seen.keys().eq(self.items.keys()), "{}: {seen:?}", self.key);
    }

    async fn commit(&mut self, operations: &[Value]) -> Answered {
        let headers =
            [("x-ms-cosmos-is-batch-request", "True"), ("x-ms-cosmos-batch-atomic", "True")];
        self.on_items(&headers, &json!(operations).to_string()).await
    }

    async fn on_items(&mut self, headers: &[(&str, &str)], body: &str) -> Answered {
        let headers = [headers, &[(KEY, self.header.as_str())]].concat();
        self.connection.ask(Method::POST, ITEMS, &headers, body.to_owned()).await
    }

    async fn on_item(
        &mut self,
        method: Method,
        id: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Answered {
        let headers = [headers, &[(KEY, self.header.as_str())]].concat();
        let path = format!("{ITEMS}/{id}");
        self.connection.ask(method, &path, &headers, body.to_owned()).await
    }

    fn fresh_id(&mut self) -> String {
        self.next += 1;
        format!("item-{:05}", self.next)
    }

    fn any_id(&mut self) -> Option<String> {
        if self.items.is_empty() {
            return None;
        }
        let index = self.random.index(self.items.len());
        self.items.keys().nth(index).cloned()
    }

    fn body(&mut self, id: &str) -> String {
        let text = "text \u{e4}\u{1f600} \\\"".repeat(self.random.index(60));
        let n = self.random.below(1000);
        json!({"id": id, "pk": self.key, "n": n, "text": text}).to_string()
    }

    fn remember(&mut self, id: &str, body: &str, answer: &Answered) {
        self.note(id, body, answer.header("etag").to_owned());
        self.check_item(&answer.json(), id);
    }

    fn note(&mut self, id: &str, body: &str, etag: String) {
        let body: Value = serde_json::from_str(body).unwrap();
        let text = body["text"].as_str().unwrap().to_owned();
        self.items.insert(id.to_owned(), Written { n: body["n"].as_u64().unwrap(), text, etag });
    }

    fn check_item(&self, document: &Value, id: &str) {
        let Some(written) = self.items.get(id) else { panic!("{id} is not ours: {document}") };
        assert_eq!(document["id"], id);
        assert_eq!(document["pk"], self.key);
        assert_eq!(document["n"], written.n, "{} {id}", self.key);
        assert_eq!(document["text"], written.text);
        assert_eq!(document["_etag"], written.etag);
    }
}

/// A database `d` with a container `c`.
pub(super) async fn make_container(server: &ServerProcess) {
    let mut connection = Connection::open(server, Kind::Http1).await;
    connection.ask(Method::POST, "/dbs", &[], r#"{"id":"d"}"#).await.expect(201);
    let body = r#"{"id":"c","partitionKey":{"paths":["/pk"],"kind":"Hash","version":2}}"#;
    connection.ask(Method::POST, "/dbs/d/colls", &[], body).await.expect(201);
    // A request that was answered shows that the connection before it is known to the server.
    connection.ask(Method::GET, "/", &[], "").await.expect(200);
}

/// There are so many items in all: what was refused or cut off left none.
pub(super) async fn check_total(server: &ServerProcess, items: usize) {
    let mut connection = Connection::open(server, Kind::Http1).await;
    let headers = [
        JSON_QUERY,
        ("x-ms-documentdb-isquery", "True"),
        ("x-ms-documentdb-query-enablecrosspartition", "True"),
    ];
    let body = r#"{"query":"SELECT VALUE COUNT(1) FROM c"}"#;
    let answer = connection.ask(Method::POST, ITEMS, &headers, body).await.expect(200).json();
    assert_eq!(answer["Documents"], json!([items]));
}

fn create(body: &str) -> Value {
    let body: Value = serde_json::from_str(body).unwrap();
    json!({"operationType": "Create", "resourceBody": body})
}
