use std::time::Duration;

use millstream_core::{Error, Result};

/// Settings of a connection.
#[derive(Clone, Debug)]
pub struct CosmosOptions {
    poll_interval: Duration,
    call_timeout: Duration,
}

impl Default for CosmosOptions {
    fn default() -> Self {
        Self { poll_interval: Duration::from_secs(1), call_timeout: Duration::from_secs(30) }
    }
}

impl CosmosOptions {
    /// Shortest and longest timeout of a call.
    const TIMEOUTS: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(600));

    /// How often a waiting reader of the feed looks whether there is something new.
    ///
    /// Cosmos DB does not wake readers. Each look is a request per range, which Azure charges;
    /// shorter means that changes are seen sooner. Default: 1 s.
    #[must_use]
    pub fn poll_interval(mut self, value: Duration) -> Self {
        self.poll_interval = value;
        self
    }

    /// How long a call may take, with all the attempts that the SDK makes; one alone as well.
    ///
    /// A commit that is given up may have happened; one that certainly has not may get as much time
    /// once more. Up to three quarters are for waiting while the service says that it is too much
    /// (429). Default: 30 s.
    #[must_use]
    pub fn call_timeout(mut self, value: Duration) -> Self {
        self.call_timeout = value;
        self
    }

    /// Whether the settings make sense.
    ///
    /// # Errors
    ///
    /// `Invalid` if the poll interval is zero, or the timeout is not between 1 s and 10 min.
    pub fn check(&self) -> Result<()> {
        let refused = |reason: &str| Err(Error::invalid("use the options of Cosmos DB", reason));
        if self.poll_interval.is_zero() {
            return refused("the poll interval must not be zero");
        }
        let (shortest, longest) = Self::TIMEOUTS;
        if self.call_timeout < shortest || longest < self.call_timeout {
            return refused("the timeout of a call must be between 1 s and 10 min");
        }
        Ok(())
    }

    pub(crate) fn poll_interval_value(&self) -> Duration {
        self.poll_interval
    }

    pub(crate) fn call_timeout_value(&self) -> Duration {
        self.call_timeout
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_that_make_no_sense_are_refused() {
        let default = CosmosOptions::default;
        assert!(default().check().is_ok());
        assert!(default().poll_interval(Duration::ZERO).check().is_err());
        assert!(default().call_timeout(Duration::ZERO).check().is_err());
        assert!(default().call_timeout(Duration::from_secs(601)).check().is_err());
    }
}
