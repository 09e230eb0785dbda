//! Many clients at once, some of whom mean no good: the others must not notice.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderValue, Method, Request};
use millstream_gateway::{GatewayOptions, ServerLimits};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::client::{Backend, PATIENCE, Running, run, signed};

const CLIENTS: usize = 32;
const ROUNDS: usize = 10;

/// Creates an item and reads it again; both must be right.
async fn well_meaning(gateway: &Running, client: usize, round: usize) {
    let (key, id) = (format!("k{}", client % 5), format!("{client}-{round}"));
    let body = format!(r#"{{"id":"{id}","pk":"{key}","round":{round}}}"#);
    gateway.item(&key, &body).await.expect(201);
    let header = format!("[\"{key}\"]");
    let headers = [("x-ms-documentdb-partitionkey", header.as_str())];
    let path = format!("/dbs/d/colls/c/docs/{id}");
    let read = gateway.ask(Method::GET, &path, &headers, "").await.expect(200).json();
    assert_eq!(
        (read["id"].as_str(), read["round"].as_u64()),
        (Some(&*id), u64::try_from(round).ok())
    );
}

/// One of the ways to be a nuisance; each has one right answer.
async fn hostile(gateway: &Running, which: usize) {
    let docs = "/dbs/d/colls/c/docs";
    match which % 6 {
        0 => {
            let other = "c2VjcmV0IHNlY3JldA==";
            let wrong = signed(Method::GET, docs, other).map(|()| Bytes::new());
            gateway.send(wrong).await.expect(401);
        }
        1 => {
            let deep = "[".repeat(50_000);
            gateway.item("a", &format!(r#"{{"id":"x","pk":"a","deep":{deep}"#)).await.expect(400);
        }
        2 => {
            let mut request = Request::get("/dbs").body(Bytes::new()).unwrap();
            let large = HeaderValue::from_str(&"x".repeat(100_000)).unwrap();
            request.headers_mut().insert("x-large", large);
            assert!([401, 431].contains(&gateway.send(request).await.status));
        }
        3 => {
            // Half a request, and away.
            let mut stream = TcpStream::connect(gateway.address()).await.unwrap();
            let half = b"POST /dbs HTTP/1.1\r\ncontent-length: 9999\r\n\r\n{\"id\"";
            stream.write_all(half).await.unwrap();
        }
        4 => drop(gateway.item("b", r#"{"id":"x","pk":"a"}"#).await.expect(400)),
        _ => {
            let key = [("x-ms-documentdb-partitionkey", "[[[")];
            gateway.ask(Method::GET, &format!("{docs}/1"), &key, "").await.expect(400);
        }
    }
}

#[test]
fn hostile_clients_do_not_disturb_the_others() {
    run(async {
        let mut limits = ServerLimits::default();
        limits.connections_max = CLIENTS + 1;
        // Longer than the test waits: a place that was lost would be noticed.
        limits.handshake_timeout = 10 * PATIENCE;
        let options = GatewayOptions::default();
        let gateway = Running::start_with(Backend::Store, options, limits, None, None).await;
        let gateway = Arc::new(gateway);
        gateway.with_container().await;
        let mut clients = JoinSet::new();
        for client in 0..CLIENTS {
            let gateway = Arc::clone(&gateway);
            clients.spawn(async move {
                for round in 0..ROUNDS {
                    if client % 2 == 0 {
                        well_meaning(&gateway, client, round).await;
                    } else {
                        hostile(&gateway, client + round).await;
                    }
                }
            });
        }
        while let Some(ended) = clients.join_next().await {
            ended.unwrap();
        }
        let list =
            gateway.ask(Method::GET, "/dbs/d/colls/c/docs", &[("x-ms-max-item-count", "1000")], "");
        let list = list.await.expect(200).json();
        assert_eq!(list["_count"], CLIENTS / 2 * ROUNDS);
        // Every place is free again: as many clients as there may be are served at once.
        let mut held = Vec::new();
        for _ in 0..CLIENTS {
            held.push(TcpStream::connect(gateway.address()).await.unwrap());
        }
        gateway.get("/").await.expect(200);
    });
}
