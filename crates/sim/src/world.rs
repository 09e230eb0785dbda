//! What one seed describes, from the first commit to the last check.

mod mutant;
mod statistics;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use millstream_core::conformance::block_on;
use millstream_processor::{FailurePolicy, Strategy};

pub use crate::world::mutant::Mutant;
pub use crate::world::statistics::Statistics;

use crate::chaos::{ChaosCounts, chaos};
use crate::clock::SimClock;
use crate::delivery;
use crate::deployment::Deployment;
use crate::executor::{Executor, NodeId, Stopped};
use crate::fleet::Fleet;
use crate::operator::{Operator, REDRIVES_MAX, operate};
use crate::rng::Rng;
use crate::shape::Shape;

/// Rounds in which the cost of idling is measured.
const QUIET_ROUNDS: u32 = 3;

/// What is simulated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum World {
    /// Writers and instances of the processor.
    Processor,
    /// Units of work, relays, a broker and consumers with an inbox.
    Delivery,
}

/// What came of one seed.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Equal for two runs of the same seed.
    pub digest: u64,
    /// What was wrong, if anything.
    pub violation: Option<String>,
    /// What happened on the way.
    pub statistics: Statistics,
}

/// Runs the world of a seed, with a planted bug or without.
#[must_use]
pub fn run_seed(world: World, seed: u64, mutant: Option<Mutant>) -> Outcome {
    match world {
        World::Processor => run_processor(seed, mutant),
        World::Delivery => delivery::run_seed(seed, mutant),
    }
}

/// Runs the processor world of a seed, with a planted bug or without.
fn run_processor(seed: u64, mutant: Option<Mutant>) -> Outcome {
    let mut executor = Executor::new(seed);
    let handle = executor.handle().clone();
    let (ignores_etags, flaw) = match mutant {
        Some(Mutant::StoreIgnoresEtag) => (true, None),
        Some(Mutant::Processor(flaw)) => (false, Some(flaw)),
        Some(Mutant::Relay(_) | Mutant::Broker(_) | Mutant::Outbox(_)) | None => (false, None),
    };
    let deployment = Deployment::new(&handle, seed, Shape::draw(seed), ignores_etags);
    let deployment = Arc::new(deployment.expect("the shape of a world is valid"));
    let counts = Arc::new(ChaosCounts::default());
    let fleet = Fleet::new(Arc::clone(&deployment), seed, flaw);
    deployment.start_workload();
    fleet.assemble();
    let rng = Rng::stream(seed, "chaos");
    let disturb = chaos(Arc::clone(&fleet), Arc::clone(&counts), rng);
    handle.spawn(NodeId::WORLD, Box::pin(disturb));
    deployment.spawn_busy(operate(Arc::clone(&deployment), Rng::stream(seed, "operator")));

    let violation = run(&mut executor, &fleet).err();
    let violation = violation.map(|it| format!("{it} (after {:?})", handle.now()));
    let (deliveries, first_deliveries) = deployment.deliveries.counts();
    let load = |count: &std::sync::atomic::AtomicU64| count.load(Ordering::Relaxed);
    let statistics = Statistics {
        steps: executor.steps(),
        virtual_time: handle.now(),
        commits: u64::try_from(deployment.truth.lock().commits().len()).expect("a few"),
        deliveries,
        first_deliveries,
        faults: deployment.faults(),
        starts: load(&fleet.starts),
        kills: load(&counts.kills),
        stops: load(&counts.stops),
        stalls: load(&counts.stalls),
        cuts: load(&counts.cuts),
        twins: load(&counts.twins),
        leases: deployment.ledger.counts(),
        ..Statistics::default()
    };
    Outcome { digest: handle.digest(), violation, statistics }
}

/// Runs through the faults, the healing after them and a quiet time.
fn run(executor: &mut Executor, fleet: &Arc<Fleet>) -> Result<(), String> {
    let deployment = &fleet.deployment;
    let shape = &deployment.shape;
    go_on(executor, shape.faults_end)?;
    while !deployment.is_at_rest() {
        go_on(executor, deployment.handle.now() + shape.options.round)?;
    }
    let longest = shape.healing_max();
    await_in_time(executor, fleet, longest, "healing", || {
        deployment.deliveries.complete()?;
        settled(fleet)
    })?;
    redrive(executor, fleet)?;
    if shape.options.strategy == Strategy::LoadAware {
        // A load that is measured later may still move a lease.
        return Ok(());
    }
    quiet(executor, fleet)
}

/// Has everything delivered that is parked; all of it works by now, sooner or later.
fn redrive(executor: &mut Executor, fleet: &Arc<Fleet>) -> Result<(), String> {
    let deployment = &fleet.deployment;
    let [leases, letters] =
        [&deployment.leases, &deployment.letters].map(|it| it.view(NodeId::WORLD));
    let clock = SimClock::of_world(&deployment.handle);
    let operator = Operator::new(&deployment.data, &leases, &letters, clock);
    let operator = operator.map_err(|it| it.report())?;
    for _ in 0..=REDRIVES_MAX {
        if deployment.ledger.nothing_parked() {
            let skips = deployment.shape.options.failure == FailurePolicy::Skip;
            return if skips { Ok(()) } else { deployment.deliveries.all_handled() };
        }
        let _ = block_on(operator.redrive_all()).map_err(|it| it.report())?;
        // A sequence is delivered to its end or to the first failure.
        let end = deployment.handle.now() + deployment.shape.healing_max();
        let is_over = || deployment.ledger.nothing_parked() || deployment.ledger.none_redriving();
        while !is_over() && deployment.handle.now() < end {
            go_on(executor, deployment.handle.now() + deployment.shape.options.round)?;
        }
    }
    Err(format!("something is parked after {REDRIVES_MAX} redrives"))
}

/// Whether everybody is there and has its share.
fn settled(fleet: &Fleet) -> Result<(), String> {
    if !fleet.is_assembled() {
        return Err("somebody is still to come".to_owned());
    }
    if fleet.is_leaving() {
        return Err("somebody is about to stop".to_owned());
    }
    let shares_equal = fleet.deployment.shape.options.strategy == Strategy::EqualShares;
    let faults_end = fleet.deployment.shape.faults_end;
    let ranges = block_on(fleet.deployment.data.feed.ranges()).map_err(|it| it.report())?;
    fleet.deployment.ledger.settled(&ranges, &fleet.nodes(), shares_equal, faults_end)
}

/// When nothing happens, each instance gives its sign of life and looks once per round, and the
/// leases stay where they are.
fn quiet(executor: &mut Executor, fleet: &Arc<Fleet>) -> Result<(), String> {
    let deployment = &fleet.deployment;
    let handle = &deployment.handle;
    let round = deployment.shape.options.round;
    // Whoever has just moved something looks again soon.
    go_on(executor, handle.now() + round * 2)?;
    settled(fleet).map_err(|it| format!("settled, and then: {it}"))?;
    let owners = deployment.ledger.owners();
    let before = deployment.ledger.counts();
    let (reads_before, scans_before) = deployment.leases.requests();
    go_on(executor, handle.now() + round * QUIET_ROUNDS)?;
    let after = deployment.ledger.counts();
    let (reads, scans) = deployment.leases.requests();
    let (reads, scans) = (reads - reads_before, scans - scans_before);
    let instances = u64::try_from(fleet.nodes().len()).expect("a few");
    // Rounds may be an eighth shorter, and one falls on either end.
    let most = instances * u64::from(QUIET_ROUNDS + 1);
    let heartbeats = after.heartbeats - before.heartbeats;
    let writes = after.other_writes - before.other_writes;
    let is_cheap = heartbeats <= most
        && scans <= most + instances
        && reads == 0
        && writes <= deployment.ledger.leases();
    if !is_cheap {
        return Err(format!(
            "{instances} idle instances needed {heartbeats} heartbeats, {writes} other writes, \
             {scans} scans and {reads} reads in {QUIET_ROUNDS} rounds",
        ));
    }
    if deployment.ledger.owners() != owners {
        return Err("leases moved although nothing happened".to_owned());
    }
    Ok(())
}

/// Runs until the condition holds; it must before `longest` has passed.
fn await_in_time(
    executor: &mut Executor,
    fleet: &Fleet,
    longest: Duration,
    what: &str,
    condition: impl Fn() -> Result<(), String>,
) -> Result<(), String> {
    let Deployment { handle, shape, .. } = &*fleet.deployment;
    let end = handle.now() + longest;
    loop {
        let Err(missing) = condition() else { return Ok(()) };
        if end <= handle.now() {
            return Err(format!("not done after {longest:?} of {what}: {missing}"));
        }
        go_on(executor, handle.now() + shape.options.round / 2)?;
    }
}

pub(crate) fn go_on(executor: &mut Executor, until: Duration) -> Result<(), String> {
    match executor.run_until(until) {
        Stopped::Failed(violation) => Err(violation),
        Stopped::Spinning(place) => Err(format!("spinning: {place}")),
        Stopped::Done | Stopped::Time | Stopped::Idle => Ok(()),
    }
}

impl World {
    /// All of them.
    pub const ALL: &'static [Self] = &[Self::Processor, Self::Delivery];

    /// Its name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Processor => "processor",
            Self::Delivery => "delivery",
        }
    }

    /// The one of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|it| it.name() == name)
    }
}
