//! Committing a batch: look, decide, publish, and begin anew if somebody else was quicker.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use millstream_core::{
    Batch, BatchOutcome, CheckedBatch, ContainerSettings, EffectiveKey, Error, ErrorKind, Lsn,
    NewBody, OperationKind, OperationResult, Result, Step,
};

use crate::container::claims::{Partition, changes};
use crate::container::publish::Stored;
use crate::container::view::{Current, View};
use crate::container::{Range, Shared};
use crate::plan::{ClaimChanges, Counter, Known, Plan, Scene, only_reads, plan};
use crate::record::ItemRecord;
use crate::store::item_bytes_max;
use crate::subject::{PartitionNames, short};
use crate::wire::pause;

/// How often a batch is decided anew because others were quicker.
const CONFLICTS_MAX: u32 = 200;
/// Most messages of an atomic batch.
const MESSAGES_MAX: usize = 1000;

impl Shared {
    pub(super) async fn commit(&self, batch: Batch) -> Result<BatchOutcome> {
        let mut settings = self.settings().await?;
        let mut are_settings_fresh = false;
        let effective = settings.partition_key.effective(&batch.partition_key)?;
        self.check_sizes(&batch)?;
        let batch = batch.check(&settings)?;
        let range = self.range_at(&effective);
        let names = PartitionNames::new(&range.names, &effective, &batch.partition_key);
        let _turn = if batch.operations.iter().any(|it| it.action.writes_event()) {
            Some(range.turns.take(&names.sequence).await)
        } else {
            None
        };
        let mut must_be_fresh = false;
        for conflicts in 0..CONFLICTS_MAX {
            // It may have taken a while to get here.
            if !are_settings_fresh {
                settings = self.settings().await?;
            }
            let mut view =
                self.view(range, &names, &effective, &batch, &settings, must_be_fresh).await?;
            let partition = Partition {
                range,
                names: &names,
                effective: &effective,
                key: &batch.partition_key,
            };
            let steps = match self.resolve(partition, &batch, &settings, &mut view).await? {
                Ok(steps) => steps,
                Err(error) if view.is_fresh => return Err(error),
                // It may rest on something outdated.
                Err(_) => {
                    must_be_fresh = true;
                    continue;
                }
            };
            if only_reads(&steps) {
                if !view.is_fresh {
                    must_be_fresh = true;
                    continue;
                }
                return self.read_outcome(range, steps).await;
            }
            let counter = self.counter_for(range, &names, &steps, &view, must_be_fresh).await?;
            let claims = changes(&settings, &names, &steps, &view)?;
            if !claims.rested.is_empty() && !are_settings_fresh {
                // Nothing is removed because of a TTL that another process has just changed.
                (settings, are_settings_fresh) = (self.fresh_settings().await?, true);
                continue;
            }
            let at = self.scene(partition, &settings, claims);
            let plan = plan(&at, steps, &view.items, counter);
            check_count(&plan)?;
            match self.store(range, &plan, &settings).await? {
                Stored::At(lsn) => {
                    self.learn_commit(range, &names, &plan, lsn);
                    self.announce(range, lsn).await;
                    let results =
                        plan.results(range.number(), lsn, &batch.partition_key, &settings);
                    return Ok(BatchOutcome { lsn: Lsn::new(lsn), results });
                }
                Stored::Conflict => {
                    (must_be_fresh, are_settings_fresh) = (true, false);
                    if 0 < conflicts {
                        pause(conflicts.min(4) - 1).await;
                    }
                }
            }
        }
        let error = Error::new(ErrorKind::Overloaded, "commit a batch");
        let error = error.because("others change the same items all the time");
        Err(error.with_retry_after(std::time::Duration::from_millis(100)))
    }

    /// Refuses bodies that the server would not take.
    fn check_sizes(&self, batch: &Batch) -> Result<()> {
        let bytes_max = item_bytes_max(&self.connection);
        for (index, operation) in batch.operations.iter().enumerate() {
            let bytes = match &operation.kind {
                OperationKind::Create(body)
                | OperationKind::Upsert(body)
                | OperationKind::Replace(_, body) => body.len(),
                OperationKind::Patch(..) | OperationKind::Delete(_) | OperationKind::Read(_) => 0,
            };
            if bytes_max < bytes && bytes <= millstream_core::BATCH_BYTES_MAX {
                return Err(too_large(bytes, bytes_max).at_operation(index));
            }
        }
        Ok(())
    }

    /// Decides the steps; what a patch comes to may want to know of more unique keys than could be
    /// foreseen. The outer error is one of looking, the inner one a refusal.
    async fn resolve(
        &self,
        partition: Partition<'_>,
        batch: &CheckedBatch,
        settings: &ContainerSettings,
        view: &mut View,
    ) -> Result<Result<Vec<Step>>> {
        loop {
            let (range, key) = (partition.range.number(), partition.key);
            let mut current =
                Current { range, view: &*view, key, settings, unseen: BTreeSet::new() };
            let steps = batch.resolve(settings, &mut current);
            let unseen = current.unseen;
            if unseen.is_empty() {
                let is_refused = steps.is_err();
                assert!(is_refused || !view.is_too_much, "more was counted than there is");
                return Ok(steps.and_then(|steps| self.check_grown(steps)));
            }
            self.look_at_claims(partition, settings, unseen, view).await?;
        }
    }

    /// A patch may have grown an item beyond what a message can hold.
    fn check_grown(&self, steps: Vec<Step>) -> Result<Vec<Step>> {
        let bytes_max = item_bytes_max(&self.connection);
        for (index, step) in steps.iter().enumerate() {
            if let Step::Write { body: NewBody { bytes, .. }, .. } = step
                && bytes_max < bytes.len()
            {
                return Err(too_large(bytes.len(), bytes_max).at_operation(index));
            }
        }
        Ok(steps)
    }

    async fn read_outcome(&self, range: &Range, steps: Vec<Step>) -> Result<BatchOutcome> {
        let newest = range.newest().await?;
        let results = steps.into_iter().map(|step| match step {
            Step::Read(item) => OperationResult::Read(item),
            Step::NotModified => OperationResult::NotModified,
            Step::ReadStep(_) | Step::Write { .. } | Step::Delete { .. } => {
                unreachable!("a batch that only reads has no such step")
            }
        });
        Ok(BatchOutcome { lsn: Lsn::new(newest), results: results.collect() })
    }

    /// The counter, if the steps may need one.
    async fn counter_for(
        &self,
        range: &Range,
        names: &PartitionNames,
        steps: &[Step],
        view: &View,
        must_be_fresh: bool,
    ) -> Result<Counter> {
        let writes_event = steps.iter().any(|step| match step {
            Step::Write { body, .. } => body.is_event,
            Step::Delete { .. } | Step::Read(_) | Step::ReadStep(_) | Step::NotModified => false,
        });
        if !writes_event {
            return Ok(Counter::default());
        }
        self.counter(range, names, must_be_fresh && view.is_fresh).await
    }

    /// Where and when something is committed.
    pub(crate) fn scene<'a>(
        &'a self,
        partition: Partition<'a>,
        settings: &'a ContainerSettings,
        claims: ClaimChanges,
    ) -> Scene<'a> {
        Scene {
            range: &partition.range.names,
            names: partition.names,
            partition_key: partition.key,
            settings,
            at: partition.range.time(self.clock().now()),
            batch: short(self.connection.options().ids.next_id().as_bytes()),
            part_bytes_max: item_bytes_max(&self.connection),
            claims,
        }
    }

    fn learn_commit(&self, range: &Range, names: &PartitionNames, plan: &Plan, lsn: u64) {
        let sequence = |from_end: usize| lsn - u64::try_from(from_end).unwrap_or(0);
        let mut cache = range.cache();
        for item in &plan.items {
            let version = item.version.clone().map(|mut version| {
                version.stamp.lsn = Some(lsn);
                range.newest_at.fetch_max(version.stamp.at, Ordering::Relaxed);
                version
            });
            // Hardly anybody changes an event, so it would only take the place of something else.
            if version.as_ref().is_some_and(|it| it.stamp.sequence.is_some()) {
                cache.forget(&item.subject);
                continue;
            }
            let known = Known { sequence: sequence(item.from_end), version, is_over: false };
            cache.put_item(item.subject.clone(), known);
        }
        if let Some((number, from_end)) = plan.counter {
            let counter = Counter { sequence: sequence(from_end), number };
            cache.put_counter(names.sequence.clone(), counter);
        }
    }

    /// Wakes readers that have not passed this commit. If this is lost they look by themselves a
    /// little later.
    pub(crate) async fn announce(&self, range: &Range, lsn: u64) {
        let wake = range.names.wake.clone();
        let _ = self.connection.client().publish(wake, Bytes::from(lsn.to_string())).await;
    }
}

fn too_large(bytes: usize, bytes_max: usize) -> Error {
    let reason = format!(
        "its {bytes} bytes exceed the {bytes_max} that a message of this NATS server can hold; \
         raise its max_payload"
    );
    Error::new(ErrorKind::TooLarge, "store an item").because(reason)
}

/// Refuses a commit that the server would not take at once.
fn check_count(plan: &Plan) -> Result<()> {
    let count = plan.messages.len();
    if count <= MESSAGES_MAX {
        return Ok(());
    }
    let reason = format!(
        "its {count} messages exceed the {MESSAGES_MAX} that a NATS server takes at once; send \
         fewer operations"
    );
    Err(Error::new(ErrorKind::TooLarge, "commit a batch").because(reason))
}

/// The effective key of an item that was found in a stream.
pub(crate) fn effective_of(
    settings: &ContainerSettings,
    record: &ItemRecord,
) -> Result<EffectiveKey> {
    settings.partition_key.effective(&record.partition_key)
}
