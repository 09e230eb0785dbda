use std::sync::{Arc, Mutex, OnceLock};

use millstream_core::{Clock, IdSource};
use uuid::{Builder, Uuid};

use crate::rng::Rng;

/// UUIDv7 of one node, from its clock and its stream of numbers.
#[derive(Debug)]
pub struct SimIds {
    clock: Arc<dyn Clock>,
    rng: Mutex<Rng>,
    first: OnceLock<Uuid>,
}

impl SimIds {
    /// Ids whose time part comes from `clock` and whose rest is drawn from `rng`.
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>, rng: Rng) -> Self {
        Self { clock, rng: Mutex::new(rng), first: OnceLock::new() }
    }

    /// The first id that was given out, if one was: an instance takes it for its incarnation.
    #[must_use]
    pub fn first(&self) -> Option<Uuid> {
        self.first.get().copied()
    }
}

impl IdSource for SimIds {
    fn next_id(&self) -> Uuid {
        let mut rng = self.rng.lock().expect("nothing panics while it holds the lock");
        let mut random = [0; 10];
        random[..8].copy_from_slice(&rng.next_number().to_le_bytes());
        random[8..].copy_from_slice(&rng.next_number().to_le_bytes()[..2]);
        let id = Builder::from_unix_timestamp_millis(self.clock.now().as_millis(), &random);
        let id = id.into_uuid();
        self.first.get_or_init(|| id);
        id
    }
}

#[cfg(test)]
mod tests {
    use millstream_core::{ManualClock, Timestamp};

    use super::*;

    #[test]
    fn same_stream_gives_the_same_ids_and_another_gives_others() {
        let ids = |seed| {
            let clock = Arc::new(ManualClock::starting_at(Timestamp::from_millis(5)));
            let ids = SimIds::new(clock, Rng::stream(seed, "ids"));
            [ids.next_id(), ids.next_id()]
        };
        assert_eq!(ids(1), ids(1));
        assert_ne!(ids(1), ids(2));
        assert_ne!(ids(1)[0], ids(1)[1]);
    }
}
