//! Delivering a parked sequence to its end.

use std::sync::Arc;
use std::time::Duration;

use millstream_core::{Continuation, PartitionKey};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::batch::{ChangeBatch, Page, Segment};
use crate::dead_letters::ParkedChange;
use crate::error::Result;
use crate::fence::Tenure;
use crate::handler::{Context, HandlerErrorKind};
use crate::notification::Notification;
use crate::options::Checkpoint;
use crate::shared::Setup;
use crate::worker::deliver::{call_handler, shorten};
use crate::worker::events::Delivered;
use crate::worker::probe::{note_reached, note_transient, permitted};
use crate::worker::redrive::persist;

/// Longest pause between two attempts.
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// How the delivery of a parked sequence ended.
pub(super) enum Redrive {
    /// Nothing is left of it.
    Done,
    /// The lease is given up; the next owner goes on.
    Interrupted,
    /// The handler failed as often as it may; the rest is parked again.
    Failed { id: String, error: String },
}

/// Delivers the sequence of one key.
pub(super) struct Redelivery {
    pub(super) setup: Arc<Setup>,
    pub(super) tenure: Tenure,
    pub(super) key: PartitionKey,
    pub(super) context: Context,
    /// Cancelled when the lease is given up. The sequence says that it is being redriven, so the
    /// next owner goes on with it.
    pub(super) leaving: CancellationToken,
}

/// What the handler did with some changes of the sequence.
struct Handled {
    /// How many of the first ones are done.
    done: usize,
    error: Option<(HandlerErrorKind, String)>,
}

impl Redelivery {
    /// Delivers the sequence in order, and forgets each change once it is handled.
    pub(super) async fn run(&mut self) -> Result<Redrive> {
        let setup = Arc::clone(&self.setup);
        let (letters, key) = (&setup.dead_letters, self.key.clone());
        loop {
            let limit = setup.options.batch_items_max;
            let kept = persist(&setup, || Box::pin(letters.sequence(&key, None, limit))).await?;
            if kept.is_empty() {
                if persist(&setup, || Box::pin(letters.finish_redrive(&key))).await? {
                    return Ok(Redrive::Done);
                }
                continue;
            }
            let Some(Handled { done, error }) = self.deliver(&kept).await else {
                return Ok(Redrive::Interrupted);
            };
            for parked in kept.iter().take(done) {
                persist(&setup, || Box::pin(letters.delete_delivered(parked))).await?;
            }
            if 0 < done {
                self.context.attempt = 1;
            }
            let failed = kept.get(done).or(kept.first());
            let pause = match error {
                None => continue,
                Some((HandlerErrorKind::Transient, _)) => setup.pause(1),
                Some((HandlerErrorKind::Failed, error)) if self.may_try_again(failed) => {
                    let (keys, attempt) = (Arc::clone(&self.context.keys), self.context.attempt);
                    setup.notifier.tell(Notification::HandlerFailed { keys, attempt, error });
                    self.context.attempt += 1;
                    // It keeps a place that others could have.
                    setup.pause(attempt).min(PAUSE_MAX)
                }
                Some((HandlerErrorKind::Failed | HandlerErrorKind::Permanent, error)) => {
                    persist(&setup, || Box::pin(letters.fail_redrive(&key, &error))).await?;
                    let id = failed.map_or_else(String::new, |it| it.change.id.to_string());
                    return Ok(Redrive::Failed { id, error });
                }
            };
            tokio::select! {
                biased;
                () = self.leaving.cancelled() => return Ok(Redrive::Interrupted),
                () = setup.clock.sleep(pause) => (),
            }
        }
    }

    /// What was put off, or only kept behind another, has all its attempts before it; what failed
    /// as often as it may is tried once.
    fn may_try_again(&self, failed: Option<&ParkedChange>) -> bool {
        failed.is_some_and(|it| it.error.is_none())
            && self.context.attempt < self.setup.options.attempts_max
    }

    /// Gives changes to the handler; none if the lease is given up.
    async fn deliver(&self, kept: &[ParkedChange]) -> Option<Handled> {
        let (setup, leaving) = (&self.setup, &self.leaving);
        let probe = tokio::select! {
            biased;
            () = leaving.cancelled() => return None,
            probe = permitted(setup) => probe,
        };
        let acknowledged = Arc::new(Notify::new());
        let nowhere = Continuation::new("").expect("a short text is fine");
        let changes = kept.iter().map(|it| it.change.clone()).collect::<Vec<_>>();
        let range = 0..changes.len();
        let page = Page::new(0, changes, nowhere.clone(), nowhere, Arc::clone(&acknowledged));
        let batch = ChangeBatch::new(vec![Segment { page: Arc::clone(&page), range }]);
        let outcome = call_handler(setup, self.tenure, batch.clone(), self.context.clone()).await;
        let error = match outcome {
            Delivered::Returned(Ok(())) if setup.options.checkpoint == Checkpoint::ByHand => {
                // The letters stay until the handler says that it is done with them.
                while !page.is_finished() {
                    tokio::select! {
                        biased;
                        () = leaving.cancelled() => return None,
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
            Delivered::TooLate => std::future::pending().await,
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
        Some(Handled { done: page.done_prefix(), error })
    }
}
