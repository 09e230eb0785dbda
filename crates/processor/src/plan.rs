//! The balancing planner: leases and members in, the actions of one instance out.
//!
//! Every instance plans its own actions from what all of them can read. Instances that see the same
//! compute the same distribution, so nobody has to ask anybody: a free lease has one taker, and an
//! owner with too many leases knows who gets which of its surplus. Instances that see different
//! things may collide; then a conditional write fails or a later round moves a lease once more.
//!
//! Not here: who is alive (`observe`), and carrying out the actions.
//!
//! Read `shares` first (equal shares), then `loads` (by load).

mod loads;
#[cfg(test)]
mod properties;
mod shares;
#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests;
mod view;

use crate::plan::view::View;
use crate::stored::Owner;

/// An instance that is alive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Who it is.
    pub owner: Owner,
    /// It wants at least so many leases, as far as there are enough for everybody's least.
    pub leases_min: usize,
    /// It refuses more leases than this, even if its least is larger.
    pub leases_max: Option<usize>,
    /// Whether it wants leases at all; false while it stops.
    pub accepting: bool,
}

/// Who has a lease.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Holder {
    /// Nobody, or somebody whose time has run out.
    Free,
    /// Somebody whose time has not run out. If that is none of the members, such as the earlier
    /// life of an instance that has just started again, the lease is waited for.
    Member(Owner),
}

/// What the planner knows of a lease.
#[derive(Clone, Debug, PartialEq)]
pub struct PlannedLease {
    /// The id of its document.
    pub id: String,
    /// Who has it.
    pub holder: Holder,
    /// Items per second, smoothed. What is negative or not a number counts as nothing.
    pub load: f64,
    /// To whom this lease is about to go, if the planning instance has begun to give it away.
    /// A lease on its way to a member that is gone or stops is planned anew.
    pub handing_over: Option<Holder>,
}

/// How leases are distributed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Strategy {
    /// The numbers of leases differ by one at most where the limits of the members allow it.
    #[default]
    EqualShares,
    /// The loads differ little where the limits of the members allow it; the numbers of leases may
    /// differ much.
    LoadAware,
}

/// Something for the planning instance to do.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Action {
    /// Take this free lease.
    Take(String),
    /// Finish the work in hand of an own lease, then write its new owner into it.
    HandOver {
        /// The id of the lease.
        lease: String,
        /// Who gets it.
        to: Owner,
    },
    /// Finish the work in hand of this own lease, then leave it to nobody: no member has room.
    Release(String),
}

/// What one instance does in one round.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// What to do, in this order.
    pub actions: Vec<Action>,
    /// How many leases stay without an owner because every member has as many as it may.
    pub unassigned: usize,
    /// Whether nobody has anything to do as far as this instance can see.
    pub balanced: bool,
}

/// What the instance `me` should do.
///
/// The order of members and leases means nothing. The seed decides in which order free leases are
/// taken, and nothing else. An instance that is not among the members plans nothing: it cannot know
/// what the others expect of it.
///
/// ```
/// use millstream_processor::{Action, Holder, Member, Owner, PlannedLease, Strategy, plan};
/// # use uuid::Uuid;
///
/// let owner = |name: &str| Owner { instance: name.to_owned(), incarnation: Uuid::nil() };
/// let member = |name| Member {
///     owner: owner(name), leases_min: 0, leases_max: None, accepting: true,
/// };
/// let lease = |id: &str| PlannedLease {
///     id: id.to_owned(), holder: Holder::Member(owner("a")), load: 0.0, handing_over: None,
/// };
/// let members = [member("a"), member("b")];
/// let plan = plan(&owner("a"), &members, &[lease("1"), lease("2")], Strategy::EqualShares, 0);
/// assert_eq!(plan.actions, [Action::HandOver { lease: "2".to_owned(), to: owner("b") }]);
/// ```
#[must_use]
pub fn plan(
    me: &Owner,
    members: &[Member],
    leases: &[PlannedLease],
    strategy: Strategy,
    rng_seed: u64,
) -> Plan {
    let view = View::new(me, members, leases);
    let Some(me) = view.me else {
        return Plan { actions: Vec::new(), unassigned: view.unassigned(), balanced: false };
    };
    let (steps, settled) = match strategy {
        Strategy::EqualShares => shares::steps(&view, me),
        Strategy::LoadAware => loads::steps(&view, me),
    };
    Plan {
        actions: actions(&view, steps, rng_seed),
        unassigned: view.unassigned(),
        balanced: settled && !view.handing_over,
    }
}

/// What happens to one lease of the view; members are numbered as in the view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Take { lease: usize },
    Give { lease: usize, to: Option<usize> },
}

fn actions(view: &View<'_>, steps: Vec<Step>, rng_seed: u64) -> Vec<Action> {
    let (mut takes, mut gives) = (Vec::new(), Vec::new());
    for step in steps {
        match step {
            Step::Take { lease } => takes.push(Action::Take(view.leases[lease].id.clone())),
            Step::Give { lease, to } => {
                let lease = view.leases[lease].id.clone();
                gives.push(match to {
                    Some(to) => Action::HandOver { lease, to: view.members[to].owner.clone() },
                    None => Action::Release(lease),
                });
            }
        }
    }
    shuffle(&mut takes, rng_seed);
    takes.append(&mut gives);
    takes
}

/// Fisher and Yates with the numbers of SplitMix64.
fn shuffle<T>(items: &mut [T], seed: u64) {
    let mut state = seed;
    for end in (2..=items.len()).rev() {
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^= mixed >> 31;
        // The remainder fits because the divisor came from a usize.
        let choice = u64::try_from(end).map_or(0, |end| mixed % end);
        items.swap(end - 1, usize::try_from(choice).unwrap_or_default());
    }
}
