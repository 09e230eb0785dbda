//! The end: parked keys are driven again, everything drains, and both ends are read.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use millstream_core::{Container, Item, KeyRange, PageSize, ScanScope};
use millstream_crash::{Attempt, Error, Result};
use millstream_outbox::Entity;
use millstream_processor::{DeadLetters, Operations};

use crate::consumer::{PROJECTION, decode};
use crate::current::PATH;
use crate::node::{Node, RELAY};
use crate::say::say;
use crate::service::{Account, POISONED};
use crate::world::RANGES;

/// Commits to the poisoned key after the storm, which go behind what is parked.
const COMMITS_BEHIND: usize = 10;
/// How often nothing may be under way before that is believed.
const QUIET_LOOKS: usize = 3;
const LOOK_INTERVAL: Duration = Duration::from_millis(50);
/// After that something is stuck, which the parent hears.
const PATIENCE: Duration = Duration::from_secs(60);
const PAGE: usize = 1000;

/// Where events may still be.
#[derive(Debug)]
struct UnderWay {
    leases: usize,
    commits: u64,
    parked: usize,
    messages: usize,
}

/// Drives parked keys again, waits until all is delivered, and says what there is at both ends.
pub(crate) async fn settle_down(node: &Node) -> Result<()> {
    let clock = Arc::clone(&node.world.clock);
    let letters = DeadLetters::new(&node.world.leases, RELAY, clock, Duration::from_secs(10))
        .attempt(|| "open the dead letters")?;
    for _ in 0..COMMITS_BEHIND {
        node.service.commit(POISONED, 2).await?;
    }
    say("calm".to_owned());
    // First with the key still refused, so that all its events are parked.
    wait(node, &letters, false).await?;
    let parked = letters.list_parked(None, PAGE).await.attempt(|| "list what is parked")?;
    for sequence in &parked.sequences {
        say(format!("parked {} {}", sequence.partition_key, sequence.parked));
    }
    node.accept_poisoned();
    let operations = Operations::new(&node.world.data, &node.world.leases, RELAY)
        .attempt(|| "open the operations")?;
    let redriven = operations.redrive_all(&letters).await.attempt(|| "redrive")?;
    say(format!("redriven {redriven}"));
    wait(node, &letters, true).await?;
    tell(node).await
}

/// Waits until nothing is under way, or for too long.
async fn wait(node: &Node, letters: &DeadLetters, none_parked: bool) -> Result<()> {
    let begun = node.world.clock.monotonic();
    let mut quiet = 0;
    while quiet < QUIET_LOOKS {
        tokio::time::sleep(LOOK_INTERVAL).await;
        let found = UnderWay::look(node, letters).await?;
        let leases = usize::try_from(RANGES).unwrap_or(usize::MAX);
        let is_quiet = leases <= found.leases
            && found.commits == 0
            && found.messages == 0
            && (found.parked == 0 || !none_parked);
        quiet = if is_quiet { quiet + 1 } else { 0 };
        if begun + PATIENCE < node.world.clock.monotonic() {
            say(format!("stuck {found:?}"));
            return Ok(());
        }
    }
    Ok(())
}

impl UnderWay {
    async fn look(node: &Node, letters: &DeadLetters) -> Result<Self> {
        let lags = node.monitor.lock().unwrap_or_else(PoisonError::into_inner).lags();
        let parked = letters.list_parked(None, PAGE).await.attempt(|| "list what is parked")?;
        let counts = node.current.broker()?.counts(PATH).attempt(|| "count messages")?;
        Ok(Self {
            leases: lags.len(),
            commits: lags.iter().map(|it| it.commits).sum(),
            parked: parked.sequences.len(),
            messages: counts.active,
        })
    }
}

/// Says what the service has, and what the consumer.
async fn tell(node: &Node) -> Result<()> {
    #[derive(serde::Deserialize)]
    struct Stored {
        #[serde(rename = "type")]
        kind: String,
        data: Account,
    }
    for item in items(&node.world.data).await? {
        if item.sequence.is_some() {
            continue;
        }
        let stored: Stored = serde_json::from_slice(&item.body)
            .attempt(|| format!("read the entity \"{}\"", item.id))?;
        if stored.kind == Account::TYPE {
            say(format!("entity {} {}", item.id, stored.data.version));
        }
    }
    for item in items(&node.world.effects).await? {
        if item.id.as_str() != PROJECTION {
            continue;
        }
        let projection = decode(&item.body).attempt(|| "read a projection")?;
        let seen: Vec<String> =
            projection.seen.iter().map(|(version, id)| format!("{version}:{id}")).collect();
        say(format!("effect {} {}", projection.partition_key, seen.join(" ")));
    }
    let counts = node.current.broker()?.counts(PATH).attempt(|| "count messages")?;
    if 0 < counts.dead_lettered {
        return Err(Error::new(format!("deliver {} messages", counts.dead_lettered)));
    }
    say("end".to_owned());
    Ok(())
}

async fn items(container: &Container) -> Result<Vec<Item>> {
    let scope = ScanScope::Keys(KeyRange::all());
    let (mut items, mut after) = (Vec::new(), None);
    loop {
        let page = container.documents.scan(&scope, after.as_ref(), PageSize::items(PAGE)).await;
        let page = page.attempt(|| "read a container")?;
        items.extend(page.items);
        after = page.continuation;
        if after.is_none() {
            return Ok(items);
        }
    }
}
