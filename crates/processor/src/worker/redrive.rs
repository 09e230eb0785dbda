//! Changes that were put aside: keeping them, and delivering them again on request.

use std::sync::Arc;

use millstream_core::{BoxFuture, Change, Continuation, EffectiveKey, PartitionKey};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::batch::{ChangeBatch, Page, Segment};
use crate::dead_letters::{ParkedSequence, ParkedState};
use crate::error::{Error, ErrorKind, Result};
use crate::fence::Tenure;
use crate::flaw::Flaw;
use crate::handler::{Context, HandlerErrorKind};
use crate::lanes::LaneKey;
use crate::metrics;
use crate::notification::Notification;
use crate::options::{Checkpoint, FailurePolicy};
use crate::shared::Setup;
use crate::worker::Work;
use crate::worker::deliver::{call_handler, shorten};
use crate::worker::events::{Delivered, Event};
use crate::worker::probe::{note_reached, note_transient, permitted};

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

/// How the delivery of a parked sequence ended.
pub(super) enum Redrive {
    /// Nothing is left of it.
    Done,
    /// The lease is given up; the next owner goes on.
    Interrupted,
    /// The handler failed; the rest is parked again.
    Failed(String),
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
            let is_known = self.redriving.contains(&it.partition_key)
                || self.redrives_running.contains(&it.partition_key);
            if wanted && !is_known {
                self.redriving.push(it.partition_key.clone());
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

    /// Starts to deliver a parked sequence again, if one is wanted.
    pub(super) fn start_redrive(&mut self) -> bool {
        // Putting a change aside is repeated until its outcome is known. If the sequence were
        // delivered to its end meanwhile, the change would be parked again, and later ones go on.
        let is_free = |key| !self.keeping.contains(key) || self.setup.has(Flaw::RedrivenBeforeKept);
        let free = self.redriving.iter().rposition(is_free);
        let Some(key) = free.map(|it| self.redriving.remove(it)) else { return false };
        self.redrives_running.insert(key.clone());
        self.busy += 1;
        let (setup, tenure) = (Arc::clone(&self.setup), self.tenure);
        let leaving = self.leaving.clone();
        let context = Context {
            keys: Arc::clone(&self.keys),
            epoch: self.epoch,
            attempt: 1,
            redriven: true,
            cancellation: self.cancellation.child_token(),
        };
        self.events.push(Box::pin(async move {
            let outcome = redrive(&setup, tenure, &key, context, &leaving).await;
            match outcome {
                Ok(outcome) => Event::Redriven { key, outcome },
                Err(error) => Event::Failed(error),
            }
        }));
        true
    }

    pub(super) fn on_redriven(&mut self, key: &PartitionKey, outcome: Redrive) {
        self.busy -= 1;
        self.redrives_running.remove(key);
        match outcome {
            Redrive::Interrupted => (),
            Redrive::Done => {
                if let Some(parked) = &mut self.parked {
                    parked.remove(key);
                }
                let partition_key = key.to_string();
                self.setup.notifier.tell(Notification::Redriven { partition_key });
            }
            Redrive::Failed(error) => {
                let keys = Arc::clone(&self.keys);
                let notification = Notification::HandlerFailed { keys, attempt: 1, error };
                self.setup.notifier.tell(notification);
                // Somebody may have asked again before this one was known to have failed.
                self.load_parked();
            }
        }
    }
}

/// Delivers a parked sequence in order, and forgets each change once it is handled.
async fn redrive(
    setup: &Arc<Setup>,
    tenure: Tenure,
    key: &PartitionKey,
    context: Context,
    leaving: &CancellationToken,
) -> Result<Redrive> {
    let acknowledged = Arc::new(Notify::new());
    let nowhere = Continuation::new("").expect("a short text is fine");
    loop {
        let limit = setup.options.batch_items_max;
        let kept =
            persist(setup, || Box::pin(setup.dead_letters.sequence(key, None, limit))).await?;
        if kept.is_empty() {
            if persist(setup, || Box::pin(setup.dead_letters.finish_redrive(key))).await? {
                return Ok(Redrive::Done);
            }
            continue;
        }
        let probe = tokio::select! {
            biased;
            // The sequence says that it is being redriven: the next owner goes on with it.
            () = leaving.cancelled() => return Ok(Redrive::Interrupted),
            probe = permitted(setup) => probe,
        };
        let changes = kept.iter().map(|it| it.change.clone()).collect::<Vec<_>>();
        let range = 0..changes.len();
        let (start, end) = (nowhere.clone(), nowhere.clone());
        let page = Page::new(0, changes, start, end, Arc::clone(&acknowledged));
        let batch = ChangeBatch::new(vec![Segment { page: Arc::clone(&page), range }]);
        let outcome = call_handler(setup, tenure, batch.clone(), context.clone()).await;
        let error = match outcome {
            Delivered::Returned(Ok(())) if setup.options.checkpoint == Checkpoint::ByHand => {
                // The letters stay until the handler says that it is done with them.
                while !page.is_finished() {
                    tokio::select! {
                        biased;
                        () = leaving.cancelled() => return Ok(Redrive::Interrupted),
                        () = acknowledged.notified() => (),
                    }
                }
                None
            }
            Delivered::Returned(Ok(())) => {
                batch.finish();
                None
            }
            Delivered::Returned(Err(error)) => {
                for index in 0..error.index_in(&batch).unwrap_or(0) {
                    batch.acknowledge(index);
                }
                Some((error.kind, shorten(&error.to_string())))
            }
            Delivered::Panicked(text) => {
                let text = shorten(&format!("the handler panicked: {text}"));
                Some((HandlerErrorKind::Failed, text))
            }
            Delivered::TooLate => return std::future::pending().await,
        };
        if let Some(probe) = probe {
            probe.settle();
        }
        match &error {
            Some((HandlerErrorKind::Transient, text)) => {
                note_transient(setup, text, setup.clock.monotonic());
            }
            Some((HandlerErrorKind::Failed | HandlerErrorKind::Permanent, _)) => {
                note_reached(setup, false);
            }
            None => note_reached(setup, true),
        }
        for (index, parked) in kept.iter().enumerate().take(page.done_prefix()) {
            debug_assert!(page.is_done(index));
            persist(setup, || Box::pin(setup.dead_letters.delete_delivered(parked))).await?;
        }
        match error {
            Some((HandlerErrorKind::Transient, _)) => setup.clock.sleep(setup.pause(1)).await,
            Some((_, error)) => {
                persist(setup, || Box::pin(setup.dead_letters.fail_redrive(key, &error))).await?;
                return Ok(Redrive::Failed(error));
            }
            None => (),
        }
    }
}

/// Repeats a call to the dead letters until it succeeds, or fails in a way that will not change.
/// What ends it otherwise is the loss of the lease.
async fn persist<'a, T>(
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
fn is_hopeless(error: &Error) -> bool {
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

async fn put_behind(setup: &Setup, change: &Change) -> Result<bool> {
    let key = effective_key(setup, &change.partition_key)?;
    setup.dead_letters.append_if_parked(change, &key).await
}

fn effective_key(setup: &Setup, key: &PartitionKey) -> Result<EffectiveKey> {
    let definition = &setup.feed.info.settings.partition_key;
    definition.effective(key).map_err(|error| Error::store(format!("hash the key {key}"), error))
}
