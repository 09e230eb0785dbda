use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use uuid::{Builder, Uuid};

use crate::Clock;

/// The only source of new ids, so that a simulation can repeat them.
pub trait IdSource: Send + Sync + fmt::Debug {
    /// An id that nobody else has, later ones sorting after earlier ones as far as the clock goes.
    fn next_id(&self) -> Uuid;
}

/// UUIDv7 from a clock and the randomness of the operating system.
#[derive(Debug)]
pub struct RandomIds {
    clock: Arc<dyn Clock>,
}

impl RandomIds {
    /// Ids whose time part comes from `clock`.
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock }
    }
}

impl IdSource for RandomIds {
    fn next_id(&self) -> Uuid {
        let mut random = [0; 10];
        getrandom::fill(&mut random).expect("the operating system has randomness");
        Builder::from_unix_timestamp_millis(self.clock.now().as_millis(), &random).into_uuid()
    }
}

/// Ids counted from 1, for tests.
#[derive(Debug, Default)]
pub struct CountingIds {
    given: AtomicU64,
}

impl IdSource for CountingIds {
    fn next_id(&self) -> Uuid {
        let number = self.given.fetch_add(1, Ordering::Relaxed) + 1;
        Uuid::from_u128(u128::from(number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ManualClock, Timestamp};

    #[test]
    fn random_ids_carry_the_time_of_the_clock() {
        let clock = Arc::new(ManualClock::starting_at(Timestamp::from_millis(0x0123_4567_89ab)));
        let ids = RandomIds::new(clock);
        let id = ids.next_id();
        assert!(id.to_string().starts_with("01234567-89ab-7"), "{id}");
        assert_ne!(id, ids.next_id());
    }
}
