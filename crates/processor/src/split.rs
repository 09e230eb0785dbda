//! Replacing a lease by narrower ones.

use crate::error::{Error, ErrorKind, Result};
use crate::lease_store::{LeaseStore, Stored};
use crate::stored::{Lease, LeaseState};

/// How often the parent is read again because somebody else has written it.
const CONFLICTS_MAX: usize = 16;

/// Creates the children of a lease that is being replaced, then retires it.
///
/// Any number of callers may do this at the same time and after each other, and each may die in the
/// middle: children are created from the frozen position of the parent under ids that follow from
/// their keys, and the parent is retired only when all of them exist.
///
/// # Errors
///
/// `Conflict` if the lease is not being replaced.
///
/// # Cancel safety
///
/// Dropping the future may leave it done in part; call it again.
pub(crate) async fn complete_split(store: &LeaseStore, parent: &Stored<Lease>) -> Result<()> {
    let mut parent = parent.clone();
    for _ in 0..CONFLICTS_MAX {
        match parent.document.state {
            LeaseState::Retired => return Ok(()),
            LeaseState::Splitting => (),
            LeaseState::Active => return Err(not_splitting(&parent.document)),
        }
        for keys in &parent.document.children {
            create_if_missing(store, parent.document.child(keys.clone())).await?;
        }
        let retired = Lease { state: LeaseState::Retired, owner: None, ..parent.document.clone() };
        match store.replace(retired, &parent.etag).await {
            Err(error) if *error.kind() == ErrorKind::Conflict => (),
            outcome => return outcome.map(|_| ()),
        }
        let (container, keys) = (parent.document.container, &parent.document.keys);
        let found = store.read_lease(container, keys).await?;
        parent = found.ok_or_else(|| gone(&parent.document))?;
    }
    Err(Error::new(ErrorKind::Conflict, format!("retire the lease {}", parent.document.keys))
        .because("others keep writing it; try again"))
}

/// Creates a lease unless there is one of its keys already.
pub(crate) async fn create_if_missing(store: &LeaseStore, lease: Lease) -> Result<()> {
    match store.create(lease).await {
        Err(error) if *error.kind() == ErrorKind::Conflict => Ok(()),
        outcome => outcome.map(|_| ()),
    }
}

fn not_splitting(lease: &Lease) -> Error {
    Error::new(ErrorKind::Conflict, format!("complete the split of the lease {}", lease.keys))
        .because("it is not being replaced")
}

fn gone(lease: &Lease) -> Error {
    Error::new(ErrorKind::NotFound, format!("complete the split of the lease {}", lease.keys))
        .because("somebody deleted it")
}

#[cfg(test)]
mod tests;
