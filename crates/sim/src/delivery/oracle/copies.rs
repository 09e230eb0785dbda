//! Messages as one subscription has them: in which order they are given out, and what became of
//! them.
//!
//! The order of a session is checked for the broker that was opened last. One that it has replaced
//! and that does not know yet may still give out messages, but can settle none.

use std::collections::{BTreeMap, BTreeSet};

use millstream_broker::Received;
use millstream_core::{Settlement, Timestamp};

use crate::delivery::oracle::events::Event;
use crate::delivery::oracle::holders::Grant;
use crate::delivery::oracle::{Kept, Oracle, Rules, State, Subscription};
use crate::log::log;

/// One message in one subscription.
#[derive(Clone, Debug)]
pub(super) struct Copy {
    event: String,
    key: String,
    is_scheduled: bool,
    /// The broker that had it first, or that sent it back from the dead letters, and when that was
    /// known.
    known_in: u64,
    known_at: u64,
    /// Requests to receive from its session until then.
    receives: u64,
    /// Requests to end it or put it aside that had or may have had their effect.
    asked: u32,
    may_be_deferred: bool,
    /// When somebody last asked to send it back from the dead letters.
    revived_at: u64,
    /// What the broker has acknowledged.
    durable: Option<Fate>,
    /// What became of it in each broker that gave it out.
    given: BTreeMap<u64, Given>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Completed,
    Deferred,
    Dead,
}

/// What became of a message in a broker that has given it out: somebody has it, or had it and it
/// waits again, or it was ended or put aside.
#[derive(Clone, Copy, Debug, Default)]
struct Given {
    is_settled: bool,
    /// Requests to end it or put it aside that were not answered.
    pending: u32,
}

/// A request to settle messages.
#[derive(Debug)]
pub(crate) struct Settling {
    grant: Grant,
    fate: Option<Fate>,
    numbers: Vec<u64>,
    moment: u64,
}

impl Oracle {
    /// Somebody begins to receive from a session. Returns the moment.
    pub(crate) fn receiving(&self, grant: &Grant) -> u64 {
        let mut state = self.lock();
        let receives = &mut state.subscriptions[grant.subscription].receives;
        *receives.entry(grant.session.clone()).or_default() += 1;
        state.next_tick()
    }

    /// A broker gives messages out to whoever began to receive at that moment.
    pub(crate) fn delivered(
        &self,
        grant: &Grant,
        begun: u64,
        received: &[Received],
        broker_time: Timestamp,
    ) -> Result<(), String> {
        log(|| format!("{} gets {}", grant.session, described(received)));
        let mut state = self.lock();
        let mut together = BTreeSet::new();
        // While bodies were read the lock may have ended; then these have come again by now.
        let is_held = state.subscriptions[grant.subscription].holds(grant, self.handle.now());
        for one in received {
            // One that was late by the clock of the broker that took it was never scheduled.
            let delivery = &one.delivery;
            let due_at = delivery.message.scheduled_at.filter(|it| delivery.enqueued_at < *it);
            // One that was deferred was due, by the clock of the broker that gave it out.
            if !one.is_deferred && due_at.is_some_and(|at| broker_time < at) {
                return Err(format!("message {} came early", delivery.message.id));
            }
            state.kept(one, &self.rules)?;
            if is_held {
                state.given(grant, begun, one, &together, &self.rules)?;
                together.insert(one.delivery.sequence_number);
            }
        }
        Ok(())
    }

    /// Somebody is about to settle messages.
    pub(crate) fn settling(
        &self,
        grant: &Grant,
        numbers: &[u64],
        settlement: &Settlement,
    ) -> Settling {
        let fate = match settlement {
            Settlement::Complete => Some(Fate::Completed),
            Settlement::Abandon => None,
            Settlement::Defer => Some(Fate::Deferred),
            Settlement::DeadLetter { .. } => Some(Fate::Dead),
        };
        let mut state = self.lock();
        let moment = state.next_tick();
        let subscription = &mut state.subscriptions[grant.subscription];
        for number in numbers {
            let Some(copy) = subscription.copies.get_mut(number) else { continue };
            let Some(fate) = fate else { continue };
            copy.asked += 1;
            copy.may_be_deferred |= fate == Fate::Deferred;
            if let Some(given) = copy.given.get_mut(&grant.broker) {
                given.pending += 1;
            }
            if fate != Fate::Completed {
                subscription.put_aside.insert(copy.event.clone());
            }
        }
        let counts = &mut state.counts;
        *match fate {
            Some(Fate::Completed) => &mut counts.completed,
            None => &mut counts.abandoned,
            Some(Fate::Deferred) => &mut counts.deferred,
            Some(Fate::Dead) => &mut counts.dead_lettered,
        } += 1;
        Settling { grant: grant.clone(), fate, numbers: numbers.to_vec(), moment }
    }

    /// The broker has answered: for each message whether it was settled.
    pub(crate) fn settled(&self, settling: &Settling, outcomes: &[bool]) {
        let Settling { grant, fate, numbers, moment } = settling;
        log(|| format!("{} has {numbers:?} {fate:?}: {outcomes:?}", grant.session));
        if fate.is_none() {
            return;
        }
        let mut state = self.lock();
        let subscription = &mut state.subscriptions[grant.subscription];
        for (number, is_settled) in numbers.iter().zip(outcomes) {
            let Some(copy) = subscription.copies.get_mut(number) else { continue };
            if let Some(given) = copy.given.get_mut(&grant.broker) {
                given.pending = given.pending.saturating_sub(1);
                given.is_settled |= *is_settled;
            }
            // A dead letter may be sent back before the answer that it is one has come.
            match is_settled {
                true if copy.revived_at < *moment => copy.durable = *fate,
                true => (),
                false => copy.asked = copy.asked.saturating_sub(1),
            }
        }
    }

    /// Numbers of a session that may be put aside until somebody asks for them.
    pub(crate) fn deferred(&self, subscription: usize, session: &str) -> Vec<u64> {
        let state = self.lock();
        let copies = state.subscriptions[subscription].copies.iter();
        let deferred = copies.filter(|(_, it)| it.key == session && it.is_deferred());
        deferred.map(|(number, _)| *number).collect()
    }

    /// Sessions that may have such messages.
    pub(crate) fn sessions_with_deferred(&self, subscription: usize) -> Vec<String> {
        let state = self.lock();
        let copies = state.subscriptions[subscription].copies.values();
        let keys: BTreeSet<&String> =
            copies.filter(|it| it.is_deferred()).map(|it| &it.key).collect();
        keys.into_iter().cloned().collect()
    }

    /// Somebody is about to send dead letters back. Whether it happens is not known yet.
    pub(crate) fn reviving(&self, subscription: usize, broker: u64, numbers: &[u64]) {
        let mut state = self.lock();
        let tick = state.next_tick();
        let subscription = &mut state.subscriptions[subscription];
        // However it came there: what was sent later has overtaken it.
        let events: Vec<String> = subscription.these(numbers).map(|it| it.event.clone()).collect();
        subscription.put_aside.extend(events);
        for copy in subscription.these(numbers) {
            (copy.known_in, copy.known_at, copy.revived_at) = (broker, tick, tick);
            (copy.asked, copy.durable) = (copy.asked + 1, None);
            copy.given.remove(&broker);
        }
    }

    /// All of them wait again, in their old places.
    pub(crate) fn revived(&self, subscription: usize, broker: u64, numbers: &[u64]) {
        let mut state = self.lock();
        let tick = state.next_tick();
        state.counts.revived += u64::try_from(numbers.len()).expect("a few");
        let receives = state.subscriptions[subscription].receives.clone();
        for copy in state.subscriptions[subscription].these(numbers) {
            // Somebody may have been quick.
            if copy.given.contains_key(&broker) {
                continue;
            }
            (copy.known_in, copy.known_at, copy.asked) = (broker, tick, 0);
            copy.receives = receives.get(&copy.key).copied().unwrap_or_default();
        }
    }
}

impl State {
    /// A message of this number exists. A second one of the same event may come only after the
    /// window.
    fn kept(&mut self, one: &Received, rules: &Rules) -> Result<(), String> {
        let delivery = &one.delivery;
        self.check_message(&delivery.message)?;
        let (id, at) = (&delivery.message.id, delivery.enqueued_at);
        let kept = Kept { event: id.clone(), enqueued_at: Some(at) };
        let before = self.messages.insert(delivery.sequence_number, kept);
        if let Some(before) = before.filter(|it| it.event != *id) {
            let number = delivery.sequence_number;
            return Err(format!("message {number} is about {id} and was about {}", before.event));
        }
        let Some(window) = rules.duplicate_window else { return Ok(()) };
        let others = self
            .messages
            .iter()
            .filter(|(number, other)| **number != delivery.sequence_number && other.event == *id);
        for (number, other) in others {
            let Some(other_at) = other.enqueued_at else { continue };
            let apart = at.since(other_at).max(other_at.since(at));
            if apart < window {
                let own = delivery.sequence_number;
                return Err(format!(
                    "event {id} was kept as {number} and {own}, {apart:?} apart in a window of \
                     {window:?}",
                ));
            }
        }
        Ok(())
    }

    fn given(
        &mut self,
        grant: &Grant,
        begun: u64,
        one: &Received,
        together: &BTreeSet<u64>,
        rules: &Rules,
    ) -> Result<(), String> {
        let tick = self.next_tick();
        let is_newest = grant.broker == self.newest;
        let (id, number) = (&one.delivery.message.id, one.delivery.sequence_number);
        let event = &self.events[id];
        self.counts.deliveries += 1;
        let subscription = &mut self.subscriptions[grant.subscription];
        if event.key != grant.session {
            return Err(format!("session {} got message {id} of {}", grant.session, event.key));
        }
        let is_again = subscription.copies.get(&number).is_some_and(|it| !it.given.is_empty());
        self.counts.redeliveries += u64::from(is_again);
        let is_unheard = !subscription.copies.contains_key(&number);
        subscription.know(number, id, event, grant.broker, tick);
        if is_unheard {
            // Its sender was never told its number: it may have been there for every request to
            // receive, also for those whose answer was lost.
            subscription.these(&[number]).for_each(|it| it.receives = 0);
        }
        if is_newest {
            subscription.check_ended(number, one.is_deferred)?;
        }
        if is_newest && !one.is_deferred && !event.is_scheduled() {
            subscription.check_order(grant, number, begun, together, rules)?;
        }
        let copy = subscription.copies.get_mut(&number).expect("it was just made known");
        if !one.is_deferred {
            copy.given.entry(grant.broker).or_default().is_settled = false;
        }
        Ok(())
    }
}

impl Subscription {
    /// There is a message of this number.
    pub(super) fn know(&mut self, number: u64, id: &str, event: &Event, broker: u64, at: u64) {
        let receives = self.receives.get(&event.key).copied().unwrap_or_default();
        self.copies.entry(number).or_insert_with(|| Copy {
            event: id.to_owned(),
            key: event.key.clone(),
            is_scheduled: event.is_scheduled(),
            known_in: broker,
            known_at: at,
            receives,
            asked: 0,
            may_be_deferred: false,
            revived_at: 0,
            durable: None,
            given: BTreeMap::new(),
        });
    }

    /// Whether messages of the event may have been given out so often that they are dead letters.
    pub(super) fn may_be_dead(&self, id: &str, deliveries_max: u32) -> bool {
        let mut copies = self.copies.values().filter(|it| it.event == id);
        copies.any(|it| self.is_spent(it, deliveries_max))
    }

    /// A message that was ended or put aside, and acknowledged so, does not come by itself.
    fn check_ended(&self, number: u64, is_deferred: bool) -> Result<(), String> {
        let copy = &self.copies[&number];
        match copy.durable {
            None => Ok(()),
            Some(Fate::Deferred) if is_deferred => Ok(()),
            Some(fate) => {
                let id = &copy.event;
                Err(format!("message {number} of {id} came again though it was {fate:?}"))
            }
        }
    }

    /// Nothing that comes before this message in its session may be left behind.
    fn check_order(
        &self,
        grant: &Grant,
        number: u64,
        begun: u64,
        together: &BTreeSet<u64>,
        rules: &Rules,
    ) -> Result<(), String> {
        let broker = grant.broker;
        let same = |(other, it): &(&u64, &Copy)| {
            it.key == grant.session && !it.is_scheduled && !together.contains(other)
        };
        for (earlier, copy) in self.copies.range(..number).filter(same) {
            let is_left = match copy.given.get(&broker) {
                Some(given) => !given.is_settled && given.pending == 0,
                None => {
                    let is_there = copy.known_in <= broker && copy.known_at < begun;
                    is_there && copy.asked == 0 && copy.durable.is_none()
                }
            };
            if is_left && !self.is_spent(copy, rules.deliveries_max) {
                let (session, id) = (&grant.session, &copy.event);
                return Err(format!(
                    "session {session} got message {number} before {earlier} of {id}"
                ));
            }
        }
        // What was there when the broker was opened comes in order, whatever it was told before.
        let own = &self.copies[&number];
        if own.known_in < broker && !own.given.contains_key(&broker) {
            let mut later = self.copies.range(number + 1..).filter(same);
            let overtook = later.find(|(_, it)| it.given.contains_key(&broker));
            if let Some((later, _)) = overtook.filter(|_| !self.is_spent(own, rules.deliveries_max))
            {
                let session = &grant.session;
                return Err(format!("session {session} got message {number} after {later}"));
            }
        }
        Ok(())
    }

    fn is_spent(&self, copy: &Copy, deliveries_max: u32) -> bool {
        let receives = self.receives.get(&copy.key).copied().unwrap_or_default();
        u64::from(deliveries_max) <= receives - copy.receives
    }

    fn these(&mut self, numbers: &[u64]) -> impl Iterator<Item = &mut Copy> {
        self.copies.iter_mut().filter(|(it, _)| numbers.contains(it)).map(|(_, copy)| copy)
    }
}

fn described(received: &[Received]) -> String {
    let one = |it: &Received| {
        let delivery = &it.delivery;
        format!("{} {} ({}) ", delivery.sequence_number, delivery.message.id, it.is_deferred)
    };
    received.iter().map(one).collect()
}

impl Copy {
    fn is_deferred(&self) -> bool {
        self.may_be_deferred && matches!(self.durable, None | Some(Fate::Deferred))
    }
}
