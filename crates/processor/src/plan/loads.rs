//! Shares by load: everybody within its limits, and nobody far above the others.
//!
//! The steps of all members are computed, in one order that does not depend on who computes it;
//! only those of the planning instance are used. First come the steps without which leases have no
//! owner or limits are broken, then those that even out the load.
//!
//! A lease moves from a busy member to an idle one only if the idle one then has clearly less than
//! the busy one had. Every such move makes the sorted list of loads smaller even if all loads
//! were measured a little wrong, so moves come to an end and never go round in circles.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use crate::plan::Step;
use crate::plan::view::{Place, View};

/// Members this far from the mean are worth a move.
const TOLERANCE: f64 = 0.10;
/// What a receiver may have after a move, as a part of what the giver had before it. Loads that
/// are 5 % too low on one side and 5 % too high on the other still differ in truth.
const RECEIVER_MAX: f64 = 0.90;
/// What a lease costs without any load, as a part of the load of the average lease: members that
/// are idle should not have all the leases.
const IDLE_COST: f64 = 0.01;

/// Largest load that is told apart, so that no sum becomes infinite.
const LOAD_MAX: f64 = 1e15;

/// What `me` does, and whether nobody has anything to do.
pub(crate) fn steps(view: &View<'_>, me: usize) -> (Vec<Step>, bool) {
    let mut board = Board::new(view, me);
    board.reserve_for_heirs();
    board.place_free();
    board.reserve_for_anybody();
    board.empty_members_above_their_limit();
    board.fill_members_below_their_least();
    board.even_out();
    (board.steps, board.settled)
}

/// The distribution while it is being changed.
struct Board<'a> {
    view: &'a View<'a>,
    me: usize,
    floors: Vec<usize>,
    /// Of every lease.
    weights: Vec<f64>,
    /// Of every member.
    loads: Vec<f64>,
    counts: Vec<usize>,
    /// What every member had at the beginning and may still give, light leases first. A lease
    /// moves once per round.
    movable: Vec<BTreeSet<(u64, usize)>>,
    /// Members with room for another lease, idle ones first.
    open: BTreeSet<(u64, usize, usize)>,
    /// Members with fewer leases than they must have.
    hungry: BTreeSet<usize>,
    steps: Vec<Step>,
    settled: bool,
}

impl<'a> Board<'a> {
    fn new(view: &'a View<'a>, me: usize) -> Self {
        let members = view.members.len();
        let weights = weights(view);
        let mut board = Self {
            view,
            me,
            floors: view.floors(),
            loads: vec![0.0; members],
            counts: view.held.clone(),
            movable: vec![BTreeSet::new(); members],
            open: BTreeSet::new(),
            hungry: BTreeSet::new(),
            steps: Vec::new(),
            settled: true,
            weights,
        };
        for (lease, place) in view.places.iter().enumerate() {
            let Place::At(member) = *place else { continue };
            board.loads[member] += board.weights[lease];
            // What is on its way to a member can not move on yet.
            if view.has(member, lease) {
                board.movable[member].insert((board.weights[lease].to_bits(), lease));
            }
        }
        for member in 0..members {
            board.enlist(member);
        }
        board
    }

    /// Counts leases that cannot be taken yet for the members that had them in an earlier life.
    fn reserve_for_heirs(&mut self) {
        for (lease, place) in self.view.places.iter().enumerate() {
            if let Place::Awaited { heir: Some(heir) } = *place {
                self.receive(heir, lease);
            }
        }
    }

    /// Gives every free lease to the most idle member.
    fn place_free(&mut self) {
        for lease in self.heavy_first(Place::Free) {
            let Some(taker) = self.receiver() else { return };
            self.receive(taker, lease);
            self.record(taker, Step::Take { lease });
        }
    }

    /// Counts the other leases that cannot be taken yet for those who will take them.
    fn reserve_for_anybody(&mut self) {
        for lease in self.heavy_first(Place::Awaited { heir: None }) {
            let Some(taker) = self.receiver() else { return };
            self.receive(taker, lease);
        }
    }

    fn heavy_first(&self, place: Place) -> Vec<usize> {
        let mut leases: Vec<_> =
            (0..self.weights.len()).filter(|lease| self.view.places[*lease] == place).collect();
        leases.sort_by_key(|lease| (Reverse(self.weights[*lease].to_bits()), *lease));
        leases
    }

    fn empty_members_above_their_limit(&mut self) {
        for member in 0..self.counts.len() {
            while self.view.limit(member) < self.counts[member] {
                let Some((_, lease)) = self.movable[member].first().copied() else { break };
                let to = self.receiver();
                self.give(member, lease, to);
            }
        }
    }

    /// Takes light leases from the busiest members that have more than they must have.
    fn fill_members_below_their_least(&mut self) {
        let mut givers: BTreeSet<_> = (0..self.counts.len())
            .filter(|member| self.floors[*member] < self.counts[*member])
            .map(|member| (self.loads[member].to_bits(), member))
            .collect();
        while let Some(to) = self.hungry.first().copied() {
            let Some((_, giver)) = givers.pop_last() else { return };
            let Some((_, lease)) = self.movable[giver].first().copied() else { continue };
            self.give(giver, lease, Some(to));
            if self.floors[giver] < self.counts[giver] {
                givers.insert((self.loads[giver].to_bits(), giver));
            }
        }
    }

    fn even_out(&mut self) {
        let accepting = self.view.members.iter().filter(|member| member.accepting).count();
        let mean = self.weights.iter().sum::<f64>() / number(accepting.max(1));
        // Who is above the mean before anything moves: whoever would only be there because of what
        // others are about to give it must wait until they have, or both would give for ever.
        let mut givers: Vec<_> = (0..self.counts.len())
            .filter(|member| self.view.members[*member].accepting && mean < self.loads[*member])
            .collect();
        givers.sort_by_key(|member| (Reverse(self.loads[*member].to_bits()), *member));
        for giver in givers {
            // A view that is wrong must not empty a member at once.
            for _ in 0..self.counts[giver].div_ceil(2) {
                let Some((lease, to)) = self.relief(giver, mean) else { break };
                self.give(giver, lease, Some(to));
            }
        }
    }

    /// The best move away from a member, if there is one worth its cost.
    fn relief(&self, giver: usize, mean: f64) -> Option<(usize, usize)> {
        if self.counts[giver] <= self.floors[giver] {
            return None;
        }
        let to = self.open.first().map(|(_, _, to)| *to).filter(|to| *to != giver)?;
        let (high, low) = (self.loads[giver], self.loads[to]);
        if high <= mean * (1.0 + TOLERANCE) && mean * (1.0 - TOLERANCE) <= low {
            return None;
        }
        let most = RECEIVER_MAX * high - low;
        let half = (high - low) / 2.0;
        // Others may need relief too: the receiver should end below the mean if it begins there.
        let wanted = if low < mean { half.min(mean - low) } else { half };
        let up_to = (wanted.min(most).max(0.0).to_bits(), usize::MAX);
        let movable = &self.movable[giver];
        let (weight, lease) = movable.range(..=up_to).next_back().or_else(|| movable.first())?;
        (f64::from_bits(*weight) <= most).then_some((*lease, to))
    }

    /// Who should get a lease that has to go somewhere.
    fn receiver(&self) -> Option<usize> {
        self.hungry.first().copied().or_else(|| self.open.first().map(|(_, _, member)| *member))
    }

    fn give(&mut self, from: usize, lease: usize, to: Option<usize>) {
        self.delist(from);
        self.movable[from].remove(&(self.weights[lease].to_bits(), lease));
        self.counts[from] -= 1;
        // The sum of what is left may come out a little below zero.
        self.loads[from] = (self.loads[from] - self.weights[lease]).max(0.0);
        self.enlist(from);
        if let Some(to) = to {
            self.receive(to, lease);
        }
        self.record(from, Step::Give { lease, to });
    }

    fn receive(&mut self, member: usize, lease: usize) {
        self.delist(member);
        self.counts[member] += 1;
        self.loads[member] += self.weights[lease];
        self.enlist(member);
    }

    fn delist(&mut self, member: usize) {
        self.open.remove(&self.entry(member));
        self.hungry.remove(&member);
    }

    fn enlist(&mut self, member: usize) {
        if self.counts[member] < self.view.limit(member) {
            self.open.insert(self.entry(member));
        }
        if self.counts[member] < self.floors[member] {
            self.hungry.insert(member);
        }
    }

    fn entry(&self, member: usize) -> (u64, usize, usize) {
        (self.loads[member].to_bits(), self.counts[member], member)
    }

    fn record(&mut self, actor: usize, step: Step) {
        self.settled = false;
        if actor == self.me {
            self.steps.push(step);
        }
    }
}

/// What every lease costs its owner. Never negative, so the bits of a cost sort as it does.
fn weights(view: &View<'_>) -> Vec<f64> {
    let load = |load: f64| if load.is_nan() { 0.0 } else { load.clamp(0.0, LOAD_MAX) };
    let loads: Vec<_> = view.leases.iter().map(|lease| load(lease.load)).collect();
    let mean = loads.iter().sum::<f64>() / number(loads.len().max(1));
    let idle = if 0.0 < mean { mean * IDLE_COST } else { 1.0 };
    loads.into_iter().map(|load| load + idle).collect()
}

fn number(count: usize) -> f64 {
    u32::try_from(count).map_or(f64::from(u32::MAX), f64::from)
}
