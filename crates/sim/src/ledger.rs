//! What the documents of the processor say at every moment, and whether they may.
//!
//! Every write of the lease container comes by here the moment it takes effect, and every call of
//! a handler when it begins and ends. Read `committed` first, then `leases` and `calls`.

mod calls;
mod documents;
mod leases;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use millstream_core::{Lsn, PartitionKey, RangeInfo};
use serde::de::DeserializeOwned;
use uuid::Uuid;

pub use crate::ledger::calls::Call;

use crate::executor::NodeId;
use crate::executor::handle::Handle;
use crate::ids::SimIds;
use crate::ledger::calls::Active;
use crate::ledger::documents::{
    Control, Head, Kind, Lease, Letter, Owner, State as LeaseState, lsn,
};
use crate::log::log;
use crate::properties::Deliveries;
use crate::truth::key_text;
use crate::watch::{Commit, Write};

/// The documents of the processor, who wrote them, and who is at work.
#[derive(Debug)]
pub struct Ledger {
    handle: Handle,
    deliveries: Arc<Deliveries>,
    lease_duration: Duration,
    state: Mutex<State>,
}

/// How often what happened to the leases.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LedgerCounts {
    /// Positions written.
    pub checkpoints: u64,
    /// Leases that nobody had and somebody took.
    pub taken: u64,
    /// Leases that were taken from an owner that was silent for too long.
    pub takeovers: u64,
    /// Leases that their owner gave to another.
    pub handovers: u64,
    /// Leases that were replaced by narrower ones.
    pub splits: u64,
    /// Changes that were put aside.
    pub parked: u64,
    /// Calls of handlers.
    pub calls: u64,
    /// Signs of life.
    pub heartbeats: u64,
    /// All other writes.
    pub other_writes: u64,
}

#[derive(Debug, Default)]
struct State {
    nodes: Vec<Node>,
    control: Option<Control>,
    leases: BTreeMap<String, Entry>,
    members: BTreeMap<String, Owner>,
    /// When each run of an instance gave signs of life.
    heard: BTreeMap<Uuid, Vec<Duration>>,
    /// Runs that have said that they are over.
    left: Vec<Uuid>,
    heads: BTreeMap<String, Head>,
    /// Changes that are put aside, by the ids of their documents.
    letters: BTreeMap<String, Letter>,
    active: Vec<Active>,
    counts: LedgerCounts,
}

#[derive(Debug)]
struct Node {
    id: NodeId,
    name: String,
    ids: Arc<SimIds>,
    stalled_until: Duration,
}

/// A lease as it is stored.
#[derive(Clone, Debug)]
struct Entry {
    lease: Lease,
    /// When its owner got it.
    owned_since: Duration,
}

impl Ledger {
    /// Nothing is stored yet.
    pub(crate) fn new(handle: &Handle, deliveries: Arc<Deliveries>, lease: Duration) -> Self {
        let (handle, state) = (handle.clone(), Mutex::default());
        Self { handle, deliveries, lease_duration: lease, state }
    }

    /// A process appears. The first of its ids is the incarnation of its instance.
    pub(crate) fn add_node(&self, id: NodeId, name: &str, ids: Arc<SimIds>) {
        let (name, stalled_until) = (name.to_owned(), Duration::ZERO);
        self.lock().nodes.push(Node { id, name, ids, stalled_until });
    }

    /// A process stands still until then; what it had begun does not go on.
    pub(crate) fn stalled(&self, id: NodeId, until: Duration) {
        if let Some(node) = self.lock().nodes.iter_mut().find(|it| it.id == id) {
            node.stalled_until = node.stalled_until.max(until);
        }
    }

    /// How often what happened.
    pub fn counts(&self) -> LedgerCounts {
        self.lock().counts
    }

    /// What is wrong with the leases at rest: each must lie in one of the ranges and be owned by
    /// one of the instances of these nodes, and if `shares_equal`, no instance may have two more
    /// than another. Who began to look `since` then may have thought a dead instance alive for
    /// some time.
    pub(crate) fn settled(
        &self,
        ranges: &[RangeInfo],
        nodes: &[NodeId],
        shares_equal: bool,
        since: Duration,
    ) -> Result<(), String> {
        let state = self.lock();
        let mut shares = BTreeMap::new();
        for node in nodes {
            let name = state.name_of(*node);
            let incarnation = state.incarnation(*node);
            let is_member = state.members.values().any(|it| Some(it.incarnation) == incarnation);
            match incarnation.filter(|_| is_member) {
                Some(incarnation) => shares.insert(incarnation, 0_u64),
                None => return Err(format!("{name} has not joined")),
            };
        }
        let dead = state.members.values().find(|it| !shares.contains_key(&it.incarnation));
        let joined = state.heard.values().filter_map(|it| it.first().copied()).max();
        let since = since.max(joined.unwrap_or_default());
        if let Some(dead) = dead
            && self.handle.now() < since + self.lease_duration * 2
        {
            return Err(format!("{} may not be missed yet", dead.instance));
        }
        for Entry { lease, .. } in state.leases.values() {
            let owner = lease.owner.as_ref();
            match lease.state {
                LeaseState::Retired => continue,
                LeaseState::Splitting => return Err(format!("{} is being split", lease.keys)),
                LeaseState::Active => (),
            }
            if !ranges.iter().any(|it| it.keys.covers(&lease.keys)) {
                return Err(format!("{} is to be split", lease.keys));
            }
            let reached = lease.lsn().unwrap_or(Lsn::ZERO);
            if !self.deliveries.is_last(&lease.keys, reached) {
                return Err(format!("{} is still at commit {reached}", lease.keys));
            }
            let share = owner.and_then(|it| shares.get_mut(&it.incarnation));
            *share.ok_or_else(|| format!("{} belongs to {owner:?}", lease.keys))? += 1;
        }
        let least = shares.values().min().copied().unwrap_or_default();
        let most = shares.values().max().copied().unwrap_or_default();
        if shares_equal && least + 1 < most {
            return Err(format!("one instance has {most} leases, another has {least}"));
        }
        Ok(())
    }

    /// Who has which lease, as text that changes when that does.
    pub(crate) fn owners(&self) -> String {
        let state = self.lock();
        let owners = state.leases.values().map(|it| (&it.lease.keys, &it.lease.owner));
        owners.map(|(keys, owner)| format!("{keys} {owner:?}; ")).collect()
    }

    /// Whether no partition key is parked.
    pub(crate) fn nothing_parked(&self) -> bool {
        self.lock().heads.is_empty()
    }

    /// Whether no parked sequence is being delivered.
    pub(crate) fn none_redriving(&self) -> bool {
        self.lock().heads.values().all(|it| it.state == "parked")
    }

    /// How many leases are processed.
    pub(crate) fn leases(&self) -> u64 {
        let state = self.lock();
        let active = state.leases.values().filter(|it| it.lease.state == LeaseState::Active);
        u64::try_from(active.count()).expect("a few")
    }

    /// Says what is wrong with a commit, if anything is.
    pub(crate) fn committed(&self, commit: &Commit) -> Result<(), String> {
        commit.writes.iter().try_for_each(|write| {
            log(|| describe(commit, write));
            self.written(commit, write)
        })
    }

    fn written(&self, commit: &Commit, write: &Write) -> Result<(), String> {
        let id = write.id.as_str();
        let Some(kind) = Kind::of(id) else {
            return Err(format!("something unknown was written: {id:?}"));
        };
        let mut state = self.lock();
        if kind != Kind::Member {
            state.counts.other_writes += 1;
        }
        match kind {
            Kind::Control => {
                state.control = parsed(write)?;
                let created = state.control.as_ref().filter(|_| write.before.is_none());
                if let Some(control) = created {
                    let roots: Vec<_> = control
                        .roots
                        .iter()
                        .map(|it| (it.keys.clone(), lsn(&it.position)))
                        .collect();
                    self.deliveries.begin(&roots);
                }
                state.check_cover()
            }
            Kind::Lease => self.lease_written(&mut state, commit, id, parsed(write)?),
            Kind::Member => self.member_written(&mut state, commit, id, parsed(write)?),
            Kind::Head => self.head_written(&mut state, parsed(write)?, before(write)?),
            Kind::Letter => self.letter_written(&mut state, id, parsed(write)?),
        }
    }

    fn member_written(
        &self,
        state: &mut State,
        commit: &Commit,
        id: &str,
        member: Option<Owner>,
    ) -> Result<(), String> {
        let Some(member) = member else {
            let left = state.members.remove(id).map(|it| it.incarnation);
            let left = left.filter(|it| Some(*it) == state.incarnation(commit.node));
            state.left.extend(left);
            return Ok(());
        };
        state.counts.heartbeats += 1;
        if state.incarnation(commit.node) != Some(member.incarnation) {
            let node = commit.node.number();
            return Err(format!("node {node} wrote the member {id:?} of another one"));
        }
        state.heard.entry(member.incarnation).or_default().push(commit.at);
        if let Some(before) = state.members.insert(id.to_owned(), member.clone())
            && before.incarnation != member.incarnation
        {
            let last = state.heard.get(&before.incarnation).and_then(|it| it.last());
            let silence = commit.at - last.copied().unwrap_or_default();
            if silence < self.lease_duration {
                return Err(format!("{id:?} was taken over after only {silence:?} of silence"));
            }
        }
        Ok(())
    }

    /// The head of a parked sequence was written or removed. What is left without it is no part of
    /// any sequence.
    fn head_written(
        &self,
        state: &mut State,
        head: Option<Head>,
        before: Option<Head>,
    ) -> Result<(), String> {
        if let Some(head) = head {
            state.heads.insert(head.parked_key.clone(), head);
            return Ok(());
        }
        let Some(before) = before else { return Ok(()) };
        state.heads.remove(&before.parked_key);
        let is_left = |letter: &Letter| {
            letter.parked_key == before.parked_key
                && letter.generation.as_ref() == Some(&before.generation)
        };
        let left = state.letters.iter().filter(|(_, it)| is_left(it));
        let left: Vec<String> = left.map(|(id, _)| id.clone()).collect();
        left.iter().try_for_each(|id| self.letter_removed(state, id))
    }

    fn letter_written(
        &self,
        state: &mut State,
        id: &str,
        letter: Option<Letter>,
    ) -> Result<(), String> {
        self.letter_removed(state, id)?;
        let Some(letter) = letter else { return Ok(()) };
        let head = state.heads.get(&letter.parked_key);
        let is_skipped = letter.generation.is_none();
        // One that arrives after its sequence has ended belongs to nothing.
        if is_skipped || head.map(|it| &it.generation) == letter.generation.as_ref() {
            state.counts.parked += 1;
            self.deliveries.kept(&parked_key(&letter)?, Lsn::new(letter.lsn), &letter.item_id)?;
            state.letters.insert(id.to_owned(), letter);
        }
        Ok(())
    }

    /// A change is no longer put aside: it was handled, or its lease has not passed it.
    fn letter_removed(&self, state: &mut State, id: &str) -> Result<(), String> {
        let Some(letter) = state.letters.remove(id) else { return Ok(()) };
        let (key, lsn) = (parked_key(&letter)?, Lsn::new(letter.lsn));
        let Some(place) = self.deliveries.removed(&key, lsn, &letter.item_id)? else {
            return Ok(());
        };
        let passed = state.leases.values().filter(|it| it.lease.keys.contains(&place));
        let passed = passed.filter_map(|it| it.lease.lsn()).max();
        if passed < Some(lsn) {
            return Ok(());
        }
        Err(format!("commit {lsn} of key {key:?} was parked and is lost"))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nothing panics while it holds the lock")
    }
}

impl State {
    /// The longest time without a sign of life that ended after `since`.
    fn silence(&self, incarnation: Uuid, since: Duration, now: Duration) -> Duration {
        let heard = self.heard.get(&incarnation).map_or(&[][..], Vec::as_slice);
        let ends = heard.iter().skip(1).chain([&now]);
        let gaps = heard.iter().zip(ends).filter(|(_, end)| since <= **end);
        gaps.map(|(begin, end)| *end - *begin).max().unwrap_or(Duration::MAX)
    }

    fn incarnation(&self, node: NodeId) -> Option<Uuid> {
        self.nodes.iter().find(|it| it.id == node)?.ids.first()
    }

    /// The name of a node and its number, which differs after a restart.
    fn full_name(&self, node: NodeId) -> String {
        format!("{} (node {})", self.name_of(node), node.number())
    }

    fn name_of(&self, node: NodeId) -> &str {
        self.nodes.iter().find(|it| it.id == node).map_or("the world", |it| &it.name)
    }
}

fn parsed<T: DeserializeOwned>(write: &Write) -> Result<Option<T>, String> {
    read(write.after.as_ref())
}

fn before<T: DeserializeOwned>(write: &Write) -> Result<Option<T>, String> {
    read(write.before.as_ref())
}

fn read<T: DeserializeOwned>(item: Option<&millstream_core::Item>) -> Result<Option<T>, String> {
    let Some(item) = item else { return Ok(None) };
    let read = serde_json::from_slice(&item.body);
    read.map(Some).map_err(|error| format!("the document {:?} is wrong: {error}", item.id))
}

fn parked_key(letter: &Letter) -> Result<String, String> {
    let key: Result<PartitionKey, _> = letter.parked_key.parse();
    key.map(|it| key_text(&it)).map_err(|error| format!("a parked key is wrong: {error}"))
}

fn describe(commit: &Commit, write: &Write) -> String {
    let body = write.after.as_ref().map(|it| String::from_utf8_lossy(&it.body));
    format!("node {} wrote {}: {}", commit.node.number(), write.id, body.unwrap_or("-".into()))
}
