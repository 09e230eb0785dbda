//! What the program itself keeps in a store: the broker, and the leases of the relays with what
//! they have parked.

use std::sync::Arc;
use std::time::Duration;

use millstream_broker::inspect;
use millstream_core::{Clock, Container, Containers, ErrorKind, SystemClock};
use millstream_processor::{DeadLetters, Operations};

use crate::config::Config;
use crate::failure::Result;
use crate::system::{self, RelayName};

/// Longest time one call to the dead letters may take.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Parked keys, and changes of one, that are read at once.
const PAGE: usize = 1_000;

/// What should not be, by container.
pub(super) async fn problems(
    store: &dyn Containers,
    config: &Config,
) -> Result<Vec<(String, String)>> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::default());
    let mut found = Vec::new();
    let name = system::broker_name()?;
    if let Some(container) = open(store, &name).await? {
        let inspection = inspect(&container, &*clock).await?;
        found.extend(inspection.problems.into_iter().map(|it| (name.to_string(), it)));
    }
    let name = system::leases_name()?;
    if let Some(leases) = open(store, &name).await? {
        for relay in system::relays(config)? {
            let Some(data) = open(store, &relay.data).await? else { continue };
            for problem in relay_problems(&relay, &data, &leases, &clock).await {
                found.push((name.to_string(), format!("relay {:?}: {problem}", relay.name)));
            }
        }
    }
    Ok(found)
}

async fn relay_problems(
    relay: &RelayName,
    data: &Container,
    leases: &Container,
    clock: &Arc<dyn Clock>,
) -> Vec<String> {
    let mut problems = Vec::new();
    if let Err(error) = coverage(relay, data, leases, clock, &mut problems).await {
        // One that was never started has no leases.
        if *error.kind() != millstream_processor::ErrorKind::NotFound {
            problems.push(error.report());
        }
    }
    if let Err(error) = read_parked(relay, leases, clock).await {
        problems.push(error.report());
    }
    problems
}

/// Reads the leases, which must divide the keys among them.
async fn coverage(
    relay: &RelayName,
    data: &Container,
    leases: &Container,
    clock: &Arc<dyn Clock>,
    problems: &mut Vec<String>,
) -> millstream_processor::Result<()> {
    let operations = Operations::new_with(data, leases, &relay.name, Arc::clone(clock))?;
    let coverage = operations.coverage().await?;
    let holes = coverage.holes.iter().map(|keys| format!("no lease stands for the keys {keys}"));
    problems.extend(holes);
    let overlaps = coverage.overlaps.iter();
    problems.extend(overlaps.map(|(one, other, keys)| {
        format!("the leases {one} and {other} both stand for the keys {keys}")
    }));
    Ok(())
}

/// Reads everything that is parked or was skipped.
async fn read_parked(
    relay: &RelayName,
    leases: &Container,
    clock: &Arc<dyn Clock>,
) -> millstream_processor::Result<()> {
    let letters = DeadLetters::new(leases, &relay.name, Arc::clone(clock), TIMEOUT)?;
    let mut after = None;
    loop {
        let page = letters.list_parked(after.as_deref(), PAGE).await?;
        for sequence in page.sequences {
            let (key, mut after) = (&sequence.partition_key, None::<String>);
            while let Some(last) = letters.sequence(key, after.as_deref(), PAGE).await?.pop() {
                after = Some(last.id);
            }
        }
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    loop {
        after = letters.list_skipped(after.as_deref(), PAGE).await?.next;
        if after.is_none() {
            return Ok(());
        }
    }
}

/// Opens a container, if there is one.
async fn open(
    store: &dyn Containers,
    name: &millstream_core::ContainerName,
) -> Result<Option<Container>> {
    match store.open(name).await {
        Ok(container) => Ok(Some(container)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error.into()),
    }
}
