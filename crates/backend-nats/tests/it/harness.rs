//! Servers that tests start and stop, and a store on them.

mod proxies;
pub(crate) mod servers;

use std::future::Future;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use async_trait::async_trait;
use millstream_backend_nats::{Connection, ConnectionOptions, NatsStore};
use millstream_core::conformance::{OBLIGATIONS, Subject};
use millstream_core::{Clock, Containers, ManualClock, Timestamp};
use tokio::runtime::Runtime;

pub(crate) use crate::harness::servers::Servers;

/// Longest time one test may take.
pub(crate) const TEST_TIME_MAX: Duration = Duration::from_secs(300);

static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| Runtime::new().expect("a runtime"));

/// Runs a future, but not for ever.
pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    RUNTIME.block_on(async {
        let bounded = tokio::time::timeout(TEST_TIME_MAX, future).await;
        bounded.unwrap_or_else(|_| panic!("the test took longer than {TEST_TIME_MAX:?}"))
    })
}

/// Runs one obligation of the suite on servers, if there are any.
pub(crate) fn check(name: &str, servers: Option<&'static Servers>) {
    let Some(servers) = servers else { return };
    let obligation = OBLIGATIONS.iter().find(|(it, _)| *it == name).expect("it is listed").1;
    let mut subject = block_on(OnNats::on(servers));
    block_on(obligation(&mut subject));
}

/// A store under a prefix of its own, with a clock that the suite moves.
pub(crate) struct OnNats {
    url: String,
    clock: Arc<ManualClock>,
    store: NatsStore,
}

impl OnNats {
    pub(crate) async fn on(servers: &Servers) -> Self {
        static PREFIXES: AtomicU32 = AtomicU32::new(0);
        let number = PREFIXES.fetch_add(1, Ordering::Relaxed);
        let url = format!("{}?replicas={}&prefix=t{number}", servers.url(), servers.replicas());
        Self::with(url).await
    }

    pub(crate) async fn with(url: String) -> Self {
        let clock = Arc::new(ManualClock::starting_at(Timestamp::from_millis(1_700_000_000_000)));
        let store = open(&url, clock.clone()).await;
        Self { url, clock, store }
    }
}

/// Opens a store by URL.
pub(crate) async fn open(url: &str, clock: Arc<dyn Clock>) -> NatsStore {
    let options = ConnectionOptions::parse(url).unwrap().clock(clock);
    for _ in 0..100 {
        let opened = match Connection::open(options.clone()).await {
            Ok(connection) => NatsStore::open(connection).await,
            Err(error) => Err(error),
        };
        match opened {
            Ok(store) => return store,
            // Servers that have just started elect a leader first.
            Err(error) => eprintln!("not yet: {}", error.report()),
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    panic!("the servers do not become ready");
}

#[async_trait]
impl Subject for OnNats {
    fn containers(&self) -> Arc<dyn Containers> {
        Arc::new(self.store.clone())
    }

    fn advance(&self, by: Duration) {
        self.clock.advance(by);
    }

    async fn settle(&self) {
        self.store.maintain().await.expect("maintenance goes through");
    }

    async fn reopen(&mut self) -> bool {
        self.store = open(&self.url, self.clock.clone()).await;
        true
    }
}
