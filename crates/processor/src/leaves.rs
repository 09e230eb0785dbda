//! The leases that count now: those no other lease has replaced.

use std::collections::BTreeMap;

use millstream_core::KeyRange;

use crate::error::{Error, ErrorKind, Result};
use crate::lease_store::{LeaseStore, Stored};
use crate::split::{complete_split, create_if_missing};
use crate::stored::schema::Document;
use crate::stored::{Control, Lease, LeaseState, Root};

/// How often the leases are looked at because they change all the time.
const ROUNDS_MAX: usize = 32;

/// The control document and the leases at the ends of all lines of descent.
#[derive(Debug)]
pub(crate) struct Leaves {
    pub(crate) control: Stored<Control>,
    /// Leases that are processed or wait for an owner.
    pub(crate) active: Vec<Stored<Lease>>,
    /// Leases that should exist and do not yet, or no longer, as they would be created.
    pub(crate) missing: Vec<Lease>,
    /// Leases that are being replaced.
    pub(crate) splitting: Vec<Stored<Lease>>,
}

impl Leaves {
    /// Finds them by following the descent from the roots, so that neither a listing during a split
    /// nor an old one makes a hole: a lease that is not in the listing is read.
    pub(crate) async fn find(store: &LeaseStore) -> Result<Self> {
        let control = store.read_control().await?.ok_or_else(|| no_processor(store))?;
        let container = control.document.container;
        let listed = store.list().await?.leases.into_iter();
        let mut listed: BTreeMap<String, Stored<Lease>> = listed
            .filter(|it| it.document.container == container)
            .map(|it| (it.document.local_id(), it))
            .collect();
        let mut wanted: Vec<Lease> =
            control.document.roots.iter().map(|it| root_lease(&control.document, it)).collect();
        let (active, missing, splitting) = (Vec::new(), Vec::new(), Vec::new());
        let mut leaves = Self { control, active, missing, splitting };
        while let Some(lease) = wanted.pop() {
            let found = match listed.remove(&lease.local_id()) {
                None => store.read_lease(container, &lease.keys).await?,
                found => found,
            };
            match found {
                None => leaves.missing.push(lease),
                Some(found) => leaves.sort_in(found, &mut wanted),
            }
        }
        // What else was listed does not count: a lease that was seen before it was replaced stands
        // for the leases that replaced it, which may have been seen too.
        Ok(leaves)
    }

    /// The same, after completing every split that was begun and creating what is missing, so that
    /// all of them are active.
    pub(crate) async fn settle(store: &LeaseStore) -> Result<Self> {
        for _ in 0..ROUNDS_MAX {
            let leaves = Self::find(store).await?;
            if leaves.missing.is_empty() && leaves.splitting.is_empty() {
                return Ok(leaves);
            }
            for lease in leaves.missing {
                create_if_missing(store, lease).await?;
            }
            for parent in &leaves.splitting {
                complete_split(store, parent).await?;
            }
        }
        let attempted = format!("find the leases of the processor \"{}\"", store.name());
        Err(Error::new(ErrorKind::Conflict, attempted)
            .because("they are split all the time; try again"))
    }

    fn sort_in(&mut self, lease: Stored<Lease>, wanted: &mut Vec<Lease>) {
        if lease.document.state == LeaseState::Active {
            self.active.push(lease);
            return;
        }
        // Children are narrower than their parent; what is not would be followed for ever.
        let narrower =
            |it: &&KeyRange| lease.document.keys.covers(it) && **it != lease.document.keys;
        let children = lease.document.children.iter().filter(narrower);
        wanted.extend(children.map(|it| lease.document.child(it.clone())));
        if lease.document.state == LeaseState::Splitting {
            self.splitting.push(lease);
        }
    }
}

/// The lease of a root as it is created at the first start, or again when it is lost.
pub(crate) fn root_lease(control: &Control, root: &Root) -> Lease {
    let (keys, position) = (root.keys.clone(), root.position.clone());
    Lease { resets: root.resets, ..Lease::new(control.container, control.mode, keys, position) }
}

/// The root that the lease of these keys descends from.
pub(crate) fn root_of<'a>(control: &'a Control, keys: &KeyRange) -> Option<&'a Root> {
    control.roots.iter().find(|it| it.keys.covers(keys))
}

/// Whether the last reset that concerns a lease has not reached it.
pub(crate) fn awaits_reset(control: &Control, lease: &Lease) -> bool {
    root_of(control, &lease.keys).is_some_and(|root| lease.resets < root.resets)
}

/// Refuses a feed that is not the one of the processor.
pub(crate) fn check_container(store: &LeaseStore, control: &Control, feed: u64) -> Result<()> {
    if control.container == feed {
        return Ok(());
    }
    control.check_exact_for(feed)?;
    let attempted = format!("use the leases of the processor \"{}\"", store.name());
    Err(Error::new(ErrorKind::ContainerRecreated, attempted)
        .because("they were made for another container, or an earlier one of this name"))
}

/// The error when a processor has never been started.
pub(crate) fn no_processor(store: &LeaseStore) -> Error {
    Error::new(ErrorKind::NotFound, format!("find the processor \"{}\"", store.name()))
        .because("it has no control document in this container; start an instance of it first")
}
