//! How much the answer to a bulk request can hold.

use std::sync::{Mutex, MutexGuard, PoisonError};

use millstream_core::BATCH_RESULT_BYTES_MAX;
use tokio::sync::{Notify, Semaphore, SemaphorePermit};

/// Reads at a time: what does not fit is in memory for a moment all the same.
const READS_MAX: usize = 16;

/// The answer to a bulk request. What operations sent is limited before they are done; what reads
/// and patches get back, which may be larger than they are, is limited here.
///
/// A read can be left out after it was done. A patch that has happened cannot, so that it has a
/// place reserved before; who finds too little left waits for what others reserved and do not need.
pub(super) struct Room {
    filled: Mutex<Filled>,
    changed: Notify,
    reading: Semaphore,
}

/// A part of the room that is kept until it is filled or given back by dropping it.
pub(super) struct Place<'a> {
    room: &'a Room,
    bytes: usize,
}

#[derive(Debug, Default)]
struct Filled {
    /// By results that will be in the answer.
    taken: usize,
    /// For results that may be.
    reserved: usize,
}

#[derive(Debug, PartialEq, Eq)]
enum Fit {
    Now,
    /// It depends on what becomes of what others have reserved.
    Later,
    Never,
}

impl Room {
    pub(super) fn new() -> Self {
        Self {
            filled: Mutex::default(),
            changed: Notify::new(),
            reading: Semaphore::new(READS_MAX),
        }
    }

    /// Waits until it is this one's turn to have an item in memory that may not fit.
    pub(super) async fn turn(&self) -> Option<SemaphorePermit<'_>> {
        self.reading.acquire().await.ok()
    }

    /// Whether nothing fits any more, so that there is no need to try.
    pub(super) fn is_full(&self) -> bool {
        BATCH_RESULT_BYTES_MAX <= self.filled().taken
    }

    /// A place for a result of that size, or none if it does not fit; the first one always does.
    /// What does not fit leaves the room as it was.
    pub(super) async fn reserve(&self, bytes: usize) -> Option<Place<'_>> {
        loop {
            // Made before the look at the room, so that no change after it is missed.
            let changed = self.changed.notified();
            let fit = {
                let mut filled = self.filled();
                let fit = filled.fit(bytes);
                filled.reserved += if fit == Fit::Now { bytes } else { 0 };
                fit
            };
            match fit {
                Fit::Now => return Some(Place { room: self, bytes }),
                Fit::Never => return None,
                Fit::Later => changed.await,
            }
        }
    }

    fn filled(&self) -> MutexGuard<'_, Filled> {
        self.filled.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place<'_> {
    /// Puts a result there, which may be smaller or larger than expected.
    pub(super) fn fill(self, bytes: usize) {
        self.room.filled().taken += bytes;
        // Dropping it gives back what was reserved.
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.room.filled().reserved -= self.bytes;
        self.room.changed.notify_waiters();
    }
}

impl Filled {
    fn fit(&self, bytes: usize) -> Fit {
        let all = self.taken + self.reserved;
        if all == 0 || all + bytes <= BATCH_RESULT_BYTES_MAX {
            return Fit::Now;
        }
        let is_too_much = 0 < self.taken && BATCH_RESULT_BYTES_MAX < self.taken + bytes;
        if self.reserved == 0 || is_too_much { Fit::Never } else { Fit::Later }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use futures_util::future::{join_all, poll_immediate};

    use super::*;

    const QUARTER: usize = BATCH_RESULT_BYTES_MAX / 4;

    #[tokio::test]
    async fn what_is_refused_leaves_the_room_as_it_was() {
        let room = Room::new();
        room.reserve(3 * QUARTER).await.unwrap().fill(3 * QUARTER);
        for _ in 0..10 {
            assert!(room.reserve(2 * QUARTER).await.is_none());
        }
        room.reserve(QUARTER).await.unwrap().fill(QUARTER);
        assert!(room.is_full());
        assert!(room.reserve(1).await.is_none());
    }

    #[tokio::test]
    async fn the_first_result_fits_whatever_its_size() {
        let room = Room::new();
        room.reserve(5 * QUARTER).await.unwrap().fill(5 * QUARTER);
        assert!(room.reserve(1).await.is_none());
    }

    #[tokio::test]
    async fn small_results_have_their_places_all_at_once() {
        let room = Room::new();
        let places = poll_immediate(join_all((0..100).map(|_| room.reserve(QUARTER / 100)))).await;
        assert_eq!(places.unwrap().iter().flatten().count(), 100);
    }

    #[tokio::test]
    async fn a_large_result_waits_for_a_place_that_others_may_not_need() {
        let room = Room::new();
        let first = room.reserve(3 * QUARTER).await.unwrap();
        let mut second = pin!(room.reserve(2 * QUARTER));
        assert!(poll_immediate(second.as_mut()).await.is_none(), "it did not wait");
        drop(first);
        let second = second.await.unwrap();
        let mut third = pin!(room.reserve(3 * QUARTER));
        assert!(poll_immediate(third.as_mut()).await.is_none(), "it did not wait");
        second.fill(2 * QUARTER);
        assert!(third.await.is_none());
    }
}
