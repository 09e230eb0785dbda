use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use millstream_core::{Clock, Delivery, Error, SessionReceiver, Settlement, Subscriber};
use millstream_outbox::{DuplicateBy, Order, Outcome};
use tokio_util::sync::CancellationToken;

use crate::{IndexError, SearchIndex, Tally};

/// Most batches of one session in a row, so that a busy contact does not keep others waiting.
const BATCHES_MAX: usize = 16;

/// Settings of a [`SearchProjection`].
#[derive(Clone, Debug)]
pub struct ProjectionOptions {
    sessions_at_once: usize,
    messages_max: usize,
    wait: Duration,
    pause: Duration,
}

/// What a projection has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProjectionStatistics {
    /// Messages that had their effect.
    pub handled: u64,
    /// Messages that came again and had none.
    pub duplicates: u64,
    /// Messages before which others were missing.
    pub gaps: u64,
    /// Messages that came after later ones of the same contact.
    pub late: u64,
    /// Messages given back, to come again.
    pub abandoned: u64,
    /// Messages that nobody could read.
    pub dead_lettered: u64,
    /// Calls of the broker that failed.
    pub broker_failures: u64,
}

/// Keeps the search list up to date from the messages of a subscription.
///
/// It takes a session, handles its messages in order, and completes those that had their effect.
/// One that fails is abandoned and its session given up, so that it comes again before any later
/// one. A message that cannot be read goes to the dead letters.
pub struct SearchProjection {
    subscriber: Arc<dyn Subscriber>,
    index: SearchIndex,
    clock: Arc<dyn Clock>,
    options: ProjectionOptions,
    tally: Tally<ProjectionStatistics>,
}

/// How the handling of some deliveries ended.
enum End {
    /// All are settled.
    Settled,
    /// The session must be given up.
    GiveUp,
}

impl Default for ProjectionOptions {
    fn default() -> Self {
        Self {
            sessions_at_once: 4,
            messages_max: 32,
            wait: Duration::from_secs(1),
            pause: Duration::from_millis(200),
        }
    }
}

impl ProjectionOptions {
    /// How many sessions are handled beside each other. Default: 4.
    #[must_use]
    pub fn sessions_at_once(mut self, value: usize) -> Self {
        self.sessions_at_once = value;
        self
    }

    /// Most messages taken at once. Default: 32.
    #[must_use]
    pub fn messages_max(mut self, value: usize) -> Self {
        self.messages_max = value;
        self
    }

    /// How long one call waits for a session. Default: 1 s.
    #[must_use]
    pub fn wait(mut self, value: Duration) -> Self {
        self.wait = value;
        self
    }

    /// How long to rest after a failure. Default: 200 ms.
    #[must_use]
    pub fn pause(mut self, value: Duration) -> Self {
        self.pause = value;
        self
    }
}

impl SearchProjection {
    /// A projection of what `subscriber` gives out into `index`.
    #[must_use]
    pub fn new(
        subscriber: Arc<dyn Subscriber>,
        index: SearchIndex,
        clock: Arc<dyn Clock>,
        options: ProjectionOptions,
    ) -> Self {
        Self { subscriber, index, clock, options, tally: Tally::default() }
    }

    /// What it has done, also while it runs.
    #[must_use]
    pub fn statistics(&self) -> Tally<ProjectionStatistics> {
        self.tally.clone()
    }

    /// Handles messages until `shutdown`; a message that is being handled is finished first.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future may leave messages handled and not completed; they come again and have
    /// no second effect.
    pub async fn run(self, shutdown: CancellationToken) {
        let workers = (0..self.options.sessions_at_once.max(1)).map(|_| self.work(&shutdown));
        join_all(workers).await;
    }

    /// Takes session after session.
    async fn work(&self, shutdown: &CancellationToken) {
        while !shutdown.is_cancelled() {
            let accepted = tokio::select! {
                biased;
                () = shutdown.cancelled() => return,
                accepted = self.subscriber.accept_session(self.options.wait) => accepted,
            };
            let outcome = match accepted {
                Ok(None) => continue,
                Ok(Some(session)) => self.session(&*session, shutdown).await,
                Err(error) => Err(error),
            };
            let End::GiveUp = outcome.unwrap_or_else(|error| self.broker_failed(&error)) else {
                continue;
            };
            tokio::select! {
                biased;
                () = shutdown.cancelled() => return,
                () = self.clock.sleep(self.options.pause) => (),
            }
        }
    }

    /// Handles what there is of a session, then gives it up for others.
    async fn session(
        &self,
        session: &dyn SessionReceiver,
        shutdown: &CancellationToken,
    ) -> Result<End, Error> {
        let mut end = End::Settled;
        for batch in 0..BATCHES_MAX {
            if shutdown.is_cancelled() {
                break;
            }
            if 0 < batch {
                session.renew().await?;
            }
            let deliveries = session.receive(self.options.messages_max, Duration::ZERO).await?;
            if deliveries.is_empty() {
                break;
            }
            end = self.deliveries(session, &deliveries).await?;
            if matches!(end, End::GiveUp) {
                break;
            }
        }
        session.close().await?;
        Ok(end)
    }

    /// Handles deliveries in order, until one fails.
    async fn deliveries(
        &self,
        session: &dyn SessionReceiver,
        deliveries: &[Delivery],
    ) -> Result<End, Error> {
        for (index, delivery) in deliveries.iter().enumerate() {
            let error = match self.index.handle(&delivery.message).await {
                Ok(outcome) => {
                    self.note(delivery, outcome);
                    continue;
                }
                Err(error) => error,
            };
            let (done, rest) = deliveries.split_at(index);
            complete(session, done).await?;
            let (failed, after) = rest.split_at(1);
            return match error {
                IndexError::Unreadable(description) => {
                    self.dead_letter(session, failed, description).await?;
                    Box::pin(self.deliveries(session, after)).await
                }
                IndexError::Later(error) => {
                    let (id, error) = (&delivery.message.id, error.report());
                    tracing::warn!(id, error, "message abandoned");
                    self.tally.count(|it| it.abandoned += 1);
                    session.settle(failed, Settlement::Abandon).await?;
                    Ok(End::GiveUp)
                }
            };
        }
        complete(session, deliveries).await?;
        Ok(End::Settled)
    }

    async fn dead_letter(
        &self,
        session: &dyn SessionReceiver,
        failed: &[Delivery],
        description: String,
    ) -> Result<(), Error> {
        let session_id = session.session_id();
        tracing::warn!(session_id, reason = description, "message cannot be read");
        self.tally.count(|it| it.dead_lettered += 1);
        let reason = "Unreadable".to_owned();
        session.settle(failed, Settlement::DeadLetter { reason, description }).await
    }

    fn note(&self, delivery: &Delivery, outcome: Outcome) {
        let id = &delivery.message.id;
        let session = delivery.message.session_id.as_deref().unwrap_or_default();
        match outcome {
            Outcome::Duplicate { by: DuplicateBy::Id | DuplicateBy::Sequence } => {
                self.tally.count(|it| it.duplicates += 1);
                return;
            }
            Outcome::Handled { order: Order::Gap { expected, found } } => {
                tracing::warn!(id, session, expected, found, "events are missing");
                self.tally.count(|it| it.gaps += 1);
            }
            // A subscription that began with the first event expects 1.
            Outcome::Handled { order: Order::First { found } } if 1 < found => {
                tracing::warn!(id, session, expected = 1, found, "events are missing");
                self.tally.count(|it| it.gaps += 1);
            }
            Outcome::Handled { order: Order::Late { last, found } } => {
                tracing::info!(id, session, last, found, "a missing event came late");
                self.tally.count(|it| it.late += 1);
            }
            Outcome::Handled {
                order: Order::First { .. } | Order::InOrder | Order::Unnumbered,
            } => {}
        }
        self.tally.count(|it| it.handled += 1);
    }

    fn broker_failed(&self, error: &Error) -> End {
        tracing::warn!(error = error.report(), "broker failed; messages will come again");
        self.tally.count(|it| it.broker_failures += 1);
        End::GiveUp
    }
}

impl std::fmt::Debug for SearchProjection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SearchProjection").field("tally", &self.tally).finish_non_exhaustive()
    }
}

async fn complete(session: &dyn SessionReceiver, done: &[Delivery]) -> Result<(), Error> {
    if done.is_empty() {
        return Ok(());
    }
    session.settle(done, Settlement::Complete).await
}
