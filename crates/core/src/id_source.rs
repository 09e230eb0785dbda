use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use uuid::{Builder, Uuid};

use crate::Clock;

/// The only source of new ids, so that a simulation can repeat them.
pub trait IdSource: Send + Sync + fmt::Debug {
    /// An id that nobody else has, later ones sorting after earlier ones as far as the clock goes.
    fn next_id(&self) -> Uuid;
}

/// UUIDv7 from a clock and the randomness of the operating system.
pub struct RandomIds {
    clock: Arc<dyn Clock>,
    random: Mutex<Random>,
}

/// Random bytes that were asked for at once: a system call for each id costs more than the id.
struct Random {
    bytes: [u8; ID_BYTES * 64],
    used: usize,
}

/// Random bytes of an id.
const ID_BYTES: usize = 10;

impl RandomIds {
    /// Ids whose time part comes from `clock`.
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        let random = Random { bytes: [0; ID_BYTES * 64], used: ID_BYTES * 64 };
        Self { clock, random: Mutex::new(random) }
    }
}

/// Never shows what ids will be made of.
impl fmt::Debug for RandomIds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RandomIds").field("clock", &self.clock).finish_non_exhaustive()
    }
}

impl Random {
    fn next(&mut self) -> [u8; ID_BYTES] {
        if self.used == self.bytes.len() {
            getrandom::fill(&mut self.bytes).expect("the operating system has randomness");
            self.used = 0;
        }
        let mut taken = [0; ID_BYTES];
        taken.copy_from_slice(&self.bytes[self.used..self.used + ID_BYTES]);
        self.used += ID_BYTES;
        taken
    }
}

impl IdSource for RandomIds {
    fn next_id(&self) -> Uuid {
        let random = self.random.lock().unwrap_or_else(PoisonError::into_inner).next();
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
    use std::collections::BTreeSet;

    use super::*;
    use crate::{ManualClock, Timestamp};

    #[test]
    fn random_ids_carry_the_time_of_the_clock() {
        let clock = Arc::new(ManualClock::starting_at(Timestamp::from_millis(0x0123_4567_89ab)));
        let ids = RandomIds::new(clock);
        let id = ids.next_id();
        assert!(id.to_string().starts_with("01234567-89ab-7"), "{id}");
        let later: BTreeSet<Uuid> = (0..1000).map(|_| ids.next_id()).collect();
        assert_eq!(later.len(), 1000);
        assert!(!later.contains(&id));
    }
}
