//! Giving batches to the handler, and what to do when it fails.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use millstream_core::PartitionKey;

use crate::batch::{ChangeBatch, Segment};
use crate::breaker::Permit;
use crate::error::{Error, ErrorKind};
use crate::fence::Tenure;
use crate::flaw::Flaw;
use crate::handler::{Context, HandlerError, HandlerErrorKind};
use crate::lanes::{Failure, LaneKey, Verdict, split_first};
use crate::metrics;
use crate::notification::Notification;
use crate::options::{Checkpoint, Concurrency, FailurePolicy};
use crate::shared::Setup;
use crate::stored::Failing;
use crate::worker::events::{Delivered, Event};
use crate::worker::probe::{Probe, note_reached, note_transient};
use crate::worker::{Ended, Work};

/// Most failing changes that are noted in the lease.
pub(super) const FAILING_MAX: usize = 32;
/// Longest text of an error that is kept.
const ERROR_BYTES_MAX: usize = 1024;

impl Work {
    /// Gives the handler as many batches as it may have.
    pub(super) fn deliver(&mut self, now: Duration) {
        self.lanes.release_due(now);
        self.held_back_until = None;
        let Some(parked) = &self.parked else { return };
        if self.is_paused() {
            return;
        }
        let none_parked = parked.is_empty();
        let at_once = match self.setup.options.concurrency {
            Concurrency::Serial => 1,
            Concurrency::Keyed(at_once) => at_once,
        };
        let page_max = if self.stopping.is_some() { self.page_started } else { u64::MAX };
        while self.busy < at_once {
            let is_others_turn = self.redrove_last && self.lanes.has_ready(page_max);
            if self.stopping.is_none() && !is_others_turn && self.start_redrive() {
                self.redrove_last = true;
                continue;
            }
            if !self.lanes.has_ready(page_max) {
                return;
            }
            let permit = self.setup.breaker().may_deliver(now);
            let probe = match permit {
                Permit::Yes => None,
                Permit::Probe => Some(Probe::new(&self.setup)),
                Permit::NotBefore(time) => {
                    self.held_back_until = Some(time);
                    return;
                }
            };
            let Some((lane, segments, attempts)) = self.lanes.take(page_max) else { return };
            self.redrove_last = false;
            let last = segments.last().map_or(0, |it| it.page.number);
            self.page_started = self.page_started.max(last);
            self.busy += 1;
            let segments = if none_parked {
                segments
            } else {
                let Some(segments) = self.keep_parked(&lane, segments) else { continue };
                segments
            };
            let attempts = attempts.max(self.attempts_before(&lane, &segments));
            self.hand_to_handler(lane, segments, attempts, probe);
        }
    }

    /// Separates changes of parked keys from the others. If the first one is parked, the changes
    /// like it go to the dead letters and the others back to the lane.
    fn keep_parked(&mut self, lane: &LaneKey, segments: Vec<Segment>) -> Option<Vec<Segment>> {
        if self.setup.has(Flaw::ParkedKeyGoesOn) {
            return Some(segments);
        }
        let parked = self.parked.as_ref()?;
        let batch = ChangeBatch::new(segments.clone());
        let first = parked.contains(&batch.get(0)?.partition_key);
        let alike = batch.iter().take_while(|it| parked.contains(&it.partition_key) == first);
        let alike = alike.count();
        let mut rest = segments;
        let mut taken = Vec::new();
        for _ in 0..alike {
            taken.extend(split_first(&mut rest));
        }
        self.lanes.put_back(lane, rest);
        if !first {
            return Some(merge(taken));
        }
        self.keep_behind(lane.clone(), taken);
        None
    }

    /// Attempts that an earlier owner of the lease made.
    fn attempts_before(&mut self, lane: &LaneKey, segments: &[Segment]) -> u32 {
        if self.inherited.is_empty() {
            return 0;
        }
        let changes = segments.iter().flat_map(|it| &it.page.changes[it.range.clone()]);
        let known = changes.filter_map(|change| {
            self.inherited.iter().find(|it| {
                it.lsn == change.lsn.as_u64()
                    && it.id == change.id.as_str()
                    && it.partition_key == change.partition_key.to_string()
            })
        });
        let attempts = known.map(|it| it.attempts).max().unwrap_or(0);
        self.lanes.remember_attempts(lane, attempts);
        attempts
    }

    fn hand_to_handler(
        &mut self,
        lane: LaneKey,
        segments: Vec<Segment>,
        attempts: u32,
        probe: Option<Probe>,
    ) {
        let batch = ChangeBatch::new(segments);
        let context = Context {
            keys: Arc::clone(&self.keys),
            epoch: self.epoch,
            attempt: attempts + 1,
            redriven: false,
            cancellation: self.cancellation.child_token(),
            setup: Arc::clone(&self.setup),
        };
        if self.setup.has(Flaw::AcknowledgeBeforeHandling) {
            batch.finish();
        }
        let (setup, tenure) = (Arc::clone(&self.setup), self.tenure);
        self.events.push(Box::pin(async move {
            let outcome = call_handler(&setup, tenure, batch.clone(), context).await;
            Event::Handled { lane, batch, outcome, probe }
        }));
    }

    pub(super) fn on_handled(
        &mut self,
        lane: &LaneKey,
        batch: &ChangeBatch,
        outcome: Delivered,
        probe: Option<Probe>,
    ) -> Result<(), Box<Ended>> {
        if !matches!(outcome, Delivered::TooLate)
            && let Some(probe) = probe
        {
            probe.settle();
        }
        let error = match outcome {
            Delivered::Returned(Ok(())) => {
                self.busy -= 1;
                self.on_success(lane, batch);
                return Ok(());
            }
            Delivered::TooLate => {
                let reason = "the lease had run out before a batch was begun".to_owned();
                return Err(Box::new(Ended::Lost { reason }));
            }
            Delivered::Returned(Err(error)) => error,
            Delivered::Panicked(text) => {
                HandlerError::failed(format!("the handler panicked: {text}"))
            }
        };
        self.on_failure(lane, batch, &error)
    }

    fn on_success(&mut self, lane: &LaneKey, batch: &ChangeBatch) {
        let items = batch.len();
        if self.setup.options.checkpoint != Checkpoint::ByHand {
            batch.finish();
        }
        note_reached(&self.setup, true);
        self.items_since_measured += u64::try_from(items).unwrap_or(u64::MAX);
        self.setup.metrics.count(metrics::BATCHES_HANDLED, 1);
        self.setup.metrics.count(metrics::ITEMS_HANDLED, u64::try_from(items).unwrap_or(u64::MAX));
        self.lanes.succeeded(lane, items);
        self.forget_failing(lane);
    }

    fn on_failure(
        &mut self,
        lane: &LaneKey,
        batch: &ChangeBatch,
        error: &HandlerError,
    ) -> Result<(), Box<Ended>> {
        for index in 0..error.index_in(batch).unwrap_or(0) {
            batch.acknowledge(index);
        }
        let rest = batch.open();
        if rest.is_empty() {
            self.busy -= 1;
            self.on_success(lane, batch);
            return Ok(());
        }
        let text = shorten(&error.to_string());
        let now = self.setup.clock.monotonic();
        self.setup.metrics.count(metrics::HANDLER_FAILURES, 1);
        if error.kind == HandlerErrorKind::Transient {
            self.busy -= 1;
            note_transient(&self.setup, &text, now);
            self.lanes.put_back(lane, rest);
            self.lanes.wait_until(lane, now + self.setup.pause(1));
            return Ok(());
        }
        note_reached(&self.setup, false);
        let failure = Failure {
            progressed: crate::lanes::count(&rest) < batch.len(),
            is_first: error.index_in(batch).is_some(),
            permanent: error.kind == HandlerErrorKind::Permanent,
        };
        let first = first_change(&rest);
        let attempts_max = self.setup.options.attempts_max;
        let (verdict, given_up) = self.lanes.failed(lane, rest, failure, attempts_max);
        let attempts = match verdict {
            Verdict::Retry { attempts } | Verdict::GiveUp { attempts } => attempts,
            Verdict::Narrow => attempts_max,
        };
        tracing::debug!(keys = %self.keys, attempts, error = text, "the handler failed");
        let keys = Arc::clone(&self.keys);
        let notification =
            Notification::HandlerFailed { keys, attempt: attempts, error: text.clone() };
        self.setup.notifier.tell(notification);
        match verdict {
            Verdict::Retry { attempts } => {
                self.busy -= 1;
                self.note_failing(lane, &first, attempts, text);
                self.lanes.wait_until(lane, now + self.setup.pause(attempts));
            }
            Verdict::Narrow => {
                self.busy -= 1;
                self.lanes.go_on(lane);
            }
            Verdict::GiveUp { attempts } => {
                let change = given_up.expect("giving up is about a change");
                return self.give_up(lane.clone(), change, text, attempts);
            }
        }
        Ok(())
    }

    /// Applies the policy to a change that failed as often as it may.
    fn give_up(
        &mut self,
        lane: LaneKey,
        change: Segment,
        error: String,
        attempts: u32,
    ) -> Result<(), Box<Ended>> {
        self.forget_failing(&lane);
        match self.setup.options.failure {
            FailurePolicy::Stop => {
                let it = &change.page.changes[change.range.start];
                let attempted = format!("handle the item \"{}\" of {}", it.id, it.partition_key);
                let failed = Error::new(ErrorKind::HandlerFailed, attempted).because(error);
                Err(Box::new(Ended::Failed(failed)))
            }
            FailurePolicy::Park | FailurePolicy::Skip => {
                self.keep(lane, change, error, attempts);
                Ok(())
            }
        }
    }

    fn note_failing(&mut self, lane: &LaneKey, first: &First, attempts: u32, error: String) {
        self.failing.retain(|(it, _)| it != lane);
        if self.failing.len() < FAILING_MAX {
            let failing = Failing {
                partition_key: first.partition_key.to_string(),
                id: first.id.clone(),
                lsn: first.lsn,
                attempts,
                error,
            };
            self.failing.push((lane.clone(), failing));
        }
        self.failing_changed = true;
        self.report_failing();
    }

    fn report_failing(&self) {
        let most = self.failing.iter().map(|(_, it)| it.attempts).max();
        self.status.tracker().failing(most.unwrap_or(0));
    }

    fn forget_failing(&mut self, lane: &LaneKey) {
        let before = self.failing.len();
        self.failing.retain(|(it, _)| it != lane);
        if self.failing.len() != before {
            self.failing_changed = true;
            self.report_failing();
        }
    }
}

/// The first change that failed.
struct First {
    partition_key: PartitionKey,
    id: String,
    lsn: u64,
}

fn first_change(rest: &[Segment]) -> First {
    let segment = rest.first().expect("something is left of a batch that failed");
    let change = &segment.page.changes[segment.range.start];
    First {
        partition_key: change.partition_key.clone(),
        id: change.id.as_str().to_owned(),
        lsn: change.lsn.as_u64(),
    }
}

/// Calls the handler, unless the lease is gone by now. Nothing can come between the two.
pub(super) async fn call_handler(
    setup: &Setup,
    tenure: Tenure,
    batch: ChangeBatch,
    context: Context,
) -> Delivered {
    let started = setup.clock.monotonic();
    if !setup.fence.holds(tenure, started) && !setup.has(Flaw::RenewalFailureIgnored) {
        return Delivered::TooLate;
    }
    let call = async { setup.handler.handle(batch, context).await };
    let outcome = AssertUnwindSafe(call).catch_unwind().await;
    setup.metrics.seconds(metrics::HANDLER_SECONDS, setup.clock.monotonic() - started);
    match outcome {
        Ok(result) => Delivered::Returned(result),
        Err(panic) => Delivered::Panicked(panic_text(&*panic)),
    }
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|it| (*it).to_owned());
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
    text.unwrap_or_else(|| "without a message".to_owned())
}

/// The beginning of a text that may be long.
pub(super) fn shorten(text: &str) -> String {
    let end = text.char_indices().map(|(at, it)| at + it.len_utf8());
    let end = end.take_while(|it| *it <= ERROR_BYTES_MAX).last().unwrap_or(0);
    text[..end].to_owned()
}

/// Joins changes that stand next to each other.
fn merge(single: Vec<Segment>) -> Vec<Segment> {
    let mut merged = Vec::new();
    for segment in single {
        for index in segment.range.clone() {
            crate::batch::push(&mut merged, &segment.page, index);
        }
    }
    merged
}
