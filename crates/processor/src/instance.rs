//! One running instance: signs of life, rounds, and the workers of its leases.
//!
//! A round lists all documents of the processor, plans with the pure planner, and acts: takes free
//! leases, tells workers to hand theirs over, repairs what the audit found.

mod round;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use millstream_core::{KeyRange, Timestamp};
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use crate::audit::HoleWatch;
use crate::error::{ErrorKind, Result};
use crate::fence::Tenure;
use crate::lag::LeaseLag;
use crate::lease_store::Stored;
use crate::membership::{Condition, Membership};
use crate::metrics;
use crate::notification::Notification;
use crate::observe::Observer;
use crate::plan::Holder;
use crate::shared::Setup;
use crate::stored::{Lease, LeaseState, Owner, lease_id};
use crate::tasks::{Driver, TaskSet};
use crate::worker::{Directive, Ended, Wishes, Worker, WorkerStatus};

/// The workers of this instance, for whoever wants to know its lag.
pub(crate) type Statuses = Arc<Mutex<BTreeMap<String, Arc<WorkerStatus>>>>;

/// A running instance.
pub(crate) struct Instance {
    setup: Arc<Setup>,
    tasks: TaskSet,
    condition: Arc<Condition>,
    statuses: Statuses,
    observer: Observer,
    holes: HoleWatch,
    /// When members said they wrote; only a planted bug looks at it.
    written_at: BTreeMap<Owner, Timestamp>,
    held: BTreeMap<String, Held>,
    /// What the operator wants, as far as this instance knows.
    wishes: Wishes,
    ended_sender: mpsc::UnboundedSender<(KeyRange, Ended)>,
    ended: mpsc::UnboundedReceiver<(KeyRange, Ended)>,
    /// What was told last, so that it is not told every round.
    told_unassigned: usize,
    told_overlaps: usize,
    /// Whether the next round should come soon.
    unsettled: bool,
}

/// A lease of this instance.
struct Held {
    keys: Arc<KeyRange>,
    epoch: u64,
    directive: watch::Sender<Directive>,
    /// A channel for each worker: one for all would wake them in an order nobody can repeat.
    wishes: watch::Sender<Wishes>,
    going_to: Option<Holder>,
    /// Listings in a row that did not have it.
    missing: u32,
}

impl Instance {
    pub(crate) fn new(setup: Arc<Setup>, tasks: TaskSet, statuses: Statuses) -> Self {
        let (ended_sender, ended) = mpsc::unbounded_channel();
        let observer = Observer::new(setup.options.lease_duration);
        Self {
            setup,
            tasks,
            condition: Arc::default(),
            statuses,
            observer,
            holes: HoleWatch::default(),
            written_at: BTreeMap::new(),
            held: BTreeMap::new(),
            wishes: Wishes::default(),
            ended_sender,
            ended,
            told_unassigned: 0,
            told_overlaps: 0,
            unsettled: false,
        }
    }

    /// Works until the shutdown or a failure that ends the instance.
    pub(crate) async fn run(mut self, driver: Driver, shutdown: CancellationToken) -> Result<()> {
        let setup = Arc::clone(&self.setup);
        // An earlier instance may have ended while its breaker was open.
        setup.metrics.gauge(metrics::BREAKER_OPEN, 0.0);
        let outcome = {
            let condition = Arc::clone(&self.condition);
            let work = async {
                let join = Membership::join(Arc::clone(&setup), condition);
                let mut membership = tokio::select! {
                    biased;
                    () = shutdown.cancelled() => return Ok(()),
                    joined = join => joined?,
                };
                let outcome = tokio::select! {
                    biased;
                    outcome = membership.keep_alive() => outcome,
                    outcome = self.rounds(&shutdown) => outcome,
                };
                if !is_fenced(&outcome)
                    && let Err(error) = membership.leave().await
                {
                    tracing::debug!(error = error.report(), "could not leave; others will notice");
                }
                outcome
            };
            tokio::select! {
                biased;
                outcome = work => outcome,
                () = driver.run() => unreachable!("the driver runs as long as there is a task set"),
            }
        };
        setup.notifier.tell(Notification::Stopped);
        outcome
    }

    async fn rounds(&mut self, shutdown: &CancellationToken) -> Result<()> {
        loop {
            let pause = self.round_or_report().await?;
            let setup = Arc::clone(&self.setup);
            let sleep = setup.clock.sleep(pause);
            let mut sleep = std::pin::pin!(sleep);
            loop {
                tokio::select! {
                    biased;
                    () = shutdown.cancelled() => return self.stop(None).await,
                    Some((keys, ended)) = self.ended.recv() => {
                        let soon = matches!(ended, Ended::Split { .. });
                        if let Some(failed) = self.on_ended(&keys, ended) {
                            return self.stop(Some(failed)).await;
                        }
                        if soon {
                            break;
                        }
                    }
                    () = &mut sleep => break,
                }
            }
        }
    }

    /// Does a round and returns how long to wait before the next.
    async fn round_or_report(&mut self) -> Result<Duration> {
        let interval = self.setup.options.round_interval;
        self.setup.metrics.count(metrics::ROUNDS, 1);
        match self.round().await {
            // The instances should not all look at the same time.
            Ok(()) if self.unsettled => Ok(interval / 8),
            Ok(()) => {
                let pause = interval - jitter(interval, self.setup.random());
                // Somebody who is silent is not found out a round too late.
                let now = self.setup.clock.monotonic();
                let expiry = self.observer.next_expiry(&self.setup.me);
                Ok(expiry.map_or(pause, |it| pause.min(it.saturating_sub(now))))
            }
            Err(error) if is_final(&error) => self.stop(Some(error)).await.map(|()| interval),
            Err(error) => {
                let text = error.report();
                tracing::warn!(error = text, "a round failed; the leases are kept");
                self.setup.metrics.count(metrics::STORE_ERRORS, 1);
                self.setup.notifier.tell(Notification::StoreFailed { keys: None, error: text });
                Ok(interval / 2)
            }
        }
    }

    /// Gives all leases up in order, within the grace time. Returns `failed` if that is why.
    async fn stop(&mut self, failed: Option<crate::error::Error>) -> Result<()> {
        self.condition.stop();
        let deadline = self.setup.clock.monotonic() + self.setup.options.stop_grace;
        for held in self.held.values() {
            held.directive.send_replace(Directive::GiveUp { to: None, deadline });
        }
        // Writing the leases takes time of its own; an instance that cannot write is fenced.
        while !self.held.is_empty() {
            let Some((keys, ended)) = self.ended.recv().await else { break };
            self.on_ended(&keys, ended);
        }
        self.release_leftovers().await;
        match failed {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    /// Gives up leases that name this instance although it does not work on them: others hand
    /// leases over as long as they believe that it takes them.
    async fn release_leftovers(&self) {
        let Ok(listing) = self.setup.store.list().await else { return };
        let mine = listing.leases.iter().filter(|it| self.is_me(it.document.owner.as_ref()));
        for lease in mine.filter(|it| it.document.state == LeaseState::Active) {
            let epoch = lease.document.epoch + 1;
            let document = Lease { owner: None, epoch, ..lease.document.clone() };
            // If it fails, others find out when this instance has been silent for long enough.
            let _ = self.setup.store.replace(document, &lease.etag).await;
        }
    }

    /// Starts to work on a lease that was just acquired.
    fn begin(&mut self, lease: Stored<Lease>, tenure: Tenure) {
        let keys = Arc::new(lease.document.keys.clone());
        let id = lease_id(lease.document.container, &keys);
        let epoch = lease.document.epoch;
        let (sender, directive) = watch::channel(Directive::Work);
        let (wishes_sender, wishes) = watch::channel(self.wishes);
        let status = Arc::new(WorkerStatus::new(Arc::clone(&keys), &self.setup.me.instance, epoch));
        self.lock_statuses().insert(id.clone(), Arc::clone(&status));
        let worker = Worker {
            setup: Arc::clone(&self.setup),
            lease,
            tenure,
            directive,
            wishes,
            status,
            ended: self.ended_sender.clone(),
        };
        self.tasks.spawn(Box::pin(worker.run()));
        let (directive, wishes) = (sender, wishes_sender);
        let held =
            Held { keys: Arc::clone(&keys), epoch, directive, wishes, going_to: None, missing: 0 };
        self.held.insert(id, held);
        // The owner before may have put changes off.
        self.setup.agenda.note(Timestamp::EPOCH);
        self.setup.metrics.count(metrics::LEASES_ACQUIRED, 1);
        tracing::info!(keys = %keys, epoch, "acquired lease");
        self.setup.notifier.tell(Notification::Acquired { keys, epoch });
    }

    /// Takes note of a worker's end. Returns the failure if the instance has to end too.
    fn on_ended(&mut self, keys: &KeyRange, ended: Ended) -> Option<crate::error::Error> {
        let id = lease_id(self.setup.incarnation(), keys);
        self.held.remove(&id);
        self.lock_statuses().remove(&id);
        let keys = Arc::new(keys.clone());
        let metrics = &self.setup.metrics;
        match ended {
            Ended::Released { to } => {
                metrics.count(metrics::LEASES_RELEASED, 1);
                tracing::info!(%keys, ?to, "released lease");
                self.setup.notifier.tell(Notification::Released { keys, to });
            }
            Ended::Lost { reason } => {
                metrics.count(metrics::LEASES_LOST, 1);
                tracing::info!(%keys, reason, "lost lease");
                self.setup.notifier.tell(Notification::Lost { keys, reason });
            }
            Ended::Split { children } => {
                tracing::info!(%keys, children = children.len(), "split lease");
                self.setup.notifier.tell(Notification::Split { keys, children });
            }
            Ended::Failed(error) => {
                tracing::error!(%keys, error = error.report(), "the instance has to stop");
                return Some(error);
            }
        }
        None
    }

    fn is_me(&self, owner: Option<&Owner>) -> bool {
        owner == Some(&self.setup.me)
    }

    fn lock_statuses(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, Arc<WorkerStatus>>> {
        self.statuses.lock().expect("nothing panics while it holds the lock")
    }
}

/// The lag of every lease in `statuses`, without reading anything.
pub(crate) fn lags(statuses: &Statuses, now: Timestamp) -> Vec<LeaseLag> {
    let statuses = statuses.lock().expect("nothing panics while it holds the lock");
    statuses.values().filter_map(|it| it.lag(now)).collect()
}

fn is_fenced(outcome: &Result<()>) -> bool {
    outcome.as_ref().is_err_and(|it| *it.kind() == ErrorKind::Fenced)
}

/// Whether no later round can succeed either.
fn is_final(error: &crate::error::Error) -> bool {
    matches!(error.kind(), ErrorKind::ContainerRecreated | ErrorKind::NewerSchema)
}

/// Up to an eighth of the interval.
fn jitter(interval: Duration, random: u64) -> Duration {
    interval / 8 * u32::try_from(random % 1000).unwrap_or(0) / 1000
}
