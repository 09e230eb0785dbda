//! A gateway over a store in a temporary directory, with a certificate of its own.
//!
//! Run it with `cargo run --example serve -- 8081`; a port of 0 lets the system choose. It prints
//! where it listens and ends when its input does. A second number delays every answer by so many
//! milliseconds, as a server far away would; tests of timeouts need it.

use std::error::Error;
use std::io::Read;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::Request;
use axum::middleware::{self, Next};
use millstream_core::{Clock, RandomIds, SystemClock};
use millstream_gateway::{Gateway, GatewayOptions, Server, Tls};
use millstream_store::Store;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

#[tokio::main]
#[expect(clippy::print_stdout, reason = "whoever starts it wants to know where it listens")]
async fn main() -> Result<(), Box<dyn Error>> {
    let port: u16 = std::env::args().nth(1).unwrap_or_else(|| "8081".to_owned()).parse()?;
    let delay: u64 = std::env::args().nth(2).unwrap_or_else(|| "0".to_owned()).parse()?;
    let delay = Duration::from_millis(delay);
    let directory = tempfile::tempdir()?;
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::default());
    let ids = Arc::new(RandomIds::new(Arc::clone(&clock)));
    let store = Store::open(directory.path().join("data"))?;
    let gateway = Gateway::open(Arc::new(store), clock, ids, GatewayOptions::default()).await?;
    let listener = TcpListener::bind(("127.0.0.1", port)).await?;
    let port = listener.local_addr()?.port();
    let names = ["localhost".to_owned(), "127.0.0.1".to_owned()];
    let tls = Tls::self_signed(&directory.path().join("tls"), &names)?;
    println!("https://localhost:{port}/");

    let shutdown = CancellationToken::new();
    let input_ends = tokio::task::spawn_blocking({
        let shutdown = shutdown.clone();
        move || {
            // Whether it ends or fails, nobody is there any more.
            let _ = std::io::stdin().read_to_end(&mut Vec::new());
            shutdown.cancel();
        }
    });
    let mut router = gateway.router();
    if !delay.is_zero() {
        router =
            router.layer(middleware::from_fn(move |request: Request, next: Next| async move {
                tokio::time::sleep(delay).await;
                next.run(request).await
            }));
    }
    Server::new(listener, router).tls(tls).run(shutdown).await;
    gateway.settled().await;
    input_ends.await?;
    Ok(())
}
