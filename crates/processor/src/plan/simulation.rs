//! Several planners that act on the same leases, round by round, for the tests.

use std::collections::BTreeMap;

use uuid::Uuid;

use crate::plan::{Action, Holder, Member, Plan, PlannedLease, Strategy, plan};
use crate::stored::Owner;

/// Leases and members, and what the planners did with them.
#[derive(Clone, Debug)]
pub(crate) struct Cluster {
    pub(crate) strategy: Strategy,
    pub(crate) members: Vec<Member>,
    pub(crate) leases: Vec<PlannedLease>,
    /// Who sees the state before the last round instead of this one.
    pub(crate) late: Vec<Owner>,
    /// How often a lease changed its owner, and how often two wanted to change the same lease.
    pub(crate) moves: usize,
    pub(crate) collisions: usize,
    /// How many rounds the work in hand of a lease takes that is given away.
    pub(crate) drain_rounds: usize,
    /// What is being given away: rounds left, the lease, and to whom it goes.
    draining: Vec<(usize, usize, Holder)>,
    seed: u64,
    before: Option<(Vec<Member>, Vec<PlannedLease>)>,
}

pub(crate) fn owner(name: &str) -> Owner {
    Owner { instance: name.to_owned(), incarnation: Uuid::from_u128(1) }
}

pub(crate) fn member(name: &str) -> Member {
    Member { owner: owner(name), leases_min: 0, leases_max: None, accepting: true }
}

/// The lease of this number, held by `holder` unless that is `-`.
pub(crate) fn lease(number: usize, holder: &str) -> PlannedLease {
    let holder = if holder == "-" { Holder::Free } else { Holder::Member(owner(holder)) };
    PlannedLease { id: format!("{number:05}"), holder, load: 1.0, handing_over: None }
}

impl Cluster {
    /// `"a*10 -*2"`: ten leases of the member `a` and two free ones. `"b*0"` has none.
    pub(crate) fn new(text: &str) -> Self {
        let mut cluster = Self {
            strategy: Strategy::EqualShares,
            members: Vec::new(),
            leases: Vec::new(),
            late: Vec::new(),
            moves: 0,
            collisions: 0,
            drain_rounds: 0,
            draining: Vec::new(),
            seed: 0,
            before: None,
        };
        for word in text.split_whitespace() {
            let (name, count) = word.split_once('*').unwrap();
            for _ in 0..count.parse().unwrap() {
                cluster.leases.push(lease(cluster.leases.len(), name));
            }
            if name != "-" {
                cluster.members.push(member(name));
            }
        }
        cluster
    }

    pub(crate) fn with_strategy(mut self, strategy: Strategy) -> Self {
        self.strategy = strategy;
        self
    }

    /// One round of everybody; what all planned happens after all have planned.
    pub(crate) fn round(&mut self) -> Vec<Plan> {
        self.finish_drained();
        let now = (self.members.clone(), self.leases.clone());
        let before = self.before.replace(now.clone()).unwrap_or_else(|| now.clone());
        let mut plans = Vec::new();
        for member in &now.0 {
            self.seed += 1;
            let late = self.late.contains(&member.owner);
            let (members, leases) = if late { &before } else { &now };
            plans.push(plan(&member.owner, members, leases, self.strategy, self.seed));
        }
        let mut changed = vec![false; self.leases.len()];
        for (member, plan) in now.0.iter().zip(&plans) {
            for action in &plan.actions {
                self.act(&member.owner, action, &now.1, &mut changed);
            }
        }
        plans
    }

    /// Rounds until one in which nobody does anything; how many had actions.
    #[track_caller]
    pub(crate) fn settle(&mut self, rounds_max: usize) -> usize {
        for round in 0..=rounds_max {
            let plans = self.round();
            let idle = plans.iter().all(|plan| plan.actions.is_empty());
            if idle && self.draining.is_empty() {
                assert!(plans.iter().all(|plan| plan.balanced), "idle but not balanced");
                return round;
            }
        }
        panic!("not settled after {rounds_max} rounds: {}", self.counts());
    }

    /// `"a5 b5 -0"`; who is not a member is not mentioned.
    pub(crate) fn counts(&self) -> String {
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        for lease in &self.leases {
            if let Holder::Member(owner) = &lease.holder {
                *counts.entry(&owner.instance).or_default() += 1;
            }
        }
        let count = |name: &str| counts.get(name).copied().unwrap_or_default();
        let free = self.leases.iter().filter(|lease| lease.holder == Holder::Free).count();
        let members = self.members.iter().map(|it| it.owner.instance.as_str());
        let mut words: Vec<_> = members.map(|name| format!("{name}{}", count(name))).collect();
        if free != 0 {
            words.push(format!("-{free}"));
        }
        words.join(" ")
    }

    pub(crate) fn join(&mut self, name: &str) {
        self.members.push(member(name));
    }

    /// The member dies, and everybody has found out.
    pub(crate) fn kill(&mut self, name: &str) {
        self.members.retain(|member| member.owner.instance != name);
        self.free(&owner(name));
    }

    pub(crate) fn free(&mut self, owner: &Owner) {
        for (index, lease) in self.leases.iter_mut().enumerate() {
            if lease.holder == Holder::Member(owner.clone()) {
                lease.holder = Holder::Free;
                lease.handing_over = None;
                self.draining.retain(|(_, draining, _)| *draining != index);
            }
        }
    }

    /// Frees whatever somebody holds who is not a member.
    pub(crate) fn bury(&mut self) {
        let holders = self.leases.iter().map(|lease| lease.holder.clone());
        for holder in holders.collect::<Vec<_>>() {
            let Holder::Member(owner) = holder else { continue };
            if self.members.iter().all(|member| member.owner != owner) {
                self.free(&owner);
            }
        }
    }

    pub(crate) fn member(&mut self, name: &str) -> &mut Member {
        self.members.iter_mut().find(|member| member.owner.instance == name).unwrap()
    }

    /// What each member holds, as the sum of loads.
    pub(crate) fn load(&self, name: &str) -> f64 {
        let of = Holder::Member(owner(name));
        self.leases.iter().filter(|it| it.holder == of).map(|it| it.load).sum()
    }

    /// Changes a lease as a conditional write would: only if it still is what the actor may have
    /// seen.
    fn act(&mut self, by: &Owner, action: &Action, now: &[PlannedLease], changed: &mut [bool]) {
        let (id, to, expected) = match action {
            Action::Take(id) => (id, Holder::Member(by.clone()), Holder::Free),
            Action::HandOver { lease, to } => {
                (lease, Holder::Member(to.clone()), Holder::Member(by.clone()))
            }
            Action::Release(id) => (id, Holder::Free, Holder::Member(by.clone())),
        };
        let index = now.iter().position(|lease| lease.id == *id).unwrap();
        if changed[index] {
            self.collisions += 1;
            return;
        }
        if now[index].holder != expected {
            return;
        }
        changed[index] = true;
        if expected == Holder::Free || self.drain_rounds == 0 {
            self.moves += 1;
            self.leases[index].holder = to;
            return;
        }
        // A lease that was on its way to somebody else keeps the time that it has left.
        self.leases[index].handing_over = Some(to.clone());
        match self.draining.iter_mut().find(|(_, lease, _)| *lease == index) {
            Some((_, _, target)) => *target = to,
            None => self.draining.push((self.drain_rounds, index, to)),
        }
    }

    fn finish_drained(&mut self) {
        for (rounds, index, to) in std::mem::take(&mut self.draining) {
            if 0 < rounds {
                self.draining.push((rounds - 1, index, to));
                continue;
            }
            let lease = &mut self.leases[index];
            lease.handing_over = None;
            // An owner keeps what it wanted to give to somebody who has died since.
            let alive = |it: &Member| Holder::Member(it.owner.clone()) == to;
            if to == Holder::Free || self.members.iter().any(alive) {
                self.moves += 1;
                lease.holder = to;
            }
        }
    }
}
