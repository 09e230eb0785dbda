//! Commits that number events of one partition go one after another.
//!
//! A commit expects the number that the one before it has left, and a server refuses whatever
//! expects something that is still under way. So they would only get in each other's way.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::sync::OwnedMutexGuard;

type Lock = Arc<tokio::sync::Mutex<()>>;

/// Who commits in which partition. A partition takes up room only while somebody does.
#[derive(Debug, Default)]
pub(crate) struct Turns(Mutex<BTreeMap<String, Lock>>);

impl Turns {
    /// Waits until nobody else commits in the partition; those who wait keep their order.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future gives up the place.
    pub(crate) async fn take<'a>(&'a self, partition: &'a str) -> Turn<'a> {
        let lock = Arc::clone(self.locks().entry(partition.to_owned()).or_default());
        // Made before waiting, so that it also tidies up after somebody who stops waiting.
        let mut turn = Turn { turns: self, partition, guard: None };
        turn.guard = Some(lock.lock_owned().await);
        turn
    }

    fn locks(&self) -> MutexGuard<'_, BTreeMap<String, Lock>> {
        self.0.lock().expect("nothing panics while it holds the lock")
    }
}

/// The right to commit in a partition; dropping it passes it on.
#[derive(Debug)]
pub(crate) struct Turn<'a> {
    turns: &'a Turns,
    partition: &'a str,
    guard: Option<OwnedMutexGuard<()>>,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.guard = None;
        let mut locks = self.turns.locks();
        // Whoever waits has a count of its own.
        if locks.get(self.partition).is_some_and(|it| Arc::strong_count(it) == 1) {
            locks.remove(self.partition);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn block_on<T>(future: impl Future<Output = T>) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            tokio::time::timeout(Duration::from_secs(60), future).await.expect("it hangs")
        })
    }

    async fn assert_waits<T>(turn: &mut (impl Future<Output = T> + Unpin)) {
        tokio::select! {
            biased;
            _ = turn => panic!("two at a time"),
            () = tokio::task::yield_now() => {}
        }
    }

    #[test]
    fn one_partition_waits_and_others_do_not() {
        block_on(async {
            let turns = Turns::default();
            let first = turns.take("a").await;
            let other = turns.take("b").await;
            let mut second = Box::pin(turns.take("a"));
            assert_waits(&mut second).await;
            drop(first);
            second.await;
            drop(other);
            assert!(turns.locks().is_empty(), "nobody is left");
        });
    }

    #[test]
    fn whoever_stops_waiting_leaves_nothing_behind() {
        block_on(async {
            let turns = Turns::default();
            let first = turns.take("a").await;
            let mut second = Box::pin(turns.take("a"));
            assert_waits(&mut second).await;
            drop(first);
            drop(second);
            assert!(turns.locks().is_empty(), "nobody is left");
        });
    }
}
