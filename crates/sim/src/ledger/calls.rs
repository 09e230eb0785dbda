//! Calls of handlers, from their beginning to their end.

use std::sync::Arc;

use millstream_core::{KeyRange, PartitionKey};

use crate::executor::NodeId;
use crate::ledger::{Ledger, State};
use crate::log::log;

/// A call of a handler. It ends when this is dropped.
#[derive(Debug)]
pub struct Call {
    ledger: Arc<Ledger>,
    number: u64,
}

/// A call that has begun and not ended.
#[derive(Debug)]
pub(super) struct Active {
    number: u64,
    node: NodeId,
    epoch: u64,
    partition_keys: Vec<PartitionKey>,
}

impl Ledger {
    /// A handler is called: the lease must be its instance's, and nobody else may be at work on the
    /// same partition keys.
    pub(crate) fn called(
        self: &Arc<Self>,
        node: NodeId,
        keys: &KeyRange,
        epoch: u64,
        mut partition_keys: Vec<PartitionKey>,
    ) -> Call {
        partition_keys.sort_unstable();
        partition_keys.dedup();
        log(|| format!("called for {partition_keys:?} of {keys} in epoch {epoch}"));
        let mut state = self.lock();
        state.counts.calls += 1;
        let number = state.counts.calls;
        let checked = self.check_call(&state, node, keys, epoch, &partition_keys);
        state.active.push(Active { number, node, epoch, partition_keys });
        drop(state);
        if let Err(violation) = checked {
            self.handle.fail(violation);
        }
        Call { ledger: Arc::clone(self), number }
    }

    fn check_call(
        &self,
        state: &State,
        node: NodeId,
        keys: &KeyRange,
        epoch: u64,
        partition_keys: &[PartitionKey],
    ) -> Result<(), String> {
        let who = || state.full_name(node);
        let lease = state.leases.values().find(|it| it.lease.keys == *keys);
        let Some(lease) = lease.map(|it| &it.lease) else {
            return Err(format!("{} works on {keys}, which is no lease", who()));
        };
        if lease.epoch != epoch {
            return Err(format!(
                "{} begins a batch of {keys} in epoch {epoch}; it is in epoch {} and belongs to \
                 {:?}",
                who(),
                lease.epoch,
                lease.owner,
            ));
        }
        let own = state.incarnation(node);
        let name = state.name_of(node);
        let member = state.members.values().find(|it| it.instance == name);
        if member.map(|it| it.incarnation) != own {
            return Err(format!("{} begins a batch, but the name is {member:?}'s", who()));
        }
        let now = self.handle.now();
        let is_at_work = |it: &NodeId| {
            let node = state.nodes.iter().find(|node| node.id == *it);
            node.is_some_and(|it| it.stalled_until < now)
        };
        for active in state.active.iter().filter(|it| is_at_work(&it.node)) {
            let both = active.partition_keys.iter().find(|it| partition_keys.contains(it));
            if let Some(key) = both {
                return Err(format!(
                    "{} begins a batch of key {key} in epoch {epoch} while {} is at work on it in \
                     epoch {}",
                    who(),
                    state.full_name(active.node),
                    active.epoch,
                ));
            }
        }
        Ok(())
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        self.ledger.lock().active.retain(|it| it.number != self.number);
    }
}
