//! How the relays are, and what they have put aside.

use millstream_core::PartitionKey;
use millstream_processor::{ErrorKind, LeaseState, ParkedChange, ParkedSequence, ParkedState};
use serde::{Deserialize, Serialize};

use crate::admin::strangers::strangers;
use crate::failure::{Failure, Result};
use crate::system::System;

/// Most changes of a parked key in one answer.
const CHANGES_MAX: usize = 1_000;

/// How far a relay is behind.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct LagRow {
    pub(crate) relay: String,
    pub(crate) container: String,
    pub(crate) commits: u64,
    /// The age of the oldest commit it has not sent.
    pub(crate) seconds: Option<f64>,
    pub(crate) leases: usize,
    pub(crate) paused: bool,
    /// Whether the feed no longer reaches back to where it is, so that changes are missing.
    pub(crate) expired: bool,
    /// Whether it is a relay of the settings; if not, nobody may read on and events are held.
    pub(crate) configured: bool,
}

/// A lease of a relay.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct LeaseRow {
    pub(crate) relay: String,
    pub(crate) keys: String,
    pub(crate) owner: Option<String>,
    pub(crate) epoch: u64,
    pub(crate) state: String,
    /// The newest commit that was handled.
    pub(crate) handled: Option<u64>,
    pub(crate) handled_at: Option<String>,
    /// What fails now.
    pub(crate) failing: Vec<String>,
}

/// A parked key.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ParkedRow {
    pub(crate) relay: String,
    pub(crate) partition_key: String,
    pub(crate) state: String,
    pub(crate) parked: u64,
    pub(crate) attempts: u32,
    pub(crate) first_parked_at: String,
    pub(crate) error: String,
}

/// A change of a parked key.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ParkedChangeRow {
    pub(crate) id: String,
    pub(crate) lsn: u64,
    pub(crate) committed_at: String,
    pub(crate) attempts: u32,
    pub(crate) error: Option<String>,
    pub(crate) body: Option<String>,
}

/// Some changes of a parked key, and where to go on.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ParkedChanges {
    pub(crate) changes: Vec<ParkedChangeRow>,
    /// None at the end.
    pub(crate) after: Option<String>,
}

pub(crate) async fn lag(system: &System) -> Result<Vec<LagRow>> {
    let mut rows = Vec::new();
    let strangers = strangers(system).await?;
    for relay in system.relays.iter().chain(&strangers) {
        let Some(tools) = system.look(relay).await? else { continue };
        let Some(estimate) = if_started(tools.estimator.estimate().await)? else { continue };
        rows.push(LagRow {
            relay: relay.name.clone(),
            container: relay.data.to_string(),
            commits: estimate.commits,
            seconds: estimate.oldest.map(|it| it.as_secs_f64()),
            expired: estimate.leases.iter().any(|it| it.expired),
            leases: estimate.leases.len(),
            paused: estimate.paused,
            configured: !strangers.contains(relay),
        });
    }
    Ok(rows)
}

pub(crate) async fn leases(system: &System) -> Result<Vec<LeaseRow>> {
    let mut rows = Vec::new();
    for relay in &system.relays {
        let Some(tools) = system.look(relay).await? else { continue };
        let Some(status) = if_started(tools.operations.status().await)? else { continue };
        rows.extend(status.leases.into_iter().map(|lease| {
            LeaseRow {
                relay: relay.name.clone(),
                keys: lease.keys.to_string(),
                owner: lease.owner,
                epoch: lease.epoch,
                state: match lease.state {
                    LeaseState::Active => "active".to_owned(),
                    LeaseState::Splitting => "splitting".to_owned(),
                    LeaseState::Retired => "retired".to_owned(),
                },
                handled: lease.handled.as_ref().map(|it| it.lsn),
                handled_at: lease.handled.as_ref().map(|it| it.committed_at().to_rfc3339()),
                failing: lease
                    .failing
                    .into_iter()
                    .map(|it| format!("{} of {}: {}", it.id, it.partition_key, it.error))
                    .collect(),
            }
        }));
    }
    Ok(rows)
}

pub(crate) async fn parked_list(system: &System) -> Result<Vec<ParkedRow>> {
    let mut rows = Vec::new();
    for relay in &system.relays {
        let Some(tools) = system.look(relay).await? else { continue };
        let mut after = None;
        loop {
            let page = tools.letters.list_parked(after.as_deref(), 1_000).await?;
            rows.extend(page.sequences.into_iter().map(|it| row(&relay.name, it)));
            after = page.next;
            if after.is_none() {
                break;
            }
        }
    }
    Ok(rows)
}

pub(crate) async fn parked_show(
    system: &System,
    relay: &str,
    key: &str,
    after: Option<&str>,
) -> Result<ParkedChanges> {
    let letters = system.relay(relay).await?.letters;
    let key = partition_key(key)?;
    // Between two pages it may have been sent to its end.
    if after.is_none() && letters.show(&key).await?.is_none() {
        return Err(Failure::other(format!("the relay {relay:?} has not parked the key {key}")));
    }
    let changes = letters.sequence(&key, after, CHANGES_MAX).await?;
    let after = changes.last().map(|it| it.id.clone());
    Ok(ParkedChanges { changes: changes.into_iter().map(ParkedChangeRow::from).collect(), after })
}

/// Asks for redelivery of a key, or of all of them; says of how many.
pub(crate) async fn redrive(system: &System, relay: &str, key: Option<&str>) -> Result<u64> {
    let tools = system.relay(relay).await?;
    let Some(key) = key else {
        return Ok(tools.operations.redrive_all(&tools.letters).await?);
    };
    tools.operations.redrive(&tools.letters, &partition_key(key)?).await?;
    Ok(1)
}

/// Throws a parked key away; says how many changes it had.
pub(crate) async fn discard(system: &System, relay: &str, key: &str) -> Result<u64> {
    let letters = system.relay(relay).await?.letters;
    Ok(letters.discard(&partition_key(key)?).await?)
}

impl From<ParkedChange> for ParkedChangeRow {
    fn from(parked: ParkedChange) -> Self {
        let body = parked.change.current.map(|it| String::from_utf8_lossy(&it.body).into_owned());
        Self {
            id: parked.change.id.as_str().to_owned(),
            lsn: parked.change.lsn.as_u64(),
            committed_at: parked.change.committed_at.to_rfc3339(),
            attempts: parked.attempts,
            error: parked.error,
            body,
        }
    }
}

fn row(relay: &str, sequence: ParkedSequence) -> ParkedRow {
    ParkedRow {
        relay: relay.to_owned(),
        partition_key: sequence.partition_key.to_string(),
        state: match sequence.state {
            ParkedState::Parked => "parked".to_owned(),
            ParkedState::Redriving => "redriving".to_owned(),
        },
        parked: sequence.parked,
        attempts: sequence.attempts,
        first_parked_at: sequence.first_parked_at.to_rfc3339(),
        error: sequence.error,
    }
}

/// A key as JSON, such as `["a"]`, or the text of one that is text.
fn partition_key(text: &str) -> Result<PartitionKey> {
    if text.starts_with('[') {
        return Ok(text.parse()?);
    }
    Ok(text.into())
}

/// None if the relay was never started.
fn if_started<T>(outcome: millstream_processor::Result<T>) -> Result<Option<T>> {
    match outcome {
        Ok(value) => Ok(Some(value)),
        Err(error) if *error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error.into()),
    }
}
