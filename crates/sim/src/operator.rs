//! Somebody who pauses, resumes and redrives while everything else goes wrong.

use std::sync::Arc;
use std::time::Duration;

use millstream_core::{Clock, Container};
use millstream_processor::{DeadLetters, Operations, Result};

use crate::deployment::Deployment;
use crate::fleet::PROCESSOR;
use crate::log::log;
use crate::rng::Rng;

/// Most times that parked sequences are redriven after the faults; by then nothing fails any more.
pub(crate) const REDRIVES_MAX: u32 = 2;

/// What somebody who operates the processor can do.
pub(crate) struct Operator {
    operations: Operations,
    letters: DeadLetters,
}

impl Operator {
    pub(crate) fn new(
        data: &Container,
        leases: &Container,
        letters: &Container,
        clock: Arc<dyn Clock>,
    ) -> Result<Self> {
        let timeout = Duration::from_secs(5);
        let letters = DeadLetters::new(letters, PROCESSOR, Arc::clone(&clock), timeout)?;
        let operations = Operations::new_with(data, leases, PROCESSOR, clock)?;
        Ok(Self { operations, letters })
    }

    /// Lets the processor go on if somebody has paused it.
    pub(crate) async fn resume(&self) -> Result<()> {
        self.operations.resume().await
    }

    /// Has everything delivered again that is parked.
    pub(crate) async fn redrive_all(&self) -> Result<u64> {
        self.operations.redrive_all(&self.letters).await
    }
}

/// Operates the processor through a faulty way until the faults end, and leaves it running.
pub(crate) async fn operate(deployment: Arc<Deployment>, mut rng: Rng) {
    let (shape, handle) = (&deployment.shape, &deployment.handle);
    if !shape.has_operator {
        return;
    }
    let node = deployment.add_node("operator");
    let clock = Arc::clone(&node.clock);
    let operator = Operator::new(&node.data, &node.leases, &node.letters, clock);
    let operator = operator.expect("what the instances use is valid");
    let mut paused = false;
    while handle.now() < shape.faults_end {
        handle.sleep(rng.duration(Duration::ZERO, shape.lease)).await;
        // Whatever fails: the next time comes.
        let outcome = match rng.below(3) {
            0 => operator.operations.pause().await.map(|()| paused = true),
            1 => operator.resume().await.map(|()| paused = false),
            _ => operator.redrive_all().await.map(drop),
        };
        log(|| format!("operator: {outcome:?}"));
    }
    // There may be no processor yet; it is not paused then.
    while operator.resume().await.is_err() && paused {
        handle.sleep(shape.options.round).await;
    }
}
