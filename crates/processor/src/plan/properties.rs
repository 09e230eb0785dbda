use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use crate::plan::simulation::{Cluster, lease, member, owner};
use crate::plan::view::View;
use crate::plan::{Action, Holder, Member, PlannedLease, Strategy as Balancing, plan};

const NAMES: [&str; 7] = ["a", "b", "c", "d", "e", "f", "g"];

fn any_member(name: &'static str) -> impl Strategy<Value = Member> {
    let least = prop_oneof![3 => Just(0), 1 => 0..8_usize];
    let most = prop_oneof![3 => Just(None), 1 => (0..12_usize).prop_map(Some)];
    (least, most, prop::bool::weighted(0.9)).prop_map(move |(leases_min, leases_max, accepting)| {
        Member { leases_min, leases_max, accepting, ..member(name) }
    })
}

/// Up to seven members with any limits; up to 40 leases, free or held by any of them.
fn any_cluster(strategies: &'static [Balancing]) -> impl Strategy<Value = Cluster> {
    let members = (1..=NAMES.len())
        .prop_flat_map(|count| NAMES[..count].iter().map(|it| any_member(it)).collect::<Vec<_>>());
    let lease = (0..=NAMES.len(), prop_oneof![Just(0.0), Just(1.0), 0.0..100.0_f64]);
    let leases = prop::collection::vec(lease, 0..40);
    (members, leases, prop::sample::select(strategies)).prop_map(|(members, leases, strategy)| {
        let mut cluster = Cluster::new("").with_strategy(strategy);
        for (number, (holder, load)) in leases.into_iter().enumerate() {
            let holder = members.get(holder).map_or("-", |it| it.owner.instance.as_str());
            cluster.leases.push(lease_with(number, holder, load));
        }
        cluster.members = members;
        cluster
    })
}

fn lease_with(number: usize, holder: &str, load: f64) -> PlannedLease {
    PlannedLease { load, ..lease(number, holder) }
}

/// What happens between two rounds.
#[derive(Clone, Debug)]
enum Event {
    Kill(usize),
    Join(usize),
    Stop(usize),
    Late(usize),
}

fn any_event() -> impl Strategy<Value = Event> {
    let index = 0..NAMES.len();
    prop_oneof![
        index.clone().prop_map(Event::Kill),
        index.clone().prop_map(Event::Join),
        index.clone().prop_map(Event::Stop),
        index.prop_map(Event::Late),
    ]
}

fn happen(cluster: &mut Cluster, event: &Event) {
    match event {
        Event::Kill(index) => cluster.kill(NAMES[*index]),
        Event::Join(index) => {
            cluster.kill(NAMES[*index]);
            cluster.join(NAMES[*index]);
        }
        Event::Stop(index) => {
            let stopping = cluster.members.iter_mut();
            for member in stopping.filter(|it| it.owner.instance == NAMES[*index]) {
                member.accepting = false;
            }
        }
        Event::Late(index) => cluster.late.push(owner(NAMES[*index])),
    }
}

fn limit(member: &Member) -> usize {
    if member.accepting { member.leases_max.unwrap_or(usize::MAX) } else { 0 }
}

fn held(cluster: &Cluster, member: &Member) -> usize {
    let holder = Holder::Member(member.owner.clone());
    cluster.leases.iter().filter(|lease| lease.holder == holder).count()
}

/// Nobody above its most, everybody at its least if there are enough, free only what nobody may
/// have.
fn check_limits(cluster: &Cluster) -> Result<(), TestCaseError> {
    let room: usize =
        cluster.members.iter().fold(0, |room: usize, it| room.saturating_add(limit(it)));
    let owned: usize = cluster.members.iter().map(|it| held(cluster, it)).sum();
    prop_assert_eq!(owned, room.min(cluster.leases.len()));
    let least: usize = cluster.members.iter().map(|it| it.leases_min.min(limit(it))).sum();
    for member in &cluster.members {
        let held = held(cluster, member);
        prop_assert!(held <= limit(member));
        if least <= cluster.leases.len() {
            prop_assert!(member.leases_min.min(limit(member)) <= held);
        }
    }
    Ok(())
}

/// Whoever could give a lease to somebody with room has at most one more.
fn check_equal(cluster: &Cluster) -> Result<(), TestCaseError> {
    for giver in cluster.members.iter().filter(|it| it.leases_min < held(cluster, it)) {
        for taker in cluster.members.iter().filter(|it| held(cluster, it) < limit(it)) {
            prop_assert!(held(cluster, giver) <= held(cluster, taker) + 1, "{}", cluster.counts());
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn quotas_give_every_lease_away_that_somebody_may_have(
        cluster in any_cluster(&[Balancing::EqualShares]),
    ) {
        let view = View::new(&owner("a"), &cluster.members, &cluster.leases);
        let (quotas, floors) = (view.quotas(), view.floors());
        prop_assert_eq!(quotas.iter().sum::<usize>() + view.unassigned(), cluster.leases.len());
        for (index, member) in view.members.iter().enumerate() {
            prop_assert!(floors[index] <= quotas[index] && quotas[index] <= limit(member));
            prop_assert!(floors[index] <= member.leases_min);
        }
    }

    #[test]
    fn equal_shares_settle_from_any_start_with_the_fewest_moves(
        cluster in any_cluster(&[Balancing::EqualShares]),
    ) {
        let mut cluster = cluster;
        let view = View::new(&owner("a"), &cluster.members, &cluster.leases);
        let (taken, given) = view.quotas().iter().zip(&view.held).fold(
            (0, 0),
            |(taken, given), (quota, held)| {
                (taken + quota.saturating_sub(*held), given + held.saturating_sub(*quota))
            },
        );
        cluster.settle(1);
        prop_assert_eq!(cluster.collisions, 0);
        prop_assert!(cluster.moves <= taken + given);
        check_limits(&cluster)?;
        check_equal(&cluster)?;
    }

    #[test]
    fn load_aware_settles_from_any_start(cluster in any_cluster(&[Balancing::LoadAware])) {
        let mut cluster = cluster;
        cluster.settle(12);
        prop_assert_eq!(cluster.collisions, 0);
        check_limits(&cluster)?;
    }

    #[test]
    fn what_all_plan_from_one_view_fits_together(
        cluster in any_cluster(&[Balancing::EqualShares, Balancing::LoadAware]),
    ) {
        let mut counts: BTreeMap<_, _> =
            cluster.members.iter().map(|it| (it.owner.clone(), held(&cluster, it))).collect();
        let before = counts.clone();
        let mut planned = BTreeSet::new();
        for member in &cluster.members {
            let me = &member.owner;
            let plan = plan(me, &cluster.members, &cluster.leases, cluster.strategy, 0);
            for action in plan.actions {
                let (id, holder, to) = match action {
                    Action::Take(id) => (id, Holder::Free, Some(me.clone())),
                    Action::HandOver { lease, to } => {
                        (lease, Holder::Member(me.clone()), Some(to))
                    }
                    Action::Release(id) => (id, Holder::Member(me.clone()), None),
                };
                prop_assert_ne!(to.as_ref(), (holder != Holder::Free).then_some(me));
                let lease = cluster.leases.iter().find(|it| it.id == id).unwrap();
                prop_assert_eq!(&lease.holder, &holder);
                prop_assert!(planned.insert(id), "two plans for one lease");
                if holder != Holder::Free {
                    *counts.get_mut(me).unwrap() -= 1;
                }
                if let Some(to) = to {
                    *counts.get_mut(&to).unwrap() += 1;
                }
            }
        }
        for member in &cluster.members {
            let most = limit(member).max(before[&member.owner]);
            prop_assert!(counts[&member.owner] <= most, "more than it may have");
        }
    }

    #[test]
    fn everything_settles_after_kills_joins_stops_and_old_listings(
        cluster in any_cluster(&[Balancing::EqualShares, Balancing::LoadAware]),
        rounds in prop::collection::vec(prop::collection::vec(any_event(), 0..3), 0..8),
        drain_rounds in 0..4_usize,
    ) {
        let mut cluster = cluster;
        cluster.drain_rounds = drain_rounds;
        for events in rounds {
            cluster.late.clear();
            for event in &events {
                happen(&mut cluster, event);
            }
            cluster.round();
        }
        cluster.late.clear();
        // Some may have given a lease to somebody who had gone.
        cluster.bury();
        let steps_max = if cluster.strategy == Balancing::EqualShares { 6 } else { 16 };
        cluster.settle(steps_max * (drain_rounds + 2));
        check_limits(&cluster)?;
    }
}
