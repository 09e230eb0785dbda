//! What a cluster of three goes through, with writers and a reader at work: nothing that was
//! acknowledged is lost, no batch is half there, and the feed has no gap and goes in order.

use std::sync::Arc;
use std::time::Duration;

use millstream_backend_nats::NatsStore;
use millstream_core::SystemClock;

use crate::harness::{Servers, block_on, open};
use crate::ledger::{Ledger, create};

/// How long writers work before and after a fault.
const CALM: Duration = Duration::from_secs(2);
/// Longer than the servers need to elect another leader.
const OUTAGE: Duration = Duration::from_secs(8);

/// How long commits may be away after the last fault.
const RECOVERY_MAX: Duration = Duration::from_secs(60);

/// Lets writers and a reader work while `faults` happen, then checks everything.
async fn under_load<F: Future<Output = ()>>(servers: &Servers, faults: impl FnOnce() -> F) {
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
    tokio::time::sleep(CALM).await;
    let before = ledger.acknowledged();
    assert!(0 < before, "nothing was committed before the fault");
    faults().await;
    let after = ledger.acknowledged();
    // Elections after a restart of everything take their time.
    for _ in 0..RECOVERY_MAX.as_secs() {
        tokio::time::sleep(Duration::from_secs(1)).await;
        if after + 100 < ledger.acknowledged() {
            break;
        }
    }
    let (seen, summary) = ledger.stop(&store).await;
    eprintln!("{before} commits before the fault, {seen} seen; {summary}");
    assert!(after + 100 < seen, "nothing was committed after the fault");
}

#[test]
fn a_leader_that_is_killed_under_load_loses_nothing() {
    let Some(servers) = Servers::start(3) else { return };
    block_on(under_load(&servers, async || {
        // Every server leads some stream, so each of the three kills takes leaders away.
        for node in 0..3 {
            servers.kill(node);
            tokio::time::sleep(OUTAGE).await;
            servers.restart(node);
            tokio::time::sleep(CALM).await;
        }
    }));
}

#[test]
fn a_server_that_is_cut_off_and_comes_back_loses_nothing() {
    let Some(servers) = Servers::start(3) else { return };
    block_on(under_load(&servers, async || {
        for node in 0..2 {
            servers.freeze(node);
            tokio::time::sleep(OUTAGE).await;
            servers.thaw(node);
            tokio::time::sleep(CALM).await;
        }
    }));
}

#[test]
fn all_three_killed_at_once_and_restarted_lose_nothing() {
    let Some(servers) = Servers::start(3) else { return };
    block_on(under_load(&servers, async || {
        for node in 0..3 {
            servers.kill(node);
        }
        tokio::time::sleep(CALM).await;
        for node in 0..3 {
            servers.restart(node);
        }
    }));
}

#[test]
fn two_short_freezes_of_a_follower_or_leader_are_hardly_noticed() {
    let Some(servers) = Servers::start(3) else { return };
    block_on(under_load(&servers, async || {
        for node in [0, 1, 2] {
            servers.freeze(node);
            tokio::time::sleep(Duration::from_millis(1500)).await;
            servers.thaw(node);
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    }));
}
