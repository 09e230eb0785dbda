//! A gateway in this process, and connections to it.

use std::future::Future;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use axum::Router;
use millstream_backend_cosmos::{Address, Cosmos, CosmosOptions};
use millstream_core::{Clock, Containers, RandomIds, SystemClock};
use millstream_gateway::{Gateway, GatewayOptions, Server};
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// Longest time any test may take.
const TEST_MAX: Duration = Duration::from_secs(120);

/// One runtime for all tests, because connections outlive calls.
static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| Runtime::new().unwrap());

/// Runs a test to its end, but not for ever.
pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    RUNTIME.block_on(async { tokio::time::timeout(TEST_MAX, future).await.unwrap() })
}

/// A gateway that listens until it is dropped.
pub(crate) struct Serving {
    pub(crate) url: String,
    shutdown: CancellationToken,
    server: Option<JoinHandle<()>>,
}

impl Serving {
    pub(crate) async fn over(containers: Arc<dyn Containers>) -> Self {
        Self::changed(containers, |router| router).await
    }

    /// The same with something between the connection and the gateway.
    pub(crate) async fn changed(
        containers: Arc<dyn Containers>,
        change: impl FnOnce(Router) -> Router,
    ) -> Self {
        // Requests are signed with the time of the machine, whatever clock the store has.
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::default());
        let ids = Arc::new(RandomIds::new(Arc::clone(&clock)));
        let options = GatewayOptions::default();
        let gateway = Gateway::open(containers, clock, ids, options).await.unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        Self::on(listener, change(gateway.router()))
    }

    /// Serves anything that speaks the protocol.
    pub(crate) fn on(listener: TcpListener, router: Router) -> Self {
        let url = format!("cosmos+http://{}", listener.local_addr().unwrap());
        let shutdown = CancellationToken::new();
        let server = Server::new(listener, router);
        let server = Some(tokio::spawn(server.run(shutdown.clone())));
        Self { url, shutdown, server }
    }

    /// Ends it; from then on nobody listens.
    pub(crate) async fn stop(mut self) {
        self.shutdown.cancel();
        if let Some(server) = self.server.take() {
            server.await.unwrap();
        }
    }

    pub(crate) async fn connect(&self) -> Cosmos {
        let address = Address::parse(&self.url, None).unwrap();
        let options = CosmosOptions::default().poll_interval(Duration::from_millis(10));
        Cosmos::connect(&address, Arc::new(SystemClock::default()), options).await.unwrap()
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.shutdown.cancel();
    }
}
