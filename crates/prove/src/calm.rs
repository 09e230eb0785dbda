//! The end: parked keys are driven again, everything drains, and the service says what it has.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use millstream_core::{Container, Item, KeyRange, PageSize, ScanScope};
use millstream_crash::{Attempt, Error, Result};
use millstream_outbox::Entity;
use millstream_processor::{DeadLetters, Operations};

use crate::account::Account;
use crate::say::say;
use crate::service::POISONED;
use crate::service_part::{RELAY, ServicePart};
use crate::world::RANGES;

/// Commits to the poisoned key after the storm, which go behind what is parked.
const COMMITS_BEHIND: usize = 10;
/// How often nothing may be under way before that is believed.
const QUIET_LOOKS: usize = 3;
const LOOK_INTERVAL: Duration = Duration::from_millis(50);
/// Without any change for so long something is stuck, which the parent hears.
const PATIENCE: Duration = Duration::from_secs(60);
/// Going to and fro for so long is being stuck, too.
const WAIT_MAX: Duration = Duration::from_secs(300);
const PAGE: usize = 1000;

/// Where events may still be.
#[derive(Debug, PartialEq, Eq)]
struct UnderWay {
    leases: usize,
    commits: u64,
    parked: usize,
    messages: usize,
}

/// Drives parked keys again, waits until all is delivered, and says what was committed.
pub(crate) async fn settle_down(part: &ServicePart) -> Result<()> {
    let clock = Arc::clone(&part.world.clock);
    let letters = DeadLetters::new(&part.world.leases, RELAY, clock, Duration::from_secs(10))
        .attempt(|| "open the dead letters")?;
    for _ in 0..COMMITS_BEHIND {
        part.service.commit(POISONED, 2).await?;
    }
    say("calm".to_owned());
    // First with the key still refused, so that all its events are parked.
    wait(part, &letters, false).await?;
    let parked = letters.list_parked(None, PAGE).await.attempt(|| "list what is parked")?;
    for sequence in &parked.sequences {
        say(format!("parked {} {}", sequence.partition_key, sequence.parked));
    }
    part.accept_poisoned();
    let operations = Operations::new(&part.world.data, &part.world.leases, RELAY)
        .attempt(|| "open the operations")?;
    let redriven = operations.redrive_all(&letters).await.attempt(|| "redrive")?;
    say(format!("redriven {redriven}"));
    wait(part, &letters, true).await?;
    tell(part).await
}

/// Waits until nothing is under way, or nothing moves any more.
async fn wait(part: &ServicePart, letters: &DeadLetters, none_parked: bool) -> Result<()> {
    let begun = part.world.clock.monotonic();
    let (mut before, mut since) = (None, begun);
    let mut quiet = 0;
    while quiet < QUIET_LOOKS {
        tokio::time::sleep(LOOK_INTERVAL).await;
        let found = UnderWay::look(part, letters).await?;
        let leases = usize::try_from(RANGES).unwrap_or(usize::MAX);
        let is_quiet = leases <= found.leases
            && found.commits == 0
            && found.messages == 0
            && (found.parked == 0 || !none_parked);
        quiet = if is_quiet { quiet + 1 } else { 0 };
        let now = part.world.clock.monotonic();
        if since + PATIENCE < now || begun + WAIT_MAX < now {
            say(format!("stuck {found:?}"));
            return Ok(());
        }
        if before.as_ref() != Some(&found) {
            // A slow machine is not stuck, and whoever listens hears that it goes on.
            say(format!("left {found:?}"));
            (before, since) = (Some(found), now);
        }
    }
    Ok(())
}

impl UnderWay {
    async fn look(part: &ServicePart, letters: &DeadLetters) -> Result<Self> {
        let lags = part.monitor.lock().unwrap_or_else(PoisonError::into_inner).lags();
        let parked = letters.list_parked(None, PAGE).await.attempt(|| "list what is parked")?;
        Ok(Self {
            leases: lags.len(),
            commits: lags.iter().map(|it| it.commits).sum(),
            parked: parked.sequences.len(),
            // A broker that is being started again has not said that it is empty.
            messages: part.broker.counts().await.map_or(usize::MAX, |it| it.active),
        })
    }
}

/// Says what the service has.
async fn tell(part: &ServicePart) -> Result<()> {
    #[derive(serde::Deserialize)]
    struct Stored {
        #[serde(rename = "type")]
        kind: String,
        data: Account,
    }
    for item in items(&part.world.data).await? {
        if item.sequence.is_some() {
            continue;
        }
        let stored: Stored = serde_json::from_slice(&item.body)
            .attempt(|| format!("read the entity \"{}\"", item.id))?;
        if stored.kind == Account::TYPE {
            say(format!("entity {} {}", item.id, stored.data.version()));
        }
    }
    let counts = part.broker.counts().await.attempt(|| "count messages")?;
    if 0 < counts.dead_lettered {
        return Err(Error::new(format!("deliver {} messages", counts.dead_lettered)));
    }
    say("drained".to_owned());
    Ok(())
}

/// All items of a container.
pub(crate) async fn items(container: &Container) -> Result<Vec<Item>> {
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
