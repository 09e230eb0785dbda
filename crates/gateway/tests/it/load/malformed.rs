//! Requests that arrive well and mean nothing; they come on the connections of those that do.

use http::Method;

use crate::load::valid::Client;
use crate::load::wire::{ITEMS, KEY};

/// Sends one, and checks that it is refused as it should be.
pub(super) async fn act(client: &mut Client) {
    let choice = client.random.below(100);
    let own = client.header.clone();
    let own = (KEY, own.as_str());
    let query = ("x-ms-documentdb-isquery", "True");
    let batch =
        [own, ("x-ms-cosmos-is-batch-request", "True"), ("x-ms-cosmos-batch-atomic", "True")];
    match choice {
        0 => {
            // An item may have 2 MiB, and a request 4.
            let text = "x".repeat(2 * 1024 * 1024);
            let body = format!(r#"{{"id":"large","pk":"{}","text":"{text}"}}"#, client.key);
            check(client, &[own], body, 413).await;
        }
        1 => check(client, &[own], vec![b' '; 4 * 1024 * 1024 + 1], 413).await,
        2..=14 => {
            let deep = "[".repeat(1_000 + client.random.index(50_000));
            let body = format!(r#"{{"id":"deep","pk":"{}","deep":{deep}"#, client.key);
            check(client, &[own], body, 400).await;
        }
        15..=24 => {
            let mut body = vec![0x80];
            let length = client.random.index(60);
            body.extend(client.random.bytes(length));
            // Bytes that happen to be an item have no partition key.
            check(client, &[own], body, 400).await;
        }
        25..=34 => {
            let mut body = vec![0x81];
            let length = client.random.index(60);
            body.extend(client.random.bytes(length));
            check(client, &batch, body, 400).await;
        }
        35..=44 => {
            let body = format!(r#"{{"query":"SELECT {} FROM"}}"#, "(".repeat(500));
            check(client, &[own, query], body, 400).await;
        }
        45..=52 => {
            let continuation = ("x-ms-continuation", "q:eyJ2IjoxfQ");
            let body = r#"{"query":"SELECT * FROM c"}"#;
            check(client, &[own, query, continuation], body, 400).await;
        }
        53..=60 => check(client, &[(KEY, "[[[")], r#"{"id":"x","pk":"x"}"#, 400).await,
        61..=67 => check(client, &[(KEY, "[\"other\"]")], r#"{"id":"x","pk":"x"}"#, 400).await,
        68..=74 => check(client, &[], r#"{"id":"x","pk":"x"}"#, 400).await,
        75..=80 => check(client, &batch, "[]", 400).await,
        _ => refused_path(client, choice).await,
    }
}

async fn refused_path(client: &mut Client, choice: u64) {
    let long = format!("/dbs/{}", "a".repeat(9_000));
    let (method, path, expected) = match choice {
        81..=84 => (Method::GET, long.as_str(), 414),
        85..=88 => (Method::GET, "/dbs/d/colls/c/nothing", 400),
        89..=91 => (Method::GET, "/dbs/d/colls/c/sprocs", 501),
        92..=94 => (Method::PUT, "/dbs", 405),
        95..=97 => (Method::GET, "/dbs/d/colls/missing/docs", 404),
        _ => (Method::GET, "/dbs/missing", 404),
    };
    client.connection.ask(method, path, &[], "").await.expect(expected);
}

async fn check(
    client: &mut Client,
    headers: &[(&str, &str)],
    body: impl Into<bytes::Bytes>,
    expected: u16,
) {
    let answer = client.connection.ask(Method::POST, ITEMS, headers, body).await.expect(expected);
    let code = answer.json()["code"].as_str().unwrap().to_owned();
    let word = if expected == 413 { "RequestEntityTooLarge" } else { "BadRequest" };
    assert_eq!(code, word);
}
