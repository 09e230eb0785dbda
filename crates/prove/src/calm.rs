//! The end: parked keys are driven again, everything drains, and the service says what it has.

use std::sync::Arc;
use std::time::Duration;

use millstream_core::{Container, Item, KeyRange, PageSize, ScanScope};
use millstream_crash::{Attempt, Error, Result};
use millstream_outbox::Entity;
use millstream_processor::{
    DeadLetters, Error as ProcessorError, Estimator, Operations, ParkedPage,
};

use crate::account::Account;
use crate::patience::reaching;
use crate::remote::RemoteBroker;
use crate::say::say;
use crate::service::POISONED;
use crate::service_part::{RELAY, ServicePart};
use crate::world::ServiceWorld;

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

/// Looks for events that have not arrived.
struct Look<'a> {
    broker: &'a RemoteBroker,
    letters: DeadLetters,
    /// Asks the feed itself: what the relay last heard of it may be older than a commit.
    estimator: Estimator,
}

/// Where events may still be.
#[derive(Debug, PartialEq, Eq)]
struct UnderWay {
    commits: u64,
    parked: usize,
    messages: usize,
}

/// Drives parked keys again, waits until all is delivered, and says what was committed.
pub(crate) async fn settle_down(part: &ServicePart) -> Result<()> {
    let look = Look::new(part).attempt(|| "find out what is under way")?;
    for _ in 0..COMMITS_BEHIND {
        part.service.commit(POISONED, 2).await?;
    }
    say("calm".to_owned());
    // First with the key still refused, so that all its events are parked.
    wait(part, &look, false).await?;
    for sequence in &look.parked().await?.sequences {
        say(format!("parked {} {}", sequence.partition_key, sequence.parked));
    }
    part.accept_poisoned();
    let operations = Operations::new(&part.world.data, &part.world.leases, RELAY)
        .attempt(|| "open the operations")?;
    let redriven = reaching(async || operations.redrive_all(&look.letters).await).await;
    let redriven = redriven.attempt(|| "redrive")?;
    say(format!("redriven {redriven}"));
    wait(part, &look, true).await?;
    tell(part).await
}

/// Waits until nothing is under way, or nothing moves any more.
async fn wait(part: &ServicePart, look: &Look<'_>, none_parked: bool) -> Result<()> {
    let begun = part.world.clock.monotonic();
    let (mut before, mut since) = (None, begun);
    let mut quiet = 0;
    while quiet < QUIET_LOOKS {
        tokio::time::sleep(LOOK_INTERVAL).await;
        let found = look.under_way().await?;
        let is_quiet =
            found.commits == 0 && found.messages == 0 && (found.parked == 0 || !none_parked);
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

impl<'a> Look<'a> {
    fn new(part: &'a ServicePart) -> Result<Self, ProcessorError> {
        let ServiceWorld { clock, data, leases, .. } = &*part.world;
        let letters = DeadLetters::new(leases, RELAY, Arc::clone(clock), Duration::from_secs(10))?;
        let estimator = Estimator::new(data, leases, RELAY)?;
        Ok(Self { broker: &part.broker, letters, estimator })
    }

    /// From where events come to where they go, so that none slips past.
    async fn under_way(&self) -> Result<UnderWay> {
        Ok(UnderWay {
            // A relay that was never started has not said that there is nothing.
            commits: self.estimator.estimate().await.map_or(u64::MAX, |it| it.commits),
            parked: self.parked().await?.sequences.len(),
            // A broker that is being started again has not said that it is empty.
            messages: self.broker.counts().await.map_or(usize::MAX, |it| it.active),
        })
    }

    async fn parked(&self) -> Result<ParkedPage> {
        let listed = reaching(async || self.letters.list_parked(None, PAGE).await).await;
        listed.attempt(|| "list what is parked")
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
    let counts = reaching(async || part.broker.counts().await).await;
    let counts = counts.attempt(|| "count messages")?;
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
        let (after_last, size) = (after.as_ref(), PageSize::items(PAGE));
        let scan = async || container.documents.scan(&scope, after_last, size).await;
        let page = reaching(scan).await.attempt(|| "read a container")?;
        items.extend(page.items);
        after = page.continuation;
        if after.is_none() {
            return Ok(items);
        }
    }
}
