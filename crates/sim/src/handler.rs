//! The handler of the simulated instances: slow, failing, panicking, as the seed says.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use millstream_core::{BoxFuture, Change, Clock};
use millstream_processor::{
    ChangeBatch, Checkpoint, Context, FailurePolicy, Handler, HandlerError, HandlerResult,
};

use crate::deployment::{Deployment, NodeParts};
use crate::executor::handle::YieldNow;
use crate::rng::{Rng, mixed};
use crate::shape::HandlerShape;

/// How often each change has failed, whoever handled it.
pub(crate) type Failures = Arc<Mutex<BTreeMap<u64, u64>>>;

/// The handler of one instance.
pub(crate) struct SimHandler {
    deployment: Arc<Deployment>,
    node: Arc<NodeParts>,
    failures: Failures,
    rng: Mutex<Rng>,
    salt: u64,
}

/// What is wrong with a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trouble {
    None,
    Fails,
    Panics,
    Permanent,
}

impl SimHandler {
    /// Whether a change fails follows from it and `salt` alone, so that all instances agree.
    pub(crate) fn new(
        deployment: Arc<Deployment>,
        node: Arc<NodeParts>,
        failures: Failures,
        salt: u64,
    ) -> Self {
        let rng = Mutex::new(node.rng.fork(1));
        Self { deployment, node, failures, rng, salt }
    }

    fn shape(&self) -> &HandlerShape {
        &self.deployment.shape.handler
    }

    fn draw<T>(&self, draw: impl FnOnce(&mut Rng) -> T) -> T {
        draw(&mut self.rng.lock().expect("nothing panics while it holds the lock"))
    }

    /// Checks a change that is given to the handler, and returns its number.
    fn given(&self, change: &Change, redriven: bool) -> u64 {
        let Deployment { deliveries, shape, handle, .. } = &*self.deployment;
        let is_park = shape.options.failure == FailurePolicy::Park;
        let order = if is_park && !redriven { deliveries.not_behind_kept(change) } else { Ok(()) };
        order.and_then(|()| deliveries.delivered(change)).unwrap_or_else(|violation| {
            handle.fail(violation);
            0
        })
    }

    fn handled(&self, change: &Change) {
        note_handled(&self.deployment, change);
    }

    /// What happens to a change this time.
    fn trouble(&self, number: u64, redriven: bool) -> Trouble {
        let shape = self.shape();
        let is_over = self.deployment.shape.faults_end <= self.deployment.handle.now();
        if redriven && is_over {
            // Whoever redrives has found and mended what was wrong.
            return Trouble::None;
        }
        let draw = mixed(self.salt ^ number);
        let (poison, failing, style) = (draw % 1000, (draw >> 10) % 1000, (draw >> 20) % 1000);
        let how = if style < shape.panics { Trouble::Panics } else { Trouble::Fails };
        if poison < shape.poison {
            return match (redriven, style % 2) {
                (true, _) => Trouble::None,
                (false, 0) => Trouble::Permanent,
                (false, _) => how,
            };
        }
        if shape.failing <= failing {
            return Trouble::None;
        }
        let most = 1 + (draw >> 30) % shape.failures_max;
        let mut failures = self.failures.lock().expect("nothing panics while it holds the lock");
        let failed = failures.entry(number).or_default();
        if most <= *failed {
            return Trouble::None;
        }
        *failed += 1;
        how
    }

    async fn rest(&self) {
        let shape = self.shape();
        let lease = self.deployment.shape.lease;
        let pause = self.draw(|rng| match rng.chance(shape.slow) {
            true => rng.duration(lease / 2, lease * 2),
            false => rng.duration(Duration::ZERO, shape.delay_max),
        });
        // Long work only while there is trouble anyway: it says nothing about healing.
        let is_over = self.deployment.shape.faults_end <= self.deployment.handle.now();
        let pause = if is_over { pause.min(shape.delay_max) } else { pause };
        if pause.is_zero() {
            YieldNow::default().await;
        } else {
            self.node.clock.sleep(pause).await;
        }
    }

    async fn work(&self, batch: &ChangeBatch, numbers: &[u64], redriven: bool) -> HandlerResult {
        self.rest().await;
        let now = self.deployment.handle.now();
        if self.shape().outage.is_some_and(|(begin, end)| begin <= now && now < end) {
            return Err(HandlerError::transient("it is down"));
        }
        let by_hand = self.deployment.shape.options.checkpoint == Checkpoint::ByHand;
        let one_by_one = !by_hand && self.draw(|rng| rng.chance(300));
        for (index, (change, number)) in batch.iter().zip(numbers).enumerate() {
            let trouble = self.trouble(*number, redriven);
            if trouble == Trouble::None {
                if one_by_one {
                    self.handled(change);
                    batch.acknowledge(index);
                }
                continue;
            }
            if trouble == Trouble::Panics {
                // Unlike `panic!` this tells no hook about it.
                std::panic::resume_unwind(Box::new("a planted panic"));
            }
            let error = match trouble {
                Trouble::Permanent => HandlerError::permanent("it never works"),
                Trouble::None | Trouble::Fails | Trouble::Panics => {
                    HandlerError::failed("it did not work")
                }
            };
            if !self.draw(|rng| rng.chance(self.shape().precise)) {
                return Err(error);
            }
            batch.iter().take(index).for_each(|it| self.handled(it));
            return Err(error.at(index));
        }
        if by_hand {
            self.acknowledge_later(batch);
        } else {
            batch.iter().for_each(|it| self.handled(it));
        }
        Ok(())
    }

    /// The work goes on elsewhere and is done change by change, in any order.
    fn acknowledge_later(&self, batch: &ChangeBatch) {
        let (batch, deployment) = (batch.clone(), Arc::clone(&self.deployment));
        let clock = Arc::clone(&self.node.clock);
        let pause_max = self.shape().delay_max;
        let mut order: Vec<(usize, Duration)> = self.draw(|rng| {
            let pauses = (0..batch.len()).map(|it| (it, rng.duration(Duration::ZERO, pause_max)));
            pauses.collect()
        });
        self.draw(|rng| rng.shuffle(&mut order));
        (self.node.spawner)(Box::pin(async move {
            for (index, pause) in order {
                clock.sleep(pause).await;
                let change = batch.get(index).expect("it is one of the batch");
                note_handled(&deployment, change);
                batch.acknowledge(index);
            }
        }));
    }
}

impl Handler for SimHandler {
    fn handle(&self, batch: ChangeBatch, context: Context) -> BoxFuture<'_, HandlerResult> {
        let keys = batch.iter().map(|it| it.partition_key.clone()).collect();
        let ledger = &self.deployment.ledger;
        let call = ledger.called(self.node.id, &context.keys, context.epoch, keys);
        let redriven = context.redriven;
        let numbers: Vec<u64> = batch.iter().map(|it| self.given(it, redriven)).collect();
        self.deployment.handle.trace_number(numbers.iter().sum());
        Box::pin(async move {
            let outcome = self.work(&batch, &numbers, redriven).await;
            drop(call);
            outcome
        })
    }
}

fn note_handled(deployment: &Deployment, change: &Change) {
    if let Err(violation) = deployment.deliveries.handled(change) {
        deployment.handle.fail(violation);
    }
}
