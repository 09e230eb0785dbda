//! Requests whose clients have given up.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderValue, Method};
use http_body_util::Full;
use hyper_util::rt::{TokioExecutor, TokioIo};
use millstream_gateway::PUBLIC_EMULATOR_KEY;
use serde_json::json;
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::client::{PATIENCE, Running, memory, run, signed};
use crate::elsewhere::{Elsewhere, Hold};

#[test]
fn a_container_that_nobody_waits_for_gets_all_of_its_definition() {
    run(async {
        let (containers, hold) = (memory(), Hold::new());
        let gateway =
            Running::on(Arc::new(Elsewhere::new(Arc::clone(&containers)).held(&hold))).await;
        gateway.post("/dbs", r#"{"id":"d"}"#).await.expect(201);
        let stream = TcpStream::connect(gateway.address()).await.unwrap();
        let (mut sender, connection) =
            hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
                .await
                .unwrap();
        let connection = tokio::spawn(connection);
        let mut ask = |method: Method, path: &str, body: String| {
            let mut request = signed(method, path, PUBLIC_EMULATOR_KEY);
            *request.uri_mut() = format!("http://localhost{path}").parse().unwrap();
            request.headers_mut().insert("x-ms-offer-throughput", HeaderValue::from_static("700"));
            sender.send_request(request.map(|()| Full::new(Bytes::from(body))))
        };
        let computed = json!([{ "name": "low", "query": "SELECT VALUE LOWER(c.a) FROM c" }]);
        let definition = json!({
            "id": "c",
            "partitionKey": { "paths": ["/pk"], "kind": "Hash", "version": 2 },
            "computedProperties": computed,
        });
        let creating = ask(Method::POST, "/dbs/d/colls", definition.to_string());
        tokio::select! {
            _ = creating => panic!("it is held"),
            () = hold.created() => (),
        }
        // The server hears of both in this order.
        let read = ask(Method::GET, "/dbs/d", String::new());
        assert_eq!(timeout(PATIENCE, read).await.unwrap().unwrap().status().as_u16(), 200);
        connection.abort();
        hold.let_go();
        gateway.stop().await;
        let gateway = Running::on(containers).await;
        let found = gateway.get("/dbs/d/colls/c").await.expect(200).json();
        assert_eq!(found["computedProperties"], computed);
        let offers = gateway.get("/offers").await.expect(200).json();
        assert_eq!(offers["Offers"][0]["content"]["offerThroughput"], 700);
    });
}
