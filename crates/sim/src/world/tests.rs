use crate::ledger::LedgerCounts;
use crate::runner::run_caught;
use crate::world::{Mutant, Statistics, World, run_seed};

#[test]
fn a_world_without_bugs_passes_and_is_busy() {
    let mut all = Statistics::default();
    for seed in 0..200 {
        let outcome = run_seed(World::Processor, seed, None);
        assert_eq!(outcome.violation, None, "seed {seed}");
        all.add(&outcome.statistics);
    }
    let Statistics { commits, first_deliveries, faults, kills, stops, stalls, cuts, .. } = all;
    let LedgerCounts { takeovers, handovers, splits, parked, .. } = all.leases;
    for count in [commits, first_deliveries, faults, takeovers, handovers] {
        assert!(200 < count, "{all:?}");
    }
    for count in [kills, stops, stalls, cuts, splits, parked, all.twins] {
        assert!(20 < count, "{all:?}");
    }
}

#[test]
fn the_same_seed_gives_the_same_digest() {
    let digest = |seed| run_seed(World::Processor, seed, None).digest;
    let mut seen = std::collections::BTreeSet::new();
    for seed in 0..50 {
        let (one, again) = (digest(seed), digest(seed));
        assert_eq!(one, again, "seed {seed}");
        assert!(seen.insert(one), "seed {seed} ran like another");
    }
}

#[test]
fn every_mutant_is_caught() {
    for mutant in Mutant::ALL {
        // Some make the code under test trip over its own assertions.
        let violation = |seed| run_caught(mutant.world(), seed, Some(*mutant)).violation;
        let caught = (0..2000).find(|seed| violation(*seed).is_some());
        assert!(caught.is_some(), "{}", mutant.name());
    }
}

#[test]
fn mutants_are_found_by_name() {
    for mutant in Mutant::ALL {
        assert_eq!(Mutant::named(mutant.name()), Some(*mutant));
    }
    assert_eq!(Mutant::named("none"), None);
}
