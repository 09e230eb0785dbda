use std::time::Duration;

use millstream_core::{Error, Result};

/// Most lanes of a topic.
pub const LANES_MAX: u32 = 256;
/// Shortest lease of a lane: below it a slow answer would look like a death.
pub const LEASE_MIN: Duration = Duration::from_millis(500);
/// Longest lock of a session, as in Service Bus.
pub const LOCK_DURATION_MAX: Duration = Duration::from_secs(5 * 60);

/// What the creator of a topic chooses beside the prefix and the replicas of its connection. Lanes
/// cannot be changed later.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicOptions {
    /// Most sessions are in different lanes; so many processes can share a subscription. Default:
    /// 16.
    pub lanes: u32,
    /// A message whose id came within this time before is dropped. Default: 10 minutes.
    pub duplicate_window: Duration,
    /// Messages older than this go away even if a subscription wants them. Default: never.
    pub age_max: Option<Duration>,
    /// Most bytes the topic keeps; beyond that it refuses messages. Default: no limit.
    pub bytes_max: Option<u64>,
    /// Largest message. Default: 256 KiB.
    pub message_bytes_max: usize,
}

impl Default for TopicOptions {
    fn default() -> Self {
        Self {
            lanes: 16,
            duplicate_window: Duration::from_secs(600),
            age_max: None,
            bytes_max: None,
            message_bytes_max: 256 * 1024,
        }
    }
}

impl TopicOptions {
    pub(crate) fn check(&self) -> Result<()> {
        let reason = if self.lanes < 1 || LANES_MAX < self.lanes {
            "a topic has 1 to 256 lanes"
        } else if self.duplicate_window.is_zero() {
            "the duplicate window must be more than nothing"
        } else if self.age_max.is_some_and(|it| it < self.duplicate_window) {
            "messages must stay at least as long as their ids are known"
        } else if self.message_bytes_max < 1024 {
            "the largest message must have at least 1 KiB"
        } else {
            return Ok(());
        };
        Err(Error::invalid("use the options of the topic", reason))
    }
}

/// How a subscription gives out messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubscriptionOptions {
    /// How long a session stays with its receiver unless it renews. Default: 60 s.
    pub lock_duration: Duration,
    /// After that many deliveries a message goes to the dead letters. Default: 10.
    pub delivery_count_max: u32,
    /// How long a session rests after the first failed delivery of a message; twice as long after
    /// each further one. Default: 100 ms.
    pub backoff_first: Duration,
    /// The longest rest. Default: 30 s.
    pub backoff_max: Duration,
    /// A process that is silent for so long loses its lanes to another one. Default: 6 s.
    pub lease_duration: Duration,
    /// Most messages of a lane that are in memory. Default: 1000.
    pub lane_messages_max: usize,
    /// Most bytes of a lane that are in memory, but for the last message. Default: 4 MiB.
    pub lane_bytes_max: usize,
    /// A new subscription gets what the topic still keeps, too. Default: only what is sent later.
    pub from_beginning: bool,
}

impl Default for SubscriptionOptions {
    fn default() -> Self {
        Self {
            lock_duration: Duration::from_secs(60),
            delivery_count_max: 10,
            backoff_first: Duration::from_millis(100),
            backoff_max: Duration::from_secs(30),
            lease_duration: Duration::from_secs(6),
            lane_messages_max: 1000,
            lane_bytes_max: 4 * 1024 * 1024,
            from_beginning: false,
        }
    }
}

impl SubscriptionOptions {
    pub(crate) fn check(&self) -> Result<()> {
        let reason = if self.lock_duration.is_zero() || LOCK_DURATION_MAX < self.lock_duration {
            "the lock duration must be more than nothing and at most 5 minutes"
        } else if self.delivery_count_max < 1 {
            "a message must be delivered at least once before it is a dead letter"
        } else if self.lease_duration < LEASE_MIN {
            "the lease duration must be at least 500 ms"
        } else if self.lane_messages_max < 1 {
            "a lane must be allowed at least one message in memory"
        } else {
            return Ok(());
        };
        Err(Error::invalid("use the options of the subscription", reason))
    }

    /// The rest after a message was given out `tries` times in vain.
    pub(crate) fn backoff(&self, tries: u32) -> Duration {
        let factor = 1_u32.checked_shl(tries.saturating_sub(1)).unwrap_or(u32::MAX);
        self.backoff_first.saturating_mul(factor).min(self.backoff_max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rest_doubles_up_to_a_limit() {
        let options = SubscriptionOptions::default();
        let found = [1, 2, 3, 20, 40].map(|it| options.backoff(it).as_millis());
        assert_eq!(found, [100, 200, 400, 30_000, 30_000]);
    }

    #[test]
    fn options_that_cannot_work_are_refused() {
        assert!(TopicOptions { lanes: 0, ..TopicOptions::default() }.check().is_err());
        let options = SubscriptionOptions::default();
        options.check().unwrap();
        let short = Duration::from_millis(499);
        assert!(SubscriptionOptions { lease_duration: short, ..options }.check().is_err());
    }
}
