//! A world from the commit of an event to its effect: writers, relays, a broker, consumers.
//!
//! Writers commit entities with events to a faulty store, relays publish them, a broker that is
//! killed, replaced and opened again keeps them in a faulty container, and consumers settle them in
//! every way there is, with an inbox. Read `shape` first, then `host` and `remote` (the broker and
//! the ways to it), then `oracle`, which has the checks.

mod chaos;
mod consumer;
mod counts;
mod crew;
mod host;
mod operator;
mod oracle;
mod relays;
mod remote;
mod shape;
mod site;
#[cfg(test)]
mod tests;
mod writer;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

pub use crate::delivery::counts::DeliveryCounts;

use crate::delivery::chaos::{Disturbances, Targets, chaos};
use crate::delivery::crew::Crew;
use crate::delivery::host::Host;
use crate::delivery::shape::DeliveryShape;
use crate::delivery::site::{Site, path};
use crate::executor::{Executor, NodeId};
use crate::rng::Rng;
use crate::world::{Mutant, Outcome, Statistics, go_on};

/// Runs the delivery world of a seed, with a planted bug or without.
pub(crate) fn run_seed(seed: u64, mutant: Option<Mutant>) -> Outcome {
    let mut executor = Executor::new(seed);
    let handle = executor.handle().clone();
    let site = Site::new(&handle, seed, DeliveryShape::draw(seed));
    let site = Arc::new(site.expect("the shape of a world is valid"));
    let targets = Arc::new(assemble(&site, mutant));
    let disturbances = Arc::new(Disturbances::default());
    let rng = Rng::stream(seed, "chaos");
    let disturb = chaos(Arc::clone(&targets), Arc::clone(&disturbances), rng);
    handle.spawn(NodeId::WORLD, Box::pin(disturb));
    site.move_ranges();
    operator::start(&targets.host);

    let violation = run(&mut executor, &targets).err();
    let violation = violation.map(|it| format!("{it} (after {:?})", handle.now()));
    let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
    let delivery = site.oracle.counts();
    let crews = [&targets.writers, &targets.relays, &targets.consumers];
    let statistics = Statistics {
        steps: executor.steps(),
        virtual_time: handle.now(),
        faults: site.faults(),
        starts: crews.iter().map(|it| it.starts()).sum(),
        kills: load(&disturbances.kills),
        stops: load(&disturbances.stops),
        stalls: load(&disturbances.stalls),
        cuts: load(&disturbances.cuts),
        twins: load(&disturbances.twins),
        delivery,
        ..Statistics::default()
    };
    Outcome { digest: handle.digest(), violation, statistics }
}

fn assemble(site: &Arc<Site>, mutant: Option<Mutant>) -> Targets {
    let (mut broker, mut relay, mut outbox) = (None, None, None);
    match mutant {
        Some(Mutant::Broker(flaw)) => broker = Some(flaw),
        Some(Mutant::Relay(flaw)) => relay = Some(flaw),
        Some(Mutant::Outbox(flaw)) => outbox = Some(flaw),
        Some(Mutant::StoreIgnoresEtag | Mutant::Processor(_)) | None => (),
    }
    let host = Host::start(site, broker);
    let shape = &site.shape;
    let consumers = shape.consumers * u64::try_from(shape.subscriptions).expect("a few");
    let writing = writer::work(site, outbox);
    Targets {
        writers: Crew::assemble(site, "writer", shape.writers, writing),
        relays: Crew::assemble(site, "relay", shape.relays, relays::work(&host, relay)),
        consumers: Crew::assemble(site, "consumer", consumers, consumer::work(&host, outbox)),
        host,
    }
}

/// Runs through the faults and the healing after them.
fn run(executor: &mut Executor, targets: &Targets) -> Result<(), String> {
    let site = &targets.host.site;
    let step = site.shape.lease / 2;
    go_on(executor, site.shape.faults_end)?;
    while !site.is_at_rest() {
        go_on(executor, site.handle.now() + step)?;
    }
    let end = site.handle.now() + site.shape.healing_max();
    while let Err(missing) = healed(targets) {
        if end <= site.handle.now() {
            let longest = site.shape.healing_max();
            return Err(format!("not done after {longest:?} of healing: {missing}"));
        }
        go_on(executor, site.handle.now() + step)?;
    }
    site.oracle.kept_in_order()?;
    // What had its effect stays quiet.
    go_on(executor, site.handle.now() + site.shape.lock + Duration::from_secs(1))?;
    healed(targets).map_err(|it| format!("healed, and then: {it}"))
}

/// Whether everything had its effect, and the broker has nothing left.
fn healed(targets: &Targets) -> Result<(), String> {
    let site = &targets.host.site;
    site.oracle.complete()?;
    let Some(serving) = targets.host.serving() else {
        return Err("there is no broker".to_owned());
    };
    for subscription in 0..site.shape.subscriptions {
        let counts = serving.broker.counts(&path(subscription)).map_err(|it| it.report())?;
        let left = counts.active + counts.scheduled + counts.deferred + counts.dead_lettered;
        if 0 < left {
            return Err(format!("{left} messages are left in subscription {subscription}"));
        }
    }
    Ok(())
}
