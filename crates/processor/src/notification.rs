use std::sync::Arc;

use millstream_core::KeyRange;
use tokio::sync::broadcast;

/// Most notifications that wait for a reader; a slow reader loses the oldest.
const WAITING_MAX: usize = 1024;

/// Something that happened to a processor instance.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Notification {
    /// This instance began to process these keys.
    Acquired {
        /// The keys.
        keys: Arc<KeyRange>,
        /// The epoch of the lease.
        epoch: u64,
    },
    /// This instance gave the keys up after its work was checkpointed.
    Released {
        /// The keys.
        keys: Arc<KeyRange>,
        /// The instance they were handed to, if there was one.
        to: Option<String>,
    },
    /// Somebody else has the keys, or this instance could not prove that it still has them.
    Lost {
        /// The keys.
        keys: Arc<KeyRange>,
        /// Why.
        reason: String,
    },
    /// The handler failed.
    HandlerFailed {
        /// The keys.
        keys: Arc<KeyRange>,
        /// How often the batch has been tried.
        attempt: u32,
        /// What the handler said.
        error: String,
    },
    /// A container could not be read or written; the processor tries again.
    StoreFailed {
        /// The keys, if it was about some.
        keys: Option<Arc<KeyRange>>,
        /// What failed.
        error: String,
    },
    /// A change was put aside: kept in the dead letters with the later ones of its partition key,
    /// or alone if the policy is to skip.
    Parked {
        /// The partition key, as text.
        partition_key: String,
        /// The id of the item.
        id: String,
        /// Whether later changes of the key are kept behind it.
        sequence: bool,
        /// What the handler said.
        error: String,
    },
    /// A parked sequence was delivered again to its end.
    Redriven {
        /// The partition key, as text.
        partition_key: String,
    },
    /// Everything committed so far in these keys has been handled. Told once after each backlog.
    CaughtUp {
        /// The keys.
        keys: Arc<KeyRange>,
    },
    /// The lease was replaced by narrower ones because the range was divided.
    Split {
        /// The keys of the lease that was replaced.
        keys: Arc<KeyRange>,
        /// Those of the new leases.
        children: Vec<KeyRange>,
    },
    /// The circuit breaker stopped deliveries because something outside is down.
    BreakerOpened {
        /// What the handler said.
        error: String,
    },
    /// Deliveries go on.
    BreakerClosed,
    /// So many leases have no owner because every instance has as many as it may have.
    Unassigned {
        /// How many.
        leases: usize,
    },
    /// No lease covered these keys; one was created.
    HoleRepaired {
        /// The keys.
        keys: KeyRange,
    },
    /// Two leases cover the same keys; one must be deleted by hand.
    Overlap {
        /// The keys both cover.
        keys: KeyRange,
        /// The leases.
        leases: [String; 2],
    },
    /// The leases exist, so the start position in the options was not used.
    StartIgnored {
        /// The start position the leases were created with.
        stored: String,
    },
    /// The position of these keys is older than what the feed keeps; the policy was applied.
    PositionExpired {
        /// The keys.
        keys: Arc<KeyRange>,
    },
    /// The container of the feed was deleted, or deleted and created again.
    ContainerRecreated,
    /// Deliveries stopped or go on because an operator said so.
    Paused(bool),
    /// The instance ended; nothing follows.
    Stopped,
}

/// Where notifications go. Sending never waits and never fails.
#[derive(Clone, Debug)]
pub(crate) struct Notifier {
    sender: broadcast::Sender<Notification>,
}

impl Notifier {
    /// A notifier nobody listens to yet.
    pub(crate) fn new() -> Self {
        Self { sender: broadcast::Sender::new(WAITING_MAX) }
    }

    /// Tells whoever listens.
    pub(crate) fn tell(&self, notification: Notification) {
        // An error means that nobody listens.
        let _ = self.sender.send(notification);
    }

    /// Listens from now on.
    pub(crate) fn subscribe(&self) -> Notifications {
        Notifications { receiver: self.sender.subscribe() }
    }
}

/// What happens to an instance, as it happens. A reader that is too slow loses the oldest; it never
/// holds up the processor.
#[derive(Debug)]
pub struct Notifications {
    receiver: broadcast::Receiver<Notification>,
}

impl Notifications {
    /// Waits for the next one; none after the end of the instance.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing.
    pub async fn next(&mut self) -> Option<Notification> {
        loop {
            match self.receiver.recv().await {
                Ok(notification) => return Some(notification),
                Err(broadcast::error::RecvError::Lagged(_)) => (),
                Err(broadcast::error::RecvError::Closed) => return None,
            }
        }
    }

    /// The next one if it is there already.
    pub fn try_next(&mut self) -> Option<Notification> {
        loop {
            match self.receiver.try_recv() {
                Ok(notification) => return Some(notification),
                Err(broadcast::error::TryRecvError::Lagged(_)) => (),
                Err(
                    broadcast::error::TryRecvError::Closed | broadcast::error::TryRecvError::Empty,
                ) => return None,
            }
        }
    }
}
