//! What an operator does to a processor, whether or not instances of it run.

use std::sync::Arc;
use std::time::Duration;

use millstream_core::{Clock, Container, KeyRange, PartitionKey, SystemClock};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::audit::{AuditedLease, Coverage, audit};
use crate::dead_letters::{DeadLetters, ParkedChange};
use crate::error::Result;
use crate::feed_calls::FeedCalls;
use crate::lease_store::{LeaseStore, Listing};
use crate::leaves::{Leaves, awaits_reset, check_container};
use crate::options::StartPosition;
use crate::reset::{Reset, Target};
use crate::stored::schema::Schema;
use crate::stored::{Failing, Handled, Lease, LeaseState, Member, Mode, lease_id};

/// Longest time a call to the container of the leases may take.
const STORE_TIMEOUT: Duration = Duration::from_secs(10);

/// Pauses, resets and shows a processor.
///
/// Everything goes through the documents of the processor, so it works from any machine. Instances
/// notice within one round; what an instance had under way when a position was set cannot be
/// checkpointed any more, because its lease has another epoch.
#[derive(Clone, Debug)]
pub struct Operations {
    pub(crate) feed: FeedCalls,
    pub(crate) container: u64,
    pub(crate) store: LeaseStore,
    pub(crate) clock: Arc<dyn Clock>,
}

/// A processor as its documents show it.
#[derive(Clone, Debug, PartialEq)]
pub struct Status {
    /// Whether the instances leave their leases alone, or will as soon as they see it.
    pub paused: bool,
    /// Increases with every operation; see [`MemberStatus::control_epoch`].
    pub control_epoch: u64,
    /// The mode of the feed.
    pub mode: Mode,
    /// Whether a reset was begun and has not reached every lease;
    /// [`Operations::finish_reset`] completes it.
    pub reset_unfinished: bool,
    /// The instances, also those that died and were not removed yet.
    pub members: Vec<MemberStatus>,
    /// The leases in the order of keys, without those that were replaced by others.
    pub leases: Vec<LeaseStatus>,
}

/// An instance as it described itself at its last heartbeat.
#[derive(Clone, Debug, PartialEq)]
pub struct MemberStatus {
    /// The name of the instance.
    pub name: String,
    /// Differs with every start.
    pub incarnation: Uuid,
    /// Leases it held.
    pub leases: usize,
    /// Changes per second over all its leases, smoothed.
    pub load: f64,
    /// Whether it takes leases; not while it stops.
    pub accepting: bool,
    /// The newest control epoch it has acted upon.
    pub control_epoch: u64,
    /// The version of the processor it runs.
    pub version: String,
}

/// A lease.
#[derive(Clone, Debug, PartialEq)]
pub struct LeaseStatus {
    /// The keys.
    pub keys: KeyRange,
    /// The instance that owns it.
    pub owner: Option<String>,
    /// Increases whenever the lease gets another owner or is taken from one.
    pub epoch: u64,
    /// Whether it is processed or being replaced.
    pub state: LeaseState,
    /// What the handler fails at now.
    pub failing: Vec<Failing>,
    /// The newest handled change.
    pub handled: Option<Handled>,
}

/// The positions of a processor at some time. Keep it as JSON; [`Operations::restore`] goes back to
/// it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Snapshot {
    /// The schema of this document.
    pub schema: Schema,
    /// The name of the processor it was taken from.
    pub processor: String,
    /// The container the positions belong to; a recreated one has another number.
    pub container: u64,
    /// The mode of the feed.
    pub mode: Mode,
    /// When it was taken, in milliseconds since 1970 by the clock of the taker; for people only.
    pub taken_at: u64,
    /// The position of every lease.
    pub positions: Vec<SnapshotLease>,
}

/// The position of a lease at some time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotLease {
    /// The keys of the lease.
    pub keys: KeyRange,
    /// Everything up to here had been handled.
    pub position: String,
    /// The epoch of the lease.
    pub epoch: u64,
}

impl Operations {
    /// Operates on the processor `processor`, which reads `feed` and keeps its documents in
    /// `leases`.
    ///
    /// # Errors
    ///
    /// `Invalid` if the name or the container of the leases cannot be one of a processor.
    pub fn new(feed: &Container, leases: &Container, processor: &str) -> Result<Self> {
        Self::new_with(feed, leases, processor, Arc::new(SystemClock::default()))
    }

    /// The same with another clock.
    ///
    /// # Errors
    ///
    /// As for [`Operations::new`].
    pub fn new_with(
        feed: &Container,
        leases: &Container,
        processor: &str,
        clock: Arc<dyn Clock>,
    ) -> Result<Self> {
        Ok(Self {
            feed: FeedCalls::new(Arc::clone(&feed.feed), Arc::clone(&clock)),
            container: feed.info.resource_id.incarnation(),
            store: LeaseStore::new(leases, processor, Arc::clone(&clock), STORE_TIMEOUT)?,
            clock,
        })
    }

    /// Makes every instance finish its batches, checkpoint and leave its leases alone until
    /// [`Operations::resume`]. Pausing twice is the same as once.
    ///
    /// It returns when the request is stored; [`Operations::acknowledged`] says when all have done
    /// it.
    ///
    /// # Errors
    ///
    /// `NotFound` if the processor was never started, `Store` if the container cannot be reached.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future may leave it done or not; call it again.
    pub async fn pause(&self) -> Result<()> {
        self.set_paused(true).await
    }

    /// Lets the instances go on after [`Operations::pause`]. Resuming twice is the same as once.
    ///
    /// # Errors
    ///
    /// As for [`Operations::pause`].
    ///
    /// # Cancel safety
    ///
    /// As for [`Operations::pause`].
    pub async fn resume(&self) -> Result<()> {
        self.set_paused(false).await
    }

    /// Whether every instance has acted upon the last operation.
    ///
    /// # Errors
    ///
    /// As for [`Operations::pause`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    pub async fn acknowledged(&self) -> Result<bool> {
        Ok(self.unacknowledged().await?.is_empty())
    }

    /// The names of the instances that have not acted upon the last operation. One that died is
    /// among them until the others remove it.
    ///
    /// # Errors
    ///
    /// As for [`Operations::pause`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    pub async fn unacknowledged(&self) -> Result<Vec<String>> {
        let epoch = self.store.control().await?.document.epoch;
        let members = self.store.list().await?.members.into_iter().map(|it| it.document);
        Ok(members.filter(|it| it.control_epoch < epoch).map(|it| it.instance).collect())
    }

    /// Moves every lease to another position, forwards or back. Now means the moment of this call.
    ///
    /// Owners lose their leases and take them again from the new position; what they had under way
    /// may be delivered once more. Parked changes stay parked. If the call fails in the middle some
    /// leases may have moved; [`Operations::finish_reset`] completes it, and another reset replaces
    /// it.
    ///
    /// # Errors
    ///
    /// `Conflict` if the ranges under a lease were split and no instance has noticed yet; try again
    /// while one runs. `Invalid` or `PositionExpired` if a continuation cannot be used.
    /// `ContainerRecreated` if the leases belong to another container, and the errors of
    /// [`Operations::pause`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future may leave it done in part, as a failure does.
    pub async fn reset(&self, to: StartPosition) -> Result<()> {
        let start = Some(to.to_string());
        Reset { keys: KeyRange::all(), start, target: Target::Start(&to) }.run(self).await
    }

    /// The same as [`Operations::reset`] for the leases inside `keys`; the others stay where they
    /// are.
    ///
    /// # Errors
    ///
    /// `Invalid` if a lease lies only partly in `keys`, and those of [`Operations::reset`].
    ///
    /// # Cancel safety
    ///
    /// As for [`Operations::reset`].
    pub async fn reset_range(&self, keys: &KeyRange, to: StartPosition) -> Result<()> {
        let target = Target::Start(&to);
        Reset { keys: keys.clone(), start: None, target }.run(self).await
    }

    /// Completes a reset or restore that ended in the middle. Without one it changes nothing.
    ///
    /// # Errors
    ///
    /// As for [`Operations::pause`], and `Conflict` if others keep changing the leases.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future may leave it done in part; call it again.
    pub async fn finish_reset(&self) -> Result<()> {
        crate::reset::finish(&self.store).await
    }

    /// The position of every lease now. Instances go on meanwhile, so the positions are not of one
    /// instant; pause first if that matters.
    ///
    /// # Errors
    ///
    /// As for [`Operations::pause`], and `ContainerRecreated` if the leases belong to another
    /// container.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    pub async fn snapshot(&self) -> Result<Snapshot> {
        let leaves = Leaves::find(&self.store).await?;
        let control = &leaves.control.document;
        check_container(&self.store, control, self.container)?;
        let leases = leaves.active.into_iter().map(|it| it.document).chain(leaves.missing);
        let mut positions: Vec<SnapshotLease> = leases
            .map(|it| SnapshotLease { keys: it.keys, position: it.position, epoch: it.epoch })
            .collect();
        positions.sort_by(|one, other| by_keys(&one.keys, &other.keys));
        Ok(Snapshot {
            schema: Schema::default(),
            processor: self.store.name().to_owned(),
            container: control.container,
            mode: control.mode,
            taken_at: self.clock.now().as_millis(),
            positions,
        })
    }

    /// Moves every lease to its position in the snapshot, as [`Operations::reset`] does. Leases
    /// that were split since go back to the position of the one they came from. The snapshot may
    /// be of another processor of the same container.
    ///
    /// # Errors
    ///
    /// `Invalid` if a lease does not lie in exactly one range of the snapshot, `ContainerRecreated`
    /// or `ModeMismatch` if the snapshot is of another container or mode, `NewerSchema` if a newer
    /// version took it, and those of [`Operations::reset`]. Nothing is changed then.
    ///
    /// # Cancel safety
    ///
    /// As for [`Operations::reset`].
    pub async fn restore(&self, snapshot: &Snapshot) -> Result<()> {
        let start = Some(format!("snapshot {}", snapshot.taken_at));
        let target = Target::Snapshot(snapshot);
        Reset { keys: KeyRange::all(), start, target }.run(self).await
    }

    /// The instances and leases as their documents show them.
    ///
    /// # Errors
    ///
    /// As for [`Operations::pause`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    pub async fn status(&self) -> Result<Status> {
        let control = self.store.control().await?.document;
        let listing = self.store.list().await?;
        let leases = listing.leases.into_iter().map(|it| it.document);
        let mut leases: Vec<Lease> = leases
            .filter(|it| it.container == control.container && it.state != LeaseState::Retired)
            .collect();
        leases.sort_by(|one, other| by_keys(&one.keys, &other.keys));
        Ok(Status {
            paused: control.paused,
            control_epoch: control.epoch,
            mode: control.mode,
            reset_unfinished: leases.iter().any(|it| awaits_reset(&control, it)),
            members: listing.members.into_iter().map(|it| it.document.into()).collect(),
            leases: leases.into_iter().map(LeaseStatus::from).collect(),
        })
    }

    /// Whether every key of the feed belongs to one lease, as the documents show it now. Somebody
    /// may be splitting a lease meanwhile; then a hole or an overlap means nothing unless it stays.
    /// Before the first start was completed there are no holes yet.
    ///
    /// # Errors
    ///
    /// As for [`Operations::pause`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    pub async fn coverage(&self) -> Result<Coverage> {
        let control = self.store.control().await?.document;
        let Listing { leases, strays, .. } = self.store.list().await?;
        let is_current = |it: &&Lease| it.container == control.container;
        let leases = leases.iter().map(|it| &it.document).filter(is_current);
        let mut audited: Vec<AuditedLease> =
            leases.map(|it| AuditedLease::of(&lease_id(it.container, &it.keys), it)).collect();
        let mut coverage = audit(&[KeyRange::all()], &audited);
        if !control.complete {
            coverage.holes.clear();
        }
        // Nobody processes a stray, so it fills no hole.
        let strays = strays.iter().filter(|(_, it)| it.container == control.container);
        audited.extend(strays.map(|(id, it)| AuditedLease::of(id, it)));
        coverage.overlaps = audit(&[KeyRange::all()], &audited).overlaps;
        Ok(coverage)
    }

    /// Has a parked sequence delivered again, in order, by the instance that owns its keys.
    ///
    /// It goes on until everything in it was handled, also what is parked behind it meanwhile; then
    /// the key is free again. If the handler fails again, the rest stays parked.
    ///
    /// # Errors
    ///
    /// `NotFound` if nothing is parked for this key.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future may leave it asked for or not; call it again.
    pub async fn redrive(&self, letters: &DeadLetters, key: &PartitionKey) -> Result<()> {
        letters.redrive(key).await?;
        self.store.bump_redrives().await
    }

    /// Has every parked sequence delivered again. Returns how many there are.
    ///
    /// # Cancel safety
    ///
    /// As for [`Operations::redrive`].
    pub async fn redrive_all(&self, letters: &DeadLetters) -> Result<u64> {
        let sequences = letters.redrive_all().await?;
        self.store.bump_redrives().await?;
        Ok(sequences)
    }

    /// Has a change delivered again that was skipped, although later ones of its key were handled.
    ///
    /// # Cancel safety
    ///
    /// As for [`Operations::redrive`].
    pub async fn redrive_skipped(
        &self,
        letters: &DeadLetters,
        skipped: &ParkedChange,
    ) -> Result<()> {
        letters.redrive_skipped(skipped).await?;
        self.store.bump_redrives().await
    }

    async fn set_paused(&self, paused: bool) -> Result<()> {
        self.store
            .update_control(|control| {
                if control.paused == paused {
                    return false;
                }
                control.paused = paused;
                control.epoch += 1;
                true
            })
            .await
    }
}

impl From<Member> for MemberStatus {
    fn from(member: Member) -> Self {
        Self {
            name: member.instance,
            incarnation: member.incarnation,
            leases: member.leases,
            load: member.load,
            accepting: member.accepting,
            control_epoch: member.control_epoch,
            version: member.version,
        }
    }
}

impl From<Lease> for LeaseStatus {
    fn from(lease: Lease) -> Self {
        Self {
            keys: lease.keys,
            owner: lease.owner.map(|it| it.instance),
            epoch: lease.epoch,
            state: lease.state,
            failing: lease.failing,
            handled: lease.handled,
        }
    }
}

/// The order of keys.
pub(crate) fn by_keys(one: &KeyRange, other: &KeyRange) -> std::cmp::Ordering {
    one.min().trimmed().cmp(other.min().trimmed())
}

#[cfg(test)]
mod tests;
