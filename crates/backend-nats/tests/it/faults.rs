//! What a cluster of three goes through, with writers and a reader at work: nothing that was
//! acknowledged is lost, no batch is half there, and the feed has no gap and goes in order.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use async_nats::jetstream;
use futures_util::TryStreamExt;
use millstream_backend_nats::NatsStore;
use millstream_core::SystemClock;

use crate::harness::{Servers, block_on, open};
use crate::ledger::{Ledger, create};

/// Longer than the servers need to elect another leader, most times.
const OUTAGE: Duration = Duration::from_secs(8);
/// Longer than a leader that hears nothing believes that it leads.
const LONG_OUTAGE: Duration = Duration::from_secs(12);
/// How long commits may be away: much longer than any election takes.
const RECOVERY_MAX: Duration = Duration::from_secs(90);
/// So many commits show that it goes on.
const COMMITS: u64 = 100;
const PAUSE: Duration = Duration::from_millis(200);

/// Writers and a reader at work.
struct Load<'a> {
    servers: &'a Servers,
    ledger: Ledger,
}

impl Load<'_> {
    /// Waits until commits go through.
    async fn goes_on(&self) {
        let before = self.ledger.acknowledged();
        let waiting = async {
            while self.ledger.acknowledged() < before + COMMITS {
                self.ledger.check();
                tokio::time::sleep(PAUSE).await;
            }
        };
        let outcome = tokio::time::timeout(RECOVERY_MAX, waiting).await;
        let commits = self.ledger.acknowledged() - before;
        assert!(outcome.is_ok(), "only {commits} commits went through in {RECOVERY_MAX:?}");
    }

    /// The servers that lead a range of the container, the first range first.
    async fn leaders(&self) -> Vec<usize> {
        loop {
            match leaders(&self.servers.url()).await {
                Ok(names) if !names.is_empty() => {
                    return names.iter().map(|it| self.servers.number(it)).collect();
                }
                // There is an election under way.
                Ok(_) | Err(_) => tokio::time::sleep(PAUSE).await,
            }
        }
    }

    /// A server that leads no range; there are fewer ranges than servers.
    async fn follower(&self) -> usize {
        let leaders: BTreeSet<usize> = self.leaders().await.into_iter().collect();
        (0..3).find(|it| !leaders.contains(it)).expect("two ranges have two leaders at most")
    }
}

/// The leaders of the ranges, in the order of the ranges; fewer while they are elected.
async fn leaders(url: &str) -> Result<Vec<String>, async_nats::Error> {
    let servers: Vec<String> =
        url.trim_start_matches("nats://").split(',').map(|it| format!("nats://{it}")).collect();
    let context = jetstream::new(async_nats::connect(servers).await?);
    let mut streams: Vec<_> = context.streams().try_collect().await?;
    streams.retain(|it| !it.config.name.ends_with("_catalog"));
    streams.sort_by(|one, other| one.config.name.cmp(&other.config.name));
    Ok(streams.into_iter().filter_map(|it| it.cluster?.leader).collect())
}

/// Lets writers and a reader work while `faults` happen, then checks everything.
fn under_load(servers: Option<Servers>, faults: impl AsyncFnOnce(&Load<'_>)) {
    let Some(servers) = servers else { return };
    block_on(async {
        let url = format!("{}?replicas=3&timeout=2", servers.url());
        let clock = Arc::new(SystemClock::default());
        let store: NatsStore = open(&url, clock.clone()).await;
        create(&store).await;
        // Each has a connection of its own, as processes have.
        let mut stores = Vec::new();
        for _ in 0..4 {
            stores.push(open(&url, clock.clone()).await);
        }
        let ledger = Ledger::start(stores, open(&url, clock.clone()).await).await;
        let load = Load { servers: &servers, ledger };
        load.goes_on().await;
        let before = load.ledger.acknowledged();
        faults(&load).await;
        load.goes_on().await;
        let (seen, summary) = load.ledger.stop(&store).await;
        eprintln!("{before} commits before the faults, {seen} seen; {summary}");
    });
}

#[test]
fn a_leader_that_is_killed_under_load_loses_nothing() {
    under_load(Servers::start(3), async |load| {
        for _ in 0..2 {
            let leader = load.leaders().await[0];
            load.servers.kill(leader);
            // The others go on without it.
            load.goes_on().await;
            load.servers.restart(leader);
            load.goes_on().await;
        }
    });
}

#[test]
fn a_follower_that_is_killed_and_restarted_catches_up() {
    under_load(Servers::start(3), async |load| {
        let follower = load.follower().await;
        load.servers.kill(follower);
        load.goes_on().await;
        load.servers.restart(follower);
        load.goes_on().await;
        // What was committed without it must not be missing where it is needed for a majority.
        let leader = load.leaders().await[0];
        load.servers.kill(leader);
        load.goes_on().await;
        load.servers.restart(leader);
    });
}

#[test]
fn a_server_that_is_cut_off_from_everybody_loses_nothing() {
    under_load(Servers::start_apart(), async |load| {
        let leader = load.leaders().await[0];
        load.servers.cut(leader);
        tokio::time::sleep(LONG_OUTAGE).await;
        load.goes_on().await;
        load.servers.mend(leader);
    });
}

#[test]
fn a_server_that_is_cut_off_with_its_clients_loses_nothing() {
    under_load(Servers::start_apart(), async |load| {
        // Some of the writers are connected to it, and get no answer.
        let leader = load.leaders().await[0];
        load.servers.cut_routes(leader);
        tokio::time::sleep(LONG_OUTAGE).await;
        load.servers.mend(leader);
    });
}

#[test]
fn a_server_that_stops_and_goes_on_later_loses_nothing() {
    under_load(Servers::start(3), async |load| {
        let leader = load.leaders().await[0];
        load.servers.freeze(leader);
        tokio::time::sleep(OUTAGE).await;
        load.servers.thaw(leader);
    });
}

#[test]
fn all_three_killed_at_once_and_restarted_lose_nothing() {
    under_load(Servers::start(3), async |load| {
        for node in 0..3 {
            load.servers.kill(node);
        }
        for node in 0..3 {
            load.servers.restart(node);
        }
    });
}

#[test]
fn short_stops_of_followers_and_leaders_are_hardly_noticed() {
    under_load(Servers::start(3), async |load| {
        for node in [0, 1, 2] {
            load.servers.freeze(node);
            tokio::time::sleep(Duration::from_millis(1500)).await;
            load.servers.thaw(node);
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    });
}
