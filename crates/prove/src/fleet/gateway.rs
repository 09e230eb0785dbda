//! The process of a gateway: it serves the store on the NATS servers to clients, and keeps nothing.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use millstream_core::{Clock, RandomIds, SystemClock};
use millstream_crash::{Attempt, Error, Result};
use millstream_gateway::{Gateway, GatewayOptions, Server};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::fleet::scene;
use crate::patience::patiently;
use crate::say::say;

/// Serves until it is killed.
pub(crate) async fn serve(directory: &Path, number: usize) -> Result<()> {
    let store = scene::store(directory).await?;
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::default());
    let ids = Arc::new(RandomIds::new(Arc::clone(&clock)));
    let store = Arc::new(store);
    let open = async || {
        let (store, clock, ids) = (store.clone(), clock.clone(), ids.clone());
        Gateway::open(store, clock, ids, GatewayOptions::default()).await
    };
    // A server that was just killed may have led.
    let gateway = patiently(open).await.attempt(|| "open the gateway")?;
    let listener = TcpListener::bind("127.0.0.1:0").await.attempt(|| "listen")?;
    let address = listener.local_addr().attempt(|| "listen")?;
    announce(directory, number, &format!("cosmos+http://{address}"))?;
    say("ready".to_owned());
    let server = Server::new(listener, gateway.router()).gateway(gateway);
    server.run(CancellationToken::new()).await;
    Err(Error::new("serve: the gateway ended by itself"))
}

/// Where a gateway said last that it listens.
pub(crate) fn address(directory: &Path, number: usize) -> Result<String> {
    let attempted = || format!("find gateway {number}");
    std::fs::read_to_string(address_file(directory, number)).attempt(attempted)
}

/// Says where it listens, so that nobody reads half of it.
fn announce(directory: &Path, number: usize, address: &str) -> Result<()> {
    let file = address_file(directory, number);
    let draft = file.with_extension("draft");
    std::fs::write(&draft, address).attempt(|| "write the address of the gateway")?;
    std::fs::rename(&draft, &file).attempt(|| "write the address of the gateway")
}

fn address_file(directory: &Path, number: usize) -> PathBuf {
    directory.join(format!("gateway-{number}"))
}
