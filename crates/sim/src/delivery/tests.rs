use crate::delivery::DeliveryCounts;
use crate::world::{Statistics, World, run_seed};

#[test]
fn a_world_without_bugs_passes_and_is_busy() {
    let mut all = Statistics::default();
    for seed in 0..300 {
        let outcome = run_seed(World::Delivery, seed, None);
        assert_eq!(outcome.violation, None, "seed {seed}");
        all.add(&outcome.statistics);
    }
    let DeliveryCounts { commits, events, sends, opens, effects, .. } = all.delivery;
    let DeliveryCounts { deliveries, redeliveries, inbox_duplicates, .. } = all.delivery;
    for count in [commits, events, sends, opens, effects, deliveries, redeliveries] {
        assert!(300 < count, "{all:?}");
    }
    let DeliveryCounts { abandoned, deferred, dead_lettered, revived, .. } = all.delivery;
    let DeliveryCounts { duplicates_dropped, lost_locks, refused, .. } = all.delivery;
    for count in [abandoned, deferred, dead_lettered, revived, duplicates_dropped, lost_locks] {
        assert!(10 < count, "{all:?}");
    }
    for count in [refused, inbox_duplicates, all.kills, all.stalls, all.cuts, all.twins] {
        assert!(10 < count, "{all:?}");
    }
}

#[test]
fn the_same_seed_gives_the_same_digest() {
    let digest = |seed| run_seed(World::Delivery, seed, None).digest;
    let mut seen = std::collections::BTreeSet::new();
    for seed in 0..50 {
        let (one, again) = (digest(seed), digest(seed));
        assert_eq!(one, again, "seed {seed}");
        assert!(seen.insert(one), "seed {seed} ran like another");
    }
}
