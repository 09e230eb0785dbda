//! How many headers a request may have, over both versions of HTTP.

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Method, Request};
use http_body_util::{BodyExt, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use millstream_gateway::PUBLIC_EMULATOR_KEY;
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::client::{Answered, PATIENCE, Running, on_both, signed};

/// As many as docs/compatibility.md says.
const HEADERS_MAX: usize = 128;

/// A signed request with so many headers, of which `host` is one where it is added.
fn with_headers(count: usize) -> Request<Bytes> {
    let mut request = signed(Method::GET, "/dbs", PUBLIC_EMULATOR_KEY).map(|()| Bytes::new());
    for number in request.headers().len()..count {
        let name = HeaderName::from_bytes(format!("x-{number}").as_bytes()).unwrap();
        request.headers_mut().insert(name, HeaderValue::from_static("1"));
    }
    request
}

async fn by_http2(gateway: &Running, mut request: Request<Bytes>) -> Answered {
    let exchange = async {
        let stream = TcpStream::connect(gateway.address()).await.unwrap();
        let (mut sender, connection) =
            hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
                .await
                .unwrap();
        let connection = tokio::spawn(connection);
        *request.uri_mut() = format!("http://{}/dbs", gateway.address()).parse().unwrap();
        let response = sender.send_request(request.map(Full::new)).await.unwrap();
        let (parts, body) = response.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        connection.abort();
        Answered { status: parts.status.as_u16(), headers: parts.headers, body }
    };
    timeout(PATIENCE, exchange).await.expect("an answer comes in time")
}

#[test]
fn too_many_headers_are_refused_over_http2() {
    on_both(|gateway| async move {
        by_http2(&gateway, with_headers(HEADERS_MAX)).await.expect(200);
        for count in [HEADERS_MAX + 1, 2_000] {
            let refused = by_http2(&gateway, with_headers(count)).await.expect(431).json();
            assert_eq!(refused["code"], "RequestHeaderFieldsTooLarge");
            let message = refused["message"].as_str().unwrap();
            let expected = format!("the request has {count} headers, more than {HEADERS_MAX}");
            assert_eq!(message, expected);
        }
        // One that is sent several times counts as often.
        let mut repeated = with_headers(HEADERS_MAX);
        repeated.headers_mut().append("x-100", HeaderValue::from_static("2"));
        by_http2(&gateway, repeated).await.expect(431);
    });
}

#[test]
fn too_many_headers_are_refused_over_http1() {
    on_both(|gateway| async move {
        // The client adds `host`.
        gateway.send(with_headers(HEADERS_MAX - 1)).await.expect(200);
        gateway.send(with_headers(HEADERS_MAX)).await.expect(431);
    });
}
