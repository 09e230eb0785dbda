//! Items as lines of JSON, out of a container and into one.

use std::collections::BTreeMap;

use millstream_core::{
    BATCH_OPERATIONS_MAX, Batch, Container, KeyRange, Operation, PageSize, PartitionKey,
    ScanContinuation, ScanScope,
};
use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;

use crate::failure::{Failure, Result};
use crate::system::System;

/// Most bytes of bodies in one batch; the limit of a batch counts more than bodies.
const BATCH_BYTES_MAX: usize = 1024 * 1024;
/// Partition keys that are written beside each other.
const KEYS_AT_ONCE: usize = 64;

/// Some items, each as one line, and where to go on.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct LinesAnswer {
    pub(crate) lines: Vec<String>,
    pub(crate) after: Option<String>,
    /// How much of the key space they and those before them have, of 65,536 parts. Items are spread
    /// over it evenly and come in its order, so that is how far it is.
    pub(crate) passed: u64,
}

pub(crate) async fn export(
    system: &System,
    container: &str,
    after: Option<String>,
) -> Result<LinesAnswer> {
    let container = system.container(container).await?;
    let after = after.map(ScanContinuation::new);
    let scope = ScanScope::Keys(KeyRange::all());
    let page = container.documents.scan(&scope, after.as_ref(), PageSize::items(1_000)).await?;
    let mut lines = Vec::new();
    for item in &page.items {
        lines.push(one_line(&item.body)?);
    }
    let definition = &container.info.settings.partition_key;
    let last = page.items.last().map(|it| definition.effective(&it.partition_key)).transpose()?;
    let passed = last.map_or(0, |it| place(it.as_bytes()));
    let after = page.continuation.map(|it| it.as_str().to_owned());
    Ok(LinesAnswer { lines, after, passed })
}

/// Where a hash lies, of 65,536 parts; its first two bits are never set.
fn place(hash: &[u8]) -> u64 {
    let [high, low] = [0, 1].map(|it| u64::from(hash.get(it).copied().unwrap_or_default()));
    (high * 256 + low) * 4
}

/// Writes items, replacing those that are there. Those of one key are written in their order.
pub(crate) async fn import(system: &System, container: &str, lines: Vec<String>) -> Result<u64> {
    let container = system.container(container).await?;
    let count = u64::try_from(lines.len()).unwrap_or(u64::MAX);
    let definition = &container.info.settings.partition_key;
    let mut by_key: BTreeMap<PartitionKey, Vec<String>> = BTreeMap::new();
    for line in lines {
        let key = definition.extract(line.as_bytes())?;
        by_key.entry(key).or_default().push(line);
    }
    let mut writes = JoinSet::new();
    for (key, lines) in by_key {
        if KEYS_AT_ONCE <= writes.len() {
            finished(writes.join_next().await)?;
        }
        writes.spawn(write(container.clone(), key, lines));
    }
    while !writes.is_empty() {
        finished(writes.join_next().await)?;
    }
    Ok(count)
}

async fn write(container: Container, key: PartitionKey, lines: Vec<String>) -> Result<()> {
    let mut batch = Batch::new(key.clone());
    let mut bytes = 0;
    for line in lines {
        let is_full =
            BATCH_OPERATIONS_MAX <= batch.operations.len() || BATCH_BYTES_MAX < bytes + line.len();
        if is_full && !batch.operations.is_empty() {
            let full = std::mem::replace(&mut batch, Batch::new(key.clone()));
            container.documents.commit(full).await?;
            bytes = 0;
        }
        bytes += line.len();
        batch = batch.with(Operation::upsert(line));
    }
    container.documents.commit(batch).await?;
    Ok(())
}

fn finished(joined: Option<Result<Result<()>, tokio::task::JoinError>>) -> Result<()> {
    match joined {
        None => Ok(()),
        Some(Ok(outcome)) => outcome,
        Some(Err(error)) => Err(Failure::other(format!("could not import: {error}"))),
    }
}

/// The body without line breaks between its parts; inside JSON texts there are none.
fn one_line(body: &[u8]) -> Result<String> {
    let text = std::str::from_utf8(body)
        .map_err(|_| Failure::other("could not export an item: its body is not UTF-8"))?;
    Ok(text.replace(['\n', '\r'], " "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_place_of_a_hash_grows_to_the_end_of_the_key_space() {
        assert_eq!(place(&[]), 0);
        assert_eq!(place(&[0x20, 0, 9]), 32_768);
        assert_eq!(place(&[0x3F, 0xFF]), 65_532);
    }
}
