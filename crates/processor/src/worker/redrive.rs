//! Changes that were put aside: keeping them, and delivering them again on request.

use std::sync::Arc;

use millstream_core::{BoxFuture, Change, EffectiveKey, PartitionKey, Timestamp};

use crate::batch::Segment;
use crate::dead_letters::{ParkedSequence, ParkedState};
use crate::error::{Error, ErrorKind, Result};
use crate::flaw::Flaw;
use crate::handler::Context;
use crate::lanes::LaneKey;
use crate::metrics;
use crate::notification::Notification;
use crate::options::FailurePolicy;
use crate::shared::Setup;
use crate::stored::Control;
use crate::worker::Work;
use crate::worker::events::Event;
use crate::worker::redelivery::{Redelivery, Redrive};

/// What became of changes that were to be put into the dead letters.
pub(super) struct Kept {
    lane: LaneKey,
    /// Those that are there now.
    kept: Vec<Segment>,
    /// Whether they were put behind others, and did not fail themselves.
    behind: bool,
    /// Those that do not belong there after all.
    rest: Vec<Segment>,
    /// The key that is no longer parked.
    unparked: Option<PartitionKey>,
}

impl Work {
    /// Finds out which keys are parked, and which of them are to be delivered again.
    pub(super) fn load_parked(&mut self) {
        let (setup, keys) = (Arc::clone(&self.setup), Arc::clone(&self.keys));
        self.redrives_seen = self.wishes.borrow().redrives;
        self.events.push(Box::pin(async move {
            let parked = persist(&setup, || Box::pin(setup.dead_letters.parked_keys(&keys))).await;
            parked.map_or_else(Event::Failed, Event::ParkedLoaded)
        }));
    }

    pub(super) fn on_parked_loaded(&mut self, parked: Vec<ParkedSequence>) {
        let known = self.parked.get_or_insert_default();
        for it in parked {
            let wanted = it.state == ParkedState::Redriving;
            if wanted && self.redrives_wanted.insert(it.partition_key.clone()) {
                if !known.contains(&it.partition_key) {
                    self.unparked_before.insert(it.partition_key.clone());
                }
                self.redriving.push_back(it.partition_key.clone());
            }
            known.insert(it.partition_key);
        }
    }

    /// Puts a change aside as the policy says. The lane waits for it.
    pub(super) fn keep(&mut self, lane: LaneKey, change: Segment, error: String, attempts: u32) {
        let setup = Arc::clone(&self.setup);
        let it = &change.page.changes[change.range.start];
        let sequence = setup.options.failure == FailurePolicy::Park;
        tracing::warn!(key = %it.partition_key, id = %it.id, error, "a change is put aside");
        setup.metrics.count(metrics::ITEMS_PARKED, 1);
        setup.notifier.tell(Notification::Parked {
            partition_key: it.partition_key.to_string(),
            id: it.id.as_str().to_owned(),
            sequence,
            error: error.clone(),
        });
        if sequence && let Some(parked) = &mut self.parked {
            parked.insert(it.partition_key.clone());
            self.keeping.insert(it.partition_key.clone());
        }
        if setup.has(Flaw::ParkedBeforeKept) {
            change.page.finish(change.range.start);
        }
        self.events.push(Box::pin(async move {
            let it = &change.page.changes[change.range.start];
            let put = persist(&setup, || Box::pin(put_aside(&setup, it, &error, attempts))).await;
            if let Err(error) = put {
                return Event::Failed(error);
            }
            let kept = vec![change];
            Event::Kept(Kept { lane, kept, behind: false, rest: Vec::new(), unparked: None })
        }));
    }

    /// Puts changes of parked keys behind the ones that are kept already. The lane waits for it.
    pub(super) fn keep_behind(&mut self, lane: LaneKey, changes: Vec<Segment>) {
        let setup = Arc::clone(&self.setup);
        self.events.push(Box::pin(async move {
            let mut rest = changes;
            let mut kept = Vec::new();
            while let Some(segment) = rest.first() {
                let it = &segment.page.changes[segment.range.start];
                let is_parked = match persist(&setup, || Box::pin(put_behind(&setup, it))).await {
                    Ok(is_parked) => is_parked,
                    Err(error) => return Event::Failed(error),
                };
                if !is_parked {
                    // The sequence was delivered again to its end: this one is delivered too.
                    let unparked = Some(it.partition_key.clone());
                    return Event::Kept(Kept { lane, kept, behind: true, rest, unparked });
                }
                kept.push(rest.remove(0));
            }
            Event::Kept(Kept { lane, kept, behind: true, rest, unparked: None })
        }));
    }

    pub(super) fn on_kept(&mut self, outcome: Kept) {
        let Kept { lane, kept, behind, rest, unparked } = outcome;
        self.busy -= 1;
        for segment in &kept {
            for index in segment.range.clone() {
                segment.page.finish(index);
            }
        }
        self.lanes.put_back(&lane, rest);
        if !behind && let Some(failed) = kept.first() {
            self.keeping.remove(&failed.page.changes[failed.range.start].partition_key);
        }
        if behind {
            // Nobody suspects them any more; otherwise later changes would stand in for them.
            self.lanes.acquit(&lane, kept.len());
            self.note_kept_behind(&kept);
        }
        match (unparked, &mut self.parked) {
            // The redrive ends any moment; only its end makes the key free, or it could free a
            // sequence that is parked after it.
            (Some(key), _) if self.redrives_running.contains(&key) => {
                let now = self.setup.clock.monotonic();
                self.lanes.wait_until(&lane, now + self.setup.pause(1));
                return;
            }
            (Some(key), Some(parked)) => {
                parked.remove(&key);
            }
            (Some(_), None) | (None, _) => (),
        }
        self.lanes.go_on(&lane);
    }

    /// The keys of these changes are parked, whatever was known of them: the sequence they were put
    /// behind may have come to its end, and another have begun with a change that was put off.
    fn note_kept_behind(&mut self, kept: &[Segment]) {
        for segment in kept {
            let key = &segment.page.changes[segment.range.start].partition_key;
            if let Some(parked) = &mut self.parked {
                parked.insert(key.clone());
            }
            if self.redrives_running.contains(key) {
                self.kept_behind.insert(key.clone());
            }
        }
    }

    /// Starts to deliver a parked sequence again, if one is wanted.
    pub(super) fn start_redrive(&mut self) -> bool {
        // Putting a change aside is repeated until its outcome is known. If the sequence were
        // delivered to its end meanwhile, the change would be parked again, and later ones go on.
        let is_kept = |key| !self.keeping.contains(key) || self.setup.has(Flaw::RedrivenBeforeKept);
        // Of a key that was not parked, something may be with the handler; once that is over,
        // whatever comes is put behind the sequence.
        let is_alone = |key| !self.unparked_before.contains(key) || !self.lanes.is_busy_with(key);
        let free = self.redriving.iter().position(|key| is_kept(key) && is_alone(key));
        let Some(key) = free.and_then(|it| self.redriving.remove(it)) else { return false };
        self.unparked_before.remove(&key);
        self.kept_behind.remove(&key);
        self.redrives_running.insert(key.clone());
        self.busy += 1;
        let context = Context {
            keys: Arc::clone(&self.keys),
            epoch: self.epoch,
            attempt: 1,
            redriven: true,
            cancellation: self.cancellation.child_token(),
            setup: Arc::clone(&self.setup),
        };
        let mut redelivery = Redelivery {
            setup: Arc::clone(&self.setup),
            tenure: self.tenure,
            key,
            context,
            leaving: self.leaving.clone(),
        };
        self.events.push(Box::pin(async move {
            match redelivery.run().await {
                Ok(outcome) => Event::Redriven { key: redelivery.key, outcome },
                Err(error) => Event::Failed(error),
            }
        }));
        true
    }

    pub(super) fn on_redriven(&mut self, key: &PartitionKey, outcome: Redrive) {
        self.busy -= 1;
        self.redrives_running.remove(key);
        self.redrives_wanted.remove(key);
        match outcome {
            Redrive::Interrupted => (),
            Redrive::Done => {
                // What was put behind meanwhile may be part of the next sequence of the key. If it
                // is not, the next change of the key finds out.
                if !self.kept_behind.remove(key)
                    && let Some(parked) = &mut self.parked
                {
                    parked.remove(key);
                }
                let partition_key = key.to_string();
                self.setup.notifier.tell(Notification::Redriven { partition_key });
            }
            Redrive::Failed { id, error } => {
                let partition_key = key.to_string();
                tracing::warn!(partition_key, id, error, "a change that was redriven is parked");
                let notification =
                    Notification::Parked { partition_key, id, sequence: true, error };
                self.setup.notifier.tell(notification);
                // Somebody may have asked again before this one was known to have failed.
                self.load_parked();
            }
        }
    }
}

/// Repeats a call to the dead letters until it succeeds, or fails in a way that will not change.
/// What ends it otherwise is the loss of the lease.
pub(super) async fn persist<'a, T>(
    setup: &'a Setup,
    mut call: impl FnMut() -> BoxFuture<'a, Result<T>> + Send,
) -> Result<T> {
    let mut attempts = 0;
    loop {
        match call().await {
            Ok(value) => return Ok(value),
            Err(error) if is_hopeless(&error) => return Err(error),
            Err(error) => {
                attempts += 1;
                let error = error.report();
                tracing::warn!(error, "could not use the dead letters; trying again");
                setup.metrics.count(metrics::STORE_ERRORS, 1);
                setup.notifier.tell(Notification::StoreFailed { keys: None, error });
                setup.clock.sleep(setup.pause(attempts)).await;
            }
        }
    }
}

/// Whether a person has to act before the dead letters can be used again.
pub(crate) fn is_hopeless(error: &Error) -> bool {
    use millstream_core::ErrorKind as Core;
    matches!(
        error.kind(),
        ErrorKind::Invalid
            | ErrorKind::NewerSchema
            | ErrorKind::Store(Core::Invalid | Core::TooLarge | Core::Corrupt | Core::Unsupported)
    )
}

async fn put_aside(setup: &Setup, change: &Change, error: &str, attempts: u32) -> Result<()> {
    let key = effective_key(setup, &change.partition_key)?;
    if setup.options.failure == FailurePolicy::Skip {
        return setup.dead_letters.skip(change, &key, error, attempts).await;
    }
    setup.dead_letters.park(change, &key, error, attempts).await
}

/// Keeps a change until a time.
pub(crate) async fn put_off(setup: &Setup, change: &Change, until: Timestamp) -> Result<()> {
    let key = effective_key(setup, &change.partition_key)?;
    if !setup.agenda.is_in_use() {
        let is_new = |control: &mut Control| !std::mem::replace(&mut control.postpones, true);
        setup.store.update_control(is_new).await?;
        setup.agenda.use_it();
    }
    setup.dead_letters.postpone(change, &key, until).await
}

async fn put_behind(setup: &Setup, change: &Change) -> Result<bool> {
    let key = effective_key(setup, &change.partition_key)?;
    setup.dead_letters.append_if_parked(change, &key).await
}

fn effective_key(setup: &Setup, key: &PartitionKey) -> Result<EffectiveKey> {
    let definition = &setup.feed.info.settings.partition_key;
    definition.effective(key).map_err(|error| Error::store(format!("hash the key {key}"), error))
}
