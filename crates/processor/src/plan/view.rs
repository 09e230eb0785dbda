//! What an instance sees, in an order that is the same for all instances.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;

use crate::plan::{Holder, Member, PlannedLease};
use crate::stored::Owner;

/// Where a lease is, or will be once what was begun is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// It can be taken.
    Free,
    /// With the member of this number.
    At(usize),
    /// It can not be taken yet. If an earlier life of a member has it, that member should get it.
    Awaited { heir: Option<usize> },
}

/// Members and leases in order, and where the leases are.
#[derive(Debug)]
pub(crate) struct View<'a> {
    pub(crate) members: Vec<&'a Member>,
    pub(crate) leases: Vec<&'a PlannedLease>,
    /// Of every lease.
    pub(crate) places: Vec<Place>,
    /// How many leases every member has.
    pub(crate) held: Vec<usize>,
    /// The planning instance, if it is a member.
    pub(crate) me: Option<usize>,
    /// Whether the planning instance is giving some lease away already.
    pub(crate) handing_over: bool,
    /// `held`, and what earlier lives of the same instance have; it breaks ties, so that an
    /// instance that starts again gets its own leases back.
    claims: Vec<usize>,
}

impl<'a> View<'a> {
    pub(crate) fn new(me: &Owner, members: &'a [Member], leases: &'a [PlannedLease]) -> Self {
        let mut members: Vec<_> = members.iter().collect();
        members.sort_by(|one, two| one.owner.cmp(&two.owner));
        members.dedup_by(|one, two| one.owner == two.owner);
        let mut leases: Vec<_> = leases.iter().collect();
        leases.sort_by(|one, two| one.id.cmp(&two.id));
        let mut view = Self {
            me: find(&members, me),
            places: Vec::with_capacity(leases.len()),
            held: vec![0; members.len()],
            claims: vec![0; members.len()],
            handing_over: false,
            members,
            leases: Vec::new(),
        };
        for lease in &leases {
            view.place(lease);
        }
        view.leases = leases;
        view
    }

    /// The most leases that a member may have.
    pub(crate) fn limit(&self, member: usize) -> usize {
        let member = self.members[member];
        if member.accepting { member.leases_max.unwrap_or(usize::MAX) } else { 0 }
    }

    /// Whether the member has the lease already.
    pub(crate) fn has(&self, member: usize, lease: usize) -> bool {
        let Holder::Member(holder) = &self.leases[lease].holder else { return false };
        *holder == self.members[member].owner
    }

    /// How many leases no member may take.
    pub(crate) fn unassigned(&self) -> usize {
        (0..self.members.len())
            .fold(self.leases.len(), |left, member| left.saturating_sub(self.limit(member)))
    }

    /// The fewest leases that every member must have: what it asked for, or less if there are not
    /// enough leases for what all have asked for.
    pub(crate) fn floors(&self) -> Vec<usize> {
        let mut floors = vec![0; self.members.len()];
        let least = |member: usize| self.members[member].leases_min.min(self.limit(member));
        self.fill(&mut floors, self.leases.len(), least);
        floors
    }

    /// The number of leases that every member should have. The sum is the number of leases that
    /// members may have.
    pub(crate) fn quotas(&self) -> Vec<usize> {
        let mut quotas = self.floors();
        let left = self.leases.len() - quotas.iter().sum::<usize>();
        self.fill(&mut quotas, left, |member| self.limit(member));
        quotas
    }

    /// Gives leases away one by one, each to the member with the lowest number below its cap. Of
    /// these, one that has more leases now goes first, so that as few as possible move.
    fn fill(&self, levels: &mut [usize], leases: usize, cap: impl Fn(usize) -> usize) {
        let mut open: BinaryHeap<_> = (0..levels.len())
            .filter(|member| levels[*member] < cap(*member))
            .map(|member| Reverse((levels[member], Reverse(self.claims[member]), member)))
            .collect();
        for _ in 0..leases {
            let Some(mut lowest) = open.peek_mut() else { return };
            let Reverse((level, _, member)) = &mut *lowest;
            *level += 1;
            levels[*member] = *level;
            if cap(*member) <= *level {
                PeekMut::pop(lowest);
            }
        }
    }

    fn place(&mut self, lease: &PlannedLease) {
        let Holder::Member(holder) = &lease.holder else {
            self.places.push(Place::Free);
            return;
        };
        let place = match find(&self.members, holder) {
            Some(member) if self.me == Some(member) => self.destination(member, lease),
            Some(member) => Place::At(member),
            None => Place::Awaited { heir: self.claim(holder) },
        };
        if let Place::At(member) = place {
            self.held[member] += 1;
            self.claims[member] += 1;
        }
        self.places.push(place);
    }

    /// Where a lease of the planning instance will be.
    fn destination(&mut self, me: usize, lease: &PlannedLease) -> Place {
        let Some(to) = &lease.handing_over else { return Place::At(me) };
        self.handing_over = true;
        let Holder::Member(to) = to else { return Place::Awaited { heir: None } };
        let to = find(&self.members, to).filter(|to| self.members[*to].accepting);
        Place::At(to.unwrap_or(me))
    }

    /// The member that is a later life of the holder, which now has a claim more.
    fn claim(&mut self, holder: &Owner) -> Option<usize> {
        let first = self.members.partition_point(|it| it.owner.instance < holder.instance);
        self.members.get(first).filter(|it| it.owner.instance == holder.instance)?;
        self.claims[first] += 1;
        Some(first)
    }
}

fn find(members: &[&Member], owner: &Owner) -> Option<usize> {
    members.binary_search_by(|member| member.owner.cmp(owner)).ok()
}
