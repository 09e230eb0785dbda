//! What is known about every event, message, session and effect, and whether it may be so.
//!
//! Writes of the data and effect containers come by here the moment they take effect, and requests
//! to the broker on the broker's side, before and after it has dealt with them. Read `events`
//! first, then `copies`, which has the order of sessions, then `effects`.

mod copies;
mod effects;
mod events;
mod holders;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use millstream_core::Timestamp;

pub(crate) use crate::delivery::oracle::effects::EFFECT;
pub(crate) use crate::delivery::oracle::holders::Grant;

use crate::delivery::counts::DeliveryCounts;
use crate::delivery::oracle::copies::Copy;
use crate::delivery::oracle::events::Event;
use crate::delivery::oracle::holders::Holder;
use crate::executor::handle::Handle;

/// What the broker was told to promise.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    pub(crate) lock: Duration,
    pub(crate) duplicate_window: Option<Duration>,
    pub(crate) deliveries_max: u32,
    /// Whether it holds messages back until they are due; otherwise the relay does.
    pub(crate) broker_schedules: bool,
}

/// Knows everything and complains.
#[derive(Debug)]
pub(crate) struct Oracle {
    handle: Handle,
    rules: Rules,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Committed events by id.
    events: BTreeMap<String, Event>,
    /// Ids of the events of each key, in the order of their numbers from 1 on.
    keys: BTreeMap<String, Vec<String>>,
    /// Parts of units of work whose event is committed.
    parts: BTreeSet<(u64, u64)>,
    /// The broker that was opened last.
    newest: u64,
    /// Orders what happens at the same time.
    tick: u64,
    /// Messages that the broker keeps or kept, by its own numbers.
    messages: BTreeMap<u64, Kept>,
    subscriptions: Vec<Subscription>,
    counts: DeliveryCounts,
}

/// A message in the broker.
#[derive(Clone, Debug)]
struct Kept {
    event: String,
    /// Known once it was delivered.
    enqueued_at: Option<Timestamp>,
}

/// What one subscription has done.
#[derive(Debug, Default)]
struct Subscription {
    copies: BTreeMap<u64, Copy>,
    /// Who has which session of which broker.
    holders: BTreeMap<(u64, String), Holder>,
    /// Requests to receive from each session.
    receives: BTreeMap<String, u64>,
    /// Events that had their effect.
    effects: BTreeSet<String>,
    /// Events that a consumer has put aside at some time.
    put_aside: BTreeSet<String>,
}

impl Oracle {
    pub(crate) fn new(handle: &Handle, subscriptions: usize, rules: Rules) -> Self {
        let mut state = State::default();
        state.subscriptions.resize_with(subscriptions, Subscription::default);
        Self { handle: handle.clone(), rules, state: Mutex::new(state) }
    }

    /// How often what happened.
    pub(crate) fn counts(&self) -> DeliveryCounts {
        self.lock().counts
    }

    /// Counts something that nobody but its doer sees.
    pub(crate) fn count(&self, count: impl FnOnce(&mut DeliveryCounts)) {
        count(&mut self.lock().counts);
    }

    /// A broker has taken over everything that was stored.
    pub(crate) fn opened(&self, broker: u64) {
        let mut state = self.lock();
        state.newest = state.newest.max(broker);
        state.counts.opens += 1;
    }

    /// Ends the run if something is wrong.
    pub(crate) fn judge(&self, outcome: Result<(), String>) {
        if let Err(violation) = outcome {
            self.handle.fail(violation);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nothing panics while it holds the lock")
    }
}

impl State {
    fn next_tick(&mut self) -> u64 {
        self.tick += 1;
        self.tick
    }
}
