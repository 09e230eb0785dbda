//! What may happen to a lease.

use millstream_core::KeyRange;

use crate::ledger::{Entry, Lease, LeaseState, Ledger, Owner, State};
use crate::watch::Commit;

impl Ledger {
    pub(super) fn lease_written(
        &self,
        state: &mut State,
        commit: &Commit,
        id: &str,
        after: Option<Lease>,
    ) -> Result<(), String> {
        let Some(after) = after else {
            return Err(format!("the lease {id:?} was deleted"));
        };
        let before = state.leases.get(id).cloned();
        let moved = match &before {
            None => {
                state.check_created(&after)?;
                true
            }
            Some(before) => {
                self.check_replaced(state, commit, before, &after)?;
                before.lease.position != after.position
            }
        };
        let reshaped = before.as_ref().is_none_or(|it| it.lease.state != after.state);
        let keeps = before.as_ref().filter(|it| it.lease.epoch == after.epoch);
        let owned_since = keeps.map_or(commit.at, |it| it.owned_since);
        let (keys, reached) = (after.keys.clone(), after.lsn());
        state.leases.insert(id.to_owned(), Entry { lease: after, owned_since });
        if moved && let Some(reached) = reached {
            self.deliveries.checkpoint(&keys, reached)?;
        }
        if reshaped { state.check_cover() } else { Ok(()) }
    }

    /// Positions and epochs never go back, and only the owner moves a position or begins a split.
    fn check_replaced(
        &self,
        state: &mut State,
        commit: &Commit,
        entry: &Entry,
        after: &Lease,
    ) -> Result<(), String> {
        let before = &entry.lease;
        let keys = &before.keys;
        let owner = before.owner.as_ref();
        let writer = state.incarnation(commit.node);
        let is_owner = owner.is_some_and(|it| Some(it.incarnation) == writer);
        let who = state.full_name(commit.node);
        if after.keys != *keys {
            return Err(format!("the lease {keys} got other keys"));
        }
        if after.epoch < before.epoch {
            return Err(format!("the epoch of {keys} went back"));
        }
        if let (Some(from), to) = (before.lsn(), after.lsn())
            && to < Some(from)
        {
            return Err(format!("the position of {keys} went back from {from} to {to:?}"));
        }
        if before.position != after.position && !is_owner {
            return Err(format!("{who} moved the position of {keys}, owned by {owner:?}"));
        }
        match (before.state, after.state) {
            (LeaseState::Active, LeaseState::Active) => {
                self.check_owner(state, commit, entry, after)
            }
            (LeaseState::Active, LeaseState::Splitting | LeaseState::Retired) => {
                if !is_owner {
                    return Err(format!("{who} began to split {keys}, owned by {owner:?}"));
                }
                state.counts.splits += 1;
                check_tiles(keys, &after.children)
            }
            (LeaseState::Splitting, LeaseState::Splitting | LeaseState::Retired)
            | (LeaseState::Retired, LeaseState::Retired) => {
                if before.position != after.position || before.children != after.children {
                    return Err(format!("the lease {keys} changed although it is frozen"));
                }
                Ok(())
            }
            (from, to) => Err(format!("the lease {keys} went from {from:?} to {to:?}")),
        }
    }

    /// One owner per epoch, and nobody takes a lease from an owner that is alive.
    fn check_owner(
        &self,
        state: &mut State,
        commit: &Commit,
        entry: &Entry,
        after: &Lease,
    ) -> Result<(), String> {
        let before = &entry.lease;
        let keys = &before.keys;
        let writer = state.incarnation(commit.node);
        let is_writer = |it: &Owner| Some(it.incarnation) == writer;
        let is_owner = before.owner.as_ref().is_some_and(is_writer);
        let who = state.full_name(commit.node);
        if before.owner == after.owner {
            if before.epoch != after.epoch && !is_owner {
                return Err(format!("{who} changed the epoch of {keys}"));
            }
            state.counts.checkpoints += u64::from(before.position != after.position);
            return Ok(());
        }
        if before.epoch == after.epoch {
            return Err(format!("epoch {} of {keys} has two owners", after.epoch));
        }
        if is_owner {
            state.counts.handovers += 1;
            return Ok(());
        }
        if !after.owner.as_ref().is_some_and(is_writer) {
            return Err(format!("{who} gave away {keys}, owned by {:?}", before.owner));
        }
        let Some(owner) = &before.owner else {
            state.counts.taken += 1;
            return Ok(());
        };
        let silence = state.silence(owner.incarnation, entry.owned_since, commit.at);
        let has_left = state.left.contains(&owner.incarnation);
        if silence < self.lease_duration && !has_left {
            return Err(format!(
                "{who} took {keys} from {}, which was never silent for longer than {silence:?} of \
                 {:?}",
                owner.instance, self.lease_duration,
            ));
        }
        state.counts.takeovers += 1;
        Ok(())
    }
}

impl State {
    /// A new lease is one of the first start, or goes on where the one it replaces stopped.
    fn check_created(&self, lease: &Lease) -> Result<(), String> {
        let keys = &lease.keys;
        let Some(control) = &self.control else {
            return Err(format!("the lease {keys} came before the control document"));
        };
        if let Some(root) = control.roots.iter().find(|it| it.keys == *keys) {
            if lease.position != root.position || control.complete {
                return Err(format!("the lease {keys} was made anew at {}", lease.position));
            }
            return Ok(());
        }
        let parent = self.leases.values().find(|it| it.lease.children.contains(keys));
        let Some(parent) = parent.map(|it| &it.lease) else {
            return Err(format!("the lease {keys} came from nowhere"));
        };
        if lease.position == parent.position {
            return Ok(());
        }
        Err(format!(
            "the lease {keys} begins at {}, the one it replaces stopped at {}",
            lease.position, parent.position,
        ))
    }

    /// Every key belongs to one lease, or to one that is about to be made.
    pub(super) fn check_cover(&self) -> Result<(), String> {
        let Some(control) = &self.control else { return Ok(()) };
        let exists = |keys: &KeyRange| self.leases.values().any(|it| it.lease.keys == *keys);
        let mut covered: Vec<&KeyRange> = Vec::new();
        for Entry { lease, .. } in self.leases.values() {
            match lease.state {
                LeaseState::Active => covered.push(&lease.keys),
                LeaseState::Splitting => {
                    covered.extend(lease.children.iter().filter(|it| !exists(it)));
                }
                LeaseState::Retired => (),
            }
        }
        if !control.complete {
            covered.extend(control.roots.iter().map(|it| &it.keys).filter(|it| !exists(it)));
        }
        check_cover(&KeyRange::all(), covered)
    }
}

fn check_tiles(keys: &KeyRange, children: &[KeyRange]) -> Result<(), String> {
    if children.len() < 2 {
        return Err(format!("the lease {keys} was split into {}", children.len()));
    }
    check_cover(keys, children.iter().collect())
}

/// Whether ranges cover all keys without gap or overlap.
fn check_cover(all: &KeyRange, mut ranges: Vec<&KeyRange>) -> Result<(), String> {
    ranges.sort_by(|one, other| one.min().trimmed().cmp(other.min().trimmed()));
    let wrong = |ranges: &[&KeyRange]| {
        let ranges: Vec<String> = ranges.iter().map(ToString::to_string).collect();
        Err(format!("the leases do not cover {all} once: {}", ranges.join(" ")))
    };
    let mut reached = all.min().trimmed();
    for range in &ranges {
        if range.min().trimmed() != reached {
            return wrong(&ranges);
        }
        reached = range.max().trimmed();
    }
    if reached == all.max().trimmed() { Ok(()) } else { wrong(&ranges) }
}
