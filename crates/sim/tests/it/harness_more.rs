//! More questions about a world, and more that an operator can do.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use millstream_core::{Continuation, Cursor, KeyRange, PartitionKey};
use millstream_processor::{
    DeadLetters, Estimate, Estimator, Notification, Operations, ParkedSequence, ProcessorOptions,
    Result, StartPosition,
};
use millstream_sim::SimClock;

use crate::harness::World;
use crate::harness::documents::LeaseSeen;
use crate::harness::node::Node;
use crate::harness::recorder::{Delivery, HandledBatch};

/// The lease duration of all scenarios here.
pub(crate) const LEASE: Duration = Duration::from_secs(20);
/// Their round interval.
pub(crate) const ROUND: Duration = Duration::from_secs(5);
/// Longer than anything takes that is not waited for by intent.
pub(crate) const SOON: Duration = Duration::from_secs(30);

/// So many seconds.
pub(crate) const fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// So many milliseconds.
pub(crate) const fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// The options of a scenario: from the beginning, with the times above.
pub(crate) fn options() -> ProcessorOptions {
    ProcessorOptions::default()
        .start(StartPosition::Beginning)
        .lease_duration(LEASE)
        .round_interval(ROUND)
}

pub(crate) fn is_lost(it: &Notification) -> bool {
    matches!(it, Notification::Lost { .. })
}

pub(crate) fn is_acquired(it: &Notification) -> bool {
    matches!(it, Notification::Acquired { .. })
}

pub(crate) fn is_store_failed(it: &Notification) -> bool {
    matches!(it, Notification::StoreFailed { .. })
}

pub(crate) fn is_split(it: &Notification) -> bool {
    matches!(it, Notification::Split { .. })
}

/// The commit up to which a lease is done.
pub(crate) fn done_up_to(position: &str) -> u64 {
    let continuation = Continuation::new(position).expect("a lease has a position");
    Cursor::parse(&continuation).expect("both backends write cursors").after.as_u64()
}

/// The greatest position seen of each lease; says when one goes back.
#[derive(Default)]
pub(crate) struct Positions(BTreeMap<String, u64>);

impl Positions {
    #[track_caller]
    pub(crate) fn look(&mut self, world: &World) {
        for lease in world.leases() {
            let position = done_up_to(&lease.position);
            let before = self.0.insert(lease.id.clone(), position);
            let went_back = before.is_some_and(|it| position < it);
            assert!(!went_back, "{} went back from {before:?} to {position}", lease.id);
        }
    }
}

impl World {
    /// Lets time pass and looks at the positions all the while.
    #[track_caller]
    pub(crate) fn run_watching(&self, time: Duration, positions: &mut Positions) {
        let until = self.now() + time;
        while self.now() < until {
            self.run(millis(50).min(until - self.now()));
            positions.look(self);
        }
    }

    /// The only lease there is.
    #[track_caller]
    pub(crate) fn only_lease(&self) -> LeaseSeen {
        let mut leases = self.leases();
        assert_eq!(leases.len(), 1);
        leases.remove(0)
    }

    /// Who owns the only lease.
    #[track_caller]
    pub(crate) fn only_owner(&self) -> Option<String> {
        self.only_lease().owner
    }

    /// The epochs of all leases, by id.
    pub(crate) fn epochs(&self) -> BTreeMap<String, u64> {
        self.leases().into_iter().map(|it| (it.id, it.epoch)).collect()
    }

    /// Starts an instance and waits until it has all leases.
    #[track_caller]
    pub(crate) fn start_owner(&self, name: &str, options: &ProcessorOptions) -> Node {
        let node = self.start(name, options);
        self.run_until(SOON, || self.owners().keys().all(|it| it == name));
        node
    }

    /// The batches of an instance in the order of time.
    pub(crate) fn batches_of(&self, node: &str) -> Vec<HandledBatch> {
        self.recorder().batches().into_iter().filter(|it| it.node == node).collect()
    }

    /// The deliveries of an item in the order of time.
    pub(crate) fn deliveries_of_item(&self, id: &str) -> Vec<Delivery> {
        self.recorder().deliveries().into_iter().filter(|it| it.id == id).collect()
    }

    /// The ids of the items of a key in the order in which handlers were content with them.
    pub(crate) fn handled_of_key(&self, key: &str) -> Vec<String> {
        let batches = self.recorder().batches();
        let of_key = self.recorder().deliveries().into_iter().filter(|it| it.key == key);
        of_key
            .filter(|it| batches[it.batch].ended.is_some_and(|(_, content)| content))
            .map(|it| it.id)
            .collect()
    }

    /// Runs until handlers were content with each of these items.
    #[track_caller]
    pub(crate) fn run_until_handled(&self, ids: &[&str]) {
        self.run_until(SOON, || {
            let batches = self.recorder().batches();
            let handled: BTreeSet<String> = batches
                .into_iter()
                .filter(|it| it.ended.is_some_and(|(_, content)| content))
                .flat_map(|it| it.ids)
                .collect();
            ids.iter().all(|it| handled.contains(*it))
        });
    }

    /// Two keys that lie in the two ranges of the container of the items.
    pub(crate) fn key_in(&self, place: usize) -> String {
        let keys = self.ranges()[place].keys.clone();
        (0..).map(|it| format!("key-{it}")).find(|it| self.is_in(it, &keys)).expect("keys spread")
    }

    pub(crate) fn is_in(&self, key: &str, keys: &KeyRange) -> bool {
        let feed = self.raw_feed();
        let effective = feed.info.settings.partition_key.effective(&PartitionKey::from(key));
        keys.contains(&effective.expect("a fine key"))
    }

    /// The dead letters of the processor, as from a machine of their own.
    pub(crate) fn letters(&self) -> DeadLetters {
        let (_, leases) = self.seen_from_world();
        let clock = self.clock();
        DeadLetters::new(&leases, Self::PROCESSOR, clock, secs(5)).expect("a fine name")
    }

    /// What is parked of a key.
    pub(crate) fn parked(&self, key: &str) -> Option<ParkedSequence> {
        let (letters, key) = (self.letters(), PartitionKey::from(key));
        self.block_on(async move { letters.show(&key).await }).expect("the container is there")
    }

    /// The ids of the parked items of a key in order, read in pages of two.
    pub(crate) fn parked_ids(&self, key: &str) -> Vec<String> {
        let (letters, key) = (self.letters(), PartitionKey::from(key));
        self.block_on(async move {
            let (mut ids, mut after) = (Vec::new(), None::<String>);
            loop {
                let page = letters.sequence(&key, after.as_deref(), 2).await;
                let page = page.expect("the container is there");
                let Some(last) = page.last() else { return ids };
                after = Some(last.id.clone());
                ids.extend(page.iter().map(|it| it.change.id.to_string()));
            }
        })
    }

    /// How many keys are parked.
    pub(crate) fn letters_parked(&self) -> usize {
        let letters = self.letters();
        let page = self.block_on(async move { letters.list_parked(None, 1_000).await });
        page.expect("the container is there").sequences.len()
    }

    /// Has a parked key delivered again.
    #[track_caller]
    pub(crate) fn redrive(&self, key: &str) {
        let (letters, key) = (self.letters(), PartitionKey::from(key));
        self.operate(|it| async move { it.redrive(&letters, &key).await });
    }

    /// Does something as an operator.
    #[track_caller]
    pub(crate) fn operate<T, F>(&self, what: impl FnOnce(Operations) -> F) -> T
    where
        T: Send + 'static,
        F: Future<Output = Result<T>> + Send + 'static,
    {
        let done = self.block_on(what(self.operations()));
        done.unwrap_or_else(|error| panic!("{}", error.report()))
    }

    /// How far the processor is behind, counting up to 1,000 items.
    #[track_caller]
    pub(crate) fn estimate(&self) -> Estimate {
        let (feed, leases) = self.seen_from_world();
        let estimator = Estimator::new_with(&feed, &leases, Self::PROCESSOR, self.clock());
        let estimator = estimator.expect("a fine name").count_items_up_to(1_000);
        let estimate = self.block_on(async move { estimator.estimate().await });
        estimate.unwrap_or_else(|error| panic!("{}", error.report()))
    }

    fn clock(&self) -> Arc<SimClock> {
        SimClock::of_world(self.handle())
    }
}
