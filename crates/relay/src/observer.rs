use std::time::Duration;

use millstream_core::{Message, Timestamp};

/// A message that the publisher has taken, and when.
#[derive(Debug)]
pub struct Published<'a> {
    /// The message.
    pub message: &'a Message,
    /// When its event was committed.
    pub committed_at: Timestamp,
    /// When the call of the publisher began that took it.
    pub begun_at: Timestamp,
    /// How long that call lasted.
    pub lasted: Duration,
}

/// Hears of every message that a relay has published, such as something that makes traces.
///
/// It is called between two calls of the publisher, so it must not wait for anything.
pub trait RelayObserver: Send + Sync {
    /// The publisher has taken a message. One that is published again is told again.
    fn published(&self, published: &Published<'_>);
}
