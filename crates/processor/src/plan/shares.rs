//! Equal shares: how many leases everybody should have, and which lease goes where.

use crate::plan::Step;
use crate::plan::view::{Place, View};

/// What `me` does, and whether nobody has anything to do.
///
/// Every lease that a member lacks is a slot. The slots stand in the order of the members; the
/// first are for the free leases in their order, the next for those that will be free, the rest
/// for the surplus of the owners in their order. So everybody finds for every slot the same lease
/// or the same giver.
pub(crate) fn steps(view: &View<'_>, me: usize) -> (Vec<Step>, bool) {
    let quotas = view.quotas();
    let free = indexes(view, Place::Free);
    let awaited = view.places.iter().filter(|place| matches!(place, Place::Awaited { .. })).count();
    let slots = slots(view, &quotas);

    let mut steps: Vec<Step> = free
        .iter()
        .zip(&slots)
        .filter(|(_, taker)| **taker == me)
        .map(|(lease, _)| Step::Take { lease: *lease })
        .collect();
    let surplus = |member: usize| view.held[member].saturating_sub(quotas[member]);
    let before: usize = (0..me).map(surplus).sum();
    let receivers = slots.iter().skip(free.len() + awaited + before).copied().map(Some);
    // Owners above their limit give away what nobody has room for as well.
    let receivers = receivers.chain(std::iter::repeat(None));
    steps.extend(
        given(view, me)
            .into_iter()
            .take(surplus(me))
            .zip(receivers)
            .map(|(lease, to)| Step::Give { lease, to }),
    );

    let settled = (free.is_empty() || slots.is_empty())
        && (0..view.members.len()).all(|member| surplus(member) == 0);
    (steps, settled)
}

/// The member that lacks a lease, once for every lease that it lacks.
fn slots(view: &View<'_>, quotas: &[usize]) -> Vec<usize> {
    quotas
        .iter()
        .zip(&view.held)
        .enumerate()
        .flat_map(|(member, (quota, held))| {
            std::iter::repeat_n(member, quota.saturating_sub(*held))
        })
        .collect()
}

/// The leases of `me` in the order in which it gives them away: those first whose work is being
/// finished already. The order does not depend on chance, so that an instance that sees an old
/// state plans what it has done already, not more of it.
fn given(view: &View<'_>, me: usize) -> Vec<usize> {
    let mut leases = indexes(view, Place::At(me));
    leases.reverse();
    leases.sort_by_key(|lease| view.leases[*lease].handing_over.is_none());
    leases
}

fn indexes(view: &View<'_>, place: Place) -> Vec<usize> {
    (0..view.places.len()).filter(|lease| view.places[*lease] == place).collect()
}
