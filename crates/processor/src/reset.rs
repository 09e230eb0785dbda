//! Moving leases to other positions.
//!
//! The control document is written first: its roots become the leases there are, with their new
//! positions and the number of the reset. Then every lease below that number is brought to the
//! position of its root. Whoever finds such a lease can go on where another stopped.

use futures_util::stream::{self, StreamExt, TryStreamExt};
use millstream_core::{Continuation, ErrorKind as CoreErrorKind, KeyRange, PageSize, StartFrom};

use crate::error::{Error, ErrorKind, Result};
use crate::feed_calls::{FeedCalls, feed_error};
use crate::lease_store::{CONFLICTS_MAX, LeaseStore, Stored, control_is_busy};
use crate::leaves::{Leaves, awaits_reset, check_container, root_of};
use crate::operations::{Operations, Snapshot, by_keys};
use crate::options::StartPosition;
use crate::stored::schema::SCHEMA_VERSION;
use crate::stored::{Control, Lease, LeaseState, Root};

/// Leases looked at or written at the same time.
const CONCURRENCY: usize = 16;
/// How often the leases are looked at because they change all the time.
const ROUNDS_MAX: usize = 32;

/// A wish to move the leases inside `keys`.
pub(crate) struct Reset<'a> {
    pub(crate) keys: KeyRange,
    /// What to note as the start of the processor; none leaves it as it is.
    pub(crate) start: Option<String>,
    pub(crate) target: Target<'a>,
}

/// Where leases are moved to.
#[derive(Clone, Copy)]
pub(crate) enum Target<'a> {
    Start(&'a StartPosition),
    Snapshot(&'a Snapshot),
}

impl Reset<'_> {
    pub(crate) async fn run(self, operations: &Operations) -> Result<()> {
        let store = &operations.store;
        for _ in 0..CONFLICTS_MAX {
            let leaves = Leaves::settle(store).await?;
            let Stored { document: control, etag } = leaves.control;
            check_container(store, &control, operations.container)?;
            self.target.check(store, &control)?;
            let leases: Vec<Lease> = leaves.active.into_iter().map(|it| it.document).collect();
            let roots = self.roots(&operations.feed, &control, &leases).await?;
            let wanted = Control {
                epoch: control.epoch + 1,
                resets: control.resets + 1,
                start: self.start.clone().unwrap_or_else(|| control.start.clone()),
                roots,
                ..control
            };
            match store.replace(wanted, &etag).await {
                Err(error) if *error.kind() == ErrorKind::Conflict => (),
                Err(error) => return Err(error),
                Ok(_) => return finish(store).await,
            }
        }
        Err(control_is_busy(store))
    }

    /// The roots after the reset: one per lease. Those outside the keys keep the position their
    /// hole would be repaired from.
    async fn roots(
        &self,
        feed: &FeedCalls,
        control: &Control,
        leases: &[Lease],
    ) -> Result<Vec<Root>> {
        let resets = control.resets + 1;
        let root = async |lease: &Lease| {
            let keys = lease.keys.clone();
            if self.keys.covers(&keys) {
                let position = self.target.position(feed, lease).await?;
                return Ok(Root { keys, position, resets });
            }
            if self.keys.overlaps(&keys) {
                return Err(lies_partly(&self.keys, &keys));
            }
            Ok(match root_of(control, &keys) {
                Some(root) => Root { keys, ..root.clone() },
                None => Root { keys, position: lease.position.clone(), resets: lease.resets },
            })
        };
        let roots = stream::iter(leases.iter().map(root)).buffered(CONCURRENCY);
        let mut roots: Vec<Root> = roots.try_collect().await?;
        roots.sort_by(|one, other| by_keys(&one.keys, &other.keys));
        Ok(roots)
    }
}

impl Target<'_> {
    fn check(self, store: &LeaseStore, control: &Control) -> Result<()> {
        let Self::Snapshot(snapshot) = self else { return Ok(()) };
        let attempted = format!(
            "restore the processor \"{}\" from a snapshot of \"{}\"",
            store.name(),
            snapshot.processor,
        );
        let (kind, reason) = if SCHEMA_VERSION < snapshot.schema.min_reader {
            (ErrorKind::NewerSchema, "a newer version took it; update this one")
        } else if snapshot.container != control.container {
            (ErrorKind::ContainerRecreated, "its positions belong to another container")
        } else if snapshot.mode != control.mode {
            (ErrorKind::ModeMismatch, "it was taken in the other feed mode")
        } else {
            return Ok(());
        };
        Err(Error::new(kind, attempted).because(reason))
    }

    async fn position(self, feed: &FeedCalls, lease: &Lease) -> Result<String> {
        match self {
            Self::Start(StartPosition::Now) => pin(feed, lease, StartFrom::Now).await,
            Self::Start(StartPosition::Beginning) => pin(feed, lease, StartFrom::Beginning).await,
            Self::Start(StartPosition::Time(time)) => {
                pin(feed, lease, StartFrom::Time(*time)).await
            }
            Self::Start(StartPosition::Continuation(it)) => proven(feed, lease, it).await,
            Self::Snapshot(snapshot) => saved(snapshot, lease),
        }
    }
}

/// Brings every lease to the position of its root that is not there yet.
pub(crate) async fn finish(store: &LeaseStore) -> Result<()> {
    for _ in 0..ROUNDS_MAX {
        let leaves = Leaves::settle(store).await?;
        let control = &leaves.control.document;
        let open: Vec<_> =
            leaves.active.into_iter().filter(|it| awaits_reset(control, &it.document)).collect();
        if open.is_empty() {
            return Ok(());
        }
        stream::iter(open.into_iter().map(|it| move_lease(store, control, it)))
            .buffered(CONCURRENCY)
            .try_collect::<()>()
            .await?;
    }
    let attempted = format!("reset the leases of the processor \"{}\"", store.name());
    Err(Error::new(ErrorKind::Conflict, attempted).because("others keep changing them; try again"))
}

/// Moves a lease unless it has been moved, replaced or deleted meanwhile.
async fn move_lease(store: &LeaseStore, control: &Control, lease: Stored<Lease>) -> Result<()> {
    let (container, keys) = (lease.document.container, lease.document.keys.clone());
    let mut found = Some(lease);
    for _ in 0..CONFLICTS_MAX {
        let Some(Stored { document, etag }) = found else { return Ok(()) };
        let Some(root) = root_of(control, &keys) else { return Ok(()) };
        if document.state != LeaseState::Active || !awaits_reset(control, &document) {
            return Ok(());
        }
        match store.replace(moved(document, root), &etag).await {
            Err(error) if *error.kind() == ErrorKind::Conflict => (),
            Err(error) if *error.kind() == ErrorKind::NotFound => return Ok(()),
            outcome => return outcome.map(|_| ()),
        }
        found = store.read_lease(container, &keys).await?;
    }
    Err(Error::new(ErrorKind::Conflict, format!("reset the lease {keys}"))
        .because("others keep writing it; try again"))
}

/// The new epoch and the missing owner are what keeps the old owner from going on.
fn moved(lease: Lease, root: &Root) -> Lease {
    Lease {
        position: root.position.clone(),
        epoch: lease.epoch + 1,
        owner: None,
        failing: Vec::new(),
        handled: None,
        owners_since_checkpoint: 0,
        resets: root.resets,
        ..lease
    }
}

async fn pin(feed: &FeedCalls, lease: &Lease, from: StartFrom) -> Result<String> {
    let keys = &lease.keys;
    let attempted = format!("choose a position for the lease {keys}");
    match feed.start(keys, from, lease.mode.into()).await {
        Ok(continuation) => Ok(continuation.as_str().to_owned()),
        Err(error) if error.kind() == CoreErrorKind::RangeMoved => {
            Err(Error::new(ErrorKind::Conflict, attempted).because(
                "a split is in progress; try again once a running instance has noticed it",
            ))
        }
        Err(error) => Err(feed_error(attempted, keys, error)),
    }
}

/// Reads from the continuation once, so that one that means nothing is refused before anything is
/// changed.
async fn proven(feed: &FeedCalls, lease: &Lease, continuation: &Continuation) -> Result<String> {
    match feed.read(&lease.keys, continuation, PageSize::items(1)).await {
        Err(error) if error.kind() != CoreErrorKind::RangeMoved => {
            let attempted = format!("use the continuation for the lease {}", lease.keys);
            Err(feed_error(attempted, &lease.keys, error))
        }
        // Keys in several ranges are no obstacle: the continuation works in each.
        Ok(_) | Err(_) => Ok(continuation.as_str().to_owned()),
    }
}

fn saved(snapshot: &Snapshot, lease: &Lease) -> Result<String> {
    let attempted = || format!("find the lease {} in the snapshot", lease.keys);
    let overlapping: Vec<_> =
        snapshot.positions.iter().filter(|it| it.keys.overlaps(&lease.keys)).collect();
    let [saved] = overlapping.as_slice() else {
        let reason = match overlapping.len() {
            0 => "the snapshot has no position for it",
            _ => "it lies in several ranges of the snapshot",
        };
        return Err(Error::invalid(attempted(), reason));
    };
    if !saved.keys.covers(&lease.keys) {
        return Err(Error::invalid(attempted(), "the snapshot has a part of it only"));
    }
    let position = Continuation::new(saved.position.as_str());
    position.map(|it| it.as_str().to_owned()).map_err(|error| Error::invalid(attempted(), error))
}

fn lies_partly(keys: &KeyRange, lease: &KeyRange) -> Error {
    let attempted = format!("reset the keys {keys}");
    Error::invalid(attempted, format!("the lease {lease} lies only partly in them"))
}
