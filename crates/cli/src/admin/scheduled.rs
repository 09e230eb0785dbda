//! Events that relays keep until they are due, for destinations that cannot.

use millstream_processor::PostponedChange;
use serde::{Deserialize, Serialize};

use crate::failure::Result;
use crate::system::{RelayTools, System};

/// Most that are read at once, and most that are counted or listed of a relay.
const PAGE: usize = 1_000;
const COUNTED_MAX: usize = 10_000;

/// An event that is not due.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ScheduledRow {
    pub(crate) relay: String,
    pub(crate) due: String,
    pub(crate) partition_key: String,
    pub(crate) event: String,
    /// Names it when it is thrown away.
    pub(crate) id: String,
}

/// Those of all relays.
pub(crate) async fn scheduled(system: &System) -> Result<Vec<ScheduledRow>> {
    let mut rows = Vec::new();
    for relay in &system.relays {
        let Some(tools) = system.look(relay).await? else { continue };
        each_page(&tools, |page| {
            rows.extend(page.into_iter().map(|it| ScheduledRow {
                relay: relay.name.clone(),
                due: it.due.to_rfc3339(),
                partition_key: it.change.partition_key.to_string(),
                event: it.change.id.to_string(),
                id: it.id,
            }));
        })
        .await?;
    }
    Ok(rows)
}

/// How many a relay has; 10,000 if there are more.
pub(crate) async fn count_scheduled(system: &System, relay: &str) -> Result<u64> {
    let mut count = 0;
    let tools = system.relay(relay).await?;
    each_page(&tools, |page| count += page.len()).await?;
    Ok(u64::try_from(count).unwrap_or(u64::MAX))
}

/// Throws one away: it is never sent.
pub(crate) async fn discard_scheduled(system: &System, relay: &str, id: &str) -> Result<u64> {
    system.relay(relay).await?.letters.discard_postponed(id).await?;
    Ok(1)
}

async fn each_page(tools: &RelayTools, mut act: impl FnMut(Vec<PostponedChange>)) -> Result<()> {
    let (mut count, mut after) = (0, None);
    loop {
        let page = tools.letters.list_postponed(after.as_deref(), PAGE).await?;
        count += page.changes.len();
        act(page.changes);
        after = page.next;
        if after.is_none() || COUNTED_MAX <= count {
            return Ok(());
        }
    }
}
