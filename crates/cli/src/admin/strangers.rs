//! Readers that hold events of our containers and are no relays of the settings: relays that were
//! taken out of them, and processors of others.

use std::collections::BTreeSet;

use millstream_core::ErrorKind;
use millstream_processor::remove_processor;

use crate::failure::{Failure, Result};
use crate::system::{RelayName, System};

/// All of them. What they have not read is kept for them for ever.
pub(crate) async fn strangers(system: &System) -> Result<Vec<RelayName>> {
    let containers: BTreeSet<_> = system.relays.iter().map(|it| &it.data).collect();
    let mut found = Vec::new();
    for data in containers {
        let container = match system.store.containers.open(data).await {
            Ok(container) => container,
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            Err(error) => return Err(error.into()),
        };
        let Some(guards) = &container.guards else { continue };
        let holders = guards.holders().await?.into_iter();
        let holders = holders.map(|name| RelayName { name, data: data.clone() });
        found.extend(holders.filter(|it| !system.relays.contains(it)));
    }
    Ok(found)
}

/// Lets go of what such a reader holds, and removes its leases and what it has parked. Says how
/// many documents that were.
pub(crate) async fn forget(system: &System, name: &str) -> Result<u64> {
    if system.relays.iter().any(|it| it.name == name) {
        return Err(Failure::usage(format!(
            "the relay {name:?} is in the settings: take it out there first, and stop whoever \
             runs it"
        )));
    }
    let strangers = strangers(system).await?;
    let Some(stranger) = strangers.iter().find(|it| it.name == name) else {
        let names: Vec<&str> = strangers.iter().map(|it| it.name.as_str()).collect();
        let others = match names.is_empty() {
            true => "nobody does who is not in the settings".to_owned(),
            false => format!("these do: {}", names.join(", ")),
        };
        return Err(Failure::usage(format!("{name:?} holds no events; {others}")));
    };
    let removed = remove_processor(&system.leases, name).await?;
    // Last, so that whatever goes wrong before can be done again.
    let container = system.container(&stranger.data.to_string()).await?;
    if let Some(guards) = &container.guards {
        guards.release(name).await?;
    }
    Ok(removed)
}
