use std::fmt;
use std::future::Future;
use std::sync::Arc;

use millstream_core::{BoxFuture, Change, KeyRange, Timestamp};
use tokio_util::sync::CancellationToken;

use crate::batch::ChangeBatch;
use crate::metrics;
use crate::shared::Setup;
use crate::worker::{is_hopeless, put_off};

/// What is done with the changes. Closures that take a batch and a context are handlers.
///
/// A batch holds changes in commit order; those of one partition key are never handled twice at the
/// same time. Returning `Ok` means that all of it is done; a failure means that what was not
/// acknowledged with [`ChangeBatch::acknowledge`] is delivered again.
pub trait Handler: Send + Sync {
    /// Handles a batch.
    ///
    /// The future is dropped when the lease is lost or the time to stop is over; before that
    /// [`Context::cancellation`] is cancelled. A panic counts as a failure.
    fn handle(&self, batch: ChangeBatch, context: Context) -> BoxFuture<'_, HandlerResult>;
}

/// What a handler returns.
pub type HandlerResult = Result<(), HandlerError>;

impl<F, R> Handler for F
where
    F: Fn(ChangeBatch, Context) -> R + Send + Sync,
    R: Future<Output = HandlerResult> + Send + 'static,
{
    fn handle(&self, batch: ChangeBatch, context: Context) -> BoxFuture<'_, HandlerResult> {
        Box::pin(self(batch, context))
    }
}

/// What a handler may want to know besides the changes.
#[derive(Clone, Debug)]
pub struct Context {
    /// The keys of the lease the batch belongs to.
    pub keys: Arc<KeyRange>,
    /// The epoch of the lease; a later owner has a larger one.
    pub epoch: u64,
    /// 1 for the first delivery of the batch; more after failures, also those of earlier owners.
    pub attempt: u32,
    /// Whether these changes were parked and are delivered again on request.
    pub redriven: bool,
    /// Cancelled when the lease is lost or the time to stop is over.
    pub cancellation: CancellationToken,
    pub(crate) setup: Arc<Setup>,
}

impl Context {
    /// Keeps a change of the batch and has it delivered again, not before `until`. Once this
    /// returns without error the handler is done with the change; later ones of its key go on.
    ///
    /// When the time has come, it is delivered as a parked change that is redriven: before changes
    /// of its key that come after that, and if it fails too often it is parked. The time is looked
    /// at once a round ([`crate::ProcessorOptions::round_interval`]). Where the container of the
    /// dead letters is partitioned by `/id`, every look reads all of it: choose another partition
    /// key for more than a few.
    ///
    /// # Errors
    ///
    /// One that the handler can return as it is: transient if the change could not be kept,
    /// permanent if it never can.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future may leave the change kept or not; it may then come twice.
    pub async fn postpone(&self, change: &Change, until: Timestamp) -> HandlerResult {
        // Before it is kept: whoever looks too early finds nothing and that is all.
        self.setup.agenda.note(until);
        match put_off(&self.setup, change, until).await {
            Ok(()) => {
                self.setup.metrics.count(metrics::ITEMS_POSTPONED, 1);
                Ok(())
            }
            Err(error) if is_hopeless(&error) => Err(HandlerError::permanent(error)),
            Err(error) => Err(HandlerError::transient(error)),
        }
    }
}

/// Why a handler could not handle a batch.
#[derive(Debug)]
pub struct HandlerError {
    pub(crate) kind: HandlerErrorKind,
    pub(crate) index: Option<usize>,
    pub(crate) source: Box<dyn std::error::Error + Send + Sync>,
}

/// What the processor does about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandlerErrorKind {
    /// Something outside is down: wait and try again, without counting attempts.
    Transient,
    /// It may work the next time: count an attempt.
    Failed,
    /// It will never work: no more attempts.
    Permanent,
}

impl HandlerError {
    /// A failure that may not happen again; it counts as an attempt.
    pub fn failed(source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self { kind: HandlerErrorKind::Failed, index: None, source: source.into() }
    }

    /// A failure because something outside is down. It opens the circuit breaker when it goes on,
    /// and spends no attempts.
    pub fn transient(source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self { kind: HandlerErrorKind::Transient, index: None, source: source.into() }
    }

    /// A failure that no repetition will cure.
    pub fn permanent(source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self { kind: HandlerErrorKind::Permanent, index: None, source: source.into() }
    }

    /// Says which change of the batch failed, counted from 0: those before it are done. A number
    /// beyond the batch says nothing.
    #[must_use]
    pub fn at(mut self, index: usize) -> Self {
        self.index = Some(index);
        self
    }

    /// The place of the change that failed; none if the handler did not name one that exists.
    pub(crate) fn index_in(&self, batch: &ChangeBatch) -> Option<usize> {
        self.index.filter(|it| *it < batch.len())
    }

    /// What the processor does about it.
    #[must_use]
    pub fn kind(&self) -> HandlerErrorKind {
        self.kind
    }
}

impl fmt::Display for HandlerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&crate::error::report(&*self.source))
    }
}

impl<E: std::error::Error + Send + Sync + 'static> From<E> for HandlerError {
    fn from(error: E) -> Self {
        Self::failed(error)
    }
}
